/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Topologies and LFT dumps. A written text is read back the same, a wrong one is refused whole with
 * its line and field, and nothing that was cut short is taken for whole. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "vswitch/moves/check.h"
#include "vswitch/nets/gen.h"
#include "vswitch/routing/engine.h"
#include "vswitch/model/lids.h"
#include "vswitch/text/text.h"

static void make(const char *text, struct fabric *f)
{
	struct fabric_error e = {""};
	struct gen_spec spec;
	int rc = gen_parse(text, &spec, &e);

	rc = rc ? rc : gen_fabric(&spec, f, &e);
	rc = rc ? rc : route_updn.run(f, &e);
	if (rc)
		fail_msg("%s: %s", text, e.text);
}

static void same(const struct fabric *a, const struct fabric *b)
{
	assert_int_equal(a->switches, b->switches);
	assert_int_equal(a->ends, b->ends);
	for (uint32_t i = 0; i < a->switches; i++) {
		const struct fabric_switch *x = &a->sw[i], *y = &b->sw[i];

		assert_true(x->guid == y->guid && x->lid == y->lid && x->lmc == y->lmc &&
			    x->ports == y->ports);
		assert_int_equal(x->inside, y->inside);
		assert_string_equal(x->desc, y->desc);
		for (unsigned p = 1; p <= x->ports; p++) {
			assert_int_equal(x->peer[p].sw, y->peer[p].sw);
			assert_int_equal(x->peer[p].end, y->peer[p].end);
			assert_int_equal(x->peer[p].port, y->peer[p].port);
		}
		assert_int_equal(x->lft_blocks, y->lft_blocks);
		for (unsigned k = 0; k < x->lft_blocks; k++)
			assert_memory_equal(fabric_lft_block(a, i, k), fabric_lft_block(b, i, k),
					    64);
	}
	for (uint32_t i = 0; i < a->ends; i++) {
		const struct fabric_end *x = &a->end[i], *y = &b->end[i];

		assert_true(x->port_guid == y->port_guid && x->node_guid == y->node_guid);
		assert_true(x->lid == y->lid && x->lmc == y->lmc && x->port == y->port);
		assert_string_equal(x->desc, y->desc);
	}
}

static void test_round(void **state)
{
	static const char *const nets[] = {"xgft:3,4,3/2,2,vfs=2,vswitch,lmc=1", "mesh:3x2",
					   "torus:4x4,hosts=2", "324"};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++) {
		struct fabric_error e = {""};
		struct fabric f, g;
		size_t topo_bytes, lft_bytes;

		make(nets[i], &f);
		char *topo AUTO_FREE = topo_format(&f, &topo_bytes);
		char *lfts AUTO_FREE = lfts_format(&f, &lft_bytes);
		if (topo_read(topo, topo_bytes, &g, &e) || lfts_read(lfts, lft_bytes, &g, &e))
			fail_msg("%s: %s", nets[i], e.text);
		same(&f, &g);
		fabric_clear(&f);
		fabric_clear(&g);
	}
}

/* A switch with an enhanced port 0 may have several LIDs: its tables name them all. */
static void test_enhanced_port(void **state)
{
	static const char topo[] = "Ca 1 \"x\"\n[1] \"a\"[1] # lid 9 lmc 0\n\n"
				   "switchguid=0x5\n"
				   "Switch 3 \"a\" # \"a\" enhanced port 0 lid 4 lmc 2\n"
				   "[1] \"x\"[1]\n";
	static const char lfts[] =
		"Unicast lids [0x0-0x9] of switch Lid 4 guid 0x0000000000000005 (a):\n"
		"0x0004 000 : a\n0x0005 000 : a\n0x0006 000 : a\n0x0007 000 : a\n"
		"0x0009 001 : x\n5 valid lids dumped\n";
	struct fabric_error e = {""};
	struct fabric f, g;
	size_t bytes;

	(void)state;
	if (topo_read(topo, sizeof topo - 1, &f, &e) || lfts_read(lfts, sizeof lfts - 1, &f, &e))
		fail_msg("%s", e.text);
	for (unsigned lid = 3; lid <= 8; lid++)
		assert_int_equal(fabric_find_lid(&f, lid).sw, lid < 4 || lid > 7 ? FABRIC_NONE : 0);
	assert_int_equal(fabric_set_lid(&f, 0, 7), -EEXIST);
	char *again AUTO_FREE = topo_format(&f, &bytes);
	if (topo_read(again, bytes, &g, &e))
		fail_msg("%s", e.text);
	fabric_forget_lfts(&f);
	same(&f, &g);
	fabric_clear(&f);
	fabric_clear(&g);
}

