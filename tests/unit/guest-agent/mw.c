/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory windows of the shim on hardware that is played here, as strict as rdma_rxe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"

struct shim shim = {
	.mrs = LIST_INIT(shim.mrs), .qps = LIST_INIT(shim.qps), .srqs = LIST_INIT(shim.srqs)};

/* The hardware's windows: by index of the key. */
#define HW_MAX 16
static struct {
	struct ibv_mw mw[HW_MAX];
	uint32_t key[HW_MAX]; /* the hardware's key, whatever the program's struct says */
	bool valid[HW_MAX], used[HW_MAX];
	unsigned binds, invalidates, allocs;
	uint64_t last_addr;
	unsigned first_index; /* index of the next device */
	uint64_t done_wr_id;  /* number of a signalled request that has completed */
	unsigned types;       /* types of windows that were bound */
	int bind_error;       /* the post's result */
	bool slow, fails;     /* the completion does not come; or comes with an error */
} hw;

static struct shim_context ctx;
static struct shim_pd pd;
static struct ibv_pd real_pd;
static struct ibv_context real_ctx;
static struct ibv_qp real_qp;
static struct shim_qp q;
static struct shim_cq cq;
static struct shim_mr mr;
static struct ibv_mr real_mr;

static struct ibv_mw *hw_alloc(struct ibv_pd *p, enum ibv_mw_type type)
{
	for (unsigned i = hw.first_index; i < HW_MAX; i++) {
		if (hw.used[i])
			continue;
		hw.used[i] = true;
		hw.valid[i] = false;
		hw.key[i] = (i + 1) << 8 | (0x70 + hw.allocs++);
		hw.mw[i] = (struct ibv_mw){
			.context = &real_ctx, .pd = p, .rkey = hw.key[i], .type = type};
		return &hw.mw[i];
	}
	errno = ENOMEM;
	return NULL;
}

static int hw_dealloc(struct ibv_mw *mw)
{
	hw.used[mw - hw.mw] = false;
	return 0;
}

static int hw_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	unsigned i;

	assert_ptr_equal(qp, &real_qp);
	*bad = wr;
	if (hw.bind_error)
		return hw.bind_error;
	if (wr->opcode == IBV_WR_LOCAL_INV) {
		i = (wr->invalidate_rkey >> 8) - 1;
		hw.invalidates++;
		assert_true(i < HW_MAX && hw.valid[i] && hw.key[i] == wr->invalidate_rkey);
		hw.valid[i] = false;
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		i = (unsigned)(wr->bind_mw.mw - hw.mw);
		assert_true(hw.used[i]);
		assert_int_equal(wr->bind_mw.mw->rkey, hw.key[i]);
		assert_int_equal(wr->bind_mw.rkey >> 8, i + 1);
		assert_ptr_equal(wr->bind_mw.bind_info.mr, &real_mr);
		assert_false(hw.mw[i].type == IBV_MW_TYPE_2 && hw.valid[i]);
		assert_int_not_equal(wr->bind_mw.rkey & 0xff, hw.key[i] & 0xff);
		hw.key[i] = wr->bind_mw.rkey;
		hw.valid[i] = true;
		hw.binds++;
		hw.types |= (unsigned)hw.mw[i].type;
		hw.last_addr = wr->bind_mw.bind_info.addr;
	}
	hw.done_wr_id = wr->wr_id;
	return 0;
}

static int hw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {.wr_id = bind->wr_id,
				       .opcode = IBV_WR_BIND_MW,
				       .bind_mw = {.mw = mw,
						   .rkey = ibv_inc_rkey(mw->rkey),
						   .bind_info = bind->bind_info}};

	if (hw_post_send(qp, &wr, &bad))
		return hw.bind_error;
	mw->rkey = wr.bind_mw.rkey;
	return 0;
}

/* Stubs of the other files that the file under test needs. */
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void cq_harvest(struct shim_cq *c)
{
	assert_ptr_equal(c, &cq);
	if (hw.done_wr_id != (TAG_MARKER | 1) || hw.slow)
		return;
	hw.done_wr_id = 0;
	q.bind_state = hw.fails ? BIND_FAILED : BIND_DONE;
}
/* As the real one does where nothing is in the way. */
int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc;

	assert_ptr_equal(ibqp, &q.v);
	rc = mw_hand_over(&q, q.send.head, wr);
	*bad = wr;
	if (!rc)
		q.send.head++;
	return rc;
}

