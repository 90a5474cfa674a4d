/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "guest-agent/shim/core/table.h"

#define CHUNKS (TABLE_MAX / TABLE_CHUNK)

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct shim_table));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	table_free(*state);
	free(*state);
	return 0;
}

static void values_at_the_edges(void **state)
{
	struct shim_table *t = *state;
	const uint32_t edges[] = {0, 1, TABLE_CHUNK - 1, TABLE_CHUNK, TABLE_MAX - 1};

	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
		assert_int_equal(table_get(t, edges[i]), 0);
		assert_int_equal(table_set(t, edges[i], 100 + i, CHUNKS), 0);
	}
	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++)
		assert_int_equal(table_get(t, edges[i]), 100 + i);
	table_clear(t);
	assert_int_equal(table_get(t, TABLE_CHUNK), 0);
}

/* Numbers come from other processes: none may reach beyond the table. */
static void numbers_beyond_the_table(void **state)
{
	struct shim_table *t = *state;

	assert_int_equal(table_set(t, TABLE_MAX, 1, CHUNKS), -ERANGE);
	assert_int_equal(table_set(t, UINT32_MAX, 1, CHUNKS), -ERANGE);
	assert_int_equal(table_get(t, TABLE_MAX), 0);
	assert_int_equal(table_get(t, UINT32_MAX), 0);
}

static void memory_is_bounded(void **state)
{
	struct shim_table *t = *state;

	assert_int_equal(table_set(t, 0, 1, 2), 0);
	assert_int_equal(table_set(t, TABLE_CHUNK, 1, 2), 0);
	assert_int_equal(table_set(t, 2 * TABLE_CHUNK, 1, 2), -ENOSPC);
	assert_int_equal(table_set(t, 1, 1, 2), 0);
	/* to forget what is not there takes none */
	assert_int_equal(table_set(t, 3 * TABLE_CHUNK, 0, 2), 0);
}

static void keys_are_the_hardwares_where_they_can(void **state)
{
	struct shim_table *t = *state;
	uint32_t start = 0, a, b, key;

	assert_int_equal(key_alloc(t, 0x1234, &start, &a), 0);
	assert_int_equal(a, 0x1234);
	assert_true(key_get(t, a, &key));
	assert_int_equal(key, 0x1234);
	/* the index is taken: another one, which leads to the hardware's */
	assert_int_equal(key_alloc(t, 0x1256, &start, &b), 0);
	assert_int_not_equal(b >> 8, a >> 8);
	assert_true(key_get(t, b, &key));
	assert_int_equal(key, 0x1256);
}

static void a_key_that_is_gone_matches_nothing(void **state)
{
	struct shim_table *t = *state;
	uint32_t start = 0, a, b, key = 77;

	assert_int_equal(key_alloc(t, 0x1234, &start, &a), 0);
	assert_int_equal(table_set(t, a >> 8, 0, CHUNKS), 0);
	assert_false(key_get(t, a, &key));
	assert_int_equal(key_alloc(t, 0x1235, &start, &b), 0);
	assert_int_equal(b >> 8, a >> 8);
	assert_false(key_get(t, a, &key));
	assert_int_equal(key, 77);
}

static void zero_is_no_key(void **state)
{
	struct shim_table *t = *state;
	uint32_t start = 0, v, key;

	assert_false(key_get(t, 0, &key));
	/* a hardware that gives out key 0 gets another virtual one */
	assert_int_equal(key_alloc(t, 0, &start, &v), 0);
	assert_int_not_equal(v >> 8, 0);
	assert_true(key_get(t, v, &key));
	assert_int_equal(key, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(values_at_the_edges, setup, teardown),
		cmocka_unit_test_setup_teardown(numbers_beyond_the_table, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(keys_are_the_hardwares_where_they_can, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_key_that_is_gone_matches_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(zero_is_no_key, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
