/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Open migrations after a restart: what the journal has of them is read, libvirt is asked where
 * each VM is, and each goes on from there. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/migrate/recover.h"
#include "daemon/migrate/remote.h"
#include "daemon/migrate/src_saved.h"
#include "daemon/migrate/step.h"
#include "daemon/store/journal.h"
#include "daemon/vm/discover.h"

#include <errno.h>
#include <string.h>

#define RECOVER_MAX     VF_VFS_MAX /* an open record has a VF of this host, or had one */
#define PROBE_AGAIN_MS  2000
#define PROBES_MAX      30
#define PROBES_PREPARED 5
#define ASK_MS          4000

/* The journal was written before the step ran: whatever the step does may have been done. */
static void assume_started(struct migration *m)
{
	if (m->rec.role == ROLE_DESTINATION) {
		if (m->rec.reached >= M_SWITCH)
			record_do(&m->rec, DID_PARK);
		return;
	}
	if (m->rec.reached >= M_HOLD)
		record_do(&m->rec, DID_RAISE);
	if (m->rec.strategy != STRATEGY_NATIVE) {
		if (m->rec.reached >= M_QUIESCE)
			record_do(&m->rec, DID_SUSPEND);
		if (m->rec.reached >= M_DETACH)
			record_do(&m->rec, DID_UNPLUG);
	}
	if (m->rec.reached >= M_SWITCH)
		record_do(&m->rec, DID_PARK);
}

void recover_load(struct daemon *d)
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
		m->recovery.unprobed = true;
		if (migrate_reload(m, o))
			m->rec.ended = true; /* written by another version: left to the operator */
		else if (!m->rec.back)
			assume_started(m);
	}
}

/* Asks the destination about a VM that is not here: it has died here (this host was off, perhaps),
 * or has left. A destination that has just been restarted itself may not know yet. → open: it does
 * not; prepared: nor has anything come so far; died. Without a field the VM has come, or the
 * destination is silent. */
static void ask_destination(struct job *j)
{
	struct remote_record dst;
	char why[HTTP_ERROR_MAX];
	int rc = remote_ask(json_opt_str(j->in, "url", ""), json_opt_str(j->in, "migration", ""),
			    ROLE_DESTINATION, ASK_MS, &dst, why);
	bool over = rc || dst.ended || dst.back;

	if ((rc && rc != -EREMOTEIO) || dst.committed)
		return;
	json_set_bool(j->out, "died", over);
	json_set_bool(j->out, "open", !over);
	json_set_bool(j->out, "prepared", remote_is(&dst, M_PREPARE));
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

/* An answer that is not known yet is asked for again, for a while. */
static bool asks_again(struct migration *m, struct job *j)
{
	unsigned most = json_opt_bool(j->out, "prepared", false) ? PROBES_PREPARED : PROBES_MAX;

	return json_opt_bool(j->out, "open", false) && ++m->recovery.probes < most;
}

static bool has_died(struct job *j)
{
	return json_opt_bool(j->out, "died", false) ||
	       (json_opt_bool(j->out, "open", false) && json_opt_bool(j->out, "prepared", false));
}

static void src_recover(struct migration *m, bool here, const char *status)
{
	if (m->rec.state == M_SAVED && !m->rec.back && !m->rec.committed) {
		cold_recover(m);
		return;
	}
	if (m->rec.committed || !here) {
		/* The VM has left, or is gone: the destination knows. Without one, walk back. */
		if (!m->rec.committed &&
		    (m->rec.back || record_did(&m->rec, SAW_VM_END) || !*m->rec.to.url))
			migrate_vm_died(m);
		else
			migrate_set_committed(m);
	}
	if (!strcmp(status, "active") || !strcmp(status, "pre-switchover") ||
	    !strcmp(status, "device"))
		m->src.job = JOB_ACTIVE;
	else if (m->src.job == JOB_NONE)
		m->src.job = JOB_FAILED;
	if (migrate_awaits_job(m) && m->src.job == JOB_FAILED)
		migrate_unpark(m, "QEMU's migration has ended");
	if (m->rec.state == M_PARKED)
		return;
	if (m->rec.committed || m->rec.back || m->rec.state == M_CANCEL)
		migrate_drive(m);
	else
		migrate_fail(m, -EINTR, "ibvmigd was restarted at the source");
}

static void dst_recover(struct migration *m, bool here, const char *status)
{
	struct vm *vm = migrate_vm(m);

	/* A running guest is the proof of COMMIT; "active" is QEMU waiting for one. */
	if (m->rec.committed ||
	    (here && vm && vm->state != VM_INCOMING && strcmp(status, "active"))) {
		bool news = !m->rec.committed;

		m->rec.committed = m->dst.guest_resumed = true;
		m->committed_us = now_us();
		if (news && m->rec.state != M_PARKED) {
			migrate_save(m, "COMMIT");
			dst_tell_source(m);
		}
	}
	if (m->rec.committed && !here)
		migrate_vm_died(m);
	if (m->rec.state == M_PARKED)
		return;
	/* libvirt may only be about to start it: its hook has had our answer. */
	bool comes = here || (m->rec.strategy == STRATEGY_COLD && record_did(&m->rec, DID_ARM));
	if (m->rec.committed || m->rec.back || comes)
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
	m->recovery.probing = false;
	if (!j->rc && here && vm_is_unseen(m->d, m->rec.vm_uuid))
		job_fail(j, -EAGAIN, "libvirt does not tell yet what the VM has");
	m->recovery.unprobed = j->rc || asks_again(m, j);
	if (m->recovery.unprobed && !j->rc) {
		migrate_poll(m, PROBE_AGAIN_MS);
		return;
	}
	if (j->rc) {
		if (!m->step.silence_told)
			log_warn("VM %s: migration %s waits in %s: %s (said once)", m->rec.vm_name,
				 m->rec.id, migrate_state_name(m->rec.state), j->error);
		m->step.silence_told = true;
		migrate_poll(m, PROBE_AGAIN_MS);
		return;
	}
	m->step.silence_told = false;
	log_notice("VM %s: migration %s taken up again in %s", m->rec.vm_name, m->rec.id,
		   migrate_state_name(m->rec.state));
	if (m->rec.role == ROLE_SOURCE && !m->rec.committed && has_died(j))
		migrate_vm_died(m);
	if (m->rec.role == ROLE_SOURCE)
		src_recover(m, here, status);
	else
		dst_recover(m, here, status);
}

void recover_probe(struct migration *m)
{
	struct json_object *in;

	if (m->recovery.probing)
		return;
	in = json_object_new_object();
	json_set_str(in, "vm", m->rec.vm_uuid);
	json_set_str(in, "migration", m->rec.id);
	json_set_bool(in, "rebooted", m->rec.role == ROLE_SOURCE && m->recovery.rebooted);
	json_set_bool(in, "source", m->rec.role == ROLE_SOURCE);
	if (m->rec.role == ROLE_SOURCE && !m->rec.committed && !m->rec.back && !m->rec.file)
		json_set_str(in, "url", m->rec.to.url);
	m->recovery.probing = !job_start(m->d, in, probe_run, probe_done, m, 0);
	m->inflight += m->recovery.probing;
	if (!m->recovery.probing)
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
		if (!m->rec.ended && m->recovery.unprobed)
			recover_probe(m);
}
