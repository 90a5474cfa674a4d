/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The job of the helper thread. What the agent orders and what peers say become steps of a suspend
 * or a resume, each with the job's deadline. A step that fails is undone here, too. */
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define TICK_MS      20
#define LOST_US      1000000 /* much longer than UCX takes from munmap() to ibv_dereg_mr() */
#define ASK_AGAIN_US 200000
#define REBUILD_MS   60000
#define FORGET_US    15000000 /* nobody else is held up, and daemons on the way may be restarting */

struct shim_job job;

void job_send_report(uint16_t type)
{
	job.report.head = (struct shim_head){.bytes = sizeof(job.report), .type = type};
	job.report.head.status = job.error;
	job.report.migration = job.migration;
	peer_flush(); /* peers hear it before the host */
	shim_send(&job.report);
}

bool job_wants_channels(void)
{
	return job.state >= JOB_DRAIN && !job.empty;
}

/* Notes the numbers that the other end has built. Our QP may be connected already to what it had
 * built ahead, on a device that has been replaced since: then ours begins anew. */
static void note_numbers(struct shim_qp *q, const struct peer_qp *e)
{
	uint32_t qpn = e->qpn & SHIM_QPN_MAX, psn = e->psn & SHIM_QPN_MAX;
	/* With an end that is not connected, PSNs are those that the programs know. */
	bool same = q->said.qpn == qpn && (q->said.psn == psn || q->said.unconnected);

	if (q->phase == QP_CONNECTING && q->joined && !same) {
		q->start_over = true;
		q->local_up = false;
		lock_take(&q->recv.lock); /* posts to a QP in RESET would fail */
		queue_hold(&q->recv, true);
		lock_give(&q->recv.lock);
	}
	q->said.qpn = qpn;
	q->said.psn = psn;
	q->said.unconnected = e->flags & PEER_UNCONNECTED;
}

void job_qp_event(struct shim_qp *q, unsigned type, uint64_t migration, const struct peer_qp *e)
{
	if (e)
		q->unreachable_us = 0;
	switch (type) {
	case PEER_DRAINED:
		q->said.drained_by = migration;
		q->said.sent = e->sent;
		q->said.received = e->received;
		q->said.stuck = e->flags & PEER_STUCK;
		q->said.end_psn = e->psn & SHIM_QPN_MAX;
		q->said.end_psn_known = e->flags & PEER_PSN;
		break;
	case PEER_FREEZE:
		q->said.freeze_by = migration;
		q->told_frozen = q->told_executed = false; /* the peer asks for an answer */
		q->said.next_at = e->recv_posted;
		q->said.next_srqn = e->srqn;
		break;
	case PEER_FROZEN:
		q->said.frozen_by = migration;
		q->said.recv_posted = e->recv_posted;
		q->said.executed = e->flags & PEER_COUNTED ? e->received : 0;
		q->asked_freeze = false;
		break;
	case PEER_ABORT:
		/* An end that waits for this answer has forgotten the question, or it was lost. */
		if (q->phase == QP_LIVE && !(e->flags & PEER_REPLY))
			peer_queue_qp(q, PEER_ABORT, migration);
		q->said.abort_by = migration;
		q->said.drained_by = q->said.freeze_by = q->said.frozen_by = 0;
		break;
	case PEER_PREPARED:
	case PEER_CONNECT:
		if (type == PEER_CONNECT)
			q->said.connect_by = migration;
		q->said.prepared_by = migration;
		note_numbers(q, e);
		job.mover_ahead = type == PEER_PREPARED && job.role == SHIM_ROLE_PEER &&
				  migration == job.migration;
		break;
	case PEER_READY:
		q->said.ready_by = migration;
		job.mover_ahead = false;
		break;
	case PEER_GONE:
		q->said.gone = true;
		break;
	default:
		q->said.unreachable = true;
	}
}

bool job_lost_peer(struct shim_qp *q, uint64_t now, uint64_t after_us)
{
	if (!q->said.unreachable)
		return false;
	if (!q->unreachable_us)
		q->unreachable_us = now;
	if (now - q->unreachable_us <= after_us)
		return false;
	shim_log("QP 0x%x: its peer cannot be reached any more", q->v.qp_num);
	q->said.gone = true;
	return true;
}

