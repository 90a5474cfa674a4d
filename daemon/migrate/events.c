/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What libvirt and QEMU tell, for migrations; and open migrations after a restart. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src_saved.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/step.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/discover.h"

#include <errno.h>
#include <string.h>

#define RECOVER_MAX     VF_VFS_MAX /* each has a VF of this host, or had one */
#define PROBE_AGAIN_MS  2000
#define PROBES_MAX      30
#define PROBES_PREPARED 5
#define ASK_MS          4000

/* ---- source ---- */

/* It goes on as its state does: true, if a record was PARKED for it. */
static bool src_job_ended(struct migration *m, enum migrate_job job)
{
	m->job = job;
	if (!migrate_awaits_job(m))
		return false;
	migrate_unpark(m, "QEMU's migration has ended");
	return true;
}

static void src_job_failed(struct migration *m, const char *how)
{
	bool was_over = m->job == JOB_FAILED;

	if (src_job_ended(m, JOB_FAILED))
		return;
	if (m->state == M_CANCEL)
		m->step.resting = false;
	if (m->back || m->state == M_CANCEL || was_over)
		migrate_drive(m);
	else
		migrate_fail(m, -ECANCELED, "QEMU's migration was %s", how);
}

static void src_status(struct migration *m, const char *status)
{
	if (m->committed || cold_ignores_job(m))
		return;
	if (!strcmp(status, "active") || !strcmp(status, "setup")) {
		/* From setup on: the sooner the daemon drives, the better. */
		if (m->job == JOB_NONE && !strcmp(status, "active")) {
			m->job = JOB_ACTIVE;
			/* An early VF's migration waits for this. */
			m->step.resting = m->step.resting && m->back;
		}
		migrate_drive(m);
	} else if (!strcmp(status, "pre-switchover") || !strcmp(status, "device")) {
		m->guest_stopped = true;
		migrate_drive(m);
	} else if (!strcmp(status, "completed")) {
		if (!src_job_ended(m, JOB_COMPLETED))
			migrate_drive(m);
	} else if (!strcmp(status, "cancelled") || !strcmp(status, "failed")) {
		src_job_failed(m, status);
	}
}

/* Of a QEMU that was released the guest may have arrived before it died: the destination knows. */
static void src_vm_ended(struct migration *m)
{
	if (m->state == M_SWITCH || m->state == M_ATTACH) {
		m->job = m->back ? JOB_FAILED : JOB_COMPLETED;
		migrate_fail(m, -ECANCELED, "QEMU's migration was ended by the VM's end");
	} else {
		src_job_failed(m, "ended by the VM's end");
	}
}

static bool src_changed(struct migration *m, enum virt_change c)
{
	if (cold_vm_changed(m, c))
		return true;
	switch (c) {
	case VIRT_STOPPED_MIGRATED:
		m->job = JOB_COMPLETED;
		migrate_set_committed(m);
		migrate_drive(m);
		return true;
	case VIRT_STOPPED:
		/* What has stayed behind of one that runs elsewhere. */
		if (m->committed)
			return true;
		migrate_vm_died(m);
		src_vm_ended(m);
		return true;
	case VIRT_RESUMED:
	case VIRT_RESUMED_INCOMING:
		/* QEMU had sent all, but the destination did not take over: libvirt resumes it as
		 * one that has migrated, an operator as any other. */
		if (m->job == JOB_COMPLETED && !m->committed)
			src_job_failed(m, "taken back by libvirt");
		return true;
	case VIRT_SUSPENDED:
		migrate_look_paused(m);
		return true;
	default:
		return false;
	}
}

/* ---- destination ---- */

static void dst_resumed(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (m->guest_resumed || m->back)
		return;
	m->guest_resumed = true;
	m->committed = true;
	m->committed_us = now_us();
	/* The attach does not wait for the disk: the VM's running here is its own proof. */
	migrate_drive(m);
	if (vm && vm->agent)
		agent_guest_runs(vm->agent);
	migrate_save(m, "COMMIT");
	dst_tell_source(m);
}

