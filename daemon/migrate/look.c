/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events of libvirt and QEMU can be lost, with a connection or with a libvirtd that is restarted. A
 * migration that has stayed in a state for a while looks, and goes on as with the event. */
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job_vfs.h"
#include "daemon/migrate/speed.h"
#include "daemon/migrate/step.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/discover.h"

#include <errno.h>
#include <string.h>

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

/* Only a guest that runs gives its VF up, and keeps pre-copy from ending before. */
static bool needs_guest(const struct migration *m)
{
	return m->rec.strategy == STRATEGY_LATE && !m->rec.back && m->rec.state >= M_HOLD &&
	       m->rec.state <= M_DETACH && record_devices_gone(&m->rec) < m->rec.vf_count;
}

void migrate_look_paused(struct migration *m)
{
	if (needs_guest(m))
		migrate_look(m);
}

static void tell_status(struct migration *m, const char *status)
{
	struct json_object *details AUTO_JSON = json_object_new_object();
	bool active = !strcmp(status, "active");

	/* A job that has ended before this one began is an older one's. */
	if (m->src.job != (active ? JOB_NONE : JOB_ACTIVE))
		return;
	json_set_str(details, "status", strcmp(status, "none") ? status : "cancelled");
	migrate_monitor_event(m->d, m->rec.vm_uuid, "MIGRATION", details);
}

static void tell_devices(struct migration *m, struct job *j)
{
	for (size_t i = 0; i < job_vf_count(j); i++)
		if (json_opt_bool(job_vf(j, i), "left", false))
			migrate_device_deleted(m->d, m->rec.vm_uuid,
					       vf_text_of(job_vf(j, i), "dev_id"));
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
			migrate_vm_changed(m->d, m->rec.vm_uuid, VIRT_STOPPED);
		break;
	case VIRT_RUNS:
		if (!migrate_vm(m))
			vm_discover(m->d, m->rec.vm_uuid, m->rec.vm_name, true);
		migrate_vm_changed(m->d, m->rec.vm_uuid, VIRT_RESUMED_INCOMING);
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
	struct look_work *w = NULL;

	if (!is_wanted(m)) {
		migrate_look_later(m);
		return;
	}
	w = calloc(1, sizeof *w);
	if (w) {
		memcpy(w->vm, m->rec.vm_uuid, sizeof w->vm);
		w->source = m->rec.role == ROLE_SOURCE;
		w->begins = w->source && src_awaits_begin(m);
		w->aborts = migrate_awaits_job(m);
		w->unplugs = record_did(&m->rec, DID_UNPLUG) && m->rec.state == M_DETACH &&
			     !m->rec.back;
		m->looking = !job_order(m->d, &(struct job_order){.work = w,
								  .in = migrate_input(m),
								  .run = look_run,
								  .done = looked,
								  .owner = m,
								  .serial = m->serial});
	}
	if (!m->looking)
		migrate_look_later(m);
}
