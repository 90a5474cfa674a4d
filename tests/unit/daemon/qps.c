/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An agent's account of its processes, before an operator sees it: the guest may say anything. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/vm/answers.h"
#include "daemon/vm/qps.h"
#include "daemon/vm/calls.h"
#include "daemon/vm/vm.h"

static struct vm vm = {.name = "g1"};
static enum agent_state state_now;
static unsigned status;
static char code[32];
static agent_done *done;
static void *done_arg;

enum agent_state agent_state(const struct agent_line *a)
{
	(void)a;
	return state_now;
}
void agent_request(struct agent_line *a, struct json_object *msg, unsigned deadline_ms,
		   agent_done *fn, void *arg)
{
	(void)a;
	(void)deadline_ms;
	assert_string_equal(json_opt_str(msg, "op", ""), "query");
	json_object_put(msg);
	done = fn;
	done_arg = arg;
}
void http_reply(struct http_exchange *x, unsigned http_status, struct json_object *body)
{
	(void)x;
	status = http_status;
	json_object_put(body);
}
void http_fail(struct http_exchange *x, unsigned http_status, const char *what, const char *fmt,
	       ...)
{
	(void)x;
	(void)fmt;
	status = http_status;
	snprintf(code, sizeof code, "%s", what);
}

struct vm *rest_vm(struct http_request *req)
{
	if (!strcmp(req->param, "g1"))
		return &vm;
	http_fail(req->exchange, 404, "not-found", "no VM %s", req->param);
	return NULL;
}

static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o), 0);
	return o;
}

static struct json_object *first(struct json_object *o, const char *key)
{
	struct json_object *list = json_opt(o, key);

	return list ? json_object_array_get_idx(list, 0) : NULL;
}

static void view(void **state)
{
	struct json_object *in AUTO_JSON = parse(
		"{\"processes\":[{\"pid\":7,\"comm\":\"a\\u001b[2Jb\\u00e9\",\"mr_bytes\":4096,"
		"\"secret\":1,\"qps\":[{\"vqpn\":17,\"qpn\":18,\"type\":\"RC\",\"state\":\"RTS\","
		"\"unacked\":3,\"unacked_bytes\":300,\"dgid\":\"fe80::2\",\"dvqpn\":19,"
		"\"dqpn\":20,\"vguid\":\"0x00a1b2fffe000001\",\"pkey\":\"0x8001\"},{\"pkey\":7,"
		"\"vqpn\":21,\"dgid\":\"x\"}]}],"
		"\"uncovered\":[{\"pid\":8,\"comm\":\"c\",\"why\":\"w\"}],"
		"\"paths\":{\"entries\":5},\"truncated\":true}");
	struct json_object *out AUTO_JSON = answers_reduce("query", in),
				*p = first(out, "processes"), *q = first(p, "qps");

	(void)state;
	assert_string_equal(json_opt_str(p, "comm", ""), "a?[2Jb??");
	assert_null(json_opt(p, "secret"));
	assert_int_equal(json_opt_u64(p, "mr_bytes", 0), 4096);
	assert_int_equal(json_opt_u64(q, "vqpn", 0), 17);
	assert_int_equal(json_opt_u64(q, "qpn", 0), 18);
	assert_int_equal(json_opt_u64(q, "unacked_bytes", 0), 300);
	assert_int_equal(json_opt_u64(q, "dvqpn", 0), 19);
	assert_int_equal(json_opt_u64(q, "dqpn", 0), 20);
	assert_string_equal(json_opt_str(q, "pkey", ""), "0x8001");
	assert_string_equal(json_opt_str(q, "dgid", ""), "fe80:0000:0000:0000:0000:0000:0000:0002");
	q = json_object_array_get_idx(json_opt(p, "qps"), 1);
	assert_null(json_opt(q, "dgid")); /* was none */
	assert_null(json_opt(q, "pkey"));
	assert_string_equal(json_opt_str(first(out, "uncovered"), "why", ""), "w");
	assert_int_equal(json_opt_u64(json_opt(out, "paths"), "entries", 0), 5);
	assert_true(json_opt_bool(out, "truncated", false));
}