static bool dst_changed(struct migration *m, enum virt_change c)
{
	struct vm *vm = migrate_vm(m);

	switch (c) {
	case VIRT_RESUMED_INCOMING:
		dst_resumed(m);
		return true;
	case VIRT_STOPPED:
	case VIRT_STOPPED_MIGRATED:
		if (m->committed) {
			migrate_vm_died(m);
			migrate_drive(m);
			return true;
		}
		if (vm && vm->state == VM_INCOMING)
			vm_forget(vm);
		if (!m->back)
			migrate_give_up(m, "the VM ended here before it had arrived");
		return true;
	default:
		return false;
	}
}

bool migrate_vm_changed(struct daemon *d, const char *uuid, enum virt_change c)
{
	struct migration *m = migrate_open(d, uuid);

	if (!m)
		return false;
	/* Without its VF, and by a migration that is not this one, whose job has ended. */
	if (c == VIRT_STOPPED_MIGRATED && m->role == ROLE_SOURCE && m->back)
		c = VIRT_STOPPED;
	if (m->state == M_PARKED && c != VIRT_STOPPED && !migrate_awaits_job(m))
		return false;
	return m->role == ROLE_SOURCE ? src_changed(m, c) : dst_changed(m, c);
}

/* false: this migration has not asked for it, or no longer. Up to DETACH, whose step waits for the
 * journal first, a guest may do late what an earlier one, walked back since, has asked for. */
static bool device_deleted(struct migration *m, const char *dev_id)
{
	if (!m->device_del_sent && (m->back || m->state > M_DETACH))
		return false;
	for (unsigned i = 0; i < m->vf_count; i++)
		m->vfs[i].device_gone |= !strcmp(m->vfs[i].dev_id, dev_id);
	if (m->device_del_sent)
		m->step.resting = false;
	migrate_drive(m);
	return true;
}

bool migrate_device_deleted(struct daemon *d, const char *uuid, const char *dev_id)
{
	struct migration *m = migrate_open(d, uuid);

	return m && m->role == ROLE_SOURCE && device_deleted(m, dev_id);
}

void migrate_monitor_event(struct daemon *d, const char *uuid, const char *event,
			   struct json_object *details)
{
	struct migration *m = migrate_open(d, uuid);
	const char *status = json_opt_str(details, "status", "");
	struct vm *vm;

	if (m && m->role == ROLE_SOURCE) {
		if (!strcmp(event, "MIGRATION"))
			src_status(m, status);
		else if (!strcmp(event, "MIGRATION_PASS") && m->state == M_HOLD)
			src_look_now(m);
	} else if (m) {
		if (!strcmp(event, "RESUME"))
			dst_resumed(m);
	} else if (!strcmp(event, "MIGRATION") && !strcmp(status, "active")) {
		vm = vm_find(d, uuid);
		if (vm && vm->state == VM_ATTACHED)
			src_unprepared(vm);
	}
}

void migrate_vm_known(struct vm *vm)
{
	struct migration *m = migrate_open(vm->d, vm->uuid);

	if (!m || m->role != ROLE_DESTINATION)
		return;
	vm->migration = m;
	if (m->guest_resumed && vm->agent)
		agent_guest_runs(vm->agent);
	migrate_drive(m);
}

void migrate_agent_changed(struct vm *vm)
{
	if (vm->migration && !vm->migration->ended)
		migrate_drive(vm->migration);
}

void migrate_write_of_vm(struct printbuf *text, const char *key, struct vm *vm)
{
	struct migration *m = vm->d->migrations;

	while (m && strcmp(m->vm_uuid, vm->uuid))
		m = m->next;
	if (m)
		migrate_write_account(text, key, m);
	else
		json_write(text, key, NULL);
}

/* ---- after a restart ---- */

/* The journal was written before the step ran: whatever the step does may have been done. */
static void assume_started(struct migration *m)
{
	if (m->role == ROLE_DESTINATION) {
		m->parked |= m->reached >= M_SWITCH;
		return;
	}
	m->raised |= m->reached >= M_HOLD;
	if (m->strategy != STRATEGY_NATIVE) {
		m->suspended |= m->reached >= M_QUIESCE;
		m->device_del_sent |= m->reached >= M_DETACH;
	}
	m->parked |= m->reached >= M_SWITCH;
}

