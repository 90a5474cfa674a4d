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
#include "daemon/provider.h"

static char program[] = "/tmp/ibvmig-provider-XXXXXX";
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
	assert_int_equal(provider_exec_new(program, &provider), 0);
	return fd < 0 ? -1 : close(fd);
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
		cmocka_unit_test(test_no_program),
	};

	signal(SIGPIPE, SIG_IGN); /* as in the daemon: a provider need not read its input */

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
