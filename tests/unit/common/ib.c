/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf.h"
#include "common/nearest.h"
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

static const struct setting table[] = {
	{.section = "First", .help = "About it."},
	{.key = "peer", .many = true, .form = "NAME", .help = "Others."},
	{.key = "listen", .form = "ADDR:PORT", .example = "h:1", .help = "Where. And how."},
	{.key = "wait-s",
	 .type = SETTING_NUMBER,
	 .min = 1,
	 .max = 60,
	 .form = "seconds",
	 .fallback = "5",
	 .means = "not long",
	 .help = "So long."},
	{.section = "Second"},
	{.key = "loud", .type = SETTING_FLAG, .fallback = "no", .help = "Loud."},
	{.key = "way", .type = SETTING_WORD, .form = "in|out|up", .fallback = "in", .help = "Way."},
	{0},
};

static int load(const char *text, struct conf **c, char **error)
{
	char path[] = "/tmp/ibvmig-conf-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	int rc = conf_load(path, table, c, error);
	unlink(path);
	return rc;
}

static void test_conf(void **state)
{
	struct conf *c = NULL;
	char *error AUTO_FREE = NULL;

	(void)state;
	assert_int_equal(load("# x\n peer = a b \n\nlisten=1\npeer = c\nwait-s = 0x10\nloud = on",
			      &c, &error),
			 0);
	assert_string_equal(conf_nth(c, "peer", 0), "a b");
	assert_string_equal(conf_get(c, "peer"), "c");
	assert_null(conf_nth(c, "peer", 2));
	assert_int_equal(conf_number(c, "wait-s"), 16);
	assert_true(conf_flag(c, "loud"));
	assert_string_equal(conf_get(c, "way"), "in");
	conf_free(c);
	assert_int_equal(load("", &c, &error), 0);
	assert_int_equal(conf_number(c, "wait-s"), 5);
	assert_false(conf_flag(c, "loud"));
	assert_null(conf_get(c, "listen"));
	conf_free(c);
}

/* text: of a file; says: what its refusal ends with, after file and line. */
static const struct {
	const char *text, *says;
} refused[] = {
	{"peer = a\nlissten = 1\n", ":2: key \"lissten\" is unknown; did you mean listen? allowed "
				    "are peer, listen, wait-s, loud, way"},
	{"quality = 1\n",
	 ":1: key \"quality\" is unknown; allowed are peer, listen, wait-s, loud, way"},
	{"peer\n", ":1: \"peer\" has no '='; a line is key = value"},
	{"\nwait-s = 61", ":2: wait-s = 61: must be a number of seconds from 1 to 60: not long; "
			  "without the line it is 5"},
	{"wait-s = 2\nwait-s = x", ":2: wait-s = x: must be a number of seconds from 1 to 60: not "
				   "long; without the line it is 5"},
	{"loud = maybe", ":1: loud = maybe: must be yes or no; without the line it is no"},
	{"way = ou", ":1: way = ou: must be in, out or up; without the line it is in"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		char *error AUTO_FREE = NULL;
		struct conf *c = NULL;

		assert_int_equal(load(refused[i].text, &c, &error), -EINVAL);
		if (!error || !strchr(error, ':') ||
		    strcmp(strchr(error, ':'), refused[i].says) != 0)
			fail_msg("%s", error ? error : "no message");
	}
}

static void test_refuse_of_the_program(void **state)
{
	char *error AUTO_FREE = NULL, *other AUTO_FREE = NULL;
	struct conf *c = NULL;

	(void)state;
	assert_int_equal(load("\npeer = a b\n", &c, &error), 0);
	assert_int_equal(conf_refuse(c, conf_nth(c, "peer", 0) + 2, &error, "must be %d", 7),
			 -EINVAL);
	assert_string_equal(strchr(error, ':'), ":2: peer = a b: must be 7");
	assert_int_equal(conf_refuse(c, conf_get(c, "way"), &other, "cannot be"), -EINVAL);
	assert_string_equal(strchr(other, ':'), ": in: cannot be");
	conf_free(c);
}

static const char example[] =
	"# Configuration of p. Lines are \"key = value\"; all keys: p.conf(5).\n"
	"# \"p --check-config\" looks at it, and starts nothing.\n"
	"\n# ==== First ====\n# About it.\n"
	"\n# Others.\n#peer = NAME\n"
	"\n# Where. And how.\n#listen = h:1\n"
	"\n# So long.\n#wait-s = 5\n"
	"\n# ==== Second ====\n"
	"\n# Loud.\n#loud = no\n"
	"\n# Way.\n#way = in\n";
static const char man[] =
	".SS First\nAbout it.\n"
	".TP\n.B peer\nOthers.\nValue: NAME, any number of lines; default: none.\n"
	".TP\n.B listen\nWhere.\nAnd how.\nValue: ADDR:PORT; default: none.\n"
	".TP\n.B wait-s\nSo long.\nValue: a number of seconds from 1 to 60; default: 5.\n"
	".SS Second\n"
	".TP\n.B loud\nLoud.\nValue: yes or no; default: no.\n"
	".TP\n.B way\nWay.\nValue: in, out or up; default: in.\n";

static void test_printed(void **state)
{
	char *text AUTO_FREE = NULL, *page AUTO_FREE = NULL;
	size_t n;
	FILE *out;

	(void)state;
	out = open_memstream(&text, &n);
	settings_print_example(table, "p", out);
	fclose(out);
	assert_string_equal(text, example);
	out = open_memstream(&page, &n);
	settings_print_man(table, out);
	fclose(out);
	assert_string_equal(page, man);
}

static void test_nearest(void **state)
{
	static const char *const pairs[][2] = {{"statsu", "status"}, {"migrat", "migrate"},
					       {"sav", "save"},      {"xyz", NULL},
					       {"", NULL},           {"vf", "vf"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct nearest near = {.typed = pairs[i][0]};

		nearest_try(&near, "status");
		nearest_try(&near, "migrate");
		nearest_try(&near, "save");
		nearest_try(&near, "vf");
		if (pairs[i][1])
			assert_string_equal(near.word, pairs[i][1]);
		else
			assert_null(near.word);
	}
}

int main(void)
{
	const struct CMUnitTest common_ib[] = {
		cmocka_unit_test(test_guids),   cmocka_unit_test(test_gids),
		cmocka_unit_test(test_mac),     cmocka_unit_test(test_pkeys),
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_conf),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_refuse_of_the_program),
		cmocka_unit_test(test_printed), cmocka_unit_test(test_nearest),
	};

	return RUN_TESTS(common_ib);
}
