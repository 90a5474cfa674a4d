/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The assignment of VMs to hosts. */
#include "tests/unit/tap.h"

#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/fleet/plan.h"

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;
	char *wrapped AUTO_FREE = strf("{\"x\":%s}", text);

	assert_int_equal(json_parse(wrapped, strlen(wrapped), &o), 0);
	struct json_object *x = json_object_get(json_opt(o, "x"));
	json_object_put(o);
	return x;
}

#define DOMAIN(n, vf)       "{\"name\":\"" n "\",\"uuid\":\"u-" n "\",\"memory_bytes\":1048576" vf "}"
#define ONE(pf, pkey, guid) "{\"pf\":\"" pf "\",\"pkey\":\"" pkey "\",\"vguid\":\"" guid "\"}"
#define VFS(list)           ",\"vfs\":[" list "]"
#define VF(guid)            VFS(ONE("pf0", "0x8001", guid))
#define HOST(n, available, vfs)                                                                    \
	"{\"host\":\"" n "\",\"memory_available_bytes\":" available                                \
	",\"pfs\":[{\"name\":\"pf0\",\"pkeys\":[\"0x8001\"]},{\"name\":\"pf1\",\"pkeys\":["        \
	"\"0xffff\"]}],\"vfs\":[" vfs "]}"
#define FREE   "{\"name\":\"a\",\"pf\":\"pf0\",\"vm\":null,\"migration\":null}"
#define FREE1  "{\"name\":\"c\",\"pf\":\"pf1\",\"vm\":null,\"migration\":null}"
#define TAKEN  "{\"name\":\"b\",\"pf\":\"pf0\",\"vm\":\"other\",\"migration\":null}"
#define PLENTY "1073741824"

static struct json_object *plan(const char *domains, const char *targets, const char *ranks)
{
	char *text AUTO_FREE = strf("{\"domains\":%s}", domains);
	struct json_object *s AUTO_JSON = parse(text), *t AUTO_JSON = parse(targets);
	struct json_object *r AUTO_JSON = ranks ? parse(ranks) : NULL;

	return plan_moves(s, t, r, NULL);
}

static const char *field(struct json_object *moves, size_t i, const char *key)
{
	return json_opt_str(json_object_array_get_idx(moves, i), key, "");
}

static void test_cheapest_first(void **state)
{
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", VF("0x1")) "]",
		"[" HOST("b", PLENTY, FREE) "," HOST("c", PLENTY, FREE) "]",
		"{\"0x1\":{\"b\":{\"pf0\":{\"switches\":4}},\"c\":{\"pf0\":{\"switches\":2}}}}");

	(void)state;
	assert_int_equal(json_count(m), 1);
	assert_string_equal(field(m, 0, "to"), "c");
	assert_string_equal(field(m, 0, "uuid"), "u-g1");
	assert_int_equal(
		json_opt_u64(json_opt(json_object_array_get_idx(m, 0), "cost"), "switches", 0), 2);
}

/* A VF that one VM of the plan takes is gone for the next. */
static void test_vfs_are_counted(void **state)
{
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", VF("0x1")) "," DOMAIN("g2", VF("0x2")) "," DOMAIN("g3",
										   VF("0x3")) "]",
		"[" HOST("b", PLENTY, FREE) "," HOST("c", PLENTY, TAKEN "," FREE) "]", NULL);

	(void)state;
	assert_string_not_equal(field(m, 0, "to"), field(m, 1, "to"));
	assert_string_equal(field(m, 2, "to"), "");
	assert_non_null(strstr(field(m, 2, "reason"), "b has no free VF on pf0"));
	assert_non_null(strstr(field(m, 2, "reason"), "c has no free VF on pf0"));
}

static void test_memory_is_counted(void **state)
{
	/* 256 MiB stay the host's; room for one of the two. */
	struct json_object *m AUTO_JSON = plan("[" DOMAIN("g1", "") "," DOMAIN("g2", "") "]",
					       "[" HOST("b", "270000000", "") "]", NULL);

	(void)state;
	assert_string_equal(field(m, 0, "to"), "b");
	assert_string_equal(field(m, 1, "to"), "");
	assert_non_null(strstr(field(m, 1, "reason"), "b has 0 MiB to give, not 1"));
}

#define PARTITIONS(pkeys)                                                                          \
	",\"partitions\":{\"guids\":[{\"guid\":\"0x0000000000000001\",\"pkeys\":" pkeys "}]}"
#define TARGET(n, pkeys)                                                                           \
	"{\"host\":\"" n "\",\"memory_available_bytes\":" PLENTY                                   \
	",\"pfs\":[{\"name\":\"pf0\",\"pkeys\":[\"0xffff\"]}],\"vfs\":[" FREE                      \
	"]" PARTITIONS(pkeys) "}"

static void partition(const char *target, const char *expected)
{
	char *targets AUTO_FREE = strf("[%s,%s,{\"host\":\"c\",\"error\":\"refused\"}]", target,
				       target);
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", VFS(ONE("pf0", "0x8002", "0x0000000000000001"))) "]", targets,
		NULL);

	assert_string_equal(field(m, 0, "reason"), expected);
}

/* The vGUID's right to it counts, and not the table of the PF, which lacks it. */
static void test_partition(void **state)
{
	(void)state;
	partition(TARGET("b", "[\"0x8001\",\"0x8002\"]"), "");
	partition(TARGET("b", "[\"0x0002\"]"), "");
	partition(TARGET("b", "null"), "");
	partition(TARGET("b", "[\"0x8001\"]"),
		  "vGUID 0x0000000000000001 is no member of the partition of PKey 0x8002; "
		  "c does not answer");
}

