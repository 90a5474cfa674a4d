/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf.h"
#include "common/ib.h"
#include "common/util.h"

static void test_guids(void **state)
{
	static const char *const bad[] = {
		"",
		"0x",
		"0x1",
		"00a1b2fffe000101",
		"0x00a1b2fffe00010",
		"0x00a1b2fffe0001011",
		"0x00a1b2fffe00010g",
		"0x0000000000000000",
		"0xffffffffffffffff",
		"00:a1:b2:ff:fe:00:01",
		"00:a1:b2:ff:fe:00:01:1",
		"0:0a1:b2:ff:fe:00:01:01",
		"00:a1::b2:ff:fe:00:01:01",
		":00:a1:b2:ff:fe:00:01:01",
		" 0x00a1b2fffe000101",
	};
	uint64_t g = 0;
	char text[IB_GUID_TEXT];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(ib_guid_parse(bad[i], &g), -EINVAL);
	assert_int_equal(g, 0);
	assert_int_equal(ib_guid_parse("0x00A1b2fffe000101", &g), 0);
	assert_int_equal(g, 0x00a1b2fffe000101);
	assert_int_equal(ib_guid_parse("00:a1:b2:ff:fe:00:01:01", &g), 0);
	assert_int_equal(g, 0x00a1b2fffe000101);
	ib_guid_format(g, text);
	assert_string_equal(text, "0x00a1b2fffe000101");
}

static void test_gids(void **state)
{
	struct ib_gid gid, back;
	char text[IB_GID_TEXT];
	uint8_t bytes[16];

	(void)state;
	assert_int_equal(ib_gid_parse("fe80::a1:b2ff:fe00:101", &gid), 0);
	assert_int_equal(gid.prefix, IB_GID_PREFIX_LL);
	assert_int_equal(gid.guid, 0x00a1b2fffe000101);
	ib_gid_format(&gid, text);
	assert_string_equal(text, "fe80:0000:0000:0000:00a1:b2ff:fe00:0101");
	ib_gid_to_bytes(&gid, bytes);
	ib_gid_from_bytes(bytes, &back);
	assert_memory_equal(&gid, &back, sizeof gid);
	assert_int_equal(ib_gid_parse("fe80", &gid), -EINVAL);
}

static void test_mac(void **state)
{
	char mac[IB_MAC_TEXT];

	(void)state;
	assert_int_equal(ib_guid_to_mac(0x00a1b2fffe000101, mac), 0);
	assert_string_equal(mac, "02:a1:b2:00:01:01");
	assert_int_equal(ib_guid_to_mac(0x00a1b2fffd000101, mac), -EINVAL);
	assert_int_equal(ib_guid_to_mac(0x01a1b2fffe000101, mac), -EINVAL);
}

static void test_pkeys(void **state)
{
	uint16_t p = 0;

	(void)state;
	assert_int_equal(ib_pkey_parse("0x8001", &p), 0);
	assert_int_equal(p, 0x8001);
	assert_int_equal(ib_pkey_parse("0x8000", &p), -EINVAL);
	assert_int_equal(ib_pkey_parse("0x10000", &p), -EINVAL);
	assert_int_equal(ib_pkey_parse("32769", &p), -EINVAL);
	assert_int_equal(ib_pkey_parse("", &p), -EINVAL);
}

static void test_numbers(void **state)
{
	uint64_t v = 5;

	(void)state;
	assert_int_equal(parse_u64("0x10", 0, 16, &v), 0);
	assert_int_equal(v, 16);
	assert_int_equal(parse_u64("010", 0, 16, &v), 0);
	assert_int_equal(v, 10);
	assert_int_equal(parse_u64("17", 0, 16, &v), -ERANGE);
	assert_int_equal(parse_u64("-1", 0, 16, &v), -EINVAL);
	assert_int_equal(parse_u64("1 ", 0, 16, &v), -EINVAL);
	assert_int_equal(parse_u64("99999999999999999999", 0, UINT64_MAX, &v), -ERANGE);
}

static int load(const char *text, struct conf **c, char **error)
{
	static const char *const known[] = {"peer", "listen", NULL};
	char path[] = "/tmp/ibvmig-conf-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	int rc = conf_load(path, known, c, error);
	unlink(path);
	return rc;
}

static void test_conf(void **state)
{
	struct conf *c = NULL;
	char *error AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(load("# x\n peer = a b \n\nlisten=1\npeer = c", &c, &error), 0);
	assert_string_equal(conf_nth(c, "peer", 0), "a b");
	assert_string_equal(conf_get(c, "peer", ""), "c");
	assert_null(conf_nth(c, "peer", 2));
	conf_free(c);
	assert_int_equal(load("peer = a\nlissten = 1\n", &c, &error), -EINVAL);
	assert_non_null(strstr(error, ":2: key \"lissten\" is unknown; allowed are peer, listen"));
}

int main(void)
{
	const struct CMUnitTest common_ib[] = {
		cmocka_unit_test(test_guids),   cmocka_unit_test(test_gids),
		cmocka_unit_test(test_mac),     cmocka_unit_test(test_pkeys),
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_conf),
	};

	return RUN_TESTS(common_ib);
}
