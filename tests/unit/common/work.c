/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A pool whose threads cannot be started: a job that nobody would run is refused. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>

#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"

#define DEADLINE_MS 20000 /* only a fault takes so long */

static unsigned tried, no_threads, ran, ended;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	tried++;
	if (!no_threads)
		return __real_pthread_create(thread, attr, run, arg);
	no_threads--;
	return EAGAIN;
}

static void run(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}

static void done(void *arg)
{
	(void)arg;
	ended++;
}

static void await_end(sd_event *loop, unsigned jobs)
{
	uint64_t give_up_ms = now_ms() + DEADLINE_MS;

	while (ended < jobs && now_ms() < give_up_ms)
		assert_true(sd_event_run(loop, 100000) >= 0);
	assert_int_equal(ended, jobs);
	assert_int_equal(ran, jobs);
}

static void test_no_thread(void **state)
{
	struct work_pool *pool;
	sd_event *loop;

	(void)state;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(work_pool_new(loop, 2, &pool), 0);
	no_threads = 2;
	assert_int_equal(work_submit(pool, run, done, NULL), -EAGAIN);
	assert_int_equal(work_submit(pool, run, done, NULL), -EAGAIN);
	assert_int_equal(work_submit(pool, run, done, NULL), 0);
	await_end(loop, 1);
	/* With a thread that is there a job may wait for it. */
	no_threads = 100;
	for (int i = 0; i < 3; i++)
		assert_int_equal(work_submit(pool, run, done, NULL), 0);
	await_end(loop, 4);
	assert_true(tried >= 3);
	work_pool_free(pool);
	sd_event_unref(loop);
}

int main(void)
{
	const struct CMUnitTest common_work[] = {
		cmocka_unit_test(test_no_thread),
	};

	return RUN_TESTS(common_work);
}
