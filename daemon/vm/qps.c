/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/qps.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/vm/calls.h"
#include "daemon/vm/vm.h"

#include <errno.h>

#define QUERY_MS    5000 /* the agent waits 3 s for its processes */
#define TEXT_MAX    160
#define QPN_MAX     0xffffff
#define ENTRIES_MAX 65536 /* entries of a list; a message has at most 1 MiB anyway */

/* A terminal may be shown this: no control characters, no half of a UTF-8 sequence. */
static void copy_text(struct json_object *to, struct json_object *from, const char *key)
{
	const char *text = json_opt_str(from, key, "");
	char copy[TEXT_MAX];
	size_t n = 0;

	for (; n < sizeof copy - 1 && text[n]; n++)
		copy[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	copy[n] = '\0';
	json_set_str(to, key, copy);
}

static void copy_number(struct json_object *to, struct json_object *from, const char *key,
			uint64_t max)
{
	uint64_t n = json_opt_u64(from, key, 0);

	json_set_u64(to, key, n < max ? n : max);
}

static struct json_object *list_of(struct json_object *from, const char *key,
				   struct json_object *(*one)(struct json_object *o))
{
	struct json_object *in = json_opt(from, key), *out = json_object_new_array();
	size_t n = json_object_is_type(in, json_type_array) ? json_object_array_length(in) : 0;

	for (size_t i = 0; i < n && i < ENTRIES_MAX; i++) {
		struct json_object *o = json_object_array_get_idx(in, i);

		if (json_object_is_type(o, json_type_object))
			json_object_array_add(out, one(o));
	}
	return out;
}

static struct json_object *one_qp(struct json_object *in)
{
	struct json_object *o = json_object_new_object();
	const char *dgid = json_opt_str(in, "dgid", NULL);
	struct ib_gid gid;
	char text[IB_GID_TEXT];
	uint64_t vguid = 0;
	uint16_t pkey;

	copy_number(o, in, "vqpn", QPN_MAX);
	copy_number(o, in, "qpn", QPN_MAX);
	copy_text(o, in, "type");
	copy_text(o, in, "state");
	if (!ib_guid_parse(json_opt_str(in, "vguid", ""), &vguid))
		json_set_guid(o, "vguid", vguid);
	if (!ib_pkey_parse(json_opt_str(in, "pkey", ""), &pkey)) {
		snprintf(text, sizeof text, "0x%04x", pkey);
		json_set_str(o, "pkey", text);
	}
	copy_number(o, in, "unacked", INT64_MAX);
	copy_number(o, in, "unacked_bytes", INT64_MAX);
	if (json_opt_bool(in, "uncovered", false))
		json_set_bool(o, "uncovered", true);
	if (dgid && !ib_gid_parse(dgid, &gid)) {
		ib_gid_format(&gid, text);
		json_set_str(o, "dgid", text);
		copy_number(o, in, "dvqpn", QPN_MAX);
		copy_number(o, in, "dqpn", QPN_MAX);
	}
	return o;
}

static struct json_object *one_process(struct json_object *in)
{
	struct json_object *o = json_object_new_object();

	copy_number(o, in, "pid", INT32_MAX);
	copy_text(o, in, "comm");
	copy_number(o, in, "mr_bytes", INT64_MAX);
	json_set(o, "qps", list_of(in, "qps", one_qp));
	return o;
}

static struct json_object *one_uncovered(struct json_object *in)
{
	struct json_object *o = json_object_new_object();

	copy_number(o, in, "pid", INT32_MAX);
	copy_text(o, in, "comm");
	copy_text(o, in, "why");
	return o;
}

static struct json_object *paths_of(struct json_object *in)
{
	static const char *const keys[] = {"queries",           "saved",           "failed",
					   "reconnect_queries", "reconnect_saved", "changed",
					   "dropped",           "entries",         "bytes"};
	struct json_object *o = json_object_new_object();

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		copy_number(o, in, keys[i], INT64_MAX);
	return o;
}

struct json_object *qps_view(struct json_object *answer)
{
	struct json_object *o = json_object_new_object();

	json_set(o, "processes", list_of(answer, "processes", one_process));
	json_set(o, "uncovered", list_of(answer, "uncovered", one_uncovered));
	json_set(o, "paths", paths_of(json_opt(answer, "paths")));
	if (json_opt_bool(answer, "truncated", false))
		json_set_bool(o, "truncated", true);
	return o;
}

struct call {
	struct http_exchange *exchange;
	char name[VM_NAME_MAX];
};

static void answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct call *c = arg;
	struct json_object *o;

	if (rc) {
		http_fail(c->exchange, rc == -ETIMEDOUT ? 504 : 503, "agent", "VM %s: %s", c->name,
			  error);
	} else {
		o = qps_view(answer);
		json_set_str(o, "vm", c->name);
		http_reply(c->exchange, 200, o);
	}
	free(c);
}

void qps_get(struct http_request *req)
{
	struct vm *vm = rest_vm(req);
	struct json_object *msg;
	struct call *c;

	if (!vm)
		return;
	/* A request would wait for an agent that is not there. */
	if (agent_state(vm->agent) != AGENT_UP || !(c = calloc(1, sizeof *c))) {
		http_fail(req->exchange, 503, "no-agent",
			  "no ibvmig-agent answers in VM %s: start it in the guest", vm->name);
		return;
	}
	c->exchange = req->exchange;
	snprintf(c->name, sizeof c->name, "%s", vm->name);
	msg = json_object_new_object();
	json_set_str(msg, "op", "query");
	agent_request(vm->agent, msg, QUERY_MS, answered, c);
}
