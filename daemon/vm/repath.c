/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/repath.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/reroute.h"
#include "daemon/vm/vm.h"

#include <errno.h>

#define SUBSCRIBE_MS       25000 /* then at the next beat */
#define SUBSCRIBE_AGAIN_MS 5000
#define KEPT_MAX           128
#define NOTICES_MAX        64     /* in one message: the moves of a batch */
#define KEPT_MS            300000 /* longer than a VM is on its way between two hosts */

struct repath {
	struct daemon *d;                   /* borrowed */
	struct loop_timer *timer;           /* owned; for a subscription that has failed */
	uint64_t renew_ms;                  /* 0: one is under way, or was not taken */
	struct json_object *kept[KEPT_MAX]; /* owned: notices, a ring */
	uint64_t kept_ms[KEPT_MAX];
	unsigned next;
	bool failed; /* said once */
};

/* ---- from what ibvmig-sm says to what an agent understands ---- */

static void copy_number(struct json_object *to, const char *key, struct json_object *from,
			const char *from_key)
{
	struct json_object *v = json_opt(from, from_key);

	if (json_object_is_type(v, json_type_int))
		json_set(to, key, json_object_get(v));
}

/* The record from sguid to dguid; sl_key: the direction. path NULL: nothing but the LID is said. */
static struct json_object *record(uint64_t sguid, uint64_t dguid, struct json_object *path,
				  const char *sl_key)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "dguid", dguid);
	json_set_guid(o, "sguid", sguid);
	copy_number(o, "sl", path, sl_key);
	copy_number(o, "mtu", path, "mtu");
	copy_number(o, "rate", path, "rate");
	return o;
}

/* The move of a VF that shares its port's LID changes that LID: key is the end of the record that
 * the moved VF is. */
static struct json_object *with_lid(struct json_object *record, const char *key,
				    struct json_object *move)
{
	uint64_t lid = json_opt_u64(move, "lid_after", 0);

	if (lid != json_opt_u64(move, "lid_before", lid))
		json_set_u64(record, key, lid);
	return record;
}

static uint64_t peer_of(struct json_object *path)
{
	uint64_t guid = 0;

	ib_guid_parse(json_opt_str(path, "peer", ""), &guid);
	return guid;
}

static struct json_object *path_to(struct json_object *paths, uint64_t peer)
{
	for (size_t i = 0; i < json_object_array_length(paths); i++) {
		struct json_object *p = json_object_array_get_idx(paths, i);

		if (peer_of(p) == peer)
			return p;
	}
	return NULL;
}

/* More has changed than ibvmig-sm could list: the agent must ask for all. */
static struct json_object *everything(void)
{
	return json_object_new_string("all");
}

struct json_object *repath_move_of(struct json_object *answer, uint64_t vguid)
{
	struct json_object *moves = json_opt(answer, "moves");

	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *one = json_object_array_get_idx(moves, i);
		uint64_t guid = 0;

		ib_guid_parse(json_opt_str(one, "vguid", ""), &guid);
		if (guid == vguid)
			return one;
	}
	return moves ? NULL : answer;
}

bool repath_changed(struct json_object *answer)
{
	struct json_object *moves = json_opt(answer, "moves");
	uint64_t changed = json_opt_u64(answer, "paths_changed", 0);

	for (size_t i = 0; i < json_count(moves); i++)
		changed += json_opt_u64(json_object_array_get_idx(moves, i), "paths_changed", 0);
	return changed;
}

static uint64_t guid_at(struct json_object *list, size_t i)
{
	const char *text = json_object_get_string(json_object_array_get_idx(list, i));
	uint64_t guid = 0;

	ib_guid_parse(text ? text : "", &guid);
	return guid;
}

/* false: more has changed than is listed. */
static bool add_of_mover(struct json_object *list, struct json_object *move, uint64_t vguid)
{
	struct json_object *paths = json_opt(move, "paths");

	if (!json_opt_u64(move, "paths_changed", 0))
		return true;
	if (!json_object_is_type(paths, json_type_array))
		return false;
	for (size_t i = 0; i < json_object_array_length(paths); i++) {
		struct json_object *p = json_object_array_get_idx(paths, i);

		if (peer_of(p))
			json_object_array_add(
				list,
				with_lid(record(vguid, peer_of(p), p, "sl_from"), "slid", move));
	}
	return true;
}

