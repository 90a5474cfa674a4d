/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A resume on hardware that is played here, mostly memory windows. Windows are bound and told
 * before the other end hears of the QP, and a failed step is tried again until the deadline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"

#define QPS       3
#define MIGRATION 77
#define STEPS     5

struct shim_job job;
struct shim shim = {
	.ctl = PTHREAD_MUTEX_INITIALIZER,
	.contexts = LIST_INIT(shim.contexts),
	.pds = LIST_INIT(shim.pds),
	.mrs = LIST_INIT(shim.mrs),
	.channels = LIST_INIT(shim.channels),
	.cqs = LIST_INIT(shim.cqs),
	.srqs = LIST_INIT(shim.srqs),
	.qps = LIST_INIT(shim.qps),
	.peers = LIST_INIT(shim.peers),
};

static struct {
	unsigned binds, connects, started_over, told;
	bool ready[QPS];          /* the other end has been told so, perhaps more than once */
	struct shim_qp *bound_on; /* the QP whose request is under way */
	bool slow, fails;
	int start_over_error, connect_error;
} hw;

static struct shim_context ctx;
static struct shim_pd pd;
static struct shim_mr mr;
static struct shim_cq cq;
static struct shim_qp qps[QPS];
static struct shim_peer peer;
static struct ibv_context real_ctx;
static struct ibv_pd real_pd;
static struct ibv_mr real_mr;
static struct ibv_qp real_qp[QPS];
static struct ibv_mw *window;

static struct ibv_mw *hw_alloc(struct ibv_pd *p, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	static uint32_t last;

	*mw = (struct ibv_mw){.context = &real_ctx, .pd = p, .rkey = ++last << 8, .type = type};
	return mw;
}
static int hw_dealloc(struct ibv_mw *mw)
{
	free(mw);
	return 0;
}
static int hw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)bind;
	hw.binds++;
	hw.bound_on = &qps[qp - real_qp];
	assert_true(hw.bound_on->joined);
	mw->rkey = ibv_inc_rkey(mw->rkey);
	return 0;
}

/* Stubs of the other files that the files under test need. */
const struct shim_real *shim_real(void)
{
	static const struct shim_real none;

	return &none;
}
void ctl_enter(void)
{
}
void ctl_exit(void)
{
}
void cq_harvest(struct shim_cq *c)
{
	(void)c;
	if (hw.bound_on && !hw.slow)
		hw.bound_on->bind_state = hw.fails ? BIND_FAILED : BIND_DONE;
}
int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)bad;
	return mw_hand_over(to_qp(ibqp), 0, wr);
}
int qp_to_connected(struct shim_qp *q)
{
	(void)q;
	hw.connects++;
	return hw.connect_error;
}
uint32_t qp_random_psn(void)
{
	return 0x1234;
}

int qp_start_over(struct shim_qp *q)
{
	hw.started_over++;
	q->joined = q->joined && hw.start_over_error;
	return hw.start_over_error;
}
void peer_tell_windows(void)
{
	hw.told += mw_bound_again();
	mw_told();
}
void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration)
{
	assert_int_equal(migration, MIGRATION);
	if (type != PEER_READY || hw.ready[q - qps])
		return;
	assert_int_equal(hw.told, 1);
	assert_true(q->local_up);
	hw.ready[q - qps] = true;
}
bool job_lost_peer(struct shim_qp *q, uint64_t now, uint64_t after_us)
{
	return q->said.unreachable && q->unreachable_us && now - q->unreachable_us > after_us;
}
void job_fail(int error, const char *fmt, ...)
{
	(void)fmt;
	job.error = error;
}
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
void shim_send(const void *packet)
{
	(void)packet;
}
void job_send_report(uint16_t type)
{
	(void)type;
}
void job_end(void)
{
	job.state = JOB_IDLE;
}
void job_end_empty(void)
{
}
void qp_unhold(struct shim_qp *q)
{
	q->phase = QP_LIVE;
}
void queue_hold(struct shim_queue *q, bool on)
{
	q->held = on;
}
void recv_flush(struct shim_qp *q)
{
	(void)q;
}
int qp_create_real(struct shim_qp *q)
{
	(void)q;
	return -ENODEV;
}
void qp_destroy_real(struct shim_qp *q)
{
	(void)q;
}
int qp_to_init(struct shim_qp *q)
{
	(void)q;
	return 0;
}
void qp_keep_gids(struct shim_context *c, bool keep)
{
	(void)c;
	(void)keep;
}
int context_open(struct shim_context *c, struct ibv_device *device)
{
	(void)c;
	(void)device;
	return -ENODEV;
}
bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *index)
{
	(void)c;
	(void)o;
	(void)index;
	return false;
}
int context_query_gids(struct shim_context *c)
{
	(void)c;
	return 0;
}
int channel_open(struct shim_channel *ch)
{
	(void)ch;
	return 0;
}
int cq_create_real(struct shim_cq *c)
{
	(void)c;
	return 0;
}
int xrc_rebuild(void)
{
	return 0;
}
int srq_rebuild(struct shim_srq *s)
{
	(void)s;
	return 0;
}
int regions_rebuild(void)
{
	return 0;
}
int resume_check_pkeys(void)
{
	return 0;
}
struct shim_route *route_get(const uint8_t sgid[16], const uint8_t dgid[16], uint16_t pkey)
{
	(void)sgid;
	(void)dgid;
	(void)pkey;
	return NULL;
}
void route_ask(struct shim_route *r, bool reconnect)
{
	(void)r;
	(void)reconnect;
}
void peer_flush(void)
{
}
void peer_begin_keys(void)
{
}
void peer_tell_keys(struct shim_qp *q)
{
	(void)q;
}
void ahead_end(const struct shim_order *o)
{
	(void)o;
}

