/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Open migrations after a restart: what the journal has of them is read, libvirt is asked where
 * each VM is, and each goes on from there. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/migrate/step.h"
#include "daemon/migrate/silence.h"
#include "daemon/migrate/src.h"
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

/* Looks where the VM of a record is: the worker reads the first half, and writes the other. */
struct probe_work {
	char vm[37], id[37], url[256]; /* url: the destination's, if it is to be asked; or "" */
	bool source, rebooted;

	bool here;
	char status[24]; /* QEMU's job's, or "" */
	/* The destination's word: the VM has died with this host; it is not known there yet, and
	 * nothing has come so far. All false: the VM has come, or the destination is silent. */
	bool died, open, prepared;
};

/* The VM is not here: it has died here (this host was off, perhaps), or has left. A destination
 * that has just been restarted itself may not know yet. */
static void ask_destination(struct probe_work *w)
{
	struct remote_record dst;
	char why[HTTP_ERROR_MAX];
	int rc = remote_ask(w->url, w->id, ROLE_DESTINATION, ASK_MS, &dst, why);
	bool over = rc || dst.ended || dst.back;

	if ((rc && rc != -EREMOTEIO) || dst.committed)
		return;
	w->died = over;
	w->open = !over;
	w->prepared = remote_is(&dst, M_PREPARE);
}

/* A QEMU that waits for a migration does not tell; the source's job must be known. */
static void probe_job(struct job *j, struct probe_work *w)
{
	struct qmp_migration q;
	char why[HTTP_ERROR_MAX];
	int rc = qmp_query_migrate(j->d->virt, w->vm, &q, why);

	if (!rc)
		memcpy(w->status, q.status, sizeof w->status);
	else if (w->source)
		job_fail(j, rc, "%s", why);
}

static void probe_run(struct job *j)
{
	struct probe_work *w = j->work;

	j->rc = virt_is_running(j->d->virt, w->vm, &w->here, j->error);
	w->here = w->here && !w->rebooted;
	if (w->here)
		probe_job(j, w);
	if (!j->rc && !w->here && *w->url)
		ask_destination(w);
}

/* An answer that is not known yet is asked for again, for a while. */
static bool asks_again(struct migration *m, const struct probe_work *w)
{
	unsigned most = w->prepared ? PROBES_PREPARED : PROBES_MAX;

	return w->open && ++m->recovery.probes < most;
}

static bool has_died(const struct probe_work *w)
{
	return w->died || (w->open && w->prepared);
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
	const struct probe_work *w = j->work;

	m->inflight--;
	m->recovery.probing = false;
	if (!j->rc && w->here && vm_is_unseen(m->d, m->rec.vm_uuid))
		job_fail(j, -EAGAIN, "libvirt does not tell yet what the VM has");
	m->recovery.unprobed = j->rc || asks_again(m, w);
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
	if (m->rec.role == ROLE_SOURCE && !m->rec.committed && has_died(w))
		migrate_vm_died(m);
	if (m->rec.role == ROLE_SOURCE)
		src_recover(m, w->here, w->status);
	else
		dst_recover(m, w->here, w->status);
}

void recover_probe(struct migration *m)
{
	struct probe_work w = {.source = m->rec.role == ROLE_SOURCE};

	if (m->recovery.probing)
		return;
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	memcpy(w.id, m->rec.id, sizeof w.id);
	w.rebooted = w.source && m->recovery.rebooted;
	if (w.source && !m->rec.committed && !m->rec.back && !m->rec.file)
		memcpy(w.url, m->rec.to.url, sizeof w.url);
	m->recovery.probing = !job_order(m->d, &(struct job_order){JOB_WORK(w), .run = probe_run,
								   .done = probe_done, .owner = m});
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
