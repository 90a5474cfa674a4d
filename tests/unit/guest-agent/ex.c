/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Extended verbs on played hardware: ibv_wr_* is posted all or not at all; ibv_start_poll. */
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
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "tests/unit/guest-agent/channel_stub.h"
#include "tests/unit/guest-agent/shim_stub.h"
#include "tests/unit/guest-agent/srq_stub.h"
#include "tests/unit/guest-agent/ud_stub.h"

#define CAP     4
#define QPN     0x31
#define LKEY    0x1200
#define HW_LKEY 0x9900
#define RKEY    0x3400
#define HW_RKEY 0x7700
#define ALL_OPS 0x3ffull

struct shim shim = {.ctl = PTHREAD_MUTEX_INITIALIZER, .cqs = LIST_INIT(shim.cqs)};

/* The hardware: what it was given; from which post on it refuses. */
static struct {
	struct ibv_send_wr wr[16];
	struct ibv_sge sge[16][2];
	char data[16][16];
	unsigned sends, refuse_at;
	struct ibv_wc wc[16];
	unsigned wc_head, wc_tail;
} hw;

static struct shim_qp *q;
static struct ibv_qp_ex *x;
static struct shim_cq cq;
static struct shim_context ctx;
static struct shim_pd pd;
static struct shim_peer peer;
static struct ibv_context real_ctx;
static struct ibv_qp real_qp;
static struct ibv_cq real_cq;

static struct ibv_cq *hw_create_cq(struct ibv_context *c, int cqe, void *arg,
				   struct ibv_comp_channel *channel, int vector)
{
	(void)c;
	(void)cqe;
	(void)arg;
	(void)channel;
	(void)vector;
	return &real_cq;
}

static int hw_destroy_cq(struct ibv_cq *c)
{
	(void)c;
	return 0;
}

