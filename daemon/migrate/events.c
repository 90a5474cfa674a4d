/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events of libvirt and QEMU, for the VMs that migrate. */
#include "daemon/migrate/src.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/discover.h"
#include "common/json.h"
#include "common/util.h"
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

/* Only a guest that runs gives its VF up, and keeps pre-copy from ending before. */
static bool needs_guest(const struct migration *m)
{
	return m->rec.strategy == STRATEGY_LATE && !m->rec.back && m->rec.state >= M_HOLD &&
	       m->rec.state <= M_DETACH && record_devices_gone(&m->rec) < m->rec.vf_count;
}

/* Looks now, if a guest that is paused while it migrates away keeps its VF from leaving. */
static void look_paused(struct migration *m)
{
	if (needs_guest(m))
		migrate_look(m);
}

static bool src_changed(struct migration *m, enum virt_change c)
{
	/* A save looks by itself at what has become of the VM. */
	if (record_ignores_job(&m->rec) && (c == VIRT_STOPPED || c == VIRT_RESUMED))
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
		look_paused(m);
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

static bool vm_changed(struct daemon *d, const char *uuid, enum virt_change c)
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

static bool vm_device_deleted(struct daemon *d, const char *uuid, const char *dev_id)
{
	struct migration *m = migrate_open(d, uuid);

	return m && m->rec.role == ROLE_SOURCE && device_deleted(m, dev_id);
}

static void monitor_event(struct daemon *d, const char *uuid, const char *event,
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

static void vm_known(struct vm *vm)
{
	struct migration *m = migrate_open(vm->d, vm->uuid);

	if (!m || m->rec.role != ROLE_DESTINATION)
		return;
	vm->migration = m;
	if (m->dst.guest_resumed && vm->agent)
		agent_guest_runs(vm->agent);
	migrate_drive(m);
}

static void agent_changed(struct vm *vm)
{
	if (vm->migration && !vm->migration->rec.ended)
		migrate_drive(vm->migration);
}

static void write_newest(struct printbuf *text, const char *key, struct vm *vm)
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
	.changed = vm_changed,
	.monitor_event = monitor_event,
	.device_deleted = vm_device_deleted,
	.listed = migrate_recover_after,
	.inspected = migrate_recover,
	.incoming = vm_known,
	.started = cold_vm_started,
	.attached = cold_resume_alone,
	.agent_changed = agent_changed,
	.write_newest = write_newest,
};

/* ---- looks ----
 * Events can be lost, with a connection or with a libvirtd that is restarted. A migration that has
 * stayed in a state for a while looks, and goes on as with the event. */

/* A look: the worker reads the first half, and writes the other; of each VF in the input, "left".
 */
struct look_work {
	char vm[37];
	bool source;
	bool begins;  /* QEMU is waited for: disks may have to be copied before */
	bool aborts;  /* QEMU's job is to end */
	bool unplugs; /* the VFs are to leave */

	enum virt_state state;
	char status[24]; /* QEMU's job's, or "" */
	bool copies;
};

/* The VM's QEMU must have been here. */
static bool has_come(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	return m->rec.reached >= M_SWITCH || (vm && vm->state == VM_INCOMING);
}

/* An event may be due that nothing else would replace. */
static bool is_wanted(struct migration *m)
{
	if (m->recovery.unprobed || m->looking || record_ignores_job(&m->rec))
		return false;
	return m->rec.role == ROLE_SOURCE ? !m->rec.committed
					  : record_did(&m->rec, DID_ARM) && !m->rec.back;
}

static int find_device(struct job *j, struct json_object *vf, char *error)
{
	const struct look_work *w = j->work;
	bool has = true;
	int rc = qmp_has_device(j->d->virt, w->vm, vf_text_of(vf, "dev_id"), &has, error);

	json_set_bool(vf, "left", !has);
	return rc;
}

static void look_run(struct job *j)
{
	struct look_work *w = j->work;
	struct qmp_migration q;
	char why[HTTP_ERROR_MAX];

	/* The state below shows whether the abort has helped. */
	if (w->aborts)
		virt_abort_job(j->d->virt, w->vm, why);
	j->rc = virt_state(j->d->virt, w->vm, &w->state, j->error);
	if (j->rc || w->state == VIRT_GONE || !w->source)
		return;
	j->rc = qmp_query_migrate(j->d->virt, w->vm, &q, j->error);
	if (j->rc)
		return;
	memcpy(w->status, q.status, sizeof w->status);
	if (w->unplugs)
		job_each_vf(j, find_device);
	if (w->begins)
		speed_let_copy(j, w->vm, &w->copies);
}

/* The destination knows whether the VM has died or arrived, if QEMU ever began. */
static void src_gone(struct migration *m)
{
	if (m->rec.back) {
		migrate_vm_died(m);
		migrate_drive(m);
		return;
	}
	m->src.job = m->src.job == JOB_NONE ? JOB_FAILED : JOB_COMPLETED;
	/* These ask it. */
	if (migrate_awaits_job(m))
		migrate_unpark(m, "the VM is not on this host any more");
	else if (m->rec.state == M_SWITCH || m->rec.state == M_ATTACH || m->rec.state == M_CANCEL)
		migrate_drive(m);
	else
		migrate_fail(m, -ECANCELED, "the VM is not on this host any more");
}

static void tell_status(struct migration *m, const char *status)
{
	struct json_object *details AUTO_JSON = json_object_new_object();
	bool active = !strcmp(status, "active");

	/* A job that has ended before this one began is an older one's. */
	if (m->src.job != (active ? JOB_NONE : JOB_ACTIVE))
		return;
	json_set_str(details, "status", strcmp(status, "none") ? status : "cancelled");
	monitor_event(m->d, m->rec.vm_uuid, "MIGRATION", details);
}

static void tell_devices(struct migration *m, struct job *j)
{
	for (size_t i = 0; i < job_vf_count(j); i++)
		if (json_opt_bool(job_vf(j, i), "left", false))
			vm_device_deleted(m->d, m->rec.vm_uuid, vf_text_of(job_vf(j, i), "dev_id"));
}

static void src_looked(struct migration *m, struct job *j)
{
	const struct look_work *w = j->work;
	const char *status = w->status;

	if (w->state == VIRT_GONE) {
		src_gone(m);
		return;
	}
	m->src.stands = w->state == VIRT_STANDS;
	/* libvirt lets it run again when the migration has ended. */
	if (m->src.stands && !strcmp(status, "active") && needs_guest(m)) {
		migrate_fail(m, -ECANCELED,
			     "the guest was paused before its VF had left (virsh migrate "
			     "--timeout, or virsh suspend), and gives it up only while it runs: "
			     "leave it more time, or let the VF leave before the copy "
			     "(strategy early)");
		return;
	}
	src_keep_ballast(m);
	if (w->copies && src_awaits_begin(m))
		src_begins_later(m);
	tell_status(m, status);
	if (m->serial == j->serial)
		tell_devices(m, j);
}

static void dst_looked(struct migration *m, struct job *j)
{
	switch (((const struct look_work *)j->work)->state) {
	case VIRT_GONE:
		if (has_come(m))
			vm_changed(m->d, m->rec.vm_uuid, VIRT_STOPPED);
		break;
	case VIRT_RUNS:
		if (!migrate_vm(m))
			vm_discover(m->d, m->rec.vm_uuid, m->rec.vm_name, true);
		vm_changed(m->d, m->rec.vm_uuid, VIRT_RESUMED_INCOMING);
		break;
	case VIRT_STANDS:
		break;
	}
}

static void looked(struct job *j)
{
	struct migration *m = j->owner;

	m->looking = false;
	migrate_look_later(m);
	/* Another step's look says nothing of this one. */
	if (j->rc || m->serial != j->serial)
		return;
	if (m->rec.role == ROLE_SOURCE)
		src_looked(m, j);
	else
		dst_looked(m, j);
}

void migrate_look(void *arg)
{
	struct migration *m = arg;
	struct look_work w = {0};

	if (!is_wanted(m)) {
		migrate_look_later(m);
		return;
	}
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	w.source = m->rec.role == ROLE_SOURCE;
	w.begins = w.source && src_awaits_begin(m);
	w.aborts = migrate_awaits_job(m);
	w.unplugs = record_did(&m->rec, DID_UNPLUG) && m->rec.state == M_DETACH && !m->rec.back;
	m->looking = !job_order(m->d, &(struct job_order){JOB_WORK(w), .in = migrate_input(m),
							  .run = look_run, .done = looked,
							  .owner = m, .serial = m->serial});
	if (!m->looking)
		migrate_look_later(m);
}
