/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rates of a port from two looks at its counters. */
#include "tests/unit/tap.h"

#include "sm-helper/fabric/rates.h"

static struct port_rates after(struct probe_counters first, struct probe_counters last)
{
	last.read_us = first.read_us + 2000000;
	return rates_between(&first, &last);
}

static void test_rates(void **state)
{
	const struct probe_counters first = {1000, 2000, 300, 7},
				    last = {1000 + 5000000, 2000 + 250000, 300 + 5000, 0};
	struct port_rates r = after(first, last);

	(void)state;
	assert_int_equal(r.out_mbps, 20);
	assert_int_equal(r.in_mbps, 1);
	assert_int_equal(r.wait_per_s, 2500);
	assert_false(r.wait_stuck);
	r = after(first, first);
	assert_int_equal(r.out_mbps, 0);
	assert_int_equal(r.wait_per_s, 0);
}

/* PortXmitWait does not wrap. At its top it says that the link has waited, and not how long. */
static void test_stuck(void **state)
{
	struct probe_counters first = {.wait_ticks = UINT32_MAX}, last = first;
	struct port_rates r = after(first, last);

	(void)state;
	assert_true(r.wait_stuck);
	assert_true(r.wait_per_s == RATE_UNKNOWN);
	assert_int_equal(r.in_mbps, 0);
	first.wait_ticks = UINT32_MAX - 10; /* gets there just now */
	r = after(first, last);
	assert_true(r.wait_stuck && r.wait_per_s == RATE_UNKNOWN);
	last.wait_ticks = UINT32_MAX - 1;
	r = after(first, last);
	assert_false(r.wait_stuck);
	assert_int_equal(r.wait_per_s, 4);
}

/* A counter that was reset is unknown for this interval, and the others are known. */
static void test_reset(void **state)
{
	const struct probe_counters first = {1000, 1000, UINT32_MAX, 0};
	struct port_rates r = after(first, (struct probe_counters){1000, 999, 5, 0});

	(void)state;
	assert_true(r.in_mbps == RATE_UNKNOWN && r.wait_per_s == RATE_UNKNOWN);
	assert_false(r.wait_stuck);
	assert_int_equal(r.out_mbps, 0);
	r = after(first, (struct probe_counters){999, 251000, UINT32_MAX, 0});
	assert_true(r.out_mbps == RATE_UNKNOWN && r.wait_stuck);
	assert_int_equal(r.in_mbps, 1);
	r = rates_between(&first, &first); /* no time has passed */
	assert_true(r.in_mbps == RATE_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest sm_rates[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_reset),
	};

	return RUN_TESTS(sm_rates);
}
