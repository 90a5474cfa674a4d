/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/store/journal.h"

#define KEEP 20

static char dir[] = "/tmp/ibvmig-journal-XXXXXX";

static struct journal *open_it(void)
{
	struct journal *j = NULL;
	char *error = NULL;

	if (journal_open(dir, KEEP, &j, &error))
		fail_msg("%s", error);
	return j;
}

static struct journal_step step(const char *state, bool ended)
{
	return (struct journal_step){
		.id = "m1",
		.role = "source",
		.vm = "u1",
		.state = state,
		.direction = "forward",
		.note = ended ? "done" : NULL,
		.record = "{\"id\":\"m1\",\"n\":1}",
		.ended = ended,
		.wall_ms = 5,
		.mono_us = 7,
	};
}

static void test_steps_survive_a_reopen(void **state)
{
	struct journal *j = open_it();
	struct journal_step s = step("PREPARE", false);

	(void)state;
	assert_int_equal(journal_step(j, &s), 0);
	s = step("HOLD", false);
	assert_int_equal(journal_step(j, &s), 0);
	journal_close(j);
	j = open_it();
	struct json_object *open AUTO_JSON = journal_open_migrations(j, 10);
	assert_int_equal(json_object_array_length(open), 1);
	struct json_object *m AUTO_JSON = journal_migration(j, "m1");
	struct json_object *list = json_opt(json_opt(m, "source"), "transitions");
	assert_int_equal(json_object_array_length(list), 2);
	assert_string_equal(json_opt_str(json_object_array_get_idx(list, 0), "state", ""),
			    "PREPARE");
	assert_int_equal(json_opt_u64(json_object_array_get_idx(list, 1), "mono_us", 0), 7);
	journal_close(j);
}

static void test_ended_ones_are_not_open(void **state)
{
	struct journal *j = open_it();
	struct journal_step s = step("DONE", true);

	(void)state;
	assert_int_equal(journal_step(j, &s), 0);
	struct json_object *open AUTO_JSON = journal_open_migrations(j, 10);
	struct json_object *all AUTO_JSON = journal_latest_migrations(j, 10);
	assert_int_equal(json_object_array_length(open), 0);
	assert_string_equal(json_text(all), "[{\"id\":\"m1\",\"n\":1}]");
	assert_null(journal_migration(j, "m2"));
	journal_close(j);
}

/* A record of an older version has a guest's answer as it was: long, and not UTF-8. A client takes
 * the list all the same. */
static void test_huge_ones_are_listed(void **state)
{
	char *pad AUTO_FREE = malloc(2000001), *record AUTO_FREE = NULL;
	struct journal *j = open_it();
	struct journal_step s = step("DONE", true);

	(void)state;
	memset(pad, 'A', 2000000);
	pad[2000000] = '\0';
	record = strf("{\"id\":\"m1\",\"data\":{\"pad\":\"%s\"},\"peers\":[],\"name\":\"\xff\"}",
		      pad);
	s.record = record;
	assert_int_equal(journal_step(j, &s), 0);
	struct json_object *all AUTO_JSON = journal_latest_migrations(j, 10);
	assert_string_equal(json_text(all), "[{\"id\":\"m1\",\"name\":\"?\"}]");
	struct json_object *m AUTO_JSON = journal_migration(j, "m1");
	assert_true(strlen(json_text(m)) < 2000);
	assert_string_equal(json_opt_str(json_opt(m, "source"), "name", ""), "?");
	s.record = "{\"id\":\"m1\",\"n\":1}";
	assert_int_equal(journal_step(j, &s), 0);
	journal_close(j);
}

