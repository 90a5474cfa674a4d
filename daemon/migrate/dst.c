/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SWITCH, ATTACH and RESUME at the host that the VM comes to. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/step.h"
#include "daemon/vf/provider.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/repath.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/work.h"
#include <errno.h>
#include <string.h>

#define RESUME_TRIES      20
#define RESUME_AT_ONCE_US 5000000 /* later, the peers' patience has run out as well */
#define RESUME_AGAIN_MS   200

/* ---- SWITCH ---- */

static int show_guid(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"), vf_guid_of(vf, "vguid"),
				 error);
}

static void switch_run(struct job *j)
{
	struct json_object *answer = NULL;
	uint64_t start_us = now_us();

	job_vfs_at_once(j, show_guid);
	json_set_u64(j->out, "set_guid_us", now_us() - start_us);
	if (!j->rc)
		j->rc = sm_change(j->d->settings, "/v1/moves",
				  json_object_get(json_opt(j->in, "moves")), &answer, j->error);
	json_set(j->out, "answer", answer);
}

static void keep_lids(struct migration *m, struct json_object *answer)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct json_object *moved = repath_move_of(answer, m->rec.vfs[i].vguid);
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (!vf)
			continue;
		vf->lid = (unsigned)json_opt_u64(moved, "lid_after", vf->lid);
		vf_save(m->d->vfs, vf);
	}
}

static void switched(struct migration *m, struct job *j)
{
	struct json_object *answer = json_opt(j->out, "answer");
	char text[HTTP_ERROR_MAX] = "";

	/* ibvmig-sm takes no vGUID from a port that is dead. */
	if (j->rc == -EREMOTEIO && m->rec.committed)
		orphan_name_way_out(m, j->error, text);
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", *text ? text : j->error);
		return;
	}
	record_do(&m->rec, DID_MOVE);
	m->rec.reason[0] = '\0'; /* a try before this one gave it */
	json_set_u64(m->rec.data, "set_guid_us", json_opt_u64(j->out, "set_guid_us", 0));
	json_set(m->rec.data, "move", json_object_get(answer));
	keep_lids(m, answer);
	migrate_measure(m, "switch_us");
	migrate_answer_waiting(m, 0);
}

int dst_switch(struct migration *m)
{
	struct json_object *in;

	m->step.phases = dst_waits;
	if (record_did(&m->rec, DID_MOVE) || m->step.phase == DST_DEAD_OVER ||
	    (record_did(&m->rec, SAW_VM_END) && record_did(&m->rec, TOLD_SOURCE_LOST)))
		return STEP_DONE;
	if (record_did(&m->rec, SAW_VM_END) && !m->step.started &&
	    m->step.phase != DST_DEAD_GOES_ON)
		return dst_judge_dead(m);
	if (m->step.timed_out && m->step.phase == DST_AWAIT && !m->rec.committed)
		return dst_ask_verdict(m);
	/* A try that failed is repeated on the source's order, or when the guest runs here. */
	if (m->step.started && !m->inflight && (record_did(&m->rec, DID_ORDER) || m->rec.committed))
		m->step.started = false;
	if (m->step.started)
		return STEP_WAIT;
	m->step.started = true;
	record_do(&m->rec, DID_PARK);
	in = migrate_input(m);
	if (record_did(&m->rec, TOLD_SOURCE_LOST))
		return orphan_take_over(m, in);
	json_set(in, "moves", record_moves(&m->rec, false));
	return migrate_job(m, in, switch_run, switched);
}

static int park(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"),
				 vf_guid_of(vf, "parked_guid"), error);
}

void dst_park_run(struct job *j)
{
	job_vfs_at_once(j, park);
}

static void vfs_parked(struct migration *m, struct job *j)
{
	if (migrate_job_failed(m, j))
		return;
	record_undo(&m->rec, DID_PARK);
	record_undo(&m->rec, DID_MOVE);
	migrate_answer_waiting(m, 0);
}

/* The move in the subnet is the source's to take back, once both VFs are right. */
static int park_vfs(struct migration *m)
{
	return migrate_job(m, migrate_input(m), dst_park_run, vfs_parked);
}

static const struct migrate_phase switch_undo[] = {
	{"park", park_vfs, NULL},
	{0},
};

int dst_switch_undo(struct migration *m)
{
	return record_did(&m->rec, DID_PARK) ? migrate_run_phases(m, switch_undo) : STEP_DONE;
}

/* ---- ATTACH ---- */

struct attach_work {
	char vm[37];
	bool native, pre_attached; /* QEMU has started with the VFs */
};

/* With strategy native QEMU has started with it. */
static int find_native(struct job *j, struct json_object *vf, char *error)
{
	const struct attach_work *w = j->work;
	bool has = false;
	int rc = qmp_has_device(j->d->virt, w->vm, vf_text_of(vf, "dev_id"), &has, error);

	if (rc || has)
		return rc;
	snprintf(error, HTTP_ERROR_MAX, "QEMU was not started with the VF");
	return -ENODEV;
}

/* A VF that QEMU has started with is there already; the guest has yet to look for it. */
static int find_or_plug(struct job *j, struct json_object *vf, char *error)
{
	const struct attach_work *w = j->work;
	bool has = false;
	int rc = qmp_has_device(j->d->virt, w->vm, vf_text_of(vf, "dev_id"), &has, error);

	if (rc || has)
		return rc;
	return vm_work_plug(j, vf, error);
}

static void attach_run(struct job *j)
{
	const struct attach_work *w = j->work;

	job_each_vf(j, w->native ? find_native : w->pre_attached ? find_or_plug : vm_work_plug);
}

