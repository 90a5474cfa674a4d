/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/answers.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"

#include <stdbool.h>
#include <string.h>

#define TEXT_MAX    160
#define QPN_MAX     0xffffff
#define ENTRIES_MAX 32768 /* of all lists; an agent's own have over 40 bytes each, of 1 MiB */

enum kind { TEXT, NUMBER, FLAG, GUID, GID, PKEY, OBJECT, LIST };

/* A field of an answer. */
struct field {
	const char *key; /* NULL: the end of the list */
	enum kind kind;
	uint64_t max;           /* of a number; 0: INT64_MAX */
	bool always;            /* a reader relies on it: 0 or "" where the guest says nothing */
	const struct field *of; /* of an object, and of each object of a list */
};

#define SAME(key)                                                                                  \
	{                                                                                          \
		key, NUMBER, 0, true, NULL                                                         \
	}

static const struct field paths[] = {
	SAME("queries"),         SAME("saved"),
	SAME("failed"),          SAME("reconnect_queries"),
	SAME("reconnect_saved"), SAME("changed"),
	SAME("dropped"),         SAME("entries"),
	SAME("bytes"),           {0},
};

static const struct field qp[] = {
	{"vqpn", NUMBER, QPN_MAX, true, NULL},
	{"qpn", NUMBER, QPN_MAX, true, NULL},
	{"type", TEXT, 0, true, NULL},
	{"state", TEXT, 0, true, NULL},
	{"vguid", GUID, 0, false, NULL},
	{"pkey", PKEY, 0, false, NULL},
	{"unacked", NUMBER, 0, true, NULL},
	{"unacked_bytes", NUMBER, 0, true, NULL},
	{"uncovered", FLAG, 0, false, NULL},
	{"dgid", GID, 0, false, NULL},
	{"dvqpn", NUMBER, QPN_MAX, false, NULL},
	{"dqpn", NUMBER, QPN_MAX, false, NULL},
	{0},
};

static const struct field pkey_used[] = {
	{"vguid", GUID, 0, false, NULL},
	{"pkey", PKEY, 0, false, NULL},
	{0},
};

static const struct field process[] = {
	{"pid", NUMBER, INT32_MAX, true, NULL}, {"comm", TEXT, 0, true, NULL},
	{"mr_bytes", NUMBER, 0, true, NULL},    {"qps", LIST, 0, true, qp},
	{"pkeys", LIST, 0, false, pkey_used},   {0},
};

static const struct field peer[] = {
	{"sgid", GID, 0, false, NULL},
	{"dgid", GID, 0, false, NULL},
	{0},
};

static const struct field uncovered[] = {
	{"pid", NUMBER, INT32_MAX, false, NULL},
	{"comm", TEXT, 0, false, NULL},
	{"why", TEXT, 0, false, NULL},
	{0},
};

static const struct field kernel_user[] = {
	{"device", TEXT, 0, false, NULL},
	{"module", TEXT, 0, false, NULL},
	{"what", TEXT, 0, false, NULL},
	{0},
};

static const struct field vf[] = {
	{"vguid", GUID, 0, false, NULL},
	{"port", TEXT, 0, false, NULL},
	{0},
};

static const struct field hello[] = {
	{"version", NUMBER, 0, false, NULL},
	{"agent", TEXT, 0, false, NULL},
	SAME("processes"),
	SAME("qps"),
	{0},
};

static const struct field query[] = {
	{"processes", LIST, 0, true, process},
	{"peers", LIST, 0, false, peer},
	{"uncovered", LIST, 0, true, uncovered},
	{"kernel", LIST, 0, false, kernel_user},
	{"vfs", LIST, 0, false, vf},
	{"paths", OBJECT, 0, true, paths},
	{"truncated", FLAG, 0, false, NULL},
	{0},
};

static const struct field suspend[] = {
	SAME("qps"),      SAME("unacked"),  SAME("markers"),  SAME("dirtied_bytes"),
	SAME("drain_us"), SAME("dirty_us"), SAME("close_us"), {0},
};

