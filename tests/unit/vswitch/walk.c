/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fabric of two leaves and a spine with four CA ports: model, routes, walks. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/vswitch/nets.h"
#include "vswitch/moves/walk.h"

enum { LEAF0 = 0x100, LEAF1, SPINE };
enum { CA = 0x200 };

/* leaf0: ports 1, 2 CAs (LIDs 1, 2), 3 spine; leaf1 likewise with LIDs 3, 4; spine: 1 leaf0, 2
 * leaf1. Switch LIDs 10, 11, 12. */
static void build(struct fabric *f)
{
	memset(f, 0, sizeof *f);
	assert_int_equal(fabric_add_switch(f, LEAF0, 10, 3, "leaf0"), 0);
	assert_int_equal(fabric_add_switch(f, LEAF1, 11, 3, "leaf1"), 0);
	assert_int_equal(fabric_add_switch(f, SPINE, 12, 4, "spine"), 0);
	assert_int_equal(fabric_link(f, LEAF0, 3, SPINE, 1), 0);
	assert_int_equal(fabric_link(f, SPINE, 2, LEAF1, 3), 0);
	for (unsigned i = 0; i < 4; i++) {
		struct fabric_end e = {.node_guid = CA + 2 * i,
				       .port_guid = CA + 2 * i + 1,
				       .lid = (uint16_t)(i + 1),
				       .port = 1};

		snprintf(e.desc, sizeof e.desc, "ca%u", i);
		assert_int_equal(fabric_add_end(f, &e), 0);
		assert_int_equal(fabric_attach(f, i, i < 2 ? LEAF0 : LEAF1, 1 + i % 2), 0);
	}
}

static void set_lfts(struct fabric *f)
{
	uint8_t leaf0[64] = {0, 1, 2, 3, 3, [10] = 0, [11] = 3, [12] = 3};
	uint8_t leaf1[64] = {0, 3, 3, 1, 2, [10] = 3, [11] = 0, [12] = 3};
	uint8_t spine[64] = {0, 1, 1, 2, 2, [10] = 1, [11] = 2, [12] = 0};

	memset(leaf0 + 13, VSWITCH_NO_PATH, 51);
	memset(leaf1 + 13, VSWITCH_NO_PATH, 51);
	memset(spine + 13, VSWITCH_NO_PATH, 51);
	assert_int_equal(fabric_set_lft(f, 0, 0, leaf0), 0);
	assert_int_equal(fabric_set_lft(f, 1, 0, leaf1), 0);
	assert_int_equal(fabric_set_lft(f, 2, 0, spine), 0);
}

static void test_model(void **state)
{
	struct fabric_end twice = {.node_guid = 7, .port_guid = CA + 1};
	struct fabric f;

	(void)state;
	build(&f);
	assert_int_equal(f.switches, 3);
	assert_int_equal(f.ends, 4);
	assert_int_equal(fabric_find_switch(&f, SPINE), 2);
	assert_int_equal(fabric_find_switch(&f, 0), FABRIC_NONE);
	assert_int_equal(fabric_find_end(&f, CA + 5), 2);
	assert_int_equal(fabric_end_at(&f, LEAF1, 1), 2);
	assert_int_equal(fabric_end_at(&f, LEAF1, 3), FABRIC_NONE);
	assert_int_equal(fabric_end_at(&f, LEAF1, 4), FABRIC_NONE);
	assert_int_equal(fabric_add_switch(&f, SPINE, 13, 4, "again"), -EEXIST);
	assert_int_equal(fabric_add_switch(&f, 99, 0xc000, 4, "multicast"), -EINVAL);
	assert_int_equal(fabric_add_switch(&f, 0, 13, 4, "no GUID"), -EINVAL);
	assert_int_equal(fabric_add_end(&f, &twice), -EEXIST);
	assert_int_equal(fabric_link(&f, LEAF0, 3, SPINE, 4), -EEXIST);
	assert_int_equal(fabric_link(&f, SPINE, 5, LEAF0, 1), -ERANGE);
	assert_int_equal(fabric_link(&f, SPINE, 3, 0x999, 1), -ENOENT);
	assert_int_equal(fabric_attach(&f, 4, SPINE, 3), -ENOENT);
	fabric_clear(&f);
	assert_int_equal(f.ends, 0);
}

