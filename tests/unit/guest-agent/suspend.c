/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A drain whose sends do not end, on hardware and with a peer that are played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"
#include "tests/unit/guest-agent/channel_stub.h"
#include "tests/unit/guest-agent/refuse_stub.h"
#include "tests/unit/guest-agent/shim_stub.h"
#include "tests/unit/guest-agent/ud_stub.h"

#define QPN       0x31
#define VQPN      0x11
#define GUID      0xa1b2fffe000001ull
#define MIGRATION 77
#define DONE_MAX  64
#define STALL_US  1000000 /* more than a drain waits for progress */

struct shim_job job;
struct shim shim = {
	.call = PTHREAD_MUTEX_INITIALIZER,
	.contexts = LIST_INIT(shim.contexts),
	.pds = LIST_INIT(shim.pds),
	.xrcds = LIST_INIT(shim.xrcds),
	.mrs = LIST_INIT(shim.mrs),
	.channels = LIST_INIT(shim.channels),
	.cqs = LIST_INIT(shim.cqs),
	.srqs = LIST_INIT(shim.srqs),
	.qps = LIST_INIT(shim.qps),
	.peers = LIST_INIT(shim.peers),
	.ctl = PTHREAD_MUTEX_INITIALIZER,
};

/* The hardware, and what the peer was told. */
static struct {
	struct ibv_wc wc[DONE_MAX];
	unsigned wc_head, wc_tail, sends, recvs;
	uint64_t send_id[DONE_MAX], recv_id[DONE_MAX];
	uint32_t sq_psn, rq_psn;
} hw;
static unsigned told[32], reports;
static uint64_t said_received;

static struct shim_context *ctx;
static struct shim_cq *cq;
static struct shim_qp *q, *other;
static struct shim_srq *srq;
static struct shim_pd pd;
static struct shim_peer peer;
static struct ibv_context real_ctx;
static struct ibv_qp real_qp[2];
static struct ibv_cq real_cq;
static struct ibv_srq real_srq;

static int hw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	hw.send_id[hw.sends++] = wr->wr_id;
	return 0;
}

static int hw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)bad;
	hw.recv_id[hw.recvs++] = wr->wr_id;
	return 0;
}

static int hw_post_srq(struct ibv_srq *s, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)s;
	(void)bad;
	hw.recv_id[hw.recvs++] = wr->wr_id;
	return 0;
}

static int hw_poll(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	int got = 0;

	(void)c;
	while (got < n && hw.wc_tail != hw.wc_head)
		wc[got++] = hw.wc[hw.wc_tail++];
	return got;
}

static int hw_arm(struct ibv_cq *c, int solicited)
{
	(void)c;
	(void)solicited;
	return 0;
}

static void hw_complete(uint64_t wr_id, uint32_t qpn)
{
	hw.wc[hw.wc_head++] = (struct ibv_wc){.wr_id = wr_id, .qp_num = qpn};
}

static struct ibv_srq *hw_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *init)
{
	(void)p;
	(void)init;
	real_srq.context = &real_ctx;
	return &real_srq;
}

static int hw_destroy_srq(struct ibv_srq *s)
{
	(void)s;
	return 0;
}

static int hw_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,
		       struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)mask;
	(void)init;
	a->sq_psn = hw.sq_psn;
	a->rq_psn = hw.rq_psn;
	return 0;
}

/* The clock stands still: time passes where a test says so. */
uint64_t now_us(void)
{
	return 10 * STALL_US;
}

