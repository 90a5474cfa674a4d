/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The suspend, in the helper thread: hold posts, drain what the hardware has, agree with the
 * other end that all has arrived, then give QPs and device back. */
#include "guest-agent/shim/core/batch.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>

#define NO_MARKER_DRAIN_US 1000000
#define ARRIVAL_US         100000 /* UC: without progress, what has not come is lost */

bool job_concerns(const struct shim_qp *q, const uint8_t dgid[16])
{
	if (!job_holds())
		return false;
	return job.role == SHIM_ROLE_MOVER ? context_has_guid(q->ctx, &job.order, NULL)
					   : gid_in_order(dgid, &job.order);
}

/* Chooses the contexts and QPs that take part. 0 or -errno with the reason in the report. */
static int choose(void)
{
	struct shim_context *c;
	struct shim_qp *q;
	bool mover = job.role == SHIM_ROLE_MOVER, any = false;

	ud_check_all_covered(); /* a post cannot say by itself that nobody covers it */
	list_for_each (c, &shim.contexts, link) {
		c->in_job = mover && context_has_guid(c, &job.order, NULL);
		any |= c->in_job;
	}
	list_for_each (q, &shim.qps, link) {
		q->in_job = mover   ? q->ctx->in_job
			    : q->ud ? parts_hold(q)
				    : (q->connected || q->resolved) &&
					      gid_in_order(q->dgid, &job.order);
		if (!q->in_job)
			continue;
		any = true;
		if (q->uncovered && q->v.state != IBV_QPS_RESET && q->v.state != IBV_QPS_ERR) {
			job_fail(-EOPNOTSUPP, "QP 0x%x is not covered: %s", q->v.qp_num,
				 q->uncovered);
			return job.error;
		}
	}
	list_for_each (q, &shim.qps, link)
		if (q->in_job)
			q->ctx->in_job = true;
	any |= parts_concerned();
	job.empty = !any;
	list_for_each (c, &shim.contexts, link) {
		const char *why = mover && c->in_job ? mw_uncovered(c) : NULL;

		if (why) {
			job_fail(-EOPNOTSUPP, "not covered: %s", why);
			return job.error;
		}
	}
	if (any && shim.uncovered_objects) {
		job_fail(-EOPNOTSUPP, "not covered: %s", shim.uncovered_why);
		return job.error;
	}
	return 0;
}

bool takes_part(const struct shim_qp *q)
{
	return q->peer && (q->connected || q->resolved) && q->v.state != IBV_QPS_ERR &&
	       q->v.state != IBV_QPS_RESET;
}

/* The other end has spoken of this migration, and then the program has put its QP to ERR: that end
 * waits for a QP that takes no part. */
static bool waited_for(const struct shim_qp *q)
{
	return q->v.state == IBV_QPS_ERR && q->peer &&
	       (q->said.drained_by == job.migration || q->said.freeze_by == job.migration);
}

static void hold(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;

	send_hold(q);
	q->phase = QP_DRAINING;
	q->paired = takes_part(q);
	if (waited_for(q))
		peer_send_gone(q, job.migration);
	q->drained = q->stuck = q->told_drained = q->told_received = false;
	q->asked_freeze = q->told_frozen = q->told_executed = false;
	q->local_up = q->end_psn_known = false;
	q->arrival_us = 0;
	/* The peer's words are of an earlier attempt; for this one they cannot come before our own
	 * PEER_DRAINED. */
	q->said.gone = q->said.unreachable = false;
	q->unreachable_us = 0;
	q->said.abort_by = q->said.connect_by = q->said.prepared_by = q->said.ready_by = 0;
	q->progress_us = q->asked_us = now_us();
	q->progress_tail = atomic_load(&s->tail);
	job.report.qps++;
	job.report.unacked += (uint32_t)(s->posted - q->progress_tail);
}

/* A tail of unsignalled sends produces no completion: one of ours behind it does. */
static void mark(struct shim_qp *q)
{
	if (q->marker || q->v.state != IBV_QPS_RTS || shim.fault & SHIM_FAULT_NO_MARKER)
		return;
	if (send_ends_silent(q) && !send_post_marker(q))
		job.report.markers++;
}

