/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Holders of vGUIDs: who, since when, if that is still so, and the end of it. */
#include "common/util.h"
#include "common/log.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/watch/hosts.h"
#include "sm-helper/watch/leaks.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/rights.h"
#include "sm-helper/watch/verify.h"

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

/* ---- verification ---- */

static struct json_object *verify_json(struct verify *v, const struct hosts *h,
				       const struct reg_entry *e)
{
	struct json_object *o = rest_entry_json(e);
	char text[HOSTS_TEXT_MAX] = "";
	struct verify_result r;
	enum hosts_verdict host = hosts_check(h, e, text);
	int rc = verify_entry(v, e, &r);

	json_set_bool(o, "ok", !rc && host != HOSTS_DIFFER);
	json_set_str(o, "problem", rc ? r.text : host == HOSTS_DIFFER ? text : NULL);
	json_set_bool(o, "sa", r.sa);
	json_set_str(o, "answers_by", rc ? NULL : reach_name(r.by));
	if (host == HOSTS_UNKNOWN)
		json_set(o, "host_agrees", NULL);
	else
		json_set_bool(o, "host_agrees", host == HOSTS_AGREE);
	json_set_u64(o, "walks", r.walks);
	return o;
}

/* Ports behind vSwitches: lists of those with P_Keys that are left, and of those that do not tell.
 */
struct leftovers {
	struct json_object *left, *unread;
};

static void add_leftover(void *arg, const struct fabric_end *end, uint16_t pkey, const char *silent)
{
	struct leftovers *l = arg;
	struct json_object *o = json_object_new_object();
	char text[8];

	snprintf(text, sizeof text, "0x%04x", pkey);
	json_set_guid(o, "guid", end->port_guid);
	json_set_u64(o, "lid", end->lid);
	json_set_str(o, "port", end->desc);
	if (silent)
		json_set_str(o, "problem", silent);
	else
		json_set_str(o, "pkey", text);
	json_object_array_add(silent ? l->unread : l->left, o);
}

/* null where the subnet manager's policy cannot be asked. */
static void set_leftovers(struct json_object *reply, struct ops *o, struct fabric *f)
{
	struct leftovers l = {json_object_new_array(), json_object_new_array()};
	char why[BACKEND_ERROR_MAX];

	fabric_find_vswitches(f);
	if (rights_leftovers(o, f, add_leftover, &l, why)) {
		log_info("verify: P_Keys that are left: %s", why);
		json_object_put(l.left);
		json_object_put(l.unread);
		l = (struct leftovers){NULL, NULL};
	}
	json_set(reply, "leftover_pkeys", l.left);
	json_set(reply, "unread_pkeys", l.unread);
}

static int verify_all(struct rest_call *call, struct verify *v, const struct hosts *h,
		      struct inquiry *q)
{
	struct ops *o = call->rest->ops;
	struct json_object *list;
	char error[PROBE_ERROR_MAX];
	int rc = registry_each(o->registry, add_entry, q);

	if (rc) {
		rest_registry_broken(call);
		return rc;
	}
	if ((rc = verify_begin(v, o->probe, &o->reach, o->verify_sources, error)))
		return ops_fail(&call->error, rc, 503, "no-umad", "%s", error);
	call->reply = json_object_new_object();
	list = json_object_new_array();
	for (size_t i = 0; i < q->entries; i++)
		json_object_array_add(list, verify_json(v, h, &q->entry[i]));
	json_set(call->reply, "vguids", list);
	set_leftovers(call->reply, o, &v->f);
	json_set_u64(call->reply, "switches", v->f.switches);
	json_set_u64(call->reply, "ports", v->f.ends);
	return 0;
}

/* Hosts are asked before, without the lock: they may be slow. */
static void run_verify(struct rest_call *call)
{
	struct ops *o = call->rest->ops;
	struct inquiry asked = {0}, q = {0};
	struct verify v = {0};
	struct hosts h = {0};

	if (action_sm_moves(o)) {
		ops_fail(&call->error, -EOPNOTSUPP, 503, "no-umad",
			 "backend %s: virtual ports are no nodes that an SMP could be sent to",
			 backend_kind(o->backend)->name);
		return;
	}
	if (registry_each(o->registry, add_entry, &asked)) {
		rest_registry_broken(call);
		inquiry_free(&asked);
		return;
	}
	for (size_t i = 0; i < asked.entries; i++)
		hosts_ask(&h, &asked.entry[i]);
	inquiry_free(&asked);
	pthread_mutex_lock(&o->lock); /* nothing moves in the meantime */
	verify_all(call, &v, &h, &q);
	pthread_mutex_unlock(&o->lock);
	verify_end(&v);
	inquiry_free(&q);
	hosts_free(&h);
}

void rest_get_verify(struct http_request *req)
{
	rest_submit(req, run_verify, NULL);
}

void rest_get_vguids(struct http_request *req)
{
	rest_submit(req, run_vguids, NULL);
}

void rest_get_vguid(struct http_request *req)
{
	rest_submit(req, run_vguid, (const char *[REST_ARGS_MAX]){req->param});
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
	rest_submit(req, run_reconcile, NULL);
}