static int setup(void **state)
{
	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(&q, 0, sizeof(q));
	mw_told();
	real_ctx.ops.alloc_mw = hw_alloc;
	real_ctx.ops.dealloc_mw = hw_dealloc;
	real_ctx.ops.bind_mw = hw_bind;
	real_ctx.ops.post_send = hw_post_send;
	real_pd.context = real_qp.context = &real_ctx;
	pd.ctx = q.ctx = &ctx;
	pd.real = &real_pd;
	pd.v.context = &ctx.verbs.context;
	q.real = &real_qp;
	q.send_cq = &cq;
	q.v.pd = &pd.v;
	q.v.state = IBV_QPS_RTS;
	q.v.context = &ctx.verbs.context;
	mr.real = &real_mr;
	list_add(&shim.mrs, &mr.link);
	list_add(&shim.qps, &q.link);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mw_forget_qp(&q);
	list_del(&mr.link);
	list_del(&q.link);
	table_free(&shim.keys);
	shim.key_start = 0;
	return 0;
}

/* Also takes the first slots of the hardware, so that a new device has other keys. */
static struct ibv_mw *alloc(enum ibv_mw_type type)
{
	struct ibv_mw *mw = shim_alloc_mw(&pd.v, type);

	assert_non_null(mw);
	assert_ptr_equal(mw->pd, &pd.v);
	return mw;
}

static void bind2(struct ibv_mw *mw, uint8_t low)
{
	struct ibv_send_wr *bad,
		wr = {.opcode = IBV_WR_BIND_MW,
		      .bind_mw = {.mw = mw,
				  .rkey = (mw->rkey & ~0xffu) | low,
				  .bind_info = {&mr.v, 0x1000, 64, IBV_ACCESS_REMOTE_WRITE}}};

	assert_int_equal(shim_post_send(&q.v, &wr, &bad), 0);
	mw->rkey = wr.bind_mw.rkey;
}

static void bind1(struct ibv_mw *mw)
{
	struct ibv_mw_bind b = {.bind_info = {&mr.v, 0x1000, 64, IBV_ACCESS_REMOTE_WRITE}};
	uint32_t before = mw->rkey;

	assert_int_equal(shim_bind_mw(&q.v, mw, &b), 0);
	assert_int_equal(mw->rkey, ibv_inc_rkey(before));
}

static void invalidate(struct ibv_mw *mw)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};

	assert_int_equal(shim_post_send(&q.v, &wr, &bad), 0);
}

static void completed(void)
{
	atomic_store(&q.send.tail, q.send.head);
}

/* Another device in the place of the one that was: its keys are others. */
static void away(void)
{
	ctx.in_job = q.in_job = true;
	q.phase = QP_RELEASED;
	mw_release(true);
	for (unsigned i = 0; i < HW_MAX; i++)
		assert_false(hw.used[i]);
	hw.first_index += 4;
	hw.binds = hw.types = 0;
	assert_int_equal(mw_rebuild(), 0);
}

/* As a part of a resume does. The error. */
static int bind_again(void)
{
	q.connecting = true;
	q.connect_error = 0;
	q.unbound = NULL;
	mw_bind_again();
	q.connecting = false;
	return q.connect_error;
}

/* The types of windows that were bound again. */
static unsigned move(void)
{
	away();
	assert_int_equal(bind_again(), 0);
	assert_null(q.binding);
	q.phase = QP_LIVE;
	ctx.in_job = q.in_job = false;
	return hw.types;
}

/* Returns the window's key as the other end of q would be told. */
static uint32_t told(uint32_t rkey)
{
	struct peer_key keys[HW_MAX];
	unsigned skip = 0, n = mw_keys(&q, false, keys, HW_MAX, &skip);
	uint32_t key = KEY_NONE;

	assert_int_equal(skip, n);
	assert_true(mw_key(&q, rkey, &key));
	for (unsigned i = 0; i < n; i++)
		if (keys[i].vkey == rkey)
			assert_int_equal(keys[i].key, key);
	return key;
}

