/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm's connections and events in migrations, on a librdmacm that is played (cm_world.h). */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/guest-agent/cm_world.h"

static void events_are_copies_with_ids_of_ours(void **state)
{
	struct rdma_conn_param data = {
		.private_data = "hello", .private_data_len = 6, .qp_num = DVQPN};
	struct rdma_cm_id *id = new_id(), *child = NULL;
	struct rdma_cm_event *e;

	(void)state;
	id->context = &data;
	p_create_id(&played.channel, &child, to_cm_id(id), RDMA_PS_TCP);
	kernel_says(child, RDMA_CM_EVENT_CONNECT_REQUEST, &data, to_cm_id(id)->real);
	e = hear(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	heard();
	assert_ptr_equal(e->listen_id, id);
	assert_ptr_equal(e->id->context, &data);
	assert_ptr_not_equal(e->id, child);
	assert_ptr_equal(to_cm_id(e->id)->real, child);
	assert_string_equal(e->param.conn.private_data, "hello");
	struct rdma_cm_id *request = e->id;
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_destroy_id(request), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_request_that_nobody_took_goes_with_its_listener(void **state)
{
	struct rdma_cm_id *id = new_id(), *child = NULL;

	(void)state;
	p_create_id(&played.channel, &child, to_cm_id(id), RDMA_PS_TCP);
	kernel_says(child, RDMA_CM_EVENT_CONNECT_REQUEST, NULL, to_cm_id(id)->real);
	heard();
	assert_false(silent());
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_true(silent());
}

/* The program may destroy the old channel then. */
static void requests_go_with_their_listener_to_another_channel(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel(), *first = channel;
	struct rdma_cm_id *id = new_id(), *child[2], *request[2];
	struct rdma_cm_event *e;

	(void)state;
	for (int i = 0; i < 2; i++) {
		p_create_id(&played.channel, &child[i], to_cm_id(id), RDMA_PS_TCP);
		kernel_says(child[i], RDMA_CM_EVENT_CONNECT_REQUEST, NULL, to_cm_id(id)->real);
	}
	kernel_says(child[0], RDMA_CM_EVENT_DISCONNECTED, NULL, NULL);
	heard();
	assert_int_equal(rdma_migrate_id(id, other), 0);
	assert_int_equal(rdma_migrate_id(id, other), 0);
	assert_true(silent());
	channel = other;
	for (int i = 0; i < 2; i++) {
		e = hear(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
		request[i] = e->id;
		assert_ptr_equal(request[i]->channel, other);
		assert_ptr_equal(to_cm_id(request[i])->real, child[i]);
		assert_ptr_not_equal(child[i]->channel, &played.channel);
		rdma_ack_cm_event(e);
		if (!i) /* an id hears its own events in order */
			rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, request[0]));
	}
	assert_true(silent());
	channel = first;
	for (int i = 0; i < 2; i++)
		assert_int_equal(rdma_destroy_id(request[i]), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(other);
}

static void a_connection_that_migrated_is_ours(void **state)
{
	struct rdma_cm_id *id = connected();
	struct rdma_cm_id *real = to_cm_id(id)->real;

	(void)state;
	migrate(SHIM_ROLE_MOVER);
	kernel_says(real, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL, NULL);
	kernel_says(real, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL);
	heard();
	assert_true(silent());
	/* the kernel is told after the resume, by the thread */
	for (int i = 0; i < WAIT_MS && !atomic_load(&played.disconnects); i++)
		poll(NULL, 0, 1);
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(modified, 1);
	assert_int_equal(said_count, 1);
	assert_int_equal(said.vqpn, VQPN);
	assert_int_equal(said.dvqpn, DVQPN);
	assert_int_equal(said.slot, SLOT);
	assert_int_equal(said.instance, INSTANCE);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_TIMEWAIT_EXIT, id));
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(said_count, 1); /* once is enough */
	assert_true(silent());
	assert_int_equal(atomic_load(&played.disconnects), 1);
}

