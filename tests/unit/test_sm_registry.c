/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "sm-helper/registry.h"

static char dir[64], path[96];

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_sm_registry.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/r.db", dir);
	return 0;
}

static int teardown(void **state)
{
	static const char *const suffix[] = {"", "-wal", "-shm"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		char *f AUTO_FREE = strf("%s%s", path, suffix[i]);

		unlink(f);
	}
	return rmdir(dir);
}

static struct registry *open_registry(void)
{
	struct registry *r = NULL;
	char *error = NULL;

	assert_int_equal(registry_open(path, &r, &error), 0);
	return r;
}

static struct reg_entry entry(uint64_t vguid, uint64_t parked)
{
	struct reg_entry e = {.vguid = vguid,
			      .vm = "vm-1",
			      .name = "web",
			      .pkey = 0xffff,
			      .lid = 49151,
			      .since_ms = 1234567890123,
			      .at = {.host = "a",
				     .url = "http://a",
				     .vf = "vf0",
				     .parked_guid = parked,
				     .parked_node = parked - 1,
				     .switch_guid = 0xfedcba9876543210,
				     .switch_port = 254}};

	return e;
}

/* All fields, GUIDs with the top bit too, come back from a new process's view of the file. */
static void test_round_trip(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry e = entry(0xf000000000000001, 0x8000000000000011), got;

	(void)state;
	e.intent = REG_MOVE;
	e.to = e.at;
	e.to.parked_guid = 0x12;
	strcpy(e.to.host, "b'; DROP TABLE vguid; --");
	assert_int_equal(registry_put(r, &e), 0);
	registry_close(r);
	r = open_registry();
	assert_int_equal(registry_find(r, e.vguid, &got), 0);
	assert_memory_equal(&got, &e, sizeof e);
	assert_int_equal(registry_find_vf(r, 0x8000000000000011, &got), 0);
	assert_int_equal(registry_find_vf(r, 0x12, &got), 0); /* on the way there */
	e.intent = REG_NONE;
	assert_int_equal(registry_put(r, &e), 0);
	assert_int_equal(registry_find_vf(r, 0x12, &got), -ENOENT);
	assert_int_equal(registry_delete(r, e.vguid), 0);
	assert_int_equal(registry_find(r, e.vguid, &got), -ENOENT);
	registry_close(r);
}

/* Two VMs on one VF: the second is refused and the first is still there. */
static void test_one_vm_per_vf(void **state)
{
	struct registry *r = open_registry();
	struct reg_entry a = entry(1, 100), b = entry(2, 100), got;

	(void)state;
	assert_int_equal(registry_put(r, &a), 0);
	assert_int_equal(registry_put(r, &b), -EIO);
	assert_int_equal(registry_find(r, 1, &got), 0);
	assert_int_equal(registry_find(r, 2, &got), -ENOENT);
	registry_close(r);
}

static void count(void *arg, const struct reg_subscription *s)
{
	assert_string_equal(s->url, "http://new");
	++*(int *)arg;
}

static void test_subscriptions(void **state)
{
	struct registry *r = open_registry();
	int n = 0;

	(void)state;
	assert_int_equal(registry_subscribe(r, "a", "http://old"), 0);
	assert_int_equal(registry_subscribe(r, "a", "http://new"), 0);
	assert_int_equal(registry_each_subscription(r, count, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(registry_unsubscribe(r, "b"), 0);
	assert_int_equal(registry_unsubscribe(r, "a"), 0);
	assert_int_equal(registry_each_subscription(r, count, &n), 0);
	assert_int_equal(n, 1);
	registry_close(r);
}

/* A process that is killed right after put() returned has lost nothing. */
static void test_killed(void **state)
{
	struct reg_entry e = entry(77, 78), got;
	struct registry *r;
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		char *error = NULL;

		if (registry_open(path, &r, &error) || registry_put(r, &e))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	r = open_registry();
	assert_int_equal(registry_find(r, 77, &got), 0);
	registry_close(r);
}

static void test_bad_file(void **state)
{
	struct registry *r = NULL;
	char *error AUTO_FREE = NULL;
	FILE *f = fopen(path, "w");

	(void)state;
	for (int i = 0; i < 1000; i++)
		fputs("this is not a database ", f);
	fclose(f);
	assert_int_equal(registry_open(path, &r, &error), -EIO);
	assert_null(r);
	assert_non_null(strstr(error, path));
}

int main(void)
{
	const struct CMUnitTest sm_registry[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_vm_per_vf, setup, teardown),
		cmocka_unit_test_setup_teardown(test_subscriptions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_file, setup, teardown),
	};

	return RUN_TESTS(sm_registry);
}
