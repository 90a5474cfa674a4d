/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs handed out and held; the store of LFT blocks beside it. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vswitch/model/lft.h"
#include "vswitch/model/lids.h"

static void test_take(void **state)
{
	struct fabric_error e;
	struct lids l;
	uint16_t lid;

	(void)state;
	assert_int_equal(lids_init(&l, 10, 13, &e), 0);
	assert_int_equal(lids_free(&l), 4);
	assert_int_equal(lids_hold(&l, 11, 0, &e), 0);
	assert_int_equal(lids_take(&l, 0, &lid, &e), 0);
	assert_int_equal(lid, 10);
	assert_int_equal(lids_take(&l, 0, &lid, &e), 0);
	assert_int_equal(lid, 12);
	assert_int_equal(lids_take(&l, 1, &lid, &e), -ENOSPC);
	assert_string_equal(e.text, "no 2 free LIDs in a row: 1 of the 4 from 10 to 13 are free");
	assert_int_equal(lids_take(&l, 0, &lid, &e), 0);
	assert_int_equal(lids_take(&l, 0, &lid, &e), -ENOSPC);
	assert_non_null(strstr(e.text, "0 of the 4"));
}

/* An LMC takes aligned runs, and nobody gets one of them. */
static void test_lmc(void **state)
{
	struct fabric_error e;
	struct lids l;
	uint16_t lid;

	(void)state;
	assert_int_equal(lids_init(&l, 1, 40, &e), 0);
	assert_int_equal(lids_take(&l, 3, &lid, &e), 0);
	assert_int_equal(lid, 8);
	assert_int_equal(lids_take(&l, 0, &lid, &e), 0);
	assert_int_equal(lid, 1);
	assert_int_equal(lids_hold(&l, 20, 2, &e), 0);
	assert_int_equal(lids_hold(&l, 22, 1, &e), -EEXIST);
	assert_int_equal(lids_hold(&l, 18, 2, &e), -EINVAL);
	assert_int_equal(lids_take(&l, 3, &lid, &e), 0);
	assert_int_equal(lid, 24);
	assert_int_equal(lids_hold(&l, 0xbfff, 1, &e), -EINVAL);
	assert_int_equal(lids_hold(&l, 0, 0, &e), -EINVAL);
	assert_int_equal(lids_init(&l, 1, 0xc000, &e), -EINVAL);
	assert_int_equal(lids_init(&l, 2, 1, &e), -EINVAL);
}

/* Every LID is given, one by one: no LID twice, none beyond. */
static void test_all(void **state)
{
	struct fabric_error e;
	struct lids l;
	uint16_t lid;

	(void)state;
	assert_int_equal(lids_init(&l, 1, 0xbfff, &e), 0);
	for (unsigned i = 1; i <= 0xbfff; i++) {
		assert_int_equal(lids_take(&l, 0, &lid, &e), 0);
		assert_int_equal(lid, i);
	}
	assert_int_equal(lids_take(&l, 0, &lid, &e), -ENOSPC);
}

/* Equal blocks are one, however they come and go; the data of those in use never changes. */
static void test_store(void **state)
{
	enum { USERS = 2000, KINDS = 300 };
	static uint32_t held[USERS];
	static uint8_t kind[USERS];
	struct lft_store s = {0};
	uint8_t data[64];

	(void)state;
	srand(3);
	memset(held, 0xff, sizeof held);
	for (unsigned i = 0; i < 40000; i++) {
		unsigned u = (unsigned)rand() % USERS;

		lft_drop(&s, held[u]);
		kind[u] = (uint8_t)(rand() % KINDS);
		memset(data, kind[u], sizeof data);
		assert_int_equal(lft_hold(&s, data, &held[u]), 0);
		assert_true(s.live <= 256);
	}
	for (unsigned u = 0; u < USERS; u++) {
		memset(data, kind[u], sizeof data);
		if (held[u] != LFT_NONE)
			assert_memory_equal(lft_data(&s, held[u]), data, sizeof data);
		lft_drop(&s, held[u]);
	}
	assert_int_equal(s.live, 0);
	lft_clear(&s);
}

int main(void)
{
	const struct CMUnitTest vswitch_lids[] = {
		cmocka_unit_test(test_take),
		cmocka_unit_test(test_lmc),
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_store),
	};

	return RUN_TESTS(vswitch_lids);
}