static bool usable(uint32_t key)
{
	uint32_t i = (key >> 8) - 1;

	return key != KEY_NONE && i < HW_MAX && hw.used[i] && hw.valid[i] && hw.key[i] == key;
}

static void low_bits_are_the_programs(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);
	uint32_t first = mw->rkey;

	(void)state;
	bind2(mw, 0x21);
	completed();
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(move(), IBV_MW_TYPE_2);
	assert_int_equal(hw.binds, 1);
	assert_int_equal(hw.last_addr, 0x1000);
	assert_int_equal(mw->rkey, (first & ~0xffu) | 0x21);
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(told(mw->rkey) & 0xff, 0x21);
	assert_int_not_equal(told(mw->rkey), mw->rkey);
	assert_int_equal(told((mw->rkey & ~0xffu) | 0x20), KEY_NONE);
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

/* A new window of the hardware's may have just the low bits that are needed. */
static void low_bits_that_are_taken_are_avoided(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind2(mw, 0x71);
	completed();
	move();
	assert_int_equal(hw.allocs, 3); /* 0x70, 0x71, 0x72 */
	assert_true(usable(told(mw->rkey)));
	invalidate(mw);
	completed();
	move(); /* 0x73, and it is not bound */
	bind2(mw, 0x73);
	completed();
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

static void an_invalidated_window_stays_so(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);
	uint32_t gone;

	(void)state;
	bind2(mw, 1);
	invalidate(mw);
	completed();
	gone = mw->rkey;
	assert_int_equal(told(gone), KEY_NONE);
	assert_int_equal(move(), 0);
	assert_int_equal(hw.binds, 0);
	assert_int_equal(told(gone), KEY_NONE);
	bind2(mw, 2); /* and can be bound again */
	invalidate(mw);
	assert_int_equal(hw.invalidates, 2);
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

static void the_peer_invalidates(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);
	struct ibv_wc wc = {.wc_flags = IBV_WC_WITH_INV};

	(void)state;
	bind2(mw, 7);
	completed();
	move();
	wc.invalidated_rkey = told(mw->rkey);
	mw_invalidated(&ctx, &wc);
	assert_int_equal(wc.invalidated_rkey, mw->rkey);
	assert_int_equal(told(mw->rkey), KEY_NONE);
	assert_int_equal(move(), 0);
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

/* A request without a completion is posted again from the log: the window is as it was before. */
static void what_is_replayed_is_undone_first(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);
	uint32_t rkey;

	(void)state;
	bind2(mw, 1);
	completed();
	invalidate(mw);
	rkey = mw->rkey;
	bind2(mw, 2);
	assert_int_equal(move(), IBV_MW_TYPE_2);
	assert_true(usable(told(rkey)));
	mw->rkey = rkey;
	invalidate(mw); /* the replay */
	bind2(mw, 2);
	completed();
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

static void type_1_counts_by_itself(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_1);

	(void)state;
	bind1(mw);
	bind1(mw);
	completed();
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(move(), IBV_MW_TYPE_1);
	assert_true(usable(told(mw->rkey)));
	bind1(mw);
	completed();
	assert_true(usable(told(mw->rkey)));
	assert_null(mw_uncovered(&ctx));
	q.v.state = IBV_QPS_ERR;
	assert_non_null(mw_uncovered(&ctx));
	assert_int_equal(shim_dealloc_mw(mw), 0);
	assert_null(mw_uncovered(&ctx));
}

static void a_window_goes_with_its_qp_or_region(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2), *other = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind2(mw, 1);
	mw_forget_qp(&q);
	assert_int_equal(told(mw->rkey), KEY_NONE);
	bind2(other, 1);
	mw_forget_mr(&mr);
	assert_int_equal(told(other->rkey), KEY_NONE);
	assert_int_equal(move(), 0);
	assert_int_equal(shim_dealloc_mw(mw), 0);
	assert_int_equal(shim_dealloc_mw(other), 0);
}

static void a_request_that_fails_changes_nothing(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2), *real = &hw.mw[0];
	uint32_t key = real->rkey;

	(void)state;
	bind2(mw, 1);
	mw_failed(&q, 0);
	assert_int_equal(told(mw->rkey), KEY_NONE);
	assert_int_equal(real->rkey, key);
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