/* Stubs of the other files that the files under test need. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real verbs = {.create_srq = hw_create_srq,
					       .destroy_srq = hw_destroy_srq,
					       .query_qp = hw_query_qp};

	return &verbs;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *index)
{
	(void)o;
	(void)index;
	return c == ctx;
}
void peer_queue_qp(struct shim_qp *qp, uint16_t type, uint64_t migration)
{
	assert_int_equal(migration, MIGRATION);
	if (qp != q)
		return;
	told[type]++;
	said_received = atomic_load(&qp->recv.tail);
}
void peer_send_gone(const struct shim_qp *qp, uint64_t migration)
{
	assert_ptr_equal(qp, q);
	assert_int_equal(migration, MIGRATION);
	told[PEER_GONE]++;
}
void job_send_report(uint16_t type)
{
	assert_int_equal(type, SHIM_QUIET);
	reports++;
}
/* As the real one does: the QPs go on. */
void job_fail(int error, const char *fmt, ...)
{
	struct shim_qp *each;

	(void)fmt;
	assert_int_equal(job.error, 0);
	job.error = error;
	job.state = JOB_IDLE;
	list_for_each (each, &shim.qps, link)
		qp_unhold(each);
}
void qp_unhold(struct shim_qp *qp)
{
	queue_hold(&qp->recv, false);
	queue_hold(&qp->send, false);
	qp->phase = QP_LIVE;
	qp->in_job = false;
	srq_unhold(qp);
}
void qp_destroy_real(struct shim_qp *qp)
{
	qp->real = NULL;
}
void context_keep_events(struct shim_context *c)
{
	(void)c;
}
void context_close(struct shim_context *c)
{
	(void)c;
}
uint64_t dirty_job(void)
{
	return 0;
}
void channel_take_events(struct shim_channel *ch)
{
	(void)ch;
}
void channel_drop_events(struct ibv_comp_channel *real)
{
	(void)real;
}
void channel_detach(struct shim_channel *ch)
{
	(void)ch;
}
void channel_close(struct shim_channel *ch)
{
	(void)ch;
}
void channel_push(struct shim_channel *ch, struct shim_cq *c, enum cq_due due)
{
	(void)ch;
	(void)c;
	(void)due;
}
void peer_want(struct shim_qp *qp)
{
	(void)qp;
}

static struct shim_qp *make_qp(unsigned n)
{
	struct shim_qp *qp = calloc(1, sizeof(*qp));

	real_qp[n] = (struct ibv_qp){.context = &real_ctx, .qp_num = QPN + n};
	qp->ctx = ctx;
	qp->real = &real_qp[n];
	qp->send_cq = qp->recv_cq = cq;
	qp->v = (struct ibv_qp){.qp_num = VQPN + n, .state = IBV_QPS_RTS, .qp_type = IBV_QPT_RC};
	qp->peer = &peer;
	qp->connected = true;
	table_set(&ctx->qp_by_qpn, QPN + n, (uintptr_t)qp, TABLE_MAX / TABLE_CHUNK);
	list_add(&shim.qps, &qp->link);
	assert_int_equal(queue_init(&qp->send, 16, 1, 0, true), 0);
	assert_int_equal(queue_init(&qp->recv, 16, 1, 0, false), 0);
	return qp;
}

static int setup(void **state)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};

	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(told, 0, sizeof(told));
	reports = 0;
	shim.fault = 0;
	real_ctx.ops.post_send = hw_post_send;
	real_ctx.ops.post_recv = hw_post_recv;
	real_ctx.ops.post_srq_recv = hw_post_srq;
	real_ctx.ops.poll_cq = hw_poll;
	real_ctx.ops.req_notify_cq = hw_arm;
	real_cq.context = &real_ctx;
	ctx = calloc(1, sizeof(*ctx));
	cq = calloc(1, sizeof(*cq));
	cq->ctx = pd.ctx = ctx;
	cq->real = &real_cq;
	list_add(&shim.contexts, &ctx->link);
	list_add(&shim.cqs, &cq->link);
	pd.v.context = &ctx->verbs.context;
	q = make_qp(0);
	other = make_qp(1);
	srq = to_srq(ibv_create_srq(&pd.v, &init));
	memset(&job, 0, sizeof(job));
	job.role = SHIM_ROLE_MOVER;
	job.migration = MIGRATION;
	job.order.vguid_count = 1;
	job.order.vguid[0] = GUID;
	job.state = JOB_ENTER;
	return 0;
}

static void free_qp(struct shim_qp *qp)
{
	list_del(&qp->link);
	queue_free(&qp->send);
	queue_free(&qp->recv);
	free(qp);
}

static int teardown(void **state)
{
	(void)state;
	ibv_destroy_srq(&srq->v);
	free_qp(q);
	free_qp(other);
	list_del(&cq->link);
	list_del(&ctx->link);
	table_free(&ctx->qp_by_qpn);
	free(cq->soft);
	free(cq);
	free(ctx);
	return 0;
}