/* A whole line or part of one gone from the end: refused, whichever it is. */
static void test_cut(void **state)
{
	struct fabric_error e;
	struct fabric f, g;
	size_t topo_bytes, lft_bytes;

	(void)state;
	make("xgft:2,2/2,vfs=1,vswitch", &f);
	char *topo AUTO_FREE = topo_format(&f, &topo_bytes);
	char *lfts AUTO_FREE = lfts_format(&f, &lft_bytes);
	/* behind the name of the last link's peer nothing comes that is not said elsewhere: port 1
	 * is what no port means */
	for (size_t n = 0; n <= (size_t)(strrchr(topo, '[') - topo) - 1; n++)
		if (!topo_read(topo, n, &g, &e))
			fail_msg("%zu of %zu bytes are a topology", n, topo_bytes);
	for (size_t n = 0; n < lft_bytes - 2; n++) {
		if (!lfts_read(lfts, n, &f, &e))
			fail_msg("%zu of %zu bytes are a dump", n, lft_bytes);
		assert_null(fabric_lft_block(&f, 0, 0));
	}
	assert_int_equal(lfts_read(lfts, lft_bytes, &f, &e), 0);
	fabric_clear(&f);
}

#define SWITCH_A "Switch 3 \"a\" # \"a\" base port 0 lid 1 lmc 0\n"
#define SWITCH_B "Switch 3 \"b\" # \"b\" base port 0 lid 2 lmc 0\n"

static void test_bad_topologies(void **state)
{
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "line 0: no node in the whole text"},
		{"# nothing\n\n", "line 2: no node in the whole text"},
		{"Switch \"a\"\n", "line 1: the number of ports must be 1 to 254"},
		{"Switch 255 \"a\"\n", "line 1: the number of ports must be 1 to 254"},
		{"Switch 3 a\n", "line 1: a node's name in quotes is missing"},
		{"[1] \"a\"[1]\n", "line 1: a port without a node above it"},
		{"\nrubbish\n", "line 2: \"rubbish\" is not understood"},
		{SWITCH_A "[4] \"b\"[1]\n", "line 2: port 4 is beyond the 3 of the node"},
		{SWITCH_A "[0] \"b\"[1]\n", "line 2: port 0 is beyond the 3 of the node"},
		{SWITCH_A "[1] \"b\"[1]\n[1] \"b\"[2]\n",
		 "line 3: port 1 is stated twice, first in line 2"},
		{SWITCH_A "[1] \"b\"[0]\n", "line 2: the peer's port must be 1 to 254"},
		{SWITCH_A "[1] b[1]\n", "line 2: the peer's name in quotes is missing"},
		{SWITCH_A "[1] \"b\"[1]\n", "line 2: a link to a node that is not there: \"b\""},
		{SWITCH_A "[1] \"b\"[1]\n\n" SWITCH_B,
		 "line 2: a link that its other end does not state: \"b\""},
		{SWITCH_A "[1] \"b\"[1]\n\n" SWITCH_B "[1] \"a\"[2]\n",
		 "line 2: a link that its other end does not state: \"b\""},
		{SWITCH_A "[1] \"a\"[1]\n",
		 "line 2: a link that its other end does not state: \"a\""},
		{SWITCH_A "[1] \"b\"[1] # \"b\" lid 3\n\n" SWITCH_B "[1] \"a\"[1]\n",
		 "line 2: a LID that is not that of \"b\""},
		{SWITCH_A "\n" SWITCH_A, "line 3: a second node \"a\""},
		{"switchguid=0x5\n" SWITCH_A "\nswitchguid=0x5\n" SWITCH_B,
		 "line 5: the GUID is that of another node: \"b\""},
		{"switchguid=0x0\n", "line 1: a GUID must be a number from 1 to"},
		{"Switch 3 \"a\" # \"a\" base port 0 lid 49152\n",
		 "line 1: lid must be a number from 0 to 49151"},
		{SWITCH_A "\nSwitch 2 \"b\" # \"b\" base port 0 lid 1\n",
		 "line 3: the LID is that of another port: \"b\""},
		{"Ca 1 \"x\"\n[1] \"a\"[1] # lid 5 lmc 2\n\n" SWITCH_A "[1] \"x\"[1]\n",
		 "line 2: the LID is no multiple of 2^LMC: \"x\""},
		{"Ca 1 \"x\"\n[1] \"a\"[1] # lid 5 lmc 8\n", "line 2: lmc must be 0 to 7"},
		{"Ca 1 \"x\"\n[1] \"y\"[1]\n\nCa 1 \"y\"\n[1] \"x\"[1]\n",
		 "line 2: a link between two CAs, to \"y\""},
		{"Ca 1 \"x\"\n", "line 1: a CA without a link: \"x\""},
		{"Ca 1 \"x\"\n[1](0) \"y\"[1]\n", "line 2: a port GUID in parentheses is wrong"},
		{"caguid=7\nCa 2 \"x\"\n[1](77) \"a\"[1]\n[2](77) \"a\"[2]\n\n" SWITCH_A
		 "[1] \"x\"[1]\n[2] \"x\"[2]\n",
		 "line 4: the GUID is that of another node: \"x\""},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct fabric_error e = {""};
		struct fabric f;

		if (!topo_read(bad[i].text, strlen(bad[i].text), &f, &e))
			fail_msg("accepted: %s", bad[i].text);
		if (strncmp(e.text, bad[i].error, strlen(bad[i].error)) != 0)
			fail_msg("\"%s\" instead of \"%s\"", e.text, bad[i].error);
	}
}

