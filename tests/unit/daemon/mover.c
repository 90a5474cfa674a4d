/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Migrations asked for over REST: a real server, client and pool; libvirt and the VMs are stubs. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/store/durable.h"
#include "daemon/migrate/machine.h"
#include "daemon/fleet/jobs.h"
#include "daemon/fleet/preview.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"

#define CALL_MS 60000 /* only a fault takes so long */

static struct settings settings = {.host_name = "hosta", .migrate_uri = "qemu+tcp://%s/system"};
/* There is no journal here: nothing of it is ever to be waited for. */
static const _Atomic uint64_t written;
static struct durable no_journal = {.written = &written};

static struct daemon d = {.settings = &settings, .durable = &no_journal};
static struct vm g1 = {
	.d = &d, .uuid = "11111111-2222-3333-4444-555555555555", .name = (char *)"g1"};
static char base[128];

/* libvirt: migrations last until they are let go. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool let_go;
	int rc;
	unsigned calls, mib;
	bool persistent, gone;
	char uri[128], aborted[64];
} played = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void durable_wait(struct durable *p, void (*fn)(void *arg, int rc), void *arg)
{
	(void)p;
	(void)fn;
	(void)arg;
	abort();
}

int virt_migrate(struct virt *v, const char *name, const char *uri, unsigned mib_per_s,
		 bool persistent, char *error)
{
	(void)v;
	(void)name;
	pthread_mutex_lock(&played.lock);
	played.calls++;
	played.mib = mib_per_s;
	played.persistent = persistent;
	snprintf(played.uri, sizeof played.uri, "%s", uri);
	while (!played.let_go)
		pthread_cond_wait(&played.changed, &played.lock);
	snprintf(error, HTTP_ERROR_MAX, "migration: refused by the hook");
	int rc = played.rc;
	pthread_mutex_unlock(&played.lock);
	return rc;
}

int virt_is_running(struct virt *v, const char *uuid, bool *ret_running, char *error)
{
	(void)v;
	(void)uuid;
	(void)error;
	*ret_running = !played.gone;
	return 0;
}

int virt_progress(struct virt *v, const char *uuid, struct virt_progress *ret, char *error)
{
	(void)v;
	(void)uuid;
	(void)error;
	*ret = (struct virt_progress){.total_bytes = 100, .remaining_bytes = 40, .bytes_per_s = 7};
	return 0;
}

int virt_abort_job(struct virt *v, const char *uuid, char *error)
{
	(void)v;
	snprintf(played.aborted, sizeof played.aborted, "%s", uuid);
	snprintf(error, HTTP_ERROR_MAX, "no job is active");
	return strcmp(uuid, "idle") ? 0 : -EIO;
}

struct vm *vm_by_name(struct daemon *daemon, const char *name)
{
	(void)daemon;
	return strcmp(name, "g1") ? NULL : &g1;
}

void preview_post(struct http_request *req)
{
	http_reply(req->exchange, 200, json_object_new_object());
}

struct json_object *migrate_record(const struct migration *m)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "id", m->rec.id);
	return o;
}

static const struct http_route routes[] = {
	{"POST", "/v1/vms/*/migrate", mover_post_migrate, REST_NOVA},
	{"POST", "/v1/vms/*/abort", mover_post_abort, REST_NOVA},
	{"GET", "/v1/jobs", mover_get_jobs, REST_NOVA},
	{"GET", "/v1/jobs/*", mover_get_job, REST_NOVA},
	{0},
};

struct call {
	const char *method, *path, *body;
	int rc;
	char error[HTTP_ERROR_MAX];
	struct json_object *answer;
	bool done;
};

static void run_call(void *arg)
{
	struct call *c = arg;
	struct json_object *body AUTO_JSON = NULL;

	if (c->body)
		json_parse(c->body, strlen(c->body), &body);
	c->rc = http_call(base, c->method, c->path, body, CALL_MS, &c->answer, c->error);
}

static void call_done(void *arg)
{
	((struct call *)arg)->done = true;
}

/* The answer lives until the next call. */
static struct json_object *ask(const char *method, const char *path, const char *body,
			       const char **ret_error)
{
	static struct call c;

	json_object_put(c.answer);
	c = (struct call){.method = method, .path = path, .body = body};
	assert_int_equal(work_submit(d.pool, run_call, call_done, &c), 0);
	while (!c.done)
		assert_true(sd_event_run(d.loop, UINT64_MAX) >= 0);
	if (ret_error)
		*ret_error = c.rc ? c.error : NULL;
	else if (c.rc)
		fail_msg("%s %s: %s", method, path, c.error);
	return c.answer;
}

