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
#include "sm-helper/moves/ops_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void job_run(void *arg)
{
	struct job *j = arg;

	j->run(j);
	if (j->body && !j->error.status)
		ops_publish(j->rest->ops);
}

bool rest_refuse_follower(struct job *j)
{
	struct ops *o = j->rest->ops;

	return o->twin && ops_reconcile(o, &j->error);
}

static void gone_run(void *arg)
{
	struct job *j = arg;

	notice_gone(j->rest->ops, j->gone);
}

/* Nobody waits for the notices: the caller has its answer. */
static void tell_gone(struct rest *rest, uint64_t vguid)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return;
	j->rest = rest;
	j->gone = vguid;
	if (work_submit(rest->pool, gone_run, free, j))
		free(j);
}

void rest_job_done(void *arg)
{
	struct job *j = arg;

	if (j->error.status) {
		log_at(j->error.status >= 500 ? LOG_WARN : LOG_NOTICE, "refused (%u %s): %s",
		       j->error.status, j->error.code, j->error.detail);
		http_fail(j->exchange, j->error.status, j->error.code, "%s", j->error.detail);
		json_object_put(j->reply);
	} else {
		http_reply(j->exchange, 200, j->reply);
		if (j->gone)
			tell_gone(j->rest, j->gone);
	}
	json_object_put(j->body);
	free(j);
}

struct job *rest_job_new(struct http_request *req, void (*run)(struct job *j),
			 const char *const arg[REST_ARGS_MAX])
{
	struct job *j = calloc(1, sizeof *j);

	if (!j) {
		http_fail(req->exchange, 500, "no-memory", "no memory");
		return NULL;
	}
	j->rest = req->user;
	j->exchange = req->exchange;
	j->run = run;
	for (size_t i = 0; arg && i < REST_ARGS_MAX; i++)
		snprintf(j->arg[i], sizeof j->arg[i], "%s", arg[i] ? arg[i] : "");
	j->body = json_object_get(req->body);
	j->arrived_us = now_us();
	return j;
}

void rest_submit(struct http_request *req, void (*run)(struct job *j),
		 const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;
	struct job *j = rest_job_new(req, run, arg);

	if (j && work_submit(rest->pool, job_run, rest_job_done, j)) {
		ops_fail(&j->error, -ENOMEM, 500, "no-memory", "no memory");
		rest_job_done(j);
	}
}

void rest_bad_request(struct job *j, const char *text)
{
	j->error.status = 400;
	snprintf(j->error.code, sizeof j->error.code, "bad-request");
	snprintf(j->error.detail, sizeof j->error.detail, "%s", text);
}

/* A required string of 1 to REG_TEXT_MAX - 1 bytes. */
void rest_need_text(struct json_reader *r, const char *key, char to[static REG_TEXT_MAX])
{
	const char *text = json_need_str(r, key);

	if (r->error)
		return;
	if (!*text || strlen(text) >= REG_TEXT_MAX) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"%s\" has %zu bytes; allowed is 1 to %d", key, strlen(text),
			 REG_TEXT_MAX - 1);
		return;
	}
	strcpy(to, text);
}

uint16_t rest_need_pkey(struct json_reader *r)
{
	const char *text = json_need_str(r, "pkey");
	uint16_t pkey = 0;

	if (!r->error && ib_pkey_parse(text, &pkey)) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"pkey\" is \"%.20s\"; allowed is 0x0001 to 0xffff without 0x8000",
			 text);
	}
	return pkey;
}

/* host, vf and parked_guid of an object; url where the object has it and it is wanted; the entry of
 * a GUID table, where it is said. */
static void need_vf(struct json_reader *r, bool url, struct reg_vf *vf)
{
	rest_need_text(r, "host", vf->host);
	rest_need_text(r, "vf", vf->vf);
	vf->parked_guid = json_need_guid(r, "parked_guid");
	if (url)
		rest_need_text(r, "url", vf->url);
	if (json_opt(r->obj, "port_guid"))
		vf->switch_guid = json_need_guid(r, "port_guid");
	if (json_opt(r->obj, "guid_index"))
		vf->switch_port = (uint8_t)json_need_u64(r, "guid_index", 1, UINT8_MAX);
}

