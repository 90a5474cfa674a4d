/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program that sleeps on completion channels, on a played device, over migrations that a played
 * agent orders: the shim as it is shipped, with its helper thread. The program sees the same as
 * without the shim. A readable channel gives an event, and a wait for one ends. A program with one
 * thread gets no event for completions that were there before it asked.
 *
 * Two QPs of the process are connected to each other. The rows below are played for a migration
 * that is given up (the device stays), and for a complete one (a new device). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"
#include "tests/fake/verbs/verbs.h"

#define WAIT_MS 60000 /* only a fault waits that long */
#define THREADS 4

struct end {
	struct ibv_cq *send_cq, *cq; /* cq: of the receives, on the channel */
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct end from, to, other; /* from sends to to, and other to itself */
static char buffer[64];
static uint64_t migration;
static bool whole; /* the migration is completed */
static const char *complaint;
static unsigned tests, failed;

static bool check(bool ok, const char *what)
{
	if (!ok && !complaint)
		complaint = what;
	return ok;
}
#define CHECK(x) check(x, #x)

static int make_end(struct end *e, int access)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};

	e->send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	e->cq = ibv_create_cq(context, 64, NULL, channel, 0);
	init.send_cq = e->send_cq;
	init.recv_cq = e->cq;
	e->qp = e->send_cq && e->cq ? ibv_create_qp(pd, &init) : NULL;
	return e->qp ? ibv_modify_qp(e->qp, &a,
				     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
					     IBV_QP_ACCESS_FLAGS)
		     : -1;
}