void migrate_load_open(struct daemon *d)
{
	struct json_object *list AUTO_JSON = journal_open_migrations(d->journal, RECOVER_MAX);

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		bool src = str_eq(json_opt_str(o, "role", ""), "source");
		struct migration *m;

		m = migrate_new(d, src ? ROLE_SOURCE : ROLE_DESTINATION, json_opt_str(o, "id", ""),
				json_opt_str(o, "vm", ""), json_opt_str(o, "name", ""));
		if (!m)
			continue;
		m->unprobed = true;
		if (migrate_reload(m, o))
			m->ended = true; /* written by another version: left to the operator */
		else if (!m->back)
			assume_started(m);
	}
}

/* Of a VM that is not here: whether it has died here (this host was off, perhaps), or has left. A
 * destination that has just been restarted itself may not know yet. → open: it does not; prepared:
 * and nothing has come so far; died. Nothing: it has come, or the destination is silent. */
static void ask_destination(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL, *dst;
	char *path AUTO_FREE = strf("/v1/migrations/%s", json_opt_str(j->in, "migration", ""));
	char why[HTTP_ERROR_MAX];
	int rc = http_call(json_opt_str(j->in, "url", ""), "GET", path, NULL, ASK_MS, &answer, why);
	bool over;

	dst = json_opt(answer, "destination");
	if ((rc && rc != -EREMOTEIO) || json_opt_bool(dst, "committed", false))
		return;
	over = rc || json_opt_bool(dst, "ended", false) || json_opt_bool(dst, "back", false);
	json_set_bool(j->out, "died", over);
	json_set_bool(j->out, "open", !over);
	json_set_bool(j->out, "prepared", str_eq(json_opt_str(dst, "state", ""), "PREPARE"));
}

/* A QEMU that waits for a migration does not tell; what the source's does is to be known. */
static void probe_job(struct job *j, const char *vm)
{
	struct qmp_migration q;
	char why[HTTP_ERROR_MAX];
	int rc = qmp_query_migrate(j->d->virt, vm, &q, why);

	if (!rc)
		json_set_str(j->out, "status", q.status);
	else if (json_opt_bool(j->in, "source", false))
		job_fail(j, rc, "%s", why);
}

static void probe_run(struct job *j)
{
	const char *vm = json_opt_str(j->in, "vm", "");
	bool here = false;

	j->rc = virt_is_running(j->d->virt, vm, &here, j->error);
	here = here && !json_opt_bool(j->in, "rebooted", false);
	json_set_bool(j->out, "here", here);
	if (here)
		probe_job(j, vm);
	if (!j->rc && !here && *json_opt_str(j->in, "url", ""))
		ask_destination(j);
}

/* What is not known yet is asked again, for a while. */
static bool asks_again(struct migration *m, struct job *j)
{
	unsigned most = json_opt_bool(j->out, "prepared", false) ? PROBES_PREPARED : PROBES_MAX;

	return json_opt_bool(j->out, "open", false) && ++m->probes < most;
}

static bool has_died(struct job *j)
{
	return json_opt_bool(j->out, "died", false) ||
	       (json_opt_bool(j->out, "open", false) && json_opt_bool(j->out, "prepared", false));
}

static void src_recover(struct migration *m, bool here, const char *status)
{
	if (m->state == M_SAVED && !m->back && !m->committed) {
		cold_recover(m);
		return;
	}
	if (m->committed || !here) {
		/* It left, or is gone: the destination knows. Without one, walk back. */
		if (!m->committed && (m->back || m->vm_dead || !*m->to.url))
			migrate_vm_died(m);
		else
			migrate_set_committed(m);
	}
	if (!strcmp(status, "active") || !strcmp(status, "pre-switchover") ||
	    !strcmp(status, "device"))
		m->job = JOB_ACTIVE;
	else if (m->job == JOB_NONE)
		m->job = JOB_FAILED;
	if (migrate_awaits_job(m) && m->job == JOB_FAILED)
		migrate_unpark(m, "QEMU's migration has ended");
	if (m->state == M_PARKED)
		return;
	if (m->committed || m->back || m->state == M_CANCEL)
		migrate_drive(m);
	else
		migrate_fail(m, -EINTR, "ibvmigd was restarted at the source");
}

