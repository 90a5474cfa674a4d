/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The way back at the source. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/vf/provider.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

#define CALL_DEADLINE_MS  15000
#define DEVICE_DELETED_MS 3000

/* ---- CANCEL ---- */

static bool is_over(const char *status)
{
	return !strcmp(status, "none") || !strcmp(status, "cancelled") || !strcmp(status, "failed");
}

struct abort_work {
	char vm[37];
	bool over; /* QEMU's job has ended without the VM's leaving */
};

static void abort_run(struct job *j)
{
	struct abort_work *w = j->work;
	struct qmp_migration q;
	char why[HTTP_ERROR_MAX];

	j->rc = virt_abort_job(j->d->virt, w->vm, j->error);
	if (!qmp_query_migrate(j->d->virt, w->vm, &q, why)) {
		w->over = is_over(q.status);
		if (!strcmp(q.status, "completed") || w->over)
			j->rc = 0;
	}
	/* The VM is gone from here: libvirt's event says where to. */
	if (j->rc == -ENOENT)
		j->rc = 0;
}

static void aborted(struct migration *m, struct job *j)
{
	const struct abort_work *w = j->work;

	if (!migrate_job_failed(m, j) && w->over && m->src.job != JOB_COMPLETED)
		m->src.job = JOB_FAILED;
}

static int abort_job(struct migration *m)
{
	struct abort_work w = {0};

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .run = abort_run}, aborted);
}

enum { CANCEL_ABORT, CANCEL_OUTCOME };

static const struct migrate_phase cancel[] = {
	[CANCEL_ABORT] = {"abort", abort_job, NULL},
	[CANCEL_OUTCOME] = {"outcome", src_await_outcome, src_ask_outcome},
	{0},
};

int src_cancel(struct migration *m)
{
	bool sent = m->src.job == JOB_COMPLETED;

	if (m->rec.committed || m->src.job == JOB_NONE || m->src.job == JOB_FAILED)
		return STEP_DONE;
	/* libvirt has not let go of the VM here: nobody else has it. */
	if (sent && record_did(&m->rec, TOLD_DESTINATION_LOST)) {
		m->src.job = JOB_FAILED;
		return STEP_DONE;
	}
	if (!sent && record_did(&m->rec, SAW_VM_END))
		return STEP_DONE;
	/* QEMU has sent all: the VM arrives, or libvirt takes it back. An abort that came too late
	 * was rest enough. */
	if (sent && m->step.phase != CANCEL_OUTCOME) {
		migrate_enter(m, CANCEL_OUTCOME);
		m->step.begun = m->step.started;
	}
	return migrate_run_phases(m, cancel);
}

/* ---- the undo of each state ---- */

/* First the destination's VFs drop the vGUIDs, then ours show them again. */
static void unswitch_run(struct job *j)
{
	const struct other_host *to = j->work;
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL,
				 *moved AUTO_JSON = NULL;

	json_set_str(body, "migration", to->id);
	json_set(body, "vfs", json_object_get(json_opt(j->in, "record")));
	j->rc = http_call(to->url, "POST", "/v1/peer/unswitch", body, CALL_DEADLINE_MS, &answer,
			  j->error);
	if (j->rc && j->rc != -EREMOTEIO)
		lost_name_way_out(j, to);
	if (!job_vfs_at_once(j, src_show_guid))
		j->rc = sm_change(j->d->settings, "/v1/moves",
				  json_object_get(json_opt(j->in, "moves")), &moved, j->error);
}

static void taken_back(struct migration *m, struct job *j)
{
	if (!j->rc)
		lost_keep_lids(m, j);
	migrate_job_next(m, j);
}

static int move_back(struct migration *m)
{
	bool lost = record_did(&m->rec, TOLD_DESTINATION_LOST);
	struct address_work w = lost_addresses(m, &m->rec.to);
	struct other_host to = other_host(m, &m->rec.to);
	struct json_object *in = migrate_input(m);

	json_set(in, "moves", record_moves(&m->rec, true));
	json_set(in, "record", record_vfs_json(&m->rec));
	return lost ? migrate_order(
			      m,
			      (struct job_order){JOB_WORK(w), .in = in, .run = lost_take_back_run},
			      taken_back)
		    : migrate_order(m,
				    (struct job_order){.pool = m->d->callers,
						       JOB_WORK(to),
						       .in = in,
						       .run = unswitch_run},
				    migrate_job_next);
}

static int is_back(struct migration *m)
{
	record_undo(&m->rec, DID_PARK);
	record_undo(&m->rec, DID_MOVE);
	return STEP_DONE;
}

static const struct migrate_phase switch_undo[] = {
	{"move-back", move_back, NULL},
	{"moved-back", is_back, NULL},
	{0},
};

int src_switch_undo(struct migration *m)
{
	return record_did(&m->rec, DID_PARK) ? migrate_run_phases(m, switch_undo) : STEP_DONE;
}

