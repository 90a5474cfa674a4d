/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry's hosts and VFs against what the hosts say. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"
#include "sm-helper/watch/hosts.h"

static unsigned calls;
static const char *answer; /* NULL: silence */

int __wrap_http_call(const char *url, const char *method, const char *path,
		     struct json_object *body, unsigned timeout_ms, struct json_object **ret_answer,
		     char error[static HTTP_ERROR_MAX]);

int __wrap_http_call(const char *url, const char *method, const char *path,
		     struct json_object *body, unsigned timeout_ms, struct json_object **ret_answer,
		     char error[static HTTP_ERROR_MAX])
{
	(void)body;
	(void)error;
	(void)timeout_ms;
	calls++;
	assert_string_equal(url, "http://a:1");
	assert_string_equal(method, "GET");
	assert_string_equal(path, "/v1/status");
	return answer ? json_parse(answer, strlen(answer), ret_answer) : -ETIMEDOUT;
}

#define VFS(host, name, parked, more)                                                              \
	"{\"host\":\"" host                                                                        \
	"\",\"vfs\":[{\"name\":\"vf9\",\"parked_guid\":\"0x0000000000001009\"" more                \
	"},{\"name\":\"" name "\",\"parked_guid\":\"" parked "\""
#define PARKED   "0x0000000000001001"
#define OURS     ",\"vguid\":\"0x0000000000005001\""
#define ANOTHERS ",\"vguid\":\"0x0000000000005003\""
#define END      "}]}"

static struct reg_entry entry;
static char text[HOSTS_TEXT_MAX];

static int setup(void **state)
{
	(void)state;
	calls = 0;
	*text = '\0';
	entry = (struct reg_entry){
		.vguid = 0x5001,
		.since_ms = 1,
		.at = {.host = "a", .url = "http://a:1", .vf = "vf1", .parked_guid = 0x1001}};
	return 0;
}

static enum hosts_verdict ask(const char *said)
{
	struct hosts h = {0};
	enum hosts_verdict v;

	answer = said;
	hosts_ask(&h, &entry);
	v = hosts_check(&h, &entry, text);
	hosts_free(&h);
	return v;
}

static void test_verdicts(void **state)
{
	(void)state;
	assert_int_equal(ask(VFS("a", "vf1", PARKED, ANOTHERS) OURS END), HOSTS_AGREE);
	assert_int_equal(ask(VFS("a", "vf1", PARKED, OURS) END), HOSTS_DIFFER);
	assert_string_equal(text, "host a has the vGUID on VF vf9, not on vf1");
	assert_int_equal(ask(VFS("a", "vf1", PARKED, "") ANOTHERS END), HOSTS_DIFFER);
	assert_string_equal(text, "host a does not use VF vf1 for the vGUID");
	assert_int_equal(ask(VFS("a", "vf7", PARKED, "") OURS END), HOSTS_DIFFER);
	assert_string_equal(text, "the VF with parked GUID 0x0000000000001001 is vf7 at host a, "
				  "not vf1");
	assert_int_equal(ask(VFS("a", "vf1", "0x0000000000001003", "") OURS END), HOSTS_DIFFER);
	assert_non_null(strstr(text, "host a has no VF with the parked GUID 0x0000000000001001"));
}

/* An unknown value is no fault. */
static void test_unknown(void **state)
{
	const char *right = VFS("a", "vf1", PARKED, "") END;

	(void)state;
	assert_int_equal(ask(NULL), HOSTS_UNKNOWN);
	assert_int_equal(ask(VFS("b", "vf1", PARKED, "") END), HOSTS_UNKNOWN);
	assert_int_equal(ask("{\"host\":\"a\",\"vfs\":{}}"), HOSTS_UNKNOWN);
	entry.intent = REG_MOVE;
	assert_int_equal(ask(right), HOSTS_UNKNOWN);
	entry.intent = REG_NONE;
	entry.since_ms = wall_ms() + 1000; /* moved after the host was asked */
	assert_int_equal(ask(right), HOSTS_UNKNOWN);
	entry.since_ms = 1;
	assert_int_equal(ask(right), HOSTS_DIFFER);
	*entry.at.url = '\0';
	calls = 0;
	assert_int_equal(ask(right), HOSTS_UNKNOWN);
	assert_int_equal(calls, 0);
}

/* A host is asked once, whatever it says, and none when the time for all is over. */
static void test_once(void **state)
{
	struct hosts h = {0};

	(void)state;
	answer = NULL;
	for (unsigned i = 0; i < 3; i++)
		hosts_ask(&h, &entry);
	assert_int_equal(calls, 1);
	strcpy(entry.at.host, "b");
	h.since_ms = now_ms() - 10001;
	hosts_ask(&h, &entry);
	assert_int_equal(calls, 1);
	hosts_free(&h);
}

int main(void)
{
	const struct CMUnitTest sm_hosts[] = {
		cmocka_unit_test_setup(test_verdicts, setup),
		cmocka_unit_test_setup(test_unknown, setup),
		cmocka_unit_test_setup(test_once, setup),
	};

	return RUN_TESTS(sm_hosts);
}
