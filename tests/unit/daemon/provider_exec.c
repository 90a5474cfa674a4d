/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/vf/provider.h"

#define HELD_MAX 8
#define HANG_MS  60000

/* In a program: a process that notes its number, and does not end. */
#define HOLD "sh -c 'echo $$ >>\"$0\"; exec sleep 600' \"$0.held\""

static char program[] = "/tmp/ibvmig-provider-XXXXXX", held[sizeof program + 8];
static char error[HTTP_ERROR_MAX];
static struct provider *provider;

static void write_program(const char *body)
{
	FILE *f;

	unlink(program);
	f = fopen(program, "w");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n%s\n", body);
	fclose(f);
	chmod(program, 0755);
}

static int call(const char *op, struct json_object **ret_out)
{
	struct json_object *in AUTO_JSON = json_object_new_object();

	json_set_str(in, "vf", "pf0vf1");
	if (!strcmp(op, "inventory"))
		return provider_inventory(provider, ret_out, error);
	if (!strcmp(op, "release"))
		return provider_release(provider, "pf0vf1", error);
	return provider_prepare(provider, in, ret_out, error);
}

static void test_answer(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	write_program("read x; echo \"{\\\"op\\\":\\\"$1\\\",\\\"in\\\":$x}\"");
	assert_int_equal(call("prepare", &out), 0);
	assert_string_equal(json_opt_str(out, "op", ""), "prepare");
	assert_string_equal(json_opt_str(json_opt(out, "in"), "vf", ""), "pf0vf1");
}

static void test_failure_has_the_first_line(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	write_program("echo 'VF pf0vf1 has no driver' >&2; echo more >&2; exit 3");
	assert_int_equal(call("prepare", &out), -EREMOTEIO);
	assert_string_equal(error,
			    "the VF provider failed in \"prepare\": VF pf0vf1 has no driver");
	assert_null(out);
}

static void test_bad_answers(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	write_program("echo '[1]'");
	assert_int_equal(call("inventory", &out), -EBADMSG);
	write_program("exit 0");
	assert_int_equal(call("inventory", &out), -EBADMSG);
	write_program("kill -SEGV $$");
	assert_int_equal(call("inventory", &out), -EREMOTEIO);
	assert_null(out);
}

/* More than a pipe holds, in both directions; stdin is not read at all. */
static void test_floods(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	write_program(
		"head -c 3000000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero >&2; exit 1");
	assert_int_equal(call("release", &out), -EREMOTEIO);
	assert_null(out);
}

/* More than one read, all of it in the pipe when the program ends: this process is stopped for so
 * long, by a helper that waits for the program's end. */
static void test_last_words(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	write_program(
		"setsid sh -c 'kill -STOP $0; until grep -q \"^State:.Z\" /proc/$1/status; do\n"
		"sleep 0.01; done; kill -CONT $0' $PPID $$ >/dev/null 2>&1 &\n"
		"x=$(head -c 60000 /dev/zero | tr '\\0' x)\n"
		"until grep -q '^State:.T' /proc/$PPID/status; do sleep 0.01; done\n"
		"echo \"{\\\"x\\\":\\\"$x\\\"}\"");
	assert_int_equal(call("prepare", &out), 0);
	assert_int_equal(strlen(json_opt_str(out, "x", "")), 60000);
}

/* ---- what a program leaves behind ---- */

/* The processes that have noted themselves. */
static size_t read_held(pid_t pids[static HELD_MAX])
{
	FILE *f = fopen(held, "r");
	size_t n = 0;

	while (f && n < HELD_MAX && fscanf(f, "%d\n", &pids[n]) == 1)
		n++;
	if (f)
		fclose(f);
	return n;
}

/* The call has waited for them, but for init to have reaped them. */
static bool is_gone(pid_t pid)
{
	char path[64], state = '?';
	bool read;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return true;
	read = fscanf(f, "%*d %*s %c", &state) == 1; /* fails if the process is reaped just now */
	fclose(f);
	return !read || state == 'Z';
}

static void assert_all_gone(size_t count)
{
	pid_t pids[HELD_MAX];

	assert_int_equal(read_held(pids), count);
	for (size_t i = 0; i < count; i++)
		if (!is_gone(pids[i]))
			fail_msg("process %d is still there", pids[i]);
}