/* QPs that wait to be connected again, one window that is not bound yet. */
static int setup(void **state)
{
	struct ibv_mw_bind b = {.bind_info = {&mr.v, 0x1000, 64, IBV_ACCESS_REMOTE_WRITE}};

	(void)state;
	memset(&hw, 0, sizeof(hw));
	memset(&job, 0, sizeof(job));
	memset(qps, 0, sizeof(qps));
	real_ctx.ops.alloc_mw = hw_alloc;
	real_ctx.ops.dealloc_mw = hw_dealloc;
	real_ctx.ops.bind_mw = hw_bind;
	real_pd.context = &real_ctx;
	ctx.in_job = true;
	pd = (struct shim_pd){.ctx = &ctx, .real = &real_pd, .v.context = &ctx.verbs.context};
	mr.real = &real_mr;
	list_add(&shim.mrs, &mr.link);
	for (unsigned i = 0; i < QPS; i++) {
		struct shim_qp *q = &qps[i];

		real_qp[i].context = &real_ctx;
		*q = (struct shim_qp){.ctx = &ctx,
				      .real = &real_qp[i],
				      .send_cq = &cq,
				      .peer = &peer,
				      .connected = true,
				      .joined = i == 0,
				      .v = {.qp_num = 0x11 + i,
					    .pd = &pd.v,
					    .context = &ctx.verbs.context,
					    .state = IBV_QPS_RTS,
					    .qp_type = IBV_QPT_RC}};
		list_add(&shim.qps, &q->link);
	}
	window = shim_alloc_mw(&pd.v, IBV_MW_TYPE_1);
	assert_int_equal(shim_bind_mw(&qps[0].v, window, &b), 0);
	mw_release(true);
	assert_int_equal(mw_rebuild(), 0);
	hw.binds = 0;
	for (unsigned i = 0; i < QPS; i++) {
		qps[i].joined = false;
		qps[i].in_job = qps[i].paired = true;
		qps[i].phase = QP_CONNECTING;
		qps[i].said.connect_by = MIGRATION;
	}
	job.migration = MIGRATION;
	job.state = JOB_CONNECT;
	job.built = true;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	shim_dealloc_mw(window);
	list_init(&shim.qps);
	list_init(&shim.mrs);
	table_free(&shim.keys);
	mw_told();
	return 0;
}

static unsigned ready(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < QPS; i++)
		n += hw.ready[i];
	return n;
}

/* Time passes between two tries. */
static void step(void)
{
	for (unsigned i = 0; i < QPS; i++)
		qps[i].again_us = 0;
	job.again = false;
	resume_step();
	assert_int_equal(job.error, 0);
}

static void a_window_is_bound_and_told_before_the_peer_goes_on(void **state)
{
	(void)state;
	step();
	assert_int_equal(hw.binds, 1);
	assert_int_equal(ready(), QPS);
	assert_int_equal(hw.connects, QPS);
	assert_false(job.again);
	for (unsigned i = 0; i < QPS; i++)
		qps[i].said.ready_by = MIGRATION;
	step();
	assert_int_equal(job.state, JOB_IDLE);
	assert_int_equal(hw.told, 1);
	assert_int_equal(hw.connects, QPS);
}