static void harvest_all(bool arm)
{
	struct shim_cq *cq;

	list_for_each (cq, &shim.cqs, link) {
		if (!cq->ctx->in_job)
			continue;
		cq_harvest(cq);
		if (!arm || atomic_load(&cq->awaited)) /* a system call for each CQ */
			continue;
		cq_watch(cq);
		cq_harvest(cq);
	}
}

void suspend_take_events(void)
{
	struct shim_channel *ch;
	struct shim_context *c;

	list_for_each (c, &shim.contexts, link)
		if (c->in_job && c->own_channel)
			channel_drop_events(c->own_channel);
	list_for_each (ch, &shim.channels, link)
		if (ch->ctx->in_job && ch->real)
			channel_take_events(ch);
}

/* Posts stop here: every caller is out of the control verbs. */
void suspend_enter(void)
{
	struct shim_channel *ch;
	struct shim_cq *cq;
	struct shim_qp *q;

	if (choose())
		return;
	if (job.empty) { /* nothing of this process is concerned: it may go on */
		pthread_mutex_lock(&shim.ctl);
		shim.busy = false;
		pthread_cond_broadcast(&shim.ctl_changed);
		pthread_mutex_unlock(&shim.ctl);
		job.state = JOB_QUIET;
		job_send_report(SHIM_QUIET);
		return;
	}
	list_for_each (ch, &shim.channels, link)
		if (ch->ctx->in_job)
			channel_detach(ch);
	list_for_each (q, &shim.qps, link)
		if (q->in_job)
			hold(q);
	list_for_each (cq, &shim.cqs, link) {
		if (!cq->ctx->in_job)
			continue;
		atomic_store(&cq->awaited, false); /* or for the program, solicited events only */
		cq_harvest_old(cq);
	}
	job.state = JOB_DRAIN;
	job.step_us = now_us();
}

/* An error has stopped the send queue (SQE): no completion comes any more. */
static bool has_stopped(const struct shim_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !real_verbs.query_qp(q->real, &a, IBV_QP_STATE, &init) &&
	       a.qp_state != IBV_QPS_RTS && a.qp_state != IBV_QPS_SQD;
}

static bool drained(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	uint64_t tail = atomic_load(&s->tail), now = now_us();

	if (tail != q->progress_tail) {
		q->progress_tail = tail;
		q->progress_us = now;
	}
	q->sent = q->sent_all;
	if ((tail == s->posted && !q->marker) || q->said.gone)
		return true;
	if (q->v.state != IBV_QPS_RTS) /* ERR flushes, and what is left is flushed again later */
		return now - q->progress_us > FREEZE_AFTER_US;
	if (shim.fault & SHIM_FAULT_NO_MARKER && now - job.step_us > NO_MARKER_DRAIN_US) {
		/* The fault: what has no completion counts as not executed. */
		q->sent = 0;
		return true;
	}
	mark(q);
	if (q->ud && now - q->progress_us > FREEZE_AFTER_US && has_stopped(q))
		return true;
	if (q->said.frozen_by == job.migration)
		stuck_find(q);
	if (!q->stuck)
		stuck_ask(q, now);
	return q->stuck;
}

static int query_psns(const struct shim_qp *q, struct ibv_qp_attr *ret_attr)
{
	struct ibv_qp_init_attr init;

	return real_verbs.query_qp(q->real, ret_attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init);
}

/* An RDMA WRITE leaves no trace at a UC peer, but packets come in the order of their PSNs. */
static void note_end_psn(struct shim_qp *q)
{
	struct ibv_qp_attr a;

	if (q->v.qp_type != IBV_QPT_UC || q->v.state != IBV_QPS_RTS || query_psns(q, &a))
		return;
	q->end_psn = a.sq_psn & SHIM_QPN_MAX;
	q->end_psn_known = true;
}

/* A UC sender does not know what arrived, and what finds no receive is dropped, so the receiver
 * waits for what was sent, but only as long as something comes. */
static bool uc_arrived(struct shim_qp *q)
{
	uint64_t tail = atomic_load(&q->recv.tail), now = now_us();
	struct ibv_qp_attr a = {0};
	bool all = tail + q->recv_lost >= q->said.sent;

	if (q->said.end_psn_known && !query_psns(q, &a))
		all &= (a.rq_psn & SHIM_QPN_MAX) == q->said.end_psn;
	if (!q->arrival_us || tail != q->arrival_tail || a.rq_psn != q->arrival_psn)
		q->arrival_us = now;
	q->arrival_tail = tail;
	q->arrival_psn = a.rq_psn;
	return all || now - q->arrival_us > ARRIVAL_US;
}

