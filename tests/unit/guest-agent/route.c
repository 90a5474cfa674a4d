/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process with as many routes as a subnet has ports, and what a path record changes in a QP. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/port/lid.h"

#define MANY 49150u

struct shim shim = {.call = PTHREAD_MUTEX_INITIALIZER, .call_done = PTHREAD_COND_INITIALIZER};

static struct shim_path asked;

void shim_send(const void *packet)
{
	memcpy(&asked, packet, sizeof(asked));
}
uint32_t shim_cookie(void)
{
	return ++shim.last_cookie;
}
void ctl_enter(void)
{
}
/* While a verb waits outside: the answer comes. */
static struct shim_path comes;
void ctl_exit(void)
{
	if (comes.head.type)
		route_answered(&comes);
}
bool shim_await_agent(unsigned ms)
{
	(void)ms;
	return false;
}

/* The agent's answer to whose LID that is. */
static struct shim_lid_ask lid_asked;
static struct shim_lid lid_answer_is;
static int lid_status;

int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms)
{
	(void)timeout_ms;
	memcpy(&lid_asked, packet, sizeof(lid_asked));
	assert_int_equal(bytes, sizeof(lid_answer_is));
	memcpy(answer, &lid_answer_is, bytes);
	return lid_status;
}

static int query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	(void)index;
	memset(gid->raw, port, sizeof(gid->raw));
	return port == 1 ? 0 : EINVAL;
}

