/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's partition file, for ports that are there and for GUIDs that nobody shows. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/plugin/partitions/policy.h"

#define A 0x00a1b2fffe000101u
#define B 0x00a1b2fffe000102u

static struct policy policy;

static void parse(const char *text, bool both)
{
	struct policy_options options = {.both = both, .qos = true};

	policy_free(&policy);
	if (policy_parse(text, text ? strlen(text) : 0, &options, &policy))
		fail_msg("no memory");
}

/* The P_Keys of a CA port with this GUID, as "7fff 8001". */
static const char *keys(uint64_t guid)
{
	static char text[SM_PKEYS_MAX * 6];
	struct policy_port port = {.guid = guid, .type = SM_NODE_CA};
	struct policy_pkeys k = {0};
	size_t at = 0;

	text[0] = '\0';
	policy_port_pkeys(&policy, &port, &k);
	for (unsigned i = 0; i < k.count; i++)
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%04x", i ? " " : "",
				       k.pkey[i]);
	if (k.index0)
		snprintf(text + at, sizeof text - at, " index0 %04x", k.index0);
	return text;
}

static void is(const char *text, uint64_t guid, const char *want)
{
	parse(text, false);
	assert_string_equal(keys(guid), want);
}

static void test_files(void **state)
{
	(void)state;
	is(NULL, A, "ffff");
	is("", A, "ffff"); /* given up, as OpenSM does */
	is("# nothing\n", A, "ffff");
	is("t=0x1 : ALL;", A, "0001 7fff");
	is("t=1 : 0x00a1b2fffe000101=full;", A, "8001 7fff");
	is("t=1 : 0x00a1b2fffe000101=full;", B, "7fff");
	is("t=0x8001, defmember=full : 0x00a1b2fffe000101", A, "8001 7fff");
	is("0x1 : ALL=f;", A, "8001 7fff");
	is("0x1:\n\t0x00a1b2fffe000101=full,\n\t0x00a1b2fffe000102;\n", B, "0001 7fff");
	is("0x1: ALL=full; 0x1: 0x00a1b2fffe000101=limited;", A, "0001 7fff");
	is("0x1: ALL=full; 0x1: 0x00a1b2fffe000101=limited;", B, "8001 7fff");
	is("0x1: ALL_CAS=full; 2: ALL_SWITCHES=full; 3: SELF=full;", A, "8001 7fff");
	is("0x1: ALL=full\n; \n0x2:ALL;", A, "8001 0002 7fff");
	is("0x1: ALL=both;", A, "8001 7fff");
	is("Default=0x7fff : ALL=full;", A, "ffff");
	is("0x1 : mgid=ff12:401b::707, sl=1;\n0x1: ALL=full;", A, "8001 7fff");
	is("0x1, indx0 : ALL=full;", A, "8001 7fff index0 8001");
	is("0x1, indx0 : ALL=full; 0x1: ALL=full;", A, "8001 7fff");
	is("name : ALL=full; other : ALL; name : 0x00a1b2fffe000101", A, "0001 0002 7fff");
	/* the order of the bytes in OpenSM's memory */
	is("0x100: ALL; 0x1: ALL; 0x2: ALL;", A, "0100 0001 0002 7fff");
}

static void test_given_up(void **state)
{
	static const struct {
		const char *text;
		unsigned line;
	} bad[] = {
		{"t=0x1\n", 1},
		{"0x1: ALL=full;\n\n0x1x: ALL;", 3},
		{"0x1: ALL=full, guid;", 1},
		{"0x1: ALL=full;;\n", 1},
		{"0x1: ALL;\r\n", 1},
		{"0x1: 0;", 1},
		{"0x1: ALL\n; 0x2: ALL;\n", 2},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		parse(bad[i].text, false);
		assert_int_equal(policy.bad_line, bad[i].line);
		assert_string_equal(keys(A), "ffff");
	}
}

static void test_both(void **state)
{
	(void)state;
	parse("0x1: ALL=both; 2: ALL=full; 2: 0x00a1b2fffe000101=limited;", true);
	assert_string_equal(keys(A), "0001 8001 0002 7fff");
}

static void test_members(void **state)
{
	(void)state;
	parse("t=0x1, sl=3, ipoib : 0x00a1b2fffe000101=full", false);
	assert_true(policy.open_end);
	assert_int_equal(policy_find(&policy, 0x8001)->sl, 3);
	assert_true(policy_find(&policy, 1)->groups);
	assert_int_equal(policy_add(&policy, 2, B, SM_MEMBER_FULL), -ENOENT);
	assert_int_equal(policy_add(&policy, 0x8001, B, SM_MEMBER_LIMITED), 0);
	assert_string_equal(keys(B), "0001 7fff");
	assert_int_equal(policy_add(&policy, 1, A, SM_MEMBER_LIMITED), 0); /* overrides the file */
	assert_string_equal(keys(A), "0001 7fff");
	assert_true(policy_drop(&policy, 1, A));
	assert_false(policy_drop(&policy, 1, A));
	assert_string_equal(keys(A), "8001 7fff");
}

/* A list is read in a time that grows with it, not with its square. */
static void test_long_list(void **state)
{
	uint64_t since_us = now_us();

	(void)state;
	parse("t1=1 : 0x00a1b2fffe000101=full;", false);
	for (uint64_t guid = 1; guid <= 200000; guid++)
		if (policy_append(&policy, 1, guid, SM_MEMBER_LIMITED))
			fail_msg("no memory");
	assert_true(now_us() - since_us < 5000000);
	assert_string_equal(keys(200000), "0001 7fff");
	assert_int_equal(policy_append(&policy, 2, 1, SM_MEMBER_LIMITED), -ENOENT);
	assert_true(policy_drop(&policy, 1, 200000));
	assert_false(policy_drop(&policy, 1, 200000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),     cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_both),      cmocka_unit_test(test_members),
		cmocka_unit_test(test_long_list),
	};
	int rc = RUN_TESTS(tests);

	policy_free(&policy);
	return rc;
}
