/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Plans of bare tables, as the plugin makes them from OpenSM's, against brute force: every LID gets
 * its entry by hand, then all blocks are compared. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/ib.h"
#include "common/util.h"
#include "vswitch/moves/moves.h"

#define SWITCHES 5
#define ENTRIES  1024
#define BLOCKS   (ENTRIES / IB_LFT_BLOCK)
#define ROUNDS   4000

typedef uint8_t table[SWITCHES][ENTRIES];

static const uint8_t *block(const void *arg, uint32_t sw, unsigned n)
{
	const uint8_t *all = arg;

	return n < BLOCKS ? all + sw * ENTRIES + n * IB_LFT_BLOCK : NULL;
}

static unsigned blocks(const void *arg, uint32_t sw)
{
	(void)arg;
	(void)sw;
	return BLOCKS;
}

static const char *name(const void *arg, uint32_t sw)
{
	static const char *const names[SWITCHES] = {"s0", "s1", "s2", "s3", "s4"};

	(void)arg;
	return names[sw];
}

static struct moves_tables tables(table lft)
{
	return (struct moves_tables){SWITCHES, block, NULL, name, NULL, lft};
}

static struct move relabel(uint16_t lid, uint16_t like)
{
	return (struct move){lid, like, FABRIC_NONE, 0, false, FABRIC_NONE, FABRIC_NONE, 0, 0};
}

static void fill(table lft)
{
	for (unsigned s = 0; s < SWITCHES; s++) {
		unsigned ports = 1 + (unsigned)rand() % 12;

		for (unsigned i = 0; i < ENTRIES; i++)
			lft[s][i] = rand() % 20 ? (uint8_t)(1 + (unsigned)rand() % ports)
						: VSWITCH_NO_PATH;
	}
}

/* n different LIDs; near ones often, so that blocks are shared. */
static void pick_lids(uint16_t *lid, size_t n)
{
	for (size_t i = 0; i < n; i++) {
	again:
		lid[i] = (uint16_t)(1 + (rand() % 2 ? rand() % 130 : rand() % (ENTRIES - 1)));
		for (size_t k = 0; k < i; k++)
			if (lid[k] == lid[i])
				goto again;
	}
}

/* Some permutation of n LIDs, sometimes with one that leaves the set and one that is new to it. */
static unsigned make_batch(struct move *m)
{
	unsigned n = 1 + (unsigned)rand() % 40;
	uint16_t lid[41];

	pick_lids(lid, n + 1);
	for (unsigned i = 0; i < n; i++)
		m[i] = relabel(lid[i], lid[(i + 1) % n]);
	if (rand() % 3 == 0) {
		m[n - 1].like = lid[n];
		m[n] = relabel(lid[n], 0);
		return n + 1;
	}
	return n;
}

static void brute_force(table before, table after, const struct move *m, unsigned n)
{
	memcpy(after, before, sizeof(table));
	for (unsigned s = 0; s < SWITCHES; s++)
		for (unsigned i = 0; i < n; i++)
			after[s][m[i].lid] = m[i].like ? before[s][m[i].like] : VSWITCH_NO_PATH;
}

/* Plays the switches. */
static void send(table lft, const struct moves_plan *p)
{
	for (unsigned i = 0; i < p->smps; i++) {
		uint8_t *at = lft[p->smp[i].sw] + p->smp[i].block * IB_LFT_BLOCK;

		assert_memory_equal(at, p->smp[i].before, IB_LFT_BLOCK);
		memcpy(at, p->smp[i].after, IB_LFT_BLOCK);
	}
}

static unsigned different(table a, table b, unsigned *ret_switches)
{
	unsigned n = 0, switches = 0;

	for (unsigned s = 0; s < SWITCHES; s++) {
		unsigned before = n;

		for (unsigned k = 0; k < BLOCKS; k++)
			n += memcmp(a[s] + k * IB_LFT_BLOCK, b[s] + k * IB_LFT_BLOCK,
				    IB_LFT_BLOCK) != 0;
		switches += n > before;
	}
	*ret_switches = switches;
	return n;
}

