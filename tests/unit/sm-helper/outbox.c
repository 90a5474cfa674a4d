/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Notices: order, attempts, hosts that are given up. The hosts are played: a URL says what they do.
 */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/notify/outbox.h"

#define DEADLINE_US 30000000u

static atomic_uint attempts, wrong_order, lost_hosts;
static atomic_int last;  /* number of the notice that a host took last */
static atomic_int fail;  /* how many more attempts to "later" fail */
static atomic_bool gate; /* "gate" and "never" answer when it is open */

static int play(void *arg, const char *url, struct json_object *body, char *error)
{
	int number = json_object_get_int(json_object_object_get(body, "n"));

	assert_ptr_equal(arg, &attempts);
	atomic_fetch_add(&attempts, 1);
	strcpy(error, "played");
	while ((!strcmp(url, "gate") || !strcmp(url, "never")) && !atomic_load(&gate))
		usleep(1000);
	if (!strcmp(url, "never"))
		return -ECONNREFUSED;
	if (!strcmp(url, "later") && atomic_fetch_sub(&fail, 1) > 0)
		return -ETIMEDOUT;
	if (strcmp(url, "now") && atomic_exchange(&last, number) != number - 1)
		atomic_fetch_add(&wrong_order, 1);
	return 0;
}

static void lost(void *arg, const char *host, const char *url, const char *error)
{
	assert_ptr_equal(arg, &attempts);
	assert_string_equal(host, "dead");
	assert_string_equal(url, "never");
	assert_string_equal(error, "played");
	atomic_fetch_add(&lost_hosts, 1);
}

static struct outbox *begin(void)
{
	struct outbox *b = NULL;

	atomic_store(&attempts, 0);
	atomic_store(&wrong_order, 0);
	atomic_store(&lost_hosts, 0);
	atomic_store(&last, 0);
	atomic_store(&gate, true);
	assert_int_equal(outbox_new(play, lost, &attempts, 1, &b), 0);
	return b;
}

static bool post(struct outbox *b, const char *host, const char *url, int number)
{
	struct json_object *body = json_object_new_object();
	bool ok;

	json_object_object_add(body, "n", json_object_new_int(number));
	ok = outbox_post(b, host, url, body);
	json_object_put(body);
	return ok;
}

static struct outbox_counts await_empty(struct outbox *b)
{
	uint64_t end = now_us() + DEADLINE_US;
	struct outbox_counts c;

	do {
		usleep(500);
		c = outbox_counts(b);
	} while (c.pending && now_us() < end);
	assert_int_equal(c.pending, 0);
	return c;
}

static void test_many_hosts(void **state)
{
	struct outbox *b = begin();
	struct outbox_counts c;
	char host[16];

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(host, sizeof host, "host%d", i);
		assert_true(post(b, host, "now", i));
	}
	c = await_empty(b);
	assert_int_equal(c.acked, 100);
	assert_int_equal(c.sent, 100);
	assert_int_equal(c.retried, 0);
	outbox_free(b);
}

static void test_retry(void **state)
{
	struct outbox *b = begin();
	struct outbox_counts c;

	(void)state;
	atomic_store(&fail, 3);
	for (int i = 1; i <= 5; i++)
		assert_true(post(b, "host", "later", i));
	c = await_empty(b);
	assert_int_equal(c.acked, 5);
	assert_int_equal(c.retried, 3);
	assert_int_equal(c.sent, 8);
	assert_int_equal(c.lost, 0);
	assert_int_equal(atomic_load(&wrong_order), 0);
	outbox_free(b);
}

/* A host that takes none is given up with all that waits for it; the others do not notice. */
static void test_lost(void **state)
{
	struct outbox *b = begin();
	struct outbox_counts c;

	(void)state;
	atomic_store(&gate, false); /* the gate opens when both are there */
	assert_true(post(b, "dead", "never", 1));
	assert_true(post(b, "dead", "never", 2));
	assert_true(post(b, "host", "now", 1));
	atomic_store(&gate, true);
	c = await_empty(b);
	assert_int_equal(c.lost, 2);
	assert_int_equal(c.acked, 1);
	assert_int_equal(c.sent, OUTBOX_TRIES + 1);
	outbox_free(b); /* waits for the last word */
	assert_int_equal(atomic_load(&lost_hosts), 1);
}

static void test_full(void **state)
{
	struct outbox *b = begin();
	struct outbox_counts c;

	(void)state;
	atomic_store(&gate, false);
	for (int i = 1; i <= OUTBOX_LANE_MAX; i++)
		assert_true(post(b, "host", "gate", i));
	assert_false(post(b, "host", "gate", OUTBOX_LANE_MAX + 1));
	assert_true(post(b, "other", "now", 1));
	atomic_store(&gate, true);
	c = await_empty(b);
	assert_int_equal(c.acked, OUTBOX_LANE_MAX + 1);
	assert_int_equal(c.lost, 1);
	assert_int_equal(atomic_load(&wrong_order), 0);
	outbox_free(b);
}

static void test_settle(void **state)
{
	struct outbox *b = begin();

	(void)state;
	outbox_settle(b, 30000); /* nothing to wait for */
	assert_true(post(b, "dead", "never", 1));
	assert_true(post(b, "host", "now", 1));
	outbox_settle(b, 30000);
	assert_in_range(atomic_load(&attempts), 2, OUTBOX_TRIES + 1);
	outbox_free(b); /* with one that waits, perhaps */
}

/* A notice that waits a minute for its next attempt holds up no other one. */
static void test_wait(void **state)
{
	struct outbox *b = NULL;
	uint64_t since_ms;

	(void)state;
	atomic_store(&gate, true);
	assert_int_equal(outbox_new(play, lost, &attempts, 60000, &b), 0);
	assert_true(post(b, "dead", "never", 1));
	outbox_settle(b, 30000);
	since_ms = now_ms();
	outbox_wait(b, 1, 20000);
	assert_true(now_ms() - since_ms < 20000);
	assert_int_equal(outbox_counts(b).pending, 1);
	outbox_free(b);
}

int main(void)
{
	const struct CMUnitTest sm_outbox[] = {
		cmocka_unit_test(test_many_hosts), cmocka_unit_test(test_retry),
		cmocka_unit_test(test_lost),       cmocka_unit_test(test_full),
		cmocka_unit_test(test_settle),     cmocka_unit_test(test_wait),
	};

	return RUN_TESTS(sm_outbox);
}