static int connect_end(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = peer->qp->qp_num,
				.ah_attr = {.is_global = 1, .port_num = 1}};

	if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) ||
	    ibv_modify_qp(e->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	a.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(e->qp, &a,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void suspend(void)
{
	struct shim_report r;

	CHECK(!fake_agent_order(SHIM_SUSPEND, ++migration, &r));
	if (whole)
		CHECK(!fake_agent_order(SHIM_RELEASE, migration, &r));
}

static void resume(void)
{
	struct shim_report r;

	if (whole)
		CHECK(!fake_agent_order(SHIM_RESUME, migration, &r));
	else
		CHECK(fake_agent_order(SHIM_ABORT, migration, &r) == -ECANCELED);
}

static void swap(void)
{
	suspend();
	resume();
}

static void arm(struct ibv_cq *cq)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

/* A message of one byte, and its receive. */
static void send_to(struct end *src, struct end *dst, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED | flags};

	CHECK(!ibv_post_recv(dst->qp, &recv, &bad_recv));
	CHECK(!ibv_post_send(src->qp, &wr, &bad));
}

/* The completion of a send comes after that of its receive, and after its event. */
static void sent(struct end *src)
{
	uint64_t until = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int n = 0;

	while (!n && now_ms() < until)
		n = ibv_poll_cq(src->send_cq, 1, &wc);
	CHECK(n == 1 && !wc.status);
}

static void message(void)
{
	send_to(&from, &to, 0);
	sent(&from);
}

static unsigned polled(struct ibv_cq *cq)
{
	struct ibv_wc wc[8];

	return (unsigned)ibv_poll_cq(cq, 8, wc);
}

static bool readable(int ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* The CQ of an event that is there; NULL: none. */
static struct ibv_cq *event(void)
{
	struct ibv_cq *cq = NULL;
	void *arg;

	if (ibv_get_cq_event(channel, &cq, &arg))
		return NULL;
	ibv_ack_cq_events(cq, 1);
	return cq;
}

static void nothing_more(void)
{
	CHECK(!readable(0));
	CHECK(!event());
	CHECK(!polled(to.cq));
}

/* The program waits: the next message, and only that, wakes it. */
static void sleeps_and_wakes(void)
{
	nothing_more();
	message();
	CHECK(readable(WAIT_MS));
	CHECK(event() == to.cq);
	CHECK(polled(to.cq) == 1);
}

/* The program has polled the completion that the event is for: the event is there all the same. */
static void readable_gives_an_event(void)
{
	arm(to.cq);
	message();
	CHECK(polled(to.cq) == 1);
	CHECK(readable(0));
	suspend();
	CHECK(readable(0));
	CHECK(event() == to.cq);
	resume();
	arm(to.cq);
	sleeps_and_wakes();
	/* and after the migration */
	arm(to.cq);
	message();
	CHECK(polled(to.cq) == 1);
	CHECK(readable(0));
	CHECK(event() == to.cq);
}

/* A completion between arming and polling makes no event: perftest -e takes one event for one
 * completion. */
static void older_completions_make_no_event(void)
{
	arm(to.cq);
	message();
	CHECK(event() == to.cq);
	for (int i = 0; i < 6; i++) {
		message();
		arm(to.cq);
		swap();
		CHECK(polled(to.cq) == (i ? 1 : 2));
		sleeps_and_wakes();
	}
	arm(to.cq);
	sleeps_and_wakes();
}

/* The helper has armed; what comes of that is not for the program's next arming. */
static void the_helpers_events_are_not_the_programs(void)
{
	for (int i = 0; i < 6; i++) {
		swap();
		message();
		arm(to.cq);
		CHECK(polled(to.cq) == 1);
		sleeps_and_wakes();
	}
	suspend();
	arm(to.cq);
	resume();
	sleeps_and_wakes();
}

static void a_message_over_the_migration_wakes(void)
{
	arm(to.cq);
	suspend();
	CHECK(!readable(0));
	send_to(&from, &to, 0);
	resume();
	sent(&from);
	CHECK(readable(WAIT_MS));
	CHECK(event() == to.cq);
	CHECK(polled(to.cq) == 1);
	nothing_more();
}

/* A migration alone makes one event for many completions. A program that polls a few of them and
 * then sleeps (perftest -e) is told of the rest again, but not of those that it has polled. */
static void what_a_poll_leaves_wakes(void)
{
	struct ibv_wc wc[8];

	for (int all = 0; all < 2; all++) {
		arm(to.cq);
		suspend();
		for (int i = 0; i < 5; i++)
			send_to(&from, &to, 0);
		resume();
		for (int i = 0; i < 5; i++)
			sent(&from);
		CHECK(readable(WAIT_MS));
		CHECK(event() == to.cq);
		arm(to.cq);
		CHECK(ibv_poll_cq(to.cq, 2, wc) == 2);
		if (all) {
			CHECK(ibv_poll_cq(to.cq, 8, wc) == 3);
		} else {
			CHECK(readable(0));
			CHECK(event() == to.cq);
			CHECK(!readable(0));
			arm(to.cq);
			CHECK(ibv_poll_cq(to.cq, 2, wc) == 2);
			CHECK(event() == to.cq);
			arm(to.cq);
			CHECK(ibv_poll_cq(to.cq, 2, wc) == 1);
		}
		sleeps_and_wakes();
	}
}

/* Any event that is left, so that the next row begins afresh. */
static void clear(void)
{
	while (event())
		;
	while (polled(to.cq) || polled(other.cq))
		;
	arm(to.cq);
	arm(other.cq);
	send_to(&from, &to, IBV_SEND_SOLICITED);
	send_to(&other, &other, IBV_SEND_SOLICITED);
	sent(&from);
	sent(&other);
	while (polled(to.cq) || polled(other.cq))
		;
	while (event())
		;
}

/* Both queues have events of ours when the migration ends, and the program polls all that they are
 * for: the hardware's next one wakes it. */
static void it_waits_on_when_it_has_polled_all(void)
{
	struct ibv_wc wc[8];

	arm(to.cq);
	arm(other.cq);
	suspend();
	for (int i = 0; i < 3; i++) {
		send_to(&from, &to, 0);
		send_to(&other, &other, 0);
	}
	resume();
	for (int i = 0; i < 3; i++) {
		sent(&from);
		sent(&other);
	}
	for (int i = 0; i < 2; i++)
		CHECK(readable(WAIT_MS) && event());
	arm(to.cq);
	arm(other.cq);
	CHECK(ibv_poll_cq(to.cq, 1, wc) == 1);
	CHECK(ibv_poll_cq(other.cq, 1, wc) == 1);
	CHECK(readable(0));
	swap();
	CHECK(polled(to.cq) == 2);
	CHECK(polled(other.cq) == 2);
	sleeps_and_wakes();
}

/* Whichever of the hardware's event and ours for the same completions is there first. */
static void it_waits_on_each_time(void)
{
	for (int i = 0; i < 100 && !complaint; i++) {
		it_waits_on_when_it_has_polled_all();
		clear();
	}
}

static void a_message_before_it_wakes(void)
{
	arm(to.cq);
	message();
	suspend();
	CHECK(readable(0));
	resume();
	CHECK(readable(0));
	CHECK(event() == to.cq);
	arm(to.cq);
	CHECK(polled(to.cq) == 1);
	sleeps_and_wakes();
}

static void solicited_only(void)
{
	CHECK(!ibv_req_notify_cq(to.cq, 1));
	swap();
	message();
	CHECK(whole ? !readable(0) : true); /* on the old device the helper's arming is merged in */
	send_to(&from, &to, IBV_SEND_SOLICITED);
	sent(&from);
	CHECK(readable(WAIT_MS));
	CHECK(event() == to.cq);
	CHECK(polled(to.cq) == 2);
	/* the event for the helper's arming, if it came */
	arm(to.cq);
	sleeps_and_wakes();
}

static void two_queues_on_one_channel(void)
{
	arm(to.cq);
	arm(other.cq);
	send_to(&other, &other, 0);
	sent(&other);
	CHECK(event() == other.cq); /* the CQ is not armed in the swap */
	swap();
	send_to(&other, &other, 0);
	sent(&other);
	while (readable(0)) /* whatever is seen is given */
		CHECK(event() == other.cq);
	message();
	CHECK(readable(WAIT_MS));
	CHECK(event() == to.cq);
	CHECK(polled(to.cq) == 1);
	arm(other.cq);
	CHECK(polled(other.cq) == 2);
	CHECK(!readable(0));
	send_to(&other, &other, 0);
	sent(&other);
	CHECK(event() == other.cq);
	CHECK(polled(other.cq) == 1);
}

static atomic_bool acknowledged;

static void *destroy(void *cq)
{
	return ibv_destroy_cq(cq) || !atomic_load(&acknowledged) ? cq : NULL;
}

/* Destroying the CQ waits for it, and not longer. */
static void unacknowledged_over_the_migration(void)
{
	struct ibv_cq *got = NULL;
	struct end own;
	pthread_t thread;
	void *arg, *bad;

	if (!CHECK(!make_end(&own, 0) && !connect_end(&own, &own)))
		return;
	for (int i = 0; i < 2; i++) {
		arm(own.cq);
		send_to(&own, &own, 0);
		sent(&own);
		CHECK(!ibv_get_cq_event(channel, &got, &arg) && got == own.cq);
		swap();
	}
	CHECK(!ibv_destroy_qp(own.qp));
	atomic_store(&acknowledged, false);
	pthread_create(&thread, NULL, destroy, own.cq);
	sched_yield();
	atomic_store(&acknowledged, true);
	ibv_ack_cq_events(own.cq, 2);
	pthread_join(thread, &bad);
	CHECK(!bad);
	CHECK(!ibv_destroy_cq(own.send_cq));
}

/* As event loops do: one edge, then all that is there, then arm and poll. */
static void edge_triggered(void)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET}, got;
	int fd = epoll_create1(EPOLL_CLOEXEC);
	unsigned messages = 0, events = 0;

	CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, channel->fd, &e));
	arm(to.cq);
	epoll_wait(fd, &got, 1, 0);
	for (int i = 0; i < 12; i++) {
		bool before = i % 3 == 0, within = i % 3 == 1;

		if (before)
			message();
		suspend();
		if (within)
			send_to(&from, &to, 0);
		resume();
		if (within)
			sent(&from);
		if (!before && !within)
			message();
		messages++;
		CHECK(epoll_wait(fd, &got, 1, WAIT_MS) == 1);
		while (event())
			events++;
		arm(to.cq);
		CHECK(polled(to.cq) == 1);
	}
	CHECK(messages == events);
	close(fd);
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned messages;
	bool stop;
} shared = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};

