/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The plan against brute force: apply the relabels entry by entry, then compare all blocks. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/ib.h"
#include "vswitch/plan.h"

#define ENTRIES 1024
#define ROUNDS  20000

static void fill(uint8_t *lft, unsigned ports)
{
	for (unsigned i = 0; i < ENTRIES; i++)
		lft[i] = rand() % 20 ? (uint8_t)(1 + (unsigned)rand() % ports) : VSWITCH_NO_PATH;
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
static size_t make_plan(struct vswitch_relabel *plan)
{
	size_t n = 1 + (size_t)rand() % 8;
	uint16_t lid[16];

	pick_lids(lid, n + 1);
	for (size_t i = 0; i < n; i++)
		plan[i] = (struct vswitch_relabel){lid[i], lid[(i + 1) % n]};
	if (rand() % 3 == 0) {
		plan[n - 1].from = lid[n];
		plan[n] = (struct vswitch_relabel){lid[n], 0};
		return n + 1;
	}
	return n;
}

static void brute_force(const uint8_t *before, uint8_t *after, const struct vswitch_relabel *plan,
			size_t n)
{
	memcpy(after, before, ENTRIES);
	for (size_t i = 0; i < n; i++)
		after[plan[i].lid] = plan[i].from ? before[plan[i].from] : VSWITCH_NO_PATH;
}

static void test_minimal(void **state)
{
	uint8_t before[ENTRIES], want[ENTRIES], got[ENTRIES];
	struct vswitch_relabel plan[VSWITCH_RELABEL_MAX];
	uint16_t block[VSWITCH_RELABEL_MAX];
	unsigned untouched = 0, shared = 0;

	(void)state;
	srand(1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		size_t n = make_plan(plan);
		int blocks, least = 0;

		fill(before, 1 + (unsigned)rand() % 12);
		brute_force(before, want, plan, n);
		memcpy(got, before, ENTRIES);
		blocks = vswitch_plan_apply(got, ENTRIES, plan, n, block);
		assert_memory_equal(got, want, ENTRIES);
		for (unsigned b = 0; b < ENTRIES / IB_LFT_BLOCK; b++)
			if (memcmp(before + b * IB_LFT_BLOCK, want + b * IB_LFT_BLOCK,
				   IB_LFT_BLOCK) != 0) {
				assert_true(least < blocks);
				assert_int_equal(block[least++], b);
			}
		assert_int_equal(blocks, least);
		assert_int_equal(vswitch_plan_count(before, ENTRIES, plan, n), least);
		untouched += !blocks;
		shared += blocks && (size_t)blocks < n;
	}
	assert_true(untouched > 100); /* both kinds have really been there */
	assert_true(shared > 100);
}

static void test_undo(void **state)
{
	uint8_t before[ENTRIES], lft[ENTRIES];
	uint16_t block[VSWITCH_RELABEL_MAX], lid[2];

	(void)state;
	srand(2);
	for (unsigned r = 0; r < 1000; r++) {
		pick_lids(lid, 2);
		struct vswitch_relabel swap[] = {{lid[0], lid[1]}, {lid[1], lid[0]}};
		int there, back;

		fill(before, 6);
		memcpy(lft, before, ENTRIES);
		there = vswitch_plan_apply(lft, ENTRIES, swap, 2, block);
		back = vswitch_plan_apply(lft, ENTRIES, swap, 2, block);
		assert_int_equal(there, back);
		assert_memory_equal(lft, before, ENTRIES);
	}
}

static void test_blocks_of_a_swap(void **state)
{
	uint8_t lft[ENTRIES] = {[10] = 1, [63] = 2, [64] = 2, [700] = 1};
	uint16_t block[VSWITCH_RELABEL_MAX];
	struct vswitch_relabel one[] = {{10, 63}, {63, 10}}, two[] = {{10, 64}, {64, 10}},
			       none[] = {{63, 64}, {64, 63}};

	(void)state;
	assert_int_equal(vswitch_plan_count(lft, ENTRIES, one, 2), 1);
	assert_int_equal(vswitch_plan_count(lft, ENTRIES, none, 2), 0);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, two, 2, block), 2);
	assert_int_equal(block[0], 0);
	assert_int_equal(block[1], 1);
	assert_int_equal(lft[10], 2);
	assert_int_equal(lft[64], 1);
}

static void test_bad_plans(void **state)
{
	uint8_t lft[ENTRIES], copy[ENTRIES];
	uint16_t block[VSWITCH_RELABEL_MAX];
	struct vswitch_relabel twice[] = {{5, 6}, {5, 7}}, zero[] = {{0, 6}},
			       multicast[] = {{5, 0xc000}}, beyond[] = {{5, 6}, {ENTRIES, 5}},
			       from_beyond[] = {{5, ENTRIES}};
	static struct vswitch_relabel many[VSWITCH_RELABEL_MAX + 1];

	(void)state;
	fill(lft, 9);
	memcpy(copy, lft, ENTRIES);
	for (unsigned i = 0; i <= VSWITCH_RELABEL_MAX; i++)
		many[i] = (struct vswitch_relabel){(uint16_t)(i + 1), (uint16_t)(i + 2)};
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, twice, 2, block), -EINVAL);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, zero, 1, block), -EINVAL);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, multicast, 1, block), -EINVAL);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, many, VSWITCH_RELABEL_MAX + 1, block),
			 -EINVAL);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, beyond, 2, block), -ERANGE);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, from_beyond, 1, block), -ERANGE);
	assert_int_equal(vswitch_plan_count(lft, ENTRIES, beyond, 2), -ERANGE);
	assert_memory_equal(lft, copy, ENTRIES);
	assert_int_equal(vswitch_plan_apply(lft, ENTRIES, many, 0, block), 0);
}

int main(void)
{
	const struct CMUnitTest vswitch_plan[] = {
		cmocka_unit_test(test_minimal),
		cmocka_unit_test(test_undo),
		cmocka_unit_test(test_blocks_of_a_swap),
		cmocka_unit_test(test_bad_plans),
	};

	return RUN_TESTS(vswitch_plan);
}
