/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Topologies and LFT dumps. A written text is read back the same, a wrong one is refused whole with
 * its line and field, and nothing that was cut short is taken for whole. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "vswitch/moves/check.h"
#include "vswitch/nets/gen.h"
#include "vswitch/routing/engine.h"
#include "vswitch/model/lids.h"
#include "vswitch/text/scan.h"
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
		if (topo_read(topo, topo_bytes, &g, NULL, &e) ||
		    lfts_read(lfts, lft_bytes, &g, NULL, &e))
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
	if (topo_read(topo, sizeof topo - 1, &f, NULL, &e) ||
	    lfts_read(lfts, sizeof lfts - 1, &f, NULL, &e))
		fail_msg("%s", e.text);
	for (unsigned lid = 3; lid <= 8; lid++)
		assert_int_equal(fabric_find_lid(&f, lid).sw, lid < 4 || lid > 7 ? FABRIC_NONE : 0);
	assert_int_equal(fabric_set_lid(&f, 0, 7), -EEXIST);
	char *again AUTO_FREE = topo_format(&f, &bytes);
	if (topo_read(again, bytes, &g, NULL, &e))
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
		if (!topo_read(topo, n, &g, NULL, &e))
			fail_msg("%zu of %zu bytes are a topology", n, topo_bytes);
	for (size_t n = 0; n < lft_bytes - 2; n++) {
		if (!lfts_read(lfts, n, &f, NULL, &e))
			fail_msg("%zu of %zu bytes are a dump", n, lft_bytes);
		assert_null(fabric_lft_block(&f, 0, 0));
	}
	assert_int_equal(lfts_read(lfts, lft_bytes, &f, NULL, &e), 0);
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
		{"\nrubbish\n", "line 2: no node in the whole text"},
		{"Switch 3 \"a\" rubbish\n", "line 1: \"rubbish\" is not understood"},
		{SWITCH_A "[1](1/1 \"b\"[1]\n", "line 2: a port GUID in parentheses is wrong"},
		{"Ca 1 \"x\"\n[1](9)(1/1) \"a\"[1]\n",
		 "line 2: a port GUID in parentheses is wrong"},
		{"Switch 3 \"a\" # \"a\" base port 0 lid 65534\n",
		 "line 1: lid must be a number from 0 to 49151"},
		{"switchguid=0x5\n" SWITCH_A "[1] \"x\"[1]\n\nCa 1 \"x\"\n[1] \"a\"[1]\n\n"
		 "switchguid=0x5\n" SWITCH_A,
		 "line 9: a second node \"a\""},
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
		 "line 5: no switch in the whole text"},
		{"Ca 1 \"x\"\n", "line 1: no switch in the whole text"},
		{"Ca 1 \"x\"\n[1](0) \"y\"[1]\n", "line 2: a port GUID in parentheses is wrong"},
		{"caguid=7\nCa 2 \"x\"\n[1](77) \"a\"[1]\n[2](77) \"a\"[2]\n\n" SWITCH_A
		 "[1] \"x\"[1]\n[2] \"x\"[2]\n",
		 "line 4: the GUID is that of another node: \"x\""},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct fabric_error e = {""};
		struct fabric f;

		if (!topo_read(bad[i].text, strlen(bad[i].text), &f, NULL, &e))
			fail_msg("accepted: %s", bad[i].text);
		if (strncmp(e.text, bad[i].error, strlen(bad[i].error)) != 0)
			fail_msg("\"%s\" instead of \"%s\"", e.text, bad[i].error);
	}
}

#define HEAD "Unicast lids [0x0-0x3] of switch Lid 1 guid 0x0000000000200000 (a):\n"

#define OPENSM "Unicast lids [0-3] of switch Lid 1 guid 0x0000000000200000 ('a'):\n"
#define FDBS                                                                                       \
	"osm_ucast_mgr_dump_ucast_routes: Switch 0x0000000000200000\n"                             \
	"LID    : Port : Hops : Optimal\n"

