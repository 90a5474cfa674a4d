/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/qps.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/vm/calls.h"
#include "daemon/vm/vm.h"

#include <errno.h>

#define QUERY_MS 5000 /* the agent waits 3 s for its processes */

/* Peers, VFs and users in the kernel are for migrations. */
static struct json_object *shown(struct json_object *answer)
{
	static const char *const keys[] = {"processes", "uncovered", "paths", "truncated"};
	struct json_object *o = json_object_new_object();

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (json_opt(answer, keys[i]))
			json_set(o, keys[i], json_object_get(json_opt(answer, keys[i])));
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
		o = shown(answer);
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
