/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of the host that the VM leaves, on the way forward. PREPARE and HOLD have files of
 * their own, and the way back has. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/src.h"
#include "daemon/migrate/silence.h"
#include "daemon/migrate/peer_watch.h"
#include "daemon/vf/provider.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/vm/work.h"

#include <errno.h>
#include <string.h>

#define ASK_DEADLINE_MS    7000
#define SUSPEND_MS         14000
#define SWITCH_DEADLINE_MS 35000
#define RESERVE_S          45
#define RESERVE_AGAIN_MS   250
#define OUTCOME_POLL_MS    1000
#define BEGIN_S            40 /* libvirt starts the destination's QEMU, the VF being away */
#define BEGIN_POLL_MS      2000
#define BEGIN_SILENT_S     20 /* for a destination that cannot be asked whether it still waits */

/* ---- QUIESCE ---- */

enum { QUIESCE_QUERY, QUIESCE_LOCATE, QUIESCE_RESERVE, QUIESCE_RELEASE, QUIESCE_SUSPEND };

static void suspended(struct migration *m, int rc, struct json_object *answer, const char *error)
{
	m->pending--;
	if (!rc)
		json_set(m->rec.data, "suspend", json_object_get(answer));
	else if (!m->pending_rc) {
		m->pending_rc = rc;
		snprintf(m->pending_error, sizeof m->pending_error, "%s", error);
	}
}

static int suspend_all(struct migration *m)
{
	struct json_object *msg = src_op_message("suspend");

	record_do(&m->rec, DID_SUSPEND);
	m->src.suspended_us = now_us();
	migrate_measure(m, "suspend_asked_us");
	json_set_str(msg, "migration", m->rec.id);
	json_set_str(msg, "role", "mover");
	json_set(msg, "vguids", record_guids(&m->rec));
	json_set_u64(msg, "deadline_ms", SUSPEND_MS - 1000);
	m->pending++;
	migrate_ask_agent(m, migrate_vm(m), msg, SUSPEND_MS, suspended);
	peers_suspend(m);
	return STEP_WAIT;
}

static int all_suspended(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	if (m->pending_rc)
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	migrate_measure(m, "quiesce_us");
	return STEP_DONE;
}

static void located(struct migration *m, struct job *j)
{
	migrate_deadline_again(m);
	if (migrate_job_failed(m, j))
		return;
	src_take_peers(m, j);
	migrate_next(m);
}

/* Since PREPARE, the guest may have made new connections, in new partitions. */
static void queried_again(struct migration *m, int rc, struct json_object *answer,
			  const char *error)
{
	migrate_deadline_again(m);
	if (rc)
		migrate_error(m, rc, "%s", error);
	else if (!(rc = choice_still_fits(m, answer)))
		rc = src_read_query(m, answer);
	if (rc)
		migrate_fail(m, rc, "%s", m->rec.reason);
	else
		migrate_next(m);
}

static int query_again(struct migration *m)
{
	src_query(m, migrate_vm(m), queried_again);
	return STEP_WAIT;
}

static int locate_new_peers(struct migration *m)
{
	bool known = !m->src.new_pkeys;

	for (unsigned i = 0; i < m->rec.peer_count; i++)
		known = known && *m->rec.peers[i].url;
	if (known)
		return STEP_DONE;
	return src_check(m, false, located);
}

static int reserved(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	migrate_deadline_again(m);
	if (!m->step.busy) {
		*m->rec.trouble = '\0';
		return migrate_enter(m, QUIESCE_SUSPEND);
	}
	if (now_us() - m->step.asked_us > RESERVE_S * 1000000ull)
		return migrate_error(m, -EBUSY, "waited for %d s: %.400s", RESERVE_S,
				     m->rec.trouble);
	return STEP_DONE;
}

/* A VM is suspended for one migration at a time, as the mover or as a peer. Before ours stands
 * still for it, all that it takes are kept for us. Where another migration has one, we let go of
 * the others, so that two never wait for each other, and try again while the VM runs. */