static void the_peers_end_is_heard(void **state)
{
	struct rdma_cm_id *id = connected();
	struct peer_head h = {.src_slot = SLOT, .src_instance = INSTANCE};
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = DVQPN};

	(void)state;
	h.sgid[15] = 9;
	qp.in_job = false;
	cm_peer_disconnected(&h, &e); /* the kernel has it still, who says so knows nothing */
	assert_true(silent());
	qp.in_job = true;
	migrate(SHIM_ROLE_PEER);
	assert_int_equal(wills, 1);
	assert_true(cm_part.may_be_asked()); /* for one more, by the same */
	h.src_instance++;
	cm_peer_disconnected(&h, &e); /* the message is for another process */
	h.src_instance--;
	e.src_vqpn++;
	cm_peer_disconnected(&h, &e); /* the message is about another connection */
	e.src_vqpn--;
	assert_true(silent());
	cm_peer_disconnected(&h, &e);
	cm_peer_disconnected(&h, &e);
	assert_false(cm_part.may_be_asked());
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	assert_true(silent());
	assert_int_equal(rdma_disconnect(id), 0);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_TIMEWAIT_EXIT, id));
	assert_int_equal(said_count, 0);
	assert_int_equal(wills, 0);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void an_end_in_the_middle_of_it_is_heard_when_it_is_over(void **state)
{
	struct rdma_cm_id *id = connected();
	struct peer_head h = {.src_slot = SLOT, .src_instance = INSTANCE};
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = DVQPN};

	(void)state;
	h.sgid[15] = 9;
	cm_peer_disconnected(&h, &e);
	assert_true(silent());
	migrate(SHIM_ROLE_PEER);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(said_count + (unsigned)wills, 0);
}

static void who_had_no_other_end_any_more_hears_it(void **state)
{
	struct rdma_cm_id *id = connected();

	(void)state;
	qp.said.gone = true;
	migrate(SHIM_ROLE_MOVER);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	assert_true(silent());
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(said_count, 0);
}

static void destroying_tells_the_peer(void **state)
{
	struct rdma_cm_id *id = connected();

	(void)state;
	migrate(SHIM_ROLE_PEER);
	assert_int_equal(wills, 1);
	cm_part.agent_again(); /* a new agent holds no wills, and gets them again */
	assert_int_equal(wills, 2);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(said_count, 1);
	assert_int_equal(wills, 1);
}

static void connections_of_others_stay_with_the_kernel(void **state)
{
	struct rdma_cm_id *id = connected();

	(void)state;
	to_cm_id(id)->real->route.addr.addr.ibaddr.dgid.raw[15] = 1;
	assert_false(cm_part.concerned());
	migrate(SHIM_ROLE_PEER);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* A QP that the program does not connect (UCX): the CM's own numbers and GIDs serve. */
static void a_connection_without_a_connected_qp_migrates(void **state)
{
	struct rdma_cm_id *id = connected();
	struct peer_head h = {.src_slot = SLOT + 1, .src_instance = 1};
	struct peer_qp e = {.dst_vqpn = VQPN, .src_vqpn = DVQPN};

	(void)state;
	qp.peer = NULL;
	qp.connected = qp.paired = qp.in_job = false;
	job.role = SHIM_ROLE_PEER;
	assert_true(cm_part.concerned());
	migrate(SHIM_ROLE_PEER);
	assert_true(silent());
	assert_int_equal(wills, 1);
	h.sgid[15] = 9;
	cm_peer_disconnected(&h, &e);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DISCONNECTED, id));
	assert_int_equal(rdma_destroy_id(id), 0);
}
static void *sleeper(void *arg)
{
	struct rdma_cm_event **e = arg;

	rdma_get_cm_event(channel, e);
	return NULL;
}

/* rping ends like that. */
static void a_sleeper_may_be_cancelled(void **state)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	void *result;
	pthread_t t;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* ASan takes the stack of a cancelled thread for a stray write */
#endif
	id = new_id();
	for (int i = 0; i < 200; i++) {
		assert_int_equal(pthread_create(&t, NULL, sleeper, &e), 0);
		if (i % 2) /* just when there is an event */
			kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_CHANGE, NULL, NULL);
		assert_int_equal(pthread_cancel(t), 0);
		assert_int_equal(pthread_join(t, &result), 0);
		heard();
		if (result != PTHREAD_CANCELED)
			rdma_ack_cm_event(e);
	}
	assert_int_equal(rdma_destroy_id(id), 0);
}

static atomic_int slept; /* 0: not yet, 1: with an event, or -errno */

static void *signalled_sleeper(void *arg)
{
	struct rdma_cm_event **e = arg;

	atomic_store(&slept, rdma_get_cm_event(channel, e) ? -errno : 1);
	return NULL;
}

static void handler(int sig)
{
	(void)sig;
}

/* As in the write() that librdmacm sleeps in. */
static void a_signal_ends_the_sleep_where_its_handler_says_so(void **state)
{
	struct rdma_cm_id *id = new_id();
	struct rdma_cm_event *e;
	pthread_t t;

	(void)state;
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction a = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};

		assert_int_equal(sigaction(SIGALRM, &a, NULL), 0);
		atomic_store(&slept, 0);
		assert_int_equal(pthread_create(&t, NULL, signalled_sleeper, &e), 0);
		for (int i = 0; i < (restart ? 50 : WAIT_MS) && !atomic_load(&slept); i++) {
			pthread_kill(t, SIGALRM);
			poll(NULL, 0, 1);
		}
		if (restart)
			kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_CHANGE, NULL, NULL);
		pthread_join(t, NULL);
		assert_int_equal(atomic_load(&slept), restart ? 1 : -EINTR);
	}
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_destroy_id(id), 0);
}
#define LATE_MS    100
#define STARVED_MS 120000