/* The program's own waits go on: events that came meanwhile, channels, control verbs. */
void job_end(void)
{
	struct shim_channel *ch;
	struct shim_context *c;
	struct shim_cq *cq;

	list_for_each (ch, &shim.channels, link)
		if (ch->ctx->in_job)
			channel_unhelp(ch);
	list_for_each (cq, &shim.cqs, link)
		if (cq->ctx->in_job && cq->channel)
			channel_go_on(cq->channel, cq);
	pthread_mutex_lock(&shim.ctl);
	list_for_each (c, &shim.contexts, link)
		c->in_job = false;
	job.state = JOB_IDLE;
	shim.busy = shim.no_connects = shim.held = false;
	parts_ended();
	parts_answer();
	pthread_cond_broadcast(&shim.ctl_changed);
	pthread_mutex_unlock(&shim.ctl);
}

void job_end_empty(void)
{
	pthread_mutex_lock(&shim.ctl);
	job.state = JOB_IDLE;
	shim.held = false;
	parts_answer();
	pthread_cond_broadcast(&shim.ctl_changed);
	pthread_mutex_unlock(&shim.ctl);
}

/* Once the other end knew that our sends had ended, its QP may be gone. Ours goes on when that end
 * says that it has kept its own (PEER_ABORT), or is connected anew (PEER_CONNECT). */
static void undo_hold(struct shim_qp *q)
{
	bool wait = q->told_drained && q->paired && !q->said.gone &&
		    q->said.abort_by != job.migration;

	if (q->paired && !q->said.gone)
		peer_queue_qp(q, PEER_ABORT, job.migration);
	if (wait) {
		q->phase = QP_WAIT_PEER;
		q->progress_us = now_us();
		q->waits_for = job.migration;
		job.waiting = true;
	} else {
		qp_unhold(q);
	}
}

void job_fail(int error, const char *fmt, ...)
{
	enum job_state was = job.state;
	struct shim_qp *q;
	va_list ap;

	/* A QP that cannot be built ahead is tried again, and told, by the resume. */
	if (job.error || was == JOB_IDLE || was == JOB_RELEASED)
		return;
	job.error = error;
	va_start(ap, fmt);
	vsnprintf(job.report.why, sizeof(job.report.why), fmt, ap);
	va_end(ap);
	shim_log("migration %llx, step %d: %s", (unsigned long long)job.migration, was,
		 job.report.why);
	if (was >= JOB_RELEASED) {
		/* Nothing to go back to: the host tries again. */
		job.state = JOB_RELEASED;
		job_send_report(SHIM_RESUMED);
		return;
	}
	if (job.empty) {
		job_end_empty();
	} else {
		list_for_each (q, &shim.qps, link)
			if (q->in_job && q->phase != QP_LIVE)
				undo_hold(q);
		parts_abort();
		list_for_each (q, &shim.qps, link)
			q->in_job = false;
		job_end();
	}
	job_send_report(was == JOB_QUIET ? SHIM_ABORTED : SHIM_QUIET);
}

static void job_begin(const struct shim_order *o)
{
	bool waiting = job.waiting;

	memset(&job, 0, sizeof(job));
	job.waiting = waiting;
	job.order = *o;
	if (job.order.vguid_count > SHIM_VGUIDS_MAX)
		job.order.vguid_count = SHIM_VGUIDS_MAX;
	job.role = o->role;
	job.migration = o->migration;
	job.start_us = now_us();
	/* The agent waits a little longer than we do. */
	job.deadline_us = job.start_us + o->deadline_ms * 900ull;
	/* A mover that has nothing to say, or cannot, is not waited for longer. */
	job.mover_first_us = job.start_us + o->deadline_ms * 250ull;
	job.lost_until_us = job.start_us + LOST_US;
	if (job.lost_until_us > job.mover_first_us)
		job.lost_until_us = job.mover_first_us;
}

/* An agent that has just started does not know that it is done. */
static bool is_done(const struct shim_order *o)
{
	return job.state == JOB_RELEASED && o->migration == job.migration;
}

static void suspend_start(const struct shim_order *o)
{
	if (is_done(o)) {
		job_send_report(SHIM_QUIET);
		return;
	}
	if (job.state != JOB_IDLE) {
		struct shim_report busy = {.head = {sizeof(busy), SHIM_QUIET, 0, 0, -EBUSY},
					   .migration = o->migration,
					   .why = "another suspend is under way"};
		shim_send(&busy);
		return;
	}
	job_begin(o);
	pthread_mutex_lock(&shim.ctl);
	shim.busy = true;
	shim.held = job.role == SHIM_ROLE_MOVER;
	job.state = JOB_ENTER;
	pthread_mutex_unlock(&shim.ctl);
}