static void attached(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	if (migrate_job_failed(m, j))
		return;
	json_set_u64(m->rec.data, "attach_us", now_us() - m->committed_us);
	record_do(&m->rec, DID_ATTACH);
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (!vf)
			continue;
		vf->migration[0] = '\0';
		str_set(&vf->attach, vf_text_of(job_vf(j, i), "attach"));
		vf_save(m->d->vfs, vf);
	}
	if (vm && vm_take_leases(vm)) {
		vm_attached(vm);
		vm->migration = m;
	}
	dst_tell_source(m);
}

static int await_guest(struct migration *m)
{
	return m->dst.guest_resumed && migrate_vm(m) ? STEP_DONE : STEP_WAIT;
}

static int plug(struct migration *m)
{
	struct attach_work w = {.native = m->rec.strategy == STRATEGY_NATIVE};
	int rc = migrate_check_leases(m);

	if (rc)
		return rc;
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	w.pre_attached = json_opt_bool(m->rec.data, DST_PRE_ATTACHED, false);
	return migrate_order(
		m, (struct job_order){JOB_WORK(w), .in = migrate_input(m), .run = attach_run},
		attached);
}

static const struct migrate_phase attach[] = {
	{"guest", await_guest, await_guest},
	{"plug", plug, NULL},
	{0},
};

int dst_attach(struct migration *m)
{
	if (record_did(&m->rec, DID_ATTACH) || record_did(&m->rec, SAW_VM_END))
		return STEP_DONE;
	return migrate_run_phases(m, attach);
}

/* ---- RESUME ---- */

enum { RESUME_ALL, RESUME_FINISH };

/* A device that is not ready yet can be a matter of moments; the peers wait meanwhile. */
static void agent_resumed(struct migration *m, int rc, struct json_object *answer,
			  const char *error)
{
	bool at_once = now_us() - m->step.asked_us < RESUME_AT_ONCE_US;

	if (rc == -EREMOTEIO && at_once && !m->pending_rc && m->step.asked_again++ < RESUME_TRIES) {
		log_info("VM %s: migration %s: resume is asked again: %s", m->rec.vm_name,
			 m->rec.id, error);
		m->step.ask_again = m->step.resting = true;
		migrate_poll(m, RESUME_AGAIN_MS);
		return;
	}
	mover_resumed(m, rc, answer, error);
}

static void ask_resume(struct migration *m, struct vm *vm)
{
	struct json_object *msg = mover_resume(m, true);

	if (json_opt_bool(m->rec.data, DST_PRE_ATTACHED, false))
		json_set_bool(msg, "rescan", true);
	m->step.asked_us = now_us();
	migrate_ask_agent(m, vm, msg, MIGRATE_RESUME_MS, agent_resumed);
}

/* Also the peers of a VM that has died are told, but they have nobody to meet. */
static int resume_again(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (m->step.ask_again && vm) {
		m->step.ask_again = false;
		ask_resume(m, vm);
	}
	if (m->pending)
		return STEP_WAIT;
	if (m->pending_rc && !record_did(&m->rec, SAW_VM_END))
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	record_do(&m->rec, DID_RESUME);
	migrate_measure(m, "resume_us");
	return STEP_DONE;
}

static int resume_all(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	bool suspended = record_did(&m->rec, DID_SUSPEND);

	if (record_did(&m->rec, DID_RESUME))
		return STEP_DONE;
	if (suspended && vm && vm->agent && !record_did(&m->rec, SAW_VM_END)) {
		m->pending++;
		ask_resume(m, vm);
	}
	if (suspended)
		peers_resume(m, true);
	return resume_again(m);
}

/* The VM has died on its way: what it had of this host is given back. */
static void dead_released(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	if (migrate_job_failed(m, j))
		return;
	migrate_free_leases(m);
	if (vm)
		vm_forget(vm);
	migrate_next(m);
}

/* vm_work_guard() reads the VM from the input. */
struct finish_work {
	char vm[37];
	uint64_t downtime_ms; /* the guest's, as QEMU tells it */
	bool known;
};

/* Without the guards its next migration may be too quick to be held, and virsh saves it with its
 * VF. */
static void finish_run(struct job *j)
{
	struct finish_work *w = j->work;
	char why[HTTP_ERROR_MAX];

	j->rc = vm_work_guard(j, j->error);
	w->known = !virt_downtime_ms(j->d->virt, w->vm, &w->downtime_ms, why);
}

static void finished(struct migration *m, struct job *j)
{
	const struct finish_work *w = j->work;

	if (!record_did(&m->rec, SAW_VM_END) && migrate_job_failed(m, j))
		return;
	if (w->known)
		json_set_u64(m->rec.data, "vm_downtime_ms", w->downtime_ms);
	if (record_did(&m->rec, SAW_VM_END))
		migrate_enter(m, RESUME_FINISH); /* the VM has died meanwhile */
	else
		migrate_next(m);
}

static int finish(struct migration *m)
{
	struct finish_work w = {0};
	struct json_object *in;

	if (record_did(&m->rec, SAW_VM_END) && migrate_has_leases(m))
		return migrate_job(m, migrate_input(m), vm_work_release, dead_released);
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	in = json_object_new_object();
	json_set_str(in, "vm", m->rec.vm_uuid);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .in = in, .run = finish_run},
			     finished);
}

static const struct migrate_phase resume[] = {
	[RESUME_ALL] = {"resume", resume_all, resume_again},
	[RESUME_FINISH] = {"finish", finish, NULL},
	{0},
};

int dst_resume(struct migration *m)
{
	if (!migrate_vm(m))
		record_do(&m->rec, SAW_VM_END);
	return migrate_run_phases(m, resume);
}
