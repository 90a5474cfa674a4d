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
#include "daemon/daemon.h"
#include "daemon/openapi.h"
#include "daemon/rest.h"
#include "daemon/settings.h"

static struct settings settings = {.admin_group = {true, 70}, .read_group = {true, 80}};
static struct daemon d = {.settings = &settings};
static const struct http_who root = {.local = true};
static const struct http_who admin = {.local = true, .uid = 5, .groups = {9, 70}, .group_count = 2};
static const struct http_who reader = {.local = true, .uid = 6, .groups = {80}, .group_count = 1};
static const struct http_who stranger = {.local = true, .uid = 7, .groups = {0}, .group_count = 1};
static const struct http_who far = {.address = "10.0.0.2"};

/* "/v1/vms/{name}" of the document is the table's "/v1/vms/ *". */
static bool same_path(const char *documented, const char *route)
{
	for (; *documented && *route; documented++, route++) {
		if (*documented == '{' && *route == '*')
			documented += strcspn(documented, "}");
		else if (*documented != *route)
			return false;
	}
	return !*documented && !*route;
}

static struct json_object *operation(struct json_object *paths, const struct http_route *r)
{
	json_object_object_foreach(paths, path, item)
	{
		if (!same_path(path, r->path))
			continue;
		json_object_object_foreach(item, method, o)
		{
			if (!strcasecmp(method, r->method))
				return o;
		}
	}
	return NULL;
}

static bool in_table(const char *path, const char *method)
{
	for (const struct http_route *r = rest_routes; r->method; r++)
		if (same_path(path, r->path) && !strcasecmp(method, r->method))
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
		if (!operation(json_opt(doc, "paths"), r))
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

static bool listed(struct json_object *roles, const char *role)
{
	for (size_t i = 0; i < json_object_array_length(roles); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(roles, i)), role))
			return true;
	return false;
}

/* What the document says of roles is what is decided. */
static void test_roles_are_documented(void **state)
{
	struct json_object *doc AUTO_JSON = document();

	(void)state;
	for (const struct http_route *r = rest_routes; r->method; r++) {
		struct json_object *o = operation(json_opt(doc, "paths"), r);
		struct json_object *roles = json_opt(o, "x-roles");
		const struct {
			const char *role;
			const struct http_who *who;
		} all[] = {{"admin", &admin}, {"read", &reader}, {"peer", &far}};

		assert_non_null(json_opt_str(o, "operationId", NULL));
		assert_non_null(json_opt(json_opt(o, "responses"), "default"));
		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			if (listed(roles, all[i].role) !=
			    rest_may(all[i].who, r->method, r->path, &d))
				fail_msg("%s %s for %s: %s", r->method, r->path, all[i].role,
					 json_text(roles));
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

static void test_who_may(void **state)
{
	(void)state;
	assert_true(rest_may(&root, "POST", "/v1/hook", &d));
	assert_true(rest_may(&root, "POST", "/v1/peer/relay", &d));
	assert_true(rest_may(&admin, "POST", "/v1/vms/g1/migrate", &d));
	assert_false(rest_may(&admin, "POST", "/v1/hook", &d));
	assert_true(rest_may(&reader, "GET", "/v1/status", &d));
	assert_false(rest_may(&reader, "POST", "/v1/vms/g1/migrate", &d));
	assert_false(rest_may(&stranger, "GET", "/v1/status", &d));
	assert_false(rest_may(&far, "POST", "/v1/vms/g1/abort", &d));
	assert_true(rest_may(&far, "POST", "/v1/peer/check", &d));
	settings.read_group.given = settings.admin_group.given = false;
	assert_false(rest_may(&reader, "GET", "/v1/status", &d));
	assert_false(rest_may(&stranger, "GET", "/v1/status", &d));
	assert_true(rest_may(&root, "GET", "/v1/status", &d));
	settings.read_group.given = settings.admin_group.given = true;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_route_is_documented),
		cmocka_unit_test(test_nothing_else_is_documented),
		cmocka_unit_test(test_roles_are_documented),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_who_may),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