#define HEAD "Unicast lids [0x0-0x3] of switch Lid 1 guid 0x0000000000200000 (a):\n"

static void test_bad_dumps(void **state)
{
	static const char topology[] = SWITCH_A
		"[1] \"x\"[1]\n\nCa 1 \"x\"\n[1] \"a\"[1] # lid 3\n";
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "line 0: there is no table of switch a"},
		{HEAD, "line 1: the text ends within the table of switch a"},
		{HEAD HEAD, "line 2: the table of switch a has no end"},
		{HEAD "0 valid lids dumped\n" HEAD, "line 3: a second table of switch a"},
		{HEAD "0x0004 001 :\n", "line 2: LID 4 is beyond the table, which ends at 3"},
		{HEAD "0xc001 001 :\n", "line 2: LID 49153 is beyond the table"},
		{HEAD "0x0003 004 :\n", "line 2: LID 3: port 4 is beyond the 3 of switch a"},
		{HEAD "0x0003 256 :\n", "line 2: LID 3: the port must be 0 to 255"},
		{HEAD "0x0003 001 :\n0x0003 001 :\n", "line 3: LID 3 is twice in the table"},
		{HEAD "0x0002 001 :\n", "line 2: LID 2 is nobody's in the topology"},
		{HEAD "0x0003 001 :\n2 valid lids dumped\n",
		 "line 3: 2 entries of switch a are counted, 1 are there"},
		{"0x0003 001 :\n", "line 1: an entry without a table above it"},
		{"1 valid lids dumped\n", "line 1: the end of a table that did not begin"},
		{HEAD "rubbish\n", "line 2: not understood"},
		{"Unicast lids [0x0-0xffff] of switch Lid 1 guid 0x200000 (a):\n",
		 "line 1: LIDs 0x0 to 0xffff: a whole table"},
		{"Unicast lids [0x1-0x3] of switch Lid 1 guid 0x200000 (a):\n",
		 "line 1: LIDs 0x1 to 0x3: a whole table"},
		{"Unicast lids [0x0-0x3] of switch Lid 1 guid 0x99 (a):\n",
		 "line 1: no switch has GUID 0x0000000000000099"},
	};
	struct fabric_error e;
	struct fabric f;

	(void)state;
	assert_int_equal(topo_read(topology, strlen(topology), &f, &e), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		if (!lfts_read(bad[i].text, strlen(bad[i].text), &f, &e))
			fail_msg("accepted: %s", bad[i].text);
		if (strncmp(e.text, bad[i].error, strlen(bad[i].error)) != 0)
			fail_msg("\"%s\" instead of \"%s\"", e.text, bad[i].error);
		assert_null(fabric_lft_block(&f, 0, 0));
	}
	fabric_clear(&f);
}

/* Text that ibnetdiscover printed once. */
static void test_ibnetdiscover(void **state)
{
	char *text AUTO_FREE = NULL;
	struct fabric_error e = {""};
	struct fabric f;
	size_t bytes;

	(void)state;
	assert_int_equal(read_file("tests/fuzz/corpus/topo/ibnetdiscover", 1 << 20, &text, &bytes),
			 0);
	if (topo_read(text, bytes, &f, &e))
		fail_msg("%s", e.text);
	assert_int_equal(f.switches, 5);
	assert_int_equal(f.ends, 6);
	assert_int_equal(fabric_top_lid(&f), 11);
	assert_string_equal(f.sw[fabric_find_switch(&f, 0x200002)].desc, "spine0");
	assert_true(f.sw[fabric_find_switch(&f, 0x200004)].inside);
	assert_int_equal(f.end[fabric_find_end(&f, 0x100005)].lid, 9);
	assert_int_equal(route_minhop.run(&f, &e), 0);
	fabric_clear(&f);
}

int main(void)
{
	const struct CMUnitTest vswitch_text[] = {
		cmocka_unit_test(test_enhanced_port), cmocka_unit_test(test_round),
		cmocka_unit_test(test_cut),           cmocka_unit_test(test_bad_topologies),
		cmocka_unit_test(test_bad_dumps),     cmocka_unit_test(test_ibnetdiscover),
	};

	return RUN_TESTS(vswitch_text);
}