static void with_deadline(unsigned deadline_ms)
{
	provider_free(provider);
	assert_int_equal(provider_exec_new(program, deadline_ms, &provider), 0);
}

/* With a deadline that is long enough for them to have begun. */
static void call_until_held(size_t count)
{
	pid_t pids[HELD_MAX];
	unsigned deadline_ms = 200;

	do {
		struct json_object *out AUTO_JSON = NULL;

		assert_true(deadline_ms < HANG_MS);
		unlink(held);
		with_deadline(deadline_ms);
		assert_int_equal(call("release", &out), -ETIMEDOUT);
		assert_null(out);
		assert_all_gone(read_held(pids));
		deadline_ms *= 2;
	} while (read_held(pids) < count);
	assert_all_gone(count);
	assert_non_null(strstr(error, "did not finish \"release\" within "));
}

static void test_slow_tool(void **state)
{
	(void)state;
	write_program(HOLD "; echo '{}'");
	call_until_held(1);
}

static void test_slow_tool_of_a_tool(void **state)
{
	(void)state;
	write_program("(" HOLD "; :) & (" HOLD " | cat; :); echo '{}'");
	call_until_held(2);
}

/* The program closes its streams and goes on. */
static void test_no_streams(void **state)
{
	(void)state;
	write_program("exec <&- >&- 2>&-; " HOLD "; :");
	call_until_held(1);
}

/* A process in the background has inherited the program's streams: the answer does not wait for
 * it. */
static void test_background(void **state)
{
	static const char wait_for_it[] = "while ! [ -s \"$0.held\" ]; do sleep 0.01; done; ";
	struct json_object *out AUTO_JSON = NULL;
	char body[512];

	(void)state;
	with_deadline(HANG_MS);
	snprintf(body, sizeof body, HOLD " & %secho '{\"a\":1}'", wait_for_it);
	write_program(body);
	assert_int_equal(call("prepare", &out), 0);
	assert_int_equal(json_opt_u64(out, "a", 0), 1);
	assert_all_gone(1);
	json_object_put(TAKE(out));

	unlink(held);
	snprintf(body, sizeof body, HOLD " & %secho 'no firmware' >&2; exit 1", wait_for_it);
	write_program(body);
	assert_int_equal(call("prepare", &out), -EREMOTEIO);
	assert_non_null(strstr(error, "no firmware"));
	assert_all_gone(1);
}

/* A process that has left the group goes on; its output is not the answer, however much it is. */
static void test_another_session(void **state)
{
	struct json_object *out AUTO_JSON = NULL;
	pid_t pids[HELD_MAX];

	(void)state;
	with_deadline(HANG_MS);
	write_program("setsid sh -c 'echo $$ >>\"$0\"; exec yes' \"$0.held\" & "
		      "while ! [ -s \"$0.held\" ]; do sleep 0.01; done; exit 1");
	assert_int_equal(call("release", &out), -EREMOTEIO);
	assert_int_equal(read_held(pids), 1);
	kill(pids[0], SIGKILL);
}

static void test_no_program(void **state)
{
	struct json_object *out AUTO_JSON = NULL;

	(void)state;
	unlink(program);
	assert_true(call("inventory", &out) < 0);
	assert_non_null(strstr(error, program));
}

static int setup(void **state)
{
	int fd = mkstemp(program);

	(void)state;
	snprintf(held, sizeof held, "%s.held", program);
	assert_int_equal(provider_exec_new(program, HANG_MS, &provider), 0);
	return fd < 0 ? -1 : close(fd);
}

static int drop_held(void **state)
{
	(void)state;
	unlink(held);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(program);
	provider_free(provider);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_failure_has_the_first_line),
		cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_floods),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test_teardown(test_slow_tool, drop_held),
		cmocka_unit_test_teardown(test_slow_tool_of_a_tool, drop_held),
		cmocka_unit_test_teardown(test_no_streams, drop_held),
		cmocka_unit_test_teardown(test_background, drop_held),
		cmocka_unit_test_teardown(test_another_session, drop_held),
		cmocka_unit_test(test_no_program),
	};

	signal(SIGPIPE, SIG_IGN); /* as in the daemon: a provider need not read its input */

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
