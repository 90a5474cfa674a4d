/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves away from full links. */
#include "tests/unit/tap.h"

#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/fleet/balance.h"

/* A link of 25 Gb/s with two VMs behind it, whose vGUIDs are "NAME1" and "NAME2". */
#define LINK(host, in, out, wait, in1, out1, in2, out2)                                            \
	"{\"mbps\":25000,\"in_mbps\":" #in ",\"out_mbps\":" #out ",\"wait_per_s\":" #wait          \
	",\"ports\":[{\"guid\":\"" host "1\",\"in_mbps\":" #in1 ",\"out_mbps\":" #out1             \
	"},{\"guid\":\"" host "2\",\"in_mbps\":" #in2 ",\"out_mbps\":" #out2 "}]}"
#define VF(guid, pf) "{\"vguid\":\"" guid "\",\"pf\":\"" pf "\",\"pkey\":\"1\"}"
#define HOST(host, vf)                                                                             \
	"{\"host\":\"" host "\",\"memory_available_bytes\":1073741824,"                            \
	"\"pfs\":[{\"name\":\"p\",\"pkeys\":[\"1\"]}],\"vfs\":[" vf "],\"domains\":["              \
	"{\"name\":\"" host                                                                        \
	"1\",\"vfs\":[" VF(host "1", "p") "]},"                                                    \
					  "{\"name\":\"" host                                      \
					  "2\",\"vfs\":[" VF(host "2", "p") "]}]}"
#define FREE "{\"pf\":\"p\"}"

static struct json_object *balance(const char *links, const char *hosts)
{
	char *text AUTO_FREE = strf("{\"l\":[%s],\"h\":[%s]}", links, hosts);
	struct json_object *o AUTO_JSON = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return balance_moves(json_opt(o, "l"), json_opt(o, "h"));
}

static struct json_object *nth(struct json_object *o, const char *list, size_t i)
{
	return json_object_array_get_idx(json_opt(o, list), i);
}

/* Two VMs send 12 Gb/s each through one link: one goes where next to nothing is. */
static void test_one_leaves(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		LINK("a", 0, 24000, 0, 0, 12000, 0, 12000) "," LINK(
			"b", 0, 9000, 0, 0, 9000, 0, 0) "," LINK("c", 100, 100, 0, 0, 0, 0, 0),
		HOST("a", FREE) "," HOST("b", FREE) "," HOST("c", FREE));
	struct json_object *m = nth(o, "moves", 0), *l = nth(o, "links", 0);

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 1);
	assert_string_equal(json_opt_str(m, "from", ""), "a");
	assert_string_equal(json_opt_str(m, "to", ""), "c");
	assert_int_equal(json_opt_u64(m, "out_mbps", 0), 12000);
	assert_true(json_opt_bool(l, "full", false));
	assert_int_equal(json_opt_u64(l, "out_mbps", 0), 24000);
	assert_int_equal(json_opt_u64(l, "out_after", 0), 12000);
	assert_int_equal(json_opt_u64(nth(o, "links", 2), "out_after", 0), 12100);
}

static void test_nothing_is_full(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		LINK("a", 0, 19000, 0, 0, 19000, 0, 0) "," LINK("b", 0, 0, 0, 0, 0, 0, 0),
		HOST("a", FREE) "," HOST("b", FREE));

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 0);
	assert_false(json_opt_bool(nth(o, "links", 0), "full", true));
}

/* Traffic that arrives counts as well, and a port that waits is full whatever its rate. */
static void test_waiting(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		LINK("a", 10000, 0, 250000, 4000, 0, 6000, 0) "," LINK("b", 0, 0, 0, 0, 0, 0, 0),
		HOST("a", FREE) "," HOST("b", FREE));

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 1);
	assert_int_equal(json_opt_u64(nth(o, "links", 0), "in_after", 0) +
				 json_opt_u64(nth(o, "links", 1), "in_after", 0),
			 10000);
}

