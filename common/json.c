/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/json.h"
#include "common/utf8.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int json_parse(const char *text, size_t bytes, struct json_object **ret_obj)
{
	struct json_tokener *tok;
	struct json_object *obj;
	size_t used;

	if (bytes > INT_MAX || !utf8_is_valid(text, bytes))
		return -EBADMSG;
	tok = json_tokener_new_ex(JSON_DEPTH_MAX);
	if (!tok)
		return -ENOMEM;
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
	obj = json_tokener_parse_ex(tok, text, (int)bytes);
	used = json_tokener_get_parse_end(tok);
	bool whole = json_tokener_get_error(tok) == json_tokener_success;
	json_tokener_free(tok);
	while (whole && used < bytes && strchr(" \t\r\n", text[used]) && text[used])
		used++;
	if (!whole || used != bytes || !json_object_is_type(obj, json_type_object)) {
		json_object_put(obj);
		return -EBADMSG;
	}
	*ret_obj = obj;
	return 0;
}

void json_reader_init(struct json_reader *r, struct json_object *obj)
{
	*r = (struct json_reader){.obj = obj};
}

static void reader_fail(struct json_reader *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void reader_fail(struct json_reader *r, const char *fmt, ...)
{
	va_list ap;

	if (r->error)
		return;
	r->error = -EINVAL;
	va_start(ap, fmt);
	vsnprintf(r->message, sizeof r->message, fmt, ap);
	va_end(ap);
}

static const char *article(enum json_type type)
{
	return type == json_type_array || type == json_type_int || type == json_type_object ? "an"
											    : "a";
}

static struct json_object *need(struct json_reader *r, const char *key, enum json_type type)
{
	struct json_object *v = json_opt(r->obj, key);

	if (r->error)
		return NULL;
	if (!json_object_is_type(v, type)) {
		reader_fail(r, "field \"%s\" must be %s %s, but is %s", key, article(type),
			    json_type_to_name(type), v ? json_text(v) : "missing");
		return NULL;
	}
	return v;
}

const char *json_need_str(struct json_reader *r, const char *key)
{
	struct json_object *v = need(r, key, json_type_string);

	return v ? json_object_get_string(v) : "";
}

uint64_t json_need_u64(struct json_reader *r, const char *key, uint64_t min, uint64_t max)
{
	struct json_object *v = need(r, key, json_type_int);

	if (!v)
		return 0;
	if (json_object_get_int64(v) < 0 || json_object_get_uint64(v) < min ||
	    json_object_get_uint64(v) > max) {
		reader_fail(r, "field \"%s\" is %s; allowed is %" PRIu64 " to %" PRIu64, key,
			    json_text(v), min, max);
		return 0;
	}
	return json_object_get_uint64(v);
}

uint64_t json_need_guid(struct json_reader *r, const char *key)
{
	const char *text = json_need_str(r, key);
	uint64_t guid = 0;

	if (!r->error && ib_guid_parse(text, &guid))
		reader_fail(r,
			    "field \"%s\" is \"%.40s\"; a GUID is 0x and 16 hex digits, "
			    "neither 0 nor all ones",
			    key, text);
	return r->error ? 0 : guid;
}

struct json_object *json_need_obj(struct json_reader *r, const char *key)
{
	return need(r, key, json_type_object);
}

struct json_object *json_need_array(struct json_reader *r, const char *key)
{
	return need(r, key, json_type_array);
}

struct json_object *json_opt(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (o && json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

const char *json_opt_str(struct json_object *o, const char *key, const char *fallback)
{
	struct json_object *v = json_opt(o, key);

	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : fallback;
}

uint64_t json_opt_u64(struct json_object *o, const char *key, uint64_t fallback)
{
	struct json_object *v = json_opt(o, key);

	return json_object_is_type(v, json_type_int) && json_object_get_int64(v) >= 0
		       ? json_object_get_uint64(v)
		       : fallback;
}

bool json_opt_bool(struct json_object *o, const char *key, bool fallback)
{
	struct json_object *v = json_opt(o, key);

	return json_object_is_type(v, json_type_boolean) ? json_object_get_boolean(v) : fallback;
}

size_t json_count(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

struct json_object *json_find(struct json_object *list, const char *key, const char *text)
{
	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (str_eq(json_opt_str(o, key, NULL), text))
			return o;
	}
	return NULL;
}

void json_set(struct json_object *o, const char *key, struct json_object *value)
{
	json_object_object_add(o, key, value);
}

/* Text that was cut in the middle of a character would make its reader refuse the whole. */
static struct json_object *new_text(const char *value)
{
	char *mended AUTO_FREE = utf8_is_valid(value, strlen(value)) ? NULL : utf8_mend(value);

	return json_object_new_string(mended ? mended : value);
}

void json_set_str(struct json_object *o, const char *key, const char *value)
{
	json_set(o, key, value ? new_text(value) : NULL);
}

void json_set_u64(struct json_object *o, const char *key, uint64_t value)
{
	json_set(o, key, json_object_new_uint64(value));
}

void json_set_bool(struct json_object *o, const char *key, bool value)
{
	json_set(o, key, json_object_new_boolean(value));
}

void json_set_guid(struct json_object *o, const char *key, uint64_t guid)
{
	char text[IB_GUID_TEXT];

	ib_guid_format(guid, text);
	json_set_str(o, key, text);
}

const char *json_text(struct json_object *o)
{
	const char *written = json_object_get_userdata(o);

	if (written)
		return written;
	return json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							 JSON_C_TO_STRING_NOSLASHESCAPE);
}

/* ---- text without a tree ---- */

/* Half a text in the journal would be worse than no daemon. */
static void put(struct printbuf *text, const char *s, size_t bytes)
{
	if (printbuf_memappend(text, s, (int)bytes) < 0)
		abort();
}

/* Writes what comes before a value: a comma, unless the value is the first one, and its key. A
 * string ends in a quotation mark, so a bracket at the end opens an object or a list. */
static void begin(struct printbuf *text, const char *key)
{
	char last = text->bpos ? text->buf[text->bpos - 1] : '{';

	if (last != '{' && last != '[')
		put(text, ",", 1);
	if (!key)
		return;
	put(text, "\"", 1);
	put(text, key, strlen(key));
	put(text, "\":", 2);
}

void json_write_open(struct printbuf *text, const char *key, char bracket)
{
	begin(text, key);
	put(text, &bracket, 1);
}

void json_write_close(struct printbuf *text, char bracket)
{
	put(text, &bracket, 1);
}

void json_write_raw(struct printbuf *text, const char *key, const char *json)
{
	if (!json)
		json = "null";
	begin(text, key);
	put(text, json, strlen(json));
}

void json_write(struct printbuf *text, const char *key, struct json_object *value)
{
	json_write_raw(text, key, value ? json_text(value) : NULL);
}

/* json-c escapes these, and with JSON_C_TO_STRING_NOSLASHESCAPE no others. Text that is not ASCII
 * may have to be mended. */
static bool needs_care(const char *s)
{
	while (*s >= ' ' && (unsigned char)*s < 0x80 && *s != '"' && *s != '\\')
		s++;
	return *s;
}

void json_write_str(struct printbuf *text, const char *key, const char *value)
{
	if (!value || needs_care(value)) {
		struct json_object *o AUTO_JSON = value ? new_text(value) : NULL;

		json_write(text, key, o);
		return;
	}
	begin(text, key);
	put(text, "\"", 1);
	put(text, value, strlen(value));
	put(text, "\"", 1);
}

void json_write_u64(struct printbuf *text, const char *key, uint64_t value)
{
	char number[24];

	snprintf(number, sizeof number, "%" PRIu64, value);
	json_write_raw(text, key, number);
}

void json_write_bool(struct printbuf *text, const char *key, bool value)
{
	json_write_raw(text, key, value ? "true" : "false");
}

void json_write_guid(struct printbuf *text, const char *key, uint64_t guid)
{
	char value[IB_GUID_TEXT];

	ib_guid_format(guid, value);
	json_write_str(text, key, value);
}

struct json_object *json_written(struct printbuf *text)
{
	struct json_object *o = json_object_new_object();

	json_object_set_serializer(o, json_object_userdata_to_json_string, TAKE(text->buf),
				   json_object_free_userdata);
	printbuf_free(text);
	return o;
}

struct json_object *json_read_back(struct printbuf *text)
{
	struct json_object *o = NULL;

	json_parse(text->buf, (size_t)text->bpos, &o);
	printbuf_free(text);
	return o;
}