void rest_need_vf_at(struct json_reader *r, const char *key, bool url, struct reg_vf *vf)
{
	struct json_object *o = json_need_obj(r, key);
	struct json_reader inner;

	if (r->error)
		return;
	json_reader_init(&inner, o);
	need_vf(&inner, url, vf);
	if (inner.error) {
		r->error = inner.error;
		snprintf(r->message, sizeof r->message, "in \"%s\": %.200s", key, inner.message);
	}
}

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

static void run_status(struct job *j)
{
	struct ops *o = j->rest->ops;
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
	json_set_u64(c, "sa_path_requests", s.sa_path_requests);
	json_set_u64(c, "repath_notices", s.repath_notices + outbox_counts(o->outbox).acked);
	add_notice_counts(c, o);
	json_set_u64(c, "moves", atomic_load(&o->moves));
	add_path_counts(c, path_service_counts(o->paths));
	j->reply = json_object_new_object();
	json_set(j->reply, "sm", status_sm(o, &s, rc, error));
	json_set_u64(json_opt(j->reply, "sm"), "age_ms", age_ms);
	if (o->twin)
		json_set(j->reply, "peer", twin_status(o->twin));
	json_set_bool(j->reply, "caching", j->rest->caching);
	json_set_str(j->reply, "addresses", address_mode_name(o->addresses));
	json_set(j->reply, "parked", rest_parked_json(&o->parked));
	json_set(j->reply, "counters", c);
	json_set_u64(j->reply, "switches", s.switches);
	json_set_u64(j->reply, "ports", s.endports);
	tell_certificate(j->reply, j->rest->tls);
}

static void run_bind(struct job *j)
{
	struct reg_entry e = {0};
	struct json_reader r;
	uint16_t lid;

	json_reader_init(&r, j->body);
	e.vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", e.vm);
	rest_need_text(&r, "name", e.name);
	need_vf(&r, true, &e.at);
	e.pkey = rest_need_pkey(&r);
	if (!r.error && e.vguid == e.at.parked_guid) {
		rest_bad_request(j, "vguid and parked_guid are the same");
		return;
	}
	if (r.error) {
		rest_bad_request(j, r.message);
		return;
	}
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&j->rest->binding);
	if (rest_check_claim(j, e.vguid, e.vm) ||
	    action_bind(j->rest->ops, &e, rest_deadline_us(j), &lid, &j->error))
		return;
	j->reply = json_object_new_object();
	json_set_u64(j->reply, "lid", lid);
}

static void run_unbind(struct job *j)
{
	bool said = json_opt(j->body, "from");
	char vm[REG_TEXT_MAX] = "";
	struct reg_vf from = {0};
	struct json_reader r;
	uint64_t vguid;

	json_reader_init(&r, j->body);
	vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", vm);
	if (said)
		rest_need_vf_at(&r, "from", false, &from);
	if (r.error)
		rest_bad_request(j, r.message);
	else if (!action_unbind(j->rest->ops, vguid, vm, said ? &from : NULL, rest_deadline_us(j),
				&j->error))
		j->gone = vguid;
}

static struct json_object *path_json(const struct path_value *p, bool caching)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", p->pkey);
	json_set_u64(o, "dlid", p->dlid);
	json_set_u64(o, "slid", p->slid);
	json_set_u64(o, "sl", p->sl);
	json_set_u64(o, "mtu", notice_mtu_bytes(p->mtu));
	json_set_u64(o, "rate", p->rate);
	json_set_str(o, "pkey", pkey);
	json_set_bool(o, "cacheable", caching);
	return o;
}

/* The line that says what is wrong, or NULL. */
static const char *read_path_query(const char *sgid, const char *dgid, const char *pkey,
				   struct path_query *q)
{
	*q = (struct path_query){0};
	if (!sgid || !dgid || ib_gid_parse(sgid, &q->sgid) || ib_gid_parse(dgid, &q->dgid))
		return "sgid and dgid must be GIDs such as fe80::0002:c903:0000:0001";
	if (pkey && *pkey && ib_pkey_parse(pkey, &q->pkey))
		return "pkey must be 0x0001 to 0xffff without 0x8000";
	return NULL;
}