/* The deadline's error says what job.report.why does. */
static void assert_named(void)
{
	char name[40];

	snprintf(name, sizeof(name), "memory window 0x%x ", window->rkey);
	if (!strstr(job.report.why, name))
		fail_msg("\"%s\" does not name the window (%s)", job.report.why, name);
	assert_true(job.again);
}

static void a_slow_request_holds_up_its_qp_alone(void **state)
{
	(void)state;
	hw.slow = true;
	hw.told = 1; /* nothing is to be told */
	for (unsigned i = 0; i < STEPS; i++) {
		step();
		assert_named();
		assert_int_equal(ready(), QPS - 1);
	}
	assert_int_equal(hw.binds, 1);
	assert_int_equal(hw.connects, QPS); /* none of them again */
	assert_false(qps[0].local_up);
	hw.slow = false;
	hw.told = 0;
	step();
	assert_int_equal(ready(), QPS);
	assert_int_equal(hw.binds, 1);
}

/* The request's error has stopped the QP: it begins anew, under its number, until it works. */
static void a_failed_request_begins_its_qp_anew(void **state)
{
	(void)state;
	hw.fails = true;
	hw.told = 1;
	step();
	assert_named();
	assert_int_equal(ready(), QPS - 1);
	hw.start_over_error = -EBUSY;
	step();
	assert_int_equal(hw.started_over, 1);
	assert_int_equal(hw.binds, 1);
	assert_true(job.again);
	hw.start_over_error = 0;
	step();
	assert_named();
	assert_int_equal(hw.started_over, 2);
	assert_int_equal(hw.connects, QPS + 1);
	assert_int_equal(hw.binds, 2);
	hw.fails = false;
	hw.told = 0;
	step();
	assert_int_equal(hw.started_over, 3);
	assert_int_equal(ready(), QPS);
	assert_int_equal(hw.told, 1);
}

/* An end that has gone keeps nobody up: its QP is given up, another one binds. */
static void a_window_of_a_qp_that_is_given_up_is_bound_by_another(void **state)
{
	(void)state;
	hw.slow = true;
	hw.told = 1;
	step();
	assert_ptr_equal(hw.bound_on, &qps[0]);
	mw_stop_binding(&qps[0]); /* as giving up does */
	qps[0].v.state = IBV_QPS_ERR;
	qps[1].local_up = false; /* still to be connected */
	hw.slow = false;
	hw.told = 0;
	step();
	assert_int_equal(hw.binds, 2);
	assert_ptr_equal(hw.bound_on, &qps[1]);
}

/* A host that tries for long before it says so says it once in a resume: the next one counts on. */
static void no_way_to_a_peer_is_remembered_by_the_next_try(void **state)
{
	(void)state;
	qps[1].phase = QP_RELEASED;
	qps[1].said.connect_by = 0;
	qps[1].unreachable_us = 1;
	resume_step();
	assert_int_equal(qps[1].phase, QP_CONNECTING);
	assert_int_equal(qps[1].unreachable_us, 1);
}

static void an_address_that_the_port_lacks_is_named(void **state)
{
	struct ibv_device device = {.name = "mlx5_7"};

	(void)state;
	ctx.real = &real_ctx;
	real_ctx.device = &device;
	memcpy(qps[1].sgid, (uint8_t[16]){0xfe, 0x80, [15] = 0xa1}, 16);
	qps[0].joined = qps[2].joined = true;
	qps[1].attr.port_num = 1;
	hw.connect_error = -EADDRNOTAVAIL;
	step();
	assert_non_null(strstr(job.report.why, "QP 0x12 "));
	assert_non_null(strstr(job.report.why, " fe80::a1, which \"mlx5_7\" port 1 does not have"));
	assert_memory_equal(job.report.why, program_invocation_short_name, 15);
	hw.connect_error = 0;
	step();
	assert_true(qps[1].joined);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_window_is_bound_and_told_before_the_peer_goes_on),
		T(a_slow_request_holds_up_its_qp_alone),
		T(a_failed_request_begins_its_qp_anew),
		T(a_window_of_a_qp_that_is_given_up_is_bound_by_another),
		T(no_way_to_a_peer_is_remembered_by_the_next_try),
		T(an_address_that_the_port_lacks_is_named),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