static void dst_recover(struct migration *m, bool here, const char *status)
{
	struct vm *vm = migrate_vm(m);

	/* A running guest is the proof of COMMIT; "active" is QEMU waiting for one. */
	if (m->committed || (here && vm && vm->state != VM_INCOMING && strcmp(status, "active"))) {
		bool news = !m->committed;

		m->committed = m->guest_resumed = true;
		m->committed_us = now_us();
		if (news && m->state != M_PARKED) {
			migrate_save(m, "COMMIT");
			dst_tell_source(m);
		}
	}
	if (m->committed && !here)
		migrate_vm_died(m);
	if (m->state == M_PARKED)
		return;
	/* libvirt may only be about to start it: its hook has had our answer. */
	bool comes = here || (m->strategy == STRATEGY_COLD && m->armed);
	if (m->committed || m->back || comes)
		migrate_drive(m);
	else
		migrate_fail(m, -EINTR, "ibvmigd was restarted at the destination");
}

static void probe_done(struct job *j)
{
	struct migration *m = j->owner;
	bool here = json_opt_bool(j->out, "here", false);
	const char *status = json_opt_str(j->out, "status", "");

	m->inflight--;
	m->probing = false;
	if (!j->rc && here && vm_is_unseen(m->d, m->vm_uuid))
		job_fail(j, -EAGAIN, "libvirt does not tell yet what the VM has");
	m->unprobed = j->rc || asks_again(m, j);
	if (m->unprobed && !j->rc) {
		migrate_poll(m, PROBE_AGAIN_MS);
		return;
	}
	if (j->rc) {
		if (!m->step.silence_told)
			log_warn("VM %s: migration %s waits in %s: %s (said once)", m->vm_name,
				 m->id, migrate_state_name(m->state), j->error);
		m->step.silence_told = true;
		migrate_poll(m, PROBE_AGAIN_MS);
		return;
	}
	m->step.silence_told = false;
	log_notice("VM %s: migration %s taken up again in %s", m->vm_name, m->id,
		   migrate_state_name(m->state));
	if (m->role == ROLE_SOURCE && !m->committed && has_died(j))
		migrate_vm_died(m);
	if (m->role == ROLE_SOURCE)
		src_recover(m, here, status);
	else
		dst_recover(m, here, status);
}

void migrate_probe(struct migration *m)
{
	struct json_object *in;

	if (m->probing)
		return;
	in = json_object_new_object();
	json_set_str(in, "vm", m->vm_uuid);
	json_set_str(in, "migration", m->id);
	json_set_bool(in, "rebooted", m->role == ROLE_SOURCE && m->rebooted);
	json_set_bool(in, "source", m->role == ROLE_SOURCE);
	if (m->role == ROLE_SOURCE && !m->committed && !m->back && !m->file)
		json_set_str(in, "url", m->to.url);
	m->probing = !job_start(m->d, in, probe_run, probe_done, m, 0);
	m->inflight += m->probing;
	if (!m->probing)
		migrate_poll(m, PROBE_AGAIN_MS);
}

void migrate_recover_after(struct daemon *d, size_t vms)
{
	if (d->recovered)
		return;
	d->to_inspect = (unsigned)vms + 1;
	migrate_recover(d);
}

void migrate_recover(struct daemon *d)
{
	if (d->recovered || !d->to_inspect || --d->to_inspect)
		return;
	d->recovered = true;
	/* Others have begun since, and are no older life's. */
	for (struct migration *m = d->migrations; m; m = m->next)
		if (!m->ended && m->unprobed)
			migrate_probe(m);
}
