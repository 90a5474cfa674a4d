/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Holders of vGUIDs: who, since when, if that is still so, and the end of it. */
#include "common/util.h"
#include "common/log.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/watch/leaks.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

struct json_object *rest_entry_json(const struct reg_entry *e)
{
	struct json_object *o = json_object_new_object();
	char pkey[8];

	snprintf(pkey, sizeof pkey, "0x%04x", e->pkey);
	json_set_guid(o, "vguid", e->vguid);
	json_set_str(o, "vm", e->vm);
	json_set_str(o, "name", e->name);
	json_set_str(o, "host", e->at.host);
	json_set_str(o, "url", e->at.url);
	json_set_str(o, "vf", e->at.vf);
	json_set_guid(o, "parked_guid", e->at.parked_guid);
	json_set_str(o, "pkey", pkey);
	json_set_u64(o, "lid", e->lid);
	json_set_str(o, "addresses", address_mode_name(e->mode));
	json_set_bool(o, "dynamic", e->mode == ADDRESS_DYNAMIC);
	if (e->mode == ADDRESS_SHARED_PORT) {
		json_set_guid(o, "port_guid", e->at.switch_guid);
		json_set_u64(o, "guid_index", e->at.switch_port);
	}
	json_set_u64(o, "since_ms", e->since_ms);
	return o;
}

static void append_entry(void *arg, const struct reg_entry *e)
{
	if (e->intent != REG_BIND)
		json_object_array_add(arg, rest_entry_json(e));
}

static struct json_object *claim_json(const struct reg_claim *c)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "vguid", c->vguid);
	json_set_str(o, "vm", c->vm);
	json_set_str(o, "name", c->name);
	json_set_u64(o, "slot", c->slot);
	json_set_u64(o, "since_ms", c->since_ms);
	return o;
}

static void append_claim(void *arg, const struct reg_claim *c)
{
	json_object_array_add(arg, claim_json(c));
}

static void run_vguids(struct rest_call *call)
{
	struct json_object *list = json_object_new_array(), *claims = json_object_new_array();

	call->reply = json_object_new_object();
	json_set(call->reply, "vguids", list);
	json_set(call->reply, "claims", claims);
	if (registry_each(call->rest->ops->registry, append_entry, list) ||
	    registry_each_claim(call->rest->ops->registry, append_claim, claims))
		rest_registry_broken(call);
}

static void run_vguid(struct rest_call *call)
{
	struct reg_entry e;
	uint64_t guid;
	int rc;

	if (ib_guid_parse(call->arg[0], &guid)) {
		rest_bad_request(call, "the vGUID in the path must be 0x and 16 hex digits");
		return;
	}
	rc = registry_find(call->rest->ops->registry, guid, &e);
	if (!rc && e.intent != REG_BIND) {
		call->reply = rest_entry_json(&e);
	} else if (rc && rc != -ENOENT) {
		rest_registry_broken(call);
	} else {
		call->error = (struct op_error){.status = 404, .code = "not-found"};
		snprintf(call->error.detail, sizeof call->error.detail,
			 "vGUID %s is bound to no VF", call->arg[0]);
	}
}

/* "2026-01-31 23:59:59 UTC" */
static const char *time_text(uint64_t wall, char text[static 32])
{
	time_t t = (time_t)(wall / 1000);
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S UTC", &tm))
		strcpy(text, "?");
	return text;
}

static int held(struct rest_call *call, const char *code, const struct reg_claim *holder,
		const char *more)
{
	char since[32];

	call->error = (struct op_error){.status = 409};
	snprintf(call->error.code, sizeof call->error.code, "%s", code);
	snprintf(call->error.detail, sizeof call->error.detail,
		 "vGUID 0x%016" PRIx64 " belongs to VM %.200s (%.100s), port %u, since %s%s",
		 holder->vguid, holder->name, holder->vm, holder->slot,
		 time_text(holder->since_ms, since), more);
	return -EEXIST;
}