static void send_one_as(uint64_t wr_id, enum ibv_wr_opcode op, unsigned flags)
{
	struct ibv_send_wr *bad, wr = {.wr_id = wr_id, .opcode = op, .send_flags = flags};

	/* A peer without a shim: its keys are what they are. */
	q->peer = NULL;
	assert_int_equal(shim_post_send(&q->v, &wr, &bad), 0);
	q->peer = &peer;
}

static void send_one(enum ibv_wr_opcode op, unsigned flags)
{
	send_one_as(0, op, flags);
}

static void recv_one(uint64_t wr_id)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id};

	assert_int_equal(shim_post_srq_recv(&srq->v, &wr, &bad), 0);
}

/* The other QP has nothing to do; the peer is done with it at once. */
static void other_is_quiet(void)
{
	other->said.drained_by = MIGRATION;
}

/* Nothing has moved for long. */
static void stall(void)
{
	q->progress_us -= STALL_US;
	q->asked_us -= STALL_US;
}

/* Does what job_qp_event() makes of an answer to PEER_FREEZE. */
static void peer_froze(uint64_t recv_posted, uint64_t executed)
{
	q->said.frozen_by = MIGRATION;
	q->said.recv_posted = recv_posted;
	q->said.executed = executed;
	q->asked_freeze = false;
	suspend_drain();
}

/* Until the peer is asked how many receives it had. */
static void drain_until_asked(void)
{
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	stall();
	suspend_drain();
	assert_int_equal(told[PEER_FREEZE], 1);
	assert_int_equal(told[PEER_DRAINED], 0);
}

static void drain_until_frozen(uint64_t recv_posted)
{
	drain_until_asked();
	peer_froze(recv_posted, 0);
}

static void peer_received(uint64_t n)
{
	q->said.drained_by = MIGRATION;
	q->said.received = n;
	suspend_drain();
}

static void what_no_receive_waits_for_is_replayed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		send_one(IBV_WR_SEND, 0);
	drain_until_frozen(3);
	assert_true(q->stuck);
	assert_int_equal(q->sent, 3);
	assert_int_equal(told[PEER_DRAINED], 1);
	peer_received(2);
	assert_int_equal(reports, 0); /* the third is still on its way */
	peer_received(3);
	assert_int_equal(reports, 1);
	assert_int_equal(job.state, JOB_QUIET);
	job.role = SHIM_ROLE_PEER;
	job_release();
	assert_int_equal(atomic_load(&q->send.tail), 3);
	assert_int_equal(q->send.posted, 4);
}

