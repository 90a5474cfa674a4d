/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls on their way: what changes something is told to the other ibvmig-sm, a question is not. */
#include "tests/unit/tap.h"

#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "sm-helper/rest/rest_int.h"

#define DEADLINE_MS 20000 /* only a fault takes so long */

static unsigned published, answered;

void __wrap_ops_publish(struct ops *o);
void __wrap_http_reply(struct http_exchange *x, unsigned status, struct json_object *body);

void __wrap_ops_publish(struct ops *o)
{
	(void)o;
	published++;
}

void __wrap_http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	(void)x;
	assert_int_equal(status, 200);
	json_object_put(body);
	answered++;
}

static void run(struct rest_call *call)
{
	call->reply = json_object_new_object();
}

static void await_answers(sd_event *loop, unsigned count)
{
	uint64_t give_up_ms = now_ms() + DEADLINE_MS;

	while (answered < count && now_ms() < give_up_ms)
		assert_true(sd_event_run(loop, 100000) >= 0);
	assert_int_equal(answered, count);
}

/* A peer that is away takes seconds to be found so, and hosts ask often. */
static void test_question(void **state)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	struct rest rest = {0};
	struct http_request req = {.body = body, .user = &rest};
	sd_event *loop;

	(void)state;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(work_pool_new(loop, 1, &rest.pool), 0);
	assert_int_equal(work_pool_new(loop, 1, &rest.host_pool), 0);
	rest_submit_question(&req, run);
	await_answers(loop, 1);
	assert_int_equal(published, 0);
	rest_submit(&req, run, NULL);
	await_answers(loop, 2);
	assert_int_equal(published, 1);
	work_pool_free(rest.host_pool);
	work_pool_free(rest.pool);
	sd_event_unref(loop);
}

/* A reader asks for paths as hosts do, but waits with other readers. */
static void test_who_is_no_host(void **state)
{
	struct rest rest = {0};
	struct http_request host = {.user = &rest, .roles = REST_PEER};
	struct http_request reader = {.user = &rest, .roles = REST_READ_ONLY};
	sd_event *loop;

	(void)state;
	answered = 0;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(work_pool_new(loop, 1, &rest.host_pool), 0);
	assert_int_equal(work_pool_new(loop, 1, &rest.read_pool), 0);
	rest_submit_host(&host, run, NULL);
	assert_int_equal(rest.reading, 0);
	rest_submit_host(&reader, run, NULL);
	assert_int_equal(rest.reading, 1);
	await_answers(loop, 2);
	assert_int_equal(rest.reading, 0);
	work_pool_free(rest.host_pool);
	work_pool_free(rest.read_pool);
	sd_event_unref(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_question),
					   cmocka_unit_test(test_who_is_no_host)};

	return RUN_TESTS(tests);
}