#define TWO_PFS VFS(ONE("pf0", "0x8001", "0x1") "," ONE("pf1", "0xffff", "0x2"))
#define TWO_VFS VFS(ONE("pf0", "0x8001", "0x1") "," ONE("pf0", "0x8001", "0x2"))

static void test_each_vf_is_needed(void **state)
{
	struct json_object *pfs AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_PFS) "]",
		"[" HOST("b", PLENTY, FREE "," FREE) "," HOST("c", PLENTY, FREE "," FREE1) "]",
		NULL);
	struct json_object *vfs AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_VFS) "]",
		"[" HOST("b", PLENTY, FREE "," TAKEN) "," HOST("c", PLENTY, FREE1) "]", NULL);
	struct json_object *vguids = json_opt(json_object_array_get_idx(pfs, 0), "vguids");

	(void)state;
	assert_string_equal(field(pfs, 0, "to"), "c");
	assert_int_equal(json_count(vguids), 2);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(vguids, 1)), "0x2");
	assert_string_equal(field(vfs, 0, "to"), "");
	assert_string_equal(field(vfs, 0, "reason"),
			    "b has 1 free VF on pf0, not 2; c has no free VF on pf0");
}

/* A VM of the plan takes all its VFs, which are gone for the next. */
static void test_all_are_given(void **state)
{
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_VFS) "," DOMAIN("g2", VF("0x3")) "]",
		"[" HOST("b", PLENTY, FREE "," FREE) "]", NULL);

	(void)state;
	assert_string_equal(field(m, 0, "to"), "b");
	assert_string_equal(field(m, 1, "reason"), "b has no free VF on pf0");
}

/* The first VF would go to b, the second one to c: what counts is both, each on its own PF. */
static void test_cost_of_all(void **state)
{
	const char *ranks =
		"{\"0x1\":{\"b\":{\"pf0\":{\"switches\":1,\"smps\":2,\"load\":1,\"same_leaf\":true}"
		"},"
		"\"c\":{\"pf0\":{\"switches\":3,\"smps\":3,\"load\":1}}},"
		"\"0x2\":{\"b\":{\"pf0\":{\"switches\":0},\"pf1\":{\"switches\":9,\"smps\":9,"
		"\"load\":1}},\"c\":{\"pf1\":{\"switches\":2,\"smps\":4,\"load\":7}}}}";
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_PFS) "]",
		"[" HOST("b", PLENTY, FREE "," FREE1) "," HOST("c", PLENTY, FREE "," FREE1) "]",
		ranks);
	struct json_object *cost = json_opt(json_object_array_get_idx(m, 0), "cost");

	(void)state;
	assert_string_equal(field(m, 0, "to"), "c");
	assert_int_equal(json_opt_u64(cost, "switches", 0), 5);
	assert_int_equal(json_opt_u64(cost, "smps", 0), 7);
	assert_int_equal(json_opt_u64(cost, "load", 0), 7);
	assert_false(json_opt_bool(cost, "same_leaf", true));
}

/* The fabric cannot tell of one of the VM's VFs: that host comes last, and has no cost. */
static void test_half_a_rank(void **state)
{
	const char *ranks =
		"{\"0x1\":{\"b\":{\"pf0\":{\"switches\":1}},\"c\":{\"pf0\":{\"switches\":"
		"5}}},\"0x2\":{\"c\":{\"pf1\":{\"switches\":5}}}}";
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_PFS) "]",
		"[" HOST("b", PLENTY, FREE "," FREE1) "," HOST("c", PLENTY, FREE "," FREE1) "]",
		ranks);
	struct json_object *only_b AUTO_JSON = plan(
		"[" DOMAIN("g1", TWO_PFS) "]", "[" HOST("b", PLENTY, FREE "," FREE1) "]", ranks);

	(void)state;
	assert_string_equal(field(m, 0, "to"), "c");
	assert_string_equal(field(only_b, 0, "to"), "b");
	assert_null(json_opt(json_object_array_get_idx(only_b, 0), "cost"));
}

/* VMs are spread where nothing else tells the hosts apart. */
static void test_spread(void **state)
{
	struct json_object *m AUTO_JSON = plan(
		"[" DOMAIN("g1", "") "," DOMAIN("g2", "") "," DOMAIN("g3", "") "," DOMAIN("g4",
											  "") "]",
		"[" HOST("b", PLENTY, "") "," HOST("c", PLENTY, "") "]", NULL);
	unsigned at_b = 0;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		at_b += !strcmp(field(m, i, "to"), "b");
	assert_int_equal(at_b, 2);
}

static void test_nobody(void **state)
{
	struct json_object *m AUTO_JSON = plan("[" DOMAIN("g1", "") "]", "[]", NULL);
	struct json_object *none AUTO_JSON = plan("[]", "[]", NULL);

	(void)state;
	assert_string_equal(field(m, 0, "reason"), "there is no other host");
	assert_int_equal(json_count(none), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cheapest_first),
		cmocka_unit_test(test_vfs_are_counted),
		cmocka_unit_test(test_memory_is_counted),
		cmocka_unit_test(test_partition),
		cmocka_unit_test(test_each_vf_is_needed),
		cmocka_unit_test(test_all_are_given),
		cmocka_unit_test(test_cost_of_all),
		cmocka_unit_test(test_half_a_rank),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_nobody),
	};

	return RUN_TESTS(tests);
}
