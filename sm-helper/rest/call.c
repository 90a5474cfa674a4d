/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A call on its way: from the request to a worker, and from there to the answer. */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <string.h>

static void run_call(void *arg)
{
	struct rest_call *call = arg;

	call->run(call);
	if (call->body && !call->asks && !call->error.status)
		ops_publish(call->rest->ops);
}

bool rest_refuse_follower(struct rest_call *call)
{
	struct ops *o = call->rest->ops;

	return o->twin && ops_reconcile(o, &call->error);
}

bool rest_refuse_change(struct rest_call *call)
{
	struct ops *o = call->rest->ops;
	char why[OWN_WHY_MAX], ignored[BACKEND_ERROR_MAX], code[32];
	struct sm_status_reply s;
	uint64_t age_ms;
	bool known = !backend_look(o->backend, &s, &age_ms, ignored);
	enum own_state state = own_state(o, known ? &s : NULL, why);

	if (state == OWN_GOOD)
		return rest_refuse_follower(call);
	snprintf(code, sizeof code, "registry-%s", own_state_name(o, state));
	return ops_fail(&call->error, -EROFS, 503, code, "%s", why);
}

static void gone_run(void *arg)
{
	struct rest_call *call = arg;

	notice_gone(call->rest->ops, call->gone);
}

/* Nobody waits for the notices: the caller has its answer. */
static void tell_gone(struct rest *rest, uint64_t vguid)
{
	struct rest_call *call = calloc(1, sizeof *call);

	if (!call)
		return;
	call->rest = rest;
	call->gone = vguid;
	if (work_submit(rest->pool, gone_run, free, call))
		free(call);
}

void rest_call_done(void *arg)
{
	struct rest_call *call = arg;

	call->rest->reading -= call->reads;
	if (call->error.status) {
		log_at(call->error.status >= 500 ? LOG_WARN : LOG_NOTICE, "refused (%u %s): %s",
		       call->error.status, call->error.code, call->error.detail);
		http_fail(call->exchange, call->error.status, call->error.code, "%s",
			  call->error.detail);
		json_object_put(call->reply);
	} else {
		http_reply(call->exchange, 200, call->reply);
		if (call->gone)
			tell_gone(call->rest, call->gone);
	}
	json_object_put(call->body);
	free(call);
}

struct rest_call *rest_call_new(struct http_request *req, void (*run)(struct rest_call *call),
				const char *const arg[REST_ARGS_MAX])
{
	struct rest_call *call = calloc(1, sizeof *call);

	if (!call) {
		http_fail(req->exchange, 500, "no-memory", "no memory");
		return NULL;
	}
	call->rest = req->user;
	call->exchange = req->exchange;
	call->run = run;
	for (size_t i = 0; arg && i < REST_ARGS_MAX; i++)
		snprintf(call->arg[i], sizeof call->arg[i], "%s", arg[i] ? arg[i] : "");
	call->body = json_object_get(req->body);
	call->roles = req->roles;
	call->arrived_us = now_us();
	return call;
}

static void submit(struct work_pool *pool, struct rest_call *call)
{
	if (call && work_submit(pool, run_call, rest_call_done, call)) {
		ops_fail(&call->error, -ENOMEM, 500, "no-memory", "no memory");
		rest_call_done(call);
	}
}

void rest_submit_to(struct work_pool *pool, struct http_request *req,
		    void (*run)(struct rest_call *call), const char *const arg[REST_ARGS_MAX])
{
	submit(pool, rest_call_new(req, run, arg));
}

/* Hosts ask often. A peer that is away would hold each question up, and all workers with them. */
void rest_submit_question(struct http_request *req, void (*run)(struct rest_call *call))
{
	struct rest_call *call = rest_call_new(req, run, NULL);

	if (call)
		call->asks = true;
	submit(call ? call->rest->host_pool : NULL, call);
}

/* Readers, who may ask the same, must not take the workers of hosts, on which VMs wait. */
void rest_submit_host(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;

	if (req->roles & REST_PEER)
		rest_submit_to(rest->host_pool, req, run, arg);
	else
		rest_submit_read(req, run, arg);
}

void rest_submit_slow(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;

	rest_submit_to(rest->slow_pool, req, run, arg);
}

/* Whoever comes too late waits longer than he would have patience for. */
void rest_submit_read(struct http_request *req, void (*run)(struct rest_call *call),
		      const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;
	struct rest_call *call;

	if (rest->reading >= REST_READS_MAX) {
		http_fail(req->exchange, 503, "busy",
			  "%u calls that only look are waiting already: ask again later",
			  rest->reading);
		return;
	}
	if (!(call = rest_call_new(req, run, arg)))
		return;
	call->reads = true;
	rest->reading++;
	submit(rest->read_pool, call);
}

void rest_submit(struct http_request *req, void (*run)(struct rest_call *call),
		 const char *const arg[REST_ARGS_MAX])
{
	struct rest *rest = req->user;

	rest_submit_to(rest->pool, req, run, arg);
}

void rest_bad_request(struct rest_call *call, const char *text)
{
	call->error.status = 400;
	snprintf(call->error.code, sizeof call->error.code, "bad-request");
	snprintf(call->error.detail, sizeof call->error.detail, "%s", text);
}

void rest_registry_broken(struct rest_call *call)
{
	call->error = (struct op_error){500, "registry", "the registry cannot be read or written"};
}

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

void rest_need_vf(struct json_reader *r, bool url, struct reg_vf *vf)
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
	rest_need_vf(&inner, url, vf);
	if (inner.error) {
		r->error = inner.error;
		snprintf(r->message, sizeof r->message, "in \"%s\": %.200s", key, inner.message);
	}
}