static int reserve(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	const char *holder = peer_watch_holder(m->d, vm, m->rec.id);

	if (!m->step.asked_us)
		m->step.asked_us = now_us();
	migrate_deadline_again(m);
	record_do(&m->rec, DID_SUSPEND); /* the undo gives back what is kept */
	peers_reserve(m);
	if (holder) {
		m->step.busy = true;
		snprintf(m->rec.trouble, sizeof m->rec.trouble,
			 "the VM is suspended as a peer of migration %s", holder);
	}
	return reserved(m);
}

/* The pause is not the same for all, so that they do not meet again. */
static int reserve_later(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	record_undo(&m->rec, DID_SUSPEND);
	m->step.resting = true;
	migrate_poll(m, RESERVE_AGAIN_MS + (unsigned)(now_us() % RESERVE_AGAIN_MS));
	migrate_enter(m, QUIESCE_RESERVE);
	return STEP_WAIT;
}

static int release_peers(struct migration *m)
{
	peers_release(m);
	return reserve_later(m);
}

static const struct migrate_phase quiesce[] = {
	[QUIESCE_QUERY] = {"query", query_again, NULL},
	[QUIESCE_LOCATE] = {"locate", locate_new_peers, NULL},
	[QUIESCE_RESERVE] = {"reserve", reserve, reserved},
	[QUIESCE_RELEASE] = {"release", release_peers, reserve_later},
	[QUIESCE_SUSPEND] = {"suspend", suspend_all, all_suspended},
	{0},
};

int src_quiesce(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	/* The QPs move with the device. */
	if (m->rec.strategy == STRATEGY_NATIVE)
		return STEP_DONE;
	if (!src_agent_wanted(m, vm))
		return src_agent_needed(m) ? migrate_error(m, -ENOENT, "no agent") : STEP_DONE;
	return migrate_run_phases(m, quiesce);
}

/* ---- DETACH ---- */

enum { DETACH_UNPLUG, DETACH_CLEAN, DETACH_BEGIN, DETACH_OVER };

/* -ENODEV: it went, and the event was lost. */
static int unplug(struct job *j, struct json_object *vf, char *error)
{
	int rc;

	if (json_opt_bool(vf, "gone", false))
		return 0;
	rc = qmp_device_del(j->d->virt, json_opt_str(j->in, "vm", ""), vf_text_of(vf, "dev_id"),
			    error);
	json_set_bool(vf, "gone", rc == -ENODEV);
	return rc == -ENODEV ? 0 : rc;
}

static void unplug_run(struct job *j)
{
	job_each_vf(j, unplug);
}

static void unplugged(struct migration *m, struct job *j)
{
	for (unsigned i = 0; i < m->rec.vf_count; i++)
		m->rec.vfs[i].device_gone |= json_opt_bool(job_vf(j, i), "gone", false);
	migrate_job_failed(m, j);
}

static struct json_object *unplug_input(const struct migration *m)
{
	struct json_object *in = migrate_input(m), *vfs = json_opt(in, "vfs");

	for (unsigned i = 0; i < m->rec.vf_count; i++)
		json_set_bool(json_object_array_get_idx(vfs, i), "gone", m->rec.vfs[i].device_gone);
	return in;
}

static void clean_run(struct job *j)
{
	job_each_vf(j, vm_work_clean);
}

static void name_kept(const struct migration *m, char *text, size_t bytes)
{
	size_t n = 0;

	for (unsigned i = 0; i < m->rec.vf_count && n < bytes; i++)
		if (!m->rec.vfs[i].device_gone)
			n += (size_t)snprintf(text + n, bytes - n, "%s%s",
					      n ? ", " : ": the guest keeps VF ",
					      m->rec.vfs[i].from.vf);
	if (n && n < bytes)
		snprintf(text + n, bytes - n,
			 ": end what uses it there (ibvmig status %s --qps shows it)",
			 m->rec.vm_name);
}

void src_name_missing(const struct migration *m, char *text, size_t bytes)
{
	*text = '\0';
	if (m->rec.role != ROLE_SOURCE || m->rec.back)
		return;
	if (m->rec.state == M_DETACH && record_did(&m->rec, DID_UNPLUG))
		name_kept(m, text, bytes);
	if (m->rec.state == M_CANCEL)
		snprintf(text, bytes,
			 ": QEMU's migration goes on, and the record waits for its end: virsh "
			 "domjobabort %s",
			 m->rec.vm_name);
}

