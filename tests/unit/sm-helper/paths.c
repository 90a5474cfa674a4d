/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of path records, and the batches that ask for them. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/paths/table.h"
#include "sm-helper/paths/wire.h"

static struct path_key key(unsigned i)
{
	return (struct path_key){0x0002c90300000001ull + 2 * i, 0x0002c90300100001ull + 2 * i, 0};
}

static struct path_value value(unsigned i)
{
	return (struct path_value){.dlid = (uint16_t)(i + 1), .slid = 7, .pkey = 0xffff, .mtu = 4};
}

static unsigned hits(struct path_table *t, unsigned from, unsigned to, uint32_t serial)
{
	struct path_value v;
	unsigned n = 0;

	for (unsigned i = from; i < to; i++) {
		struct path_key k = key(i);

		if (!path_table_get(t, &k, serial, 100 + i, &v))
			continue;
		assert_int_equal(v.dlid, (uint16_t)(i + 1));
		n++;
	}
	return n;
}

static void test_states(void **state)
{
	struct path_table *t = path_table_new(1024);
	struct path_key k = key(1), other = key(1);
	struct path_value v = value(1), got = {.dlid = 99};

	(void)state;
	assert_false(path_table_get(t, &k, 1, 100, &got));
	path_table_put(t, &k, 1, 100, &v);
	other.pkey = 0x8123;
	assert_false(path_table_get(t, &other, 1, 100, &got));
	assert_int_equal(got.dlid, 99);
	assert_true(path_table_get(t, &k, 1, 100, &got));
	assert_int_equal(got.dlid, 2);
	assert_false(path_table_get(t, &k, 2, 100, &got));
	v.dlid = 5;
	path_table_put(t, &k, 2, 100, &v);
	assert_true(path_table_get(t, &k, 2, 100, &got));
	assert_int_equal(got.dlid, 5);
	assert_false(path_table_get(t, &k, 1, 100, &got));
	assert_int_equal(path_table_count(t, 2), 1);
	assert_int_equal(path_table_count(t, 1), 0);
	path_table_free(t);
}

/* Full: the record that was asked for the longest ago makes room, and no other. */
static void test_full(void **state)
{
	struct path_table *t = path_table_new(4096);
	struct path_value v;
	struct path_key k;

	(void)state;
	for (unsigned i = 0; i < 2048; i++) {
		k = key(i);
		v = value(i);
		path_table_put(t, &k, 1, 1, &v);
	}
	assert_in_range(hits(t, 0, 2048, 1), 1900, 2048); /* the sets are filled evenly */
	for (unsigned i = 2048; i < 20000; i++) {
		k = key(i);
		v = value(i);
		path_table_put(t, &k, 1, 200 + i, &v);
		assert_int_equal(hits(t, i, i + 1, 1), 1);
	}
	assert_int_equal(path_table_count(t, 1), 4096);
	assert_int_equal(hits(t, 0, 2048, 1), 0);
	path_table_free(t);
}

static void test_past(void **state)
{
	struct path_table *t = path_table_new(1024);
	struct path_key k, out[64];
	struct path_value v;
	size_t at = 0, n, all = 0;

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		k = key(i);
		v = value(i);
		path_table_put(t, &k, 1, i < 100 ? 10 : 20, &v);
	}
	while ((n = path_table_past(t, 2, 15, &at, out, ARRAY_SIZE(out)))) {
		for (size_t i = 0; i < n; i++) {
			assert_true(out[i].sguid >= key(100).sguid);
			path_table_put(t, &out[i], 2, 30, &v);
		}
		all += n;
	}
	assert_int_equal(all, path_table_count(t, 2));
	assert_in_range(all, 190, 200);
	at = 0;
	assert_int_equal(path_table_past(t, 2, 15, &at, out, ARRAY_SIZE(out)), 0);
	path_table_free(t);
}

static void test_head(void **state)
{
	struct path_wire_head h = {.id = 0xdeadbeef, .count = 3, .flags = 1}, got;
	uint8_t b[PATH_WIRE_HEAD_BYTES];

	(void)state;
	path_wire_put_head(b, &h);
	assert_memory_equal(b, "ibpq\0\1\0\3\xde\xad\xbe\xef\0\1\0\0", sizeof b);
	assert_int_equal(path_wire_get_head(b, &got), 0);
	assert_int_equal(got.id, h.id);
	assert_int_equal(got.count, 3);
	b[3] = 'r';
	assert_int_equal(path_wire_get_head(b, &got), -EPROTO);
	b[3] = 'q';
	b[5] = 2;
	assert_int_equal(path_wire_get_head(b, &got), -EPROTO);
	b[5] = 1;
	b[7] = 0;
	assert_int_equal(path_wire_get_head(b, &got), -EINVAL);
	b[6] = 2;
	assert_int_equal(path_wire_get_head(b, &got), 0);
	assert_int_equal(got.count, PATH_WIRE_MAX);
	b[7] = 1;
	assert_int_equal(path_wire_get_head(b, &got), -EINVAL);
}

static void test_records(void **state)
{
	const struct path_query q = {{IB_GID_PREFIX_LL, 0x0102030405060708ull}, {1, 2}, 0x8001};
	struct path_answer a = {0, {false, 0x1234, 0x5678, 0xffff, 3, 4, 16}}, back;
	uint8_t b[PATH_WIRE_QUERY_BYTES];
	struct path_query got;

	(void)state;
	path_wire_put_query(b, &q);
	assert_memory_equal(b, "\xfe\x80\0\0\0\0\0\0\1\2\3\4\5\6\7\x8", 16);
	path_wire_get_query(b, &got);
	assert_memory_equal(&got.sgid, &q.sgid, sizeof q.sgid);
	assert_memory_equal(&got.dgid, &q.dgid, sizeof q.dgid);
	assert_int_equal(got.pkey, 0x8001);
	path_wire_put_answer(b, &a);
	assert_memory_equal(b, "\0\3\4\x10\x12\x34\x56\x78\xff\xff\0\0", PATH_WIRE_REPLY_BYTES);
	path_wire_get_answer(b, &back);
	assert_int_equal(back.path.dlid, 0x1234);
	a.error = -ENOENT;
	path_wire_put_answer(b, &a);
	assert_memory_equal(b, "\1\0\0\0\0\0\0\0\0\0\0\0", PATH_WIRE_REPLY_BYTES);
	a.error = -ETIMEDOUT;
	path_wire_put_answer(b, &a);
	path_wire_get_answer(b, &back);
	assert_int_equal(back.error, -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest sm_paths[] = {
		cmocka_unit_test(test_states),  cmocka_unit_test(test_full),
		cmocka_unit_test(test_past),    cmocka_unit_test(test_head),
		cmocka_unit_test(test_records),
	};

	return RUN_TESTS(sm_paths);
}
