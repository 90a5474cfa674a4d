/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of routes, who may use it, and the document that describes it. */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <json-c/json_pointer.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/report/openapi.h"
#include "daemon/rest.h"
#include "daemon/base/settings.h"
#include "tests/sim/documented.h"

static struct settings settings = {.admin_group = {true, 70}, .read_group = {true, 80}};
static struct daemon d = {.settings = &settings};
static const struct http_who root = {.local = true};
static const struct http_who admin = {.local = true, .uid = 5, .groups = {9, 70}, .group_count = 2};
static const struct http_who reader = {.local = true, .uid = 6, .groups = {80}, .group_count = 1};
static const struct http_who stranger = {.local = true, .uid = 7, .groups = {0}, .group_count = 1};
static const struct http_who far = {.address = "10.0.0.2"};

static bool in_table(const char *path, const char *method)
{
	for (const struct http_route *r = rest_routes; r->method; r++)
		if (documented_path(path, r->path) && !strcasecmp(method, r->method))
			return true;
	return false;
}

static struct json_object *document(void)
{
	struct json_object *o = NULL;

	assert_int_equal(json_parse(openapi_text, strlen(openapi_text), &o), 0);
	return o;
}

static void test_every_route_is_documented(void **state)
{
	struct json_object *doc AUTO_JSON = document();

	(void)state;
	for (const struct http_route *r = rest_routes; r->method; r++)
		if (!documented_operation(doc, r))
			fail_msg("docs/openapi.json lacks %s %s", r->method, r->path);
}

static void test_nothing_else_is_documented(void **state)
{
	struct json_object *doc AUTO_JSON = document();

	(void)state;
	json_object_object_foreach(json_opt(doc, "paths"), path, item)
	{
		json_object_object_foreach(item, method, o)
		{
			(void)o;
			if (strcmp(method, "parameters") && !in_table(path, method))
				fail_msg("the daemon has no %s %s", method, path);
		}
	}
}

/* The one role that the document's security of an operation names. */
static const char *documented_role(struct json_object *operation)
{
	struct json_object *list = json_opt(operation, "security"), *roles;

	assert_int_equal(json_object_array_length(list), 1);
	roles = json_opt(json_object_array_get_idx(list, 0), "certificate");
	assert_int_equal(json_object_array_length(roles), 1);
	return json_object_get_string(json_object_array_get_idx(roles, 0));
}

static void test_roles_are_documented(void **state)
{
	struct json_object *doc AUTO_JSON = document();

	(void)state;
	for (const struct http_route *r = rest_routes; r->method; r++) {
		struct json_object *o = documented_operation(doc, r);

		assert_non_null(json_opt_str(o, "operationId", NULL));
		assert_non_null(json_opt(json_opt(o, "responses"), "default"));
		if (strcmp(documented_role(o), rest_role_name(r->role)))
			fail_msg("%s %s is documented for %s, takes %s", r->method, r->path,
				 documented_role(o), rest_role_name(r->role));
	}
}

static bool ref_exists(struct json_object *doc, const char *ref)
{
	struct json_object *found = NULL;

	return *ref == '#' && !json_pointer_get(doc, ref + 1, &found) && found;
}

static void check_refs(struct json_object *doc, struct json_object *o)
{
	if (json_object_is_type(o, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(o); i++)
			check_refs(doc, json_object_array_get_idx(o, i));
	} else if (json_object_is_type(o, json_type_object)) {
		json_object_object_foreach(o, key, value)
		{
			if (!strcmp(key, "$ref") && !ref_exists(doc, json_object_get_string(value)))
				fail_msg("nothing is at %s", json_object_get_string(value));
			check_refs(doc, value);
		}
	}
}

static void test_references(void **state)
{
	struct json_object *doc AUTO_JSON = document();

	(void)state;
	assert_string_equal(json_opt_str(doc, "openapi", ""), "3.1.0");
	assert_string_equal(json_opt_str(json_opt(doc, "info"), "version", ""), IBVMIG_VERSION);
	check_refs(doc, doc);
}

static bool may(const struct http_who *who, const char *method, const char *path)
{
	const struct http_route *r = rest_routes;

	while (strcmp(r->method, method) || strcmp(r->path, path))
		r++;
	return rest_roles(who, &d) & r->role;
}

static void test_who_may(void **state)
{
	(void)state;
	assert_true(may(&root, "POST", "/v1/hook"));
	assert_true(may(&root, "POST", "/v1/peer/relay"));
	assert_true(may(&admin, "POST", "/v1/vms/*/migrate"));
	assert_false(may(&admin, "POST", "/v1/hook"));
	assert_false(may(&admin, "POST", "/v1/peer/switch"));
	assert_true(may(&reader, "GET", "/v1/status"));
	assert_false(may(&reader, "POST", "/v1/vms/*/migrate"));
	assert_false(may(&stranger, "GET", "/v1/status"));
	assert_false(may(&far, "POST", "/v1/vms/*/abort"));
	assert_true(may(&far, "POST", "/v1/peer/check"));
	settings.read_group.given = settings.admin_group.given = false;
	assert_false(may(&reader, "GET", "/v1/status"));
	assert_false(may(&stranger, "GET", "/v1/status"));
	assert_true(may(&root, "GET", "/v1/status"));
	settings.read_group.given = settings.admin_group.given = true;
}

/* A certificate counts for what the table says, and for nothing else. */
static void test_who_may_by_certificate(void **state)
{
	struct http_who who = {.address = "10.0.0.2",
			       .names = "hosta\nhosta.cloud.example\n10.0.0.2"};
	struct role_table *t = &settings.tls.roles;

	(void)state;
	assert_false(may(&who, "GET", "/v1/status"));
	assert_int_equal(role_table_add(t, "read-only prometheus"), 0);
	assert_int_equal(role_table_add(t, "peer *.cloud.example"), 0);
	assert_int_equal(role_table_add(t, "nova  nova.example"), 0);
	assert_true(may(&who, "GET", "/v1/status"));
	assert_true(may(&who, "POST", "/v1/peer/switch"));
	assert_false(may(&who, "POST", "/v1/vms/*/migrate"));
	assert_false(may(&who, "POST", "/v1/hook"));
	who.names = "NOVA.example";
	assert_true(may(&who, "POST", "/v1/vms/*/migrate"));
	assert_false(may(&who, "POST", "/v1/peer/switch"));
	who.names = "prometheus\nnova.example";
	assert_true(may(&who, "POST", "/v1/vms/*/migrate"));
	who.names = "prometheus";
	assert_true(may(&who, "GET", "/metrics"));
	assert_false(may(&who, "POST", "/v1/vms/*/migrate"));
	who.names = "cloud.example\nxcloud.example\n.cloud.example\n*.cloud.example.org";
	assert_false(may(&who, "GET", "/v1/status"));
	role_table_clear(t);
}

static void test_bad_roles(void **state)
{
	static const char *const lines[] = {"",       "peer",    "root x",   "king x",   "peer a b",
					    "peer *", "peer *.", "peer a*b", "peer **.x"};
	struct role_table t = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (!role_table_add(&t, lines[i]))
			fail_msg("\"%s\" is taken", lines[i]);
	assert_int_equal(t.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_route_is_documented),
		cmocka_unit_test(test_nothing_else_is_documented),
		cmocka_unit_test(test_roles_are_documented),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_who_may),
		cmocka_unit_test(test_who_may_by_certificate),
		cmocka_unit_test(test_bad_roles),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
