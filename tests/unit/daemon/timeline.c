/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two halves, on two clocks, become one. */
#include "tests/unit/tap.h"

#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/clocks.h"
#include "daemon/migrate/machine.h"
#include "daemon/report/timeline.h"

/* The source's clock stands at 1 s when it begins, the destination's at 500 s: 499 s ahead. */
#define AT(us) "\"mono_us\":" #us

static const char source_text[] =
	"{\"id\":\"m1\",\"name\":\"g1\",\"strategy\":\"late\",\"state\":\"DONE\","
	"\"from\":{\"host\":\"hosta\",\"vf\":\"a1\"},\"to\":{\"host\":\"hostb\",\"vf\":\"b1\"},"
	"\"data\":{\"clock\":{\"offset_us\":499000000,\"error_us\":40},"
	"\"suspend_asked_us\":2000,\"outage_us\":300000,\"detach_us\":50000,"
	"\"hold_remaining_bytes\":8388608,"
	"\"suspend\":{\"qps\":4,\"unacked\":7,\"drain_us\":10000,\"dirty_us\":5000,\"close_us\":"
	"1000,"
	"\"dirtied_bytes\":2097152},"
	"\"peers_suspend\":[{\"vm\":\"g2\",\"qps\":4,\"drain_us\":12000}]},"
	"\"transitions\":["
	"{\"state\":\"PREPARE\",\"direction\":\"forward\",\"note\":\"asked by the destination\","
	"\"wall_ms\":1000000," AT(
		1000000) "},"
			 "{\"state\":\"PREPARE\",\"direction\":\"forward\",\"note\":\"armed\"," AT(
				 1100000) "},"
					  "{\"state\":\"HOLD\",\"direction\":\"forward\"," AT(
						  1200000) "},"
							   "{\"state\":\"QUIESCE\",\"direction\":"
							   "\"forward\"," AT(
								   2000000) "},"
									    "{\"state\":\"DETACH\","
									    "\"direction\":"
									    "\"forward\"," AT(
										    2020000) "},"
											     "{\"st"
											     "ate\""
											     ":\"SW"
											     "ITCH"
											     "\","
											     "\"dir"
											     "ectio"
											     "n\":"
											     "\"for"
											     "ward"
											     "\""
											     "," AT(2080000) "},"
													     "{\"state\":\"ATTACH\",\"direction\":\"forward\"," AT(
														     2150000) "},"
															      "{\"state\":\"RESUME\",\"direction\":\"forward\"," AT(
																      2180000) "},"
																	       "{\"state\":\"DONE\",\"direction\":\"forward\"," AT(
																		       2310000) "}]}";

static const char destination_text[] =
	"{\"id\":\"m1\",\"name\":\"g1\",\"strategy\":\"late\",\"state\":\"DONE\","
	"\"data\":{\"set_guid_us\":3000,\"attach_us\":25000,\"vm_downtime_ms\":40,"
	"\"move\":{\"lid_after\":9,\"lft_smps\":12,\"switches_updated\":3,\"switches_total\":6,"
	"\"elapsed_us\":8000,\"sm_us\":4000},"
	"\"resume\":{\"qps\":4,\"replayed\":7,\"port_active_us\":20000,\"rebuild_us\":6000},"
	"\"peers_resume\":[{\"vm\":\"g2\",\"qps\":4,\"replayed\":0,\"rebuild_us\":3000}]},"
	"\"transitions\":["
	"{\"state\":\"PREPARE\",\"direction\":\"forward\",\"wall_ms\":999950," AT(
		499950000) "},"
			   "{\"state\":\"SWITCH\",\"direction\":\"forward\"," AT(
				   501090000) "},"
					      "{\"state\":\"ATTACH\",\"direction\":\"forward\"," AT(
						      501105000) "},"
								 "{\"state\":\"ATTACH\","
								 "\"direction\":\"forward\","
								 "\"note\":\"COMMIT\"," AT(
									 501170000) "},"
										    "{\"state\":"
										    "\"RESUME\","
										    "\"direction\":"
										    "\"forward\""
										    "," AT(501200000) "},"
												      "{\"state\":\"DONE\",\"direction\":\"forward\"," AT(
													      501305000) "}]}";

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return o;
}

static struct json_object *find(struct json_object *list, const char *name)
{
	for (size_t i = 0; list && i < json_object_array_length(list); i++)
		if (str_eq(json_opt_str(json_object_array_get_idx(list, i), "name", ""), name))
			return json_object_array_get_idx(list, i);
	return NULL;
}

