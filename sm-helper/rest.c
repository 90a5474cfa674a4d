/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/rest_int.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/actions.h"
#include "sm-helper/backend.h"
#include "sm-helper/notice.h"

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

	return o->peer && ops_reconcile(o, &j->error);
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

static void job_done(void *arg)
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

/* arg: up to REST_ARGS_MAX strings of the request, NULL for one that is not there. */
void rest_submit(struct http_request *req, void (*run)(struct job *j),
		 const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;
	struct job *j = calloc(1, sizeof *j);

	if (!j) {
		http_fail(req->exchange, 500, "no-memory", "no memory");
		return;
	}
	j->rest = rest;
	j->exchange = req->exchange;
	j->run = run;
	for (size_t i = 0; arg && i < REST_ARGS_MAX; i++)
		snprintf(j->arg[i], sizeof j->arg[i], "%s", arg[i] ? arg[i] : "");
	j->body = json_object_get(req->body);
	if (work_submit(rest->pool, job_run, job_done, j)) {
		j->error.status = 500;
		job_done(j);
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

static uint16_t need_pkey(struct json_reader *r)
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

/* host, vf and parked_guid of an object; url where the object has it and it is wanted. */
static void need_vf(struct json_reader *r, bool url, struct reg_vf *vf)
{
	rest_need_text(r, "host", vf->host);
	rest_need_text(r, "vf", vf->vf);
	vf->parked_guid = json_need_guid(r, "parked_guid");
	if (url)
		rest_need_text(r, "url", vf->url);
}

static void need_vf_at(struct json_reader *r, const char *key, bool url, struct reg_vf *vf)
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
	static const char *const text[] = {"not-active", "discovering", "standby", "master"};

	return state < ARRAY_SIZE(text) ? text[state] : "unknown";
}

static struct json_object *status_sm(struct ops *o, const struct sm_status_reply *s, int rc,
				     const char *error)
{
	struct json_object *sm = json_object_new_object();

	json_set_str(sm, "backend", client_backend(o->client)->name);
	json_set_bool(sm, "plugin", !rc);
	json_set_bool(sm, "ready", !rc && s->ready && s->sm_state == 3);
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

static void run_status(struct job *j)
{
	struct ops *o = j->rest->ops;
	struct sm_status_reply s = {0};
	char error[CLIENT_ERROR_MAX] = "";
	struct json_object *c = json_object_new_object();
	int rc = client_status(o->client, &s, error);

	if (!rc && s.sm_state == 3 && s.ready && !ops_may_change(o)) {
		snprintf(error, sizeof error,
			 "nothing can be changed while the other ibvmig-sm cannot be told: see "
			 "peer");
		rc = -EHOSTDOWN;
	}
	json_set_u64(c, "heavy_sweeps", s.heavy_sweeps);
	json_set_u64(c, "lft_smps", s.lft_smps);
	json_set_u64(c, "lft_changes", s.lft_changes);
	json_set_u64(c, "port_info_smps", s.port_info_smps);
	json_set_u64(c, "sa_path_requests", s.sa_path_requests);
	json_set_u64(c, "repath_notices", s.repath_notices + outbox_counts(o->outbox).acked);
	add_notice_counts(c, o);
	json_set_u64(c, "moves", atomic_load(&o->moves));
	add_path_counts(c, path_service_counts(o->paths));
	j->reply = json_object_new_object();
	json_set(j->reply, "sm", status_sm(o, &s, rc, error));
	if (o->peer)
		json_set(j->reply, "peer", peer_status(o->peer));
	json_set_bool(j->reply, "caching", j->rest->caching);
	json_set_str(j->reply, "addresses", address_mode_name(o->addresses));
	json_set(j->reply, "counters", c);
	json_set_u64(j->reply, "switches", s.switches);
	json_set_u64(j->reply, "ports", s.endports);
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
	e.pkey = need_pkey(&r);
	if (!r.error && e.vguid == e.at.parked_guid) {
		rest_bad_request(j, "vguid and parked_guid are the same");
		return;
	}
	if (r.error) {
		rest_bad_request(j, r.message);
		return;
	}
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&j->rest->binding);
	if (rest_check_claim(j, e.vguid, e.vm) || action_bind(j->rest->ops, &e, &lid, &j->error))
		return;
	j->reply = json_object_new_object();
	json_set_u64(j->reply, "lid", lid);
}

static void run_unbind(struct job *j)
{
	char vm[REG_TEXT_MAX] = "";
	struct json_reader r;
	uint64_t vguid;

	json_reader_init(&r, j->body);
	vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", vm);
	if (r.error)
		rest_bad_request(j, r.message);
	else if (!action_unbind(j->rest->ops, vguid, vm, &j->error))
		j->gone = vguid;
}

static void read_move(struct json_reader *r, struct move_request *m)
{
	m->vguid = json_need_guid(r, "vguid");
	rest_need_text(r, "vm", m->vm);
	need_vf_at(r, "from", false, &m->from);
	need_vf_at(r, "to", true, &m->to);
	m->pkey = need_pkey(r);
	if (r->error || m->from.parked_guid != m->to.parked_guid ||
	    !strcmp(m->from.host, m->to.host))
		return;
	r->error = -EINVAL;
	snprintf(r->message, sizeof r->message,
		 "\"from\" and \"to\" have the same parked_guid on different hosts");
}

/* list: an array of moves, or NULL: the object itself is one. Room for OPS_MOVES_MAX. */
static unsigned read_moves(struct json_reader *r, struct json_object *list, struct move_request *m)
{
	size_t count = list ? json_object_array_length(list) : 1;

	if (!list) {
		read_move(r, m);
		return 1;
	}
	if (count < 1 || count > OPS_MOVES_MAX) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"moves\" has %zu entries; allowed is 1 to %d", count,
			 OPS_MOVES_MAX);
		return 0;
	}
	for (size_t i = 0; !r->error && i < count; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		struct json_reader inner;

		json_reader_init(&inner, json_object_is_type(one, json_type_object) ? one : NULL);
		if (inner.obj)
			read_move(&inner, &m[i]);
		else
			inner = (struct json_reader){.error = -EINVAL,
						     .message = "it must be an object"};
		r->error = inner.error;
		if (r->error)
			snprintf(r->message, sizeof r->message, "moves[%zu]: %.200s", i,
				 inner.message);
	}
	return (unsigned)count;
}