/* The numbers of what is posted begin anew then. */
static void a_window_outlives_the_reset_of_its_qp(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_1), *other = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind1(mw);
	completed();
	bind2(other, 1);
	mw_reset_qp(&q);
	q.send.head = 0;
	atomic_store(&q.send.tail, 0);
	assert_int_equal(told(other->rkey), KEY_NONE); /* the window had not been bound yet */
	assert_int_equal(move(), IBV_MW_TYPE_1);
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(shim_dealloc_mw(mw), 0);
	assert_int_equal(shim_dealloc_mw(other), 0);
}

static void strange_requests_are_refused(void **state)
{
	struct ibv_mw *one = alloc(IBV_MW_TYPE_1), *two = alloc(IBV_MW_TYPE_2);
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};
	struct ibv_mw_bind b = {0};

	(void)state;
	assert_int_equal(shim_post_send(&q.v, &wr, &bad), EINVAL); /* no window */
	wr.bind_mw.mw = two;
	wr.bind_mw.rkey = two->rkey + 0x100; /* another window's key */
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){&mr.v, 0, 64, 0};
	assert_int_equal(shim_post_send(&q.v, &wr, &bad), EINVAL);
	wr.bind_mw.rkey = two->rkey;
	wr.bind_mw.bind_info.mr = NULL;
	assert_int_equal(shim_post_send(&q.v, &wr, &bad), EINVAL);
	assert_int_equal(shim_bind_mw(&q.v, two, &b), EINVAL);
	assert_int_equal(hw.binds, 0);
	assert_int_equal(shim_dealloc_mw(one), 0);
	/* a post that was put off names a window that is gone */
	wr.bind_mw.mw = one;
	q.phase = QP_RELEASED;
	assert_int_equal(shim_post_send(&q.v, &wr, &bad), EINVAL);
	assert_int_equal(shim_dealloc_mw(two), 0);
}

/* How many windows the process hears of, at the other end of a QP of that PD. */
static unsigned told_in(struct shim_pd *domain, struct shim_peer *p, bool again)
{
	struct shim_qp to = {.peer = p, .v.pd = &domain->v};
	struct peer_key keys[HW_MAX];
	unsigned skip = 0;

	return mw_keys(&to, again, keys, HW_MAX, &skip);
}

static unsigned told_again(struct shim_peer *p)
{
	return told_in(&pd, p, true);
}

/* A QP's other end can use no key of another PD. */
static void windows_are_told_in_their_pd(void **state)
{
	struct ibv_mw *one = alloc(IBV_MW_TYPE_1), *two = alloc(IBV_MW_TYPE_2);
	struct shim_pd other = {.ctx = &ctx};
	struct shim_qp elsewhere = {.v.pd = &other.v};
	struct shim_peer own;
	uint32_t key = KEY_NONE;

	(void)state;
	q.peer = elsewhere.peer = &own;
	bind1(one);
	bind2(two, 1);
	completed();
	assert_int_equal(told_in(&pd, &own, false), 2);
	assert_int_equal(told_in(&other, &own, false), 0);
	assert_true(mw_key(&elsewhere, one->rkey, &key));
	assert_int_equal(key, KEY_NONE);
	assert_int_equal(shim_dealloc_mw(one), 0);
	assert_int_equal(shim_dealloc_mw(two), 0);
}

/* A window of type 2 is told only to the other end of its QP; each is told once. */
static void what_is_bound_again_is_told(void **state)
{
	struct ibv_mw *one = alloc(IBV_MW_TYPE_1), *two = alloc(IBV_MW_TYPE_2);
	struct shim_peer own, other;

	(void)state;
	q.peer = &own;
	bind1(one);
	bind2(two, 1);
	completed();
	assert_false(mw_bound_again());
	assert_int_equal(told_again(&own), 0);
	move();
	assert_true(mw_bound_again());
	assert_int_equal(told_again(&own), 2);
	assert_int_equal(told_again(&other), 1);
	mw_told();
	assert_false(mw_bound_again());
	assert_int_equal(told_again(&own), 0);
	assert_int_equal(told_again(&other), 0);
	assert_int_equal(shim_dealloc_mw(one), 0);
	assert_int_equal(shim_dealloc_mw(two), 0);
}

