/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/channel.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/rights.h"
#include "daemon/base/sm.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <string.h>

#define PATHS_MAX    64 /* questions of one VM that have no answer yet */
#define ASKING_MAX   8  /* of these, that ibvmig-sm has: a few of the workers that all VMs share */
#define LOG_TEXT_MAX 512

static struct json_object *hello_vf(const struct vf_want *want)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", want->pkey);
	json_set_guid(o, "vguid", want->vguid);
	json_set_str(o, "pkey", pkey);
	return o;
}

static struct json_object *hello(void *arg)
{
	struct vm *vm = arg;
	struct json_object *msg = json_object_new_object(), *list = json_object_new_array();

	for (unsigned i = 0; i < vm->vf_count; i++)
		json_object_array_add(list, hello_vf(&vm->vfs[i].want));
	json_set(msg, "vfs", list);
	if (vm->d->sm.caching_known)
		json_set_bool(msg, "path_cache", vm->d->sm.caching);
	return msg;
}

static void changed(void *arg, enum agent_state s)
{
	struct vm *vm = arg;

	if (s == AGENT_UP)
		log_info("VM %s: agent %.32s answers", vm->name,
			 json_opt_str(agent_hello(vm->agent), "agent", "?"));
	if (s == AGENT_UP) {
		repath_agent_up(vm);
		vm_rights_refresh(vm->d); /* whom it may speak to */
	}
	vm->d->watcher->agent_changed(vm);
}

/* ---- path ---- */

static void path_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;
	const char *pkey = json_opt_str(j->in, "pkey", NULL);
	const char *to = json_opt(j->in, "dlid") ? "dlid" : "dgid";
	char *path AUTO_FREE = strf(
		"/v1/paths?sgid=%s&%s=%s%s%s&host=%s", json_opt_str(j->in, "sgid", ""), to,
		json_object_get_string(json_opt(j->in, to)), pkey ? "&pkey=" : "", pkey ? pkey : "",
		j->d->settings->host_name);

	if (!j->d->settings->sm_url) {
		job_fail(j, -ENOENT, "sm-url is not configured on host %s",
			 j->d->settings->host_name);
		return;
	}
	j->rc = sm_call(j->d->settings, "GET", path, NULL, &answer, j->error);
	if (!j->rc)
		json_set(j->out, "answer", TAKE(answer));
}

static void ask_more(struct vm *vm);

static void path_done(struct job *j)
{
	struct vm *vm = j->owner;
	struct json_object *msg = json_opt(j->out, "answer");

	vm->jobs--;
	vm->paths_asking--;
	if (vm->gone)
		return;
	ask_more(vm);
	msg = msg ? json_object_get(msg) : json_object_new_object();
	json_set_u64(msg, "id", j->serial);
	json_set_bool(msg, "ok", !j->rc);
	if (j->rc)
		json_set_str(msg, "error", j->error);
	agent_send(vm->agent, msg);
}

static void refuse(struct vm *vm, uint64_t id, const char *error)
{
	struct json_object *msg = json_object_new_object();

	json_set_u64(msg, "id", id);
	json_set_bool(msg, "ok", false);
	json_set_str(msg, "error", error);
	agent_send(vm->agent, msg);
}

/* The oldest of what waits. */
static void ask_more(struct vm *vm)
{
	while (vm->paths_asking < ASKING_MAX && json_count(vm->paths_waiting)) {
		struct json_object *in = json_object_get(
			json_object_array_get_idx(vm->paths_waiting, 0));
		uint64_t id = json_opt_u64(in, "id", 0);

		json_object_array_del_idx(vm->paths_waiting, 0, 1);
		if (job_order(vm->d, &(struct job_order){.pool = vm->d->guests,
							 .in = in,
							 .run = path_run,
							 .done = path_done,
							 .owner = vm,
							 .serial = id})) {
			refuse(vm, id, "the host is out of memory");
			continue;
		}
		vm->jobs++;
		vm->paths_asking++;
	}
}

/* The other end: a GID, or the LID of a program that names none. -EINVAL: neither. */
static int set_destination(struct json_object *msg, struct json_object *in)
{
	uint64_t lid = json_opt_u64(msg, "dlid", 0);
	char text[IB_GID_TEXT];
	struct ib_gid dgid;

	if (lid >= IB_LID_UCAST_MIN && lid <= IB_LID_UCAST_MAX) {
		json_set_u64(in, "dlid", lid);
		return 0;
	}
	if (ib_gid_parse(json_opt_str(msg, "dgid", ""), &dgid))
		return -EINVAL;
	ib_gid_format(&dgid, text);
	json_set_str(in, "dgid", text);
	return 0;
}

static void ask_path(struct vm *vm, struct json_object *msg)
{
	struct json_object *in AUTO_JSON = json_object_new_object();
	const char *pkey = json_opt_str(msg, "pkey", NULL);
	uint64_t id = json_opt_u64(msg, "id", 0);
	struct ib_gid sgid;
	uint16_t partition;
	char text[IB_GID_TEXT];

	if (ib_gid_parse(json_opt_str(msg, "sgid", ""), &sgid) || set_destination(msg, in)) {
		refuse(vm, id, "sgid and dgid must be GIDs, or dlid a LID");
		return;
	}
	if (pkey && ib_pkey_parse(pkey, &partition)) {
		refuse(vm, id, "pkey must be 0x0001 to 0xffff without 0x8000");
		return;
	}
	if (!vm_has_guid(vm, sgid.guid)) {
		refuse(vm, id, "sgid is not a GID of this VM");
		return;
	}
	if (vm->paths_asking + json_count(vm->paths_waiting) >= PATHS_MAX) {
		refuse(vm, id, "too many path requests at once; at most 64");
		return;
	}
	ib_gid_format(&sgid, text);
	json_set_str(in, "sgid", text);
	if (pkey) {
		snprintf(text, sizeof text, "0x%04x", partition);
		json_set_str(in, "pkey", text);
	}
	json_set_u64(in, "id", id);
	if (!vm->paths_waiting)
		vm->paths_waiting = json_object_new_array();
	json_object_array_add(vm->paths_waiting, TAKE(in));
	ask_more(vm);
}

/* ---- relay and log ---- */

void vm_channel_relay_failed(struct vm *vm, const char *to, const char *error)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", "relay-failed");
	json_set_str(msg, "to", to);
	json_set_str(msg, "error", error);
	agent_send(vm->agent, msg);
}

static void message(void *arg, struct json_object *msg)
{
	struct vm *vm = arg;
	const char *op = json_opt_str(msg, "op", "");

	if (!strcmp(op, "relay")) {
		relay_from_guest(vm->d->relay, vm, msg);
	} else if (!strcmp(op, "path")) {
		ask_path(vm, msg);
	} else if (!strcmp(op, "log")) {
		log_info("VM %s: agent: %.*s", vm->name, LOG_TEXT_MAX,
			 json_opt_str(msg, "text", ""));
	} else if (json_opt(msg, "id")) {
		refuse(vm, json_opt_u64(msg, "id", 0), "op is unknown; allowed is path");
	}
}

static const struct agent_ops ops = {
	.hello = hello,
	.changed = changed,
	.message = message,
};

int vm_channel_open(struct vm *vm, const char *path, bool incoming)
{
	/* For path_cache in hello; a guest takes seconds to boot. */
	sm_refresh(vm->d, NULL, NULL);
	return agent_new(vm->d->loop, vm->name, path, incoming, &ops, vm, &vm->agent);
}