const struct shim_real *shim_real(void)
{
	static const struct shim_real verbs = {.create_cq = hw_create_cq,
					       .destroy_cq = hw_destroy_cq};

	return &verbs;
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

static int hw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	if (hw.sends == hw.refuse_at) {
		*bad = wr;
		return EIO;
	}
	hw.wr[hw.sends] = *wr;
	memcpy(hw.sge[hw.sends], wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	if (wr->send_flags & IBV_SEND_INLINE)
		memcpy(hw.data[hw.sends], (void *)(uintptr_t)wr->sg_list[0].addr,
		       wr->sg_list[0].length);
	hw.sends++;
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

/* The part of shim/verbs/qp.c that the test needs, without the agent and the hardware. */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_pd *domain,
			 struct ibv_qp_init_attr *init, const struct shim_qp_ex *ex)
{
	(void)context;
	q = calloc(1, sizeof(*q));
	assert_non_null(q);
	assert_non_null(ex);
	q->ctx = &ctx;
	q->real = &real_qp;
	/* cppcheck-suppress ctunullpointer ; asserted above */
	q->ex = *ex;
	q->init = *init;
	q->send_cq = q->recv_cq = &cq;
	q->v.pd = domain;
	q->v.qp_num = QPN;
	q->v.state = IBV_QPS_RTS;
	q->peer = &peer;
	table_set(&ctx.qp_by_qpn, QPN, (uintptr_t)q, TABLE_MAX / TABLE_CHUNK);
	if (queue_init(&q->send, init->cap.max_send_wr, 2, 16, true) ||
	    queue_init(&q->recv, CAP, 1, 0, false) || builder_init(q))
		fail_msg("no memory");
	return &q->v;
}

static int setup(void **state)
{
	struct ibv_qp_init_attr_ex init = {.comp_mask = IBV_QP_INIT_ATTR_PD |
							IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = &pd.v,
					   .cap.max_send_wr = CAP,
					   .qp_type = IBV_QPT_RC,
					   .send_ops_flags = ALL_OPS & ~IBV_QP_EX_WITH_BIND_MW};

	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(&cq, 0, sizeof(cq));
	hw.refuse_at = UINT32_MAX;
	real_ctx.ops.post_send = hw_post_send;
	real_ctx.ops.poll_cq = hw_poll;
	real_qp.context = real_cq.context = &real_ctx;
	cq.ctx = &ctx;
	cq.real = &real_cq;
	pd.v.context = &ctx.verbs.context;
	table_set(&shim.keys, LKEY >> 8, key_entry(LKEY, HW_LKEY), TABLE_MAX / TABLE_CHUNK);
	table_set(&peer.keys, RKEY >> 8, key_entry(RKEY, HW_RKEY), TABLE_MAX / TABLE_CHUNK);
	if (!shim_create_qp_ex(&ctx.verbs.context, &init))
		return -1;
	x = &q->vex;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	queue_free(&q->send);
	queue_free(&q->recv);
	builder_free(q->builder);
	free(q);
	free(cq.soft);
	table_free(&ctx.qp_by_qpn);
	table_free(&shim.keys);
	table_free(&peer.keys);
	return 0;
}

static void every_request_arrives_with_its_values(void **state)
{
	struct ibv_sge two[2] = {{1, 2, LKEY}, {3, 4, LKEY}};

	(void)state;
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(x, RKEY, 0x1000, 77);
	ibv_wr_set_sge_list(x, 2, two);
	x->wr_id = 2;
	x->wr_flags = IBV_SEND_FENCE;
	ibv_wr_atomic_cmp_swp(x, RKEY, 0x2000, 5, 6);
	ibv_wr_set_sge(x, LKEY, 0x3000, 8);
	x->wr_id = 3;
	ibv_wr_rdma_read(x, RKEY, 0x4000);
	ibv_wr_set_sge(x, LKEY, 0x5000, 9);
	assert_int_equal(hw.sends, 0);
	assert_int_equal(ibv_wr_complete(x), 0);
	assert_int_equal(hw.sends, 3);
	assert_int_equal(hw.wr[0].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(hw.wr[0].imm_data, 77);
	assert_int_equal(hw.wr[0].wr.rdma.rkey, HW_RKEY);
	assert_int_equal(hw.wr[0].wr.rdma.remote_addr, 0x1000);
	assert_int_equal(hw.wr[0].send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(hw.wr[0].num_sge, 2);
	assert_int_equal(hw.sge[0][1].addr, 3);
	assert_int_equal(hw.sge[0][1].lkey, HW_LKEY);
	assert_int_equal(hw.wr[1].wr.atomic.rkey, HW_RKEY);
	assert_int_equal(hw.wr[1].wr.atomic.compare_add, 5);
	assert_int_equal(hw.wr[1].wr.atomic.swap, 6);
	assert_int_equal(hw.wr[1].send_flags, IBV_SEND_FENCE);
	assert_int_equal(hw.wr[2].opcode, IBV_WR_RDMA_READ);
	assert_int_equal(hw.sge[2][0].addr, 0x5000);
	/* the log has the program's ids */
	assert_int_equal(q->send.send[1].wr.wr_id, 2);
	assert_int_equal(q->send.head, 3);
}

static void a_replay_is_the_same(void **state)
{
	char byte = 'a';

	(void)state;
	queue_hold(&q->send, true);
	ibv_wr_start(x);
	x->wr_id = 1;
	ibv_wr_send_imm(x, 3);
	ibv_wr_set_inline_data(x, &byte, 1);
	byte = '!'; /* the program may change it from here on */
	ibv_wr_send(x);
	ibv_wr_set_sge(x, LKEY, 0x100, 4);
	assert_int_equal(ibv_wr_complete(x), 0);
	assert_int_equal(hw.sends, 0);
	queue_hold(&q->send, false);
	send_flush(q);
	assert_int_equal(hw.sends, 2);
	q->send.posted = 0; /* the QP was built anew */
	send_flush(q);
	assert_int_equal(hw.sends, 4);
	for (unsigned i = 0; i < 4; i += 2) {
		assert_int_equal(hw.wr[i].imm_data, 3);
		assert_int_equal(hw.data[i][0], 'a');
		assert_int_equal(hw.sge[i + 1][0].lkey, HW_LKEY);
	}
}

static void an_abort_leaves_nothing(void **state)
{
	(void)state;
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	assert_int_equal(hw.sends + q->send.head, 0);
	ibv_wr_start(x); /* and the next may start */
	ibv_wr_send(x);
	assert_int_equal(ibv_wr_complete(x), 0);
	assert_int_equal(hw.sends, 1);
}

static void what_is_wrong_refuses_all(void **state)
{
	static const struct ibv_sge three[3];
	static const char long_data[17];
	int expected[] = {EINVAL, EINVAL, EOPNOTSUPP, EINVAL, ENOMEM};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		ibv_wr_start(x);
		if (i == 3)
			ibv_wr_set_sge(x, LKEY, 0, 1); /* belongs to no request */
		ibv_wr_send(x);
		if (i == 0)
			ibv_wr_set_sge_list(x, 3, three);
		if (i == 1)
			ibv_wr_set_inline_data(x, (void *)(uintptr_t)long_data, sizeof(long_data));
		if (i == 2)
			ibv_wr_bind_mw(x, NULL, 0, NULL); /* was not asked for */
		for (int n = 0; i == 4 && n < CAP; n++)
			ibv_wr_send(x);
		assert_int_equal(ibv_wr_complete(x), expected[i]);
	}
	assert_int_equal(hw.sends + q->send.head, 0);
}

static void a_full_queue_takes_no_part(void **state)
{
	(void)state;
	for (unsigned n = 3; n; n--) {
		ibv_wr_start(x);
		for (unsigned i = 0; i < n; i++)
			ibv_wr_send(x);
		assert_int_equal(ibv_wr_complete(x), n == 2 ? ENOMEM : 0);
	}
	assert_int_equal(hw.sends, 4);
	assert_int_equal(q->send.head, 4);
}

/* The first is with the hardware when the second is refused: its end is told by a completion. */
static void a_late_refusal_is_a_completion(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	for (hw.refuse_at = 0; hw.refuse_at < 2; hw.refuse_at++) {
		ibv_wr_start(x);
		for (x->wr_id = 10; x->wr_id < 13; x->wr_id++)
			ibv_wr_send(x);
		assert_int_equal(ibv_wr_complete(x), hw.refuse_at ? 0 : EIO);
		assert_int_equal(hw.sends, hw.refuse_at);
	}
	assert_int_equal(shim_poll_cq(&cq.v, 4, wc), 2);
	assert_int_equal(wc[0].wr_id, 11);
	assert_int_equal(wc[1].wr_id, 12);
	assert_int_equal(wc[1].status, IBV_WC_LOC_QP_OP_ERR);
}

/* A receive or a send that has completed. */
static void completes(uint64_t wr_id, enum ibv_wc_status status, uint32_t bytes)
{
	hw.wc[hw.wc_head++] = (struct ibv_wc){.wr_id = wr_id,
					      .qp_num = QPN,
					      .status = status,
					      .opcode = IBV_WC_RDMA_READ,
					      .byte_len = bytes};
}

static struct ibv_cq_init_attr_ex cq_init = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};

static void completions_are_read_one_by_one(void **state)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq_ex *c;

	(void)state;
	c = shim_create_cq_ex(&ctx.verbs.context, &cq_init);
	assert_non_null(c);
	q->send_cq = to_cq(ibv_cq_ex_to_cq(c));
	/* A program that never finds the CQ empty takes the short way, too. */
	assert_non_null(q->send_cq->direct);
	assert_ptr_equal(q->send_cq->direct, q->send_cq->real);
	ibv_wr_start(x);
	for (x->wr_id = 10; x->wr_id < 12; x->wr_id++)
		ibv_wr_send(x);
	assert_int_equal(ibv_wr_complete(x), 0);
	assert_int_equal(ibv_start_poll(c, &attr), ENOENT);
	completes(TAG_SEND | 0, IBV_WC_SUCCESS, 5);
	cq_harvest(q->send_cq); /* a suspend came: this one is in the software queue */
	completes(TAG_SEND | 1, IBV_WC_REM_OP_ERR, 6);
	assert_int_equal(ibv_start_poll(c, &attr), 0);
	assert_int_equal(c->wr_id, 10);
	assert_int_equal(c->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_byte_len(c), 5);
	assert_int_equal(ibv_wc_read_opcode(c), IBV_WC_RDMA_READ);
	assert_int_equal(ibv_wc_read_qp_num(c), q->v.qp_num);
	assert_int_equal(ibv_next_poll(c), 0);
	assert_int_equal(c->wr_id, 11);
	assert_int_equal(c->status, IBV_WC_REM_OP_ERR);
	assert_int_equal(ibv_next_poll(c), ENOENT);
	ibv_end_poll(c);
	attr.comp_mask = 1;
	assert_int_equal(ibv_start_poll(c, &attr), EINVAL);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(c)), 0);
}