/* A thread of several that sleep in ibv_get_cq_event(). */
static void *sleeper(void *unused)
{
	struct ibv_cq *cq;
	void *arg;
	bool stop = false;

	while (!stop && !ibv_get_cq_event(channel, &cq, &arg)) {
		ibv_ack_cq_events(cq, 1);
		pthread_mutex_lock(&shared.lock);
		arm(cq);
		shared.messages += polled(cq);
		stop = shared.stop;
		pthread_cond_broadcast(&shared.changed);
		pthread_mutex_unlock(&shared.lock);
	}
	return unused;
}

static void until_messages(unsigned n)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_MS / 1000;
	pthread_mutex_lock(&shared.lock);
	while (shared.messages < n && !rc)
		rc = pthread_cond_timedwait(&shared.changed, &shared.lock, &until);
	CHECK(shared.messages == n);
	pthread_mutex_unlock(&shared.lock);
}

static void several_threads(void)
{
	pthread_t thread[THREADS];
	unsigned n = 0;

	shared.messages = 0;
	shared.stop = false;
	fcntl(channel->fd, F_SETFL, 0);
	arm(to.cq);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, sleeper, NULL);
	for (int i = 0; i < 24 && !complaint; i++) {
		if (i % 4 == 0)
			message();
		suspend();
		if (i % 4 == 1)
			send_to(&from, &to, 0);
		resume();
		if (i % 4 == 1)
			sent(&from);
		if (i % 4 == 2)
			message();
		n += i % 4 < 3;
		until_messages(n);
	}
	pthread_mutex_lock(&shared.lock);
	shared.stop = true;
	pthread_mutex_unlock(&shared.lock);
	for (int i = 0; i < THREADS; i++) { /* a thread takes one event more */
		if (!complaint)
			message();
		until_messages(++n);
	}
	for (int i = 0; i < THREADS && !complaint; i++)
		pthread_join(thread[i], NULL);
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
}