static void an_atomic_that_may_have_been_executed_fails_the_suspend(void **state)
{
	(void)state;
	send_one(IBV_WR_SEND, 0);
	send_one(IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
	send_one(IBV_WR_SEND, 0);
	drain_until_frozen(1);
	assert_int_equal(job.error, -EBUSY);
	/* The program goes on, and the peer has not been told anything else. */
	assert_int_equal(q->phase, QP_LIVE);
	assert_false(q->stuck);
	assert_int_equal(told[PEER_DRAINED], 0);
	assert_int_equal(reports, 0);
}

static void an_atomic_with_a_completion_is_waited_for(void **state)
{
	(void)state;
	send_one(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED);
	send_one(IBV_WR_SEND, 0);
	drain_until_frozen(0);
	suspend_drain();
	assert_int_equal(job.error, 0);
	assert_int_equal(told[PEER_DRAINED], 0);
	hw_complete(hw.send_id[0], QPN);
	suspend_drain();
	assert_true(q->stuck);
	assert_int_equal(told[PEER_DRAINED], 1);
	peer_received(0);
	assert_int_equal(reports, 1);
}

/* RC executes in order: what is behind a send that waits for a receive was not executed. */
static void an_atomic_behind_a_stuck_send_is_not_in_flight(void **state)
{
	(void)state;
	send_one(IBV_WR_SEND, 0);
	send_one(IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
	drain_until_frozen(0);
	assert_int_equal(job.error, 0);
	assert_true(q->stuck);
	peer_received(0);
	assert_int_equal(reports, 1);
	job.role = SHIM_ROLE_PEER;
	job_release();
	assert_int_equal(atomic_load(&q->send.tail), 0);
}

/* Polls n completions of sends: their wr_ids are first, first + 1, ... */
static void completed(uint64_t first, int n, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc[8];

	assert_int_equal(shim_poll_cq(&cq->v, n, wc), n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(wc[i].wr_id, first + (uint64_t)i);
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[i].opcode, opcode);
		assert_int_equal(wc[i].qp_num, VQPN);
	}
}

static void release_as_peer(void)
{
	assert_int_equal(reports, 1);
	assert_int_equal(job.state, JOB_QUIET);
	job.role = SHIM_ROLE_PEER;
	job_release();
}

/* The hardware would ask again, and get the acknowledgement then: after seconds. */
static void what_was_executed_needs_no_acknowledgement(void **state)
{
	struct ibv_wc wc;

	(void)state;
	for (uint64_t i = 1; i <= 2; i++)
		send_one_as(i, IBV_WR_SEND, IBV_SEND_SIGNALED);
	send_one_as(3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
	send_one_as(4, IBV_WR_RDMA_WRITE, 0);
	send_one_as(5, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED);
	drain_until_asked();
	hw_complete(hw.send_id[0], QPN);
	hw.wc[0].opcode = IBV_WC_SEND;
	peer_froze(9, 3);
	assert_true(q->stuck);
	assert_int_equal(told[PEER_DRAINED], 1);
	peer_received(3);
	/* Nothing is given before there is no way back: the hardware has the slots still. */
	assert_int_equal(atomic_load(&q->send.tail), 1);
	completed(1, 1, IBV_WC_SEND);
	assert_int_equal(shim_poll_cq(&cq->v, 1, &wc), 0);
	hw_complete(hw.send_id[1], QPN); /* after all, just before the release */
	hw.wc[1].opcode = IBV_WC_SEND;
	release_as_peer();
	hw_complete(hw.send_id[2], QPN); /* and after it */
	completed(2, 1, IBV_WC_SEND);
	completed(3, 1, IBV_WC_RDMA_WRITE);
	completed(5, 1, IBV_WC_SEND);
	assert_int_equal(shim_poll_cq(&cq->v, 1, &wc), 0);
	assert_int_equal(atomic_load(&q->send.tail), 5);
}

/* Requests that the peer has got end; a request that it has no receive for is replayed. */
static void executed_in_front_of_a_stuck_send(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		send_one_as(i, IBV_WR_SEND, IBV_SEND_SIGNALED);
	drain_until_asked();
	peer_froze(2, 1);
	assert_false(q->stuck); /* the second is still on its way */
	suspend_drain();
	assert_int_equal(told[PEER_FREEZE], 1);
	stall();
	suspend_drain();
	assert_int_equal(told[PEER_FREEZE], 2); /* has it come? */
	peer_froze(2, 2);
	assert_true(q->stuck);
	assert_int_equal(q->sent, 2);
	peer_received(2);
	release_as_peer();
	completed(1, 2, IBV_WC_SEND);
	assert_int_equal(atomic_load(&q->send.tail), 2);
	assert_int_equal(q->send.posted, 3);
}

/* No message behind it tells that it was executed. */
static void a_write_at_the_end_is_waited_for(void **state)
{
	(void)state;
	send_one_as(1, IBV_WR_SEND, IBV_SEND_SIGNALED);
	send_one_as(2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
	drain_until_asked();
	peer_froze(9, 1);
	assert_false(q->stuck);
	hw_complete(hw.send_id[0], QPN);
	hw_complete(hw.send_id[1], QPN);
	suspend_drain();
	peer_received(1);
	assert_int_equal(reports, 1);
}

/* Reads and atomics bring something that only the hardware has. */
static void reads_and_atomics_are_waited_for(void **state)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		send_one_as(1, op[i], IBV_SEND_SIGNALED);
		send_one_as(2, IBV_WR_SEND, IBV_SEND_SIGNALED);
		drain_until_asked();
		peer_froze(9, 1);
		assert_false(q->stuck);
		assert_int_equal(told[PEER_DRAINED], 0);
		teardown(state);
		setup(state);
	}
}

/* The peer counts otherwise than we do: nothing is known by its count. */
static void counts_that_do_not_fit_are_not_believed(void **state)
{
	(void)state;
	send_one_as(1, IBV_WR_SEND, IBV_SEND_SIGNALED);
	drain_until_asked();
	peer_froze(9, 2);
	assert_false(q->stuck);
	peer_froze(9, 1);
	assert_true(q->stuck);
}

/* A receive that has failed is no message that was executed. */
static void a_failed_receive_spoils_the_count(void **state)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = 1};
	struct ibv_wc wc;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(shim_post_recv(&q->v, &wr, &bad), 0);
	hw_complete(TAG_RECV | 0, QPN);
	assert_int_equal(shim_poll_cq(&cq->v, 1, &wc), 1);
	assert_false(q->uncounted);
	hw_complete(TAG_RECV | 1, QPN);
	hw.wc[1].status = IBV_WC_WR_FLUSH_ERR;
	assert_int_equal(shim_poll_cq(&cq->v, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 1);
	assert_true(q->uncounted);
	assert_int_equal(atomic_load(&q->recv.tail), 2);
}