/* The span must lie there, in us since the start. */
static void expect(struct json_object *t, const char *lane, const char *span, int64_t start,
		   int64_t end)
{
	struct json_object *s = find(json_opt(find(json_opt(t, "lanes"), lane), "spans"), span);

	if (!s)
		fail_msg("%s has no %s: %s", lane, span, json_text(t));
	if (json_object_get_int64(json_opt(s, "start_us")) != start ||
	    json_object_get_int64(json_opt(s, "end_us")) != end)
		fail_msg("%s of %s is %s, not %lld to %lld", span, lane, json_text(s),
			 (long long)start, (long long)end);
}

static void expect_mark(struct json_object *t, const char *lane, const char *mark, int64_t at)
{
	struct json_object *m = find(json_opt(find(json_opt(t, "lanes"), lane), "marks"), mark);

	if (!m)
		fail_msg("%s has no mark %s: %s", lane, mark, json_text(t));
	assert_int_equal(json_object_get_int64(json_opt(m, "at_us")), at);
}

/* The destination's PREPARE is the first: it began 50 ms before the source's. */
static void test_both_halves(void **state)
{
	struct json_object *src AUTO_JSON = parse(source_text);
	struct json_object *dst AUTO_JSON = parse(destination_text);
	struct json_object *t AUTO_JSON = timeline_make(src, dst, src, 9000000);

	(void)state;
	assert_true(json_opt_bool(json_opt(t, "clock"), "measured", false));
	assert_int_equal(json_opt_u64(json_opt(t, "clock"), "error_us", 0), 40);
	expect(t, "hostb", "PREPARE", 0, 1140000);
	expect(t, "hosta", "PREPARE", 50000, 250000);
	expect_mark(t, "hosta", "armed", 150000);
	expect(t, "hosta", "HOLD", 250000, 1050000);
	expect(t, "hosta", "RESUME", 1230000, 1360000);
	expect_mark(t, "hosta", "DONE", 1360000);
	expect_mark(t, "hostb", "COMMIT", 1220000);
	expect(t, "hostb", "ATTACH", 1155000, 1250000);
	expect(t, "g1's traffic", "held", 1052000, 1352000);
	expect(t, "QEMU", "pre-copy", 250000, 1180000);
	expect(t, "QEMU", "VM stopped", 1180000, 1220000);
	expect(t, "VF", "a1", 50000, 1120000);
	expect(t, "VF", "b1", 1245000, 1355000);
	expect(t, "fabric", "vGUID on the new VF", 1140000, 1143000);
	expect(t, "fabric", "move LID and vGUID", 1143000, 1151000);
	expect(t, "g1", "drain", 1052000, 1062000);
	expect(t, "g1", "dirty pages", 1062000, 1067000);
	expect(t, "g1", "rebuild QPs", 1270000, 1276000);
	expect(t, "g2", "drain", 1052000, 1064000);
	expect(t, "g2", "rebuild QPs", 1250000, 1253000);
	assert_int_equal(json_object_get_int64(json_opt(t, "length_us")), 1360000);
}

/* A phase goes on until now, whichever host is asked: their clocks say 4 s and 503 s then. */
static void test_not_ended(void **state)
{
	struct json_object *src AUTO_JSON = parse(source_text);
	struct json_object *dst AUTO_JSON = parse(destination_text);
	struct json_object *ours[] = {src, dst};
	static const uint64_t now[] = {4000000, 503000000};

	(void)state;
	/* The last step of each was its end. */
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		struct json_object *steps = json_opt(ours[i], "transitions");

		json_object_array_del_idx(steps, json_count(steps) - 1, 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		struct json_object *t AUTO_JSON = timeline_make(src, dst, ours[i], now[i]);

		expect(t, "hosta", "RESUME", 1230000, 3050000);
		expect(t, "hostb", "RESUME", 1250000, 3050000);
		expect(t, "VF", "b1", 1245000, 3050000);
	}
}

static void test_wall_clocks(void **state)
{
	struct json_object *src AUTO_JSON = parse(source_text);
	struct json_object *dst AUTO_JSON = parse(destination_text);

	(void)state;
	json_object_object_del(json_opt(src, "data"), "clock");
	struct json_object *t AUTO_JSON = timeline_make(src, dst, src, 9000000);
	assert_false(json_opt_bool(json_opt(t, "clock"), "measured", true));
	expect(t, "hostb", "PREPARE", 0, 1140000);
	expect(t, "hosta", "HOLD", 250000, 1050000);
}