/* Sleeps in ibv_get_async_event() until an event comes. */
static void *async_sleeper(void *ret)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(context, &e))
		return NULL;
	ibv_ack_async_event(&e);
	pthread_mutex_lock(&shared.lock);
	shared.messages += e.event_type == IBV_EVENT_LID_CHANGE && e.element.port_num == 1;
	pthread_cond_broadcast(&shared.changed);
	pthread_mutex_unlock(&shared.lock);
	return ret;
}

static void async_event(enum ibv_event_type type)
{
	int (*make)(enum ibv_event_type) = (int (*)(enum ibv_event_type))dlsym(RTLD_DEFAULT,
									       "fake_event");

	CHECK(make && !make(type));
}

static void lid_change(void)
{
	async_event(IBV_EVENT_LID_CHANGE);
}

static void async_event_wakes(pthread_t *thread, unsigned n)
{
	lid_change();
	until_messages(n);
	if (!complaint) /* else it sleeps on */
		pthread_join(*thread, NULL);
}

/* An event of the device is there to take whenever the descriptor shows it, also while a suspend
 * waits for others: who sleeps there would spin else. */
static void asynchronous_events(void)
{
	pthread_t thread;

	shared.messages = 0;
	for (unsigned n = 1; n <= 4 && !complaint; n += 2) {
		struct shim_report r;

		pthread_create(&thread, NULL, async_sleeper, NULL);
		CHECK(!fake_agent_order(SHIM_SUSPEND, ++migration, &r));
		async_event_wakes(&thread, n);
		lid_change(); /* the old device's event, which nobody takes before the release */
		if (whole)
			CHECK(!fake_agent_order(SHIM_RELEASE, migration, &r));
		pthread_create(&thread, NULL, async_sleeper, NULL);
		until_messages(n + 1);
		if (!complaint)
			pthread_join(thread, NULL);
		resume();
	}
	pthread_create(&thread, NULL, async_sleeper, NULL);
	async_event_wakes(&thread, 5);
}

enum verb { GET_CQ_EVENT, GET_ASYNC_EVENT };

/* A thread that sleeps in a verb until it returns. */
static struct {
	enum verb verb;
	pthread_t thread;
	atomic_int tid;
	atomic_bool ended;
	int error;
} one;
static atomic_uint handled;

static void handler(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
}