/* A batch reaches its goal with as many SMPs as blocks differ, and its undo goes back. */
static void test_minimal(void **state)
{
	static table before, want, got;
	unsigned shared = 0, untouched = 0;
	struct moves_plan p = {0};
	struct move m[41];

	(void)state;
	srand(1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		const struct moves_tables t = tables(got);
		unsigned n = make_batch(m), switches, least;

		fill(before);
		brute_force(before, want, m, n);
		memcpy(got, before, sizeof got);
		assert_int_equal(moves_plan_tables(&t, m, n, &p, NULL), 0);
		assert_memory_equal(got, before, sizeof got); /* a plan changes nothing */
		least = different(before, want, &switches);
		assert_int_equal(p.smps, least);
		assert_int_equal(p.switches, switches);
		send(got, &p);
		assert_memory_equal(got, want, sizeof got);
		shared += least < n;
		untouched += switches < SWITCHES;
		moves_undo(&p);
		send(got, &p);
		assert_memory_equal(got, before, sizeof got);
	}
	assert_true(shared > 100); /* both kinds have really been there */
	assert_true(untouched > 100);
	moves_free(&p);
}

static void test_blocks_of_a_swap(void **state)
{
	static table lft = {{[10] = 1, [63] = 2, [64] = 2, [700] = 1}};
	const struct moves_tables t = tables(lft);
	struct move one[] = {relabel(10, 63), relabel(63, 10)},
		    two[] = {relabel(10, 64), relabel(64, 10)},
		    none[] = {relabel(63, 64), relabel(64, 63)};
	struct moves_plan p = {0};

	(void)state;
	assert_int_equal(moves_plan_tables(&t, none, 2, &p, NULL), 0);
	assert_int_equal(p.smps, 0);
	assert_int_equal(moves_plan_tables(&t, one, 2, &p, NULL), 0);
	assert_int_equal(p.smps, 1);
	assert_int_equal(moves_plan_tables(&t, two, 2, &p, NULL), 0);
	assert_int_equal(p.smps, 2);
	assert_int_equal(p.switches, 1);
	assert_int_equal(p.smp[0].block, 0);
	assert_int_equal(p.smp[1].block, 1);
	send(lft, &p);
	assert_int_equal(lft[0][10], 2);
	assert_int_equal(lft[0][64], 1);
	moves_free(&p);
}

static void test_refusals(void **state)
{
	static table lft;
	static struct move many[MOVES_MAX + 1];
	struct moves_tables t = tables(lft);
	struct move twice[] = {relabel(5, 6), relabel(5, 7)},
		    beyond[] = {relabel(5, 6), relabel(ENTRIES, 5)};
	struct move zero = relabel(0, 6), multicast = relabel(0xc000, 5),
		    like = relabel(5, ENTRIES), at = {5, 6, SWITCHES, 1, false, 0, 0, 0, 0};
	struct moves_plan p = {0};
	struct fabric_error e;

	(void)state;
	fill(lft);
	for (unsigned i = 0; i <= MOVES_MAX; i++)
		many[i] = relabel((uint16_t)(i + 1), (uint16_t)(i + 2));
	assert_int_equal(moves_plan_tables(&t, twice, 2, &p, &e), -EINVAL);
	assert_string_equal(e.text, "LID 5 is twice in the batch");
	assert_int_equal(moves_plan_tables(&t, &zero, 1, &p, &e), -EINVAL);
	assert_int_equal(moves_plan_tables(&t, &multicast, 1, &p, &e), -EINVAL);
	assert_int_equal(moves_plan_tables(&t, &at, 1, &p, &e), -EINVAL);
	assert_int_equal(moves_plan_tables(&t, many, MOVES_MAX + 1, &p, &e), -EINVAL);
	assert_int_equal(moves_plan_tables(&t, beyond, 2, &p, &e), -ENODATA);
	assert_string_equal(e.text, "switch s0: the LFT entry of LID 1024 is not known");
	assert_int_equal(moves_plan_tables(&t, &like, 1, &p, &e), -ENODATA);
	assert_int_equal(moves_plan_tables(&t, many, MOVES_MAX, &p, &e), 0);
	assert_int_equal(moves_plan_tables(&t, many, 0, &p, &e), 0);
	assert_int_equal(p.smps, 0);
	t.blocks = blocks; /* tables that may get longer */
	assert_int_equal(moves_plan_tables(&t, &beyond[1], 1, &p, &e), 0);
	assert_true(p.grown && p.grown == p.smps);
	moves_free(&p);
}

int main(void)
{
	const struct CMUnitTest vswitch_tables[] = {
		cmocka_unit_test(test_minimal),
		cmocka_unit_test(test_blocks_of_a_swap),
		cmocka_unit_test(test_refusals),
	};

	return RUN_TESTS(vswitch_tables);
}
