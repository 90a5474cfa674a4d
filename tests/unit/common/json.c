/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/tap.h"

#include <stdio.h>
#include <string.h>

#include "common/json.h"

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	return json_parse(text, strlen(text), &o) ? NULL : o;
}

static void test_only_one_object(void **state)
{
	static const char *const bad[] = {"",         "[]",   "1",    "{} x",
					  "{\"a\":}", "{}{}", "null", "{\"a\":1"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (parse(bad[i]))
			fail_msg("accepted: %s", bad[i]);
	struct json_object *o AUTO_JSON = parse(" {\"a\":1} \n");
	assert_non_null(o);
}

/* Others' programs refuse what is not UTF-8: it must not come in, and ours must not go out. */
static void test_only_utf8(void **state)
{
	static const char *const bad[] = {
		"{\"a\":\"\xff\"}",
		"{\"\xc3\":1}",
		"{\"a\":\"\xc0\x80\"}",
		"{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xf4\x90\x80\x80\"}",
		"{\"a\":\"\xe2\x82\"}",
		"{\"a\":\"\x80\"}",
		"{\"a\":\"\xf8\x88\x80\x80\x80\"}",
	};
	struct json_object *good AUTO_JSON = parse(
		"{\"\xc3\xa9\":\"\xe2\x82\xac\xf0\x9f\x98\x80\"}");
	struct json_object *cut AUTO_JSON = json_object_new_object();
	struct printbuf *text AUTO_TEXT = printbuf_new();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (parse(bad[i]))
			fail_msg("accepted: %s", bad[i]);
	assert_string_equal(json_opt_str(good, "\xc3\xa9", ""), "\xe2\x82\xac\xf0\x9f\x98\x80");
	json_set_str(cut, "a", "caf\xc3\xa9 \xe2\x82");
	assert_string_equal(json_text(cut), "{\"a\":\"caf\xc3\xa9 ??\"}");
	json_write_str(text, NULL,
		       "\xff"
		       "caf\xc3\xa9");
	assert_string_equal(text->buf, "\"?caf\xc3\xa9\"");
}

static void test_depth_is_bounded(void **state)
{
	char deep[4096];
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 400; i++)
		n += (size_t)snprintf(deep + n, sizeof deep - n, "{\"a\":");
	assert_null(parse(deep));
}

static void test_errors_name_the_field(void **state)
{
	struct json_object *o AUTO_JSON = parse(
		"{\"lid\":70000,\"guid\":\"0x12\",\"s\":3,\"n\":-1}");
	struct json_reader r;

	(void)state;
	json_reader_init(&r, o);
	assert_int_equal(json_need_u64(&r, "lid", 1, 49151), 0);
	assert_string_equal(r.message, "field \"lid\" is 70000; allowed is 1 to 49151");
	json_need_str(&r, "none");
	assert_non_null(strstr(r.message, "lid"));

	json_reader_init(&r, o);
	json_need_guid(&r, "guid");
	assert_non_null(strstr(r.message, "\"guid\" is \"0x12\""));
	json_reader_init(&r, o);
	assert_string_equal(json_need_str(&r, "s"), "");
	assert_string_equal(r.message, "field \"s\" must be a string, but is 3");
	json_reader_init(&r, o);
	assert_null(json_need_array(&r, "s"));
	assert_string_equal(r.message, "field \"s\" must be an array, but is 3");
	json_reader_init(&r, o);
	assert_null(json_need_obj(&r, "s"));
	assert_string_equal(r.message, "field \"s\" must be an object, but is 3");
	json_reader_init(&r, o);
	assert_int_equal(json_need_u64(&r, "guid", 0, 10), 0);
	assert_string_equal(r.message, "field \"guid\" must be an int, but is \"0x12\"");
	json_reader_init(&r, o);
	json_need_u64(&r, "n", 0, 10);
	assert_int_not_equal(r.error, 0);
	json_reader_init(&r, NULL);
	json_need_str(&r, "x");
	assert_string_equal(r.message, "field \"x\" must be a string, but is missing");
}

static void test_find_by_a_field(void **state)
{
	const char *text =
		"{\"list\":[{\"name\":7},{},{\"name\":\"b\",\"n\":1},{\"name\":\"b\",\"n\":2}]}";
	struct json_object *o AUTO_JSON = parse(text), *list = json_opt(o, "list");

	(void)state;
	assert_int_equal(json_opt_u64(json_find(list, "name", "b"), "n", 0), 1);
	assert_null(json_find(list, "name", "a"));
	assert_null(json_find(list, "name", "7"));
	assert_null(json_find(list, "other", ""));
	assert_null(json_find(o, "list", "b"));
	assert_null(json_find(NULL, "name", "b"));
}

/* Field by field it is the text that a tree of the same is written as. */
static void test_written_as_a_tree_is(void **state)
{
	static const char names[] = "a \"b\"\\c/d\n\x01\x7f \xc3\xa4[{";
	struct json_object *o AUTO_JSON = json_object_new_object(), *list = json_object_new_array(),
			      *in = json_object_new_object();
	struct printbuf *text = printbuf_new();

	(void)state;
	json_set_str(o, "name", names);
	json_set_str(o, "none", NULL);
	json_set_str(o, "empty", "");
	json_set_u64(o, "n", UINT64_MAX);
	json_set_guid(o, "guid", 0x12);
	json_set_bool(in, "yes", true);
	json_set_bool(in, "no", false);
	json_object_array_add(list, json_object_new_string("{"));
	json_object_array_add(list, json_object_get(in));
	json_object_array_add(list, NULL);
	json_object_array_add(list, NULL);
	json_set(o, "list", list);
	json_set(o, "in", in);

	json_write_open(text, NULL, '{');
	json_write_str(text, "name", names);
	json_write_str(text, "none", NULL);
	json_write_str(text, "empty", "");
	json_write_u64(text, "n", UINT64_MAX);
	json_write_guid(text, "guid", 0x12);
	json_write_open(text, "list", '[');
	json_write_str(text, NULL, "{");
	json_write_open(text, NULL, '{');
	json_write_bool(text, "yes", true);
	json_write_bool(text, "no", false);
	json_write_close(text, '}');
	json_write(text, NULL, NULL);
	json_write_raw(text, NULL, NULL);
	json_write_close(text, ']');
	json_write(text, "in", in);
	json_write_close(text, '}');
	assert_string_equal(text->buf, json_text(o));

	struct json_object *top AUTO_JSON = json_object_new_array();

	json_object_array_add(top, json_written(text));
	struct json_object *back AUTO_JSON = NULL;
	const char *whole = json_text(top);

	assert_int_equal(json_parse(whole + 1, strlen(whole) - 2, &back), 0);
	assert_true(json_object_equal(back, o));
}

static void test_read_back(void **state)
{
	struct printbuf *text = printbuf_new();

	(void)state;
	json_write_open(text, NULL, '{');
	json_write_u64(text, "lid", 7);
	json_write_close(text, '}');
	struct json_object *o AUTO_JSON = json_read_back(text);

	assert_int_equal(json_opt_u64(o, "lid", 0), 7);
}

int main(void)
{
	const struct CMUnitTest common_json[] = {
		cmocka_unit_test(test_only_one_object),
		cmocka_unit_test(test_only_utf8),
		cmocka_unit_test(test_depth_is_bounded),
		cmocka_unit_test(test_errors_name_the_field),
		cmocka_unit_test(test_find_by_a_field),
		cmocka_unit_test(test_written_as_a_tree_is),
		cmocka_unit_test(test_read_back),
	};

	return RUN_TESTS(common_json);
}
