/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A real server and real clients over a socket: at once, later, and wrong. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "common/http_client.h"
#include "common/http_server.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"

static sd_event *loop;
static struct work_pool *pool;
static struct http_exchange *parked;
static char base[128];

static void on_echo(struct http_request *req)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "param", req->param);
	json_set_str(o, "q", http_query(req->exchange, "q"));
	json_set_u64(o, "n", json_opt_u64(req->body, "n", 0));
	http_reply(req->exchange, 200, o);
}

static void on_park(struct http_request *req)
{
	parked = req->exchange;
}

static const struct http_route routes[] = {
	{"POST", "/v1/echo/*", on_echo},
	{"GET", "/v1/park", on_park},
	{0},
};

struct call {
	const char *method, *path, *text;
	int rc;
	char error[HTTP_ERROR_MAX];
	struct json_object *answer; /* owned */
	unsigned *left;
};

static void run_call(void *arg)
{
	struct call *c = arg;
	struct json_object *body AUTO_JSON = NULL;

	if (c->text)
		json_parse(c->text, strlen(c->text), &body);
	c->rc = http_call(base, c->method, c->path, body, 5000, &c->answer, c->error);
}

static void call_done(void *arg)
{
	struct call *c = arg;

	--*c->left;
}

static void run_calls(struct call *calls, unsigned n)
{
	unsigned left = n;

	for (unsigned i = 0; i < n; i++) {
		calls[i].left = &left;
		assert_int_equal(work_submit(pool, run_call, call_done, &calls[i]), 0);
	}
	while (left)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
}

static int setup(void **state)
{
	struct http_server *server;
	char path[100];

	http_client_init();
	snprintf(path, sizeof path, "/tmp/ibvmig-http-%d", getpid());
	snprintf(base, sizeof base, "unix:%s", path);
	if (loop_new(&loop) || work_pool_new(loop, 4, &pool) ||
	    http_server_new(loop, http_listen_unix(path, 0600), routes, NULL, &server))
		return -1;
	*state = server;
	return 0;
}

static int teardown(void **state)
{
	work_pool_free(pool);
	http_server_free(*state);
	sd_event_unref(loop);
	unlink(base + 5);
	return 0;
}

static void test_echo(void **state)
{
	struct call c = {"POST", "/v1/echo/abc?q=x%20y", "{\"n\":5}", .rc = -1};

	(void)state;
	run_calls(&c, 1);
	assert_int_equal(c.rc, 0);
	assert_string_equal(json_opt_str(c.answer, "param", ""), "abc");
	assert_string_equal(json_opt_str(c.answer, "q", ""), "x y");
	assert_int_equal(json_opt_u64(c.answer, "n", 0), 5);
	json_object_put(c.answer);
}

static void release_parked(void *arg)
{
	(void)arg;
	http_fail(parked, 409, "conflict", "parked until now");
}

static void test_answered_later(void **state)
{
	struct call c = {"GET", "/v1/park", NULL, .rc = 0};
	struct loop_timer *t;

	(void)state;
	assert_int_equal(loop_timer_new(loop, release_parked, NULL, &t), 0);
	loop_timer_arm(t, 100);
	run_calls(&c, 1);
	loop_timer_free(t);
	assert_int_equal(c.rc, -EREMOTEIO);
	assert_string_equal(c.error, "parked until now");
}

static void test_wrong_calls(void **state)
{
	struct call c[] = {
		{"GET", "/v1/nothing", NULL, .rc = 0},
		{"GET", "/v1/echo/x", NULL, .rc = 0},
		{"POST", "/v1/echo/", NULL, .rc = 0},
		{"POST", "/v1/echo/a/b", NULL, .rc = 0},
	};

	(void)state;
	run_calls(c, ARRAY_SIZE(c));
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		assert_int_equal(c[i].rc, -EREMOTEIO);
	assert_string_equal(c[0].error, "there is no /v1/nothing");
	assert_string_equal(c[1].error, "GET is not allowed on /v1/echo/x");
}

int main(void)
{
	const struct CMUnitTest common_http[] = {
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_answered_later),
		cmocka_unit_test(test_wrong_calls),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(common_http, setup, teardown);
}
