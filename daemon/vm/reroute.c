/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/reroute.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/vm.h"

#include <errno.h>

#define RECORDS_MAX 4096 /* in one notice */
#define GUEST_MAX   1024 /* records in one message to a guest */
#define VGUIDS_MAX  256  /* in one question */

static bool is_up(const struct vm *vm)
{
	return !vm->gone && agent_state(vm->agent) == AGENT_UP;
}

static uint64_t guid_of(struct json_object *record, const char *key)
{
	uint64_t guid = 0;

	ib_guid_parse(json_opt_str(record, key, ""), &guid);
	return guid;
}

/* The record as an agent understands it: as it is now, or without values where there is none. */
static struct json_object *for_agent(struct json_object *record)
{
	static const char *const names[] = {"sguid", "dguid", "pkey"};
	static const char *const values[] = {"dlid", "slid", "sl", "mtu", "rate"};
	struct json_object *o = json_object_new_object(), *v;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if ((v = json_opt(record, names[i])))
			json_set(o, names[i], json_object_get(v));
	for (size_t i = 0; i < ARRAY_SIZE(values) && !json_opt_bool(record, "gone", false); i++)
		if (json_object_is_type(v = json_opt(record, values[i]), json_type_int))
			json_set(o, values[i], json_object_get(v));
	return o;
}

static void send(struct vm *vm, struct json_object *list)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", "repath");
	json_set(msg, "paths", list);
	agent_send(vm->agent, msg);
}

/* The records of a list that are of this VM's ports. */
static void tell(struct vm *vm, struct json_object *records)
{
	struct json_object *list = NULL;

	for (size_t i = 0; i < json_count(records); i++) {
		struct json_object *record = json_object_array_get_idx(records, i);

		if (!vm_has_guid(vm, guid_of(record, "sguid")))
			continue;
		if (!list)
			list = json_object_new_array();
		json_object_array_add(list, for_agent(record));
		if (json_count(list) == GUEST_MAX)
			send(vm, TAKE(list));
	}
	if (list)
		send(vm, list);
}

static void tell_all(struct daemon *d, struct json_object *records)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next)
		if (is_up(vm))
			tell(vm, records);
}

/* Guests ask anew for what they need. vguids NULL: those of all VMs. */
static void forget(struct daemon *d, struct json_object *vguids)
{
	for (struct vm *vm = d->vms; vm; vm = vm->next) {
		struct json_object *msg;
		bool meant = !vguids;

		for (size_t i = 0; !meant && i < json_count(vguids); i++) {
			uint64_t guid = 0;

			ib_guid_parse(json_object_get_string(json_object_array_get_idx(vguids, i)),
				      &guid);
			meant = vm_has_guid(vm, guid);
		}
		if (!meant || !is_up(vm))
			continue;
		msg = json_object_new_object();
		json_set_str(msg, "op", "unpath");
		agent_send(vm->agent, msg);
	}
}

/* ---- asking ---- */

static void ask_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = sm_call(j->d->settings, "POST", "/v1/paths/held", json_object_get(j->in), &answer,
			j->error);
	if (!j->rc)
		json_set(j->out, "answer", TAKE(answer));
}

/* Without an answer guests may hold what is past. */
static void ask_done(struct job *j)
{
	struct json_object *paths = json_opt(json_opt(j->out, "answer"), "paths");

	if (j->rc || !json_object_is_type(paths, json_type_array)) {
		log_warn("guests forget their path records, for what they hold cannot be asked: %s",
			 j->rc ? j->error : "ibvmig-sm gives no list");
		forget(j->d, json_opt(j->in, "vguids"));
		return;
	}
	tell_all(j->d, paths);
}

static void ask(struct daemon *d, struct json_object *vguids)
{
	struct json_object *in = json_object_new_object();

	json_set(in, "vguids", json_object_get(vguids));
	if (job_start(d, in, ask_run, ask_done, NULL, 0))
		forget(d, vguids);
}

static void add_vguids(struct json_object *list, const struct vm *vm)
{
	char text[IB_GUID_TEXT];

	for (unsigned i = 0; i < vm->vf_count; i++) {
		ib_guid_format(vm->vfs[i].want.vguid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
}

static void ask_for_all(struct daemon *d)
{
	struct json_object *list AUTO_JSON = json_object_new_array();

	for (struct vm *vm = d->vms; vm; vm = vm->next) {
		if (!is_up(vm))
			continue;
		if (json_count(list) + vm->vf_count > VGUIDS_MAX) {
			ask(d, list);
			json_object_put(list);
			list = json_object_new_array();
		}
		add_vguids(list, vm);
	}
	if (json_count(list))
		ask(d, list);
}

void reroute_agent_up(struct vm *vm)
{
	struct json_object *list AUTO_JSON = json_object_new_array();

	if (!vm->d->settings->sm_url || !vm->d->sm.caching)
		return;
	add_vguids(list, vm);
	if (json_count(list))
		ask(vm->d, list);
}

/* ---- notices ---- */

bool reroute_is_notice(struct json_object *body)
{
	return json_opt(body, "records") || json_opt(body, "all");
}

static int check(struct json_object *records, char *error)
{
	size_t count = json_object_is_type(records, json_type_array) ? json_count(records) : 0;

	if (count < 1 || count > RECORDS_MAX) {
		snprintf(error, HTTP_ERROR_MAX, "\"records\" must be a list of 1 to %d",
			 RECORDS_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++) {
		struct json_object *r = json_object_array_get_idx(records, i);

		if (guid_of(r, "sguid") && guid_of(r, "dguid"))
			continue;
		snprintf(error, HTTP_ERROR_MAX, "records[%zu]: sguid and dguid must be GUIDs", i);
		return -EINVAL;
	}
	return 0;
}

int reroute_notice(struct daemon *d, struct json_object *body, char *error)
{
	struct json_object *records = json_opt(body, "records");

	if (records && check(records, error))
		return -EINVAL;
	if (records) {
		log_info("ibvmig-sm tells %zu changed path records", json_count(records));
		tell_all(d, records);
	} else if (json_opt_bool(body, "forget", false)) {
		forget(d, NULL);
	} else {
		ask_for_all(d);
	}
	return 0;
}
