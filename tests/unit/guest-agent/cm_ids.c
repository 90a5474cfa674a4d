/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm's listeners and ids without a connection in migrations, and routes from path records,
 * on a librdmacm that is played (cm_world.h). */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/guest-agent/cm_world.h"

static struct rdma_cm_id *listening(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = PORT};
	struct rdma_cm_id *id = new_id();

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&addr), 0);
	assert_int_equal(rdma_listen(id, 5), 0);
	return id;
}

static void listeners_are_made_again(void **state)
{
	struct rdma_cm_id *id = listening(), *old = to_cm_id(id)->real;

	(void)state;
	played.dead = true;
	migrate(SHIM_ROLE_MOVER);
	assert_int_equal(played.listens, 2);
	assert_int_equal(played.backlog, 5);
	assert_int_equal(played.bound.sin_port, PORT);
	assert_ptr_not_equal(to_cm_id(id)->real, old);
	kernel_says(old, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL, NULL); /* late */
	heard();
	assert_true(silent());
	assert_int_equal(played.listens, 2);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_listener_waits_for_its_address(void **state)
{
	struct rdma_cm_id *id = listening();

	(void)state;
	played.dead = true;
	played.bind_error = EADDRNOTAVAIL;
	migrate(SHIM_ROLE_MOVER);
	assert_int_equal(played.listens, 1);
	played.bind_error = 0;
	assert_int_equal(rdma_listen(id, 7), 0); /* waits for it */
	assert_int_equal(played.listens, 3);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_bound_id_waits_for_its_address(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct rdma_cm_id *id = new_id(), *dead = to_cm_id(id)->real;

	(void)state;
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), 0);
	played.dead = true;
	played.bind_error = EADDRNOTAVAIL;
	migrate(SHIM_ROLE_MOVER);
	played.bind_error = 0;
	assert_int_equal(rdma_resolve_addr(id, NULL, NULL, 1), 0); /* however often it was tried */
	assert_ptr_not_equal(played.resolved, dead);
	assert_true(played.resolved_bound);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *in_use;

/* The id is made again, as the thread does, in the middle of the program's call. */
static void make_again(void)
{
	struct rdma_cm_id *real = to_cm_id(in_use)->real;

	played.in_option = NULL;
	pthread_mutex_lock(&cm.service);
	assert_int_equal(cm_redo(to_cm_id(in_use)), -EAGAIN);
	pthread_mutex_unlock(&cm.service);
	assert_ptr_equal(to_cm_id(in_use)->real, real);
}

static void an_id_in_use_is_made_again_later(void **state)
{
	struct rdma_cm_id *id = listening(), *real = to_cm_id(id)->real;
	int value = 1;

	(void)state;
	in_use = id;
	played.in_option = make_again;
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 1), -1);
	assert_null(played.in_option);
	pthread_mutex_lock(&cm.service);
	assert_int_equal(cm_redo(to_cm_id(id)), 0);
	pthread_mutex_unlock(&cm.service);
	assert_ptr_not_equal(to_cm_id(id)->real, real);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_route_may_get_more_paths(void **state)
{
	struct rdma_cm_id *id = new_id();

	(void)state;
	for (int i = 0; i < 2; i++)
		played.path_rec[i].sl = (uint8_t)(i + 3);
	for (played.paths = 1; played.paths <= 2; played.paths++) {
		assert_int_equal(rdma_resolve_addr(id, NULL, NULL, 1), 0);
		kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
		rdma_ack_cm_event(hear(RDMA_CM_EVENT_ADDR_RESOLVED, id));
		assert_int_equal(rdma_resolve_route(id, 1), 0);
		kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
		rdma_ack_cm_event(hear(RDMA_CM_EVENT_ROUTE_RESOLVED, id));
		assert_int_equal(id->route.num_paths, played.paths);
		assert_memory_equal(id->route.path_rec, played.path_rec,
				    (size_t)played.paths * sizeof(*id->route.path_rec));
	}
	assert_true(malloc_usable_size(id->route.path_rec) >= 2 * sizeof(*id->route.path_rec));
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void one_that_cannot_be_made_again_is_given_up(void **state)
{
	struct rdma_cm_id *id = listening();

	(void)state;
	played.dead = true;
	played.bind_error = EADDRNOTAVAIL;
	job.role = SHIM_ROLE_MOVER;
	cm_part.release();
	to_cm_id(id)->moves_until_us = 0;
	cm_part.rebuild();
	cm_part.resumed();
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_DEVICE_REMOVAL, id));
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_device_that_stayed_keeps_its_listeners(void **state)
{
	struct rdma_cm_id *id = listening();

	(void)state;
	migrate(SHIM_ROLE_MOVER);
	assert_int_equal(played.listens, 1);
	/* the device seems not to have left yet */
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL, NULL);
	heard();
	assert_int_equal(rdma_listen(id, 7), 0);
	assert_int_equal(played.listens, 3);
	assert_true(silent());
	assert_int_equal(rdma_destroy_id(id), 0);
}