/* The last record comes first, also when the wall clock was set back meanwhile. */
static void test_newest_first(void **state)
{
	static const char *const records[] = {"{\"id\":\"c1\",\"role\":\"source\"}",
					      "{\"id\":\"c2\",\"role\":\"source\"}"};
	struct journal *j = open_it();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		struct journal_step s = step("HOLD", false);

		s.id = i ? "c2" : "c1";
		s.record = records[i];
		s.wall_ms = i ? 1000 : 9000;
		assert_int_equal(journal_step(j, &s), 0);
	}
	struct json_object *open AUTO_JSON = journal_open_migrations(j, 10);
	struct json_object *all AUTO_JSON = journal_latest_migrations(j, 1);
	struct json_object *first = json_object_array_get_idx(open, 0);

	assert_string_equal(json_opt_str(first, "id", ""), "c2");
	assert_string_equal(json_text(all), "[{\"id\":\"c2\",\"role\":\"source\"}]");
	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		struct journal_step s = step("DONE", true);

		s.id = i ? "c2" : "c1";
		s.record = records[i];
		assert_int_equal(journal_step(j, &s), 0);
	}
	journal_close(j);
}

static void test_leases(void **state)
{
	struct journal *j = open_it();

	(void)state;
	assert_int_equal(journal_lease_put(j, "pf0vf1", "u1", "{\"bus\":\"pci.5\"}"), 0);
	assert_int_equal(journal_lease_put(j, "pf0vf1", "u2", "{\"bus\":\"pci.6\"}"), 0);
	struct json_object *one AUTO_JSON = journal_leases(j);
	assert_int_equal(json_object_array_length(one), 1);
	struct json_object *o = json_object_array_get_idx(one, 0);
	assert_string_equal(json_opt_str(o, "vm", ""), "u2");
	assert_string_equal(json_opt_str(o, "bus", ""), "pci.6");
	assert_int_equal(journal_lease_del(j, "pf0vf1"), 0);
	struct json_object *none AUTO_JSON = journal_leases(j);
	assert_int_equal(json_object_array_length(none), 0);
	journal_close(j);
}

static void test_drained_survives_a_reopen(void **state)
{
	struct journal *j = open_it();

	(void)state;
	assert_int_equal(journal_drained(j), 0);
	assert_int_equal(journal_set_drained(j, 1800000000123), 0);
	journal_close(j);
	j = open_it();
	assert_int_equal(journal_drained(j), 1800000000123);
	assert_int_equal(journal_set_drained(j, 0), 0);
	assert_int_equal(journal_drained(j), 0);
	journal_close(j);
}

/* ---- what is kept ---- */

/* A migration from its first state to its last, whose records are of a real one's size. wall_ms: of
 * a clock that may go anywhere. */
static void play(struct journal *j, unsigned number, const char *last, bool ended, uint64_t wall_ms)
{
	static const char *const states[] = {"PREPARE", "HOLD", "SWITCH"};
	char id[37], record[2200];
	struct journal_step s = step("", false);

	snprintf(id, sizeof id, "kept-%06u", number);
	snprintf(record, sizeof record, "{\"id\":\"%s\",\"data\":\"%02000u\"}", id, number);
	s.id = id;
	s.record = record;
	s.wall_ms = wall_ms;
	for (size_t i = 0; i <= ARRAY_SIZE(states); i++) {
		s.state = i < ARRAY_SIZE(states) ? states[i] : last;
		s.ended = i == ARRAY_SIZE(states) && ended;
		assert_int_equal(journal_step(j, &s), 0);
	}
}

static bool is_there(struct journal *j, unsigned number)
{
	struct json_object *m AUTO_JSON = NULL, *list;
	char id[37];

	snprintf(id, sizeof id, "kept-%06u", number);
	m = journal_migration(j, id);
	list = json_opt(json_opt(m, "source"), "transitions");
	if (m)
		assert_true(json_count(list) >= 4);
	return m;
}

static void expect_range(struct journal *j, unsigned gone, unsigned first, unsigned last)
{
	for (unsigned i = gone; i < first; i++)
		assert_false(is_there(j, i));
	for (unsigned i = first; i <= last; i++)
		assert_true(is_there(j, i));
}

