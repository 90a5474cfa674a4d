/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process with as many routes as a subnet has ports, and what a path record changes in a QP. */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <string.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"

#define MANY 49150u

struct shim shim = {.call = PTHREAD_MUTEX_INITIALIZER};

static struct shim_path asked;

void shim_send(const void *packet)
{
	memcpy(&asked, packet, sizeof(asked));
}
uint32_t shim_cookie(void)
{
	return ++shim.last_cookie;
}

static struct shim_route *get(uint32_t n, uint16_t pkey)
{
	uint8_t sgid[16] = {0xfe, 0x80, [15] = 9}, dgid[16] = {0xfe, 0x80, [8] = 2, 0xc9};

	for (int i = 0; i < 4; i++)
		dgid[15 - i] = (uint8_t)(n >> 8 * i);
	return route_get(sgid, dgid, pkey);
}

static void many(void **state)
{
	static struct shim_route *first[MANY];
	uint64_t start = now_us();

	(void)state;
	for (uint32_t i = 0; i < MANY; i++)
		assert_non_null(first[i] = get(i, 0x7fff));
	for (uint32_t i = 0; i < MANY; i++)
		assert_ptr_equal(get(i, 0x7fff), first[i]);
	printf("# %u routes made and found again: %.0f ns each\n", MANY,
	       (double)(now_us() - start) * 1000 / MANY / 2);
	assert_ptr_not_equal(get(1, 0x8001), first[1]);
}

static void answers(void **state)
{
	struct shim_route *a = get(1, 0xffff), *b = get(2, 0xffff);
	struct shim_path first;

	(void)state;
	route_ask(a, false);
	first = asked;
	route_ask(b, false);
	assert_int_equal(a->state, ROUTE_ASKED);
	first.dlid = 77;
	route_answered(&first);
	assert_int_equal(a->state, ROUTE_KNOWN);
	assert_int_equal(a->path.dlid, 77);
	assert_int_equal(b->state, ROUTE_ASKED);
	route_ask(a, true); /* asked anew: the old answer comes too late */
	route_answered(&first);
	assert_int_equal(a->state, ROUTE_ASKED);
	asked.head.status = -1;
	route_answered(&asked);
	assert_int_equal(a->state, ROUTE_FAILED);
	memset(asked.dgid, 0xee, 16); /* this route is none of ours */
	route_answered(&asked);
}

static struct ibv_qp_attr apply(struct ibv_qp_attr a, unsigned mtu, uint8_t rate)
{
	struct shim_route r = {.state = ROUTE_KNOWN};

	r.path.dlid = 20;
	r.path.sl = 5;
	r.path.mtu = (uint16_t)mtu;
	r.path.rate = rate;
	route_apply(&r, &a);
	return a;
}

static void attributes(void **state)
{
	struct ibv_qp_attr ib = {.path_mtu = IBV_MTU_2048, .ah_attr = {.dlid = 10, .sl = 1}}, a;

	(void)state;
	a = apply(ib, 4096, 3);
	assert_int_equal(a.ah_attr.dlid, 20);
	assert_int_equal(a.ah_attr.sl, 5);
	assert_int_equal(a.path_mtu, IBV_MTU_2048); /* the MTU is no more than was agreed */
	assert_int_equal(a.ah_attr.static_rate, 0); /* a QP without a limit stays so */
	assert_int_equal(apply(ib, 1024, 3).path_mtu, IBV_MTU_1024);
	assert_int_equal(apply(ib, 256, 3).path_mtu, IBV_MTU_256);
	assert_int_equal(apply(ib, 0, 3).path_mtu, IBV_MTU_2048); /* not told */
	ib.ah_attr.static_rate = 7;
	assert_int_equal(apply(ib, 2048, 3).ah_attr.static_rate, 3);
	ib.ah_attr.dlid = 0; /* RoCE */
	a = apply(ib, 256, 3);
	assert_int_equal(a.path_mtu, IBV_MTU_2048);
	assert_int_equal(a.ah_attr.sl, 1);
	route_apply(NULL, &ib);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many),
		cmocka_unit_test(answers),
		cmocka_unit_test(attributes),
	};

	return RUN_TESTS(tests);
}