struct json_object *repath_of_mover(struct json_object *answer, struct json_object *vguids)
{
	struct json_object *list;
	bool all = true;

	if (!repath_changed(answer))
		return NULL;
	list = json_object_new_array();
	for (size_t i = 0; i < json_count(vguids); i++)
		all &= add_of_mover(list, repath_move_of(answer, guid_at(vguids, i)),
				    guid_at(vguids, i));
	if (all)
		return list;
	json_object_put(list);
	return everything();
}

static void add_of_peer(struct json_object *list, struct json_object *move, uint64_t vguid,
			uint64_t peer)
{
	struct json_object *paths = json_opt(move, "paths"), *p;

	if (!json_opt_u64(move, "paths_changed", 0))
		return;
	if (!json_object_is_type(paths, json_type_array))
		json_object_array_add(list, record(peer, vguid, NULL, NULL));
	else if ((p = path_to(paths, peer)))
		json_object_array_add(list,
				      with_lid(record(peer, vguid, p, "sl_to"), "dlid", move));
}

struct json_object *repath_of_peer(struct json_object *answer, struct json_object *vguids,
				   struct json_object *peers)
{
	struct json_object *list;

	if (!repath_changed(answer))
		return NULL;
	list = json_object_new_array();
	for (size_t i = 0; i < json_count(vguids); i++)
		for (size_t k = 0; k < json_count(peers); k++)
			add_of_peer(list, repath_move_of(answer, guid_at(vguids, i)),
				    guid_at(vguids, i), guid_at(peers, k));
	return list;
}

static struct json_object *unpath(uint64_t vguid)
{
	struct json_object *msg = json_object_new_object(), *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	ib_guid_format(vguid, text);
	json_object_array_add(list, json_object_new_string(text));
	json_set_str(msg, "op", "unpath");
	json_set(msg, "guids", list);
	return msg;
}

static struct json_object *repath(struct vm *vm, struct json_object *body, uint64_t vguid)
{
	struct json_object *paths = json_opt(body, "paths"), *msg, *list;

	if (!json_object_is_type(paths, json_type_array))
		return unpath(vguid);
	msg = json_object_new_object();
	list = json_object_new_array();
	for (unsigned i = 0; i < vm->vf_count; i++) {
		uint64_t own = vm->vfs[i].want.vguid;
		struct json_object *r = record(own, vguid, path_to(paths, own), "sl_to");

		copy_number(r, "dlid", body, "lid");
		json_object_array_add(list, r);
	}
	json_set_str(msg, "op", "repath");
	json_set(msg, "paths", list);
	return msg;
}

/* ---- notices ---- */

static void tell(struct vm *vm, struct json_object *body)
{
	uint64_t vguid = 0;

	ib_guid_parse(json_opt_str(body, "vguid", ""), &vguid);
	/* Changes by the VM's own move come with its resume. */
	if (vm->gone || agent_state(vm->agent) != AGENT_UP || vm_has_guid(vm, vguid))
		return;
	agent_send(vm->agent,
		   json_opt_bool(body, "gone", false) ? unpath(vguid) : repath(vm, body, vguid));
}

/* For agents that are between two hosts now. A GID that has gone is not kept: it may be back. */
static void keep(struct repath *r, struct json_object *body)
{
	if (!r || json_opt_bool(body, "gone", false))
		return;
	json_object_put(r->kept[r->next]);
	r->kept[r->next] = json_object_get(body);
	r->kept_ms[r->next] = now_ms();
	r->next = (r->next + 1) % KEPT_MAX;
}

void repath_agent_up(struct vm *vm)
{
	struct repath *r = vm->d->repath;

	for (unsigned i = 0; r && i < KEPT_MAX; i++) {
		unsigned at = (r->next + i) % KEPT_MAX;

		if (r->kept[at] && now_ms() - r->kept_ms[at] < KEPT_MS)
			tell(vm, r->kept[at]);
	}
	if (r)
		reroute_agent_up(vm);
}