static void report_not_quiet(const struct shim_order *o)
{
	struct shim_report r = {.head = {sizeof(r), SHIM_RELEASED, 0, 0, -ECANCELED},
				.migration = o->migration,
				.why = "the suspend was given up meanwhile"};

	shim_send(&r);
}

/* Nobody waits for a peer, which keeps its device, to give its QPs back. */
static void release(void)
{
	if (job.role == SHIM_ROLE_MOVER || job.empty) {
		job_release();
		job_send_report(SHIM_RELEASED);
		return;
	}
	job_send_report(SHIM_RELEASED);
	job_release();
	ahead_peer();
}

void job_order(const struct shim_order *o)
{
	bool ours = o->migration == job.migration;

	switch (o->head.type) {
	case SHIM_SUSPEND:
		suspend_start(o);
		break;
	case SHIM_RELEASE:
		if (job.state == JOB_QUIET && ours) {
			/* The counts of the first step have been reported. */
			job.report.qps = job.report.unacked = job.report.markers = 0;
			release();
		} else if (is_done(o)) {
			job_send_report(SHIM_RELEASED);
		} else {
			report_not_quiet(o);
		}
		break;
	case SHIM_ABORT:
		if (ours && job.state < JOB_RELEASED)
			job_fail(-ECANCELED, "the suspend was given up");
		break;
	case SHIM_BUILD:
		ahead_mover(o);
		break;
	case SHIM_RESUME:
		resume_start(o);
		break;
	default:
		break;
	}
}

uint64_t job_suspended(void)
{
	return job.state >= JOB_RELEASED ? job.migration : 0;
}

void job_agent_gone(void)
{
	pthread_mutex_lock(&shim.ctl);
	if (job.state == JOB_IDLE && shim.held) {
		shim.held = false; /* the order that was to follow will not come */
		pthread_cond_broadcast(&shim.ctl_changed);
	}
	pthread_mutex_unlock(&shim.ctl);
	if (job.state == JOB_ENTER || job.state == JOB_DRAIN || job.state == JOB_QUIET)
		job_fail(-ECONNRESET, "the agent has gone");
	else if (job.state == JOB_RELEASED)
		ahead_give_back();
}

/* The other end was connected anew while ours waited: the same for ours. Nobody is inside a control
 * verb. */
static void rebuild_waiting(uint64_t migration)
{
	struct shim_order again = {
		.role = SHIM_ROLE_PEER, .deadline_ms = REBUILD_MS, .migration = migration};
	struct shim_qp *q;

	job_begin(&again);
	list_for_each (q, &shim.qps, link) {
		if (q->phase == QP_WAIT_PEER && q->said.connect_by == migration)
			q->in_job = q->ctx->in_job = true;
	}
	job_release();
	resume_start(&again);
}

/* After a failed suspend: QPs that wait for word from the other end, which is asked again. */
static void wait_peer_step(void)
{
	struct shim_qp *q;
	uint64_t rebuild = 0, now = now_us();

	if (!job.waiting)
		return;
	job.waiting = false;
	pthread_mutex_lock(&shim.ctl);
	list_for_each (q, &shim.qps, link) {
		if (q->phase != QP_WAIT_PEER)
			continue;
		if (q->said.gone || q->said.abort_by == q->waits_for ||
		    job_lost_peer(q, now, FORGET_US)) {
			qp_unhold(q);
			continue;
		}
		job.waiting = true;
		if (q->said.connect_by) {
			rebuild = q->said.connect_by;
		} else if (now - q->progress_us > ASK_AGAIN_US) {
			q->progress_us = now;
			q->said.unreachable = false;
			peer_queue_qp(q, PEER_ABORT, q->waits_for);
		}
	}
	if (shim.busy != !!rebuild) { /* the last to leave a verb wakes us; none is let in */
		shim.busy = rebuild;
		pthread_cond_broadcast(&shim.ctl_changed);
	}
	if (shim.users)
		rebuild = 0;
	pthread_mutex_unlock(&shim.ctl);
	if (rebuild)
		rebuild_waiting(rebuild);
}