static void a_count_on_a_shared_queue_is_told_when_it_is_empty(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	q->v.srq = other->v.srq = &srq->v;
	for (uint64_t i = 1; i <= 3; i++)
		recv_one(i);
	suspend_enter();
	other_is_quiet();
	q->said.freeze_by = MIGRATION;
	suspend_drain();
	recv_one(4); /* posted too late to count */
	assert_int_equal(hw.recvs, 3);
	hw_complete(hw.recv_id[1], QPN);
	hw_complete(hw.recv_id[0], QPN + 1);
	suspend_drain();
	assert_int_equal(told[PEER_FROZEN], 1); /* anyone may take the receive left */
	assert_false(q->told_frozen);
	hw_complete(hw.recv_id[2], QPN);
	suspend_drain();
	assert_int_equal(told[PEER_FROZEN], 2);
	assert_true(q->told_frozen);
	assert_int_equal(said_received, 2);
	assert_int_equal(atomic_load(&other->recv.tail), 1);
	peer_received(0);
	assert_int_equal(reports, 1);
	/* the program gets them as they came, then its post reaches the hardware */
	assert_int_equal(shim_poll_cq(&cq->v, 4, wc), 3);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[1].wr_id, 1);
	assert_int_equal(wc[1].qp_num, VQPN + 1);
	qp_unhold(q);
	assert_int_equal(hw.recvs, 4);
}

/* UC: what the peer has sent up to the hold, as it says. */
static void peer_sent(uint64_t messages, uint32_t end_psn)
{
	q->said.drained_by = MIGRATION;
	q->said.sent = messages;
	q->said.end_psn = end_psn;
	q->said.end_psn_known = true;
}

static void uc_waits_for_the_last_packet(void **state)
{
	(void)state;
	q->v.qp_type = IBV_QPT_UC;
	hw.sq_psn = 0x1234;
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	assert_int_equal(told[PEER_DRAINED], 1);
	assert_true(q->end_psn_known);
	assert_int_equal(q->end_psn, 0x1234);
	hw.rq_psn = 7;
	peer_sent(1, 9);
	suspend_drain();
	assert_int_equal(job.state, JOB_DRAIN);
	atomic_store(&q->recv.tail, 1); /* the message is there, a WRITE behind it is not */
	suspend_drain();
	assert_int_equal(job.state, JOB_DRAIN);
	hw.rq_psn = 9;
	suspend_drain();
	assert_int_equal(job.state, JOB_QUIET);
}

static void uc_gives_up_what_is_lost(void **state)
{
	(void)state;
	q->v.qp_type = IBV_QPT_UC;
	suspend_enter();
	other_is_quiet();
	peer_sent(5, 9);
	atomic_store(&q->recv.tail, 3);
	suspend_drain();
	q->arrival_us -= STALL_US;
	hw.rq_psn = 8; /* something came */
	suspend_drain();
	assert_int_equal(job.state, JOB_DRAIN);
	q->arrival_us -= STALL_US;
	suspend_drain();
	assert_int_equal(job.state, JOB_QUIET);
	assert_int_equal(told[PEER_FREEZE], 0);
	/* And does not wait for it again. */
	job_release();
	assert_int_equal(q->recv_lost, 2);
}

