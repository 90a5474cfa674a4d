/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls of libvirt's hook and of the source to the destination. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/defer.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/domain_saved.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/migrate/step.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

/* ---- the hook ---- */

static void fill_record(struct migration *m, const struct domain_info *info,
			const struct domain_saved *saved)
{
	m->rec.vf_count = info->vf_count;
	for (unsigned i = 0; i < info->vf_count; i++) {
		m->rec.vfs[i] = (struct migrate_vf){.vguid = info->vfs[i].vguid,
						    .pkey = info->vfs[i].pkey};
		domain_dev_id(&info->vfs[i], m->rec.vfs[i].dev_id);
	}
	m->rec.asked = m->rec.strategy = saved ? STRATEGY_COLD : info->strategy;
	migrate_host_here(&m->rec.to, m->d);
	if (!saved)
		return;
	snprintf(m->rec.from.host, sizeof m->rec.from.host, "%s", saved->host);
	snprintf(m->rec.from.url, sizeof m->rec.from.url, "%s", saved->url);
}

/* Why this host has none for it, or 0. */
static int check_host(struct daemon *d, const struct domain_info *info, char *error)
{
	struct vf *vf = vf_of_vm(d->vfs, info->uuid, 0);

	if (*d->vf_error) {
		snprintf(error, HTTP_ERROR_MAX, "%s", d->vf_error);
		return -ENODEV;
	}
	/* The VM's lease would be taken for the migration's, and given back with it. */
	if (vf) {
		snprintf(error, HTTP_ERROR_MAX, "it has VF %s of this host already", vf->name);
		return -EALREADY;
	}
	return 0;
}