static void run_path(struct job *j)
{
	char text[BACKEND_ERROR_MAX];
	struct path_answer a = {.error = -EAGAIN};
	struct path_query q;

	read_path_query(j->arg[0], j->arg[1], j->arg[2], &q);
	path_service_fill(j->rest->ops->paths, &q, 1, &a, text);
	if (!a.error) {
		j->reply = path_json(&a.path, j->rest->caching);
		return;
	}
	j->error = (struct op_error){503, "sa-unavailable", ""};
	if (a.error == -ENOENT)
		j->error = (struct op_error){404, "no-path", ""};
	snprintf(j->error.detail, sizeof j->error.detail, "%s",
		 *text ? text : "the subnet manager knows no such path");
}

static void run_subscribe(struct job *j)
{
	char host[REG_TEXT_MAX] = "", url[REG_TEXT_MAX] = "";
	struct json_reader r;

	json_reader_init(&r, j->body);
	rest_need_text(&r, "host", host);
	rest_need_text(&r, "url", url);
	if (r.error)
		rest_bad_request(j, r.message);
	else if (rest_refuse_follower(j))
		return;
	else if (registry_subscribe(j->rest->ops->registry, host, url))
		rest_registry_broken(j);
	else
		atomic_fetch_add(&j->rest->ops->subscriptions, 1);
	j->reply = json_object_new_object();
	json_set_bool(j->reply, "caching", j->rest->caching);
}

/* By a worker of its own: all others may be waiting for OpenSM. */
static void get_status(struct http_request *req)
{
	struct rest *rest = req->user;
	struct job *j = rest_job_new(req, run_status, NULL);

	if (j && work_submit(rest->look_pool, job_run, rest_job_done, j)) {
		ops_fail(&j->error, -ENOMEM, 500, "no-memory", "no memory");
		rest_job_done(j);
	}
}

/* What is in the cache is answered here, at once. */
static void get_path(struct http_request *req)
{
	struct rest *rest = req->user;
	const char *arg[REST_ARGS_MAX] = {
		http_query(req->exchange, "sgid"),
		http_query(req->exchange, "dgid"),
		http_query(req->exchange, "pkey"),
	};
	struct path_query q;
	struct path_answer a;
	const char *wrong = read_path_query(arg[0], arg[1], arg[2], &q);

	if (wrong)
		http_fail(req->exchange, 400, "bad-request", "%s", wrong);
	else if (!path_service_lookup(rest->ops->paths, &q, 1, &a) && !a.error)
		http_reply(req->exchange, 200, path_json(&a.path, rest->caching));
	else if (a.error == -ENOENT)
		http_fail(req->exchange, 404, "no-path", "the subnet manager knows no such path");
	else
		rest_submit(req, run_path, arg);
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
	{"POST", "/v1/fence", rest_post_fence, REST_NOVA | REST_PEER},
	{"POST", "/v1/reconcile", rest_post_reconcile, REST_NOVA},
	{"GET", "/v1/verify", rest_get_verify, REST_READ_ONLY},
	{"GET", "/v1/paths", get_path, REST_READ_ONLY},
	{"GET", "/v1/loads", rest_get_loads, REST_READ_ONLY},
	{"POST", "/v1/bind", post_bind, REST_PEER},
	{"POST", "/v1/unbind", post_unbind, REST_PEER},
	{"POST", "/v1/moves", rest_post_moves, REST_PEER},
	{"POST", "/v1/moves/check", rest_post_moves_check, REST_PEER},
	{"POST", "/v1/parked", rest_post_parked, REST_NOVA},
	{"POST", "/v1/ranks", rest_post_ranks, REST_PEER},
	{"POST", "/v1/subscriptions", post_subscription, REST_PEER},
	{"GET", "/v1/peer", rest_get_twin, REST_REPLICA},
	{"GET", "/v1/peer/registry", rest_get_twin_registry, REST_REPLICA},
	{"POST", "/v1/peer", rest_post_twin, REST_REPLICA},
	{0},
};

unsigned rest_roles(const struct http_who *who, void *user)
{
	const struct rest *rest = user;

	return who->names ? role_table_find(rest->roles, who->names) : REST_ALL;
}
