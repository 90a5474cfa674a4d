/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A shared receive queue of the shim on hardware that is played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/srq.h"
#include "tests/unit/guest-agent/refuse_stub.h"
#include "tests/unit/guest-agent/shim_stub.h"
#include "tests/unit/guest-agent/ud_stub.h"

#define CAP      4
#define LKEY     0x1200
#define HW_LKEY  0x9900
#define POST_MAX 64

struct shim shim = {.srqs = LIST_INIT(shim.srqs)};

/* The hardware: what it was given since it was made. */
static struct {
	struct ibv_srq srq;
	struct ibv_srq_init_attr init;
	uint64_t wr_id[POST_MAX];
	uint32_t lkey[POST_MAX];
	unsigned posts, made, destroyed, limit, arms;
	int error, posts_left;
} hw;

static struct shim_context ctx;
static struct shim_pd pd;
static struct ibv_context real_ctx;
static struct shim_qp qp[2];
static struct shim_srq *s;

static int hw_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	assert_ptr_equal(srq, &hw.srq);
	if (hw.error && !hw.posts_left--) {
		*bad = wr;
		return hw.error;
	}
	hw.lkey[hw.posts] = wr->num_sge ? wr->sg_list[0].lkey : 0;
	hw.wr_id[hw.posts++] = wr->wr_id;
	return 0;
}

static struct ibv_srq *hw_create(struct ibv_pd *p, struct ibv_srq_init_attr *init)
{
	(void)p;
	hw.srq = (struct ibv_srq){.context = &real_ctx, .srq_context = init->srq_context};
	hw.init = *init;
	hw.made++;
	hw.posts = 0;
	return &hw.srq;
}

static int hw_destroy(struct ibv_srq *srq)
{
	(void)srq;
	hw.destroyed++;
	return 0;
}

static int hw_modify(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq;
	if (mask & IBV_SRQ_MAX_WR)
		hw.init.attr.max_wr = attr->max_wr;
	if (mask & IBV_SRQ_LIMIT) {
		hw.limit = attr->srq_limit;
		hw.arms++;
	}
	return 0;
}

static int hw_query(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq;
	*attr = hw.init.attr;
	return 0;
}

/* Stubs of the other files that the file under test needs. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real verbs = {.create_srq = hw_create,
					       .destroy_srq = hw_destroy,
					       .modify_srq = hw_modify,
					       .query_srq = hw_query};

	return &verbs;
}

void cq_harvest(struct shim_cq *c)
{
	(void)c;
}
void cq_forget_qp(struct shim_cq *c, const struct shim_qp *q)
{
	(void)c;
	(void)q;
}

static int setup(void **state)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = CAP, .max_sge = 1}};

	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(qp, 0, sizeof(qp));
	real_ctx.ops.post_srq_recv = hw_post;
	pd.ctx = &ctx;
	pd.v.context = &ctx.verbs.context;
	table_set(&shim.keys, LKEY >> 8, key_entry(LKEY, HW_LKEY), TABLE_MAX / TABLE_CHUNK);
	s = to_srq(ibv_create_srq(&pd.v, &init));
	qp[0].v.srq = qp[1].v.srq = &s->v;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(ibv_destroy_srq(&s->v), 0);
	assert_int_equal(hw.made, hw.destroyed);
	table_free(&shim.keys);
	return 0;
}

static int post(uint64_t wr_id)
{
	struct ibv_sge sge = {.lkey = LKEY};
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	int rc = shim_post_srq_recv(&s->v, &wr, &bad);

	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

static void post_all(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i <= to; i++)
		assert_int_equal(post(i), 0);
}

/* The receive that the hardware was given as the nth has completed: the program's wr_id. */
static uint64_t complete(unsigned nth, struct shim_qp *q)
{
	uint64_t wr_id = 0;

	assert_int_equal(hw.wr_id[nth] & TAG_MASK, TAG_SRQ);
	assert_true(srq_take(s, (uint32_t)hw.wr_id[nth], q, &wr_id));
	return wr_id;
}

static void completions_in_any_order_find_their_post(void **state)
{
	uint64_t wr_id;

	(void)state;
	post_all(11, 14);
	assert_int_equal(hw.lkey[0], HW_LKEY);
	assert_int_equal(complete(2, &qp[0]), 13);
	assert_int_equal(complete(0, &qp[1]), 11);
	assert_int_equal(complete(1, &qp[1]), 12);
	assert_false(srq_take(s, (uint32_t)hw.wr_id[1], &qp[0], &wr_id)); /* told twice */
	assert_false(srq_take(s, 1u << 30, &qp[0], &wr_id));
	assert_int_equal(atomic_load(&qp[0].recv.tail), 1);
	assert_int_equal(atomic_load(&qp[1].recv.tail), 2);
	assert_false(srq_is_empty(s));
	assert_int_equal(complete(3, &qp[0]), 14);
	assert_true(srq_is_empty(s));
}

static void a_full_queue_refuses(void **state)
{
	(void)state;
	post_all(1, CAP);
	assert_int_equal(post(9), ENOMEM);
	complete(1, &qp[0]);
	assert_int_equal(post(9), 0);
	assert_int_equal(post(10), ENOMEM);
	assert_int_equal(hw.posts, CAP + 1);
}

