/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/members.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/fabric/pkeys.h"
#include "sm-helper/moves/ops_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FETCH_MS  5000
#define PAGES_MAX 4096

struct member {
	uint16_t pkey;
	struct sm_member m;
};

struct list {
	struct member *member; /* owned */
	size_t count, room;
};

static int add(struct list *l, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct member *grown = realloc(l->member, room * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		l->member = grown;
		l->room = room;
	}
	l->member[l->count++] = (struct member){pkey & PKEY_BASE, {.guid = guid, .as = as}};
	return 0;
}

/* By partition and GUID, so that two lists can be laid side by side. */
static int compare(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	if (x->pkey != y->pkey)
		return x->pkey < y->pkey ? -1 : 1;
	return x->m.guid < y->m.guid ? -1 : x->m.guid > y->m.guid;
}

static void sort(struct list *l)
{
	if (l->count)
		qsort(l->member, l->count, sizeof *l->member, compare);
}

/* ---- both lists ---- */

static int read_own(struct backend *b, struct list *l, char *error)
{
	struct sm_partitions_reply *r AUTO_FREE = calloc(1, sizeof *r);
	uint32_t first = 0;
	int rc = r ? 0 : backend_fail(error, -ENOMEM, "no memory");

	for (unsigned page = 0; !rc && page < PAGES_MAX; page++) {
		rc = backend_partitions(b, first, r, error);
		if (!rc && r->bad_line)
			return backend_fail(error, -EINVAL, "OpenSM gives its file up at line %u",
					    r->bad_line);
		for (uint32_t i = 0; !rc && i < r->count && i < SM_PARTITIONS_MAX; i++)
			if (r->entry[i].ours && r->entry[i].who == SM_WHO_GUID)
				rc = add(l, r->entry[i].pkey, r->entry[i].guid,
					 (enum sm_member_as)r->entry[i].as);
		if (rc || !r->count || (first += r->count) >= r->total)
			break;
	}
	return rc;
}

static int add_theirs(struct list *l, uint16_t pkey, struct json_object *o)
{
	const char *as = json_opt_str(o, "membership", "");
	uint64_t guid;

	if (!str_eq(json_opt_str(o, "source", ""), "ibvmig") ||
	    ib_guid_parse(json_opt_str(o, "guid", ""), &guid))
		return 0;
	return add(l, pkey, guid, str_eq(as, "full") ? SM_MEMBER_FULL : SM_MEMBER_LIMITED);
}

static int read_theirs(struct json_object *answer, struct list *l, char *error)
{
	struct json_object *partitions = json_opt(answer, "partitions");
	int rc = 0;

	if (json_opt(answer, "bad_line") || !json_object_is_type(partitions, json_type_array))
		return backend_fail(error, -EINVAL, "its list of partitions is not whole");
	for (size_t i = 0; !rc && i < json_count(partitions); i++) {
		struct json_object *o = json_object_array_get_idx(partitions, i);
		struct json_object *guids = json_opt(o, "guids");
		uint16_t pkey;

		if (ib_pkey_parse(json_opt_str(o, "pkey", ""), &pkey))
			continue;
		for (size_t k = 0; !rc && k < json_count(guids); k++)
			rc = add_theirs(l, pkey, json_object_array_get_idx(guids, k));
	}
	return rc ? backend_fail(error, rc, "no memory") : 0;
}

/* ---- the difference ---- */

/* Adds to `change` what makes `own` what `want` is. Both are sorted. */
static int differ(const struct list *own, const struct list *want, struct list *change)
{
	size_t i = 0, k = 0;
	int rc = 0;

	while (!rc && (i < own->count || k < want->count)) {
		int order = i == own->count    ? 1
			    : k == want->count ? -1
					       : compare(&own->member[i], &want->member[k]);
		const struct member *gone = &own->member[i], *due = &want->member[k];

		if (order < 0)
			rc = add(change, gone->pkey, gone->m.guid, SM_MEMBER_NONE);
		else if (order > 0 || gone->m.as != due->m.as)
			rc = add(change, due->pkey, due->m.guid, (enum sm_member_as)due->m.as);
		i += order <= 0;
		k += order >= 0;
	}
	return rc;
}