static int start_record(struct daemon *d, const struct domain_info *info,
			const struct domain_saved *saved, struct migration **ret_m, char *error)
{
	struct vf *vfs[DOMAIN_VFS_MAX];
	struct migration *m;
	int rc = check_host(d, info, error);

	if (rc)
		return rc;
	m = migrate_new(d, ROLE_DESTINATION, saved ? saved->id : NULL, info->uuid, info->name);
	if (!m) {
		snprintf(error, HTTP_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	fill_record(m, info, saved);
	rc = vf_claim(d->vfs, info->uuid, info->name, info->vfs, info->vf_count, m->rec.id, vfs,
		      error);
	if (rc) {
		migrate_fail(m, rc, "%s", error);
		return rc;
	}
	for (unsigned i = 0; i < info->vf_count; i++)
		migrate_end_here(&m->rec.vfs[i].to, vfs[i]);
	*ret_m = m;
	return 0;
}

/* A second try of libvirt before the first one's lease ran out: the same record serves it. */
static bool may_reuse(const struct migration *m)
{
	return m->rec.role == ROLE_DESTINATION && m->rec.state == M_PREPARE && !m->rec.back &&
	       !m->rec.committed && !record_did(&m->rec, DID_ORDER) && !m->waiting;
}

void dst_begin(struct http_request *req, const struct domain_info *info, const char *xml,
	       const struct domain_saved *saved)
{
	struct daemon *d = req->user;
	struct http_exchange *x = req->exchange;
	struct migration *m = migrate_open(d, info->uuid);
	char error[HTTP_ERROR_MAX] = "";

	if (m && !may_reuse(m)) {
		/* libvirt may be done with the last migration before we are. */
		if (m->rec.state != M_PARKED &&
		    (m->rec.committed || m->rec.back || m->rec.state == M_CANCEL) &&
		    defer_request(req, dst_hook))
			return;
		http_fail(x, 409, "busy",
			  "ibvmig: an earlier migration of VM %s to host %s has not ended (%s): "
			  "try again in a few seconds, or see ibvmig status",
			  info->name, d->settings->host_name, migrate_state_name(m->rec.state));
		return;
	}
	if (m) {
		record_undo(&m->rec, DID_ARM);
		m->step = (struct migrate_step){.entered_us = now_us()};
		m->serial++;
	} else if (start_record(d, info, saved, &m, error)) {
		http_fail(x, 409, "refused", "ibvmig: VM %s cannot come to host %s: %s", info->name,
			  d->settings->host_name, error);
		return;
	}
	m->waiting = x;
	str_set(&m->dst.hook_xml, xml);
	migrate_save(m, "asked by libvirt's hook");
	migrate_drive(m);
}

/* The phases of libvirt's hook that concern us; any other is none. prepare comes with each start of
 * a QEMU, behind restore and migrate too. */
enum hook_phase { HOOK_NONE, HOOK_MIGRATE, HOOK_RESTORE, HOOK_PREPARE };

static enum hook_phase read_phase(struct json_object *body)
{
	static const char *const names[] = {
		[HOOK_MIGRATE] = "migrate", [HOOK_RESTORE] = "restore", [HOOK_PREPARE] = "prepare"};

	for (unsigned i = HOOK_MIGRATE; i < ARRAY_SIZE(names); i++)
		if (str_eq(json_opt_str(body, "op", ""), names[i]) &&
		    str_eq(json_opt_str(body, "sub_op", ""), "begin"))
			return (enum hook_phase)i;
	return HOOK_NONE;
}

/* The mark does not stop one that was let in before it. */
static bool is_shut_out(struct daemon *d, const struct domain_info *info, enum hook_phase phase)
{
	const struct migration *m = migrate_open(d, info->uuid);

	return d->drained_ms && !(phase == HOOK_PREPARE && m && m->rec.role == ROLE_DESTINATION &&
				  record_did(&m->rec, DID_ARM));
}

void dst_hook(struct http_request *req)
{
	struct daemon *d = req->user;
	enum hook_phase phase = read_phase(req->body);
	struct domain_info *info = NULL;
	const char *xml = json_opt_str(req->body, "xml", "");

	if (!phase) {
		http_reply(req->exchange, 200, NULL);
		return;
	}
	if (domain_parse(xml, strlen(xml), &info)) {
		http_fail(req->exchange, 400, "bad-xml",
			  "ibvmig: the hook's domain XML cannot be parsed");
		return;
	}
	if (!info->wants_vf) {
		http_reply(req->exchange, 200, NULL);
	} else if (is_shut_out(d, info, phase)) {
		http_fail(req->exchange, 409, "drained",
			  "ibvmig: host %s is drained and takes no VM: ibvmig undrain %s ends that",
			  d->settings->host_name, d->settings->host_name);
	} else if (phase == HOOK_PREPARE) {
		http_reply(req->exchange, 200, NULL); /* the VF comes once the VM runs */
	} else if (info->problem) {
		/* Such a VM has no VF at its source either. */
		log_warn("VM %s: comes without a VF: %s", info->name, info->problem);
		http_reply(req->exchange, 200, NULL);
	} else if (phase == HOOK_RESTORE) {
		cold_hook(req, info, xml);
	} else {
		dst_begin(req, info, xml, NULL);
	}
	domain_free(info);
}

/* ---- the source ---- */

static struct migration *find(struct http_request *req)
{
	struct migration *m = migrate_find(req->user, json_opt_str(req->body, "migration", ""),
					   ROLE_DESTINATION);

	if (!m)
		http_fail(req->exchange, 404, "not-found",
			  "the destination does not know this migration");
	else if (m->waiting)
		http_fail(req->exchange, 409, "busy", "the destination is still at it");
	return m && !m->waiting ? m : NULL;
}

/* Nothing is done before its operator has been here. */
static bool refuse_parked(struct http_request *req, const struct migration *m)
{
	if (m->rec.state != M_PARKED)
		return false;
	http_fail(req->exchange, 409, "parked", "host %s has parked it (%.300s): there first",
		  m->rec.to.host, m->rec.trouble);
	return true;
}

void dst_on_switch(struct http_request *req)
{
	struct migration *m = find(req);

	if (!m || refuse_parked(req, m))
		return;
	if (m->rec.back || !record_did(&m->rec, DID_ARM) || m->rec.state == M_ABORTED) {
		http_fail(req->exchange, 409, "cancelled",
			  "the destination has given the migration up: %s", m->rec.reason);
		return;
	}
	m->waiting = req->exchange;
	if (record_did(&m->rec, DID_MOVE)) {
		migrate_answer_waiting(m, 0);
		return;
	}
	/* The first try may not have been durable. */
	if (m->rec.state == M_SWITCH && !m->inflight && migrate_save(m, "ordered again")) {
		http_fail(TAKE(m->waiting), 409, "journal",
			  "host %s cannot write its journal; is the disk full?", m->rec.to.host);
		return;
	}
	record_peers_load(&m->rec, json_opt(req->body, "peers"));
	record_set(&m->rec, DID_SUSPEND, json_opt_bool(req->body, "suspended", false));
	record_do(&m->rec, DID_ORDER);
	migrate_drive(m);
}

static bool refuse_committed(struct http_request *req, const struct migration *m)
{
	if (!m->rec.committed)
		return false;
	http_fail(req->exchange, 409, "committed", "the VM runs on host %s already",
		  m->rec.to.host);
	return true;
}

/* A record that ended before a restart, or with a journal that was lost. What nobody has leased may
 * show the vGUID still. */
static void unknown_run(struct job *j)
{
	dst_park_run(j);
	if (!j->rc)
		migrate_release_run(j);
}

static void unknown_done(struct job *j)
{
	if (j->rc)
		http_fail(j->owner, 409, "not-parked", "%s", j->error);
	else
		http_reply(j->owner, 200, NULL);
}

static void unswitch_unknown(struct http_request *req, struct json_object *vfs)
{
	struct daemon *d = req->user;
	struct json_object *in = json_object_new_object(), *list = json_object_new_array();

	json_set(in, "vfs", list);
	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *v = json_object_array_get_idx(vfs, i);
		struct vf *vf = vf_by_name(d->vfs, vf_text_of(json_opt(v, "to"), "vf"));

		if (vf && vf->leased && vf->vguid == vf_guid_of(v, "vguid")) {
			http_fail(req->exchange, 409, "in-use",
				  "host %s does not know this migration, but VM %s has its VF %s",
				  d->settings->host_name, vf->vm_name, vf->name);
			json_object_put(in);
			return;
		}
		if (vf && !vf->leased)
			json_object_array_add(list, vf_lease_json(vf));
	}
	if (job_start(d, in, unknown_run, unknown_done, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}

void dst_on_unswitch(struct http_request *req)
{
	const char *id = json_opt_str(req->body, "migration", "");
	struct json_object *vfs = json_opt(req->body, "vfs");
	struct migration *m;

	if (vfs && !migrate_find(req->user, id, ROLE_DESTINATION)) {
		unswitch_unknown(req, vfs);
		return;
	}
	m = find(req);
	if (!m || refuse_committed(req, m) || refuse_parked(req, m))
		return;
	if (!record_did(&m->rec, DID_PARK)) {
		http_reply(req->exchange, 200, NULL);
		return;
	}
	if (!m->rec.back)
		migrate_give_up(m, "the source walks the migration back");
	if (record_did(&m->rec, DID_PARK))
		m->waiting = req->exchange;
	else
		durable_reply(m->d->durable, req->exchange, 200, NULL);
	migrate_drive(m);
}

void dst_on_abort(struct http_request *req)
{
	struct migration *m = find(req);

	if (!m || refuse_committed(req, m))
		return;
	if (!m->rec.ended && !m->rec.back)
		migrate_give_up(m, "%s", json_opt_str(req->body, "reason", "cancelled"));
	durable_reply(m->d->durable, req->exchange, 200, NULL);
}

/* ---- answers ---- */

/* ---- telling the source ---- */
