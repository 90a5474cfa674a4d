/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The device that moves messages between QPs of the process. A thread executes sends in order, one
 * of each QP at a time. The thread stops at a send that finds no receive (RNR) or no QP that
 * listens. */
#include "tests/fake/verbs/verbs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static pthread_cond_t kicked = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t kick_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t kicks;
static bool lose_acks, end_retries, wire_held; /* under the device's lock */

void fake_wire_kick(void)
{
	pthread_mutex_lock(&kick_lock);
	kicks++;
	pthread_cond_signal(&kicked);
	pthread_mutex_unlock(&kick_lock);
}

static void tell(struct fake_qp *q, const struct fake_send *s)
{
	struct ibv_wc wc = {.wr_id = s->wr.wr_id,
			    .status = s->status,
			    .opcode = s->wr.opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE,
			    .qp_num = q->v.qp_num};

	if (q->sig_all || s->wr.send_flags & IBV_SEND_SIGNALED || s->status)
		fake_complete((struct fake_cq *)q->v.send_cq, &wc, false);
}

/* Tells of executed sends, unless acknowledgements are lost. */
static void acknowledge(struct fake_qp *q)
{
	while (!lose_acks && q->acked != q->send_tail)
		tell(q, &q->send[q->acked++ & (FAKE_RING - 1)]);
}

void fake_lose_acks(bool lose)
{
	fake_lock();
	lose_acks = lose;
	for (unsigned i = 0; i < FAKE_QPS; i++)
		if (fake_qp_at(i))
			acknowledge(fake_qp_at(i));
	fake_unlock();
}

/* The message arrives: its data, and the completion of the receive. */
static enum ibv_wc_status deliver(struct fake_qp *from, struct fake_qp *to, struct fake_srq *srq,
				  const struct fake_send *s)
{
	struct fake_recv *r = srq ? &srq->recv[srq->tail & (FAKE_RING - 1)]
				  : &to->recv[to->recv_tail & (FAKE_RING - 1)];
	struct fake_cq *cq = srq && srq->cq ? srq->cq : (struct fake_cq *)to->v.recv_cq;
	struct ibv_wc wc = {.wr_id = r->wr_id,
			    .opcode = IBV_WC_RECV,
			    .byte_len = s->sge.length,
			    .qp_num = to->v.qp_num,
			    .src_qp = from->v.qp_num};

	if (!fake_mr_by_key(s->sge.lkey, s->sge.addr, s->sge.length))
		return IBV_WC_LOC_PROT_ERR;
	if (!fake_mr_by_key(r->sge.lkey, r->sge.addr, s->sge.length))
		return IBV_WC_REM_OP_ERR;
	memcpy((void *)(uintptr_t)r->sge.addr, (void *)(uintptr_t)s->sge.addr, s->sge.length);
	*(srq ? &srq->tail : &to->recv_tail) += 1;
	fake_complete(cq, &wc, s->wr.send_flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}

/* A datagram arrives behind room for a GRH, or is lost: nobody hears of that. */
static enum ibv_wc_status deliver_datagram(struct fake_qp *from, const struct fake_send *s)
{
	struct fake_qp *to = fake_qp_by_number(s->wr.wr.ud.remote_qpn);
	struct fake_recv *r = to ? &to->recv[to->recv_tail & (FAKE_RING - 1)] : NULL;
	struct ibv_wc wc = {.opcode = IBV_WC_RECV,
			    .byte_len = FAKE_GRH + s->sge.length,
			    .qp_num = to ? to->v.qp_num : 0,
			    .src_qp = from->v.qp_num,
			    .slid = (uint16_t)fake_lid(0)};

	if (!to || to->v.state < IBV_QPS_RTR || to->recv_tail == to->recv_head ||
	    s->ah.dlid != fake_lid(0) || r->sge.length < FAKE_GRH + s->sge.length)
		return IBV_WC_SUCCESS;
	wc.wr_id = r->wr_id;
	if (s->ah.is_global)
		fake_write_grh((void *)(uintptr_t)r->sge.addr, &wc);
	memcpy((char *)(uintptr_t)r->sge.addr + FAKE_GRH, (void *)(uintptr_t)s->sge.addr,
	       s->sge.length);
	to->recv_tail++;
	fake_complete((struct fake_cq *)to->v.recv_cq, &wc, s->wr.send_flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}

/* An RDMA WRITE; one of no bytes needs no key. */
static enum ibv_wc_status write_remote(const struct fake_send *s)
{
	uint64_t to = s->wr.wr.rdma.remote_addr;

	if (!s->sge.length)
		return IBV_WC_SUCCESS;
	if (!fake_mr_by_key(s->sge.lkey, s->sge.addr, s->sge.length))
		return IBV_WC_LOC_PROT_ERR;
	if (!fake_mr_by_key(s->wr.wr.rdma.rkey, to, s->sge.length))
		return IBV_WC_REM_ACCESS_ERR;
	memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)s->sge.addr, s->sge.length);
	return IBV_WC_SUCCESS;
}

