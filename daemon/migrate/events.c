/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events of libvirt and QEMU, for the VMs that migrate. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/src_saved.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/step.h"

#include <errno.h>
#include <string.h>

/* ---- source ---- */

/* The record goes on as its state does. true: it was PARKED for QEMU's job. */
static bool src_job_ended(struct migration *m, enum migrate_job job)
{
	m->src.job = job;
	if (!migrate_awaits_job(m))
		return false;
	migrate_unpark(m, "QEMU's migration has ended");
	return true;
}

static void src_job_failed(struct migration *m, const char *how)
{
	bool was_over = m->src.job == JOB_FAILED;

	if (src_job_ended(m, JOB_FAILED))
		return;
	if (m->rec.state == M_CANCEL)
		m->step.resting = false;
	if (m->rec.back || m->rec.state == M_CANCEL || was_over)
		migrate_drive(m);
	else
		migrate_fail(m, -ECANCELED, "QEMU's migration was %s", how);
}

static void src_status(struct migration *m, const char *status)
{
	if (m->rec.committed || record_ignores_job(&m->rec))
		return;
	if (!strcmp(status, "active") || !strcmp(status, "setup")) {
		/* From setup on: the sooner the daemon drives, the better. */
		if (m->src.job == JOB_NONE && !strcmp(status, "active")) {
			m->src.job = JOB_ACTIVE;
			/* An early VF's migration waits for this. */
			m->step.resting = m->step.resting && m->rec.back;
		}
		migrate_drive(m);
	} else if (!strcmp(status, "pre-switchover") || !strcmp(status, "device")) {
		m->src.guest_stopped = true;
		migrate_drive(m);
	} else if (!strcmp(status, "completed")) {
		if (!src_job_ended(m, JOB_COMPLETED))
			migrate_drive(m);
	} else if (!strcmp(status, "cancelled") || !strcmp(status, "failed")) {
		src_job_failed(m, status);
	}
}

/* The guest of a QEMU that was released may have arrived before that QEMU died: the destination
 * knows. */
static void src_vm_ended(struct migration *m)
{
	if (m->rec.state == M_SWITCH || m->rec.state == M_ATTACH) {
		m->src.job = m->rec.back ? JOB_FAILED : JOB_COMPLETED;
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
		m->src.job = JOB_COMPLETED;
		migrate_set_committed(m);
		migrate_drive(m);
		return true;
	case VIRT_STOPPED:
		/* A QEMU that has stayed behind ends, and its VM runs elsewhere. */
		if (m->rec.committed)
			return true;
		migrate_vm_died(m);
		src_vm_ended(m);
		return true;
	case VIRT_RESUMED:
	case VIRT_RESUMED_INCOMING:
		/* QEMU had sent all, but the destination did not take over: libvirt resumes it as
		 * one that has migrated, an operator as any other. */
		if (m->src.job == JOB_COMPLETED && !m->rec.committed)
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

	if (m->dst.guest_resumed || m->rec.back)
		return;
	m->dst.guest_resumed = true;
	m->rec.committed = true;
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
		if (m->rec.committed) {
			migrate_vm_died(m);
			migrate_drive(m);
			return true;
		}
		if (vm && vm->state == VM_INCOMING)
			vm_forget(vm);
		if (!m->rec.back)
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
	if (c == VIRT_STOPPED_MIGRATED && m->rec.role == ROLE_SOURCE && m->rec.back)
		c = VIRT_STOPPED;
	if (m->rec.state == M_PARKED && c != VIRT_STOPPED && !migrate_awaits_job(m))
		return false;
	return m->rec.role == ROLE_SOURCE ? src_changed(m, c) : dst_changed(m, c);
}

/* false: this migration has not asked for it, or no longer. Up to DETACH, whose step waits for the
 * journal first, a guest may do late what an earlier one, walked back since, has asked for. */
static bool device_deleted(struct migration *m, const char *dev_id)
{
	if (!record_did(&m->rec, DID_UNPLUG) && (m->rec.back || m->rec.state > M_DETACH))
		return false;
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		m->rec.vfs[i].device_gone |= !strcmp(m->rec.vfs[i].dev_id, dev_id);
	if (record_did(&m->rec, DID_UNPLUG))
		m->step.resting = false;
	migrate_drive(m);
	return true;
}

bool migrate_device_deleted(struct daemon *d, const char *uuid, const char *dev_id)
{
	struct migration *m = migrate_open(d, uuid);

	return m && m->rec.role == ROLE_SOURCE && device_deleted(m, dev_id);
}

void migrate_monitor_event(struct daemon *d, const char *uuid, const char *event,
			   struct json_object *details)
{
	struct migration *m = migrate_open(d, uuid);
	const char *status = json_opt_str(details, "status", "");
	struct vm *vm;

	if (m && m->rec.role == ROLE_SOURCE) {
		if (!strcmp(event, "MIGRATION"))
			src_status(m, status);
		else if (!strcmp(event, "MIGRATION_PASS") && m->rec.state == M_HOLD)
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

	if (!m || m->rec.role != ROLE_DESTINATION)
		return;
	vm->migration = m;
	if (m->dst.guest_resumed && vm->agent)
		agent_guest_runs(vm->agent);
	migrate_drive(m);
}

void migrate_agent_changed(struct vm *vm)
{
	if (vm->migration && !vm->migration->rec.ended)
		migrate_drive(vm->migration);
}

void migrate_write_of_vm(struct printbuf *text, const char *key, struct vm *vm)
{
	struct migration *m = vm->d->migrations;

	while (m && strcmp(m->rec.vm_uuid, vm->uuid))
		m = m->next;
	if (m)
		migrate_write_account(text, key, m);
	else
		json_write(text, key, NULL);
}

static bool moves(struct daemon *d, const char *uuid)
{
	return migrate_open(d, uuid);
}

const struct vm_watcher migrate_vm_watcher = {
	.moves = moves,
	.has_left = migrate_has_left,
	.changed = migrate_vm_changed,
	.monitor_event = migrate_monitor_event,
	.device_deleted = migrate_device_deleted,
	.listed = migrate_recover_after,
	.inspected = migrate_recover,
	.incoming = migrate_vm_known,
	.started = cold_vm_started,
	.attached = cold_resume_alone,
	.agent_changed = migrate_agent_changed,
	.write_newest = migrate_write_of_vm,
};