/* Many GUIDs: the index grows and still finds each. */
static void test_many(void **state)
{
	struct fabric f = {0};

	(void)state;
	for (uint64_t i = 1; i <= 5000; i++)
		assert_int_equal(fabric_add_switch(&f, i << 32, 0, 2, "s"), 0);
	for (uint64_t i = 1; i <= 5000; i++)
		assert_int_equal(fabric_find_switch(&f, i << 32), i - 1);
	assert_int_equal(fabric_find_switch(&f, 5001ull << 32), FABRIC_NONE);
	fabric_clear(&f);
}

/* Ports that exchange who they are; indexes follow, however the GUIDs collide. */
static void test_identities(void **state)
{
	enum { N = 3000 };
	static struct fabric_identity to[N];
	struct fabric f = {0};

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		struct fabric_end e = {
			.node_guid = 2 * i + 2, .port_guid = 2 * i + 1, .lid = (uint16_t)(i + 1)};

		assert_int_equal(fabric_add_end(&f, &e), 0);
	}
	for (unsigned round = 1; round <= 5; round++) {
		unsigned n = 0;

		for (uint32_t i = round; i < N; i += round) /* an end takes from the next */
			to[n++] = (struct fabric_identity){.end = i};
		for (unsigned k = 0; k < n; k++) {
			const struct fabric_end *next = &f.end[to[(k + 1) % n].end];

			to[k].node_guid = next->node_guid;
			to[k].port_guid = k ? next->port_guid : 100000 + round;
			to[k].lid = next->lid;
		}
		assert_int_equal(fabric_set_identities(&f, to, n), 0);
		for (uint32_t i = 0; i < N; i++) {
			assert_int_equal(fabric_find_end(&f, f.end[i].port_guid), i);
			assert_int_equal(fabric_find_lid(&f, f.end[i].lid).end, i);
		}
	}
	assert_int_equal(f.by_port.used, N);
	to[0] = (struct fabric_identity){1, 5, f.end[2].port_guid, 1};
	assert_int_equal(fabric_set_identities(&f, to, 1), -EEXIST);
	fabric_clear(&f);
}

static void test_routes(void **state)
{
	uint8_t path[FABRIC_HOPS_MAX + 1];
	struct fabric f;

	(void)state;
	build(&f);
	assert_int_equal(fabric_route(&f, 0, 0, path), 1);
	assert_int_equal(path[1], 1);
	assert_int_equal(fabric_route(&f, 3, 0, path), 3); /* own port, up, down */
	assert_int_equal(path[2], 3);
	assert_int_equal(path[3], 1);
	assert_int_equal(fabric_add_switch(&f, 0x900, 20, 4, "island"), 0);
	assert_int_equal(fabric_route(&f, 0, 3, path), -ENETUNREACH);
	assert_int_equal(fabric_route(&f, FABRIC_NONE, 0, path), -ENETUNREACH);
	assert_int_equal(fabric_link(&f, 0x900, 2, SPINE, 4), 0); /* known ways are forgotten */
	assert_int_equal(fabric_route(&f, 0, 3, path), 3);
	assert_int_equal(path[3], 4);
	fabric_clear(&f);
}

static void change(struct fabric *f, uint32_t sw, uint16_t lid, uint8_t port)
{
	assert_int_equal(set_entry(f, sw, lid, port), 0);
}

static void test_walks(void **state)
{
	struct fabric f;
	struct walk w;

	(void)state;
	build(&f);
	assert_int_equal(walk_lid(&f, 0, 4, NULL, NULL).verdict, WALK_UNKNOWN);
	set_lfts(&f);
	w = walk_lid(&f, 0, 4, NULL, NULL);
	assert_int_equal(w.verdict, WALK_ARRIVED);
	assert_int_equal(w.end, 3);
	assert_int_equal(w.hops, 3);
	assert_int_equal(walk_lid(&f, 0, 11, NULL, NULL).verdict, WALK_AT_SWITCH);
	assert_int_equal(walk_lid(&f, 0, 20, NULL, NULL).verdict, WALK_NO_ENTRY);
	change(&f, 2, 4, 1);
	assert_int_equal(walk_lid(&f, 0, 4, NULL, NULL).verdict, WALK_LOOP);
	change(&f, 2, 4, 3);
	assert_int_equal(walk_lid(&f, 0, 4, NULL, NULL).verdict, WALK_NO_LINK);
	change(&f, 2, 4, 200);
	assert_int_equal(walk_lid(&f, 0, 4, NULL, NULL).verdict, WALK_NO_LINK);
	fabric_forget_lfts(&f);
	assert_int_equal(walk_lid(&f, 0, 4, NULL, NULL).verdict, WALK_UNKNOWN);
	fabric_clear(&f);
}