/* The guest may still be giving a device up: a while for the event. */
static int wait_for_event(struct migration *m)
{
	if (record_devices_gone(&m->rec) == m->rec.vf_count)
		return STEP_DONE;
	m->step.resting = true;
	migrate_poll(m, DEVICE_DELETED_MS);
	return STEP_WAIT;
}

static int go_on(struct migration *m)
{
	(void)m;
	return STEP_DONE;
}

static int attach_again(struct migration *m)
{
	return migrate_job(m, migrate_input(m), vm_work_reattach, migrate_job_next);
}

static int is_attached(struct migration *m)
{
	record_undo(&m->rec, DID_UNPLUG);
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		m->rec.vfs[i].device_gone = false;
	return STEP_DONE;
}

static const struct migrate_phase detach_undo[] = {
	{"event", wait_for_event, go_on},
	{"attach", attach_again, NULL},
	{"attached", is_attached, NULL},
	{0},
};

int src_detach_undo(struct migration *m)
{
	if (!record_did(&m->rec, DID_UNPLUG) || record_did(&m->rec, SAW_VM_END))
		return STEP_DONE;
	return migrate_run_phases(m, detach_undo);
}

static int all_resumed(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	/* libvirt leaves it so when nobody has told it whether the VM arrived. */
	if (m->pending_rc && m->src.stands && !record_did(&m->rec, SAW_VM_END))
		return migrate_error(m, m->pending_rc,
				     "it is paused on this host, and runs nowhere else: virsh "
				     "resume %s",
				     m->rec.vm_name);
	/* Nobody is left for the peers to meet. */
	if (m->pending_rc && !record_did(&m->rec, SAW_VM_END))
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	record_undo(&m->rec, DID_SUSPEND);
	return STEP_DONE;
}

static int resume_all(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (vm && vm->agent && !record_did(&m->rec, SAW_VM_END)) {
		m->pending++;
		migrate_ask_agent(m, vm, mover_resume(m, false), MIGRATE_RESUME_MS, mover_resumed);
	}
	peers_resume(m, false);
	return all_resumed(m);
}

static const struct migrate_phase quiesce_undo[] = {
	{"resume", resume_all, all_resumed},
	{0},
};

int src_quiesce_undo(struct migration *m)
{
	return record_did(&m->rec, DID_SUSPEND) ? migrate_run_phases(m, quiesce_undo) : STEP_DONE;
}

static void guard_run(struct job *j)
{
	j->rc = vm_work_guard(j, j->error);
}

static int guard(struct migration *m)
{
	return migrate_job(m, migrate_input(m), guard_run, migrate_job_next);
}

static int is_guarded(struct migration *m)
{
	record_undo(&m->rec, DID_RAISE);
	return STEP_DONE;
}

static const struct migrate_phase hold_undo[] = {
	{"guard", guard, NULL},
	{"guarded", is_guarded, NULL},
	{0},
};

int src_hold_undo(struct migration *m)
{
	if (!record_did(&m->rec, DID_RAISE) || record_did(&m->rec, SAW_VM_END))
		return STEP_DONE;
	return migrate_run_phases(m, hold_undo);
}

struct end_work {
	char id[37], url[256]; /* url: "" if nobody is to be told */
	char reason[HTTP_ERROR_MAX];
	bool release; /* the VFs are given back as well */
};

static void tell_abort(const struct end_work *w)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	char why[HTTP_ERROR_MAX];

	json_set_str(body, "migration", w->id);
	json_set_str(body, "reason", w->reason);
	if (http_call(w->url, "POST", "/v1/peer/abort", body, CALL_DEADLINE_MS, &answer, why))
		log_warn("migration %s: the destination was not told of the end: %s", w->id, why);
}

/* The destination's lease would run out by itself: its silence does not stop us. */
static void end_run(struct job *j)
{
	const struct end_work *w = j->work;

	if (*w->url)
		tell_abort(w);
	if (w->release)
		vm_work_release(j);
}

static void told(struct migration *m, struct job *j)
{
	if (!j->rc && ((const struct end_work *)j->work)->release)
		migrate_free_leases(m);
	migrate_job_next(m, j);
}

static int end(struct migration *m)
{
	struct end_work w = {0};

	if (record_did(&m->rec, DID_BALLAST))
		src_end_ballast(m);
	record_undo(&m->rec, DID_ARM);
	memcpy(w.id, m->rec.id, sizeof w.id);
	memcpy(w.reason, m->rec.reason, sizeof w.reason);
	if (!record_did(&m->rec, TOLD_DESTINATION_LOST))
		memcpy(w.url, m->rec.to.url, sizeof w.url);
	/* A VM that has died while this host was off is nobody's to release. */
	w.release = record_did(&m->rec, SAW_VM_END) && !m->rec.file && !migrate_vm(m);
	return migrate_order(
		m,
		(struct job_order){
			.pool = m->d->callers, JOB_WORK(w), .in = migrate_input(m), .run = end_run},
		told);
}

static const struct migrate_phase prepare_undo[] = {
	{"tell", end, NULL},
	{0},
};

int src_prepare_undo(struct migration *m)
{
	return migrate_run_phases(m, prepare_undo);
}
