/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The waiting for the disk, and calls that need none: a real journal, whose fdatasync() takes as
 * long as the test wants and fails when it wants. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"

#define HANG_US 120000000 /* only a fault takes so long */

static char dir[] = "/tmp/ibvmig-durable-XXXXXX";
static struct daemon d;

/* The disk. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;
	unsigned waiting, syncs;
	int error;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&disk.lock);

	(void)fd;
	disk.syncs++;
	disk.waiting++;
	pthread_cond_broadcast(&disk.changed);
	while (disk.held)
		pthread_cond_wait(&disk.changed, &disk.lock);
	disk.waiting--;
	errno = disk.error;
	return disk.error ? -1 : 0;
}

static void disk_hold(bool held, int error)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&disk.lock);

	disk.held = held;
	disk.error = error;
	pthread_cond_broadcast(&disk.changed);
}

/* Until a sync is under way. */
static bool disk_waits(void)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&disk.lock);
	struct timespec end;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HANG_US / 1000000;
	while (!disk.waiting && !rc)
		rc = pthread_cond_timedwait(&disk.changed, &disk.lock, &end);
	return !rc;
}

struct heard {
	unsigned calls;
	int rc;
};

static void hear(void *arg, int rc)
{
	struct heard *h = arg;

	h->calls++;
	h->rc = rc;
}

static void run_until(const unsigned *calls, unsigned n)
{
	uint64_t end_us = now_us() + HANG_US;

	while (*calls < n && now_us() < end_us)
		assert_true(sd_event_run(d.loop, 100000) >= 0);
	assert_int_equal(*calls, n);
}

static void write_event(const char *text)
{
	assert_int_equal(journal_event(d.journal, "u1", text), 0);
}

static size_t count_events(void)
{
	struct json_object *list AUTO_JSON = journal_events(d.journal, 1000);

	return json_count(list);
}

static void test_nothing_written_is_durable_at_once(void **state)
{
	struct heard h = {0};
	unsigned syncs = disk.syncs;

	(void)state;
	durable_then(d.durable, hear, &h);
	assert_int_equal(h.calls, 1);
	assert_int_equal(h.rc, 0);
	assert_int_equal(disk.syncs, syncs);
}

static void test_the_loop_writes_and_reads_while_the_disk_is_slow(void **state)
{
	struct heard first = {0}, second = {0}, third = {0};
	unsigned syncs = disk.syncs;
	size_t before = count_events();

	(void)state;
	disk_hold(true, 0);
	write_event("first");
	durable_then(d.durable, hear, &first);
	assert_true(disk_waits());
	write_event("second");
	durable_then(d.durable, hear, &second);
	write_event("third");
	durable_then(d.durable, hear, &third);
	assert_int_equal(count_events(), before + 3);
	assert_int_equal(first.calls + second.calls + third.calls, 0);

	disk_hold(false, 0);
	run_until(&third.calls, 1);
	assert_int_equal(first.calls + second.calls, 2);
	assert_int_equal(first.rc | second.rc | third.rc, 0);
	/* the one that was under way, and one for both others */
	assert_int_equal(disk.syncs, syncs + 2);
}

/* A writer that hears that its write is durable writes again, and the disk is at that before it
 * returns. */
static void write_more(void *arg, int rc)
{
	struct heard *more = arg;

	(void)rc;
	disk_hold(true, 0);
	write_event("more");
	durable_then(d.durable, hear, more);
	disk_waits();
}

static void test_what_is_written_by_a_waiter_is_not_durable_yet(void **state)
{
	struct heard more = {0}, last = {0};

	(void)state;
	disk_hold(true, 0);
	write_event("first");
	durable_then(d.durable, write_more, &more);
	durable_then(d.durable, hear, &last);
	assert_true(disk_waits());
	disk_hold(false, 0);
	run_until(&last.calls, 1);
	assert_int_equal(more.calls, 0);
	disk_hold(false, 0);
	run_until(&more.calls, 1);
	assert_int_equal(more.rc, 0);
}

static unsigned jobs_run, jobs_done;

static void job_runs(struct job *j)
{
	(void)j;
	jobs_run++;
}

