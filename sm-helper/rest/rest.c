/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/rest/rest_int.h"
#include "common/json.h"
#include "common/log.h"
#include "common/tls/tls.h"
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/notify/outbox.h"
#include "sm-helper/notify/reroute.h"
#include "sm-helper/paths/interest.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/registry/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *state_text(unsigned state)
{
	static const char *const text[] = {
		[SM_STATE_NOT_ACTIVE] = "not-active",
		[SM_STATE_DISCOVERING] = "discovering",
		[SM_STATE_STANDBY] = "standby",
		[SM_STATE_MASTER] = "master",
	};

	return state < ARRAY_SIZE(text) ? text[state] : "unknown";
}

static struct json_object *status_sm(struct ops *o, const struct sm_status_reply *s, int rc,
				     const char *error)
{
	struct json_object *sm = json_object_new_object();

	json_set_str(sm, "backend", backend_kind(o->backend)->name);
	json_set_bool(sm, "plugin", !rc);
	json_set_bool(sm, "ready", !rc && s->ready && s->sm_state == SM_STATE_MASTER);
	json_set_str(sm, "state", s->instance ? state_text(s->sm_state) : "unknown");
	json_set_str(sm, "error", rc ? error : NULL);
	if (!s->instance)
		return sm;
	json_set_bool(sm, "sweeping", s->sweeping);
	json_set_str(sm, "plugin_version", s->plugin_version);
	json_set_str(sm, "opensm_version", s->opensm_version);
	json_set_str(sm, "routing_engine", s->engine);
	json_set_guid(sm, "guid", s->sm_guid);
	json_set_u64(sm, "lid", s->sm_lid);
	json_set_u64(sm, "others", s->others);
	return sm;
}

static void add_path_counts(struct json_object *c, struct path_counts n)
{
	json_set_u64(c, "path_cache_hits", n.hits);
	json_set_u64(c, "path_cache_misses", n.misses);
	json_set_u64(c, "path_sa_queries", n.sa_queries);
	json_set_u64(c, "path_refreshed", n.refreshed);
	json_set_u64(c, "path_expired", n.expired);
}

static void add_held_counts(struct json_object *c, struct ops *o)
{
	struct interest_counts n = interest_counts(o->interest);

	json_set_u64(c, "paths_held", n.records);
	json_set_u64(c, "paths_not_held", n.refused);
}

static void add_notice_counts(struct json_object *c, struct ops *o)
{
	struct outbox_counts n = outbox_counts(o->outbox);

	json_set_u64(c, "subscriptions", atomic_load(&o->subscriptions));
	json_set_u64(c, "notices_sent", n.sent);
	json_set_u64(c, "notices_acked", n.acked);
	json_set_u64(c, "notices_retried", n.retried);
	json_set_u64(c, "notices_lost", n.lost);
	json_set_u64(c, "notices_pending", n.pending);
}

static void tell_certificate(struct json_object *o, struct tls *tls)
{
	struct tls_keys *k = tls ? tls_keys_get(tls) : NULL;

	if (k)
		json_set_u64(o, "certificate_ends_ms", (uint64_t)k->not_after * 1000);
	tls_keys_put(k);
}

/* s: NULL, OpenSM does not answer. */
static struct json_object *status_registry(struct ops *o, const struct sm_status_reply *s)
{
	struct json_object *r = json_object_new_object();
	struct reg_owner own = registry_owner(o->registry);
	char why[OWN_WHY_MAX], id[17];
	enum own_state state = own_state(o, s, why);

	snprintf(id, sizeof id, "%016" PRIx64, own.registry);
	json_set_str(r, "id", id);
	json_set_u64(r, "epoch", own.epoch);
	json_set_str(r, "state", own_state_name(o, state));
	json_set_str(r, "error", *why ? why : NULL);
	json_set_u64(r, "vguids", registry_count(o->registry));
	if (s)
		json_set_u64(r, "bound_at_sm", s->bound);
	return r;
}

