/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/verify: the fabric as it is, beside the registry. Moves go on meanwhile: an entry that is
 * found wrong counts if nothing has changed since the fabric was read, else it is looked at again.
 */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/hosts.h"
#include "sm-helper/watch/rights.h"
#include "sm-helper/watch/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ROUNDS   5
#define QUIET_MS 20000 /* longer than a batch takes */
#define QUIET_US 5000
#define AGAIN_US 50000
#define MOVED    "it moved each time that it was looked at: ask again"

struct look {
	struct rest_call *call;
	struct hosts hosts;
	struct verify v;
	uint64_t batches; /* ops.batches of before the fabric was read */
	struct looked {
		struct reg_entry e;
		struct json_object *o; /* owned; NULL: not certain yet */
		bool doubted;          /* wrong the last time, when nothing had changed */
		bool gone;             /* bound no more */
	} * one;                       /* owned */
	size_t count;
	unsigned rounds;
	bool doubts; /* P_Keys were found, and are looked for once more */
	struct json_object *left,
		*unread; /* owned: ports behind vSwitches with P_Keys of their last
			  * users, and those that do not tell; NULL: not certain */
};

static void add_entry(void *arg, const struct reg_entry *e)
{
	struct look *l = arg;
	struct looked *grown = realloc(l->one, (l->count + 1) * sizeof *grown);

	if (!grown)
		return;
	l->one = grown;
	grown[l->count++] = (struct looked){.e = *e};
}

static void look_free(struct look *l)
{
	for (size_t i = 0; i < l->count; i++)
		json_object_put(l->one[i].o);
	free(l->one);
	json_object_put(l->left);
	json_object_put(l->unread);
	verify_end(&l->v);
	hosts_free(&l->hosts);
}

/* ---- whether it is still so ---- */

static uint64_t await_quiet(struct ops *o)
{
	uint64_t give_up_ms = now_ms() + QUIET_MS, n;

	while ((n = atomic_load(&o->batches)) & 1 && now_ms() < give_up_ms)
		usleep(QUIET_US);
	return n;
}

static bool has_changed(const struct look *l)
{
	return l->batches & 1 || atomic_load(&l->call->rest->ops->batches) != l->batches;
}

/* The registry's word on it now. */
static void read_again(struct look *l, struct looked *x)
{
	x->gone = registry_find(l->call->rest->ops->registry, x->e.vguid, &x->e) == -ENOENT;
}

/* ---- what is found ---- */

static struct json_object *entry_json(const struct look *l, const struct reg_entry *e, int rc,
				      const struct verify_result *r)
{
	struct json_object *o = rest_entry_json(e);
	char text[HOSTS_TEXT_MAX] = "";
	enum hosts_verdict host = hosts_check(&l->hosts, e, text);

	json_set_bool(o, "ok", !rc && host != HOSTS_DIFFER);
	json_set_str(o, "problem", rc ? r->text : host == HOSTS_DIFFER ? text : NULL);
	json_set_bool(o, "sa", r->sa);
	json_set_str(o, "answers_by", rc ? NULL : reach_name(r->by));
	if (host == HOSTS_UNKNOWN)
		json_set(o, "host_agrees", NULL);
	else
		json_set_bool(o, "host_agrees", host == HOSTS_AGREE);
	json_set_u64(o, "walks", r->walks);
	return o;
}

static void look_at(struct look *l, struct looked *x, bool last)
{
	struct verify_result r;
	int rc = verify_entry(&l->v, &x->e, &r);

	/* Hosts show other GUIDs before they call, and the registry tells the new place after the
	 * batch. */
	if (rc && !last && (has_changed(l) || x->e.intent != REG_NONE || !x->doubted)) {
		x->doubted = !has_changed(l);
		return;
	}
	if (rc && has_changed(l))
		snprintf(r.text, sizeof r.text, MOVED);
	x->o = entry_json(l, &x->e, rc, &r);
}

