/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who is a member of what, by ibvmig-sm's answer; what a guest uses; and what is refused. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/partition.h"
#include "daemon/base/settings.h"

#define A "0x00a1b2fffe000101"
#define B "0x00a1b2fffe000102"
#define C "0x00a1b2fffe000103"

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL, *x;
	char *wrapped AUTO_FREE = strf("{\"x\":%s}", text);

	assert_int_equal(json_parse(wrapped, strlen(wrapped), &o), 0);
	x = json_object_get(json_opt(o, "x"));
	json_object_put(o);
	return x;
}

static struct json_object *told(void)
{
	return parse("{\"joins\":false,\"why\":\"no word of it\",\"guids\":["
		     "{\"guid\":\"0x00A1B2FFFE000101\",\"pkeys\":[\"0x7fff\",\"0x8001\"],"
		     "\"shown\":[\"0x7fff\",\"0x8001\",\"0x0003\"]},"
		     "{\"guid\":\"" B
		     "\",\"pkeys\":[\"0x0001\",\"0xffff\"],\"shown\":[\"0x0001\"]},"
		     "{\"guid\":\"" C "\",\"pkeys\":null,\"shown\":null}]}");
}

static void test_rights(void **state)
{
	struct json_object *t AUTO_JSON = told();

	(void)state;
	assert_int_equal(partition_right(t, A, 0x8001), PARTITION_FULL);
	assert_int_equal(partition_right(t, A, 0x0001), PARTITION_FULL);
	assert_int_equal(partition_right(t, A, 0xffff), PARTITION_LIMITED);
	assert_int_equal(partition_right(t, A, 0x8002), PARTITION_NONE);
	assert_int_equal(partition_right(t, B, 0x8001), PARTITION_LIMITED);
	assert_int_equal(partition_right(t, C, 0x8001), PARTITION_UNKNOWN);
	assert_int_equal(partition_right(t, "0x00a1b2fffe000109", 0x8001), PARTITION_UNKNOWN);
	assert_int_equal(partition_right(NULL, A, 0x8001), PARTITION_UNKNOWN);
	assert_true(partition_serves(t, A, 0x0001)); /* full stands for limited */
	assert_false(partition_serves(t, B, 0x8001));
	assert_true(partition_serves(t, C, 0x8001));
	assert_int_equal(partition_leftover(t, A), 0x0003);
	assert_int_equal(partition_leftover(t, B), 0);
	assert_int_equal(partition_leftover(t, C), 0);
}

/* A backend that joins by itself needs no member of now. */
static void test_joins(void **state)
{
	struct json_object *t AUTO_JSON = parse("{\"joins\":true,\"guids\":[{\"guid\":\"" A
						"\",\"pkeys\":[\"0xffff\"]}]}");
	struct json_object *vfs AUTO_JSON = parse("[{\"vguid\":\"" A "\",\"pkey\":\"0x8001\"}]");
	struct json_object *own AUTO_JSON = parse(
		"[{\"vguid\":\"" A "\",\"pkey\":\"0x8001\",\"pid\":1,\"comm\":\"x\"}]");
	struct json_object *other AUTO_JSON = parse(
		"[{\"vguid\":\"" A "\",\"pkey\":\"0x8002\",\"pid\":1,\"comm\":\"x\"}]");
	char why[512];

	(void)state;
	assert_int_equal(partition_own(t, A, 0x8001), PARTITION_FULL);
	assert_int_equal(partition_own(t, A, 0x0001), PARTITION_LIMITED);
	assert_int_equal(partition_judge(t, vfs, own, why, sizeof why), 0);
	assert_int_equal(partition_judge(t, vfs, other, why, sizeof why), -EACCES);
}

static void judge(const char *vfs, const char *used, const char *expected)
{
	struct json_object *t AUTO_JSON = told(), *v AUTO_JSON = parse(vfs),
			      *u AUTO_JSON = used ? parse(used) : NULL;
	char why[512] = "";
	int rc = partition_judge(t, v, u, why, sizeof why);

	assert_int_equal(rc, expected ? -EACCES : 0);
	if (expected && !strstr(why, expected))
		fail_msg("%s", why);
}