static void test_one_half(void **state)
{
	struct json_object *src AUTO_JSON = parse(source_text);
	struct json_object *dst AUTO_JSON = parse(destination_text);
	struct json_object *t AUTO_JSON = timeline_make(src, NULL, src, 9000000);
	struct json_object *u AUTO_JSON = timeline_make(NULL, dst, dst, 900000000);

	(void)state;
	expect(t, "hosta", "HOLD", 200000, 1000000);
	assert_null(find(json_opt(t, "lanes"), "hostb"));
	expect(u, "to", "RESUME", 1250000, 1355000);
}

static void test_walked_back(void **state)
{
	static const char text[] =
		"{\"id\":\"m2\",\"name\":\"g1\",\"state\":\"HOLD\",\"from\":{\"host\":\"hosta\"},"
		"\"to\":{\"host\":\"hostb\"},\"data\":{},\"transitions\":["
		"{\"state\":\"PREPARE\",\"direction\":\"forward\"," AT(
			1000) "},"
			      "{\"state\":\"HOLD\",\"direction\":\"forward\"," AT(
				      2000) "},"
					    "{\"state\":\"CANCEL\",\"direction\":\"forward\","
					    "\"note\":\"no\"," AT(
						    3000) "},"
							  "{\"state\":\"HOLD\",\"direction\":"
							  "\"back\"," AT(4000) "}]}";
	struct json_object *src AUTO_JSON = parse(text);
	struct json_object *t AUTO_JSON = timeline_make(src, NULL, src, 6000);

	(void)state;
	expect(t, "hosta", "CANCEL", 2000, 3000);
	expect(t, "hosta", "undo of HOLD", 3000, 5000);
}

/* As many as a migration may have. */
static void test_many_peers(void **state)
{
	struct json_object *src AUTO_JSON = parse(source_text), *list = json_object_new_array();
	struct json_object *t AUTO_JSON = NULL;
	char name[16];

	(void)state;
	for (unsigned i = 0; i < MIGRATE_PEERS_MAX; i++) {
		struct json_object *peer = json_object_new_object();

		snprintf(name, sizeof name, "p%u", i);
		json_set_str(peer, "vm", name);
		json_set_u64(peer, "drain_us", 100 + i);
		json_object_array_add(list, peer);
	}
	json_set(json_opt(src, "data"), "peers_suspend", list);
	t = timeline_make(src, NULL, src, 9000000);
	for (unsigned i = 0; i < MIGRATE_PEERS_MAX; i++) {
		snprintf(name, sizeof name, "p%u", i);
		expect(t, name, "drain", 1002000, 1002100 + i);
	}
}

/* The journal's times are another host's, and may be anything. */
static void test_nonsense(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{\"transitions\":{}}",
		"{\"transitions\":[1,null,{}],\"data\":[]}",
		"{\"data\":{\"peers_suspend\":[3],\"suspend\":7,\"move\":[]},\"transitions\":[{}]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct json_object *a AUTO_JSON = parse(texts[i]), *b AUTO_JSON = parse(texts[i]);

		json_object_put(timeline_make(a, b, a, 5));
		json_object_put(timeline_make(NULL, b, b, 5));
	}
	json_object_put(timeline_make(NULL, NULL, NULL, 5));
}

static void test_clocks(void **state)
{
	struct clocks_bound b = {0};

	(void)state;
	clocks_narrow(&b, 1000, 1400, 51300); /* 49900 to 50300 */
	clocks_narrow(&b, 2000, 2600, 52100); /* 49500 to 50100 */
	clocks_narrow(&b, 3000, 3200, 53200); /* 50000 to 50200 */
	assert_int_equal(b.low, 50000);
	assert_int_equal(b.high, 50100);
	clocks_narrow(&b, 4000, 4100, 90000); /* the other clock has jumped */
	assert_int_equal(b.low, 85900);
	assert_int_equal(b.high, 86000);
	clocks_narrow(&b, 200000, 200010, 5); /* behind ours */
	assert_int_equal(b.low, -200005);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_halves), cmocka_unit_test(test_wall_clocks),
		cmocka_unit_test(test_not_ended),   cmocka_unit_test(test_one_half),
		cmocka_unit_test(test_walked_back), cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_clocks),      cmocka_unit_test(test_many_peers),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