/* A link of 25 Gb/s in the state that is said, with nothing but VM NAME1 behind it. */
#define STATE(host, state, out1)                                                                   \
	"{\"mbps\":25000," state ",\"ports\":[{\"guid\":\"" host                                   \
	"1\",\"in_mbps\":0,\"out_mbps\":" #out1 "}]}"
#define FLOWS(out)   "\"in_mbps\":0,\"out_mbps\":" #out
#define HOSTS_A_TO_C HOST("a", FREE) "," HOST("b", FREE) "," HOST("c", FREE)

/* A wait counter that is at its top counts no more: the port waits, with a rate of null. */
static void test_stuck(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		STATE("a", FLOWS(9000) ",\"wait_per_s\":null,\"wait_stuck\":true",
		      3000) "," STATE("b", FLOWS(10), 0),
		HOSTS_A_TO_C);
	struct json_object *l = nth(o, "links", 0);

	(void)state;
	assert_true(json_opt_bool(l, "full", false));
	assert_true(json_opt_bool(l, "wait_stuck", false));
	assert_true(json_object_object_get_ex(l, "wait_per_s", NULL));
	assert_null(json_opt(l, "wait_per_s"));
	assert_int_equal(json_count(json_opt(o, "moves")), 1);
	assert_false(json_opt_bool(nth(o, "links", 1), "wait_stuck", true));
}

/* A counter that was reset meanwhile leaves its link out for once: nobody goes there, and nobody
 * from there. */
static void test_unknown(void **state)
{
	struct json_object *to AUTO_JSON = balance(
		STATE("a", FLOWS(24000), 12000) "," STATE("b", "\"in_mbps\":0,\"out_mbps\":null",
							  0) "," STATE("c", FLOWS(9000), 0),
		HOSTS_A_TO_C);
	struct json_object *wait AUTO_JSON = balance(
		STATE("a", FLOWS(24000), 12000) "," STATE("b", FLOWS(0) ",\"wait_per_s\":null", 0),
		HOSTS_A_TO_C);
	struct json_object *from AUTO_JSON = balance(STATE("a",
							   "\"in_mbps\":null,\"out_mbps\":24000",
							   12000) "," STATE("b", FLOWS(0), 0),
						     HOSTS_A_TO_C);
	struct json_object *vm AUTO_JSON = balance(
		STATE("a", FLOWS(24000), null) "," STATE("b", FLOWS(0), 0), HOSTS_A_TO_C);

	(void)state;
	assert_string_equal(json_opt_str(nth(to, "moves", 0), "to", ""), "c");
	assert_null(json_opt(nth(to, "links", 1), "out_mbps"));
	assert_int_equal(json_count(json_opt(wait, "moves")), 0);
	assert_int_equal(json_count(json_opt(from, "moves")), 0);
	assert_int_equal(json_count(json_opt(vm, "moves")), 0);
}

/* A VM that fills the link alone would only take the trouble along. */
static void test_no_help(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		LINK("a", 0, 24000, 0, 0, 24000, 0, 0) "," LINK("b", 0, 500, 0, 0, 0, 0, 0),
		HOST("a", FREE) "," HOST("b", FREE));

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 0);
}

static void test_no_room(void **state)
{
	struct json_object *o AUTO_JSON = balance(
		LINK("a", 0, 24000, 0, 0, 12000, 0, 12000) "," LINK("b", 0, 0, 0, 0, 0, 0, 0),
		HOST("a", FREE) "," HOST("b", ""));

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 0);
	assert_true(json_opt_bool(nth(o, "links", 0), "full", false));
}

/* The link of one PF, of 25 Gb/s, behind which two ports are; what the second one sends is said. */
#define RAIL(out, one, two, of_two)                                                                \
	"{\"mbps\":25000,\"out_mbps\":" #out ",\"ports\":[{\"guid\":\"" one "\"},{\"guid\":\"" two \
	"\",\"out_mbps\":" #of_two "}]}"
#define RAILS(host, vfs, domains)                                                                  \
	"{\"host\":\"" host "\",\"memory_available_bytes\":1073741824,\"pfs\":["                   \
	"{\"name\":\"p\",\"pkeys\":[\"1\"]},{\"name\":\"q\",\"pkeys\":[\"1\"]}],\"vfs\":[" vfs     \
	"],\"domains\":[" domains "]}"
