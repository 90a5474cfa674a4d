/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs that a new master gives. Batches were cut short after any of their SMPs, with the GUIDs
 * left, put back, or half put back; files and records are older than the subnet. */
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/plugin/master/takeover.h"

#define VFS   12
#define PORTS (VFS + 3) /* and three that no batch names */

static struct takeover_port port[PORTS];
static struct sm_target batch[SM_ASSIGN_MAX];
static unsigned seed, lids = 1; /* lids: of each port, with its LMC */

static unsigned any(unsigned below)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % below;
}

static uint64_t parked(unsigned vf)
{
	return 0x1001 + 2 * vf;
}

static uint64_t vguid(unsigned vm)
{
	return 0x5001 + 2 * vm;
}

/* LIDs with holes between them; VM i is on VF i, four VMs. */
static void start(void)
{
	memset(port, 0, sizeof port);
	for (unsigned i = 0; i < PORTS; i++)
		port[i] = (struct takeover_port){
			.guid = i < 4 ? vguid(i) : parked(i),
			.switch_guid = 0x10 + i % 3,
			.switch_port = (uint8_t)(1 + i),
			.lids = (uint16_t)lids,
			.lid = (uint16_t)((60 + 3 * i + (i > 5)) * lids),
		};
	for (unsigned i = 0; i < PORTS; i++)
		port[i].known = port[i].lid;
}

/* VM i goes from VF i to VF 4 + i: `moves` of them, places 2i and 2i + 1 of the record. */
static void record(unsigned moves)
{
	for (unsigned i = 0; i < moves; i++) {
		const struct takeover_port *a = &port[i], *b = &port[4 + i];

		batch[2 * i] = (struct sm_target){.switch_guid = b->switch_guid,
						  .switch_port = b->switch_port,
						  .port_guid = a->guid,
						  .lid = a->lid,
						  .was_guid = b->guid,
						  .was_lid = b->lid};
		batch[2 * i + 1] = (struct sm_target){.switch_guid = a->switch_guid,
						      .switch_port = a->switch_port,
						      .port_guid = parked(i),
						      .lid = b->lid,
						      .was_guid = a->guid,
						      .was_lid = a->lid};
	}
}

static struct takeover_result settle(unsigned count)
{
	struct takeover_result r;

	assert_int_equal(takeover_settle(port, PORTS, batch, count, &r), 0);
	for (unsigned i = 0; i < PORTS; i++)
		for (unsigned k = 0; k < i; k++)
			assert_true(!port[i].gets || !port[k].gets ||
				    port[i].gets + port[i].lids <= port[k].gets ||
				    port[k].gets + port[k].lids <= port[i].gets);
	return r;
}

/* Plays the daemons' work on the GUIDs of VM i: 0 as the call had them, 1 the destination has its
 * own again, 2 both. */
static void show(unsigned i, unsigned state)
{
	port[i].guid = state == 2 ? vguid(i) : parked(i);
	port[4 + i].guid = state == 0 ? vguid(i) : parked(4 + i);
}

static void cut_short(unsigned moves)
{
	uint16_t was[PORTS], state[4];

	start();
	record(moves);
	for (unsigned i = 0; i < PORTS; i++) {
		was[i] = port[i].lid;
		if (!any(3)) /* OpenSM's file is of long ago */
			port[i].known = any(2) ? 0 : (uint16_t)(60 + any(60 * lids));
	}
	for (unsigned i = 0; i < moves; i++) {
		uint16_t a = port[i].lid, b = port[4 + i].lid;

		show(i, state[i] = (uint16_t)any(3));
		if (any(2))
			port[i].lid = b;
		if (any(2))
			port[4 + i].lid = a;
	}
	settle(2 * moves);
	for (unsigned i = 0; i < PORTS; i++) {
		unsigned m = i < 4 ? i : i - 4;

		if (m >= moves || i >= 8) {
			assert_int_equal(port[i].gets, was[i]);
			continue;
		}
		assert_true(port[i].gets == was[m] || port[i].gets == was[4 + m]);
		if (port[i].guid == vguid(m)) /* a VM keeps its LID, wherever it is */
			assert_int_equal(port[i].gets, was[m]);
	}
}

static void test_cut_short(void **state)
{
	(void)state;
	for (seed = 1; seed < 20000; seed += 7) {
		unsigned was = seed;

		lids = 1u << seed % 3;
		cut_short(1 + any(4));
		seed = was;
	}
	lids = 1;
}

/* Nothing was sent, and nothing was undone: the move is carried out. */
static void test_replayed(void **state)
{
	uint16_t a, b;

	(void)state;
	start();
	record(1);
	a = port[0].lid;
	b = port[4].lid;
	show(0, 0);
	assert_int_equal(settle(2).intent, TAKEOVER_MENDED);
	assert_int_equal(port[0].gets, b);
	assert_int_equal(port[4].gets, a);
	port[0].lid = b;
	port[4].lid = a;
	assert_int_equal(settle(2).intent, TAKEOVER_WHOLE);
	assert_int_equal(port[4].gets, a);
}

/* VM 0 takes its dynamic LID along; the LID of the VF that it leaves waits there, and no port has
 * it. */
