/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/silence.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain_saved.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"

#include <errno.h>
#include <string.h>

#define RESUME_MS   25000
#define ALONE_TRIES 20 /* 8 minutes: peers' hosts wait 3 for a silent host */
#define ASK_MS      7000

/* ---- the hook ---- */

/* A VM that this host has saved itself: it comes back as after a migration that was given up. */
static void hook_here(struct http_request *req, const struct migration *m)
{
	const struct daemon *d = req->user;
	const char *host = d->settings->host_name;

	if (m->rec.state == M_SAVED && record_did(&m->rec, DID_SAVE) && !m->rec.back &&
	    !m->rec.committed && !*m->rec.to.url)
		http_reply(req->exchange, 200, NULL);
	else if (m->rec.state == M_SAVED && *m->rec.to.url)
		http_fail(req->exchange, 409, "busy",
			  "ibvmig: VM %s is being restored on host %s, not on %s", m->rec.vm_name,
			  m->rec.to.host, host);
	else
		http_fail(req->exchange, 409, "busy",
			  "ibvmig: VM %s cannot be restored on host %s now: its record is %s; see "
			  "ibvmig list",
			  m->rec.vm_name, host, migrate_state_name(m->rec.state));
}

void cold_hook(struct http_request *req, const struct domain_info *info, const char *xml)
{
	struct daemon *d = req->user;
	struct migration *m;
	struct domain_saved saved;

	if (!domain_saved_parse(xml, &saved)) {
		http_reply(req->exchange, 200, NULL); /* saved when it had no VF */
		return;
	}
	m = migrate_find(d, saved.id, ROLE_SOURCE);
	if (m && !m->rec.ended) {
		hook_here(req, m);
	} else if (!strcmp(saved.host, d->settings->host_name)) {
		log_warn("VM %s: its save %s has ended before: its programs go on without the "
			 "connections that they had",
			 info->name, saved.id);
		http_reply(req->exchange, 200, NULL);
	} else {
		dst_begin(req, info, xml, &saved);
	}
}

/* ---- it is here ---- */

void cold_vm_started(struct vm *vm)
{
	struct migration *m = migrate_open(vm->d, vm->uuid);

	if (!m || !vm->d->recovered || m->rec.strategy != STRATEGY_COLD)
		return;
	vm->migration = m;
	if (m->rec.role == ROLE_DESTINATION)
		migrate_drive(m);
	else if (record_is_file(&m->rec) && !m->rec.committed && !m->recovery.rebooted)
		migrate_fail(m, -ECANCELED, "the VM runs on this host again");
}

/* Peers may still wait for a host that is lost (daemon/migrate/peer_watch.c): asked again until
 * they look for us too. A refusal comes at once, and stays. */
static void resumed_alone(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct vm *vm = arg;
	bool has_waited = now_us() - vm->alone_asked_us > RESUME_MS * 500ull;

	(void)answer;
	if (rc && has_waited && vm->alone_tries < ALONE_TRIES)
		cold_resume_alone(vm);
	else if (rc)
		log_warn("VM %s: its programs could not be resumed: %s", vm->name, error);
}

void cold_resume_alone(struct vm *vm)
{
	struct json_object *msg;

	if (!vm->saved_id || !vm->agent)
		return;
	msg = json_object_new_object();
	json_set_str(msg, "op", "resume");
	json_set_str(msg, "migration", vm->saved_id);
	json_set_str(msg, "role", "mover");
	json_set(msg, "vguids", vm_guids(vm));
	json_set_u64(msg, "deadline_ms", RESUME_MS - 1000);
	json_set_bool(msg, "moved", true);
	vm->alone_tries++;
	vm->alone_asked_us = now_us();
	agent_request(vm->agent, msg, RESUME_MS, resumed_alone, vm);
}

/* ---- or not ---- */

struct look_work {
	char vm[37];
	bool here; /* libvirt has the VM */
};

static void look_run(struct job *j)
{
	struct look_work *w = j->work;

	j->rc = virt_is_running(j->d->virt, w->vm, &w->here, j->error);
}

static void looked(struct migration *m, struct job *j)
{
	migrate_enter(m, DST_AWAIT);
	m->step.timed_out = false;
	if (!j->rc && !((const struct look_work *)j->work)->here && !m->dst.guest_resumed)
		migrate_give_up(m, "libvirt has not restored the VM");
	else
		migrate_deadline_again(m);
}

int cold_look_for_vm(struct migration *m)
{
	struct look_work w = {0};

	migrate_enter(m, DST_ASK);
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .run = look_run}, looked);
}

/* ---- the request ---- */

/* The worker reads the first part, and learns the other from the file and from libvirt. */
struct restore_work {
	char *file; /* owned */
	bool source_lost;

	char *name;                  /* owned, or NULL */
	char uuid[37], saved_id[37]; /* saved_id: "" for a VM that had no VF */
	bool runs;                   /* a VM of this uuid is here already */
};

static void restore_clear(void *work)
{
	struct restore_work *w = work;

	free(w->file);
	free(w->name);
}

/* The host that saved the VM still has the record. A host that answers without it has lost its
 * journal, and its VFs were parked when it started. */
static bool has_record(const struct domain_saved *saved)
{
	struct remote_record r;
	char why[HTTP_ERROR_MAX];

	return !remote_ask(saved->url, saved->id, ROLE_SOURCE, ASK_MS, &r, why);
}