static void test_bad_dumps(void **state)
{
	static const char topology[] = SWITCH_A
		"[1] \"x\"[1]\n\nCa 1 \"x\"\n[1] \"a\"[1] # lid 3\n";
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "line 0: no table in the whole text"},
		{HEAD, "line 1: the text ends within the table of switch a"},
		{HEAD HEAD, "line 2: the table of switch a has no end"},
		{HEAD "0 valid lids dumped\n" HEAD, "line 3: a second table of switch a"},
		{HEAD "0x0004 001 :\n", "line 2: LID 4 is beyond the table, which ends at 3"},
		{HEAD "0xc001 001 :\n", "line 2: LID 49153 is beyond the table"},
		{HEAD "0x0003 004 :\n", "line 2: LID 3: port 4 is beyond the 3 of switch a"},
		{HEAD "0x0003 256 :\n", "line 2: LID 3: the port must be 0 to 255"},
		{HEAD "0x0003 001 :\n0x0003 002 :\n",
		 "line 3: LID 3 is twice in the table, with port 1 and with port 2"},
		{HEAD "0x0003 001 :\n2 valid lids dumped\n",
		 "line 3: 2 entries of switch a are counted, 1 are there"},
		{"0x0003 001 :\n", "line 1: an entry without a table above it"},
		{OPENSM "0x0003 001 # x\n2 lids dumped\n",
		 "line 3: LIDs of switch a go to 3, and 2 is said here"},
		{OPENSM "0x0003 001 # x\n", "line 2: the text ends within the table of switch a"},
		{FDBS "0x0001 : 000  : 00   : yes\n",
		 "line 3: LID 3 is missing in the table of switch a"},
		{FDBS "0x0001 : 000  : 00   : yes\n0x0003 : 00",
		 "line 4: LID 3: the port must be 0 to 255"},
		{FDBS "0x0003 : 004  : 00   : yes\n",
		 "line 3: LID 3: port 4 is beyond the 3 of switch a"},
		{"1 valid lids dumped\n", "line 1: the end of a table that did not begin"},
		{HEAD "rubbish\n", "line 2: the text ends within the table of switch a"},
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
	assert_int_equal(topo_read(topology, strlen(topology), &f, NULL, &e), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		if (!lfts_read(bad[i].text, strlen(bad[i].text), &f, NULL, &e))
			fail_msg("accepted: %s", bad[i].text);
		if (strncmp(e.text, bad[i].error, strlen(bad[i].error)) != 0)
			fail_msg("\"%s\" instead of \"%s\"", e.text, bad[i].error);
		assert_null(fabric_lft_block(&f, 0, 0));
	}
	fabric_clear(&f);
}

#define HEX16_A   "00aa000000000100"
#define HEX16_B   "00aa000000000200"
#define HEX16_X   "00bb000000000010"
#define HEX16_Y   "00bb000000000020"
#define GUIDS     "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x" HEX16_A "\n"
#define SWITCH(g) "switchguid=0x" g "(" g ")\nSwitch\t40 \"S-" g "\"\t\t# "
#define LEAF      SWITCH(HEX16_A) "\"MF0;leaf-a:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n"
#define CA(g)     "caguid=0x" g "\nCa\t1 \"H-" g "\"\t\t# \"node-1 HCA-1\"\n"
#define LEAF_X    "[1]\t\"H-" HEX16_X "\"[1](bb000000000010) \t\t# \"node-1 HCA-1\" lid 2 4xNDR\n"
#define PEER(p)   "\"S-" HEX16_A "\"[" p "]\t\t# lid 2 lmc 0 \"MF0;leaf-a:MQM9700/U1\" lid 1 4xNDR\n"
#define NODE_X    CA(HEX16_X) "[1](bb000000000010) \t" PEER("1")

