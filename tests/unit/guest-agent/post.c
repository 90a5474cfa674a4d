/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data path of the shim on a QP whose hardware is played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/post.h"
#include "tests/unit/guest-agent/channel_stub.h"
#include "tests/unit/guest-agent/shim_stub.h"
#include "tests/unit/guest-agent/srq_stub.h"
#include "tests/unit/guest-agent/ud_stub.h"

#define CAP      4
#define QPN      0x31 /* the hardware's */
#define VQPN     0x11
#define LKEY     0x1200
#define HW_LKEY  0x9900
#define RKEY     0x3400
#define HW_RKEY  0x7700
#define DONE_MAX 32
#define CQE_MAX  100

struct shim shim;

/* The hardware: what it was given, and the completions it will tell. */
static struct {
	struct ibv_send_wr wr[DONE_MAX];
	struct ibv_sge sge[DONE_MAX];
	char data[DONE_MAX][16];
	unsigned sends, recvs;
	uint64_t recv_id[DONE_MAX];
	struct ibv_wc wc[DONE_MAX];
	unsigned wc_head, wc_tail;
	unsigned armed;
	int error, cqe; /* as asked for */
} hw;

static struct shim_qp *q;
static struct shim_cq cq;
static struct shim_context ctx;
static struct shim_peer peer;
static struct ibv_context real_ctx;
static struct ibv_qp real_qp;
static struct ibv_cq real_cq;
static unsigned keys_asked, events_pushed;

static int hw_resize_cq(struct ibv_cq *c, int cqe)
{
	if (cqe > CQE_MAX)
		return EINVAL;
	hw.cqe = cqe;
	for (c->cqe = 1; c->cqe < cqe;)
		c->cqe = c->cqe * 2 + 1;
	return 0;
}
static struct ibv_cq *hw_create_cq(struct ibv_context *context, int cqe, void *arg,
				   struct ibv_comp_channel *channel, int vector)
{
	(void)context, (void)arg, (void)channel, (void)vector;
	errno = hw_resize_cq(&real_cq, cqe);
	return errno ? NULL : &real_cq;
}
static int hw_destroy_cq(struct ibv_cq *c)
{
	(void)c;
	return 0;
}

/* Stubs of the other files that the files under test need. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real played = {
		.create_cq = hw_create_cq, .resize_cq = hw_resize_cq, .destroy_cq = hw_destroy_cq};

	return &played;
}
void channel_push(struct shim_channel *ch, struct shim_cq *c, enum cq_due due)
{
	(void)ch;
	(void)c;
	(void)due;
	events_pushed++;
}
void peer_want(struct shim_qp *qp)
{
	(void)qp;
	keys_asked++;
}

static int hw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	assert_ptr_equal(qp, &real_qp);
	if (hw.error) {
		*bad = wr;
		return hw.error;
	}
	hw.wr[hw.sends] = *wr;
	if (wr->num_sge)
		hw.sge[hw.sends] = wr->sg_list[0];
	if (wr->send_flags & IBV_SEND_INLINE)
		memcpy(hw.data[hw.sends], (void *)(uintptr_t)wr->sg_list[0].addr,
		       wr->sg_list[0].length);
	hw.sends++;
	return 0;
}

static int hw_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
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

static int hw_req_notify(struct ibv_cq *c, int solicited_only)
{
	(void)c;
	(void)solicited_only;
	hw.armed++;
	return 0;
}

static void hw_complete(uint64_t wr_id, uint32_t qpn)
{
	hw.wc[hw.wc_head++] = (struct ibv_wc){.wr_id = wr_id, .qp_num = qpn};
}

static int setup(void **state)
{
	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(&cq, 0, sizeof(cq));
	memset(&ctx, 0, sizeof(ctx));
	list_init(&shim.cqs);
	keys_asked = events_pushed = 0;
	q = calloc(1, sizeof(*q));
	real_ctx.ops.post_send = hw_post_send;
	real_ctx.ops.post_recv = hw_post_recv;
	real_ctx.ops.poll_cq = hw_poll;
	real_ctx.ops.req_notify_cq = hw_req_notify;
	real_qp.context = real_cq.context = &real_ctx;
	real_qp.qp_num = QPN;
	cq.ctx = q->ctx = &ctx;
	cq.real = &real_cq;
	q->real = &real_qp;
	q->send_cq = q->recv_cq = &cq;
	q->v.qp_num = VQPN;
	q->v.qp_type = IBV_QPT_RC;
	q->v.state = IBV_QPS_RTS;
	q->peer = &peer;
	table_set(&ctx.qp_by_qpn, QPN, (uintptr_t)q, TABLE_MAX / TABLE_CHUNK);
	table_set(&shim.keys, LKEY >> 8, key_entry(LKEY, HW_LKEY), TABLE_MAX / TABLE_CHUNK);
	table_set(&peer.keys, RKEY >> 8, key_entry(RKEY, HW_RKEY), TABLE_MAX / TABLE_CHUNK);
	return queue_init(&q->send, CAP, 2, 16, true) || queue_init(&q->recv, CAP, 1, 0, false);
}

static int teardown(void **state)
{
	(void)state;
	queue_free(&q->send);
	queue_free(&q->recv);
	free(q);
	free(cq.soft);
	table_free(&ctx.qp_by_qpn);
	table_free(&shim.keys);
	table_free(&peer.keys);
	return 0;
}

static int send_one(uint64_t wr_id, enum ibv_wr_opcode op, unsigned flags, uint32_t rkey)
{
	char byte = (char)wr_id;
	struct ibv_sge sge = {.addr = (uintptr_t)&byte, .length = 1, .lkey = LKEY};
	struct ibv_send_wr *bad = NULL, wr = {.wr_id = wr_id,
					      .sg_list = &sge,
					      .num_sge = 1,
					      .opcode = op,
					      .send_flags = flags};

	wr.wr.rdma.rkey = rkey;
	int rc = shim_post_send(&q->v, &wr, &bad);
	if (rc)
		assert_ptr_equal(bad, &wr);
	byte = '!'; /* the program uses its buffer again */
	return rc;
}