static bool arrived(struct shim_qp *q)
{
	if (q->said.drained_by != job.migration)
		return false;
	return q->v.qp_type == IBV_QPT_UC ? uc_arrived(q)
					  : atomic_load(&q->recv.tail) >= q->said.sent;
}

/* True if the other end may count on us already: it has been asked for, and its answer, which pairs
 * us with it, may be on the way. BUSY means that it does not. */
static bool asks(struct shim_qp *q)
{
	bool waits;

	pthread_mutex_lock(&shim.call);
	waits = q->resolve == RESOLVE_WAITS && !q->resolve_busy;
	pthread_mutex_unlock(&shim.call);
	return waits;
}

/* Repeats the last word to an end that does not answer: if its process has died, that is the
 * answer. */
static void remind(struct shim_qp *q)
{
	uint64_t now = now_us();

	if (now - q->asked_us < ASK_PEER_US)
		return;
	q->asked_us = now;
	if (q->told_drained)
		peer_queue_qp(q, PEER_DRAINED, job.migration);
	else if (q->asked_freeze)
		peer_queue_qp(q, PEER_FREEZE, job.migration);
}

/* True if nothing is under way any more in either direction. */
static bool quiet(struct shim_qp *q)
{
	bool received;

	if (!q->drained)
		q->drained = drained(q);
	if (job.error) /* only now it may show that the sends cannot end */
		return false;
	if (q->ud)
		return false; /* the QP's part says when */
	if (!q->paired || q->said.gone)
		return q->drained && (q->said.gone || !asks(q));
	if (q->said.freeze_by == job.migration && !q->told_frozen)
		stuck_freeze(q);
	if (q->drained && !q->told_drained) {
		q->told_drained = true;
		note_end_psn(q);
		peer_queue_qp(q, PEER_DRAINED, job.migration);
	}
	received = arrived(q);
	if (q->drained && received && q->said.stuck && !q->told_received) {
		q->told_received = true;
		peer_queue_qp(q, PEER_DRAINED, job.migration);
	}
	if (q->drained && received && (!q->stuck || q->said.received >= q->sent))
		return true;
	remind(q);
	return false;
}

void suspend_why(char *text, size_t max)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || q->phase != QP_DRAINING)
			continue;
		if (!q->drained)
			snprintf(text, max, "QP 0x%x: %llu sends do not end", q->v.qp_num,
				 (unsigned long long)(q->send.posted - atomic_load(&q->send.tail)));
		else if (q->ud)
			snprintf(text, max, "QP 0x%x: not all who exchange datagrams are quiet",
				 q->v.qp_num);
		else if (!q->paired)
			snprintf(text, max, "QP 0x%x: no answer about its other end (QP 0x%x)",
				 q->v.qp_num, q->dvqpn);
		else if (q->said.drained_by != job.migration)
			snprintf(text, max,
				 "QP 0x%x: the other end (QP 0x%x) does not say that it is quiet",
				 q->v.qp_num, q->dvqpn);
		else
			snprintf(text, max,
				 "QP 0x%x: %llu messages have come, the other end (QP "
				 "0x%x) has sent %llu",
				 q->v.qp_num, (unsigned long long)atomic_load(&q->recv.tail),
				 q->dvqpn, (unsigned long long)q->said.sent);
		return;
	}
	snprintf(text, max, "nothing is left to wait for");
}

void suspend_drain(void)
{
	struct shim_qp *q;
	bool all = true;

	harvest_all(true);
	suspend_take_events();
	list_for_each (q, &shim.qps, link) {
		if (!q->in_job)
			continue;
		if (q->said.abort_by == job.migration || q->said.unreachable) {
			job_fail(-ECONNABORTED, "QP 0x%x: the other end (QP 0x%x) %s", q->v.qp_num,
				 q->dvqpn, q->said.unreachable ? "cannot be reached" : "gave up");
			return;
		}
		if (!q->paired && takes_part(q)) { /* the answer came after the hold */
			q->paired = true;
			q->phase = QP_DRAINING;
		}
		if (q->phase == QP_DRAINING && quiet(q) && !job.error)
			q->phase = QP_QUIET;
		if (job.error)
			return;
		all &= q->ud || q->phase == QP_QUIET;
	}
	all = parts_quiet() && all;
	if (!all || job.state != JOB_DRAIN)
		return;
	job.report.drain_us = (uint32_t)(now_us() - job.step_us);
	job.state = JOB_QUIET;
	job_send_report(SHIM_QUIET);
}