#define VF(guid, pkey) "{\"vguid\":\"" guid "\",\"pkey\":\"" pkey "\"}"
#define USED(guid, pkey)                                                                           \
	"[{\"vguid\":\"" guid "\",\"pkey\":\"" pkey "\",\"pid\":12,\"comm\":\"ib_write_bw\"}]"

static void test_judge(void **state)
{
	(void)state;
	judge("[" VF(A, "0x8001") "]", NULL, NULL);
	judge("[" VF(B, "0x8001") "]", NULL, NULL); /* a limited member is a member */
	judge("[" VF(C, "0x8001") "]", NULL, NULL); /* nobody knows */
	judge("[" VF(A, "0x8001") "," VF(B, "0x8002") "]", NULL,
	      "vGUID " B " is no member of the partition of PKey 0x8002 at the subnet manager, "
	      "which gives it 0x0001, 0xffff: make it one (ibvmig-sm partition 0x0002 full " B ")");
	judge("[" VF(A, "0x8001") "]", USED(A, "0x0001"), NULL);
	judge("[" VF(A, "0x8001") "]", USED(A, "0x8002"),
	      "process 12 (ib_write_bw) in the guest has QPs with PKey 0x8002, of which vGUID " A
	      " is no member");
	judge("[" VF(B, "0x8001") "]", USED(B, "0x8001"), "is a limited member only");
	judge("[" VF(A, "0x8001") "]", USED(B, "0x8009"), NULL); /* not a VF of the VM */
}

static void test_used(void **state)
{
	struct json_object *query AUTO_JSON = parse(
		"{\"processes\":[{\"pid\":7,\"comm\":\"a\\u0007b\",\"pkeys\":"
		"[" VF(A, "0x8001") "," VF(A, "0x8001") "," VF(
			A, "zero") ",7]},{\"pid\":8,\"comm\":\"c\",\"pkeys\":"
				   "[" VF(A, "0x8001") "," VF(B, "0x8001") "]},{"
									   "\"pid\":"
									   "9},7]}");
	struct json_object *list AUTO_JSON = json_object_new_array();

	(void)state;
	assert_true(partition_used(query, list));
	assert_string_equal(json_text(list),
			    "[{\"vguid\":\"" A "\",\"pkey\":\"0x8001\",\"comm\":\"a?b\",\"pid\":7},"
			    "{\"vguid\":\"" B "\",\"pkey\":\"0x8001\",\"comm\":\"c\",\"pid\":8}]");
	assert_false(partition_used(query, list));
	assert_false(partition_used(NULL, list));
	assert_int_equal(json_count(list), 2);
}

static void say(void *arg, const char *text)
{
	char *all = arg;

	snprintf(all + strlen(all), 1024 - strlen(all), "%s\n", text);
}

static void test_remarks(void **state)
{
	struct json_object *t AUTO_JSON = told(),
			      *vfs AUTO_JSON = parse("[" VF(A, "0x8001") "," VF(B, "0x8001") "," VF(
				      B, "0x0001") "," VF(C, "0x8001") "]");
	char all[1024] = "";

	(void)state;
	partition_remarks(t, vfs, say, all);
	assert_string_equal(
		all, "vGUID " B " is a limited member of the partition of PKey 0x8001: it "
		     "speaks with full members only\n"
		     "whether vGUID " C " is a member of the partition of PKey 0x8001 cannot "
		     "be told: no word of it\n");
}

/* Without ibvmig-sm, and with one that is of an older version, nothing is known, and why is said.
 */
static void test_unknown(void **state)
{
	struct settings s = {0};
	struct json_object *guids = json_object_new_array(), *t AUTO_JSON = NULL;

	(void)state;
	json_object_array_add(guids, json_object_new_string(A));
	t = partition_ask(&s, guids, false);
	assert_string_equal(partition_why(t), "sm-url is not configured");
	assert_int_equal(partition_right(t, A, 0x8001), PARTITION_UNKNOWN);
	assert_string_equal(partition_why(NULL), "ibvmig-sm was not asked");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rights),  cmocka_unit_test(test_joins),
		cmocka_unit_test(test_judge),   cmocka_unit_test(test_used),
		cmocka_unit_test(test_remarks), cmocka_unit_test(test_unknown),
	};

	return RUN_TESTS(tests);
}
