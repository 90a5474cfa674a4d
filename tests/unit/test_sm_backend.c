/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "sm-helper/backend.h"

static struct client *open_client(const char *name, const struct backend_conf *conf)
{
	struct client *c = NULL;

	assert_non_null(backend_find(name));
	assert_int_equal(client_new(backend_find(name), conf, &c), 0);
	assert_string_equal(client_backend(c)->name, name);
	return c;
}

static void test_names(void **state)
{
	char names[128], few[8];

	(void)state;
	backend_names(names, sizeof names);
	assert_non_null(strstr(names, "opensm-plugin, "));
	assert_non_null(strstr(names, "none"));
	assert_null(backend_find("opensm"));
	assert_null(backend_find(""));
	assert_non_null(backend_find(BACKEND_DEFAULT));
	backend_names(few, sizeof few);
	assert_int_equal(strlen(few), sizeof few - 1);
}

/* Every call is refused with a line that names the backend; a status says what to do. */
static void test_none(void **state)
{
	const struct backend_conf conf = {0};
	struct client *c = open_client("none", &conf);
	struct sm_target t = {.port_guid = 1, .switch_guid = 2, .switch_port = 3};
	struct sm_status_reply status = {.switches = 7};
	struct sm_assign_reply assigned;
	struct sm_records_reply records;
	struct sm_record_key key = {1, 2, 0, {0}};
	struct client_epoch epoch = {0};
	char error[CLIENT_ERROR_MAX];
	struct fabric f = {0};
	uint64_t before;

	(void)state;
	assert_int_equal(client_status(c, &status, error), -ECONNREFUSED);
	assert_non_null(strstr(error, "\"backend\""));
	assert_int_equal(status.switches, 0);
	assert_int_equal(client_assign(c, &t, 1, 0, 1, &assigned, error), -ECONNREFUSED);
	assert_string_equal(error, "backend none cannot change addresses");
	assert_int_equal(client_sweep(c, &before, error), -ECONNREFUSED);
	assert_int_equal(client_fabric(c, &f, &epoch, error), -ECONNREFUSED);
	assert_int_equal(client_records(c, &key, 1, &records, error), -ECONNREFUSED);
	assert_int_equal(client_watch(c, &epoch, -1, error), -ECONNREFUSED);
	client_free(c);
}

/* The plugin's backend says which socket nobody answers at. */
static void test_plugin_absent(void **state)
{
	const struct backend_conf conf = {.plugin_socket = "/nonexistent/plugin.sock"};
	struct client *c = open_client("opensm-plugin", &conf);
	struct sm_status_reply status;
	char error[CLIENT_ERROR_MAX];

	(void)state;
	assert_int_equal(client_status(c, &status, error), -ECONNREFUSED);
	assert_non_null(strstr(error, conf.plugin_socket));
	client_free(c);
}

int main(void)
{
	const struct CMUnitTest sm_backend[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_plugin_absent),
	};

	return RUN_TESTS(sm_backend);
}