static void test_waiting(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		uint16_t waits = 300, own;

		seed = round;
		start();
		own = port[4].lid;
		record(1);
		batch[0].own_lid = own;
		batch[1].lid = 0;
		batch[1].own_lid = waits;
		show(0, any(3));
		if (any(2))
			port[0].lid = waits;
		if (any(2))
			port[4].lid = batch[0].lid;
		if (!any(3))
			port[0].known = port[4].known = (uint16_t)(60 + any(60));
		settle(2);
		for (unsigned i = 0; i <= 4; i += 4)
			if (port[i].guid == vguid(0))
				assert_int_equal(port[i].gets, batch[0].lid);
		assert_true(port[0].gets == waits || port[0].gets == batch[0].lid);
		assert_true(port[4].gets == own || port[4].gets == batch[0].lid);
	}
}

/* The file of an SM that was away: it says nothing against ports that have a LID. */
static void test_stale_file(void **state)
{
	struct takeover_result r;

	(void)state;
	start();
	for (unsigned i = 0; i < PORTS; i++)
		port[i].known = port[(i + 1) % PORTS].lid;
	r = settle(0);
	assert_int_equal(r.intent, TAKEOVER_NONE);
	assert_int_equal(r.kept, PORTS);
	for (unsigned i = 0; i < PORTS; i++)
		assert_int_equal(port[i].gets, port[i].lid);
}

/* A host that was restarted has no LID: the file's, unless another port has that one. */
static void test_file_fills(void **state)
{
	(void)state;
	start();
	port[2].lid = port[3].lid = 0;
	port[3].known = port[7].lid;
	settle(0);
	assert_int_equal(port[2].gets, port[2].known);
	assert_int_equal(port[3].gets, 0);
}

static void test_doubled(void **state)
{
	(void)state;
	start();
	port[1].lid = port[2].lid;
	assert_int_equal(settle(0).doubled, 2);
	assert_int_equal(port[2].gets, port[2].lid);
	assert_int_equal(port[1].gets, port[1].known);
	port[9].lid = 0xc000; /* no unicast LID */
	port[9].known = 0;
	settle(0);
	assert_int_equal(port[9].gets, 0);
}

/* Exchanges the LIDs of two VFs; VM m is on the second one then. */
static void move(unsigned a, unsigned b)
{
	uint16_t lid = port[a].lid;

	port[b].guid = port[a].guid;
	port[a].guid = parked(a);
	port[a].lid = port[b].lid;
	port[b].lid = lid;
}

/* A record that nobody has closed, and whole batches after it: every port keeps its LID. */
static void test_past(void **state)
{
	unsigned past = 0;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		unsigned moves = 1 + any(4), at[4];

		seed = round;
		start();
		record(moves);
		for (unsigned i = 0; i < 4; i++)
			at[i] = i;
		for (unsigned k = any(6); k; k--) {
			unsigned vm = any(4), to = any(VFS);

			if (port[to].guid != parked(to) || to == at[vm])
				continue;
			move(at[vm], to);
			at[vm] = to;
		}
		past += settle(2 * moves).intent == TAKEOVER_PAST;
		for (unsigned i = 0; i < PORTS; i++)
			assert_int_equal(port[i].gets, port[i].lid);
	}
	assert_true(past > 500);
}

/* A VF of the record is off the net, its LID with it: the others get what they should. */
static void test_place_gone(void **state)
{
	uint16_t a;

	(void)state;
	start();
	record(1);
	a = port[0].lid;
	show(0, 0);
	port[0].switch_port = 200; /* somebody else's */
	port[0].lid = 250;
	assert_int_equal(settle(2).intent, TAKEOVER_MENDED);
	assert_int_equal(port[4].gets, a);
	assert_int_equal(port[0].gets, 250);
}

/* A subnet whose LMC has become 1: ports have LIDs that are no multiple of 2, or that another
 * one needs now. A port that cannot keep its LID waits for OpenSM's choice, and nobody gets half
 * of it. */
static void test_other_lmc(void **state)
{
	(void)state;
	lids = 2;
	start();
	lids = 1;
	port[12].lids = 1; /* a switch, on the second LID of port 1 */
	port[12].lid = (uint16_t)(port[1].lid + 1);
	port[0].lid++;
	port[0].known = 0;
	port[2].known = (uint16_t)(port[2].lid + 1);
	settle(0);
	assert_int_equal(port[0].gets, 0);
	assert_int_equal(port[1].gets, port[1].lid);
	assert_int_equal(port[2].gets, port[2].lid);
	assert_int_equal(port[12].gets, port[12].known);
	port[12].lid = 0;
	port[12].lids = 2;
	port[12].known = 0xbfff;
	settle(0);
	assert_int_equal(port[12].gets, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_short),  cmocka_unit_test(test_replayed),
		cmocka_unit_test(test_waiting),    cmocka_unit_test(test_stale_file),
		cmocka_unit_test(test_file_fills), cmocka_unit_test(test_doubled),
		cmocka_unit_test(test_past),       cmocka_unit_test(test_place_gone),
		cmocka_unit_test(test_other_lmc),
	};

	return RUN_TESTS(tests);
}
