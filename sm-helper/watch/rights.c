/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/rights.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"

#include <errno.h>
#include <inttypes.h>

static int find_route(struct probe *m, struct fabric *f, uint64_t guid, struct probe_route *ret,
		      char *error)
{
	uint32_t end = fabric_find_end(f, guid);
	char text[PROBE_ERROR_MAX];
	int rc;

	if (end == FABRIC_NONE || f->end[end].sw == FABRIC_NONE)
		return backend_fail(error, -ENOENT, "no port shows GUID 0x%016" PRIx64, guid);
	rc = reach_route(m, f, end, ret, text);
	return rc ? backend_fail(error, rc, "%s", text) : 0;
}

static int read_pkeys(struct probe *m, const struct probe_route *route, struct pkeys *ret_keys,
		      char *error)
{
	char text[PROBE_ERROR_MAX];
	int rc = probe_pkeys(m, route, ret_keys, text);

	return rc ? backend_fail(error, rc, "%s", text) : 0;
}

/* The lock is for the way alone: a port that is silent holds no change up. Nor is it kept while
 * others who only look have their turns, so the probe is that of changes. */
int rights_shown(struct ops *o, uint64_t guid, struct pkeys *ret_keys,
		 char error[static BACKEND_ERROR_MAX])
{
	struct probe_route route = {0};
	int rc;

	pthread_mutex_lock(&o->lock);
	rc = find_route(o->probe, &o->fabric, guid, &route, error);
	pthread_mutex_unlock(&o->lock);
	return rc ? rc : read_pkeys(o->eyes, &route, ret_keys, error);
}

static void keep(struct sm_memberships *m, const struct pkeys *keys)
{
	m->count = 0;
	for (unsigned i = 0; i < keys->count && m->count < SM_PKEYS_MAX; i++)
		m->pkey[m->count++] = keys->key[i];
}

/* The first reason stands. */
static void keep_why(struct rights *r, const struct ops *o, const char *why)
{
	if (!*r->why)
		backend_fail(r->why, 0, "backend %s knows no partitions, and %.400s",
			     backend_kind(o->backend)->name, why);
}

/* Also where nothing may be changed, as with a backend that only reads. Its status still tells the
 * state: not every question reads all of the fabric. */
static int read_fabric(struct ops *o, char *error)
{
	struct sm_status_reply s;
	struct op_error e = {0};
	int rc;

	if (!ops_refresh(o, &e))
		return 0;
	backend_status(o->backend, &s, error);
	if (s.instance && o->epoch.instance == s.instance && o->epoch.generation == s.generation)
		return 0;
	rc = backend_fabric(o->backend, &o->fabric, &o->epoch, error);
	if (rc)
		o->epoch = (struct backend_epoch){0};
	return rc;
}

static void look(struct ops *o, const uint64_t *guids, unsigned count, struct pkeys *keys,
		 struct rights *r)
{
	char why[BACKEND_ERROR_MAX];
	int rc;

	pthread_mutex_lock(&o->lock);
	rc = read_fabric(o, why);
	pthread_mutex_unlock(&o->lock);
	if (rc) {
		keep_why(r, o, why);
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		r->known[i] = !rights_shown(o, guids[i], keys, why);
		if (r->known[i])
			keep(&r->told.of[i], keys);
		else
			keep_why(r, o, why);
	}
}

void rights_of(struct ops *o, const uint64_t *guids, unsigned count, struct rights *ret_rights)
{
	struct pkeys *keys AUTO_FREE = NULL;
	struct rights *r = ret_rights;

	r->seen = !backend_kind(o->backend)->memberships;
	*r->why = '\0';
	for (unsigned i = 0; i < count; i++)
		r->known[i] = false;
	if (r->seen && !(keys = calloc(1, sizeof *keys)))
		keep_why(r, o, "there is no memory");
	else if (r->seen)
		look(o, guids, count, keys, r);
	else if (!backend_memberships(o->backend, guids, count, &r->told, r->why))
		for (unsigned i = 0; i < count; i++)
			r->known[i] = true;
}

static bool covers(const struct sm_memberships *told, uint16_t key)
{
	for (unsigned i = 0; i < told->count && i < SM_PKEYS_MAX; i++)
		if (!((told->pkey[i] ^ key) & PKEY_BASE) &&
		    (told->pkey[i] & PKEY_FULL || !(key & PKEY_FULL)))
			return true;
	return false;
}

uint16_t rights_beyond(const struct pkeys *has, const struct sm_memberships *told)
{
	for (unsigned i = 0; i < has->count; i++)
		if (!covers(told, has->key[i]))
			return has->key[i];
	return 0;
}

/* ---- what the last users have left ---- */

struct round {
	struct rights rights;
	struct pkeys has;
	uint64_t guid[RIGHTS_MAX];
	uint32_t end[RIGHTS_MAX];
	unsigned count;
};

static int judge_round(struct ops *o, struct fabric *f, struct round *r, rights_found *found,
		       void *arg, char *error)
{
	char why[BACKEND_ERROR_MAX];
	uint16_t pkey;

	if (!r->count)
		return 0;
	rights_of(o, r->guid, r->count, &r->rights);
	if (!r->rights.known[0])
		return backend_fail(error, -EIO, "%.500s", r->rights.why);
	for (unsigned i = 0; i < r->count; i++) {
		struct probe_route route = {0};

		if (find_route(o->eyes, f, r->guid[i], &route, why) ||
		    read_pkeys(o->eyes, &route, &r->has, why))
			found(arg, &f->end[r->end[i]], 0, why);
		else if ((pkey = rights_beyond(&r->has, &r->rights.told.of[i])))
			found(arg, &f->end[r->end[i]], pkey, NULL);
	}
	r->count = 0;
	return 0;
}

int rights_leftovers(struct ops *o, struct fabric *f, rights_found *found, void *arg,
		     char error[static BACKEND_ERROR_MAX])
{
	struct round *r AUTO_FREE = NULL;
	int rc = 0;

	if (!backend_kind(o->backend)->memberships)
		return backend_fail(error, -EOPNOTSUPP, "backend %s knows no partitions",
				    backend_kind(o->backend)->name);
	if (!(r = calloc(1, sizeof *r)))
		return backend_fail(error, -ENOMEM, "no memory");
	for (uint32_t i = 0; !rc && i < f->ends; i++) {
		if (f->end[i].sw == FABRIC_NONE || !f->sw[f->end[i].sw].inside)
			continue;
		r->guid[r->count] = f->end[i].port_guid;
		r->end[r->count++] = i;
		if (r->count == RIGHTS_MAX)
			rc = judge_round(o, f, r, found, arg, error);
	}
	return rc ? rc : judge_round(o, f, r, found, arg, error);
}