/* What writers of topologies print: read, and what is odd is said with its first line. */
static void test_writers(void **state)
{
	static const struct {
		const char *what, *text, *note;
		unsigned count, switches, ends;
	} good[] = {
		{"ibnetdiscover", GUIDS LEAF LEAF_X "\n" NODE_X, NULL, 0, 1, 1},
		{"ibdiagnet's labels",
		 "# IBDIAG\n\n\n" GUIDS LEAF "[1](1/1/1) \"H-" HEX16_X
		 "\"[1](bb000000000010)      # "
		 "\"node-1 HCA-1\" lid 2 4xNDR\n\n\n" CA(
			 HEX16_X) "[1](B23D0F0/0/0/1)(bb000000000010) " PEER("1"),
		 NULL, 0, 1, 1},
		{"ibnetdiscover -g",
		 "\nChassis 1 (guid 0x" HEX16_A ")\nHostname: x\n\n# Spine Nodes\n" GUIDS
		 "switchguid=0x" HEX16_A "(" HEX16_A ")\t# ISR9024D Spine 1 Chip 1\n"
		 "Switch\t40 \"S-" HEX16_A "\"\t\t# \"a\" base port 0 lid 1 lmc 0\n"
		 "[1][ext 3]\t\"H-" HEX16_X "\"[1](bb000000000010) \t\t# \"x\" lid 2 4xNDR\n\n"
		 "Non-Chassis Nodes\n\n" CA(
			 HEX16_X) "[1](bb000000000010) \t\"S-" HEX16_A
				  "\"[1][ext 3]\t\t# lid 2 lmc 0 \"a\" lid 1 4xNDR\n",
		 NULL, 0, 1, 1},
		{"-g: a switch of a chassis twice", LEAF LEAF_X "\n" LEAF LEAF_X "\n" NODE_X,
		 "line 6: node \"S-00aa000000000100\" again, as in line 2: left out", 1, 1, 1},
		{"CRLF, a mark of UTF-8, other blanks",
		 "\xef\xbb\xbf  switchguid= 0xAA000000000100\r\n Switch\t40\t\"S-" HEX16_A
		 "\"\t#\t\"a\"  base port 0 lid  1  lmc 0\r\n\t[1]  \"H-" HEX16_X
		 "\"[1]( bb000000000010) # \"x\"  lid  2\r\n\r\n" CA(
			 HEX16_X) "  [1](0xbb000000000010)  \"S-" HEX16_A
				  "\"[1] #  lid 2  lmc 0 \"a\" lid 1\r\n",
		 NULL, 0, 1, 1},
		{"a quote and lid in a description",
		 SWITCH(HEX16_A) "\"a \"b\" lid 9 c\" base port 0 lid 1 lmc 0\n"
				 "[1]\t\"H-" HEX16_X
				 "\"[1](bb000000000010) \t\t# \"x \"lid 7\" y\" lid 2 4xNDR\n\n" CA(
					 HEX16_X) "[1](bb000000000010) \t\"S-" HEX16_A
						  "\"[1]\t\t# lid 2 lmc 0 \"a \"b\" lid 9 c\" lid "
						  "1 4xNDR\n",
		 NULL, 0, 1, 1},
		{"log lines and a prompt",
		 "[root@host ~]# ibnetdiscover\nibwarn: [7] mad_rpc: timeout\n" LEAF
		 "src/query_smp.c:197; umad (DR path 0,1) bad status 110\n" LEAF_X "\n" NODE_X,
		 "line 1: \"[root@host ~]# ibnetdiscover\" is not understood: left out", 3, 1, 1},
		{"a port twice", LEAF LEAF_X LEAF_X "\n" NODE_X,
		 "line 4: port 1 is stated again, as in line 3: left out", 1, 1, 1},
		{"ports and CAs without a link",
		 LEAF LEAF_X "[2]\n[3](1/2/1)\t# down\n\n" NODE_X "\n" CA(HEX16_Y),
		 "line 4: port 2 has no link: left out", 2, 1, 1},
		{"a CA without a link", LEAF LEAF_X "\n" NODE_X "\n" CA(HEX16_Y),
		 "line 10: a CA without a link, \"node-1 HCA-1\": left out", 1, 1, 1},
		{"CAs back to back",
		 LEAF LEAF_X "\n" NODE_X "\nCa 1 \"v\"\n[1] \"w\"[1]\n\nCa 1 \"w\"\n[1] \"v\"[1]\n",
		 "line 10: a link between two CAs, to \"w\": left out", 2, 1, 1},
		{"LID 65535",
		 LEAF LEAF_X "[2]\t\"H-" HEX16_Y
			     "\"[1](bb000000000020) \t\t# \"y\" lid 65535 4xNDR\n\n" NODE_X
			     "\n" CA(HEX16_Y) "[1](bb000000000020) \t\"S-" HEX16_A
					      "\"[2]\t\t# lid 65535 lmc 0 \"a\" lid 1 4xNDR\n",
		 "line 4: lid 65535: the subnet manager has not configured the port: taken as none",
		 2, 1, 2},
		{"SYSTEM(NODE)",
		 "switchguid=0x" HEX16_B "(" HEX16_A ")\nSwitch\t40 \"S-" HEX16_A
		 "\"\t\t# \"MF0;leaf-a:MQM9700/U1\" base port 0 lid 1 lmc 0\n" LEAF_X
		 "[40]\t\"S-" HEX16_B "\"[1]\t\t# \"spine\" lid 9 4xHDR\n\n" NODE_X
		 "\n" SWITCH(HEX16_B) "\"spine\" base port 0 lid 9 lmc 0\n"
				      "[1]\t\"S-" HEX16_A "\"[40]\t\t# \"leaf\" lid 1 4xHDR\n",
		 "line 2: GUID 0x00aa000000000200 is of a system, the one in parentheses of node "
		 "\"S-00aa000000000100\": that is taken",
		 1, 2, 1},
		{"a router, an HCA with two ports, a port for aggregation",
		 LEAF LEAF_X "[2] \"R-5\"[1]\n[40](65) \"H-6\"[1](6)\n[39] \"H-6\"[2](7)\n\n" NODE_X
			     "\nrtguid=0x5\nRt\t2 \"R-5\"\t# \"router\"\n[1](5) \"S-" HEX16_A
			     "\"[2] # lid 3 lmc 0\n\ncaguid=0x6\nCa\t2 \"H-6\"\t# \"Aggregation "
			     "Node\"\n[1](6) \"S-" HEX16_A
			     "\"[40] # lid 4 lmc 0\n[2](7) \"S-" HEX16_A "\"[39] # lid 8 lmc 2\n",
		 NULL, 0, 1, 4},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		struct text_notes n = {.notes = 0};
		struct fabric_error e = {""};
		struct fabric f;

		if (topo_read(good[i].text, strlen(good[i].text), &f, &n, &e))
			fail_msg("%s: %s", good[i].what, e.text);
		if (f.switches != good[i].switches || f.ends != good[i].ends)
			fail_msg("%s: %u switches, %u CA ports", good[i].what, f.switches, f.ends);
		assert_int_not_equal(fabric_find_switch(&f, 0xaa000000000100), FABRIC_NONE);
		assert_int_equal(f.end[fabric_find_end(&f, 0xbb000000000010)].lid, 2);
		assert_int_equal(fabric_find_lid(&f, 1).sw,
				 fabric_find_switch(&f, 0xaa000000000100));
		if (!good[i].note && n.notes)
			fail_msg("%s: %s", good[i].what, n.note[0].first);
		if (good[i].note) {
			if (!n.notes)
				fail_msg("%s: no note", good[i].what);
			assert_string_equal(n.note[0].first, good[i].note);
			assert_int_equal(n.note[0].count, good[i].count);
		}
		fabric_clear(&f);
	}
}