static void *one_sleeps(void *unused)
{
	struct ibv_async_event e;
	struct ibv_cq *cq;
	void *arg;
	int rc;

	atomic_store(&one.tid, (int)syscall(SYS_gettid));
	if (one.verb == GET_CQ_EVENT) {
		rc = ibv_get_cq_event(channel, &cq, &arg);
		one.error = rc ? errno : 0;
		if (!rc)
			ibv_ack_cq_events(cq, 1);
	} else {
		rc = ibv_get_async_event(context, &e);
		one.error = rc ? errno : 0;
		if (!rc)
			ibv_ack_async_event(&e);
	}
	atomic_store(&one.ended, true);
	return unused;
}

/* Until it sleeps, or has ended. */
static void until_it_sleeps(void)
{
	uint64_t until = now_ms() + WAIT_MS;
	char path[64], state = 0;

	while (state != 'S' && !atomic_load(&one.ended) && CHECK(now_ms() < until)) {
		AUTO_CLOSE int fd = -1;
		char text[128] = "", *end;

		sched_yield();
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&one.tid));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
			continue;
		end = strrchr(text, ')');
		state = end ? end[2] : 0;
	}
}

/* Sends so many signals while the thread sleeps, if it still does. */
static void signals(unsigned n)
{
	for (; n && !atomic_load(&one.ended) && !complaint; n--) {
		uint64_t until = now_ms() + WAIT_MS;
		unsigned before = atomic_load(&handled);

		until_it_sleeps();
		if (atomic_load(&one.ended))
			return;
		pthread_kill(one.thread, SIGALRM);
		while (atomic_load(&handled) == before && CHECK(now_ms() < until))
			sched_yield();
	}
}

static struct {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
} own;

static int destroy_own(enum ibv_event_type type)
{
	return type == IBV_EVENT_QP_FATAL  ? ibv_destroy_qp(own.qp)
	       : type == IBV_EVENT_SRQ_ERR ? ibv_destroy_srq(own.srq)
					   : ibv_destroy_cq(own.cq);
}

static bool is_of_own(const struct ibv_async_event *e)
{
	return e->event_type == IBV_EVENT_QP_FATAL  ? e->element.qp == own.qp
	       : e->event_type == IBV_EVENT_SRQ_ERR ? e->element.srq == own.srq
						    : e->element.cq == own.cq;
}

static void *destroys(void *type)
{
	atomic_store(&one.tid, (int)syscall(SYS_gettid));
	one.error = destroy_own(*(enum ibv_event_type *)type);
	atomic_store(&one.ended, true);
	return NULL;
}

static bool make_own(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};

	own.cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	own.srq = init.srq = ibv_create_srq(pd, &srq);
	own.qp = own.cq && own.srq ? ibv_create_qp(pd, &init) : NULL;
	return own.qp;
}

/* The program has taken an event and looks at what it is about while another thread destroys that,
 * which waits until the event is acknowledged. */
static void an_objects_events_are_acknowledged_first(void)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_SRQ_ERR,
						    IBV_EVENT_CQ_ERR};

	for (size_t i = 0; i < ARRAY_SIZE(types) && !complaint; i++) {
		enum ibv_event_type type = types[i];
		struct ibv_async_event e = {0};

		if (!CHECK(make_own()))
			return;
		async_event(type);
		if (!CHECK(!ibv_get_async_event(context, &e) && e.event_type == type &&
			   is_of_own(&e)))
			return;
		swap();
		for (size_t k = 0; k < i; k++)
			CHECK(!destroy_own(types[k]));
		atomic_store(&one.ended, false);
		atomic_store(&one.tid, 0);
		pthread_create(&one.thread, NULL, destroys, &type);
		until_it_sleeps();
		if (CHECK(!atomic_load(&one.ended)))
			ibv_ack_async_event(&e);
		pthread_join(one.thread, NULL);
		CHECK(!one.error);
		for (size_t k = i + 1; k < ARRAY_SIZE(types); k++)
			CHECK(!destroy_own(types[k]));
	}
}

static void handle_signals(int flags)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags};

	CHECK(!sigaction(SIGALRM, &a, NULL));
}

static void sleep_in(enum verb verb, int flags)
{
	handle_signals(flags);
	one.verb = verb;
	atomic_store(&one.ended, false);
	atomic_store(&one.tid, 0);
	pthread_create(&one.thread, NULL, one_sleeps, NULL);
}