static bool making(void)
{
	char why[SHIM_TEXT_MAX];

	return cm_part.making(why, sizeof(why));
}

static void what_is_being_made_is_waited_for(void **state)
{
	struct rdma_conn_param param = {.qp_num = VQPN};
	struct rdma_cm_id *id = new_id();

	(void)state;
	job.role = SHIM_ROLE_MOVER;
	assert_false(making());
	assert_int_equal(rdma_resolve_addr(id, NULL, NULL, 1), 0);
	assert_true(making());
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ADDR_RESOLVED, id));
	heard();
	assert_false(making());
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_true(making());
	job.role = SHIM_ROLE_PEER;
	assert_false(making()); /* the connection leads elsewhere */
	to_cm_id(id)->real->route.addr.addr.ibaddr.dgid.raw[15] = 9;
	assert_true(making());
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_REJECTED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_REJECTED, id));
	heard();
	assert_false(making());
	assert_int_equal(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *resolved_id(void)
{
	struct rdma_cm_id *id = new_id();

	assert_int_equal(rdma_resolve_addr(id, NULL, NULL, 1), 0);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ADDR_RESOLVED, id));
	assert_int_equal(rdma_resolve_route(id, 1), 0);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ROUTE_RESOLVED, id));
	heard();
	return id;
}

