/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Faults are told to holders, also when the plugin cannot answer at first. The plugin is played. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common/json.h"
#include "common/util.h"
#include "sm-helper/notify/outbox.h"
#include "sm-helper/notify/reroute.h"
#include "sm-helper/paths/interest.h"

#define DEADLINE_MS 20000 /* only a fault of ours takes so long */
#define INSTANCE    7

static atomic_uint number; /* of the last comparison */
static atomic_int fail;    /* how many more questions for records fail */
static atomic_int began, told_sl;

static int play_reroute(void *self, const struct sm_reroute_request *after, int stop_fd,
			struct sm_reroute_reply *r, char *error)
{
	struct pollfd p = {.fd = stop_fd, .events = POLLIN};

	(void)self;
	(void)error;
	while (after->instance == INSTANCE && after->after == atomic_load(&number))
		if (poll(&p, 1, 1) > 0)
			return -ECANCELED;
	if (poll(&p, 1, 0) > 0)
		return -ECANCELED;
	*r = (struct sm_reroute_reply){
		.instance = INSTANCE, .number = atomic_load(&number), .changed = 1};
	return 0;
}

static int play_records(void *self, const struct sm_record_key *keys, unsigned count,
			struct sm_records_reply *r, char *error)
{
	(void)self;
	(void)keys;
	if (atomic_fetch_sub(&fail, 1) > 0)
		return backend_fail(error, -ETIMEDOUT, "played");
	*r = (struct sm_records_reply){.count = count};
	for (unsigned i = 0; i < count; i++)
		r->record[i] = (struct sm_record){.dlid = 7, .slid = 8, .sl = 2};
	return 0;
}

static int take(void *arg, const char *url, struct json_object *body, char *error)
{
	struct json_object *list = json_opt(body, "records");

	(void)arg;
	(void)url;
	(void)error;
	if (json_count(list))
		told_sl = (int)json_opt_u64(json_object_array_get_idx(list, 0), "sl", 0);
	else
		began = 1;
	return 0;
}

static void lost(void *arg, const char *host, const char *url, const char *error)
{
	(void)arg;
	fail_msg("%s (%s) is lost: %s", host, url, error);
}

static void await(atomic_int *what)
{
	uint64_t give_up_ms = now_ms() + DEADLINE_MS;

	while (!atomic_load(what) && now_ms() < give_up_ms)
		usleep(1000);
	assert_int_not_equal(atomic_load(what), 0);
}

/* The plugin serves a batch that waits for a sweep: its first answers come too late. */
static void test_late_answer(void **state)
{
	const struct backend_kind kind = {
		.name = "played", .reroute = play_reroute, .records = play_records};
	const struct path_value was = {.dlid = 7, .slid = 8, .sl = 1};
	const struct path_key key = {1, 2, 0};
	const struct backend_conf conf = {0};
	struct ops o = {0};
	char *error = NULL;

	(void)state;
	atomic_store(&number, 1);
	atomic_store(&fail, 2);
	assert_int_equal(registry_open(":memory:", &o.registry, &error), 0);
	assert_int_equal(registry_subscribe(o.registry, "a", "http://a"), 0);
	assert_int_equal(outbox_new(take, lost, NULL, 1, &o.outbox), 0);
	assert_int_equal(path_service_new(&kind, &conf, NULL, false, &o.paths), 0);
	assert_non_null(o.interest = interest_new());
	assert_int_equal(reroute_new(&kind, &conf, &o, SIGNALLING_INTEREST, &o.reroute), 0);
	await(&began);
	assert_true(interest_note(o.interest, "a", interest_pass(o.interest), &key, &was));
	atomic_store(&number, 2);
	await(&told_sl);
	assert_int_equal(told_sl, 2);
	reroute_free(o.reroute);
	outbox_free(o.outbox);
	path_service_free(o.paths);
	interest_free(o.interest);
	registry_close(o.registry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_answer)};

	return RUN_TESTS(tests);
}
