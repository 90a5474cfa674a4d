/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A question to libvirt about an open migration is asked again where there was no memory for it:
 * nobody else would. */
#include "tests/unit/tap.h"

#include <errno.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/machine.h"

#define DEADLINE_MS 20000 /* only a fault takes so long */

static unsigned asked, fails;

int __wrap_job_order(struct daemon *d, const struct job_order *o);

int __wrap_job_order(struct daemon *d, const struct job_order *o)
{
	(void)d;
	json_object_put(o->in);
	if (asked++ < fails)
		return -ENOMEM;
	return 0;
}

static void await_question(sd_event *loop, unsigned number)
{
	uint64_t give_up_ms = now_ms() + DEADLINE_MS;

	while (asked < number && now_ms() < give_up_ms)
		assert_true(sd_event_run(loop, 100000) >= 0);
	assert_int_equal(asked, number);
}

/* As after a restart of the daemon. */
static void test_probed_again(void **state)
{
	static struct daemon d;
	struct migration *m;

	(void)state;
	asked = 0;
	fails = 2;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, ROLE_SOURCE, "m1", "u1", "g1");
	m->recovery.unprobed = true;
	d.to_inspect = 1;
	migrate_recover(&d);
	assert_int_equal(asked, 1);
	assert_false(m->recovery.probing);
	await_question(d.loop, 3);
	assert_true(m->recovery.probing && m->inflight == 1);
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

/* The migration's events may be lost, so it is looked at again. */
static void test_looked_again(void **state)
{
	static struct daemon d;
	struct migration *m;

	(void)state;
	asked = 0;
	fails = 1;
	assert_true(sd_event_new(&d.loop) >= 0);
	m = migrate_new(&d, ROLE_SOURCE, "m1", "u1", "g1");
	await_question(d.loop, 1);
	assert_false(m->looking);
	await_question(d.loop, 2);
	assert_true(m->looking);
	migrate_free_all(&d);
	sd_event_unref(d.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_probed_again),
		cmocka_unit_test(test_looked_again),
	};

	migrate_use_table();
	return RUN_TESTS(tests);
}