static void what_was_not_consumed_is_posted_again_in_order(void **state)
{
	(void)state;
	post_all(1, 4);
	complete(0, &qp[0]);
	complete(2, &qp[0]);
	post_all(5, 5); /* in a slot that was used before: 2, 4, 5 are left */
	srq_release(s);
	post_all(6, 6); /* while there is no device */
	assert_int_equal(hw.destroyed, 1);
	table_set(&shim.keys, LKEY >> 8, key_entry(LKEY, 0x5500), 16);
	assert_int_equal(srq_rebuild(s), 0);
	assert_int_equal(hw.posts, 4);
	assert_int_equal(hw.lkey[3], 0x5500);
	assert_int_equal(complete(0, &qp[1]), 2);
	assert_int_equal(complete(1, &qp[1]), 4);
	assert_int_equal(complete(2, &qp[1]), 5);
	assert_int_equal(complete(3, &qp[1]), 6);
	assert_true(srq_is_empty(s));
}

static void held_posts_wait_for_all_who_hold(void **state)
{
	(void)state;
	post_all(1, 1);
	srq_hold(&qp[0], s);
	srq_hold(&qp[0], s);
	srq_hold(&qp[1], s);
	post_all(2, 3);
	assert_int_equal(hw.posts, 1);
	complete(0, &qp[0]);
	assert_true(srq_is_empty(s)); /* nothing is left of what the hardware had */
	srq_unhold(&qp[0]);
	assert_int_equal(hw.posts, 1);
	srq_unhold(&qp[1]);
	srq_unhold(&qp[1]);
	assert_int_equal(hw.posts, 3);
	assert_int_equal(complete(1, &qp[0]), 2);
	assert_int_equal(complete(2, &qp[0]), 3);
}

static void what_the_hardware_refuses_leaves_no_trace(void **state)
{
	(void)state;
	hw.error = EIO;
	assert_int_equal(post(1), EIO);
	hw.error = 0;
	post_all(2, 2);
	assert_int_equal(hw.posts, 1);
	assert_int_equal(complete(0, &qp[0]), 2);
}

static void what_a_flush_had_to_leave_goes_first(void **state)
{
	(void)state;
	srq_hold(&qp[0], s);
	post_all(1, 3);
	hw.error = EIO;
	hw.posts_left = 1;
	srq_unhold(&qp[0]); /* 1 is taken, 2 and 3 are not */
	assert_int_equal(hw.posts, 1);
	hw.error = 0;
	post_all(4, 4);
	assert_int_equal(hw.posts, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(complete(i, &qp[0]), i + 1);
}

static void a_queue_grows_while_it_is_used(void **state)
{
	struct ibv_srq_attr attr = {.max_wr = 2 * CAP};

	(void)state;
	post_all(1, CAP);
	assert_int_equal(ibv_modify_srq(&s->v, &attr, IBV_SRQ_MAX_WR), 0);
	post_all(CAP + 1, 2 * CAP);
	assert_int_equal(post(99), ENOMEM);
	srq_release(s);
	assert_int_equal(srq_rebuild(s), 0);
	assert_int_equal(hw.init.attr.max_wr, 2 * CAP);
	for (unsigned i = 0; i < 2 * CAP; i++)
		assert_int_equal(complete(i, &qp[0]), i + 1);
}

static void a_limit_is_armed_again_until_it_was_reached(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};

	(void)state;
	assert_int_equal(ibv_modify_srq(&s->v, &attr, IBV_SRQ_LIMIT), 0);
	srq_release(s);
	hw.limit = 0;
	assert_int_equal(srq_rebuild(s), 0);
	assert_int_equal(hw.limit, 2);
	s->limit = 0; /* the event came */
	srq_release(s);
	assert_int_equal(srq_rebuild(s), 0);
	assert_int_equal(hw.arms, 2);
	assert_int_equal(ibv_modify_srq(&s->v, &attr, 1 << 7), EINVAL);
}

static void a_rebuild_that_fails_can_be_tried_again(void **state)
{
	(void)state;
	post_all(1, 3);
	srq_release(s);
	hw.error = EIO;
	hw.posts_left = 1;
	assert_int_equal(srq_rebuild(s), -EIO);
	assert_null(s->real);
	hw.error = 0;
	assert_int_equal(srq_rebuild(s), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(complete(i, &qp[0]), i + 1);
}

static void sizes_of_the_program_are_checked(void **state)
{
	struct ibv_sge sge[2] = {{0}};
	struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = 2};

	(void)state;
	assert_int_equal(shim_post_srq_recv(&s->v, &wr, &bad), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(shim_post_srq_recv(&s->v, &wr, &bad), EINVAL);
	wr.num_sge = 0;
	assert_int_equal(shim_post_srq_recv(&s->v, &wr, &bad), 0);
	assert_int_equal(hw.posts, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(completions_in_any_order_find_their_post),
		T(a_full_queue_refuses),
		T(what_was_not_consumed_is_posted_again_in_order),
		T(held_posts_wait_for_all_who_hold),
		T(what_the_hardware_refuses_leaves_no_trace),
		T(what_a_flush_had_to_leave_goes_first),
		T(a_queue_grows_while_it_is_used),
		T(a_limit_is_armed_again_until_it_was_reached),
		T(a_rebuild_that_fails_can_be_tried_again),
		T(sizes_of_the_program_are_checked),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