/* What writers of LFTs print, for one switch with CA ports that have LIDs 3 and 70 (0x46). */
static void test_dump_writers(void **state)
{
	static const char topology[] = SWITCH_A "[1] \"x\"[1]\n[2] \"y\"[1]\n\n"
						"Ca 1 \"x\"\n[1] \"a\"[1] # lid 3\n\n"
						"Ca 1 \"y\"\n[1] \"a\"[2] # lid 70\n";
#define OF_A " of switch Lid 1 guid 0x0000000000200000 (a):\n"
	static const struct {
		const char *what, *text, *note;
		unsigned count;
	} good[] = {
		{"dump_lfts",
		 "Unicast lids [0x0-0x46]" OF_A "  Lid  Out   Destination\n       Port     Info \n"
		 "0x0001 000 : (a)\n0x0003 001 : (x)\n0x0046 002 : (y)\n3 valid lids dumped \n",
		 NULL, 0},
		{"dump_fts -a, -n, CRLF",
		 "Unicast lids [0x0-0x46]" OF_A
		 "0x0001 000 : \r\n0x0002 255 : (path #0 - illegal port)\r\n"
		 "0x0003 001 :\r\n0x0004 200 : (path #0 - illegal port)\r\n0x0046 002 :\r\n"
		 "5 lids dumped\r\n",
		 NULL, 0},
		{"the LID of a virtual port",
		 "Unicast lids [0x0-0x46]" OF_A "0x0001 000 : (a)\n0x0003 001 : (x)\n"
		 "0x0007 001 : (unknown node and type)\n0x0046 002 : (y)\n4 valid lids dumped \n",
		 "line 4: LID 7 (port 1 of switch a) is nobody's in the topology: left out", 1},
		{"log lines, an entry twice",
		 "ibwarn: [7] get_mad: timeout\nUnicast lids [0x0-0x46]" OF_A
		 "0x0001 000 : (a)\n2026-11-25 12:00:00 dump_fts: 0x1\n0x0003 001 : (x)\n"
		 "0x0003 001 : (x)\n0x0046 002 : (y)\n3 valid lids dumped \n",
		 "line 1: \"ibwarn: [7] get_mad: timeout\" is not understood: left out", 2},
		{"multicast tables beside",
		 "Multicast mlids [0xc000-0xc3ff] of switch Lid 1 guid 0x200000 (a):\n"
		 "            0         1\n     Ports: 0 1 2 3\n MLid\n0xc000     x\n"
		 "1 valid mlids dumped \nUnicast lids [0x0-0x46]" OF_A
		 "0x0001 000 : (a)\n0x0003 001 : (x)\n0x0046 002 : (y)\n3 valid lids dumped \n",
		 "line 1: a table of multicast LIDs: left out", 1},
		{"opensm-lfts.dump",
		 "Unicast lids [0-70] of switch Lid 1 guid 0x0000000000200000 ('a'):\n"
		 "0x0001 000 # Switch portguid 0x0000000000200000: 'a'\n0x0003 001 # x\n"
		 "0x0046 002 # y\n70 lids dumped\n",
		 NULL, 0},
		{"opensm.fdbs",
		 "dump_ucast_routes: Switch 0x0000000000200000\nLID    : Port : Hops : Optimal\n"
		 "0x0001 : 000  : 00   : yes\n0x0002 : UNREACHABLE\n0x0003 : 001  : 01   : yes\n"
		 "0x0046 : 002  : HOPS UNKNOWN\n",
		 NULL, 0},
		{"ibdiagnet.fdbs",
		 FDBS "0x0001 : 000  : 00   : yes\n0x0002 : UNREACHABLE\n"
		      "0x0003 : 001  : 00   : yes\n0x0046 : 002  : 00   : yes\n",
		 NULL, 0},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		struct text_notes n = {.notes = 0};
		struct fabric_error e = {""};
		struct fabric f;

		assert_int_equal(topo_read(topology, sizeof topology - 1, &f, NULL, &e), 0);
		if (lfts_read(good[i].text, strlen(good[i].text), &f, &n, &e))
			fail_msg("%s: %s", good[i].what, e.text);
		assert_int_equal(fabric_lft_entry(&f, 0, 1), 0);
		assert_int_equal(fabric_lft_entry(&f, 0, 2), VSWITCH_NO_PATH);
		assert_int_equal(fabric_lft_entry(&f, 0, 3), 1);
		assert_int_equal(fabric_lft_entry(&f, 0, 4), VSWITCH_NO_PATH);
		assert_int_equal(fabric_lft_entry(&f, 0, 7), VSWITCH_NO_PATH);
		assert_int_equal(fabric_lft_entry(&f, 0, 70), 2);
		if (!good[i].note && n.notes)
			fail_msg("%s: %s", good[i].what, n.note[0].first);
		if (good[i].note) {
			if (!n.notes)
				fail_msg("%s: no note", good[i].what);
			assert_string_equal(n.note[0].first, good[i].note);
			assert_int_equal(n.note[0].count, good[i].count);
		}
		fabric_clear(&f);
	}
}