/* As a read() does, which is what the program would sleep in. perftest takes EINTR for an error. */
static void a_sleeper_goes_on_after_a_signal(void)
{
	fcntl(channel->fd, F_SETFL, 0);
	for (enum verb verb = GET_CQ_EVENT; verb <= GET_ASYNC_EVENT && !complaint; verb++) {
		arm(to.cq);
		sleep_in(verb, SA_RESTART);
		signals(5);
		suspend();
		signals(5);
		resume();
		signals(5);
		CHECK(!atomic_load(&one.ended));
		if (verb == GET_CQ_EVENT)
			message();
		else
			lid_change();
		if (!complaint)
			pthread_join(one.thread, NULL);
		CHECK(!one.error);
	}
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
}

static void a_signal_may_end_its_sleep(void)
{
	uint64_t until = now_ms() + WAIT_MS;

	fcntl(channel->fd, F_SETFL, 0);
	for (enum verb verb = GET_CQ_EVENT; verb <= GET_ASYNC_EVENT && !complaint; verb++) {
		int flags = verb == GET_CQ_EVENT ? 0 : (int)SA_RESETHAND;

		sleep_in(verb, flags);
		while (!atomic_load(&one.ended) && CHECK(now_ms() < until)) {
			handle_signals(flags); /* an early signal has taken them */
			signals(1);
		}
		if (!complaint)
			pthread_join(one.thread, NULL);
		CHECK(one.error == EINTR);
	}
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
}

static void lose_acks(bool lose)
{
	void (*fake)(bool) = (void (*)(bool))dlsym(RTLD_DEFAULT, "fake_lose_acks");

	if (CHECK(fake))
		fake(lose);
}

/* The hardware never says so, or says so when the suspend has been given up: they end once. */
static void unacknowledged_sends_end(void)
{
	struct ibv_wc wc[8];

	lose_acks(true);
	for (int i = 0; i < 3; i++)
		send_to(&from, &to, 0);
	suspend();
	lose_acks(false);
	resume();
	CHECK(ibv_poll_cq(from.send_cq, 8, wc) == 3);
	for (int i = 0; i < 3; i++)
		CHECK(!wc[i].status && wc[i].qp_num == from.qp->qp_num);
	CHECK(polled(to.cq) == 3);
	message();
	CHECK(polled(to.cq) == 1);
	CHECK(!polled(from.send_cq));
}

static void play(void (*test)(void), const char *name)
{
	for (int i = 0; i < 2; i++) {
		whole = i;
		complaint = NULL;
		test();
		printf("%sok %u - %s, %s\n", complaint ? "not " : "", ++tests, name,
		       whole ? "a new device" : "given up");
		if (complaint)
			printf("# %s\n", complaint);
		failed += complaint != NULL;
		fflush(stdout);
		clear();
	}
}

static int open_all(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);

	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE) : NULL;
	channel = mr ? ibv_create_comp_channel(context) : NULL;
	if (!channel || fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		return -1;
	ibv_free_device_list(list);
	return make_end(&from, 0) || make_end(&to, 0) || make_end(&other, 0) ||
	       connect_end(&from, &to) || connect_end(&to, &from) || connect_end(&other, &other);
}

int main(int argc, char **argv)
{
	(void)argc;
	setenv(FAKE_WIRE_ENV, "1", 1);
	if (rig_exec(argv, true) || open_all()) {
		printf("not ok 1 - the rig opens\n1..1\n");
		return 1;
	}
#define T(f) play(f, #f)
	T(readable_gives_an_event);
	T(older_completions_make_no_event);
	T(the_helpers_events_are_not_the_programs);
	T(a_message_over_the_migration_wakes);
	T(a_message_before_it_wakes);
	T(what_a_poll_leaves_wakes);
	T(it_waits_on_when_it_has_polled_all);
	T(it_waits_on_each_time);
	T(solicited_only);
	T(two_queues_on_one_channel);
	T(unacknowledged_over_the_migration);
	T(edge_triggered);
	T(several_threads);
	T(asynchronous_events);
	T(an_objects_events_are_acknowledged_first);
	T(a_sleeper_goes_on_after_a_signal);
	T(a_signal_may_end_its_sleep);
	T(unacknowledged_sends_end);
	printf("1..%u\n", tests);
	fflush(stdout);
	_exit(failed ? 1 : 0); /* threads of the shim and of the device live on */
}
