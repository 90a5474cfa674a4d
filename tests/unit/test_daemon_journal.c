/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "daemon/journal.h"

static char dir[] = "/tmp/ibvmig-journal-XXXXXX";

static struct journal *open_it(void)
{
	struct journal *j = NULL;
	char *error = NULL;

	if (journal_open(dir, &j, &error))
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
	assert_true(journal_open("/dev/null/x", &j, &error) < 0);
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
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_drained_survives_a_reopen),
		cmocka_unit_test(test_hostile_text),
		cmocka_unit_test(test_unusable_place),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