void fake_hold_wire(bool hold)
{
	fake_lock();
	wire_held = hold;
	fake_unlock();
	fake_wire_kick();
}

void fake_end_retries(void)
{
	fake_lock();
	end_retries = true;
	fake_unlock();
	fake_wire_kick();
}

static void give_up(struct fake_qp *q, struct fake_send *s, enum ibv_wc_status status)
{
	s->status = status;
	q->send_tail++;
	acknowledge(q);
	q->v.state = IBV_QPS_ERR;
}

/* Returns whether the QP's oldest send has ended. */
static bool step(struct fake_qp *q)
{
	struct fake_send *s = &q->send[q->send_tail & (FAKE_RING - 1)];
	struct fake_qp *to = fake_qp_by_number(q->dest);
	struct fake_srq *srq;

	if (q->send_tail == q->send_head || q->v.state != IBV_QPS_RTS || wire_held)
		return false;
	if (q->v.qp_type == IBV_QPT_UD) {
		s->status = deliver_datagram(q, s);
		q->send_tail++;
		acknowledge(q);
		return true;
	}
	if (!to && end_retries) {
		give_up(q, s, IBV_WC_RETRY_EXC_ERR); /* nobody acknowledges it */
		return true;
	}
	if (!to || to->v.state < IBV_QPS_RTR || to->dest != q->v.qp_num ||
	    (q->dlid && q->dlid != fake_lid(0)))
		return false;
	srq = q->v.qp_type == IBV_QPT_XRC_SEND ? fake_srq_by_number(s->wr.qp_type.xrc.remote_srqn)
					       : (struct fake_srq *)to->v.srq;
	/* An XRC request names a queue of the target's domain. */
	if (q->v.qp_type == IBV_QPT_XRC_SEND && (!to->xrcd || !srq || srq->xrcd != to->xrcd)) {
		give_up(q, s, IBV_WC_REM_INV_REQ_ERR);
		return true;
	}
	if (s->wr.opcode == IBV_WR_SEND) {
		if (srq ? srq->tail == srq->head : to->recv_tail == to->recv_head)
			return false;
		s->status = deliver(q, to, srq, s);
	} else {
		s->status = write_remote(s);
	}
	q->send_tail++;
	acknowledge(q);
	return true;
}

static void *wire_main(void *arg)
{
	uint64_t seen = 0;
	bool any;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&kick_lock);
		while (kicks == seen)
			pthread_cond_wait(&kicked, &kick_lock);
		seen = kicks;
		pthread_mutex_unlock(&kick_lock);
		do {
			any = false;
			/* A lock for each: what the program does comes in between. */
			for (unsigned i = 0; i < FAKE_QPS; i++) {
				fake_lock();
				any |= fake_qp_at(i) && step(fake_qp_at(i));
				fake_unlock();
			}
		} while (any);
	}
	return NULL;
}

static void start(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, wire_main, NULL))
		pthread_detach(thread);
}

void fake_wire_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
}

int fake_wire_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)ibqp;
	int rc = 0;

	fake_lock();
	for (; wr && !rc; wr = rc ? wr : wr->next) {
		struct fake_send *s = &q->send[q->send_head & (FAKE_RING - 1)];

		if (q->send_head - q->acked == FAKE_RING || wr->num_sge > 1 ||
		    q->v.state < IBV_QPS_RTS) {
			*bad = wr;
			rc = EINVAL;
			continue;
		}
		s->wr = *wr;
		if (q->v.qp_type == IBV_QPT_UD)
			s->ah = ((struct fake_ah *)wr->wr.ud.ah)->attr;
		s->sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){0};
		q->send_head++;
	}
	fake_unlock();
	fake_wire_kick();
	return rc;
}

int fake_wire_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)ibqp;
	int rc = 0;

	fake_lock();
	for (; wr && !rc; wr = rc ? wr : wr->next) {
		struct fake_recv *r = &q->recv[q->recv_head & (FAKE_RING - 1)];

		if (q->recv_head - q->recv_tail == FAKE_RING || wr->num_sge != 1) {
			*bad = wr;
			rc = EINVAL;
			continue;
		}
		r->wr_id = wr->wr_id;
		r->sge = wr->sg_list[0];
		q->recv_head++;
	}
	fake_unlock();
	fake_wire_kick();
	return rc;
}

int fake_wire_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int got = 0;

	fake_lock();
	while (got < n && cq->tail != cq->head)
		wc[got++] = cq->ring[cq->tail++ & (FAKE_RING - 1)];
	fake_unlock();
	return got;
}
