/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PREPARE asks the agents of all peers: one request to each host, whatever number of vGUIDs of its
 * VMs the moving one is connected to. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
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

static void add_peer(struct json_object *list, uint64_t guid, const char *host, const char *url)
{
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "guid", guid);
	json_set_str(o, "host", host);
	json_set_str(o, "url", url);
	json_object_array_add(list, o);
}

/* Returns the finished job; peers stay in its answer. */
static struct job run(struct json_object *peers)
{
	static struct daemon d;
	struct job j = {.d = &d, .in = json_object_new_object(), .out = json_object_new_object()};

	call_count = located = 0;
	json_set(j.in, "peers", peers);
	json_set_str(j.in, "migration", "m1");
	src_check_run(&j);
	return j;
}

static void end(struct job *j)
{
	json_object_put(j->in);
	json_object_put(j->out);
}

static struct json_object *peers_of_two_hosts(void)
{
	struct json_object *peers = json_object_new_array();

	add_peer(peers, 1, "", "");
	add_peer(peers, 2, "", "");
	add_peer(peers, 3, "", "");
	add_peer(peers, 5, "c", "http://c:1"); /* known already */
	return peers;
}

static void test_each_host_is_asked_once(void **state)
{
	struct job j = run(peers_of_two_hosts());

	(void)state;
	assert_int_equal(j.rc, 0);
	assert_int_equal(located, 3);
	assert_int_equal(call_count, 2);
	assert_string_equal(calls[0].url, "http://c:1");
	assert_string_equal(calls[0].guids, "[\"0x0000000000000001\",\"0x0000000000000003\","
					    "\"0x0000000000000005\"]");
	assert_string_equal(calls[1].url, "http://d:1");
	assert_string_equal(calls[1].guids, "[\"0x0000000000000002\"]");
	assert_int_equal(json_count(json_opt(j.out, "peers")), 4);
	end(&j);
}

static void test_a_refusal_names_the_host(void **state)
{
	struct job j;

	(void)state;
	refuses = "http://d:1";
	j = run(peers_of_two_hosts());
	refuses = NULL;
	assert_int_equal(j.rc, -EHOSTUNREACH);
	assert_string_equal(j.error, "host d: peer VM p3: no ibvmig-agent answers in it");
	end(&j);
}

static void test_a_peer_that_nobody_has(void **state)
{
	struct json_object *peers = peers_of_two_hosts();
	struct job j;

	(void)state;
	add_peer(peers, 0x100, "", "");
	j = run(peers);
	assert_int_equal(j.rc, -ENOENT);
	assert_non_null(strstr(j.error, "0x0000000000000100, but no host has it"));
	assert_int_equal(call_count, 0);
	end(&j);
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