int rest_check_claim(struct rest_call *call, uint64_t vguid, const char *vm)
{
	struct reg_claim c;
	int rc = registry_claim_find(call->rest->ops->registry, vguid, &c);

	if (rc == -ENOENT || (!rc && !strcmp(c.vm, vm)))
		return 0;
	if (!rc)
		return held(call, "duplicate-vguid", &c, "");
	rest_registry_broken(call);
	return rc;
}

/* ops.lock held: a GUID that some port of the fabric shows is nobody's to give. */
static bool in_fabric(void *arg, uint64_t guid)
{
	const struct ops *o = arg;

	return fabric_find_end(&o->fabric, guid) != FABRIC_NONE;
}

static int allocate(struct rest_call *call, const struct reg_claim *want,
		    struct reg_claim *ret_holder)
{
	const struct claim_range *range = &call->rest->range;
	struct ops *o = call->rest->ops;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	int rc = range->first
			 ? registry_allocate(o->registry, want, range, in_fabric, o, ret_holder)
			 : -ENOSPC;

	if (rc != -ENOSPC)
		return rc;
	call->error = (struct op_error){.status = 409, .code = "no-vguid"};
	if (range->first)
		snprintf(call->error.detail, sizeof call->error.detail,
			 "all %" PRIu64 " vGUIDs of vguid-range are in use: release some, or widen "
			 "it",
			 range->last - range->first + 1);
	else
		snprintf(call->error.detail, sizeof call->error.detail,
			 "vguid-range is not configured: give a vguid, or configure a range");
	return rc;
}

static void run_claim(struct rest_call *call)
{
	struct reg_claim want = {0}, holder;
	struct json_reader r;
	int rc;

	json_reader_init(&r, call->body);
	rest_need_text(&r, "vm", want.vm);
	rest_need_text(&r, "name", want.name);
	if (json_opt(call->body, "slot"))
		want.slot = (unsigned)json_need_u64(&r, "slot", 0, CLAIM_SLOT_MAX);
	if (json_opt(call->body, "vguid"))
		want.vguid = json_need_guid(&r, "vguid");
	if (r.error) {
		rest_bad_request(call, r.message);
		return;
	}
	if (rest_refuse_change(call))
		return;
	rc = want.vguid ? registry_claim(call->rest->ops->registry, &want, &holder)
			: allocate(call, &want, &holder);
	if (!rc)
		call->reply = claim_json(&holder);
	else if (rc == -EEXIST)
		held(call, "duplicate-vguid", &holder, "");
	else if (rc == -EBUSY)
		held(call, "has-vguid", &holder, ": release it first");
	else if (rc != -ENOSPC)
		rest_registry_broken(call);
}

static void run_release(struct rest_call *call)
{
	char vm[REG_TEXT_MAX] = "";
	struct reg_claim holder;
	struct json_reader r;
	uint64_t vguid;
	int rc;

	json_reader_init(&r, call->body);
	vguid = json_need_guid(&r, "vguid");
	rest_need_text(&r, "vm", vm);
	if (r.error) {
		rest_bad_request(call, r.message);
		return;
	}
	if (rest_refuse_change(call))
		return;
	rc = registry_release(call->rest->ops->registry, vguid, vm, &holder);
	if (rc == -EPERM)
		held(call, "wrong-vm", &holder, "");
	else if (rc == -EBUSY)
		held(call, "vguid-in-use", &holder, ", which runs with it: unbind it first");
	else if (rc && rc != -ENOENT) /* again */
		rest_registry_broken(call);
}

/* ---- leaks ---- */

struct inquiry {
	struct leak_report *report; /* owned */
	size_t reports;
	struct reg_entry *entry; /* owned */
	size_t entries;
};

static void inquiry_free(struct inquiry *q)
{
	for (size_t i = 0; i < q->reports; i++)
		free(q->report[i].guid);
	free(q->report);
	free(q->entry);
}