static const struct field resume[] = {
	SAME("qps"),
	SAME("replayed"),
	SAME("rebuild_us"),
	SAME("port_active_us"),
	SAME("connect_us"),
	SAME("before_us"),
	SAME("work_us"),
	{"paths", OBJECT, 0, false, paths},
	{0},
};

static const struct field ballast[] = {{"bytes", NUMBER, 0, false, NULL}, {0}};

static const struct {
	const char *op;
	const struct field *fields;
} ops[] = {
	{"hello", hello},   {"query", query},     {"suspend", suspend},
	{"resume", resume}, {"ballast", ballast},
};

/* left: entries of lists that there is still room for. */
static struct json_object *reduce(const struct field *fields, struct json_object *in,
				  unsigned *left);

/* A terminal may be shown this: no control characters, no half of a UTF-8 sequence. */
static struct json_object *text_of(struct json_object *in)
{
	const char *text = json_object_is_type(in, json_type_string) ? json_object_get_string(in)
								     : "";
	char copy[TEXT_MAX];
	size_t n = 0;

	for (; n < sizeof copy - 1 && text[n]; n++)
		copy[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	copy[n] = '\0';
	return json_object_new_string(copy);
}

static struct json_object *number_of(struct json_object *in, uint64_t max)
{
	bool is_number = json_object_is_type(in, json_type_int) && json_object_get_int64(in) >= 0;
	uint64_t n = is_number ? json_object_get_uint64(in) : 0;

	max = max ? max : INT64_MAX;
	return json_object_new_uint64(n < max ? n : max);
}

/* An address in the way in which we write it, or NULL for what is none. */
static struct json_object *address_of(struct json_object *in, enum kind kind)
{
	const char *said = json_object_is_type(in, json_type_string) ? json_object_get_string(in)
								     : "";
	char text[IB_GID_TEXT];
	struct ib_gid gid;
	uint64_t guid = 0;
	uint16_t pkey = 0;

	if (kind == GID && !ib_gid_parse(said, &gid))
		ib_gid_format(&gid, text);
	else if (kind == GUID && !ib_guid_parse(said, &guid))
		ib_guid_format(guid, text);
	else if (kind == PKEY && !ib_pkey_parse(said, &pkey))
		snprintf(text, sizeof text, "0x%04x", pkey);
	else
		return NULL;
	return json_object_new_string(text);
}

/* An entry of three bytes, "{},", becomes one with all fields that readers rely on. */
static struct json_object *list_of(const struct field *of, struct json_object *in, unsigned *left)
{
	struct json_object *out = json_object_new_array();

	for (size_t i = 0; i < json_count(in) && *left; i++) {
		struct json_object *o = json_object_array_get_idx(in, i);

		if (!json_object_is_type(o, json_type_object))
			continue;
		--*left;
		json_object_array_add(out, reduce(of, o, left));
	}
	return out;
}

static struct json_object *value_of(const struct field *f, struct json_object *in, unsigned *left)
{
	switch (f->kind) {
	case TEXT:
		return text_of(in);
	case NUMBER:
		return number_of(in, f->max);
	case FLAG:
		return json_object_get_boolean(in) ? json_object_new_boolean(true) : NULL;
	case OBJECT:
		return reduce(f->of, in, left);
	case LIST:
		return list_of(f->of, in, left);
	default:
		return address_of(in, f->kind);
	}
}

static struct json_object *reduce(const struct field *fields, struct json_object *in,
				  unsigned *left)
{
	struct json_object *out = json_object_new_object();

	for (const struct field *f = fields; f->key; f++) {
		struct json_object *said = json_opt(in, f->key);
		struct json_object *value = said || f->always ? value_of(f, said, left) : NULL;

		if (value)
			json_set(out, f->key, value);
	}
	return out;
}

struct json_object *answers_reduce(const char *op, struct json_object *answer)
{
	unsigned left = ENTRIES_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (str_eq(ops[i].op, op))
			return reduce(ops[i].fields, answer, &left);
	return json_object_new_object();
}