static void let_go(int rc)
{
	pthread_mutex_lock(&played.lock);
	played.rc = rc;
	played.let_go = true;
	pthread_cond_broadcast(&played.changed);
	pthread_mutex_unlock(&played.lock);
}

/* The last job's state, once it is not "running". */
static struct json_object *end_of(uint64_t number)
{
	char *path AUTO_FREE = strf("/v1/jobs/%llu", (unsigned long long)number);
	struct json_object *job;

	do
		job = ask("GET", path, NULL, NULL);
	while (str_eq(json_opt_str(job, "state", ""), "running"));
	played.let_go = false;
	return job;
}

static int setup(void **state)
{
	struct http_server *server;
	char path[100];

	setenv("IBVMIG_LOG", "error", 1);
	log_init("test");
	http_client_init();
	snprintf(path, sizeof path, "/tmp/ibvmig-mover-%d", getpid());
	snprintf(base, sizeof base, "unix:%s", path);
	if (loop_new(&d.loop) || work_pool_new(d.loop, 4, &d.pool) || mover_new(&d, &d.movers) ||
	    http_server_new(d.loop, http_listen_unix(path, 0600), NULL, routes, &d, &server))
		return -1;
	*state = server;
	return 0;
}

static int teardown(void **state)
{
	mover_free(d.movers);
	work_pool_free(d.pool);
	http_server_free(*state);
	sd_event_unref(d.loop);
	unlink(base + 5);
	return 0;
}

static void test_goes_well(void **state)
{
	struct json_object *job;
	uint64_t n;

	(void)state;
	job = ask("POST", "/v1/vms/g1/migrate",
		  "{\"to\":\"hostb\",\"strategy\":\"early\",\"bandwidth_mib\":80,"
		  "\"persistent\":true}",
		  NULL);
	n = json_opt_u64(job, "job", 0);
	assert_string_equal(json_opt_str(job, "state", ""), "running");
	assert_true(g1.has_strategy_once);
	assert_int_equal(g1.strategy_once, STRATEGY_EARLY);
	job = ask("GET", "/v1/jobs/1", NULL, NULL);
	assert_int_equal(json_opt_u64(json_opt(job, "progress"), "remaining_bytes", 0), 40);
	let_go(0);
	job = end_of(n);
	assert_string_equal(json_opt_str(job, "state", ""), "done");
	assert_null(json_opt_str(job, "error", NULL));
	assert_null(json_opt(job, "progress"));
	assert_false(g1.has_strategy_once);
	assert_string_equal(played.uri, "qemu+tcp://hostb/system");
	assert_int_equal(played.mib, 80);
	assert_true(played.persistent);
}

static void test_fails(void **state)
{
	struct json_object *job;

	(void)state;
	job = ask("POST", "/v1/vms/plain/migrate", "{\"to\":\"qemu+ssh://x/system\"}", NULL);
	let_go(-EIO);
	job = end_of(json_opt_u64(job, "job", 0));
	assert_string_equal(json_opt_str(job, "state", ""), "failed");
	assert_string_equal(json_opt_str(job, "error", ""), "migration: refused by the hook");
	assert_string_equal(played.uri, "qemu+ssh://x/system");
	assert_int_equal(
		json_object_array_length(json_opt(ask("GET", "/v1/jobs", NULL, NULL), "jobs")), 2);
}

/* How a job ends that libvirt refuses. */
static void assert_refused_is(const char *to, const char *state)
{
	char *body AUTO_FREE = strf("{\"to\":\"%s\"}", to);
	struct json_object *job = ask("POST", "/v1/vms/plain/migrate", body, NULL);

	let_go(-ENOENT);
	job = end_of(json_opt_u64(job, "job", 0));
	assert_string_equal(json_opt_str(job, "state", ""), state);
	assert_int_equal(!json_opt_str(job, "error", NULL), !strcmp(state, "done"));
}

/* The caller's answer was lost, and it asks again when the VM has gone. */
static void test_asked_again(void **state)
{
	struct json_object *job = ask("POST", "/v1/vms/plain/migrate", "{\"to\":\"there\"}", NULL);

	(void)state;
	let_go(0);
	end_of(json_opt_u64(job, "job", 0));
	played.gone = true;
	assert_refused_is("there", "done");
	assert_refused_is("there", "done");
	assert_refused_is("elsewhere", "failed");
	assert_refused_is("there", "failed"); /* the last request was for another host */
	job = ask("POST", "/v1/vms/plain/migrate", "{\"to\":\"there\"}", NULL);
	let_go(0);
	end_of(json_opt_u64(job, "job", 0));
	played.gone = false; /* the VM is back, and stays */
	assert_refused_is("there", "failed");
}