static void run_status(struct rest_call *call)
{
	struct ops *o = call->rest->ops;
	struct sm_status_reply s = {0};
	char error[BACKEND_ERROR_MAX] = "";
	struct json_object *c = json_object_new_object();
	uint64_t age_ms;
	int rc = backend_look(o->backend, &s, &age_ms, error);

	if (!rc && s.sm_state == SM_STATE_MASTER && s.ready && !ops_may_change(o)) {
		snprintf(error, sizeof error,
			 "nothing can be changed while the other ibvmig-sm cannot be told: see "
			 "peer");
		rc = -EHOSTDOWN;
	}
	json_set_u64(c, "heavy_sweeps", s.heavy_sweeps);
	json_set_u64(c, "lft_smps", s.lft_smps);
	json_set_u64(c, "lft_changes", s.lft_changes);
	json_set_u64(c, "port_info_smps", s.port_info_smps);
	json_set_u64(c, "guid_smps", s.guid_smps);
	json_set_u64(c, "pkey_smps", s.pkey_smps);
	json_set_u64(c, "pkey_changes", s.pkey_changes);
	json_set_u64(c, "sa_path_requests", s.sa_path_requests);
	json_set_u64(c, "repath_notices", s.repath_notices + outbox_counts(o->outbox).acked);
	json_set_u64(c, "unpath_notices", s.unpath_notices);
	json_set_u64(c, "gids_in_service", s.gids_in);
	json_set_u64(c, "gids_out_of_service", s.gids_out);
	json_set_u64(c, "reroutes", s.reroutes);
	add_notice_counts(c, o);
	json_set_u64(c, "moves", atomic_load(&o->moves));
	add_path_counts(c, path_service_counts(o->paths));
	add_held_counts(c, o);
	call->reply = json_object_new_object();
	json_set(call->reply, "sm", status_sm(o, &s, rc, error));
	json_set_u64(json_opt(call->reply, "sm"), "age_ms", age_ms);
	if (o->twin)
		json_set(call->reply, "peer", twin_status(o->twin));
	json_set(call->reply, "registry", status_registry(o, s.instance ? &s : NULL));
	json_set_bool(call->reply, "caching", call->rest->caching);
	json_set_str(call->reply, "addresses", address_mode_name(o->addresses));
	json_set(call->reply, "parked", rest_parked_json(&o->parked));
	json_set(call->reply, "counters", c);
	json_set_u64(call->reply, "switches", s.switches);
	json_set_u64(call->reply, "ports", s.endports);
	tell_certificate(call->reply, call->rest->tls);
}

static void run_bind(struct rest_call *call)
{
	struct reg_entry e = {0};
	struct json_reader r;
	uint16_t lid;

	json_reader_init(&r, call->body);
	e.vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", e.vm);
	rest_need_text(&r, "name", e.name);
	rest_need_vf(&r, true, &e.at);
	e.pkey = rest_need_pkey(&r);
	if (!r.error && e.vguid == e.at.parked_guid) {
		rest_bad_request(call, "vguid and parked_guid are the same");
		return;
	}
	if (r.error) {
		rest_bad_request(call, r.message);
		return;
	}
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&call->rest->binding);
	if (rest_check_claim(call, e.vguid, e.vm) ||
	    action_bind(call->rest->ops, &e, rest_deadline_us(call), &lid, &call->error))
		return;
	call->reply = json_object_new_object();
	json_set_u64(call->reply, "lid", lid);
}

static void run_unbind(struct rest_call *call)
{
	bool said = json_opt(call->body, "from");
	char vm[REG_TEXT_MAX] = "";
	struct reg_vf from = {0};
	struct json_reader r;
	uint64_t vguid;

	json_reader_init(&r, call->body);
	vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", vm);
	if (said)
		rest_need_vf_at(&r, "from", false, &from);
	if (r.error)
		rest_bad_request(call, r.message);
	else if (!action_unbind(call->rest->ops, vguid, vm, said ? &from : NULL,
				rest_deadline_us(call), &call->error))
		call->gone = vguid;
}

