/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/silence.h"
#include "daemon/migrate/src.h"
#include "common/boot.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/libvirt/domain_saved.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

#define PATH_BYTES_MAX 1023
#define LOOK_AGAIN_MS  1000
#define ASK_MS         1000 /* how far a host is that restores the VM */
#define LET_GO_MS      5000 /* until peers that could not be told are told again */
#define PEERS_POLL_MAX 60000

enum { SAVED_SAVE, SAVED_LOOK, SAVED_KEEP, SAVED_LET_GO };

/* ---- saving ---- */

/* A save, or a look at one: the worker reads the first half, and writes the other. */
struct save_work {
	char vm[37], id[37], file[PATH_BYTES_MAX + 1];

	bool looked; /* libvirt has told whether the VM runs here */
	bool here;
	bool image;      /* the file is whole */
	char status[24]; /* QEMU's job's, or "" */
};

/* Looks whether the VM runs here, and whether the file is whole: each may be so without the other.
 */
static void look_run(struct job *j)
{
	struct save_work *w = j->work;
	struct domain_saved mark = {0};
	struct qmp_migration q;
	char *xml AUTO_FREE = NULL, why[HTTP_ERROR_MAX];

	w->looked = !virt_is_running(j->d->virt, w->vm, &w->here, why);
	if (w->here && !qmp_query_migrate(j->d->virt, w->vm, &q, why))
		memcpy(w->status, q.status, sizeof w->status);
	if (w->looked && !virt_image_xml(j->d->virt, w->file, &xml, why))
		w->image = domain_saved_parse(xml, &mark) && !strcmp(mark.id, w->id);
}

/* A VF that this host keeps for the VM, which another one may have been given the address of since:
 * by an operator who took this host for lost. */
static int show_again(struct job *j, struct json_object *vf, char *error)
{
	struct location l;
	const struct settings *s = j->d->settings;
	int rc = locate_guid(s, vf_guid_of(vf, "vguid"), &l, error);
	bool is_ours = rc ? rc == -ENOENT && !s->sm_url : !strcmp(l.host, s->host_name);

	if (is_ours)
		return vm_work_show(j, vf, error);
	return rc == -ENOENT ? 0 : rc;
}

/* The host was off: its VFs show nothing of what they showed. */
static void look_rebooted_run(struct job *j)
{
	if (!job_each_vf(j, show_again))
		look_run(j);
}

static void save_run(struct job *j)
{
	const struct save_work *w = j->work;
	struct domain_saved mark = {0};

	memcpy(mark.id, w->id, sizeof w->id);
	snprintf(mark.host, sizeof mark.host, "%s", j->d->settings->host_name);
	snprintf(mark.url, sizeof mark.url, "%s", j->d->settings->url);
	j->rc = qmp_refuse_save(j->d->virt, w->vm, false, j->error);
	if (!j->rc)
		j->rc = virt_save(j->d->virt, w->vm, w->file, &mark, j->error);
	look_run(j);
}

static int save_job(struct migration *m, void (*run)(struct job *j),
		    void (*done)(struct migration *m, struct job *j))
{
	struct save_work w = {0};

	record_do(&m->rec, DID_RAISE); /* without guards, like a QEMU that a restore starts */
	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	memcpy(w.id, m->rec.id, sizeof w.id);
	snprintf(w.file, sizeof w.file, "%s", m->rec.file);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .in = migrate_input(m), .run = run},
			     done);
}

/* Into its record, with what an operator can do. */
static void note_kept(struct migration *m, const char *what)
{
	char note[PATH_BYTES_MAX + 256];

	snprintf(note, sizeof note,
		 "%.120s: ibvmig restore %s brings it back, ibvmig resolve %s gives it up", what,
		 m->rec.file, m->rec.id);
	migrate_save(m, note);
}

