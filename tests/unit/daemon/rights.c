/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Questions to ibvmig-sm for the partitions of the VMs that are here. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/partition.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/vm.h"

static struct settings settings = {.sm_url = (char *)"https://sm"};
static struct daemon d = {.settings = &settings};
static struct vm vms[2] = {
	{.vf_count = 1, .vfs[0].want = {.vguid = 0x00a1b2fffe000001, .pkey = 0x8001}},
	{.vf_count = 1, .vfs[0].want = {.vguid = 0x00a1b2fffe000002, .pkey = 0x8001}},
};
static struct job *job; /* the one that is under way */
static unsigned asked;
static bool away;

int job_start(struct daemon *daemon, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial)
{
	(void)owner;
	(void)serial;
	assert_null(job);
	job = calloc(1, sizeof *job);
	assert_non_null(job);
	*job = (struct job){
		.d = daemon, .in = in, .out = json_object_new_object(), .run = run, .done = done};
	asked++;
	return 0;
}

/* Every GUID is a member of 0x8003. */
int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error)
{
	struct json_object *in = json_opt(body, "guids"), *out = json_object_new_array();

	(void)s;
	(void)path;
	(void)ms;
	for (size_t i = 0; i < json_count(in); i++) {
		struct json_object *o = json_object_new_object(), *pkeys = json_object_new_array();

		json_set(o, "guid", json_object_get(json_object_array_get_idx(in, i)));
		json_object_array_add(pkeys, json_object_new_string("0x8003"));
		json_set(o, "pkeys", pkeys);
		json_object_array_add(out, o);
	}
	json_object_put(body);
	if (away) {
		json_object_put(out);
		strcpy(error, "nobody is there");
		return -ECONNREFUSED;
	}
	*ret_answer = json_object_new_object();
	json_set(*ret_answer, "guids", out);
	return 0;
}

static void end_job(void)
{
	struct job *j = TAKE(job);

	assert_non_null(j);
	j->run(j);
	j->done(j);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
}

static bool is_known(const char *guid)
{
	return partition_pkeys(d.sm.partitions, guid);
}

static void test_vm_comes(void **state)
{
	(void)state;
	d.vms = &vms[0];
	vm_rights_news(&d);
	end_job();
	vm_rights_refresh(&d);
	assert_int_equal(asked, 1); /* it was told a moment ago */
	assert_false(is_known("0x00a1b2fffe000002"));
	vm_rights_news(&d);
	assert_int_equal(asked, 2);
	vms[0].next = &vms[1];
	vm_rights_news(&d); /* while that is under way, which is not about this VM */
	end_job();
	assert_int_equal(asked, 3);
	end_job();
	assert_true(is_known("0x00a1b2fffe000002"));
	vm_rights_refresh(&d);
	assert_int_equal(asked, 3);
}

static void test_sm_goes(void **state)
{
	(void)state;
	away = true;
	vm_rights_news(&d);
	end_job();
	assert_true(is_known("0x00a1b2fffe000001"));
	vm_rights_refresh(&d);
	assert_null(job);
	json_object_put(TAKE(d.sm.partitions));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_vm_comes),
					   cmocka_unit_test(test_sm_goes)};

	return RUN_TESTS(tests);
}
