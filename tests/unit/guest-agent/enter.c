/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The beginning of a suspend: connections that are being made are waited for. Making one takes the
 * other end's questions, which are put off while the program is kept out, and its own verbs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/srq.h"

struct shim shim = {
	.ctl = PTHREAD_MUTEX_INITIALIZER,
	.ctl_changed = PTHREAD_COND_INITIALIZER,
	.contexts = LIST_INIT(shim.contexts),
	.channels = LIST_INIT(shim.channels),
	.cqs = LIST_INIT(shim.cqs),
	.qps = LIST_INIT(shim.qps),
	.peers = LIST_INIT(shim.peers),
};

/* Answers and records of the played files of the shim. */
static struct {
	bool making, regions_wait, listens;
	unsigned questions, ud_questions; /* put off */
	unsigned entered;
	int status; /* status of the last report */
	char why[SHIM_TEXT_MAX];
} played;

static bool making(char *ret_why, size_t bytes)
{
	if (played.making)
		snprintf(ret_why, bytes, "one is made");
	return played.making;
}
static void answer_peers(void)
{
	if (!job_holds()) /* else they are put off again */
		played.questions = 0;
}
static void answer_datagrams(void)
{
	if (!job_holds())
		played.ud_questions = 0;
}
static bool may_be_asked(void)
{
	return played.listens;
}

static const struct shim_part peers = {.answer = answer_peers};
static const struct shim_part datagrams = {.answer = answer_datagrams};
static const struct shim_part connections = {.making = making, .may_be_asked = may_be_asked};
const struct shim_part *const shim_parts[] = {&peers, &datagrams, &connections, NULL};

int regions_check(void)
{
	return played.regions_wait ? -EAGAIN : 0;
}
void suspend_enter(void)
{
	played.entered++;
	job.state = JOB_QUIET;
	job.empty = true;
}
void shim_send(const void *packet)
{
	const struct shim_report *r = packet;

	played.status = r->head.status;
	memcpy(played.why, r->why, sizeof(played.why));
}
bool takes_part(const struct shim_qp *q)
{
	return q->peer;
}
bool gid_in_order(const uint8_t gid[16], const struct shim_order *o)
{
	return gid && o->vguid_count;
}
uint64_t now_us(void)
{
	static uint64_t us;

	return us += 1000;
}

/* The log is not of interest here. */
void shim_log(const char *fmt, ...)
{
	(void)fmt;
}
void suspend_why(char *text, size_t max)
{
	snprintf(text, max, "-");
}
void suspend_drain(void)
{
}
void job_release(void)
{
}
void resume_rebuild(void)
{
}
void resume_start(const struct shim_order *o)
{
	(void)o;
}
void resume_step(void)
{
}
void ahead_peer(void)
{
}
void ahead_mover(const struct shim_order *o)
{
	(void)o;
}
void ahead_give_back(void)
{
}
void channel_go_on(struct shim_channel *ch, struct shim_cq *cq)
{
	(void)ch;
	(void)cq;
}
void channel_unhelp(struct shim_channel *ch)
{
	(void)ch;
}
void send_flush(struct shim_qp *q)
{
	(void)q;
}
void recv_flush(struct shim_qp *q)
{
	(void)q;
}
void queue_hold(struct shim_queue *q, bool on)
{
	(void)q;
	(void)on;
}
void srq_unhold(struct shim_qp *q)
{
	(void)q;
}
void peer_flush(void)
{
}
void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration)
{
	(void)q;
	(void)type;
	(void)migration;
}

#define MIGRATION   7
#define DEADLINE_MS 40000

static void order_suspend(unsigned role)
{
	const struct shim_order o = {.head = {.type = SHIM_SUSPEND},
				     .role = role,
				     .deadline_ms = DEADLINE_MS,
				     .migration = MIGRATION,
				     .vguid_count = 1};

	memset(&played, 0, sizeof(played));
	memset(&job, 0, sizeof(job));
	shim.busy = shim.no_connects = false;
	shim.users = 0;
	job_order(&o);
	assert_true(job_holds());
}

static int setup(void **state)
{
	(void)state;
	order_suspend(SHIM_ROLE_MOVER);
	return 0;
}

/* Two questions come, one of them to a UD QP, as the order has just been read. */
static void ask(void)
{
	played.questions = played.ud_questions = job_holds();
}

static void nothing_is_made(void **state)
{
	(void)state;
	ask();
	job_step();
	assert_int_equal(played.entered, 1);
	assert_int_equal(played.questions, 1);
}

static void a_question_that_came_with_the_order_is_answered(void **state)
{
	(void)state;
	played.making = true;
	ask();
	assert_int_equal(played.questions, 1);
	job_step();
	assert_false(shim.busy);
	assert_int_equal(played.questions + played.ud_questions, 0);
	ask(); /* and one that comes now is not put off */
	assert_int_equal(played.questions, 0);
	played.making = false;
	job_step();
	assert_int_equal(played.entered, 1);
}

/* Between two of its connections the program is in a verb, which is waited for. It makes the next
 * one then. */
static void so_is_one_that_came_between_two_connections(void **state)
{
	(void)state;
	shim.users = 1;
	job_step();
	assert_true(shim.busy);
	ask();
	assert_int_equal(played.questions, 1);
	shim.users = 0;
	played.making = true;
	job_step();
	assert_int_equal(played.questions + played.ud_questions, 0);
	assert_int_equal(played.entered, 0);
}

static void so_is_one_while_regions_are_waited_for(void **state)
{
	(void)state;
	played.regions_wait = true;
	ask();
	job_step();
	assert_false(shim.busy);
	assert_int_equal(played.questions + played.ud_questions, 0);
	assert_int_equal(played.entered, 0);
}

/* Nothing may have come yet of a connection that the mover makes with us. */
static void a_listener_waits_for_a_mover_that_it_knows(void **state)
{
	struct shim_peer peer = {.slot = 3};
	struct shim_qp q = {.peer = &peer, .phase = QP_LIVE};

	(void)state;
	list_add(&shim.qps, &q.link);
	order_suspend(SHIM_ROLE_PEER);
	played.listens = true;
	job_step();
	assert_false(shim.busy);
	assert_true(shim.no_connects);
	q.said.drained_by = MIGRATION;
	job_step();
	assert_int_equal(played.entered, 1);
	assert_false(shim.no_connects);

	q.said.drained_by = 0; /* the other end never says anything */
	order_suspend(SHIM_ROLE_PEER);
	played.listens = true;
	while (job.state == JOB_ENTER)
		job_step();
	assert_int_equal(played.entered, 1);
	list_del(&q.link);
}

static void who_knows_no_mover_waits_for_none(void **state)
{
	(void)state;
	order_suspend(SHIM_ROLE_PEER);
	played.listens = true;
	job_step();
	assert_int_equal(played.entered, 1);
}

static void what_is_never_made_is_named(void **state)
{
	(void)state;
	played.making = true;
	while (job.state == JOB_ENTER)
		job_step();
	assert_int_equal(played.status, -ETIMEDOUT);
	assert_string_equal(played.why, "not done within 40000 ms (one is made)");
	assert_int_equal(job.state, JOB_IDLE);
	assert_false(shim.busy);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(nothing_is_made),
		T(a_question_that_came_with_the_order_is_answered),
		T(so_is_one_that_came_between_two_connections),
		T(so_is_one_while_regions_are_waited_for),
		T(a_listener_waits_for_a_mover_that_it_knows),
		T(who_knows_no_mover_waits_for_none),
		T(what_is_never_made_is_named),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