static int release_region(void *object)
{
	struct shim_mr *m = object;

	real_verbs.dereg_mr(TAKE(m->real));
	return 0;
}

static int release_cq(void *object)
{
	struct shim_cq *cq = object;
	struct ibv_cq *real;

	lock_take(&cq->lock);
	real = cq_take_real(cq);
	lock_give(&cq->lock);
	if (real)
		real_verbs.destroy_cq(real);
	cq_announce(cq);
	return 0;
}

void release_device(struct shim_context *c)
{
	struct shim_batch regions = {.run = release_region}, cqs = {.run = release_cq};
	struct shim_mr *m;
	struct shim_cq *cq;
	struct shim_srq *s;
	struct shim_channel *ch;
	struct shim_pd *pd;

	list_for_each (s, &shim.srqs, link)
		if (s->pd->ctx == c)
			srq_release(s);
	list_for_each (m, &shim.mrs, link)
		if (m->pd->ctx == c && m->real)
			batch_add(&regions, m);
	batch_run(&regions);
	list_for_each (cq, &shim.cqs, link)
		if (cq->ctx == c)
			batch_add(&cqs, cq);
	batch_run(&cqs);
	list_for_each (ch, &shim.channels, link)
		if (ch->ctx == c)
			channel_close(ch);
	parts_release_device(c);
	xrc_release(c);
	list_for_each (pd, &shim.pds, link)
		if (pd->ctx == c && pd->real)
			real_verbs.dealloc_pd(TAKE(pd->real));
	pthread_mutex_lock(&shim.ctl);
	context_close(c);
	c->released = true;
	pthread_mutex_unlock(&shim.ctl);
}

/* Messages that were lost on UC are not waited for again: both ends go on counting. */
static void note_lost(struct shim_qp *q)
{
	uint64_t tail = atomic_load(&q->recv.tail);

	if (q->v.qp_type == IBV_QPT_UC && q->said.drained_by == job.migration)
		q->recv_lost = q->said.sent > tail ? q->said.sent - tail : 0;
}

int release_qp(void *object)
{
	struct shim_qp *q = object;

	qp_destroy_real(q);
	parts_released_qp(q);
	return 0;
}

void job_release(void)
{
	struct shim_batch qps = {.run = release_qp};
	struct shim_context *c;
	struct shim_qp *q;
	uint64_t start = now_us();

	if (job.empty) {
		job.state = JOB_RELEASED;
		return;
	}
	list_for_each (c, &shim.contexts, link)
		if (c->in_job)
			context_keep_events(c);
	harvest_all(false);
	parts_release();
	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->stuck)
			stuck_retire(q);
	mw_release(job.role == SHIM_ROLE_MOVER);
	list_for_each (q, &shim.qps, link) {
		if (!q->in_job)
			continue;
		q->phase = QP_RELEASED;
		if (q->ud && job.role != SHIM_ROLE_MOVER)
			continue; /* others send to it */
		lock_take(&q->recv.lock);
		queue_hold(&q->recv, true);
		lock_give(&q->recv.lock);
		note_lost(q);
		parts_release_qp(q);
		batch_add(&qps, q);
	}
	batch_run(&qps);
	harvest_all(false);
	suspend_take_events(); /* events of a CQ that goes are gone, too */
	job.state = JOB_RELEASED;
	if (job.role != SHIM_ROLE_MOVER)
		return;
	list_for_each (c, &shim.contexts, link)
		if (c->in_job && c->real)
			release_device(c);
	job.report.close_us = (uint32_t)(now_us() - start);
	start = now_us();
	job.report.dirtied_bytes = dirty_job();
	job.report.dirty_us = (uint32_t)(now_us() - start);
}