static void cq_refuses(struct ibv_cq_init_attr_ex init, int error)
{
	errno = 0;
	assert_null(shim_create_cq_ex(&ctx.verbs.context, &init));
	assert_int_equal(errno, error);
}

static void what_no_completion_holds_is_refused(void **state)
{
	struct ibv_cq_init_attr_ex i = cq_init;

	(void)state;
	i.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	cq_refuses(i, EOPNOTSUPP);
	i = cq_init;
	i.comp_mask = 1u << 31;
	cq_refuses(i, EOPNOTSUPP);
	i.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	i.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	cq_refuses(i, EOPNOTSUPP);
	i.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	cq_refuses(i, EINVAL);
	i = cq_init;
	i.cqe = 1u << 31;
	cq_refuses(i, EINVAL);
}

static void a_parent_domain_stands_for_its_pd(void **state)
{
	struct ibv_td_init_attr none = {0};
	struct ibv_context *c = &ctx.verbs.context;
	struct ibv_td *td = shim_alloc_td(c, &none);
	struct ibv_parent_domain_init_attr init = {.pd = &pd.v, .td = td};
	struct ibv_pd *parent, *again;

	(void)state;
	assert_non_null(td);
	parent = shim_alloc_parent_domain(c, &init);
	assert_non_null(parent);
	assert_ptr_equal(to_pd(parent), &pd);
	assert_int_equal(pd.parents, 1);
	assert_int_equal(shim_dealloc_td(td), EBUSY);
	init = (struct ibv_parent_domain_init_attr){.pd = parent};
	again = shim_alloc_parent_domain(c, &init);
	assert_non_null(again);
	assert_ptr_equal(to_pd(again), &pd);
	parent_domain_free(container_of(again, struct shim_pd, v));
	parent_domain_free(container_of(parent, struct shim_pd, v));
	assert_int_equal(pd.parents, 0);
	assert_int_equal(shim_dealloc_td(td), 0);
	init = (struct ibv_parent_domain_init_attr){
		.pd = &pd.v, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS};
	assert_null(shim_alloc_parent_domain(c, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	init = (struct ibv_parent_domain_init_attr){0};
	assert_null(shim_alloc_parent_domain(c, &init));
	assert_int_equal(errno, EINVAL);
}

static void refuses(struct ibv_qp_init_attr_ex init, int error)
{
	errno = 0;
	assert_null(shim_create_qp_ex(&ctx.verbs.context, &init));
	assert_int_equal(errno, error);
}

static void unknown_wishes_are_refused(void **state)
{
	struct ibv_qp_init_attr_ex i = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = &pd.v};

	(void)state;
	i.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
	refuses(i, EOPNOTSUPP);
	i.comp_mask = 1u << 31;
	refuses(i, EOPNOTSUPP);
	i.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	refuses(i, EINVAL);
	i.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	i.send_ops_flags = IBV_QP_EX_WITH_TSO;
	refuses(i, EOPNOTSUPP);
	i.send_ops_flags = 0;
	i.pd = NULL;
	refuses(i, EINVAL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_request_arrives_with_its_values),
		T(a_replay_is_the_same),
		T(an_abort_leaves_nothing),
		T(what_is_wrong_refuses_all),
		T(a_full_queue_takes_no_part),
		T(a_late_refusal_is_a_completion),
		T(completions_are_read_one_by_one),
		T(what_no_completion_holds_is_refused),
		T(a_parent_domain_stands_for_its_pd),
		T(unknown_wishes_are_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