static atomic_int tid;

static void *unattended_sleeper(void *arg)
{
	static struct rdma_cm_event *e;

	(void)arg;
	atomic_store(&tid, gettid());
	atomic_store(&slept, rdma_get_cm_event(channel, &e) ? -errno : 1);
	return NULL;
}

/* Without CAP_SYS_NICE it stays late, which takes longer. */
static void set_late(bool late)
{
	struct sched_param none = {0};

	sched_setscheduler(atomic_load(&tid), late ? SCHED_IDLE : SCHED_OTHER, &none);
}

/* Until the sleeper is in a system call: late no longer, where others leave nothing to idle. */
static void until_in(long number)
{
	char path[64], text[32] = "";

	for (int i = 0; i < STARVED_MS && strtol(text, NULL, 10) != number; i++) {
		FILE *f;

		assert_int_equal(atomic_load(&slept), 0);
		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", atomic_load(&tid));
		f = fopen(path, "r");
		if (!f || !fgets(text, sizeof(text), f))
			text[0] = '\0';
		if (f)
			fclose(f);
		poll(NULL, 0, 1);
		if (i == LATE_MS)
			set_late(false);
	}
	assert_int_equal(strtol(text, NULL, 10), number);
}

/* rping ends like that, too: an event has woken its thread, and when that runs there is neither the
 * event nor the channel any more. It is late because it is idle's then, on this thread's processor.
 */
static void a_sleeper_whose_channel_goes_sleeps_on(void **state)
{
	struct rdma_cm_id *id;
	cpu_set_t before, here;
	struct list gone;
	pthread_t t;

	(void)state;
	sched_getaffinity(0, sizeof(before), &before);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	for (int i = 0; i < 20; i++) {
		id = new_id();
		atomic_store(&slept, 0);
		atomic_store(&tid, 0);
		assert_int_equal(pthread_create(&t, NULL, unattended_sleeper, NULL), 0);
		pthread_detach(t); /* the thread ends with the program */
		until_in(SYS_poll);
		cm_lock();
		cm_push(to_cm_id(id), RDMA_CM_EVENT_DISCONNECTED, 0);
		until_in(SYS_futex);
		set_late(true);
		list_init(&gone);
		cm_take_events(to_cm_id(id), &gone);
		free(list_entry(gone.next, struct cm_event, link));
		cm_unlock();
		assert_int_equal(rdma_destroy_id(id), 0);
		rdma_destroy_event_channel(channel);
		if (i % 2) /* otherwise another channel may be at its address by then */
			until_in(SYS_poll);
		channel = rdma_create_event_channel();
		until_in(SYS_poll);
	}
	sched_setaffinity(0, sizeof(before), &before);
}

static void bad_arguments_fail(void **state)
{
	struct rdma_event_channel none = {.fd = -1};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_get_cm_event(channel, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_get_cm_event(&none, &e), -1);
	assert_int_equal(rdma_ack_cm_event(NULL), -1);
	assert_int_equal(rdma_create_id(&none, &id, NULL, RDMA_PS_TCP), -1);
	id = new_id();
	assert_int_equal(rdma_resolve_route(id, 1), -1); /* without an address */
	assert_int_equal(rdma_accept(id, NULL), -1);
	assert_int_equal(rdma_get_request(id, &id), -1); /* not synchronous */
	assert_int_equal(rdma_destroy_id(id), 0);
}
int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(events_are_copies_with_ids_of_ours),
		T(a_request_that_nobody_took_goes_with_its_listener),
		T(requests_go_with_their_listener_to_another_channel),
		T(a_connection_that_migrated_is_ours),
		T(the_peers_end_is_heard),
		T(an_end_in_the_middle_of_it_is_heard_when_it_is_over),
		T(who_had_no_other_end_any_more_hears_it),
		T(destroying_tells_the_peer),
		T(connections_of_others_stay_with_the_kernel),
		T(a_connection_without_a_connected_qp_migrates),
		T(a_sleeper_may_be_cancelled),
		T(a_signal_ends_the_sleep_where_its_handler_says_so),
		T(a_sleeper_whose_channel_goes_sleeps_on),
		T(bad_arguments_fail),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
