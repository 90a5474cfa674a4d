/* SPDX-License-Identifier: GPL-2.0-or-later */
/* json-c with types checked: a getter that fails says which field is wrong and what it must be. */
#ifndef IBVMIG_COMMON_JSON_H
#define IBVMIG_COMMON_JSON_H

#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ib.h"

#define AUTO_JSON      __attribute__((cleanup(json_put_auto), unused))
#define JSON_DEPTH_MAX 32
#define JSON_ERROR_MAX 256

static inline void json_put_auto(struct json_object **o)
{
	json_object_put(*o);
}

/* struct printbuf *text AUTO_TEXT = printbuf_new(); */
#define AUTO_TEXT __attribute__((cleanup(json_text_auto), unused))

static inline void json_text_auto(struct printbuf **text)
{
	printbuf_free(*text);
}

/* The text must be one JSON object in UTF-8, nested at most JSON_DEPTH_MAX deep. *ret_obj is owned
 * by the caller. 0 or -EBADMSG. */
int json_parse(const char *text, size_t bytes, struct json_object **ret_obj);

/* The reader gathers a request's errors: the first one wins, later getters do nothing. */
struct json_reader {
	struct json_object *obj; /* borrowed */
	int error;               /* 0 or -EINVAL */
	char message[JSON_ERROR_MAX];
};

void json_reader_init(struct json_reader *r, struct json_object *obj);

/* Required fields. A string is borrowed from the object; "" and 0 after an error. */
const char *json_need_str(struct json_reader *r, const char *key);
uint64_t json_need_u64(struct json_reader *r, const char *key, uint64_t min, uint64_t max);
uint64_t json_need_guid(struct json_reader *r, const char *key);
struct json_object *json_need_obj(struct json_reader *r, const char *key);   /* borrowed, or NULL */
struct json_object *json_need_array(struct json_reader *r, const char *key); /* borrowed, or NULL */

/* Optional fields: fallback where the field is absent or of another type. */
const char *json_opt_str(struct json_object *o, const char *key, const char *fallback);
uint64_t json_opt_u64(struct json_object *o, const char *key, uint64_t fallback);
bool json_opt_bool(struct json_object *o, const char *key, bool fallback);
struct json_object *json_opt(struct json_object *o, const char *key); /* borrowed, or NULL */
/* Elements of an array; 0 for what is none, NULL too. */
size_t json_count(struct json_object *list);
/* The first object of an array whose field key is this text; borrowed, or NULL. A field that is
 * absent, or no string, is no text, not even "". */
struct json_object *json_find(struct json_object *list, const char *key, const char *text);

/* Setters; they take no ownership of strings. value NULL writes null. Bytes that are not UTF-8
 * become
 * '?'. */
void json_set_str(struct json_object *o, const char *key, const char *value);
void json_set_u64(struct json_object *o, const char *key, uint64_t value);
void json_set_bool(struct json_object *o, const char *key, bool value);
void json_set_guid(struct json_object *o, const char *key, uint64_t guid);
/* Takes the ownership of value. */
void json_set(struct json_object *o, const char *key, struct json_object *value);

/* Compact text, borrowed from o until it changes. */
const char *json_text(struct json_object *o);

/* Text written field by field: what is long and asked for often needs no tree of objects, which
 * takes some ten times as long. key is a literal that needs no escape, or NULL for what is in a
 * list, or alone; bracket '{' or '[', '}' or ']'. A value NULL writes null. */
void json_write_open(struct printbuf *text, const char *key, char bracket);
void json_write_close(struct printbuf *text, char bracket);
void json_write_str(struct printbuf *text, const char *key, const char *value);
void json_write_u64(struct printbuf *text, const char *key, uint64_t value);
void json_write_bool(struct printbuf *text, const char *key, bool value);
void json_write_guid(struct printbuf *text, const char *key, uint64_t guid);
/* json: a value as its text. */
void json_write_raw(struct printbuf *text, const char *key, const char *json);
/* value: borrowed. */
void json_write(struct printbuf *text, const char *key, struct json_object *value);
/* An object that is written out as this text wherever it is put, and has no fields to look at.
 * Takes the ownership of text. */
struct json_object *json_written(struct printbuf *text);
/* The tree of a written object, or NULL: it is nested too deep (json_parse()). Takes the ownership
 * of text. */
struct json_object *json_read_back(struct printbuf *text);

#endif
