/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who holds which path record: noted, compared, dropped, up to the bound. */
#include "tests/unit/tap.h"

#include <string.h>

#include "sm-helper/paths/interest.h"

static const struct path_value one = {
	.dlid = 7, .slid = 8, .pkey = 0xffff, .sl = 1, .mtu = 5, .rate = 3};

static struct path_key key(uint64_t from, uint64_t to)
{
	return (struct path_key){from, to, 0};
}

static void test_compare(void **state)
{
	struct interest *i = interest_new();
	struct path_key k = key(1, 2), other = key(2, 1);
	struct path_value v = one;
	const char *host = NULL;

	(void)state;
	assert_true(interest_note(i, "a", 0, &k, &one));
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_SAME);
	assert_int_equal(interest_compare(i, &other, &v, &host), INTEREST_NOBODY);
	v.sl = 2;
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_CHANGED);
	assert_string_equal(host, "a");
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_SAME);
	v.none = true;
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_CHANGED);
	v.sl = 9; /* no path has no SL */
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_SAME);
	assert_int_equal(interest_compare(i, &k, NULL, &host), INTEREST_CHANGED);
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_NOBODY);
	interest_free(i);
}

/* The last who has asked holds it: a guest has moved. */
static void test_moved(void **state)
{
	struct interest *i = interest_new();
	struct path_key k = key(1, 2);
	struct path_value v = {.none = true};
	const char *host = NULL;

	(void)state;
	assert_true(interest_note(i, "a", 0, &k, &one));
	assert_true(interest_note(i, "b", 0, &k, &one));
	assert_int_equal(interest_counts(i).records, 1);
	assert_int_equal(interest_compare(i, &k, &v, &host), INTEREST_CHANGED);
	assert_string_equal(host, "b");
	interest_free(i);
}

/* A record that was read before a pass of comparisons, and noted after it, may be past. */
static void test_late(void **state)
{
	struct interest *i = interest_new();
	struct path_key k = key(1, 2);
	uint64_t pass = interest_pass(i);

	(void)state;
	interest_begin(i);
	assert_false(interest_note(i, "a", pass, &k, &one));
	assert_true(interest_note(i, "a", interest_pass(i), &k, &one));
	assert_int_equal(interest_counts(i).refused, 1);
	interest_free(i);
}

/* The value of an answer to a question may be past in the same way. */
static void test_tell(void **state)
{
	struct interest *i = interest_new();
	struct path_key k = key(1, 2);
	struct path_value now = one;
	uint64_t pass = interest_pass(i);
	const char *host = NULL;

	(void)state;
	now.sl = 2;
	assert_true(interest_note(i, "a", pass, &k, &one));
	interest_begin(i);
	assert_int_equal(interest_compare(i, &k, &now, &host), INTEREST_CHANGED);
	assert_false(interest_tell(i, pass, &k, &one));
	assert_int_equal(interest_compare(i, &k, &now, &host), INTEREST_SAME);
	assert_true(interest_tell(i, interest_pass(i), &k, &one));
	assert_int_equal(interest_compare(i, &k, &now, &host), INTEREST_CHANGED);
	assert_true(interest_tell(i, pass, &k, NULL));
	assert_int_equal(interest_counts(i).records, 0);
	interest_free(i);
}

static void test_doubt(void **state)
{
	struct interest *i = interest_new();
	struct path_key k = key(1, 2), l = key(3, 1), m = key(3, 2);
	const char *host = NULL;

	(void)state;
	interest_note(i, "a", 0, &k, &one);
	interest_note(i, "a", 0, &l, &one);
	interest_note(i, "a", 0, &m, &one);
	interest_doubt(i, 1);
	assert_int_equal(interest_compare(i, &k, &one, &host), INTEREST_CHANGED);
	assert_int_equal(interest_compare(i, &l, &one, &host), INTEREST_CHANGED);
	assert_int_equal(interest_compare(i, &m, &one, &host), INTEREST_SAME);
	interest_drop(i, 1);
	assert_int_equal(interest_counts(i).records, 1);
	assert_int_equal(interest_compare(i, &k, &one, &host), INTEREST_NOBODY);
	interest_free(i);
}

static void test_lost(void **state)
{
	struct interest *i = interest_new();

	(void)state;
	assert_false(interest_found(i, "a"));
	interest_lost(i, "a");
	assert_false(interest_found(i, "b"));
	assert_true(interest_found(i, "a"));
	assert_false(interest_found(i, "a"));
	interest_free(i);
}

static void test_full(void **state)
{
	struct interest *i = interest_new();
	struct path_key k, got[256];
	size_t at = 0, n, seen = 0, of_one = 0;

	(void)state;
	for (uint32_t x = 0; x < INTEREST_MAX; x++) {
		k = key(1 + x % 512, 1000 + x / 512);
		assert_true(interest_note(i, "a", 0, &k, &one));
	}
	k = key(9999, 9999);
	assert_false(interest_note(i, "a", 0, &k, &one));
	while ((n = interest_list(i, &at, 0, got, 256)))
		seen += n;
	assert_int_equal(seen, INTEREST_MAX);
	for (at = 0; (n = interest_list(i, &at, 5, got, 256));)
		of_one += n;
	assert_int_equal(of_one, INTEREST_MAX / 512);
	interest_drop(i, 5);
	assert_true(interest_note(i, "a", 0, &k, &one)); /* what is dropped makes room */
	interest_free(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare), cmocka_unit_test(test_moved),
		cmocka_unit_test(test_late),    cmocka_unit_test(test_tell),
		cmocka_unit_test(test_doubt),   cmocka_unit_test(test_lost),
		cmocka_unit_test(test_full),
	};

	return RUN_TESTS(tests);
}