static void run_subscribe(struct rest_call *call)
{
	char host[REG_TEXT_MAX] = "", url[REG_TEXT_MAX] = "";
	struct json_reader r;

	json_reader_init(&r, call->body);
	rest_need_text(&r, "host", host);
	rest_need_text(&r, "url", url);
	if (r.error)
		rest_bad_request(call, r.message);
	else if (rest_refuse_follower(call))
		return;
	else if (registry_subscribe(call->rest->ops->registry, host, url))
		rest_registry_broken(call);
	else {
		atomic_fetch_add(&call->rest->ops->subscriptions, 1);
		reroute_host_back(call->rest->ops, host, url);
	}
	call->reply = json_object_new_object();
	json_set_bool(call->reply, "caching", call->rest->caching);
}

/* A worker of its own answers this: all others may be waiting for OpenSM. */
static void get_status(struct http_request *req)
{
	struct rest *rest = req->user;

	rest_submit_to(rest->look_pool, req, run_status, NULL);
}

static void post_bind(struct http_request *req)
{
	rest_submit(req, run_bind, NULL);
}

static void post_unbind(struct http_request *req)
{
	rest_submit(req, run_unbind, NULL);
}

static void post_subscription(struct http_request *req)
{
	rest_submit(req, run_subscribe, NULL);
}

const struct http_route rest_routes[] = {
	{"GET", "/v1/status", get_status, REST_READ_ONLY},
	{"GET", "/v1/vguids", rest_get_vguids, REST_READ_ONLY},
	{"GET", "/v1/vguids/*", rest_get_vguid, REST_READ_ONLY},
	{"POST", "/v1/vguids", rest_post_vguid, REST_NOVA},
	{"POST", "/v1/release", rest_post_release, REST_NOVA},
	{"POST", "/v1/rebuild", rest_post_rebuild, REST_NOVA},
	{"POST", "/v1/fence", rest_post_fence, REST_NOVA | REST_PEER},
	{"POST", "/v1/reconcile", rest_post_reconcile, REST_NOVA},
	{"GET", "/v1/verify", rest_get_verify, REST_READ_ONLY},
	{"GET", "/v1/paths", rest_get_path, REST_READ_ONLY},
	{"POST", "/v1/paths/held", rest_post_held, REST_PEER},
	{"GET", "/v1/reroutes", rest_get_reroutes, REST_READ_ONLY},
	{"GET", "/v1/loads", rest_get_loads, REST_READ_ONLY},
	{"POST", "/v1/bind", post_bind, REST_PEER},
	{"POST", "/v1/unbind", post_unbind, REST_PEER},
	{"POST", "/v1/moves", rest_post_moves, REST_PEER},
	{"POST", "/v1/moves/check", rest_post_moves_check, REST_PEER},
	{"POST", "/v1/parked", rest_post_parked, REST_NOVA},
	{"POST", "/v1/ranks", rest_post_ranks, REST_PEER},
	{"POST", "/v1/memberships", rest_post_memberships, REST_PEER},
	{"GET", "/v1/partitions", rest_get_partitions, REST_READ_ONLY},
	{"POST", "/v1/partitions/*/guids", rest_post_partition, REST_NOVA},
	{"POST", "/v1/subscriptions", post_subscription, REST_PEER},
	{"GET", "/v1/peer", rest_get_twin, REST_REPLICA},
	{"GET", "/v1/peer/registry", rest_get_twin_registry, REST_REPLICA},
	{"POST", "/v1/peer", rest_post_twin, REST_REPLICA},
	{"POST", "/v1/peer/partitions/*/guids", rest_post_stored_members, REST_REPLICA},
	{0},
};

unsigned rest_roles(const struct http_who *who, void *user)
{
	const struct rest *rest = user;

	return who->names ? role_table_find(rest->roles, who->names) : REST_ALL;
}