static void kept(struct migration *m)
{
	struct http_exchange *x = TAKE(m->waiting);
	struct vm *vm = migrate_vm(m);

	record_do(&m->rec, DID_SAVE);
	migrate_enter(m, SAVED_KEEP);
	if (vm)
		vm_forget(vm);
	migrate_measure(m, "save_us");
	note_kept(m, "saved");
	log_notice("VM %s: saved to %s; its %u VFs and their addresses are kept", m->rec.vm_name,
		   m->rec.file, m->rec.vf_count);
	if (x)
		durable_reply(m->d->durable, x, 200, migrate_record(m));
}

/* The VFs that another boot has taken away are there again. */
static void belongs_to_boot(struct migration *m)
{
	m->recovery.rebooted = false;
	boot_id(m->rec.boot);
}

/* error: of the save, or what a restart has found. */
static void judge(struct migration *m, struct job *j, const char *error)
{
	bool came = record_did(&m->rec, DID_SAVE) && migrate_vm(m); /* while we looked */
	const struct save_work *w = j->work;
	bool here = came || w->here;

	if (!w->looked) {
		migrate_enter(m, SAVED_LOOK);
		m->step.resting = true;
		migrate_poll(m, LOOK_AGAIN_MS);
	} else if (!here && (record_did(&m->rec, DID_SAVE) || w->image)) {
		belongs_to_boot(m);
		kept(m);
	} else if (here && record_did(&m->rec, DID_SAVE)) {
		belongs_to_boot(m);
		migrate_enter(m, SAVED_KEEP);
		if (migrate_vm(m))
			cold_vm_started(migrate_vm(m));
	} else {
		/* A libvirtd that has lost its client may still be writing. */
		if (!strcmp(w->status, "active") || !strcmp(w->status, "device"))
			m->src.job = JOB_ACTIVE;
		if (!here || m->recovery.rebooted)
			migrate_vm_died(m);
		migrate_fail(m, -EIO, "%s", error);
	}
}

static void shown_again(struct migration *m, struct job *j)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (vf && json_opt_bool(job_vf(j, i), "shown", false))
			vm_work_keep(m->d->vfs, vf, job_vf(j, i));
	}
	m->rec.trouble[0] = '\0';
}

static void save_done(struct migration *m, struct job *j)
{
	judge(m, j, j->rc ? j->error : "the VM has ended while it was saved");
}

static void look_done(struct migration *m, struct job *j)
{
	if (j->rc)
		snprintf(m->rec.trouble, sizeof m->rec.trouble, "%s", j->error);
	else if (m->recovery.rebooted)
		shown_again(m, j);
	judge(m, j, "the save was cut short: ibvmigd or libvirtd was restarted");
}

/* ---- while it is a file ---- */

/* The silence of before is no reason for what comes. */
static void heard(struct migration *m)
{
	src_note_heard(m);
	m->rec.trouble[0] = m->rec.reason[0] = '\0';
}

static void asked(struct migration *m, struct job *j)
{
	const struct remote_record *dst = &((struct outcome *)j->work)->dst;

	if (!j->rc || j->rc == -EREMOTEIO)
		heard(m);
	else
		src_note_silence(m, j);
	/* A destination without the record was killed before it was durable, and libvirt's hook
	 * failed. */
	if (dst->committed)
		migrate_set_committed(m);
	else if (j->rc == -EREMOTEIO || remote_is(dst, M_ABORTED))
		cold_not_restored(m);
	m->step.resting = !m->rec.committed;
	migrate_poll(m, ASK_MS);
}

void cold_not_restored(struct migration *m)
{
	char what[100];

	if (!*m->rec.to.url || m->rec.committed)
		return;
	snprintf(what, sizeof what, "host %s has not restored it", m->rec.to.host);
	m->rec.to = (struct migrate_host){0};
	heard(m);
	note_kept(m, what);
	migrate_drive(m);
}

static uint64_t peers_wait_ms(const struct migration *m)
{
	uint64_t now = now_us(),
		 until = m->step.entered_us + (uint64_t)m->d->settings->saved_peers_s * 1000000;

	return until > now ? (until - now) / 1000 + 1 : 0;
}