static void a_resolved_id_is_resolved_again(void **state)
{
	struct rdma_conn_param param = {.qp_num = VQPN};
	struct rdma_cm_id *id = resolved_id();

	(void)state;
	played.dead = true;
	migrate(SHIM_ROLE_MOVER);
	assert_int_equal(played.resolves, 2);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_true(silent());
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* A whole migration between the program's call and what the call does. */
static struct rdma_cm_id *waiting;

static void migrate_meanwhile(void)
{
	played.dead = true;
	migrate(SHIM_ROLE_MOVER);
}

static void resolve_meanwhile(void)
{
	assert_true(to_cm_id(waiting)->redo);
	kernel_says(to_cm_id(waiting)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	/* The thread asks for the route when it is done with the event, and then is answered. */
	for (int i = 0; i < WAIT_MS && atomic_load(&played.route_queries) < 2; i++)
		poll(NULL, 0, 1);
	kernel_says(to_cm_id(waiting)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
}

static void a_call_that_a_migration_overtakes_finds_it_resolved(void **state)
{
	struct rdma_conn_param param = {.qp_num = VQPN};
	const struct rdma_cm_id *old;

	(void)state;
	waiting = resolved_id();
	old = to_cm_id(waiting)->real;
	program = pthread_self();
	played.in_enter = migrate_meanwhile;
	played.in_exit = resolve_meanwhile;
	assert_int_equal(rdma_connect(waiting, &param), 0);
	assert_int_equal(played.resolves, 2);
	assert_int_equal(played.route_queries, 2);
	assert_ptr_not_equal(to_cm_id(waiting)->real, old);
	assert_ptr_equal(played.connected, to_cm_id(waiting)->real);
	assert_int_equal(to_cm_id(waiting)->state, CM_CONNECTING);
	assert_ptr_equal(waiting->verbs, &ctx.verbs.context);
	assert_true(silent());
	assert_int_equal(rdma_destroy_id(waiting), 0);
}

static void suspend_meanwhile(void)
{
	shim.no_connects = true;
}

static void resume_meanwhile(void)
{
	shim.no_connects = false;
}

static void a_connect_that_a_suspend_overtakes_waits(void **state)
{
	struct rdma_conn_param param = {.qp_num = VQPN};
	struct rdma_cm_id *id = resolved_id();

	(void)state;
	program = pthread_self();
	played.in_enter = suspend_meanwhile;
	played.in_exit = resume_meanwhile;
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_false(shim.no_connects);
	assert_int_equal(to_cm_id(id)->state, CM_CONNECTING);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *real_of(struct rdma_cm_id *id)
{
	struct rdma_cm_id *real;

	cm_lock();
	real = to_cm_id(id)->real;
	cm_unlock();
	return real;
}

static void a_route_that_cannot_be_asked_for_is_asked_for_again(void **state)
{
	struct rdma_conn_param param = {.qp_num = VQPN};
	struct rdma_cm_id *id = resolved_id(), *old;

	(void)state;
	played.dead = true;
	played.route_error = ENODEV;
	migrate(SHIM_ROLE_MOVER);
	old = real_of(id);
	kernel_says(old, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	for (int i = 0; i < WAIT_MS && real_of(id) == old; i++) /* resolving starts over */
		poll(NULL, 0, 1);
	assert_ptr_not_equal(real_of(id), old);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_int_equal(played.resolves, 3);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* The event of this join would be the one of the join that is made again, which the program does
 * not hear. */
static void a_join_is_waited_for(void **state)
{
	struct sockaddr_in group = {.sin_family = AF_INET};
	struct sockaddr *at = (struct sockaddr *)&group;
	struct rdma_cm_id *id = new_id();

	(void)state;
	job.role = SHIM_ROLE_MOVER;
	assert_int_equal(rdma_bind_addr(id, at), 0);
	to_cm_id(id)->state = CM_RESOLVED;
	played.join_error = EINVAL;
	assert_int_equal(rdma_join_multicast(id, at, NULL), -1);
	assert_false(making());
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_join_multicast(id, at, NULL), 0);
		assert_true(making());
		kernel_says(to_cm_id(id)->real,
			    i ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, NULL,
			    NULL);
		heard();
		assert_false(making());
		rdma_ack_cm_event(
			hear(i ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, id));
	}
	assert_int_equal(played.joins, 3);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* Resolves the route of an id whose address is resolved; the kernel's event is the same. */
static void resolve_route(struct rdma_cm_id *id)
{
	to_cm_id(id)->state = CM_RESOLVED;
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ROUTE_RESOLVED, id));
}

static void routes_come_from_the_path_records(void **state)
{
	struct rdma_cm_id *id = new_id();

	(void)state;
	assert_int_equal(rdma_resolve_addr(id, NULL, NULL, 1), 0);
	kernel_says(to_cm_id(id)->real, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	rdma_ack_cm_event(hear(RDMA_CM_EVENT_ADDR_RESOLVED, id));
	to_cm_id(id)->real->route.addr.addr.ibaddr.dgid.raw[15] = 9;
	to_cm_id(id)->real->route.addr.addr.ibaddr.pkey = htobe16(0x8001);
	record = (struct shim_path){.dlid = 7, .slid = 8, .mtu = 2048, .rate = 16, .sl = 3};
	resolve_route(id); /* RoCE: the kernel knows better */
	assert_int_equal(played.route_queries, 1);
	link_layer = IBV_LINK_LAYER_INFINIBAND;
	resolve_route(id);
	assert_int_equal(played.route_queries, 1);
	assert_int_equal(be16toh(played.path.path.dlid), 7);
	assert_int_equal(be16toh(played.path.path.slid), 8);
	assert_int_equal(be16toh(played.path.path.pkey), 0x8001);
	assert_int_equal(be16toh(played.path.path.qosclass_sl), 3);
	assert_int_equal(played.path.path.mtu, 2 << 6 | IBV_MTU_2048);
	assert_int_equal(played.path.path.rate, 2 << 6 | 16);
	assert_int_equal(played.path.path.dgid.raw[15], 9);
	record.rate = 0; /* half a record */
	resolve_route(id);
	assert_int_equal(played.route_queries, 2);
	record.dlid = 0; /* none */
	resolve_route(id);
	assert_int_equal(played.route_queries, 3);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* Programs that connect their QPs by themselves (UCX) take these. */
static void attributes_have_the_program_s_indices(void **state)
{
	struct rdma_cm_id *id = new_id();
	struct ibv_qp_attr attr;
	int mask = 0;

	(void)state;
	assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
	assert_int_equal(attr.pkey_index, DEVICE_PKEY); /* on no device of ours */
	to_cm_id(id)->real->verbs = &ctx.verbs.context;
	assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
	assert_true(mask & IBV_QP_PKEY_INDEX);
	assert_int_equal(attr.pkey_index, PROGRAM_PKEY);
	assert_int_equal(attr.ah_attr.grh.sgid_index, PROGRAM_GID);
	assert_int_equal(rdma_destroy_id(id), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(listeners_are_made_again),
		T(a_listener_waits_for_its_address),
		T(a_bound_id_waits_for_its_address),
		T(an_id_in_use_is_made_again_later),
		T(a_route_may_get_more_paths),
		T(one_that_cannot_be_made_again_is_given_up),
		T(a_device_that_stayed_keeps_its_listeners),
		T(what_is_being_made_is_waited_for),
		T(a_resolved_id_is_resolved_again),
		T(a_call_that_a_migration_overtakes_finds_it_resolved),
		T(a_connect_that_a_suspend_overtakes_waits),
		T(a_route_that_cannot_be_asked_for_is_asked_for_again),
		T(a_join_is_waited_for),
		T(routes_come_from_the_path_records),
		T(attributes_have_the_program_s_indices),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
