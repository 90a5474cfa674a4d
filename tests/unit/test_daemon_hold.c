/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include "daemon/hold.h"

#define MIB (1ull << 20)

static struct hold fresh(void)
{
	return (struct hold){.threshold_bytes = 24 * MIB};
}

static void test_held_when_little_remains(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_false(hold_reached(&h, 256 * MIB, 1, 1000, &wait_ms));
	assert_false(hold_reached(&h, 25 * MIB, 1, 2000, &wait_ms));
	assert_true(hold_reached(&h, 24 * MIB, 1, 3000, &wait_ms));
}

/* A guest that dirties faster than the link sends never comes below the threshold. */
static void test_held_in_the_second_pass(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_true(hold_reached(&h, 900 * MIB, 2, 1000, &wait_ms));
}

/* Before the first pass QEMU reports nothing: that is not "little remains". */
static void test_not_held_before_it_starts(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_false(hold_reached(&h, 0, 0, 1000, &wait_ms));
	assert_in_range(wait_ms, HOLD_POLL_MIN_MS, HOLD_POLL_MAX_MS);
}

static void test_polls_follow_the_rate(void **state)
{
	struct hold h = fresh();
	unsigned far_ms = 0, near_ms = 0;

	(void)state;
	hold_reached(&h, 1024 * MIB, 1, 1000000, &far_ms);
	/* 10 MiB in 10 ms, 990 above the threshold: half of 990 ms is over the maximum. */
	assert_false(hold_reached(&h, 1014 * MIB, 1, 1010000, &far_ms));
	assert_int_equal(far_ms, HOLD_POLL_MAX_MS);
	/* 990 - 40 = 950 MiB in 950 ms, 16 above: half of 16 ms. */
	assert_false(hold_reached(&h, 40 * MIB, 1, 1984000, &near_ms));
	assert_int_equal(near_ms, 8);
	/* Never slower than needed, never a busy loop. */
	assert_false(hold_reached(&h, 24 * MIB + 1, 1, 2000000, &near_ms));
	assert_int_equal(near_ms, HOLD_POLL_MIN_MS);
}

static void test_a_growing_rest_is_polled(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	hold_reached(&h, 100 * MIB, 1, 1000, &wait_ms);
	assert_false(hold_reached(&h, 120 * MIB, 1, 2000, &wait_ms));
	assert_in_range(wait_ms, HOLD_POLL_MIN_MS, HOLD_POLL_MAX_MS);
}

static void test_slow_links_hold_less(void **state)
{
	(void)state;
	assert_int_equal(hold_threshold(24 * MIB, 1000 * MIB), 24 * MIB);
	assert_int_equal(hold_threshold(24 * MIB, 100 * MIB), 10 * MIB);
	assert_int_equal(hold_threshold(24 * MIB, MIB), HOLD_BYTES_MIN);
	assert_int_equal(hold_threshold(4 * MIB, MIB), 4 * MIB);
}

static void test_the_end_is_approached_slowly(void **state)
{
	(void)state;
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 4096 * MIB), 1000 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 700 * MIB), 640 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 128 * MIB), 80 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 40 * MIB), 40 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 39 * MIB), 20 * MIB);
	/* The ballast alone: 400 ms. */
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 8 * MIB), 20 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 8 * MIB, 0), 20 * MIB);
	assert_int_equal(hold_limit(16 * MIB, 8 * MIB, 4096 * MIB), 16 * MIB);
	assert_int_equal(hold_limit(100 * MIB, 8 * MIB, 4096 * MIB), 100 * MIB);
	assert_int_equal(hold_limit(1000 * MIB, 0, 0), HOLD_BYTES_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held_when_little_remains),
		cmocka_unit_test(test_held_in_the_second_pass),
		cmocka_unit_test(test_not_held_before_it_starts),
		cmocka_unit_test(test_polls_follow_the_rate),
		cmocka_unit_test(test_slow_links_hold_less),
		cmocka_unit_test(test_the_end_is_approached_slowly),
		cmocka_unit_test(test_a_growing_rest_is_polled),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