/* OpenSM's own dumps, cut anywhere. The hops behind a port are not read, so an fdbs that is cut
 * within them is whole. */
static void test_cut_opensm(void **state)
{
	static const char topology[] = SWITCH_A
		"[1] \"x\"[1]\n\nCa 1 \"x\"\n[1] \"a\"[1] # lid 3\n";
	static const char lfts[] = OPENSM "0x0001 000 # a\n0x0003 001 # x\n3 lids dumped\n";
	static const char fdbs[] = FDBS "0x0001 : 000  : 00   : yes\n0x0002 : UNREACHABLE\n"
					"0x0003 : 001  : 01   : yes\n";
	size_t whole = (size_t)(strrchr(fdbs, '1') - fdbs) - 3; /* behind "001  :" */
	struct fabric_error e;
	struct fabric f;

	(void)state;
	assert_int_equal(topo_read(topology, strlen(topology), &f, NULL, &e), 0);
	for (size_t n = 0; n < sizeof lfts - 2; n++)
		if (!lfts_read(lfts, n, &f, NULL, &e))
			fail_msg("%zu bytes are an opensm-lfts.dump", n);
	assert_int_equal(lfts_read(lfts, sizeof lfts - 2, &f, NULL, &e), 0);
	for (size_t n = 0; n < sizeof fdbs; n++)
		if (!lfts_read(fdbs, n, &f, NULL, &e) != (n > whole))
			fail_msg("%zu bytes of an fdbs: %s", n, e.text);
	assert_int_equal(fabric_lft_entry(&f, 0, 3), 1);
	fabric_clear(&f);
}