static void test_the_newest_ended_ones_are_kept(void **state)
{
	struct journal *j = open_it();

	(void)state;
	play(j, 0, "PARKED", false, 1);
	for (unsigned i = 1; i <= KEEP + 10; i++)
		play(j, i, i % 2 ? "DONE" : "ABORTED", true, 100000 - i);
	expect_range(j, 1, 11, KEEP + 10);
	assert_true(is_there(j, 0));
	/* An end that is written twice takes no room of another one. */
	struct journal_step again = step("DONE", true);
	again.id = "kept-000030";
	again.record = "{}";
	journal_step(j, &again);
	assert_true(is_there(j, 11));
	journal_close(j);
}

static void test_fewer_are_kept_after_a_restart(void **state)
{
	struct journal *j = NULL;
	char *error = NULL;

	(void)state;
	assert_int_equal(journal_open(dir, 5, &j, &error), 0);
	expect_range(j, 1, KEEP + 6, KEEP + 10);
	assert_true(is_there(j, 0)); /* PARKED */
	journal_close(j);
}

static void test_events_are_kept_as_long(void **state)
{
	struct journal *j = open_it();
	char text[16];

	(void)state;
	for (unsigned i = 0; i < 3 * KEEP; i++) {
		snprintf(text, sizeof text, "%u", i);
		assert_int_equal(journal_event(j, "u1", text), 0);
	}
	struct json_object *list AUTO_JSON = journal_events(j, 10 * KEEP);
	assert_int_equal(json_count(list), KEEP);
	assert_string_equal(json_opt_str(json_object_array_get_idx(list, KEEP - 1), "text", ""),
			    "40");
	journal_close(j);
}

static off_t size_of(const char *name)
{
	char *path AUTO_FREE = strf("%s/%s", dir, name);
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void test_the_file_does_not_grow(void **state)
{
	struct journal *j = open_it();
	off_t before = 0;

	(void)state;
	for (unsigned i = 1000; i < 3000; i++) {
		play(j, i, "DONE", true, i);
		if (i % 20 == 0)
			assert_int_equal(journal_sync(j), 0);
		if (i == 1600)
			before = size_of("ibvmigd.db");
	}
	assert_true(before > 0);
	assert_int_equal(size_of("ibvmigd.db"), before);
	assert_true(size_of("ibvmigd.db-wal") < 16 << 20);
	journal_close(j);
}

static void test_hostile_text(void **state)
{
	struct journal *j = open_it();

	(void)state;
	assert_int_equal(journal_event(j, "u'1", "x'); DROP TABLE events; --"), 0);
	struct json_object *list AUTO_JSON = journal_events(j, 10);
	assert_int_equal(json_object_array_length(list), 1);
	assert_string_equal(json_opt_str(json_object_array_get_idx(list, 0), "text", ""),
			    "x'); DROP TABLE events; --");
	journal_close(j);
}

static void test_unusable_place(void **state)
{
	struct journal *j = NULL;
	char *error = NULL;

	(void)state;
	assert_true(journal_open("/dev/null/x", KEEP, &j, &error) < 0);
	assert_non_null(strstr(error, "/dev/null/x"));
	free(error);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	static const char *const names[] = {"ibvmigd.db", "ibvmigd.db-wal", "ibvmigd.db-shm"};
	char path[256];

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps_survive_a_reopen),
		cmocka_unit_test(test_ended_ones_are_not_open),
		cmocka_unit_test(test_huge_ones_are_listed),
		cmocka_unit_test(test_newest_first),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_drained_survives_a_reopen),
		cmocka_unit_test(test_the_newest_ended_ones_are_kept),
		cmocka_unit_test(test_fewer_are_kept_after_a_restart),
		cmocka_unit_test(test_the_file_does_not_grow),
		cmocka_unit_test(test_hostile_text),
		cmocka_unit_test(test_events_are_kept_as_long),
		cmocka_unit_test(test_unusable_place),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
