/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Jobs about all VFs of a VM: what becomes of their errors, and that those at once are. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "daemon/base/job.h"

#define MEET_S 120 /* only what is not at once takes so long */

static struct job job;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static unsigned there;

static int setup(void **state)
{
	const char *text = "{\"vfs\":[{\"vf\":\"f1\"},{\"vf\":\"f2\"},{\"vf\":\"f3\"}]}";

	(void)state;
	job = (struct job){0};
	there = 0;
	return json_parse(text, strlen(text), &job.in);
}

static int teardown(void **state)
{
	(void)state;
	return !json_object_put(job.in);
}

static int fail_two(struct job *j, struct json_object *vf, char *error)
{
	const char *name = vf_text_of(vf, "vf");

	assert_ptr_equal(j, &job);
	pthread_mutex_lock(&lock);
	there++;
	pthread_mutex_unlock(&lock);
	if (!strcmp(name, "f1"))
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "no %s", name);
	return strcmp(name, "f2") ? -EIO : -ENODEV;
}

/* Until all three are in it. */
static int meet(struct job *j, struct json_object *vf, char *error)
{
	struct timespec end;
	int rc = 0;

	(void)j;
	(void)vf;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += MEET_S;
	pthread_mutex_lock(&lock);
	there++;
	pthread_cond_broadcast(&came);
	while (there < 3 && !rc)
		rc = pthread_cond_timedwait(&came, &lock, &end);
	pthread_mutex_unlock(&lock);
	snprintf(error, HTTP_ERROR_MAX, "alone");
	return -rc;
}

static void expect_errors(void)
{
	assert_int_equal(job.rc, -ENODEV);
	assert_string_equal(job.error, "VF f2: no f2; VF f3: no f3");
	assert_int_equal(there, 3);
}

static void test_each(void **state)
{
	(void)state;
	assert_int_equal(job_each_vf(&job, fail_two), -ENODEV);
	expect_errors();
}

static void test_at_once(void **state)
{
	(void)state;
	assert_int_equal(job_vfs_at_once(&job, meet), 0);
	assert_string_equal(job.error, "");
	there = 0;
	assert_int_equal(job_vfs_at_once(&job, fail_two), -ENODEV);
	expect_errors();
}

static void test_failed_before(void **state)
{
	(void)state;
	job.rc = -EPERM;
	assert_int_equal(job_each_vf(&job, fail_two), -EPERM);
	assert_int_equal(job_vfs_at_once(&job, fail_two), -EPERM);
	assert_int_equal(there, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each, setup, teardown),
		cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed_before, setup, teardown),
	};

	return RUN_TESTS(tests);
}