static int peers_let_go(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	migrate_enter(m, SAVED_KEEP);
	if (m->pending_rc) {
		log_warn("VM %s: a peer could not be told: %s", m->rec.vm_name, m->pending_error);
		m->pending_rc = 0;
		m->step.resting = true;
		migrate_poll(m, LET_GO_MS);
		return STEP_WAIT;
	}
	record_do(&m->rec, DID_LET_GO);
	m->rec.peer_count = 0;
	note_kept(m, "its peers do not wait any more");
	return STEP_WAIT;
}

/* Nobody answers for the VM here, so their QPs end as with any peer that has died. */
static int let_peers_go(struct migration *m)
{
	log_notice("VM %s: saved for longer than saved-peers-s = %u: its %u peers do not wait for "
		   "it any more",
		   m->rec.vm_name, m->d->settings->saved_peers_s, m->rec.peer_count);
	peers_resume(m, false);
	return peers_let_go(m);
}

static int keep(struct migration *m)
{
	uint64_t wait_ms = peers_wait_ms(m);
	bool waits = record_did(&m->rec, DID_SUSPEND) && !record_did(&m->rec, DID_LET_GO) &&
		     !*m->rec.to.url;

	if (waits && !wait_ms)
		return migrate_enter(m, SAVED_LET_GO);
	if (*m->rec.to.url)
		return src_ask_destination(m, asked);
	if (waits)
		migrate_poll(m, (unsigned)(wait_ms < PEERS_POLL_MAX ? wait_ms : PEERS_POLL_MAX));
	return STEP_WAIT;
}

static int save(struct migration *m)
{
	return save_job(m, save_run, save_done);
}

static int look(struct migration *m)
{
	return save_job(m, m->recovery.rebooted ? look_rebooted_run : look_run, look_done);
}

static const struct migrate_phase saved[] = {
	[SAVED_SAVE] = {"save", save, NULL},
	[SAVED_LOOK] = {"look", look, NULL},
	[SAVED_KEEP] = {"keep", keep, keep},
	[SAVED_LET_GO] = {"let-go", let_peers_go, peers_let_go},
	{0},
};

int src_saved(struct migration *m)
{
	if (m->inflight)
		return STEP_WAIT;
	return m->rec.committed ? STEP_DONE : migrate_run_phases(m, saved);
}

/* ---- what others tell ---- */

void cold_recover(struct migration *m)
{
	src_note_heard(m);
	migrate_enter(m, SAVED_LOOK);
	migrate_drive(m);
}

/* Why a saved VM cannot be restored at to, or NULL. */
static const char *cannot_restore(const struct migration *m, const struct migrate_host *to)
{
	if (m->rec.ended)
		return "it has been restored already, and that file is old";
	if (m->rec.state != M_SAVED || m->rec.back || m->rec.committed ||
	    !record_did(&m->rec, DID_SAVE))
		return "it is not saved, or has just been restored: see ibvmig list";
	if (*m->rec.to.url && strcmp(m->rec.to.url, to->url))
		return "another host restores it";
	return NULL;
}

void cold_answer_prepare(struct http_request *req, struct migration *m, struct record *asked)
{
	struct daemon *d = req->user;
	const char *why = cannot_restore(m, &asked->to);

	if (why) {
		http_fail(req->exchange, 409, "cannot-restore", "host %s: %s",
			  d->settings->host_name, why);
		return;
	}
	src_set_destination(m, asked);
	src_note_heard(m);
	if (migrate_save(m, "a host restores it"))
		http_fail(req->exchange, 409, "journal",
			  "host %s cannot write its journal; is the disk full?",
			  d->settings->host_name);
	else
		durable_reply(d->durable, req->exchange, 200, src_prepare_answer(m));
	m->step.resting = true;
	migrate_poll(m, ASK_MS);
}

bool cold_give_up(struct migration *m)
{
	if (m->rec.state != M_SAVED || m->rec.back || m->rec.committed ||
	    !record_did(&m->rec, DID_SAVE) || *m->rec.to.url)
		return false;
	record_do(&m->rec, SAW_VM_END);
	migrate_fail(m, -ECANCELED, "the operator has given the saved VM's address up");
	return true;
}