static void test_its_own_migration(void **state)
{
	struct migration old = {.rec = {.role = ROLE_SOURCE, .id = "old"}},
			 new = {.rec = {.role = ROLE_SOURCE, .id = "new"}};
	struct json_object *job;
	char *path;

	(void)state;
	strcpy(old.rec.vm_uuid, g1.uuid);
	strcpy(new.rec.vm_uuid, g1.uuid);
	d.migrations = &old;
	job = ask("POST", "/v1/vms/g1/migrate", "{\"to\":\"hostb\"}", NULL);
	assert_null(json_opt(job, "migration"));
	path = strf("/v1/jobs/%llu", (unsigned long long)json_opt_u64(job, "job", 0));
	new.next = &old;
	d.migrations = &new;
	job = ask("GET", path, NULL, NULL);
	assert_string_equal(json_opt_str(json_opt(job, "migration"), "id", ""), "new");
	let_go(0);
	end_of(json_opt_u64(job, "job", 0));
	d.migrations = NULL;
	free(path);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *path, *body, *word;
	} bad[] = {
		{"/v1/vms/g1/migrate", "{}", "name of a host"},
		{"/v1/vms/g1/migrate", "{\"to\":\"a b\"}", "\"a b\""},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu+ext:///system?command=/tmp/x\"}",
		 "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu+ext://hostb/system\"}", "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu+ssh://hostb/system?command=/tmp/x\"}",
		 "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu+ssh://-oProxyCommand/system\"}",
		 "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu+unix:///system\"}", "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"qemu:///system\"}", "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"xen+tls://hostb/\"}", "migrate-uri"},
		{"/v1/vms/g1/migrate", "{\"to\":\"hosta\"}", "runs on host hosta already"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"strategy\":\"best\"}",
		 "auto, native, late or early"},
		{"/v1/vms/plain/migrate", "{\"to\":\"b\",\"strategy\":\"late\"}", "no VF"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"bandwidth_mib\":99999999}", "99999999"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"bandwidth_mib\":\"80\"}", "bandwidth_mib"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"dry_run\":\"true\"}", "dry_run"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"persistent\":1}", "persistent"},
		{"/v1/vms/g1/migrate", "{\"to\":\"b\",\"strategy\":1}",
		 "strategy must be a string"},
	};
	unsigned calls = played.calls;
	const char *error;
	struct json_object *job;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ask("POST", bad[i].path, bad[i].body, &error);
		assert_non_null(error);
		if (!strstr(error, bad[i].word))
			fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].body, error, bad[i].word);
	}
	assert_int_equal(played.calls, calls);
	ask("POST", "/v1/vms/g1/migrate", "{\"to\":\"hostb\",\"dry_run\":true}", NULL);
	assert_int_equal(played.calls, calls);
	job = ask("POST", "/v1/vms/g1/migrate", "{\"to\":\"hostb\"}", NULL);
	uint64_t n = json_opt_u64(job, "job", 0);
	ask("POST", "/v1/vms/g1/migrate", "{\"to\":\"hostc\"}", &error);
	assert_non_null(strstr(error, "migrating to hostb already"));
	let_go(0);
	end_of(n);
	ask("GET", "/v1/jobs/999", NULL, &error);
	assert_non_null(error);
	ask("GET", "/v1/jobs/x", NULL, &error);
	assert_non_null(error);
}

static void test_abort(void **state)
{
	const char *error;

	(void)state;
	ask("POST", "/v1/vms/g1/abort", NULL, NULL);
	assert_string_equal(played.aborted, "g1");
	ask("POST", "/v1/vms/idle/abort", NULL, &error);
	assert_string_equal(error, "no job is active");
}

/* Also a daemon that has lived for long keeps a few. */
static void test_old_jobs_go(void **state)
{
	struct json_object *job, *list;
	const char *error;

	(void)state;
	for (int i = 0; i < MOVER_KEPT + 5; i++) {
		job = ask("POST", "/v1/vms/plain/migrate", "{\"to\":\"hostb\"}", NULL);
		let_go(0);
		end_of(json_opt_u64(job, "job", 0));
	}
	list = json_opt(ask("GET", "/v1/jobs", NULL, NULL), "jobs");
	assert_int_equal(json_object_array_length(list), MOVER_KEPT);
	ask("GET", "/v1/jobs/1", NULL, &error);
	assert_non_null(error);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goes_well),   cmocka_unit_test(test_fails),
		cmocka_unit_test(test_asked_again), cmocka_unit_test(test_its_own_migration),
		cmocka_unit_test(test_refusals),    cmocka_unit_test(test_abort),
		cmocka_unit_test(test_old_jobs_go),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