/* ---- QEMU has not begun ---- */

static void ask_later(struct migration *m)
{
	m->step.resting = true;
	migrate_poll(m, BEGIN_POLL_MS);
}

/* After a restart a VM that is not here counts as one that has left. The destination has given it
 * up, so it has ended with this host. */
static void died_here(struct migration *m)
{
	m->rec.committed = false;
	m->src.job = JOB_FAILED;
	migrate_vm_died(m);
	migrate_fail(m, -ECANCELED, "the VM has ended here, and has not arrived on host %s",
		     m->rec.to.host);
}

/* A destination that was restarted meanwhile walks back, or has lost its record. */
static void begin_asked(struct migration *m, struct job *j)
{
	const struct remote_record *dst = &((struct outcome *)j->work)->dst;
	bool gone = remote_is(dst, M_ABORTED);

	if (!j->rc)
		m->step.heard_us = now_us();
	if (m->rec.committed && (gone || j->rc == -EREMOTEIO))
		died_here(m);
	else if (j->rc == -EREMOTEIO)
		migrate_fail(m, -ECANCELED, "host %s does not know the migration any more: %.300s",
			     m->rec.to.host, j->error);
	else if (gone)
		migrate_fail(m, -ECANCELED, "host %s has given the migration up: %.300s",
			     m->rec.to.host,
			     *dst->reason ? dst->reason : "its record does not say why");
	else if (j->rc && now_us() - m->step.heard_us > BEGIN_SILENT_S * 1000000ull)
		migrate_fail(m, j->rc,
			     "ibvmigd on host %s has not answered for %d s, before QEMU began: "
			     "%.300s",
			     m->rec.to.host, BEGIN_SILENT_S, j->error);
	else
		ask_later(m);
}

int src_await_begin(struct migration *m)
{
	if (!m->step.heard_us) {
		m->step.heard_us = now_us();
		ask_later(m);
		return STEP_WAIT;
	}
	if (m->inflight)
		return STEP_WAIT;
	return src_ask_destination(m, begin_asked);
}

static int await_begin_early(struct migration *m)
{
	if (m->src.job != JOB_NONE)
		return STEP_DONE;
	if (now_us() - m->step.asked_us > BEGIN_S * 1000000ull)
		return migrate_error(m, -ETIMEDOUT,
				     "the VF has left, but QEMU has not begun to migrate within "
				     "%d s",
				     BEGIN_S);
	return src_await_begin(m);
}

/* An early VM's VF has left, so QEMU may begin: the hook gets its answer now. */
static int let_begin(struct migration *m)
{
	if (m->src.job != JOB_NONE || m->rec.strategy != STRATEGY_EARLY)
		return STEP_DONE;
	loop_timer_disarm(m->deadline); /* DETACH is done */
	m->step.asked_us = now_us();
	migrate_answer_waiting(m, 0);
	return await_begin_early(m);
}

void src_begins_later(struct migration *m)
{
	m->step.asked_us = now_us();
	if (m->rec.state == M_PREPARE)
		migrate_deadline_again(m);
}

bool src_awaits_begin(const struct migration *m)
{
	return record_did(&m->rec, DID_ARM) && m->src.job == JOB_NONE && !m->rec.back &&
	       !m->waiting &&
	       (m->rec.state == M_PREPARE ||
		(m->rec.state == M_DETACH && migrate_is_in(m, DETACH_BEGIN)));
}

static int all_left(struct migration *m)
{
	return record_devices_gone(&m->rec) < m->rec.vf_count ? STEP_WAIT : STEP_DONE;
}

static int unplug_all(struct migration *m)
{
	/* QEMU takes the devices along. */
	if (m->rec.strategy == STRATEGY_NATIVE)
		return migrate_enter(m, DETACH_OVER);
	record_do(&m->rec, DID_UNPLUG);
	m->src.detach_started_us = now_us();
	if (all_left(m) == STEP_DONE)
		return STEP_DONE;
	return migrate_job(m, unplug_input(m), unplug_run, unplugged);
}

