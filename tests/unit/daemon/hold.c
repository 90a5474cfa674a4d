/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include "daemon/migrate/hold.h"

#define MIB (1ull << 20)

static struct hold fresh(void)
{
	return (struct hold){.threshold_bytes = 24 * MIB};
}

/* The transfer since the last look was all of what was left before, or as much as is missing
 * now. */
static bool look(struct hold *h, uint64_t remaining, uint64_t syncs, uint64_t at_us,
		 unsigned *ret_wait_ms)
{
	struct hold_look now = h->last;

	now.sent_bytes += now.remaining_bytes - (syncs > now.syncs ? 0 : remaining);
	now.remaining_bytes = remaining;
	now.syncs = syncs;
	now.at_us = at_us;
	return hold_reached(h, &now, ret_wait_ms);
}

static void test_held_when_little_remains(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_false(look(&h, 256 * MIB, 1, 1000, &wait_ms));
	assert_false(look(&h, 25 * MIB, 1, 2000, &wait_ms));
	assert_true(look(&h, 24 * MIB, 1, 3000, &wait_ms));
}

/* A guest that dirties faster than the link sends never comes below the threshold. */
static void test_held_in_the_second_pass(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_true(look(&h, 900 * MIB, 2, 1000, &wait_ms));
}

/* Before the first pass QEMU reports nothing: that is not "little remains". */
static void test_not_held_before_it_starts(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	assert_false(look(&h, 0, 0, 1000, &wait_ms));
	assert_in_range(wait_ms, HOLD_POLL_MIN_MS, HOLD_POLL_MAX_MS);
}

#define PATIENT                                                                                    \
	{                                                                                          \
		.kept = true, .patient = true, .threshold_bytes = 8 * MIB,                         \
		.enough_bytes = 50 * MIB                                                           \
	}

/* Patiently: a pass shows at its beginning only what the guest has written in the one before. */
static void test_held_where_a_pass_begins_with_little(void **state)
{
	struct hold h = PATIENT;
	unsigned wait_ms = 0;

	(void)state;
	assert_false(look(&h, 0, 0, 500, &wait_ms));
	assert_false(look(&h, 4096 * MIB, 1, 1000, &wait_ms));
	assert_false(look(&h, 0, 1, 4001000, &wait_ms));
	assert_false(look(&h, 400 * MIB, 2, 4001000, &wait_ms));
	assert_false(look(&h, 10 * MIB, 2, 5000000, &wait_ms));
	assert_false(look(&h, 51 * MIB, 3, 5001000, &wait_ms));
	assert_false(look(&h, 40 * MIB, 3, 5002000, &wait_ms));
	assert_true(look(&h, 38 * MIB, 4, 5003000, &wait_ms));
}

static void test_held_where_passes_do_not_shrink(void **state)
{
	struct hold h = PATIENT;
	unsigned wait_ms = 0;

	(void)state;
	assert_false(look(&h, 4096 * MIB, 1, 1000, &wait_ms));
	assert_false(look(&h, 3072 * MIB, 2, 4000000, &wait_ms));
	assert_true(look(&h, 2305 * MIB, 3, 7000000, &wait_ms));
	/* The first look finds a later pass, which is no beginning. */
	h = (struct hold)PATIENT;
	assert_false(look(&h, 40 * MIB, 5, 1000, &wait_ms));
	assert_false(look(&h, 4096 * MIB, 6, 2000, &wait_ms));
	assert_true(look(&h, 4096 * MIB, 7, 3000, &wait_ms));
}

/* With auto-converge QEMU asks what is dirty in the middle of later passes, too. */
static void test_no_pass_begins_in_the_middle(void **state)
{
	struct hold h = PATIENT;
	unsigned wait_ms = 0;

	(void)state;
	assert_false(hold_reached(&h, &(struct hold_look){4000 * MIB, 1, 0, 1000}, &wait_ms));
	assert_false(hold_reached(&h, &(struct hold_look){3000 * MIB, 2, 4000 * MIB, 4000000},
				  &wait_ms));
	/* 1,000 sent, 700 written, and so on. */
	assert_false(hold_reached(&h, &(struct hold_look){2700 * MIB, 3, 5000 * MIB, 9000000},
				  &wait_ms));
	assert_false(hold_reached(&h, &(struct hold_look){2400 * MIB, 4, 6000 * MIB, 14000000},
				  &wait_ms));
	/* 1,000 sent, 760 written: the pass would not end. */
	assert_true(hold_reached(&h, &(struct hold_look){2160 * MIB, 5, 7000 * MIB, 19000000},
				 &wait_ms));
}

/* An agent that says nothing, where QEMU keeps the VM: the pass is sent, its end is not waited for.
 * Where QEMU does not keep it: at once. */
static void test_patience_is_lost(void **state)
{
	unsigned wait_ms = 0;

	(void)state;
	for (int kept = 0; kept < 2; kept++) {
		struct hold h = PATIENT;

		h.kept = kept;
		assert_false(look(&h, 4096 * MIB, 1, 1000, &wait_ms));
		assert_false(look(&h, 1024 * MIB, 2, 4000000, &wait_ms));
		h.patient = false;
		assert_int_equal(look(&h, 900 * MIB, 2, 4100000, &wait_ms), !kept);
		assert_true(look(&h, 8 * MIB, 2, 4200000, &wait_ms));
		assert_int_equal(look(&h, 700 * MIB, 3, 4300000, &wait_ms), 1);
	}
}

static void test_what_is_little(void **state)
{
	(void)state;
	assert_int_equal(hold_enough(8 * MIB, 8 * MIB, 1000 * MIB), 50 * MIB);
	assert_int_equal(hold_enough(8 * MIB, 8 * MIB, 100 * MIB), 16 * MIB);
}

static void test_polls_follow_the_rate(void **state)
{
	struct hold h = fresh();
	unsigned far_ms = 0, near_ms = 0;

	(void)state;
	look(&h, 1024 * MIB, 1, 1000000, &far_ms);
	/* 10 MiB in 10 ms, 990 above the threshold: half of 990 ms is over the maximum. */
	assert_false(look(&h, 1014 * MIB, 1, 1010000, &far_ms));
	assert_int_equal(far_ms, HOLD_POLL_MAX_MS);
	/* 990 - 40 = 950 MiB in 950 ms, 16 above: half of 16 ms. */
	assert_false(look(&h, 40 * MIB, 1, 1984000, &near_ms));
	assert_int_equal(near_ms, 8);
	/* Never slower than needed, never a busy loop. */
	assert_false(look(&h, 24 * MIB + 1, 1, 2000000, &near_ms));
	assert_int_equal(near_ms, HOLD_POLL_MIN_MS);
}

static void test_a_growing_rest_is_polled(void **state)
{
	struct hold h = fresh();
	unsigned wait_ms = 0;

	(void)state;
	look(&h, 100 * MIB, 1, 1000, &wait_ms);
	assert_false(look(&h, 120 * MIB, 1, 2000, &wait_ms));
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
		cmocka_unit_test(test_held_where_a_pass_begins_with_little),
		cmocka_unit_test(test_held_where_passes_do_not_shrink),
		cmocka_unit_test(test_what_is_little),
		cmocka_unit_test(test_no_pass_begins_in_the_middle),
		cmocka_unit_test(test_patience_is_lost),
		cmocka_unit_test(test_not_held_before_it_starts),
		cmocka_unit_test(test_polls_follow_the_rate),
		cmocka_unit_test(test_slow_links_hold_less),
		cmocka_unit_test(test_the_end_is_approached_slowly),
		cmocka_unit_test(test_a_growing_rest_is_polled),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
