/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "sm-helper/watch/leaks.h"

#define NOW (10 * LEAK_YOUNG_MS)

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return o;
}

/* A host that has answered with this vGUID, or without one (0). */
static struct leak_report host(const char *name, uint64_t *guid)
{
	struct leak_report r = {.answered = true, .guid = guid, .guids = guid ? 1 : 0};

	snprintf(r.host, sizeof r.host, "%s", name);
	return r;
}

static void test_judge(void **state)
{
	uint64_t mine = 5, other = 6;
	struct reg_entry e = {.vguid = 5, .at = {.host = "a"}, .since_ms = NOW - LEAK_YOUNG_MS};
	struct leak_report r[3] = {host("a", &mine), host("b", NULL), host("c", &other)};

	(void)state;
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_NO);
	r[1].answered = false;
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_NO);
	r[0] = host("a", &other);
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_UNKNOWN); /* b may have it */
	r[1].answered = true;
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_YES);
	assert_int_equal(leaks_judge(&e, r, 3, NOW - 1), LEAK_BUSY);
	e.intent = REG_MOVE;
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_BUSY);
	e.intent = REG_NONE;
	r[2] = host("c", &mine);
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_ELSEWHERE);
	r[0].answered = false;
	assert_int_equal(leaks_judge(&e, r, 3, NOW), LEAK_ELSEWHERE);
	assert_int_equal(leaks_judge(&e, r + 1, 1, NOW), LEAK_UNKNOWN); /* unknown host */
	assert_int_equal(leaks_judge(&e, r, 0, NOW), LEAK_UNKNOWN);
}

/* Only a daemon's answer counts as one, and only that of this host. */
static void test_read(void **state)
{
	struct json_object *good = parse("{\"host\":\"a\",\"vfs\":[{\"name\":\"x\"},"
					 "{\"vguid\":\"0x0002c90300000101\"},7],"
					 "\"vms\":[{\"vguid\":\"0x0002c90300000102\"},{}]}");
	static const char *const bad[] = {
		"{}",
		"{\"host\":\"a\",\"vfs\":[]}",
		"{\"host\":\"a\",\"vfs\":{},\"vms\":[]}",
		"{\"host\":\"b\",\"vfs\":[],\"vms\":[]}",
		"{\"host\":1,\"vfs\":[],\"vms\":[]}",
	};
	struct leak_report r = host("a", NULL);

	(void)state;
	assert_int_equal(leaks_read(&r, good), 0);
	assert_true(r.answered && r.guids == 2);
	assert_true(r.guid[0] == 0x0002c90300000101 && r.guid[1] == 0x0002c90300000102);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct json_object *o = parse(bad[i]);

		assert_int_equal(leaks_read(&r, o), -EBADMSG);
		assert_false(r.answered);
		assert_int_equal(r.guids, 0);
		json_object_put(o);
	}
	json_object_put(good);
}

static void test_too_many(void **state)
{
	struct json_object *o = parse("{\"host\":\"a\",\"vms\":[]}");
	struct json_object *vfs = json_object_new_array();
	struct leak_report r = host("a", NULL);

	(void)state;
	json_set(o, "vfs", vfs);
	for (unsigned i = 0; i <= LEAK_GUIDS_MAX; i++) {
		struct json_object *vf = json_object_new_object();

		json_set_guid(vf, "vguid", i + 1);
		json_object_array_add(vfs, vf);
	}
	assert_int_equal(leaks_read(&r, o), -EBADMSG);
	assert_false(r.answered);
	free(r.guid);
	json_object_put(o);
}

int main(void)
{
	const struct CMUnitTest sm_leaks[] = {
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_too_many),
	};

	return RUN_TESTS(sm_leaks);
}