bool cold_keeps(const struct daemon *d, uint64_t vguid)
{
	for (struct migration *m = d->migrations; m; m = m->next)
		if (m->rec.state == M_SAVED && record_vf(&m->rec, vguid))
			return true;
	return false;
}

static void released(struct job *j)
{
	const char *vm = json_opt_str(j->in, "vm", "");
	const char *name = vf_text_of(job_vf(j, 0), "vf");
	struct vf *vf = vf_by_name(j->d->vfs, name);

	if (j->rc)
		log_warn("VF %s of the saved VM %s was not given back cleanly: %s", name,
			 json_opt_str(j->in, "name", ""), j->error);
	if (vf && vf->leased && !strcmp(vf->vm, vm) && !vm_find(j->d, vf->vm))
		vf_free_lease(j->d->vfs, vf);
}

void cold_release(struct migration *m)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++) {
		struct vf *vf = migrate_lease(m, &m->rec.vfs[i]);

		if (vf)
			job_start(m->d, vm_work_lease_input(vf), vm_work_release, released, NULL,
				  0);
	}
}

/* ---- the request ---- */

static unsigned saves(const struct daemon *d)
{
	unsigned n = 0;

	for (const struct migration *m = d->migrations; m; m = m->next)
		n += m->rec.file && m->rec.role == ROLE_SOURCE && !m->rec.ended &&
		     !record_did(&m->rec, DID_SAVE);
	return n;
}

/* false: why says what keeps it from being saved. */
static bool can_save(struct vm *vm, const char *file, char why[static HTTP_ERROR_MAX])
{
	const char *reason = vm ? src_cannot_migrate(vm, NULL)
				: "no such VM with <ibvmig:vf> metadata runs on this host";

	if (vm && (!file || *file != '/' || strlen(file) > PATH_BYTES_MAX))
		snprintf(why, HTTP_ERROR_MAX,
			 "file is \"%.200s\"; it must be an absolute path of at most %d bytes",
			 file ? file : "", PATH_BYTES_MAX);
	else if (vm && saves(vm->d) >= COLD_JOBS_MAX)
		snprintf(why, HTTP_ERROR_MAX,
			 "%d other VMs are being saved: try again when one is through",
			 COLD_JOBS_MAX);
	else
		snprintf(why, HTTP_ERROR_MAX, "%s", reason ? reason : "");
	return !*why;
}

/* The same was asked for, and it is under way, or done and not restored. */
static struct migration *same_save(struct daemon *d, const char *name, const char *file)
{
	for (struct migration *m = d->migrations; m; m = m->next)
		if (m->rec.role == ROLE_SOURCE && !m->rec.ended && !m->rec.back &&
		    str_eq(m->rec.file, file) &&
		    (!strcmp(m->rec.vm_name, name) || !strcmp(m->rec.vm_uuid, name)))
			return m;
	return NULL;
}

void cold_post_save(struct http_request *req)
{
	struct daemon *d = req->user;
	struct vm *vm = vm_by_name(d, req->param);
	static const char *const texts[] = {"file", NULL};
	const char *file = json_opt_str(req->body, "file", NULL);
	struct migration *m = same_save(d, req->param, file);
	char why[HTTP_ERROR_MAX] = "";

	if (!http_texts_fit(req, texts))
		return;
	if (m) {
		http_reply(req->exchange, record_did(&m->rec, DID_SAVE) ? 200 : 202,
			   migrate_record(m));
		return;
	}
	if (!can_save(vm, file, why)) {
		http_fail(req->exchange, vm ? 409 : 404, "cannot-save", "VM %s: %s", req->param,
			  why);
		return;
	}
	m = migrate_new(d, ROLE_SOURCE, NULL, vm->uuid, vm->name);
	if (!m) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return;
	}
	src_fill_record(m, vm, NULL);
	m->rec.asked = m->rec.strategy = STRATEGY_COLD;
	str_set(&m->rec.file, file);
	m->waiting = req->exchange;
	if (migrate_save(m, "a save is asked for"))
		migrate_fail(m, -EIO, "the journal cannot be written; is the disk full?");
	else
		migrate_drive(m);
}