/* True if a process of the mover has said nothing yet of this migration (under ctl). */
static bool peers_late(void)
{
	struct shim_peer *p;
	struct shim_qp *q;
	bool late = false;

	list_for_each (p, &shim.peers, link)
		p->stops = false;
	list_for_each (q, &shim.qps, link)
		if (q->peer && (q->said.drained_by == job.migration ||
				q->said.freeze_by == job.migration || q->said.gone))
			q->peer->stops = true;
	list_for_each (q, &shim.qps, link)
		late |= takes_part(q) && gid_in_order(q->dgid, &job.order) && !q->peer->stops;
	return late;
}

/* Keeps the program out of control verbs, or lets it in (under ctl). While it is let in nothing is
 * held, so that other ends' questions that came before are answered: a connection that is waited
 * for may need that. */
static void keep_out(bool out)
{
	if (shim.busy == out)
		return;
	shim.busy = out;
	pthread_cond_broadcast(&shim.ctl_changed);
	if (out)
		return;
	parts_answer();
}

/* True if no one is inside a control verb. Connections that librdmacm makes are waited for, and
 * meanwhile nobody is kept out: making one takes many verbs, of both ends. The mover stops first,
 * since a connection that it makes needs us, and its request may still be under way; we begin no
 * more of them ourselves. */
static bool enter_clear(void)
{
	char why[sizeof(job.report.why)] = "";
	bool making, late, wait, clear;

	pthread_mutex_lock(&shim.ctl);
	making = parts_making(why, sizeof(why));
	late = !making && job.role == SHIM_ROLE_PEER && now_us() < job.mover_first_us &&
	       parts_may_be_asked() && peers_late();
	wait = making || late;
	keep_out(!wait);
	clear = shim.busy && !shim.users;
	shim.no_connects = wait && job.role == SHIM_ROLE_PEER;
	pthread_mutex_unlock(&shim.ctl);
	memcpy(job.report.why, why, sizeof(why));
	job.making = wait;
	return clear;
}

/* Registration caches (UCX) hear of munmap() and deregister a moment later, which they must be let
 * in for. So the program goes on for a while, and only then the suspend fails. */
static bool regions_there(void)
{
	int rc = regions_check();

	if (rc == -EAGAIN) {
		pthread_mutex_lock(&shim.ctl);
		keep_out(false);
		pthread_mutex_unlock(&shim.ctl);
		job.making = true;
	}
	return !rc;
}

void job_step(void)
{
	char why[SHIM_TEXT_MAX];

	memcpy(why, job.report.why, sizeof(why));
	if (job.state != JOB_IDLE && job.state != JOB_QUIET && job.state != JOB_RELEASED &&
	    now_us() > job.deadline_us) {
		if (job.state == JOB_DRAIN && !why[0])
			suspend_why(why, sizeof(why));
		job_fail(-ETIMEDOUT, "not done within %u ms (%s)", job.order.deadline_ms,
			 why[0]                   ? why
			 : job.state == JOB_ENTER ? "a verb of the program does not return"
						  : "QPs are not connected");
		return;
	}
	switch (job.state) {
	case JOB_IDLE:
		wait_peer_step();
		break;
	case JOB_ENTER:
		if (enter_clear() && regions_there())
			suspend_enter();
		if (job.state != JOB_DRAIN)
			break;
		/* fall through */
	case JOB_DRAIN:
	case JOB_QUIET:
		if (!job.empty)
			suspend_drain();
		break;
	case JOB_REBUILD:
		resume_rebuild();
		break;
	case JOB_CONNECT:
		resume_step();
		break;
	case JOB_RELEASED:
		break;
	}
}

int job_timeout(void)
{
	uint64_t now = now_us();
	int left = now >= job.deadline_us ? 0 : (int)((job.deadline_us - now) / 1000) + 1;

	switch (job.state) {
	case JOB_IDLE:
		return job.waiting ? ASK_AGAIN_US / 1000 : -1;
	case JOB_QUIET:
	case JOB_RELEASED:
		return -1;
	case JOB_REBUILD:
		return OPEN_AGAIN_MS;
	case JOB_DRAIN:
		return TICK_MS;
	case JOB_ENTER:
		return job.making ? TICK_MS : left;
	case JOB_CONNECT:
		if (job.more)
			return 0;
		if (job.again)
			return CONNECT_AGAIN_US / 1000;
		return left < RESUME_TICK_MS ? left : RESUME_TICK_MS;
	default:
		return left;
	}
}