static void nonsense(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{\"processes\":7,\"uncovered\":{},\"paths\":[]}",
		"{\"processes\":[7,null,[],{\"qps\":7}],\"uncovered\":[null]}",
		"{\"processes\":[{\"pid\":-5,\"comm\":7,\"qps\":[{\"vqpn\":99999999999},{}]}]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct json_object *in AUTO_JSON = parse(texts[i]);
		struct json_object *out AUTO_JSON = answers_reduce("query", in),
					*p = first(out, "processes");

		assert_true(json_object_is_type(json_opt(out, "processes"), json_type_array));
		assert_true(json_object_is_type(json_opt(out, "uncovered"), json_type_array));
		assert_true(json_opt_u64(p, "pid", 0) <= INT32_MAX);
		assert_true(json_opt_u64(first(p, "qps"), "vqpn", 0) <= 0xffffff);
	}
}

/* A record of a migration keeps these, and ibvmig status shows them: 100 KB of padding in an answer
 * would be there for ever. */
static void padding(void **state)
{
	static const char *const asked[] = {"hello", "query", "suspend", "resume", "ballast", "?"};
	static char text[200000];
	int n = snprintf(text, sizeof text, "{\"pad\":\"");

	(void)state;
	memset(text + n, 'A', 100000);
	snprintf(text + n + 100000, sizeof text - (size_t)n - 100000,
		 "\",\"qps\":3,\"port\":[[[[]]]],\"agent\":\"0.1\",\"paths\":{\"pad\":\"%s\"}}",
		 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		struct json_object *in AUTO_JSON = parse(text);
		struct json_object *out AUTO_JSON = answers_reduce(asked[i], in);

		assert_true(strlen(json_text(out)) < 400);
		assert_null(strstr(json_text(out), "AAAA"));
		if (!strcmp(asked[i], "suspend"))
			assert_int_equal(json_opt_u64(out, "qps", 0), 3);
	}
}

/* A message of 1 MiB that has as many entries as it can, in several lists: what is kept of it is
 * not many times as long. */
static void nothing_often(void **state)
{
	struct json_object *in AUTO_JSON = json_object_new_object();
	struct json_object *list = json_object_new_array(), *out AUTO_JSON = NULL;

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		struct json_object *p = json_object_new_object(), *qps = json_object_new_array();

		for (unsigned k = 0; k < 57000; k++)
			json_object_array_add(qps, json_object_new_object());
		json_set(p, "qps", qps);
		json_object_array_add(list, p);
	}
	json_set(in, "processes", list);
	assert_in_range(strlen(json_text(in)), 1, 1 << 20);
	out = answers_reduce("query", in);
	assert_in_range(strlen(json_text(out)), 1, 3 << 20);
}

static void answers(void **state)
{
	struct http_request req = {.param = "nobody"};
	struct json_object *empty AUTO_JSON = parse("{}");

	(void)state;
	qps_get(&req);
	assert_int_equal(status, 404);
	req.param = "g1";
	state_now = AGENT_WAITING;
	qps_get(&req);
	assert_int_equal(status, 503);
	assert_string_equal(code, "no-agent");
	state_now = AGENT_UP;
	status = 0;
	qps_get(&req);
	assert_int_equal(status, 0);
	done(done_arg, -ETIMEDOUT, NULL, "did not answer");
	assert_int_equal(status, 504);
	qps_get(&req);
	done(done_arg, 0, empty, "");
	assert_int_equal(status, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(view),    cmocka_unit_test(nonsense),
		cmocka_unit_test(padding), cmocka_unit_test(nothing_often),
		cmocka_unit_test(answers),
	};

	return RUN_TESTS(tests);
}