static int check_notice(struct json_object *notice, unsigned i, char *error)
{
	struct json_reader r;

	json_reader_init(&r, notice);
	json_need_guid(&r, "vguid");
	if (!json_opt_bool(notice, "gone", false))
		json_need_u64(&r, "lid", IB_LID_UCAST_MIN, IB_LID_UCAST_MAX);
	if (r.error)
		snprintf(error, HTTP_ERROR_MAX, "notices[%u]: %.200s", i, r.message);
	return r.error;
}

int repath_notice(struct daemon *d, struct json_object *body, char *error)
{
	struct json_object *list = json_opt(body, "notices");
	size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list)
								  : 0;
	int rc = 0;

	if (reroute_is_notice(body))
		return reroute_notice(d, body, error);
	if (count < 1 || count > NOTICES_MAX) {
		snprintf(error, HTTP_ERROR_MAX, "\"notices\" must be a list of 1 to %d",
			 NOTICES_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; !rc && i < count; i++)
		rc = check_notice(json_object_array_get_idx(list, i), (unsigned)i, error);
	for (size_t i = 0; !rc && i < count; i++) {
		struct json_object *notice = json_object_array_get_idx(list, i);

		log_info("notice of ibvmig-sm: %.300s", json_text(notice));
		keep(d->repath, notice);
		for (struct vm *vm = d->vms; vm; vm = vm->next)
			tell(vm, notice);
	}
	return rc;
}

void repath_on_notice(struct http_request *req)
{
	char error[HTTP_ERROR_MAX];

	if (repath_notice(req->user, req->body, error))
		http_fail(req->exchange, 400, "bad-field", "%s", error);
	else
		http_reply(req->exchange, 200, NULL);
}

void repath_tell_caching(struct daemon *d)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next) {
		struct json_object *msg;

		if (vm->gone || agent_state(vm->agent) != AGENT_UP)
			continue;
		msg = json_object_new_object();
		json_set_str(msg, "op", "path-cache");
		json_set_bool(msg, "on", d->sm.caching);
		agent_send(vm->agent, msg);
	}
}

/* ---- the subscription ---- */

static void subscribe_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL, *body = json_object_new_object();

	json_set_str(body, "host", j->d->settings->host_name);
	json_set_str(body, "url", j->d->settings->url);
	j->rc = sm_call(j->d->settings, "POST", "/v1/subscriptions", body, &answer, j->error);
	if (!j->rc && json_opt(answer, "caching"))
		json_set_bool(j->out, "caching", json_opt_bool(answer, "caching", false));
}

static void subscribe_done(struct job *j)
{
	struct repath *r = j->d->repath;

	if (!r)
		return;
	if (j->rc && !r->failed)
		log_warn("no notices of changed paths: %s (said once; tried again)", j->error);
	if (!j->rc && json_opt(j->out, "caching"))
		sm_set_caching(j->d, json_opt_bool(j->out, "caching", false));
	r->failed = j->rc;
	if (j->rc)
		loop_timer_arm(r->timer, SUBSCRIBE_AGAIN_MS);
	else
		r->renew_ms = now_ms() + SUBSCRIBE_MS;
}

static void subscribe(void *arg)
{
	struct repath *r = arg;

	r->renew_ms = 0;
	if (job_start(r->d, NULL, subscribe_run, subscribe_done, NULL, 0))
		loop_timer_arm(r->timer, SUBSCRIBE_AGAIN_MS);
}

void repath_beat(struct repath *r)
{
	if (r->renew_ms && now_ms() >= r->renew_ms)
		subscribe(r);
}

int repath_new(struct daemon *d, struct repath **ret_repath)
{
	struct repath *r = calloc(1, sizeof *r);
	int rc = r ? loop_timer_new(d->loop, subscribe, r, &r->timer) : -ENOMEM;

	if (rc) {
		free(r);
		return rc;
	}
	r->d = d;
	sm_on_caching(d, repath_tell_caching);
	if (d->settings->sm_url)
		loop_timer_arm(r->timer, 0);
	*ret_repath = r;
	return 0;
}

void repath_free(struct repath *r)
{
	if (!r)
		return;
	loop_timer_free(r->timer);
	for (unsigned i = 0; i < KEPT_MAX; i++)
		json_object_put(r->kept[i]);
	free(r);
}