/* A file that is larger than the window is read as from memory, and refused as from memory when it
 * is cut. */
static void test_file(void **state)
{
	struct fabric_error e = {""};
	struct fabric f, g;
	size_t topo_bytes, bytes;
	FILE *file AUTO_FILE = tmpfile();

	(void)state;
	make("324", &f);
	char *topo AUTO_FREE = topo_format(&f, &topo_bytes);
	assert_int_equal(topo_read(topo, topo_bytes, &g, NULL, &e), 0);
	assert_non_null(file);
	lfts_write(file, &f);
	bytes = (size_t)ftell(file);
	assert_true(bytes > SCAN_WINDOW * 3ul);
	rewind(file);
	if (lfts_read_file(file, &g, NULL, &e))
		fail_msg("%s", e.text);
	same(&f, &g);
	rewind(file);
	assert_int_equal(ftruncate(fileno(file), (off_t)bytes - 8), 0);
	assert_int_equal(lfts_read_file(file, &g, NULL, &e), -EINVAL);
	assert_null(fabric_lft_block(&g, 0, 0));
	rewind(file);
	for (unsigned i = 0; i < SCAN_WINDOW + 9; i++)
		fputc('x', file);
	rewind(file);
	assert_int_equal(lfts_read_file(file, &g, NULL, &e), -EINVAL);
	assert_string_equal(e.text, "line 1: longer than 1023 bytes");
	fabric_clear(&f);
	fabric_clear(&g);
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
	if (topo_read(text, bytes, &f, NULL, &e))
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
		cmocka_unit_test(test_writers),       cmocka_unit_test(test_dump_writers),
		cmocka_unit_test(test_file),          cmocka_unit_test(test_cut_opensm),
	};

	return RUN_TESTS(vswitch_text);
}