static int clean(struct migration *m)
{
	migrate_measure(m, "detach_us");
	return migrate_job(m, migrate_input(m), clean_run, migrate_job_next);
}

const struct migrate_phase src_detach[] = {
	[DETACH_UNPLUG] = {"unplug", unplug_all, all_left},
	[DETACH_CLEAN] = {"clean", clean, NULL},
	[DETACH_BEGIN] = {"begin", let_begin, await_begin_early},
	[DETACH_OVER] = {0},
};

/* ---- SWITCH ---- */

/* QEMU goes on with the user's values. */
struct release_work {
	char vm[37];
	struct speed user; /* 0: there was no HOLD to read them */
	struct qmp_throttle throttle;
	uint64_t ours; /* the bandwidth that we have set; 0: none */
};

static void release_run(struct job *j)
{
	struct release_work *w = j->work;
	struct speed s = w->user, now, changed = {0};

	if (!s.bandwidth)
		speed_read(j, w->vm, &s);
	else if (!(j->rc = qmp_get_migrate(j->d->virt, w->vm, &now.bandwidth, &now.downtime_ms,
					   j->error)))
		changed = speed_changes(now, w->ours);
	if (j->rc)
		return;
	if (changed.bandwidth)
		s.bandwidth = changed.bandwidth;
	if (changed.downtime_ms)
		s.downtime_ms = changed.downtime_ms;
	if (w->throttle.initial)
		j->rc = qmp_set_throttle(j->d->virt, w->vm, w->throttle, j->error);
	if (!j->rc)
		j->rc = qmp_set_migrate(j->d->virt, w->vm, s.bandwidth, s.downtime_ms, j->error);
}

/* SWITCH at the other host; the call's body stands in the job's input. */
struct switch_work {
	struct other_host to;
	bool lost, committed;
};

/* An ended record of a destination that was restarted since lives in its journal only. One that has
 * lost its journal has nothing that could be ordered once the VM runs there. */
static bool has_moved(const struct switch_work *w)
{
	struct remote_record dst;
	char why[HTTP_ERROR_MAX];
	int rc = remote_ask(w->to.url, w->to.id, ROLE_DESTINATION, ASK_DEADLINE_MS, &dst, why);

	if (rc)
		return rc == -EREMOTEIO && w->committed;
	return remote_is(&dst, M_DONE);
}

static int drop_guid(struct job *j, struct json_object *vf, char *error)
{
	return provider_set_guid(j->d->provider, vf_text_of(vf, "vf"),
				 vf_guid_of(vf, "parked_guid"), error);
}

/* First the source's VFs drop the vGUIDs, then the destination's show them: never both. */
static void switch_run(struct job *j)
{
	const struct switch_work *w = j->work;
	struct json_object *answer = NULL;

	if (!job_vfs_at_once(j, drop_guid) && !w->lost)
		j->rc = http_call(w->to.url, "POST", "/v1/peer/switch", json_opt(j->in, "body"),
				  SWITCH_DEADLINE_MS, &answer, j->error);
	if (j->rc == -EREMOTEIO && has_moved(w))
		j->rc = 0;
	else if (j->rc && j->rc != -EREMOTEIO && w->committed)
		lost_name_way_out(j, &w->to);
	json_set(j->out, "answer", answer);
}

static void part_done(struct migration *m, struct job *j)
{
	m->pending--;
	if (j->rc && !m->pending_rc) {
		m->pending_rc = j->rc;
		snprintf(m->pending_error, sizeof m->pending_error, "%s", j->error);
	}
}

static void switched(struct migration *m, struct job *j)
{
	struct json_object *move = json_opt(json_opt(j->out, "answer"), "move");

	part_done(m, j);
	if (j->rc)
		return;
	record_do(&m->rec, DID_MOVE);
	migrate_measure(m, "move_us");
	if (move)
		json_set(m->rec.data, "move", json_object_get(move));
}