static void set_moved(struct json_object *o, const struct move_result *res, const struct moved *m)
{
	struct json_object *paths;

	json_set_u64(o, "lid_before", m->lid_before);
	json_set_u64(o, "lid_after", m->lid_after);
	json_set_u64(o, "paths_changed", m->paths_changed);
	if (m->paths_changed && (paths = notice_paths(res, m)))
		json_set(o, "paths", paths);
}

static struct json_object *moves_json(const struct move_result *res, bool list)
{
	struct json_object *o = json_object_new_object();
	struct json_object *moves = list ? json_object_new_array() : NULL;

	for (unsigned i = 0; list && i < res->moves; i++) {
		struct json_object *one = json_object_new_object();

		json_set_guid(one, "vguid", res->move[i].vguid);
		set_moved(one, res, &res->move[i]);
		json_object_array_add(moves, one);
	}
	if (list)
		json_set(o, "moves", moves);
	else
		set_moved(o, res, &res->move[0]);
	json_set_u64(o, "lft_smps", res->lft_smps);
	json_set_u64(o, "port_info_smps", res->port_info_smps);
	json_set_u64(o, "switches_updated", res->switches_updated);
	json_set_u64(o, "switches_total", res->switches_total);
	json_set_u64(o, "repath_notices", res->repath_notices);
	json_set_bool(o, "verified", res->verified);
	json_set_u64(o, "walks", res->walks);
	json_set_u64(o, "elapsed_us", res->elapsed_us);
	json_set_u64(o, "sm_us", res->sm_us);
	json_set_u64(o, "lock_us", res->lock_us);
	return o;
}

/* Large: on the heap. */
struct moves_call {
	struct move_request m[OPS_MOVES_MAX];
	struct move_result res;
};

static void call_moves(struct job *j, struct moves_call *c)
{
	bool many = json_opt(j->body, "moves") != NULL;
	struct json_reader r;
	unsigned count;

	json_reader_init(&r, j->body);
	count = read_moves(&r, many ? json_need_array(&r, "moves") : NULL, c->m);
	if (r.error) {
		rest_bad_request(j, r.message);
		return;
	}
	if (action_move(j->rest->ops, c->m, count, &c->res, &j->error))
		return;
	c->res.repath_notices += notice_moved(j->rest->ops, &c->res);
	j->reply = moves_json(&c->res, many);
}

static void run_moves(struct job *j)
{
	struct moves_call *c = calloc(1, sizeof *c);

	if (c)
		call_moves(j, c);
	else
		j->error = (struct op_error){500, "no-memory", "no memory"};
	free(c);
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
	char text[CLIENT_ERROR_MAX];
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

static void get_status(struct http_request *req)
{
	rest_submit(req, run_status, NULL);
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

static void post_move(struct http_request *req)
{
	rest_submit(req, run_moves, NULL);
}

static void post_subscription(struct http_request *req)
{
	rest_submit(req, run_subscribe, NULL);
}

const struct http_route rest_routes[] = {
	{"GET", "/v1/status", get_status},
	{"GET", "/v1/vguids", rest_get_vguids},
	{"GET", "/v1/vguids/*", rest_get_vguid},
	{"POST", "/v1/vguids", rest_post_vguid},
	{"POST", "/v1/release", rest_post_release},
	{"POST", "/v1/reconcile", rest_post_reconcile},
	{"GET", "/v1/verify", rest_get_verify},
	{"GET", "/v1/paths", get_path},
	{"POST", "/v1/bind", post_bind},
	{"POST", "/v1/unbind", post_unbind},
	{"POST", "/v1/moves", post_move},
	{"POST", "/v1/subscriptions", post_subscription},
	{"GET", "/v1/peer", rest_get_peer},
	{"GET", "/v1/peer/registry", rest_get_peer_registry},
	{"POST", "/v1/peer", rest_post_peer},
	{0},
};