struct fetched {
	const struct fabric *from; /* the fabric whose LFTs are given */
	uint32_t silent;           /* this switch gives none */
	unsigned calls, blocks;
};

static void fetch(void *arg, struct fabric *f, const struct walk_block *want, unsigned count)
{
	struct fetched *x = arg;

	x->calls++;
	for (unsigned i = 0; i < count; i++) {
		x->blocks++;
		assert_int_equal(want[i].block, 0);
		if (want[i].sw != x->silent)
			assert_int_equal(fabric_set_lft(f, want[i].sw, 0,
							fabric_lft_block(x->from, want[i].sw, 0)),
					 0);
	}
}

/* Blocks are fetched side by side, each once; one that cannot be had ends its walks only. */
static void test_fetch(void **state)
{
	struct fabric f, known;
	struct fetched x = {&known, FABRIC_NONE, 0, 0};
	char text[256] = "";
	unsigned walks;

	(void)state;
	build(&f);
	build(&known);
	set_lfts(&known);
	assert_int_equal(walk_verify(&f, 4, 3, 0, fetch, &x, &walks, text, sizeof text), 0);
	assert_int_equal(x.calls, 2); /* both leaves, then the spine */
	assert_int_equal(x.blocks, 3);
	fabric_forget_lfts(&f);
	x = (struct fetched){&known, 2, 0, 0};
	assert_int_equal(walk_verify(&f, 4, 3, 0, fetch, &x, &walks, text, sizeof text),
			 -EHOSTUNREACH);
	assert_int_equal(x.blocks, 3);
	assert_string_equal(text,
			    "from ca0, a packet to LID 4 (ca3) meets an LFT that cannot be read "
			    "at switch spine");
	assert_int_equal(walk_lid(&f, 0, 4, fetch, &x).verdict, WALK_UNKNOWN);
	x.silent = FABRIC_NONE;
	assert_int_equal(walk_lid(&f, 0, 4, fetch, &x).end, 3);
	fabric_clear(&f);
	fabric_clear(&known);
}

static void test_verify(void **state)
{
	char text[256] = "";
	unsigned walks;
	struct fabric f;

	(void)state;
	build(&f);
	set_lfts(&f);
	assert_int_equal(walk_verify(&f, 4, 3, 0, NULL, NULL, &walks, text, sizeof text), 0);
	assert_int_equal(walks, 3);
	assert_int_equal(walk_verify(&f, 4, 3, 2, NULL, NULL, &walks, text, sizeof text), 0);
	assert_int_equal(walks, 2);
	assert_int_equal(walk_verify(&f, 4, 2, 0, NULL, NULL, &walks, text, sizeof text),
			 -EHOSTUNREACH);
	assert_string_equal(text, "from ca0, LID 4 leads to ca3 instead of ca2");
	change(&f, 1, 4, VSWITCH_NO_PATH);
	assert_int_equal(walk_verify(&f, 4, 3, 0, NULL, NULL, &walks, text, sizeof text),
			 -EHOSTUNREACH);
	assert_non_null(strstr(text, "finds no path in the LFT at switch leaf1"));
	fabric_clear(&f);
}

int main(void)
{
	const struct CMUnitTest vswitch_walk[] = {
		cmocka_unit_test(test_model),  cmocka_unit_test(test_many),
		cmocka_unit_test(test_routes), cmocka_unit_test(test_walks),
		cmocka_unit_test(test_verify), cmocka_unit_test(test_identities),
		cmocka_unit_test(test_fetch),
	};

	return RUN_TESTS(vswitch_walk);
}