/* The other end is paired with us since our question came; its answer is on the way. */
static void a_question_under_way_is_waited_for(void **state)
{
	(void)state;
	q->peer = NULL;
	q->resolve = RESOLVE_WAITS;
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	assert_int_equal(reports, 0);
	q->peer = &peer;
	q->resolve = RESOLVE_DONE;
	suspend_drain();
	assert_int_equal(told[PEER_DRAINED], 1);
	assert_int_equal(reports, 0);
	peer_received(0);
	assert_int_equal(reports, 1);
}

/* A peer that answers BUSY, or not at all, is not paired with us. */
static void who_does_not_answer_is_not_waited_for(void **state)
{
	(void)state;
	q->peer = NULL;
	q->resolve = RESOLVE_WAITS;
	q->resolve_busy = true;
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	assert_int_equal(reports, 1);
	assert_int_equal(told[PEER_DRAINED], 0);
}

/* Whoever does not answer may have died: that would be the answer. */
static void an_end_that_is_silent_is_asked_again(void **state)
{
	(void)state;
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	suspend_drain();
	assert_int_equal(told[PEER_DRAINED], 1);
	q->asked_us -= ASK_PEER_US;
	suspend_drain();
	suspend_drain();
	assert_int_equal(told[PEER_DRAINED], 2);
	assert_int_equal(reports, 0);
	q->said.gone = true;
	suspend_drain();
	assert_int_equal(reports, 1);
}

static void who_has_stuck_sends_asks_again_too(void **state)
{
	(void)state;
	send_one(IBV_WR_SEND, 0);
	suspend_enter();
	other_is_quiet();
	stall();
	suspend_drain();
	assert_int_equal(told[PEER_FREEZE], 1);
	q->asked_us -= ASK_PEER_US;
	suspend_drain();
	assert_int_equal(told[PEER_FREEZE], 2);
	q->said.gone = true;
	suspend_drain();
	assert_int_equal(reports, 1);
}

/* The program has disconnected between the other end's suspend and ours. */
static void who_waits_for_a_qp_in_err_is_told(void **state)
{
	(void)state;
	q->v.state = IBV_QPS_ERR;
	q->said.drained_by = MIGRATION;
	suspend_enter();
	assert_int_equal(told[PEER_GONE], 1);
	other_is_quiet();
	suspend_drain();
	assert_int_equal(reports, 1);
	assert_int_equal(told[PEER_DRAINED], 0);
}

/* The peer's guest may have gone long since, and nobody there waits. */
static void of_a_qp_in_err_nobody_is_told_unasked(void **state)
{
	(void)state;
	q->v.state = IBV_QPS_ERR;
	q->said.drained_by = MIGRATION - 1;
	suspend_enter();
	other_is_quiet();
	suspend_drain();
	assert_int_equal(reports, 1);
	assert_int_equal(told[PEER_GONE], 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_no_receive_waits_for_is_replayed),
		T(an_atomic_that_may_have_been_executed_fails_the_suspend),
		T(an_atomic_with_a_completion_is_waited_for),
		T(an_atomic_behind_a_stuck_send_is_not_in_flight),
		T(what_was_executed_needs_no_acknowledgement),
		T(executed_in_front_of_a_stuck_send),
		T(a_write_at_the_end_is_waited_for),
		T(reads_and_atomics_are_waited_for),
		T(counts_that_do_not_fit_are_not_believed),
		T(a_failed_receive_spoils_the_count),
		T(a_question_under_way_is_waited_for),
		T(who_does_not_answer_is_not_waited_for),
		T(a_count_on_a_shared_queue_is_told_when_it_is_empty),
		T(uc_waits_for_the_last_packet),
		T(uc_gives_up_what_is_lost),
		T(an_end_that_is_silent_is_asked_again),
		T(who_has_stuck_sends_asks_again_too),
		T(who_waits_for_a_qp_in_err_is_told),
		T(of_a_qp_in_err_nobody_is_told_unasked),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
