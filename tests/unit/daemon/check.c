/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE asks the agents of all peers: one request to each host, whatever number of vGUIDs of its
 * VMs the moving one is connected to. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/src.h"

#define CALLS_MAX 8

static struct {
	char url[64], guids[200];
} calls[CALLS_MAX];
static unsigned call_count, located;
static const char *refuses; /* the URL of a host whose agents do not answer */

int __wrap_http_call(const char *base, const char *method, const char *path,
		     struct json_object *body, unsigned timeout_ms, struct json_object **ret_body,
		     char error[static HTTP_ERROR_MAX]);
int __wrap_locate_guid(const struct settings *s, uint64_t guid, struct location *ret_location,
		       char *error);

int __wrap_http_call(const char *base, const char *method, const char *path,
		     struct json_object *body, unsigned timeout_ms, struct json_object **ret_body,
		     char error[static HTTP_ERROR_MAX])
{
	(void)method;
	(void)timeout_ms;
	assert_string_equal(path, "/v1/peer/check");
	assert_true(call_count < CALLS_MAX);
	snprintf(calls[call_count].url, sizeof calls->url, "%s", base);
	snprintf(calls[call_count++].guids, sizeof calls->guids, "%s",
		 json_text(json_opt(body, "guids")));
	*ret_body = NULL;
	if (!str_eq(base, refuses))
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "peer VM p3: no ibvmig-agent answers in it");
	return -EREMOTEIO;
}

/* Odd ones are on host c. */
int __wrap_locate_guid(const struct settings *s, uint64_t guid, struct location *ret_location,
		       char *error)
{
	(void)s;
	located++;
	if (guid > 0xff) {
		snprintf(error, HTTP_ERROR_MAX, "no host has it");
		return -ENOENT;
	}
	*ret_location = (struct location){0};
	snprintf(ret_location->host, sizeof ret_location->host, "%s", guid % 2 ? "c" : "d");
	snprintf(ret_location->url, sizeof ret_location->url, "http://%s:1", guid % 2 ? "c" : "d");
	return 0;
}

static struct migration moving;
static int checked_rc;
static char checked_error[HTTP_ERROR_MAX];

int __wrap_job_order(struct daemon *d, const struct job_order *o);

/* The job runs at once. */
int __wrap_job_order(struct daemon *d, const struct job_order *o)
{
	struct job j = {.d = d, .work = o->work};

	o->run(&j);
	if (!j.rc)
		src_take_peers(&moving, &j);
	checked_rc = j.rc;
	snprintf(checked_error, sizeof checked_error, "%s", j.error);
	o->clear(o->work);
	return 0;
}

static void add_peer(uint64_t guid, const char *host, const char *url)
{
	struct migrate_peer *p = &moving.rec.peers[moving.rec.peer_count++];

	*p = (struct migrate_peer){.guid = guid};
	snprintf(p->host, sizeof p->host, "%s", host);
	snprintf(p->url, sizeof p->url, "%s", url);
}

static void check(void)
{
	static struct daemon d;

	moving.d = &d;
	snprintf(moving.rec.id, sizeof moving.rec.id, "m1");
	call_count = located = 0;
	assert_int_equal(src_check(&moving, false, NULL), STEP_WAIT);
}

static void peers_of_two_hosts(void)
{
	moving.rec.peer_count = 0;
	add_peer(1, "", "");
	add_peer(2, "", "");
	add_peer(3, "", "");
	add_peer(5, "c", "http://c:1"); /* known already */
}

static void test_each_host_is_asked_once(void **state)
{
	(void)state;
	peers_of_two_hosts();
	check();
	assert_int_equal(checked_rc, 0);
	assert_int_equal(located, 3);
	assert_int_equal(call_count, 2);
	assert_string_equal(calls[0].url, "http://c:1");
	assert_string_equal(calls[0].guids, "[\"0x0000000000000001\",\"0x0000000000000003\","
					    "\"0x0000000000000005\"]");
	assert_string_equal(calls[1].url, "http://d:1");
	assert_string_equal(calls[1].guids, "[\"0x0000000000000002\"]");
	assert_int_equal(moving.rec.peer_count, 4);
	for (unsigned i = 0; i < moving.rec.peer_count; i++)
		assert_string_equal(moving.rec.peers[i].host, i == 1 ? "d" : "c");
}

static void test_a_refusal_names_the_host(void **state)
{
	(void)state;
	refuses = "http://d:1";
	peers_of_two_hosts();
	check();
	refuses = NULL;
	assert_int_equal(checked_rc, -EHOSTUNREACH);
	assert_string_equal(checked_error, "host d: peer VM p3: no ibvmig-agent answers in it");
}

static void test_a_peer_that_nobody_has(void **state)
{
	(void)state;
	peers_of_two_hosts();
	add_peer(0x100, "", "");
	check();
	assert_int_equal(checked_rc, -ENOENT);
	assert_non_null(strstr(checked_error, "0x0000000000000100, but no host has it"));
	assert_int_equal(call_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_host_is_asked_once),
		cmocka_unit_test(test_a_refusal_names_the_host),
		cmocka_unit_test(test_a_peer_that_nobody_has),
	};

	return RUN_TESTS(tests);
}