static void job_is_done(struct job *j)
{
	(void)j;
	jobs_done++;
}

static void test_a_job_begins_when_what_was_written_is_durable(void **state)
{
	struct heard other = {0};

	(void)state;
	disk_hold(true, 0);
	write_event("before the job");
	assert_int_equal(job_start(&d, NULL, job_runs, job_is_done, NULL, 0), 0);
	assert_true(disk_waits());
	write_event("after it");
	durable_then(d.durable, hear, &other);
	sd_event_run(d.loop, 0);
	assert_int_equal(jobs_run, 0);
	disk_hold(false, 0);
	run_until(&jobs_done, 1);
	assert_int_equal(jobs_run, 1);
	run_until(&other.calls, 1);
}

static void test_a_failed_sync_is_told_and_the_next_one_writes_anew(void **state)
{
	struct heard bad = {0}, good = {0};
	unsigned syncs;
	char *text AUTO_FREE = NULL, *path AUTO_FREE = strf("%s/ibvmigd.db", dir);
	size_t bytes = 0;

	(void)state;
	disk_hold(false, EIO);
	write_event("the disk does not take this");
	durable_then(d.durable, hear, &bad);
	run_until(&bad.calls, 1);
	assert_int_equal(bad.rc, -EIO);

	/* still not believed, though nothing has been written since: the kernel would say yes now
	 */
	disk_hold(false, 0);
	syncs = disk.syncs;
	durable_then(d.durable, hear, &good);
	assert_int_equal(good.calls, 0);
	run_until(&good.calls, 1);
	assert_int_equal(good.rc, 0);
	assert_int_equal(disk.syncs, syncs);
	assert_int_equal(read_file(path, 16 << 20, &text, &bytes), 0);
	assert_non_null(memmem(text, bytes, "the disk does not take this", 27));
}

static void test_the_wal_does_not_grow_without_end(void **state)
{
	char *wal AUTO_FREE = strf("%s/ibvmigd.db-wal", dir);
	struct heard h = {0};

	(void)state;
	for (unsigned i = 0; i < 4000; i++) {
		write_event("one of many");
		if (i % 500)
			continue;
		durable_then(d.durable, hear, &h);
		run_until(&h.calls, i / 500 + 1);
	}
	FILE *f AUTO_FILE = fopen(wal, "r");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	/* 4,000 writes of one page and more each */
	assert_in_range(ftell(f), 1, 12 << 20);
}

static void test_waiters_are_forgotten_at_the_end(void **state)
{
	struct heard h = {0};

	(void)state;
	disk_hold(true, 0);
	write_event("at the end");
	durable_then(d.durable, hear, &h);
	assert_true(disk_waits());
	disk_hold(false, 0);
	durable_free(TAKE(d.durable));
	assert_int_equal(h.calls, 0);
	assert_int_equal(durable_new(d.loop, d.journal, &d.durable), 0);
}

static int setup(void **state)
{
	char *error = NULL;

	(void)state;
	/* The error that is provoked is no news. */
	return !freopen("/dev/null", "w", stderr) || !mkdtemp(dir) || loop_new(&d.loop) ||
	       journal_open(dir, 100, &d.journal, &error) ||
	       durable_new(d.loop, d.journal, &d.durable) || work_pool_new(d.loop, 2, &d.pool);
}

static int teardown(void **state)
{
	char *command AUTO_FREE = strf("rm -r %s", dir);

	(void)state;
	disk_hold(false, 0); /* a test that has failed leaves it held */
	work_pool_free(d.pool);
	durable_free(d.durable);
	journal_close(d.journal);
	sd_event_unref(d.loop);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_written_is_durable_at_once),
		cmocka_unit_test(test_the_loop_writes_and_reads_while_the_disk_is_slow),
		cmocka_unit_test(test_what_is_written_by_a_waiter_is_not_durable_yet),
		cmocka_unit_test(test_a_job_begins_when_what_was_written_is_durable),
		cmocka_unit_test(test_a_failed_sync_is_told_and_the_next_one_writes_anew),
		cmocka_unit_test(test_the_wal_does_not_grow_without_end),
		cmocka_unit_test(test_waiters_are_forgotten_at_the_end),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