const struct shim_real *shim_real(void)
{
	static const struct shim_real real = {.query_gid = query_gid};

	return &real;
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

static void waits(void **state)
{
	struct shim_route *r = get(3, 0xffff);

	(void)state;
	route_wait(r); /* nothing has been asked */
	route_ask(r, false);
	comes = asked;
	comes.dlid = 9;
	route_wait(r);
	assert_int_equal(r->state, ROUTE_KNOWN);
	memset(&comes, 0, sizeof(comes));
	route_ask(r, true);
	shim.agent_lost = true;
	route_wait(r); /* nobody will answer */
	assert_int_equal(r->state, ROUTE_ASKED);
	shim.agent_lost = false;
	asked.head.status = -ETIMEDOUT;
	route_answered(&asked);
	assert_int_equal(r->state, ROUTE_FAILED);
	assert_true(route_leads(r)); /* to where it has led before */
	assert_int_equal(r->path.dlid, 9);
	assert_false(route_leads(get(4, 0xffff)));
}

/* The path of before may lead elsewhere by now, and who failed to say may be back. */
static void asks_anew(void **state)
{
	struct shim_route *r = get(6, 0xffff);

	(void)state;
	for (unsigned i = 0; i < 3; i++) { /* not asked for yet, known, failed a while ago */
		memset(&asked, 0, sizeof(asked));
		memset(&comes, 0, sizeof(comes));
		if (i == 2)
			r->asked_us = 0;
		comes = (struct shim_path){
			.head = {.type = SHIM_PATH, .cookie = shim.last_cookie + 1},
			.pkey = r->pkey,
			.dlid = (uint16_t)(20 + i)};
		memcpy(comes.sgid, r->sgid, 16);
		memcpy(comes.dgid, r->dgid, 16);
		route_renew(r);
		assert_int_equal(asked.head.type, SHIM_PATH);
		assert_int_equal(r->path.dlid, 20 + i);
		if (i == 1)
			r->state = ROUTE_FAILED;
	}
	memset(&comes, 0, sizeof(comes));
	route_ask(r, false);
	asked.head.status = -ETIMEDOUT;
	route_answered(&asked);
	memset(&asked, 0, sizeof(asked));
	route_renew(r); /* failed just now */
	assert_int_equal(asked.head.type, 0);
	assert_int_equal(r->path.dlid, 22);
}

/* A question of the parent would be open for ever. */
static void a_child_begins_anew(void **state)
{
	pid_t child;
	int status = -1;

	(void)state;
	route_ask(get(5, 0xffff), false);
	child = fork();
	if (!child) {
		routes_forget_all();
		_exit(get(5, 0xffff)->state != ROUTE_NONE);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(get(5, 0xffff)->state, ROUTE_ASKED);
}

static struct shim_context ctx;

static void ends_of_a_lid(void **state)
{
	struct lid_ends ends;

	(void)state;
	lid_answer_is.count = 2;
	lid_answer_is.end[1] = (struct shim_end){.dgid = {7}, .dlid = 31, .sl = 4};
	assert_int_equal(lid_find_ends(&ctx, 1, 30, 0x8001, true, &ends), 0);
	assert_int_equal(lid_asked.lid, 30);
	assert_int_equal(lid_asked.pkey, 0x8001);
	assert_true(lid_asked.anew);
	assert_int_equal(ends.count, 2);
	assert_int_equal(ends.dgid[1][0], 7);
	assert_int_equal(route_get(ends.sgid, ends.dgid[1], 0x8001)->path.dlid, 31);
	assert_int_equal(route_get(ends.sgid, ends.dgid[1], 0x8001)->state, ROUTE_KNOWN);

	lid_asked.lid = 0;
	assert_int_equal(lid_find_ends(&ctx, 1, 0xc000, 0, false, &ends), -EINVAL);
	assert_int_equal(lid_find_ends(&ctx, 1, 0, 0, false, &ends), -EINVAL);
	assert_int_equal(lid_find_ends(&ctx, 2, 30, 0, false, &ends), -EINVAL);
	assert_int_equal(lid_asked.lid, 0);
	lid_answer_is.count = SHIM_ENDS_MAX + 1;
	assert_int_equal(lid_find_ends(&ctx, 1, 30, 0, false, &ends), -EHOSTUNREACH);
	lid_answer_is.count = 0;
	assert_int_equal(lid_find_ends(&ctx, 1, 30, 0, false, &ends), -EHOSTUNREACH);
	lid_status = -ETIMEDOUT;
	assert_int_equal(lid_find_ends(&ctx, 1, 30, 0, false, &ends), -ETIMEDOUT);
}

static struct ibv_ah_attr translate(uint16_t lid, uint16_t present)
{
	struct shim_route r = {.state = ROUTE_KNOWN, .path = {.dlid = present, .sl = 5}};
	struct ibv_ah_attr a = {.dlid = lid, .sl = 1, .port_num = 1};

	lid_translate(&ctx, &r, &a);
	return a;
}

static void lids_that_are_told(void **state)
{
	(void)state;
	assert_int_equal(translate(20, 33).dlid, 33);
	assert_int_equal(translate(20, 33).sl, 5);
	assert_int_equal(translate(20, 20).sl, 1); /* the program's own choice */
	assert_int_equal(translate(20, 0).dlid, 20);
	assert_int_equal(translate(0, 33).dlid, 0); /* RoCE */
	assert_int_equal(translate(0xc001, 33).dlid, 0xc001);
	ctx.lids[0].lmc = 2; /* a port has four LIDs, and the program has chosen one */
	assert_int_equal(translate(22, 20).dlid, 22);
	assert_int_equal(translate(24, 20).dlid, 20);
	ctx.lids[0].lmc = 0;
}

static struct ibv_port_attr told(uint16_t lid, uint8_t layer)
{
	struct ibv_port_attr a = {.lid = lid, .link_layer = layer};

	lid_answer(&ctx, 1, &a);
	return a;
}

static void lids_that_are_shown(void **state)
{
	(void)state;
	assert_int_equal(told(7, IBV_LINK_LAYER_INFINIBAND).lid, 7);
	assert_int_equal(told(8, IBV_LINK_LAYER_INFINIBAND).lid, 8); /* by the subnet manager */
	assert_int_equal(lid_shown(&ctx, 1, 9), 9);
	ctx.moved = true;
	assert_int_equal(told(9, IBV_LINK_LAYER_INFINIBAND).lid, 8);
	assert_int_equal(told(0, IBV_LINK_LAYER_INFINIBAND).lid, 0); /* the port has none yet */
	assert_int_equal(told(0, IBV_LINK_LAYER_ETHERNET).lid, 0);
	assert_int_equal(lid_shown(&ctx, 1, 9), 8);
	assert_int_equal(told(9, IBV_LINK_LAYER_INFINIBAND).flags, 0);
	shim.grh_required = true;
	assert_int_equal(told(9, IBV_LINK_LAYER_INFINIBAND).flags, IBV_QPF_GRH_REQUIRED);
	assert_int_equal(told(0, IBV_LINK_LAYER_ETHERNET).flags, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many),
		cmocka_unit_test(answers),
		cmocka_unit_test(attributes),
		cmocka_unit_test(waits),
		cmocka_unit_test(asks_anew),
		cmocka_unit_test(a_child_begins_anew),
		cmocka_unit_test(ends_of_a_lid),
		cmocka_unit_test(lids_that_are_told),
		cmocka_unit_test(lids_that_are_shown),
	};

	return RUN_TESTS(tests);
}
