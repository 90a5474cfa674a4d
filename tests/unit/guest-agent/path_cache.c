/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of path records: what is put in is found, until it is dropped; sizes at a full subnet.
 */
#include "tests/unit/tap.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "guest-agent/agent/path_cache.h"

#define PAYLOAD_MAX 71         /* bytes of an entry (docs/guest.md) */
#define MEMORY_MAX  (5u << 20) /* the bytes of a full cache */

static struct path_cache c;

static int setup(void **state)
{
	(void)state;
	path_cache_free(&c);
	return 0;
}

/* Destination n from port s in partition p. */
static struct path_record record(uint64_t n, uint64_t s, uint16_t p)
{
	struct path_record r = {.key = {.dgid = {0xfe, 0x80}, .pkey = p},
				.dlid = (uint16_t)n,
				.mtu = 4096,
				.sl = (uint8_t)(n & 15)};

	for (int i = 0; i < 8; i++) {
		r.key.dgid[15 - i] = (uint8_t)(n >> 8 * i);
		r.key.sguid[7 - i] = (uint8_t)(s >> 8 * i);
	}
	return r;
}

static void put(uint64_t n, uint64_t s, uint16_t p)
{
	struct path_record r = record(n, s, p);

	assert_int_equal(path_cache_put(&c, &r), 0);
}

static const struct path_record *find(uint64_t n, uint64_t s, uint16_t p)
{
	struct path_record r = record(n, s, p);

	return path_cache_find(&c, &r.key);
}

static void keys(void **state)
{
	(void)state;
	assert_null(find(1, 9, 1));
	put(1, 9, 1);
	assert_non_null(find(1, 9, 1));
	assert_null(find(1, 9, 2)); /* another partition */
	assert_null(find(1, 8, 1)); /* another port of ours */
	assert_null(find(2, 9, 1));
	put(1, 9, 2);
	put(1, 9, 1);
	assert_int_equal(c.count, 2);
}

static void changes(void **state)
{
	struct path_change n = {.dguid = 1, .mask = PATH_SL | PATH_MTU, .sl = 7, .mtu = 2048};

	(void)state;
	assert_int_equal(path_cache_change(&c, &n, NULL, NULL), 0);
	put(1, 9, 1);
	put(1, 9, 2);
	put(1, 8, 1);
	put(2, 9, 1);
	n.sguid = 9;
	assert_int_equal(path_cache_change(&c, &n, NULL, NULL), 2);
	assert_int_equal(find(1, 9, 2)->sl, 7);
	assert_int_equal(find(1, 9, 2)->mtu, 2048);
	assert_int_equal(find(1, 9, 2)->dlid, 1); /* was not in the notice */
	assert_int_equal(find(1, 8, 1)->sl, 1);
	assert_int_equal(find(2, 9, 1)->mtu, 4096);
	n = (struct path_change){.dguid = 1};
	assert_int_equal(path_cache_change(&c, &n, NULL, NULL), 3);
	assert_null(find(1, 9, 1));
	assert_non_null(find(2, 9, 1));
	assert_int_equal(c.count, 1);
}

static void count_told(void *arg, const struct path_record *r)
{
	*(unsigned *)arg += r->sl == 7;
}

/* Only a record that has become another one is told. */
static void told(void **state)
{
	struct path_change n = {.dguid = 1, .mask = PATH_SL, .sl = 7};
	unsigned count = 0;

	(void)state;
	put(1, 9, 1);
	put(1, 8, 1);
	put(2, 9, 1);
	assert_int_equal(path_cache_change(&c, &n, count_told, &count), 2);
	assert_int_equal(count, 2);
	assert_int_equal(path_cache_change(&c, &n, count_told, &count), 2);
	assert_int_equal(count, 2);
}

/* A notice of one partition, or of the question without one, is of no other. */
static void partitions(void **state)
{
	struct path_change n = {.dguid = 1, .has_pkey = true, .mask = PATH_SL, .sl = 7};

	(void)state;
	put(1, 9, 0);
	put(1, 9, 2);
	assert_int_equal(path_cache_change(&c, &n, NULL, NULL), 1);
	assert_int_equal(find(1, 9, 0)->sl, 7);
	assert_int_equal(find(1, 9, 2)->sl, 1);
	n = (struct path_change){.dguid = 1, .has_pkey = true, .pkey = 2};
	assert_int_equal(path_cache_change(&c, &n, NULL, NULL), 1);
	assert_null(find(1, 9, 2));
	assert_non_null(find(1, 9, 0));
}