static int recv_one(uint64_t wr_id)
{
	struct ibv_sge sge = {.lkey = LKEY};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return shim_post_recv(&q->v, &wr, &bad);
}

static uint64_t tail(void)
{
	return atomic_load(&q->send.tail);
}

static void numbers_are_translated(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	assert_int_equal(send_one(7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, RKEY), 0);
	assert_int_equal(hw.sge[0].lkey, HW_LKEY);
	assert_int_equal(hw.wr[0].wr.rdma.rkey, HW_RKEY);
	hw_complete(hw.wr[0].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 7);
	assert_int_equal(wc[0].qp_num, VQPN);
}

static void unsignalled_sends_go_with_the_next(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(send_one(i, IBV_WR_SEND, i == 2 ? IBV_SEND_SIGNALED : 0, 0), 0);
	assert_int_equal(tail(), 0);
	hw_complete(hw.wr[2].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	assert_int_equal(tail(), 3);
	assert_int_equal(q->send.head - q->others, 3);
}

static void a_full_log_refuses(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < CAP; i++)
		assert_int_equal(send_one(i, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(send_one(9, IBV_WR_SEND, 0, 0), ENOMEM);
	assert_int_equal(hw.sends, CAP);
	for (uint64_t i = 0; i < CAP; i++)
		assert_int_equal(recv_one(i), 0);
	assert_int_equal(recv_one(9), ENOMEM);
}

static void a_refused_post_leaves_no_trace(void **state)
{
	(void)state;
	hw.error = EIO;
	assert_int_equal(send_one(1, IBV_WR_SEND, 0, 0), EIO);
	assert_int_equal(q->send.head, 0);
	assert_int_equal(q->send.head - q->others, 0);
	hw.error = 0;
	assert_int_equal(send_one(1, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(q->send.head - q->others, 1);
}

static void held_posts_are_kept_in_order(void **state)
{
	(void)state;
	queue_hold(&q->send, true);
	queue_hold(&q->recv, true);
	assert_int_equal(send_one(1, IBV_WR_SEND, IBV_SEND_INLINE, 0), 0);
	assert_int_equal(send_one(2, IBV_WR_SEND, IBV_SEND_INLINE, 0), 0);
	assert_int_equal(recv_one(3), 0);
	assert_int_equal(hw.sends + hw.recvs, 0);
	queue_hold(&q->send, false);
	queue_hold(&q->recv, false);
	send_flush(q);
	recv_flush(q);
	assert_int_equal(hw.sends, 2);
	assert_int_equal(hw.wr[0].wr_id, TAG_SEND | 0);
	assert_int_equal(hw.wr[1].wr_id, TAG_SEND | 1);
	/* inline data is that of the time of the post */
	assert_int_equal(hw.data[0][0], 1);
	assert_int_equal(hw.data[1][0], 2);
	assert_int_equal(hw.recvs, 1);
	assert_int_equal(hw.recv_id[0], TAG_RECV | 0);
}

/* The refused post counts as nothing that was sent, and is not sent by a replay either. */
static void a_held_post_that_is_refused_is_told_once(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		hw.error = 0;
		if (i == 2) /* a request that is under way is in front of the last */
			assert_int_equal(send_one(9, IBV_WR_SEND, IBV_SEND_SIGNALED, 0), 0);
		queue_hold(&q->send, true);
		assert_int_equal(send_one(i, IBV_WR_SEND, IBV_SEND_SIGNALED, 0), 0);
		queue_hold(&q->send, false);
		hw.error = EIO;
		send_flush(q);
		assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
		assert_int_equal(wc[0].wr_id, i);
		assert_int_equal(wc[0].status, IBV_WC_LOC_QP_OP_ERR);
		assert_false(send_signalled(q, q->send.head - 1));
		assert_int_equal(q->send.head - q->others, i > 1);
		assert_int_equal(tail(), 1);
		hw.error = 0;
		q->send.posted = tail();
		send_flush(q);
		assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 0);
		assert_int_equal(hw.sends, i == 1 ? 0 : i);
	}
	hw_complete(hw.wr[2].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 9);
}

static void held_posts_of_a_qp_that_cannot_send_fail(void **state)
{
	(void)state;
	queue_hold(&q->send, true);
	q->v.state = IBV_QPS_INIT;
	assert_int_equal(send_one(1, IBV_WR_SEND, 0, 0), EINVAL);
}

/* Requests that would wait for a key fail, too. */
static void a_qp_that_cannot_send_waits_for_no_key(void **state)
{
	(void)state;
	q->v.state = IBV_QPS_RESET;
	assert_int_equal(send_one(1, IBV_WR_RDMA_WRITE, 0, 0x5600), EINVAL);
	assert_int_equal(q->send.head, 0);
	q->v.state = IBV_QPS_RTS;
	assert_int_equal(send_one(1, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(hw.sends, 1);
}

/* The queue has room for the marker, which is not the program's. */
static void a_cq_has_the_size_that_was_asked_for(void **state)
{
	struct ibv_cq *c = ibv_create_cq(&ctx.verbs.context, 7, NULL, NULL, 0);

	(void)state;
	assert_non_null(c);
	assert_int_equal(c->cqe, 7);
	assert_int_equal(hw.cqe, 8);
	assert_int_equal(ibv_resize_cq(c, 20), 0);
	assert_int_equal(c->cqe, 20);
	assert_int_equal(hw.cqe, 21);
	assert_int_equal(ibv_resize_cq(c, CQE_MAX), 0);
	assert_int_equal(c->cqe, CQE_MAX);
	assert_int_equal(ibv_resize_cq(c, CQE_MAX + 1), EINVAL);
	assert_int_equal(c->cqe, CQE_MAX);
	assert_int_equal(ibv_destroy_cq(c), 0);
}

static void an_unknown_key_is_fetched(void **state)
{
	const uint32_t later = 0x5600;

	(void)state;
	assert_int_equal(send_one(1, IBV_WR_RDMA_WRITE, 0, later), 0);
	assert_int_equal(send_one(2, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(hw.sends, 0); /* the second must not overtake the first */
	assert_int_equal(keys_asked, 1);
	table_set(&peer.keys, later >> 8, key_entry(later, 0x4400), 16);
	send_flush(q);
	assert_int_equal(hw.sends, 2);
	assert_int_equal(hw.wr[0].wr.rdma.rkey, 0x4400);
	assert_int_equal(hw.wr[1].opcode, IBV_WR_SEND);
}

/* UCX ends a flush by an RDMA WRITE of no bytes, with no key. */
static void no_key_is_not_fetched(void **state)
{
	struct ibv_sge sge = {0};
	struct ibv_send_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .opcode = IBV_WR_RDMA_WRITE};

	(void)state;
	for (wr.num_sge = 0; wr.num_sge < 2; wr.num_sge++) /* the long way, the short one */
		assert_int_equal(shim_post_send(&q->v, &wr, &bad), 0);
	assert_int_equal(hw.sends, 2);
	assert_int_equal(hw.wr[0].wr.rdma.rkey, KEY_NONE);
	assert_int_equal(hw.wr[1].wr.rdma.rkey, KEY_NONE);
	assert_int_equal(keys_asked, 0);
}

static void an_unknown_lkey_becomes_no_key(void **state)
{
	(void)state;
	table_set(&shim.keys, LKEY >> 8, 0, 16);
	assert_int_equal(send_one(1, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(hw.sge[0].lkey, KEY_NONE);
}

/* The first post finds out that those after it can take the short way. */
static void the_short_way_does_the_same(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	assert_int_equal(send_one(1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0), 0);
	assert_true(q->send.direct);
	assert_int_equal(send_one(2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0), 0);
	assert_int_equal(send_one(3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, RKEY), 0);
	assert_int_equal(hw.sge[1].lkey, HW_LKEY);
	assert_int_equal(hw.wr[1].wr_id, TAG_SEND | 1);
	assert_int_equal(hw.wr[2].wr.rdma.rkey, HW_RKEY);
	assert_int_equal(q->send.send[2].wr.wr.rdma.rkey, RKEY); /* the log keeps what was said */
	assert_int_equal(q->send.send[2].wr.sg_list[0].lkey, LKEY);
	assert_int_equal(q->send.head - q->others, 2);
	for (int i = 0; i < 3; i++)
		hw_complete(hw.wr[i].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 3);
	assert_int_equal(wc[2].wr_id, 3);
	assert_int_equal(tail(), 3);
}

static void the_short_way_ends_with_its_reasons(void **state)
{
	(void)state;
	send_one(1, IBV_WR_SEND, 0, 0);
	hw.error = EIO;
	assert_int_equal(send_one(2, IBV_WR_SEND, 0, 0), EIO);
	assert_int_equal(q->send.head, 1);
	hw.error = 0;
	table_set(&shim.keys, LKEY >> 8, 0, 16); /* the key has gone since the last post */
	assert_int_equal(send_one(2, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(hw.sge[1].lkey, KEY_NONE);
	queue_hold(&q->send, true);
	assert_int_equal(send_one(3, IBV_WR_SEND, 0, 0), 0);
	assert_int_equal(hw.sends, 2);
	queue_hold(&q->send, false);
	assert_int_equal(send_one(4, IBV_WR_SEND, 0, 0), 0); /* goes behind the waiting one */
	assert_int_equal(hw.sends, 2);
	send_flush(q);
	assert_int_equal(hw.sends, 4);
	assert_int_equal(send_one(5, IBV_WR_SEND, 0, 0), ENOMEM);
}

static void keys_may_alternate(void **state)
{
	const uint32_t other = 0x1300, hw_other = 0x9a00;
	struct ibv_sge sge = {.length = 1};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};

	(void)state;
	table_set(&shim.keys, other >> 8, key_entry(other, hw_other), TABLE_MAX / TABLE_CHUNK);
	for (int i = 0; i < CAP; i++) {
		sge.lkey = i & 1 ? other : LKEY;
		assert_int_equal(shim_post_send(&q->v, &wr, &bad), 0);
		assert_int_equal(hw.sge[i].lkey, i & 1 ? hw_other : HW_LKEY);
		assert_int_equal(shim_post_recv(&q->v, &recv, &bad_recv), 0);
		assert_int_equal(q->recv.hw_sge.lkey, i == 0 ? 0 : i & 1 ? hw_other : HW_LKEY);
	}
}

static void a_qp_that_is_gone_is_not_remembered(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	send_one(1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	send_one(2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	hw_complete(hw.wr[0].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	table_set(&ctx.qp_by_qpn, QPN, 0, 16);
	cq_forget_qp(&cq, q);
	hw_complete(hw.wr[1].wr_id, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 0);
	assert_int_equal(tail(), 1);
}

static void the_marker_ends_what_was_before_it(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	send_one(1, IBV_WR_SEND, 0, 0);
	send_one(2, IBV_WR_SEND, 0, 0);
	assert_int_equal(send_post_marker(q), 0);
	/* the suspend was given up: the program goes on */
	send_one(3, IBV_WR_SEND, 0, 0);
	hw_complete(TAG_MARKER, QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 0);
	assert_int_equal(tail(), 2);
	assert_false(q->marker);
}

/* perftest -e polls once for each event, and takes none for the end of a send. */
static void an_event_comes_with_a_completion(void **state)
{
	struct shim_channel ch = {.attached = true};
	struct ibv_wc wc[4];

	(void)state;
	cq.channel = &ch;
	send_one(1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	hw_complete(hw.wr[0].wr_id, QPN);
	assert_int_equal(shim_req_notify_cq(&cq.v, 0), 0);
	cq_harvest_old(&cq); /* a suspend comes between this and the program's poll */
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	hw.armed = 0;
	assert_int_equal(cq_event(&cq, false), CQ_NO); /* a marker's */
	assert_true(cq.armed);
	assert_int_equal(hw.armed, 1); /* and the program's wait is not spent */
	send_one(2, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	hw_complete(hw.wr[1].wr_id, QPN);
	assert_int_equal(cq_event(&cq, false), CQ_YES);
	assert_int_equal(cq_event(&cq, false), CQ_NO);
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	/* but what the program may have seen it gets */
	assert_int_equal(shim_req_notify_cq(&cq.v, 0), 0);
	assert_int_equal(cq_event(&cq, true), CQ_YES);
}

/* The helper arms only where the program has not. */
static void an_arming_of_the_helper_is_known(void **state)
{
	struct shim_channel ch = {.attached = true};
	bool clean;

	(void)state;
	cq.channel = &ch;
	assert_int_equal(shim_req_notify_cq(&cq.v, 0), 0);
	cq_watch(&cq);
	assert_int_equal(hw.armed, 1);
	assert_int_equal(cq_go_on(&cq, &clean), CQ_NO);
	assert_true(clean);
	assert_int_equal(hw.armed, 1);
	assert_int_equal(shim_req_notify_cq(&cq.v, 1), 0); /* solicited only: not enough */
	cq_watch(&cq);
	assert_int_equal(hw.armed, 3);
	assert_int_equal(cq_event(&cq, true), CQ_YES);
	cq_watch(&cq);
	assert_int_equal(cq_go_on(&cq, &clean), CQ_NO);
	assert_false(clean); /* nobody has asked for what comes now */
}

static void harvested_completions_come_first(void **state)
{
	struct ibv_wc wc[64];

	(void)state;
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(recv_one(100 + i), 0);
	hw_complete(hw.recv_id[0], QPN);
	hw_complete(hw.recv_id[1], QPN);
	cq_harvest(&cq);
	assert_int_equal(atomic_load(&q->recv.tail), 2);
	hw_complete(hw.recv_id[2], QPN);
	assert_int_equal(shim_poll_cq(&cq.v, 64, wc), 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(wc[i].wr_id, 100 + i);
	cq.real = NULL;
	assert_int_equal(shim_poll_cq(&cq.v, 64, wc), 0);
}

static void a_sleeping_program_is_woken_once(void **state)
{
	struct shim_channel ch;

	(void)state;
	cq.channel = &ch;
	cq.armed = true;
	recv_one(1);
	recv_one(2);
	hw_complete(hw.recv_id[0], QPN);
	cq_announce(&cq);
	hw_complete(hw.recv_id[1], QPN);
	cq_announce(&cq);
	assert_int_equal(events_pushed, 1);
}

static void strange_completions_are_dropped(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	send_one(1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	hw_complete(hw.wr[0].wr_id, QPN + 1);    /* the completion is of a QP that is gone */
	hw_complete(TAG_SEND | 1ull << 40, QPN); /* beyond the log */
	hw_complete(hw.wr[0].wr_id, QPN);
	hw_complete(hw.wr[0].wr_id, QPN); /* told twice */
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 1);
	assert_int_equal(wc[0].wr_id, 1);
}

static void sizes_of_the_program_are_checked(void **state)
{
	struct ibv_sge sge[3] = {{.length = 9}, {.length = 9}, {.length = 9}};
	struct ibv_send_wr *bad, wr = {.sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND};

	(void)state;
	assert_int_equal(shim_post_send(&q->v, &wr, &bad), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(shim_post_send(&q->v, &wr, &bad), EINVAL);
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_INLINE; /* 18 bytes, 16 are allowed */
	sge[0].addr = sge[1].addr = (uintptr_t)hw.data;
	assert_int_equal(shim_post_send(&q->v, &wr, &bad), EINVAL);
	assert_int_equal(hw.sends, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(numbers_are_translated),
		T(unsignalled_sends_go_with_the_next),
		T(a_full_log_refuses),
		T(a_refused_post_leaves_no_trace),
		T(held_posts_are_kept_in_order),
		T(a_held_post_that_is_refused_is_told_once),
		T(held_posts_of_a_qp_that_cannot_send_fail),
		T(a_qp_that_cannot_send_waits_for_no_key),
		T(a_cq_has_the_size_that_was_asked_for),
		T(an_unknown_key_is_fetched),
		T(no_key_is_not_fetched),
		T(an_unknown_lkey_becomes_no_key),
		T(the_short_way_does_the_same),
		T(the_short_way_ends_with_its_reasons),
		T(keys_may_alternate),
		T(a_qp_that_is_gone_is_not_remembered),
		T(the_marker_ends_what_was_before_it),
		T(harvested_completions_come_first),
		T(an_event_comes_with_a_completion),
		T(an_arming_of_the_helper_is_known),
		T(a_sleeping_program_is_woken_once),
		T(strange_completions_are_dropped),
		T(sizes_of_the_program_are_checked),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