static void add_leftover(void *arg, const struct fabric_end *end, uint16_t pkey, const char *silent)
{
	struct json_object *o = json_object_new_object();
	struct look *l = arg;
	char text[8];

	snprintf(text, sizeof text, "0x%04x", pkey);
	json_set_guid(o, "guid", end->port_guid);
	json_set_u64(o, "lid", end->lid);
	json_set_str(o, "port", end->desc);
	if (silent)
		json_set_str(o, "problem", silent);
	else
		json_set_str(o, "pkey", text);
	json_object_array_add(silent ? l->unread : l->left, o);
}

/* null where the subnet manager's policy cannot be asked. Some are looked for twice: a VF shows
 * another GUID before its P_Keys are changed. */
static void find_leftovers(struct look *l)
{
	char why[BACKEND_ERROR_MAX];
	int rc;

	l->left = json_object_new_array();
	l->unread = json_object_new_array();
	fabric_find_vswitches(&l->v.f);
	rc = rights_leftovers(l->call->rest->ops, &l->v.f, add_leftover, l, why);
	l->doubts = !rc && json_count(l->left) && (!l->rounds || has_changed(l));
	if (!rc && !l->doubts)
		return;
	if (rc)
		log_info("verify: P_Keys that are left: %s", why);
	json_object_put(TAKE(l->left));
	json_object_put(TAKE(l->unread));
}

/* ---- rounds ---- */

static int look_once(struct look *l, bool last, size_t *ret_left)
{
	struct rest *rest = l->call->rest;
	struct ops *o = rest->ops;
	char error[PROBE_ERROR_MAX];
	size_t left = 0;
	int rc;

	l->batches = await_quiet(o);
	verify_end(&l->v);
	rc = verify_begin(&l->v, o->eyes, &rest->reach, o->verify_sources, error);
	if (rc == -EEXIST && !last) { /* a VM that moves is shown by both hosts for a moment */
		l->rounds++;
		*ret_left = 1;
		return 0;
	}
	if (rc)
		return ops_fail(&l->call->error, rc, 503, "no-umad", "%s", error);
	for (size_t i = 0; i < l->count; i++) {
		struct looked *x = &l->one[i];

		if (!x->o)
			read_again(l, x);
		if (!x->o && !x->gone)
			look_at(l, x, last);
		left += !x->o && !x->gone;
	}
	if (!l->left)
		find_leftovers(l);
	l->rounds++;
	*ret_left = left + (!l->left && l->doubts);
	return 0;
}

static void tell(struct look *l)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < l->count; i++)
		if (l->one[i].o)
			json_object_array_add(list, TAKE(l->one[i].o));
	l->call->reply = json_object_new_object();
	json_set(l->call->reply, "vguids", list);
	json_set(l->call->reply, "leftover_pkeys", TAKE(l->left));
	json_set(l->call->reply, "unread_pkeys", TAKE(l->unread));
	json_set_u64(l->call->reply, "switches", l->v.f.switches);
	json_set_u64(l->call->reply, "ports", l->v.f.ends);
}

/* Hosts are asked before: they may be slow. */
static void run_verify(struct rest_call *call)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&call->rest->verifying);
	struct look l = {.call = call};
	struct ops *o = call->rest->ops;
	size_t left = 1;
	int rc = 0;

	if (action_sm_moves(o)) {
		ops_fail(&call->error, -EOPNOTSUPP, 503, "no-umad",
			 "backend %s: virtual ports are no nodes that an SMP could be sent to",
			 backend_kind(o->backend)->name);
		return;
	}
	if (registry_each(o->registry, add_entry, &l)) {
		rest_registry_broken(call);
		rc = -EIO;
	}
	for (size_t i = 0; !rc && i < l.count; i++)
		hosts_ask(&l.hosts, &l.one[i].e);
	for (unsigned i = 0; !rc && left && i < ROUNDS; i++) {
		usleep(i * AGAIN_US);
		rc = look_once(&l, i == ROUNDS - 1, &left);
	}
	if (!rc)
		tell(&l);
	look_free(&l);
}

void rest_get_verify(struct http_request *req)
{
	rest_submit_read(req, run_verify, NULL);
}