static void full_subnet(void **state)
{
	struct mallinfo2 before = mallinfo2();

	(void)state;
	for (uint64_t n = 1; n <= PATH_CACHE_MAX; n++)
		put(0x0002c90300000000ull + n, 1, 0x7fff);
	struct mallinfo2 after = mallinfo2();
	size_t heap = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;

	printf("# %u entries: %zu bytes each, %zu bytes in all, %zu of the heap\n", c.count,
	       sizeof(struct path_record), path_cache_bytes(&c), heap);
	assert_int_equal(c.count, PATH_CACHE_MAX);
	assert_true(sizeof(struct path_record) <= PAYLOAD_MAX);
	assert_true(path_cache_bytes(&c) < MEMORY_MAX && heap < MEMORY_MAX);
	for (uint64_t n = 1; n <= PATH_CACHE_MAX; n++)
		assert_non_null(find(0x0002c90300000000ull + n, 1, 0x7fff));
	put(0x0002c90400000000ull, 1, 0x7fff);
	assert_int_equal(c.count, PATH_CACHE_MAX);
	assert_non_null(find(0x0002c90400000000ull, 1, 0x7fff));
}

/* Against a model that cannot be wrong: an array. Few keys, so that they collide and wrap. */
static void random_use(void **state)
{
	enum { KEYS = 400, PORTS = 2 };
	static bool there[KEYS][PORTS];
	unsigned seed = 1, count = 0;

	(void)state;
	memset(there, 0, sizeof(there));
	for (int i = 0; i < 200000; i++) {
		unsigned n = (unsigned)rand_r(&seed) % KEYS, s = (unsigned)rand_r(&seed) % PORTS;

		if (rand_r(&seed) % 3) {
			put(n, s + 1, 1);
			count += !there[n][s];
			there[n][s] = true;
		} else {
			struct path_change drop = {.dguid = n, .sguid = s + 1};

			assert_int_equal(path_cache_change(&c, &drop, NULL, NULL), there[n][s]);
			count -= there[n][s];
			there[n][s] = false;
		}
		assert_int_equal(c.count, count);
		n = (unsigned)rand_r(&seed) % KEYS;
		assert_int_equal(find(n, 1, 1) != NULL, there[n][0]);
		assert_int_equal(find(n, 2, 1) != NULL, there[n][1]);
	}
}

static void put_sole(uint64_t n, uint64_t s, uint16_t p, bool sole)
{
	struct path_record r = record(n, s, p);

	r.sole = sole;
	assert_int_equal(path_cache_put(&c, &r), 0);
}

static void put_at_lid(uint64_t n, uint16_t lid)
{
	struct path_record r = record(n, 9, 1);

	r.sole = true;
	r.dlid = lid;
	path_cache_share_lid(&c, &r.key, lid);
	assert_int_equal(path_cache_put(&c, &r), 0);
}

static const struct path_record *at_lid(uint16_t lid, uint64_t s, uint16_t p)
{
	struct path_record r = record(0, s, p);

	return path_cache_at_lid(&c, &r.key, lid);
}

/* Only a record that has its LID for itself says whose that is. */
static void lids(void **state)
{
	struct path_change change = {.dguid = 2, .mask = PATH_DLID, .dlid = 77};

	(void)state;
	assert_null(at_lid(1, 9, 1));
	put_sole(1, 9, 1, false);
	put_sole(2, 9, 1, true);
	assert_null(at_lid(1, 9, 1));
	assert_ptr_equal(at_lid(2, 9, 1), find(2, 9, 1));
	assert_null(at_lid(2, 8, 1)); /* from another port, */
	assert_null(at_lid(2, 9, 2)); /* and in another partition */
	path_cache_change(&c, &change, NULL, NULL);
	assert_null(at_lid(2, 9, 1));
	assert_ptr_equal(at_lid(77, 9, 1), find(2, 9, 1));
	change.mask = 0;
	path_cache_change(&c, &change, NULL, NULL);
	assert_null(at_lid(77, 9, 1));
}

/* A LID has one port at a time: the last that was heard of. */
static void a_lid_that_another_port_gets(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		put_at_lid(100 + i % 4, 50);
		assert_ptr_equal(at_lid(50, 9, 1), find(100 + i % 4, 9, 1));
	}
	put_sole(50, 8, 1, true); /* from another port of ours */
	path_cache_share_lid(&c, &find(50, 8, 1)->key, 50);
	assert_null(at_lid(50, 8, 1));
	assert_ptr_equal(at_lid(50, 9, 1), find(103, 9, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(keys, setup, setup),
		cmocka_unit_test_setup_teardown(lids, setup, setup),
		cmocka_unit_test_setup_teardown(a_lid_that_another_port_gets, setup, setup),
		cmocka_unit_test_setup_teardown(changes, setup, setup),
		cmocka_unit_test_setup_teardown(told, setup, setup),
		cmocka_unit_test_setup_teardown(partitions, setup, setup),
		cmocka_unit_test_setup_teardown(full_subnet, setup, setup),
		cmocka_unit_test_setup_teardown(random_use, setup, setup),
	};

	return RUN_TESTS(tests);
}