static struct json_object *switch_input(struct migration *m)
{
	struct json_object *in = migrate_input(m), *body = json_object_new_object();

	json_set_str(body, "migration", m->rec.id);
	json_set(body, "peers", record_peers_json(&m->rec));
	json_set_bool(body, "suspended", record_did(&m->rec, DID_SUSPEND));
	json_set(in, "body", body);
	return in;
}

static int order_switch(struct migration *m)
{
	struct switch_work w = {
		.to = other_host(m, &m->rec.to),
		.lost = record_did(&m->rec, TOLD_DESTINATION_LOST),
		.committed = m->rec.committed,
	};

	m->pending++;
	return migrate_order(m,
			     (struct job_order){.pool = m->d->callers,
						JOB_WORK(w),
						.in = switch_input(m),
						.run = switch_run},
			     switched);
}

static int release_qemu(struct migration *m)
{
	struct release_work w = {
		.user = {m->src.user_bandwidth, m->src.user_downtime_ms},
		.throttle = m->src.user_throttle,
		.ours = m->src.set_bandwidth,
	};

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	m->pending++;
	return migrate_order(m, (struct job_order){JOB_WORK(w), .run = release_run}, part_done);
}

static int move(struct migration *m)
{
	/* After COMMIT there is no QEMU here to be released; a native one was not held. */
	bool holds = !m->rec.committed && m->rec.strategy != STRATEGY_NATIVE;
	int rc = STEP_WAIT;

	record_do(&m->rec, DID_PARK);
	src_end_ballast(m);
	record_do(&m->rec, DID_RAISE);
	if (holds)
		rc = release_qemu(m);
	return rc < 0 ? rc : order_switch(m);
}

static int moved(struct migration *m)
{
	if (m->pending)
		return STEP_WAIT;
	/* QEMU may have finished before it was released: that is no failure. */
	if (m->pending_rc &&
	    !(record_did(&m->rec, DID_MOVE) && (m->rec.committed || m->src.job == JOB_COMPLETED)))
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	migrate_measure(m, "switch_us");
	return STEP_DONE;
}

const struct migrate_phase src_switch[] = {
	{"move", move, moved},
	{0},
};

/* ---- after the switch: the destination acts ---- */

/* The destination may have ended long ago, or have lost its journal: it has nothing more to
 * tell. */
static void forgotten(struct migration *m)
{
	log_warn("VM %s: migration %s: host %s, where it runs, does not know the migration any "
		 "more: ended here without its word",
		 m->rec.vm_name, m->rec.id, m->rec.to.host);
	m->src.peer_ended = true;
}

static void outcome_asked(struct migration *m, struct job *j)
{
	const struct remote_record *dst = &((struct outcome *)j->work)->dst;
	bool gone = remote_is(dst, M_ABORTED);

	if (!j->rc)
		src_note_heard(m);
	else if (j->rc != -EREMOTEIO)
		src_note_silence(m, j);
	else if (m->rec.committed)
		forgotten(m);
	if (dst->committed)
		migrate_set_committed(m);
	if (dst->attached)
		record_do(&m->rec, DID_ATTACH);
	m->src.peer_ended = m->src.peer_ended || remote_is(dst, M_DONE);
	/* The VM is paused here, if libvirt has not resumed it. */
	if (m->rec.state == M_CANCEL && gone)
		m->src.job = JOB_FAILED;
	if (m->rec.committed && gone) {
		died_here(m);
		return;
	}
	if (m->rec.state == M_ATTACH && gone) {
		migrate_fail(m, -ECANCELED,
			     "the destination has given the migration up; if libvirt has left the "
			     "VM paused here: virsh resume %s",
			     m->rec.vm_name);
		return;
	}
	m->step.resting = true;
	migrate_poll(m, m->src.peer_ended ? 0 : OUTCOME_POLL_MS);
}

int src_await_outcome(struct migration *m)
{
	m->step.resting = true;
	m->step.heard_us = now_us();
	loop_timer_disarm(m->deadline); /* as long as it takes: CANCEL has one */
	migrate_poll(m, OUTCOME_POLL_MS * 5);
	return STEP_WAIT;
}