static void add_host(void *arg, const struct reg_subscription *s)
{
	struct inquiry *q = arg;
	struct leak_report *grown = realloc(q->report, (q->reports + 1) * sizeof *grown);

	if (!grown)
		return;
	q->report = grown;
	grown[q->reports] = (struct leak_report){0};
	strcpy(grown[q->reports].host, s->host);
	strcpy(grown[q->reports++].url, s->url);
}

static void add_entry(void *arg, const struct reg_entry *e)
{
	struct inquiry *q = arg;
	struct reg_entry *grown = realloc(q->entry, (q->entries + 1) * sizeof *grown);

	if (!grown)
		return;
	q->entry = grown;
	grown[q->entries++] = *e;
}

/* Under the lock that keeps binds away, for a VM may have started in the meantime. */
static bool release_leak(struct rest_call *call, const struct reg_entry *e, struct inquiry *q)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&call->rest->binding);
	struct op_error error = {0};

	for (size_t i = 0; i < q->reports; i++)
		if (!strcmp(q->report[i].host, e->at.host))
			leaks_ask(&q->report[i]);
	if (leaks_judge(e, q->report, q->reports, wall_ms()) != LEAK_YES)
		return false;
	if (action_unbind(call->rest->ops, e->vguid, e->vm, &e->at, 0, &error)) {
		log_warn("leak: vGUID 0x%016" PRIx64 " is not released: %s", e->vguid,
			 error.detail);
		return false;
	}
	log_notice("leak: vGUID 0x%016" PRIx64 " of %s, which %s does not run, is released",
		   e->vguid, e->name, e->at.host);
	notice_gone(call->rest->ops, e->vguid);
	return true;
}

static struct json_object *hosts_json(const struct inquiry *q)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < q->reports; i++) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "host", q->report[i].host);
		json_set_str(o, "url", q->report[i].url);
		json_set_bool(o, "answered", q->report[i].answered);
		json_set_str(o, "error", q->report[i].answered ? NULL : q->report[i].error);
		json_object_array_add(list, o);
	}
	return list;
}

static void run_reconcile(struct rest_call *call)
{
	bool release = json_opt_bool(call->body, "release", false);
	struct json_object *list = json_object_new_array();
	struct registry *reg = call->rest->ops->registry;
	struct inquiry q = {0};
	unsigned released = 0;
	int rc = registry_each_subscription(reg, add_host, &q);

	for (size_t i = 0; !rc && i < q.reports; i++)
		leaks_ask(&q.report[i]);
	/* read after the hosts' answers: what has changed since is held for too short to judge */
	if (!rc)
		rc = registry_each(reg, add_entry, &q);
	call->reply = json_object_new_object();
	json_set(call->reply, "hosts", hosts_json(&q));
	for (size_t i = 0; !rc && i < q.entries; i++) {
		enum leak_verdict v = leaks_judge(&q.entry[i], q.report, q.reports, wall_ms());
		struct json_object *o = rest_entry_json(&q.entry[i]);
		bool gone = v == LEAK_YES && release && release_leak(call, &q.entry[i], &q);

		released += gone;
		json_set_str(o, "verdict", gone ? "released" : leaks_text(v));
		json_object_array_add(list, o);
	}
	json_set(call->reply, "vguids", list);
	json_set_u64(call->reply, "released", released);
	inquiry_free(&q);
	if (rc)
		rest_registry_broken(call);
}

void rest_get_vguids(struct http_request *req)
{
	rest_submit_read(req, run_vguids, NULL);
}

void rest_get_vguid(struct http_request *req)
{
	rest_submit_read(req, run_vguid, (const char *[REST_ARGS_MAX]){req->param});
}

void rest_post_vguid(struct http_request *req)
{
	rest_submit(req, run_claim, NULL);
}

void rest_post_release(struct http_request *req)
{
	rest_submit(req, run_release, NULL);
}

void rest_post_reconcile(struct http_request *req)
{
	rest_submit_slow(req, run_reconcile, NULL);
}