static int store(struct ops *o, const struct list *change, char *error)
{
	struct sm_member batch[SM_ASSIGN_MAX];
	struct sm_members_reply r;
	int rc = 0;

	for (size_t i = 0, n; !rc && i < change->count; i += n) {
		uint16_t pkey = change->member[i].pkey;

		for (n = 0; n < SM_ASSIGN_MAX && i + n < change->count &&
			    change->member[i + n].pkey == pkey;
		     n++)
			batch[n] = change->member[i + n].m;
		rc = backend_members(o->backend, pkey, batch, (unsigned)n, SM_MEMBERS_STORE,
				     FETCH_MS, &r, error);
	}
	return rc;
}

static int take_over(struct ops *o, struct json_object *answer, size_t *ret_changed, char *error)
{
	struct list own = {0}, want = {0}, change = {0};
	int rc = read_theirs(answer, &want, error);

	if (!rc && !(rc = read_own(o->backend, &own, error))) {
		sort(&own);
		sort(&want);
		rc = differ(&own, &want, &change) ? backend_fail(error, -ENOMEM, "no memory")
						  : store(o, &change, error);
	}
	*ret_changed = change.count;
	free(own.member);
	free(want.member);
	free(change.member);
	return rc;
}

/* Ops lock is not held: the host of the one that leads may have died, which takes long to find. */
static int check_leader(struct ops *o, char *error)
{
	struct json_object *state AUTO_JSON = NULL;
	int rc = twin_fetch(o->twin, "/v1/peer", FETCH_MS, &state, error);

	if (!rc && json_opt_u64(json_opt(state, "sm"), "state", 0) != SM_STATE_MASTER)
		rc = backend_fail(error, -EAGAIN, "the OpenSM beside it is not master");
	return rc;
}

/* A change that is passed on meanwhile waits for ops lock, and comes after what was fetched. */
static int fetch(struct ops *o, size_t *ret_changed, char *error)
{
	pthread_mutex_t *l AUTO_UNLOCK = NULL;
	struct json_object *answer AUTO_JSON = NULL;
	int rc = check_leader(o, error);

	if (rc)
		return rc;
	l = mutex_lock(&o->lock);
	rc = twin_fetch(o->twin, "/v1/partitions", FETCH_MS, &answer, error);
	return rc ? rc : take_over(o, answer, ret_changed, error);
}

static bool is_due(struct members *m, struct ops *o)
{
	char ignored[BACKEND_ERROR_MAX];
	struct sm_status_reply s = {0};
	uint64_t age_ms;

	if (!o->twin || !backend_kind(o->backend)->members ||
	    backend_look(o->backend, &s, &age_ms, ignored) || s.sm_state != SM_STATE_STANDBY) {
		m->due_ms = 0; /* as soon as it is one */
		return false;
	}
	if (s.instance == m->instance && now_ms() < m->due_ms)
		return false;
	m->instance = s.instance;
	return true;
}

void members_follow(struct members *m, struct ops *o)
{
	char error[BACKEND_ERROR_MAX] = "";
	size_t changed = 0;
	int rc;

	if (!is_due(m, o))
		return;
	rc = fetch(o, &changed, error);
	m->due_ms = now_ms() + (rc ? MEMBERS_AGAIN_MS : MEMBERS_FOLLOW_MS);
	if (rc && !m->told)
		log_warn("members of partitions are not brought up to date: %s", error);
	if (!rc && changed)
		log_notice("members of partitions: %zu differed from what the ibvmig-sm that "
			   "leads has, and are kept",
			   changed);
	m->told = rc != 0;
}