int src_ask_outcome(struct migration *m)
{
	if (m->inflight)
		return STEP_WAIT;
	return src_ask_destination(m, outcome_asked);
}

static void note_attached(struct migration *m)
{
	if (record_did(&m->rec, DID_ATTACH))
		return;
	record_do(&m->rec, DID_ATTACH);
	if (m->src.detach_started_us)
		json_set_u64(m->rec.data, "detach_to_attach_us",
			     now_us() - m->src.detach_started_us);
}

void src_on_outcome(struct http_request *req)
{
	struct migration *m = migrate_find(req->user, json_opt_str(req->body, "migration", ""),
					   ROLE_SOURCE);

	if (!m) {
		http_fail(req->exchange, 404, "not-found", "there is no such migration here");
		return;
	}
	if (json_opt(req->body, "data"))
		json_set(m->rec.data, "destination", json_object_get(json_opt(req->body, "data")));
	http_reply(req->exchange, 200, NULL);
	if (m->rec.ended || record_did(&m->rec, TOLD_DESTINATION_LOST))
		return;
	if (json_opt(req->body, "aborted") && m->rec.state == M_SAVED && !m->rec.back) {
		cold_not_restored(m);
		return;
	}
	/* QEMU never got to start there; from HOLD on, QEMU here tells by itself. */
	if (json_opt(req->body, "aborted") && m->src.job == JOB_NONE && !m->rec.back &&
	    !m->rec.committed) {
		migrate_fail(m, -ECANCELED, "%s", json_opt_str(req->body, "aborted", ""));
		return;
	}
	if (json_opt_bool(req->body, "committed", false))
		migrate_set_committed(m);
	if (json_opt_bool(req->body, "attached", false))
		note_attached(m);
	if (json_opt_bool(req->body, "ended", false))
		m->src.peer_ended = true;
	/* ATTACH and RESUME wait for this; an undo waits for something else. */
	if (!m->rec.back)
		m->step.resting = false;
	migrate_drive(m);
}

static const struct migrate_phase attach[] = {
	{"outcome", src_await_outcome, src_ask_outcome},
	{0},
};

int src_attach(struct migration *m)
{
	if (m->rec.committed && (record_did(&m->rec, DID_ATTACH) || m->src.peer_ended ||
				 record_did(&m->rec, TOLD_DESTINATION_LOST)))
		return STEP_DONE;
	return migrate_run_phases(m, attach);
}

static void given_back(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);

	if (migrate_job_failed(m, j))
		return;
	migrate_free_leases(m);
	if (vm)
		vm_left(vm);
	migrate_next(m);
}

static int give_back(struct migration *m)
{
	bool lost = record_did(&m->rec, TOLD_DESTINATION_LOST);
	struct address_work w = {0};

	if (lost)
		w = lost_addresses(m, &m->rec.to);
	return migrate_order(
		m,
		(struct job_order){JOB_WORK(w), .in = migrate_input(m),
				   .run = lost ? lost_release_run : migrate_release_run},
		given_back);
}

/* STEP_DONE: the VFs here may be given back. */
static int has_ended(struct migration *m)
{
	if (record_did(&m->rec, TOLD_DESTINATION_LOST))
		return STEP_DONE;
	if (!m->src.peer_ended)
		return STEP_WAIT;
	migrate_measure(m, "resume_us");
	if (m->src.suspended_us)
		json_set_u64(m->rec.data, "outage_us", now_us() - m->src.suspended_us);
	return STEP_DONE;
}

static int await_end(struct migration *m)
{
	return has_ended(m) == STEP_DONE ? STEP_DONE : src_await_outcome(m);
}

static int ask_end(struct migration *m)
{
	bool asks = m->inflight && !record_did(&m->rec, TOLD_DESTINATION_LOST);

	return !asks && has_ended(m) == STEP_DONE ? STEP_DONE : src_ask_outcome(m);
}

const struct migrate_phase src_resume[] = {
	{"outcome", await_end, ask_end},
	{"give-back", give_back, NULL},
	{0},
};
