/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sends that do not end in a drain. Those that the other end cannot take for want of receives (RNR)
 * never do, and where an acknowledgement was lost they end only when the hardware asks again, after
 * seconds. So the other end is asked after a while to freeze its receives, and to say how many
 * there were and how many of our messages it has got. Then it is known which sends were executed
 * and which were not. These are replayed; those end in the release, when there is no way back to
 * the old QP. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/srq.h"

#include <errno.h>

/* Under a hold: messages that were handed over before that send. */
static uint64_t sent_before(const struct shim_qp *q, uint64_t number)
{
	uint64_t n = q->sent_all;

	for (uint64_t i = number; i < q->send.posted; i++)
		n -= send_takes_receive(q, i);
	return n;
}

/* Sends that say nothing when they end but that they were executed. */
static bool brings_nothing(const struct shim_qp *q, uint64_t number)
{
	enum ibv_wr_opcode op = q->send.send[number & q->send.mask].wr.opcode;

	return send_takes_receive(q, number) || op == IBV_WR_RDMA_WRITE || op == SEND_REFUSED;
}

/* Under the queue's lock: the first send that is not known to be executed, or that brings something
 * back. RC executes in order, so one that the peer has received tells of all before it; a WRITE
 * leaves no trace, so it needs a message behind it. */
static uint64_t executed_until(const struct shim_qp *q, uint64_t tail)
{
	uint64_t sent = sent_before(q, tail), known = tail;

	/* More than there were: it counts otherwise than we do. */
	if (q->said.executed > q->sent_all ||
	    shim.fault & (SHIM_FAULT_NO_COUNTS | SHIM_FAULT_NO_MARKER))
		return tail;
	for (uint64_t i = tail; i < q->send.posted && brings_nothing(q, i); i++) {
		if (!send_takes_receive(q, i))
			continue;
		if (++sent > q->said.executed)
			break;
		known = i + 1;
	}
	return known;
}

/* Under the queue's lock. true: a send that is not signalled may not be repeated. */
static bool look_for_stuck(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	uint64_t tail = atomic_load(&s->tail), at = tail, sent = sent_before(q, tail);
	uint64_t taken = shim.fault & SHIM_FAULT_NO_COUNTS ? 0 : q->said.recv_posted;
	uint64_t executed = executed_until(q, tail);

	while (at < s->posted && sent + send_takes_receive(q, at) <= taken)
		sent += send_takes_receive(q, at++);
	if (at == s->posted && executed != at)
		return false; /* the peer can take every one: wait on */
	for (uint64_t i = executed; i < at; i++) {
		enum ibv_wr_opcode op = s->send[i & s->mask].wr.opcode;

		if (send_signalled(q, i))
			return false; /* the completion will come */
		if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD)
			return true;
	}
	q->stuck = true;
	q->stuck_at = at;
	q->sent = sent;
	return false;
}

void stuck_find(struct shim_qp *q)
{
	bool atomic;

	lock_take(&q->send.lock);
	atomic = look_for_stuck(q);
	lock_give(&q->send.lock);
	if (atomic)
		job_fail(-EBUSY,
			 "QP 0x%x has an atomic operation in flight that may not be repeated",
			 q->v.qp_num);
}

/* XRC: any queue of the other end may be the one without receives. It is that of the first message
 * that is not known to be executed, since nothing overtakes it. */
static void find_next(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	uint64_t tail, known = q->said.frozen_by == job.migration ? q->said.executed : 0;

	lock_take(&s->lock);
	tail = atomic_load(&s->tail);
	q->next_at = sent_before(q, tail);
	q->next_srqn = SRQN_NONE;
	for (uint64_t i = tail; i < s->posted; i++) {
		if (!send_takes_receive(q, i))
			continue;
		if (q->next_at >= known) {
			q->next_srqn = s->send[i & s->mask].wr.qp_type.xrc.remote_srqn;
			break;
		}
		q->next_at++;
	}
	lock_give(&s->lock);
}

/* Again, when it has answered and nothing has moved since: it may have received more by now. */
void stuck_ask(struct shim_qp *q, uint64_t now)
{
	bool xrc = q->v.qp_type == IBV_QPT_XRC_SEND;

	if ((q->v.qp_type != IBV_QPT_RC && !xrc) || !q->paired || q->asked_freeze ||
	    now - q->progress_us <= FREEZE_AFTER_US || now - q->asked_us <= FREEZE_AFTER_US)
		return;
	if (xrc)
		find_next(q);
	q->asked_freeze = true;
	q->asked_us = now;
	peer_queue_qp(q, PEER_FREEZE, job.migration);
}

/* On a shared queue any QP may take the next receive: a count is final only when there is none. If
 * the peer still has something to send, it empties the queue, or ends. XRC: and it must be the
 * queue of the next message. */
static bool takes_no_more(struct shim_qp *q)
{
	struct shim_srq *s = q->xrcd ? srq_by_number(q->said.next_srqn) : NULL;

	if (q->v.srq)
		s = to_srq(q->v.srq);
	else if (!q->xrcd)
		return true;
	else if (!s || s->xrcd != q->xrcd)
		return false; /* the hardware ends what is sent to it */
	srq_hold(q, s);
	return srq_is_empty(s) && (!q->xrcd || atomic_load(&q->recv.tail) == q->said.next_at);
}

/* Until the count is final it hears at least what has come. */
void stuck_freeze(struct shim_qp *q)
{
	bool tell = !q->told_executed;

	if (takes_no_more(q)) {
		lock_take(&q->recv.lock);
		queue_hold(&q->recv, true);
		lock_give(&q->recv.lock);
		q->told_frozen = tell = true;
	}
	q->told_executed = true;
	if (tell)
		peer_queue_qp(q, PEER_FROZEN, job.migration);
}

/* The completion that the hardware owes for a send. One that it makes after all is for a number
 * that is not under way any more, which nobody sees. */
static void finish(struct shim_qp *q, uint64_t number)
{
	const struct ibv_send_wr *wr = &q->send.send[number & q->send.mask].wr;
	struct ibv_wc wc = {.wr_id = wr->wr_id,
			    .status = IBV_WC_SUCCESS,
			    .opcode = IBV_WC_SEND,
			    .qp_num = q->v.qp_num};

	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wc.opcode = IBV_WC_RDMA_WRITE;
	if (!cq_add(q->send_cq, &wc))
		shim_log("QP 0x%x: no memory for the completion of wr_id 0x%llx", q->v.qp_num,
			 (unsigned long long)wr->wr_id);
}

void stuck_retire(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	uint64_t received = q->said.drained_by == job.migration ? q->said.received
								: q->said.executed;
	unsigned finished = 0;
	uint64_t done, sent;

	lock_take(&s->lock);
	lock_take(&q->send_cq->lock);
	cq_harvest_locked(q->send_cq);
	done = atomic_load(&s->tail);
	sent = sent_before(q, done);
	while (done < q->stuck_at && sent + send_takes_receive(q, done) <= received) {
		sent += send_takes_receive(q, done);
		if (send_signalled(q, done)) {
			finish(q, done);
			finished++;
		}
		done++;
	}
	atomic_store(&s->tail, done);
	lock_give(&q->send_cq->lock);
	lock_give(&s->lock);
	if (!finished)
		return;
	cq_announce(q->send_cq);
	shim_log("QP 0x%x: %u sends had been executed, but not acknowledged", q->v.qp_num,
		 finished);
}