static int fence(struct job *j, const char *vm, const char *host)
{
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;

	json_set_str(body, "vm", vm);
	json_set_str(body, "host", host);
	return j->rc = sm_change(j->d->settings, "/v1/fence", body, &answer, j->error);
}

/* The operator says that the host is off which keeps the VM's address: it starts here as one whose
 * record has ended. *ret_xml: what libvirt is to start, owned by the caller. */
static int take_over(struct job *j, const struct domain_info *info, const char *xml,
		     struct domain_saved *saved, char **ret_xml)
{
	const struct settings *s = j->d->settings;

	if (!strcmp(saved->host, s->host_name))
		return job_fail(j, -EINVAL,
				"this host has saved it: restore it without "
				"--source-lost");
	if (has_record(saved))
		return job_fail(j, -EBUSY,
				"host %s, which saved it, is not lost: it answers. Restore it "
				"without --source-lost, or give its address up there: ibvmig "
				"resolve %s",
				saved->host, saved->id);
	if (fence(j, info->uuid, saved->host))
		return j->rc;
	snprintf(saved->host, sizeof saved->host, "%s", s->host_name);
	snprintf(saved->url, sizeof saved->url, "%s", s->url);
	*ret_xml = domain_saved_mark(xml, saved);
	return 0;
}

static void restore_run(struct job *j)
{
	struct restore_work *w = j->work;
	char *xml AUTO_FREE = NULL, *own AUTO_FREE = NULL;
	struct domain_info *info = NULL;
	struct domain_saved saved;
	char why[HTTP_ERROR_MAX];

	j->rc = virt_image_xml(j->d->virt, w->file, &xml, j->error);
	if (j->rc)
		return;
	if (domain_parse(xml, strlen(xml), &info)) {
		job_fail(j, -EBADMSG, "%s: its domain XML cannot be parsed", w->file);
		return;
	}
	str_set(&w->name, info->name);
	memcpy(w->uuid, info->uuid, sizeof w->uuid);
	/* libvirt's hook must not be asked about a VM that is here already. */
	virt_is_running(j->d->virt, w->uuid, &w->runs, why);
	if (domain_saved_parse(xml, &saved)) {
		memcpy(w->saved_id, saved.id, sizeof w->saved_id);
		if (!w->runs && w->source_lost)
			take_over(j, info, xml, &saved, &own);
	}
	domain_free(info);
	if (!j->rc && !w->runs)
		j->rc = virt_restore(j->d->virt, w->file, own, j->error);
}

/* The VFs that the hook has prepared are given back at once. */
static void not_restored(struct job *j)
{
	struct migration *m = migrate_open(j->d, ((const struct restore_work *)j->work)->uuid);

	if (m && m->rec.role == ROLE_DESTINATION && m->rec.strategy == STRATEGY_COLD &&
	    record_did(&m->rec, DID_ARM) && !m->rec.committed && !m->rec.back)
		migrate_give_up(m, "libvirt has not restored the VM: %s", j->error);
}

/* The VM that runs is the file's: it was restored before. */
static bool is_restored(struct job *j)
{
	const struct restore_work *w = j->work;
	const struct vm *vm = vm_find(j->d, w->uuid);

	return vm && *w->saved_id && str_eq(vm->saved_id, w->saved_id);
}

static void restore_done(struct job *j)
{
	const struct restore_work *w = j->work;
	struct http_exchange *x = j->owner;

	json_object_object_del(j->d->restores, w->file);
	if (!j->rc && w->runs && !is_restored(j))
		job_fail(j, -EEXIST, "VM %s runs on this host already, and not from this file",
			 w->name);
	if (!j->rc) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "vm", w->name);
		json_set_str(o, "uuid", w->uuid);
		if (*w->saved_id)
			json_set_str(o, "migration", w->saved_id);
		http_reply(x, 200, o);
		return;
	}
	not_restored(j);
	http_fail(x, j->rc == -ENOTCONN ? 503 : 409, "not-restored", "%s", j->error);
}

void cold_post_restore(struct http_request *req)
{
	struct daemon *d = req->user;
	static const char *const flags[] = {"source_lost", NULL};
	static const char *const texts[] = {"file", NULL};
	const char *file = json_opt_str(req->body, "file", "");
	struct restore_work w = {0};
	struct json_object *o;

	if (!http_flags_fit(req, flags) || !http_texts_fit(req, texts))
		return;
	if (*file != '/') {
		http_fail(req->exchange, 400, "bad-field",
			  "file is \"%.200s\"; it must be an absolute path of this host", file);
		return;
	}
	if (!d->restores)
		d->restores = json_object_new_object();
	if (json_opt(d->restores, file)) {
		o = json_object_new_object();
		json_set_str(o, "file", file);
		http_reply(req->exchange, 202, o);
		return;
	}
	if (json_object_object_length(d->restores) >= COLD_JOBS_MAX) {
		http_fail(req->exchange, 503, "busy",
			  "%d other VMs are being restored: try again when one is through",
			  COLD_JOBS_MAX);
		return;
	}
	w.source_lost = json_opt_bool(req->body, "source_lost", false);
	if (str_set(&w.file, file) ||
	    job_order(d,
		      &(struct job_order){JOB_WORK(w), .clear = restore_clear, .run = restore_run,
					  .done = restore_done, .owner = req->exchange}))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
	else
		json_set_bool(d->restores, file, true);
}