/* The HCA, or the machine, is slow: the same request is waited for, and no second one made. */
static void a_slow_bind_is_waited_for(void **state)
{
	struct ibv_mw *one = alloc(IBV_MW_TYPE_1), *two = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind1(one);
	bind2(two, 1);
	completed();
	away();
	hw.slow = true;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(bind_again(), -EINPROGRESS);
		assert_ptr_equal(q.unbound, to_mw(one));
	}
	assert_int_equal(hw.binds, 1);
	q.connect_error = -EAGAIN; /* the window waits for the connection */
	q.connecting = true;
	mw_bind_again();
	assert_int_equal(q.connect_error, -EAGAIN);
	hw.slow = false;
	assert_int_equal(bind_again(), 0);
	assert_int_equal(hw.binds, 2);
	assert_true(usable(told(one->rkey)));
	assert_true(usable(told(two->rkey)));
	assert_int_equal(shim_dealloc_mw(one), 0);
	assert_int_equal(shim_dealloc_mw(two), 0);
}

static void a_bind_that_cannot_be_posted_is_posted_later(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind2(mw, 1);
	completed();
	away();
	hw.bind_error = ENOMEM;
	assert_int_equal(bind_again(), -ENOMEM);
	assert_ptr_equal(q.unbound, to_mw(mw));
	assert_int_not_equal(q.bind_state, BIND_FAILED);
	hw.bind_error = 0;
	assert_int_equal(bind_again(), 0);
	assert_true(usable(told(mw->rkey)));
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

/* An error of a request is the end of its QP: that begins anew, with another window. */
static void a_bind_that_fails_is_made_on_a_new_window(void **state)
{
	struct ibv_mw *one = alloc(IBV_MW_TYPE_1), *two = alloc(IBV_MW_TYPE_2);

	(void)state;
	bind1(one);
	bind2(two, 1);
	completed();
	away();
	hw.fails = true;
	assert_int_equal(bind_again(), -EIO);
	assert_int_equal(q.bind_state, BIND_FAILED);
	assert_int_equal(hw.binds, 1); /* nothing more on that QP */
	assert_ptr_equal(q.unbound, to_mw(one));
	assert_null(q.binding);
	hw.fails = false;
	assert_int_equal(bind_again(), 0);
	assert_true(usable(told(one->rkey)));
	assert_true(usable(told(two->rkey)));
	assert_int_equal(shim_dealloc_mw(one), 0);
	assert_int_equal(shim_dealloc_mw(two), 0);
}

/* The window's QP has been given up: another one may bind windows of type 1. */
static void a_window_whose_qp_is_given_up_is_free_again(void **state)
{
	struct ibv_mw *mw = alloc(IBV_MW_TYPE_1);

	(void)state;
	bind1(mw);
	completed();
	away();
	hw.slow = true;
	assert_int_equal(bind_again(), -EINPROGRESS);
	assert_ptr_equal(to_mw(mw)->on, &q);
	mw_stop_binding(&q);
	assert_null(to_mw(mw)->on);
	hw.slow = false;
	assert_int_equal(bind_again(), 0);
	assert_int_equal(hw.binds, 2);
	assert_int_equal(shim_dealloc_mw(mw), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(low_bits_are_the_programs),
		T(low_bits_that_are_taken_are_avoided),
		T(an_invalidated_window_stays_so),
		T(the_peer_invalidates),
		T(what_is_replayed_is_undone_first),
		T(type_1_counts_by_itself),
		T(a_window_goes_with_its_qp_or_region),
		T(a_request_that_fails_changes_nothing),
		T(a_window_outlives_the_reset_of_its_qp),
		T(strange_requests_are_refused),
		T(what_is_bound_again_is_told),
		T(windows_are_told_in_their_pd),
		T(a_slow_bind_is_waited_for),
		T(a_bind_that_cannot_be_posted_is_posted_later),
		T(a_bind_that_fails_is_made_on_a_new_window),
		T(a_window_whose_qp_is_given_up_is_free_again),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