#define OWN(guid, pf, vm) "{\"parked_guid\":\"" guid "\",\"pf\":\"" pf "\",\"vm\":" vm "}"

/* VM g sends 12 and 8 Gb/s by the PFs p and q of host a, whose p is full. The arguments say how
 * much host b's q sends, and to which VM its VF belongs. */
static struct json_object *two_rails(const char *b_q_out, const char *b_q_vm)
{
	char *links AUTO_FREE = strf(
		RAIL(24000, "ap", "g1", 12000) "," RAIL(8000, "aq", "g2", 8000) "," RAIL(
			1000, "bp", "x",
			0) ","
			   "{\"mbps\":25000,\"out_mbps\":%s,\"ports\":[{\"guid\":\"bq\"}]}",
		b_q_out);
	char *hosts AUTO_FREE = strf(
		RAILS("a", "",
		      "{\"name\":\"g\",\"vfs\":[" VF("g1", "p") "," VF(
			      "g2", "q") "]}") "," RAILS("b",
							 OWN("bp", "p", "null") "," OWN("bq", "q",
											"%s"),
							 ""),
		b_q_vm);

	return balance(links, hosts);
}

static void expect_link(struct json_object *l, const char *host, const char *pf, unsigned out_after)
{
	assert_string_equal(json_opt_str(l, "host", ""), host);
	assert_string_equal(json_opt_str(l, "pf", ""), pf);
	assert_int_equal(json_opt_u64(l, "out_after", 0), out_after);
}

/* A VM takes the traffic of all its VFs along, to the links of the same PFs. */
static void test_both_rails(void **state)
{
	struct json_object *o AUTO_JSON = two_rails("500", "null");
	struct json_object *m = nth(o, "moves", 0);

	(void)state;
	assert_int_equal(json_count(json_opt(o, "moves")), 1);
	assert_string_equal(json_opt_str(m, "vm", ""), "g");
	assert_string_equal(json_opt_str(m, "to", ""), "b");
	assert_int_equal(json_opt_u64(m, "out_mbps", 0), 20000);
	expect_link(nth(o, "links", 0), "a", "p", 12000);
	expect_link(nth(o, "links", 1), "a", "q", 0);
	expect_link(nth(o, "links", 2), "b", "p", 13000);
	expect_link(nth(o, "links", 3), "b", "q", 8500);
}

/* The second rail counts as the first one does: full, too full with it, or without a free VF. */
static void test_second_rail(void **state)
{
	struct json_object *full AUTO_JSON = two_rails("500,\"wait_per_s\":250000", "null");
	struct json_object *too_much AUTO_JSON = two_rails("18000", "null");
	struct json_object *taken AUTO_JSON = two_rails("500", "\"other\"");

	(void)state;
	assert_int_equal(json_count(json_opt(full, "moves")), 0);
	assert_int_equal(json_count(json_opt(too_much, "moves")), 0);
	assert_int_equal(json_count(json_opt(taken, "moves")), 0);
	expect_link(nth(taken, "links", 0), "a", "p", 24000);
	expect_link(nth(taken, "links", 1), "a", "q", 8000);
}

/* Links that lead to no host of ours, and hosts without a link. */
static void test_strangers(void **state)
{
	struct json_object *o AUTO_JSON = balance(LINK("x", 0, 25000, 0, 0, 9, 0, 9),
						  HOST("a", FREE));
	struct json_object *none AUTO_JSON = balance("", "");

	(void)state;
	assert_int_equal(json_count(json_opt(o, "links")), 0);
	assert_int_equal(json_count(json_opt(o, "moves")), 0);
	assert_int_equal(json_count(json_opt(none, "moves")), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_leaves), cmocka_unit_test(test_nothing_is_full),
		cmocka_unit_test(test_waiting),    cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_unknown),    cmocka_unit_test(test_no_help),
		cmocka_unit_test(test_no_room),    cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_both_rails), cmocka_unit_test(test_second_rail),
	};

	return RUN_TESTS(tests);
}
