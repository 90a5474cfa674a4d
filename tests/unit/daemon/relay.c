/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ways of messages between guests, and the limits of what one guest can take from the others.
 * Jobs are kept here until a test ends them; ibvmig-sm and the guests are played. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "common/fair.h"
#include "daemon/base/sm.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/rights.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"
#include "daemon/vm/channel.h"

#define RUDE     0x00a1b2fffe000001ull
#define OTHER    0x00a1b2fffe000002ull
#define BIG_TEXT 200000
#define FAR      0x00a1b2fffe100000ull /* from this GUID on nobody is here */

static struct settings settings = {.url = (char *)"https://here"};
static struct daemon d = {
	.settings = &settings,
	.guests = (struct work_pool *)1,
	.relays = (struct work_pool *)2,
};
static struct vm rude = {.d = &d}, other = {.d = &d};

/* Jobs that have been started, oldest first. */
static struct job *jobs[2 * RELAY_ROUTES_MAX];
static unsigned started, ended, calls_to_there;
static unsigned refused[2]; /* messages of rude, and of other */
static unsigned delivered;  /* to guests of this host */
static char answer[64];     /* to who relays to here */
static bool sm_knows;
static unsigned calls_of_other; /* of these */
static bool bars;               /* the other host, its first message */
static bool big;                /* messages have BIG_TEXT bytes */
static unsigned rights_asked;
static unsigned no_memory; /* the next calls of hosts, so many, cannot be started */

int job_order(struct daemon *daemon, const struct job_order *o)
{
	struct job *j = calloc(1, sizeof *j);

	/* An ibvmig-sm that is silent holds no message up whose way is known. */
	assert_ptr_equal(o->pool, o->owner ? d.relays : d.guests);
	if (o->owner && no_memory) {
		no_memory--;
		json_object_put(o->in);
		free(j);
		return -ENOMEM;
	}
	assert_true(j && started < ARRAY_SIZE(jobs));
	*j = (struct job){.d = daemon,
			  .in = o->in ? o->in : json_object_new_object(),
			  .out = json_object_new_object(),
			  .run = o->run,
			  .done = o->done,
			  .owner = o->owner,
			  .serial = o->serial};
	jobs[started++] = j;
	return 0;
}

static void end_job(void)
{
	struct job *j = jobs[ended++];

	j->run(j);
	j->done(j);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
}

static void end_all(void)
{
	while (ended < started)
		end_job();
}

int locate_guid(const struct settings *s, uint64_t guid, struct location *ret, char *error)
{
	(void)s;
	(void)guid;
	if (!sm_knows) {
		snprintf(error, HTTP_ERROR_MAX, "nobody has it");
		return -ENOENT;
	}
	snprintf(ret->url, sizeof ret->url, "https://there");
	return 0;
}

int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body, char error[static HTTP_ERROR_MAX])
{
	(void)method;
	(void)path;
	(void)timeout_ms;
	(void)error;
	assert_string_equal(base, "https://there");
	struct json_object *list = json_opt(body, "messages");

	assert_in_range(strlen(json_text(body)), 1, HTTP_BODY_MAX); /* the host takes no more */
	calls_to_there += (unsigned)json_count(list);
	for (size_t i = 0; i < json_count(list); i++)
		calls_of_other += strstr(json_opt_str(json_object_array_get_idx(list, i), "from",
						      ""),
					 "0002") != NULL;
	*ret_body = json_object_new_object();
	if (bars)
		json_set(*ret_body, "barred", json_object_new_array());
	if (bars)
		json_object_array_add(json_opt(*ret_body, "barred"), json_object_new_uint64(0));
	return 0;
}

int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error)
{
	(void)s;
	(void)path;
	(void)ms;
	(void)ret_answer;
	(void)error;
	json_object_put(body);
	return -ENOENT;
}

void vm_rights_refresh(struct daemon *daemon)
{
	(void)daemon;
	rights_asked++;
}

struct vm *vm_by_guid(struct daemon *daemon, uint64_t guid)
{
	(void)daemon;
	return guid == RUDE ? &rude : guid == OTHER ? &other : NULL;
}

int agent_send_of(struct agent_line *a, uint64_t sender, struct json_object *msg)
{
	(void)a;
	(void)sender;
	json_object_put(msg);
	delivered++;
	return 0;
}

void http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	(void)x;
	snprintf(answer, sizeof answer, "%u %s", status, json_text(body));
	json_object_put(body);
}

void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
{
	(void)x;
	(void)fmt;
	snprintf(answer, sizeof answer, "%u %s", status, code);
}

void vm_channel_relay_failed(struct vm *vm, const char *to, const char *error)
{
	(void)to;
	(void)error;
	refused[vm == &other]++;
}

static char text_of_body[BIG_TEXT + 1], letter = 'A';

static void send_from(struct vm *vm, uint64_t to)
{
	struct json_object *msg AUTO_JSON = json_object_new_object();
	struct ib_gid gid = {IB_GID_PREFIX_LL, vm == &rude ? RUDE : OTHER};
	char text[IB_GID_TEXT];

	ib_gid_format(&gid, text);
	json_set_str(msg, "from", text);
	gid.guid = to;
	ib_gid_format(&gid, text);
	json_set_str(msg, "to", text);
	memset(text_of_body, letter, big ? BIG_TEXT : 4);
	text_of_body[big ? BIG_TEXT : 4] = '\0';
	json_set_str(msg, "body", text_of_body);
	relay_from_guest(d.relay, vm, msg);
}

static int setup(void **state)
{
	(void)state;
	rude.vf_count = other.vf_count = 1;
	rude.vfs[0].want.vguid = RUDE;
	rude.vfs[0].want.pkey = other.vfs[0].want.pkey = 0x8001;
	other.vfs[0].want.vguid = OTHER;
	started = ended = calls_of_other = calls_to_there = delivered = refused[0] = refused[1] = 0;
	sm_knows = false;
	return sd_event_new(&d.loop) < 0 || relay_new(&d, &d.relay);
}

static int teardown(void **state)
{
	(void)state;
	end_all();
	relay_free(TAKE(d.relay));
	d.loop = sd_event_unref(d.loop);
	return 0;
}

static void test_looked_up_once(void **state)
{
	(void)state;
	sm_knows = true;
	for (int i = 0; i < 3; i++)
		send_from(&rude, FAR);
	assert_int_equal(started, 1);
	end_all();
	assert_int_equal(calls_to_there, 3);
	send_from(&other, FAR);
	end_all();
	assert_int_equal(calls_to_there, 4);
	assert_int_equal(refused[0] + refused[1], 0);
}

/* A worker may have to wait for a silent ibvmig-sm, so few look up at once. */
static void test_few_lookups_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		send_from(&rude, FAR + i);
	assert_int_equal(started, RELAY_LOOKUPS_EACH);
	end_job();
	assert_int_equal(started, RELAY_LOOKUPS_EACH + 1);
	send_from(&other, FAR + 200); /* at once, before all that waits */
	assert_int_equal(started, RELAY_LOOKUPS_EACH + 2);
	end_all();
	assert_int_equal(started, 101);
	assert_int_equal(refused[0], 100);
	assert_int_equal(refused[1], 1);
}

/* A guest fills the way to a host: it is refused what goes beyond its own share, and a message of
 * another is in the next call. */
static void test_floods_itself(void **state)
{
	unsigned before;

	(void)state;
	sm_knows = true;
	relay_set_route(d.relay, FAR, "https://there");
	for (unsigned i = 0; i < 2 * RELAY_QUEUE_MAX; i++)
		send_from(&rude, FAR);
	assert_int_equal(refused[0], RELAY_QUEUE_MAX);
	send_from(&other, FAR);
	assert_int_equal(refused[1], 0);
	end_job();
	before = calls_to_there;
	assert_int_equal(before, 1);
	end_job();
	assert_true(calls_of_other);
	end_all();
	assert_int_equal(calls_to_there, RELAY_QUEUE_MAX + 1);
	assert_int_equal(refused[1], 0);
}

/* Large messages to many GIDs that nobody knows yet: the bytes are counted, wherever they wait. */
static void test_bytes_are_counted(void **state)
{
	unsigned sent = RELAY_QUEUE_BYTES / BIG_TEXT;

	(void)state;
	big = true;
	for (unsigned i = 0; i < 100; i++)
		send_from(&rude, FAR + i % 10);
	assert_in_range(refused[0], 100 - sent, 100 - sent + 1);
	send_from(&other, FAR);
	assert_int_equal(refused[1], 0);
	end_all();
	refused[0] = 0;
	send_from(&rude, FAR); /* they are gone */
	assert_int_equal(refused[0], 0);
	end_all();
	big = false;
}

/* Who has had the least goes next, in the order of his own. */
static void test_turns(void **state)
{
	static const uint64_t keys[] = {1, 1, 1, 2, 3};
	static const size_t bytes[] = {100, 100, 100, 30, 300}, order[] = {4, 3, 0, 1};
	struct fair_item items[ARRAY_SIZE(keys)];
	struct fair f = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		assert_int_equal(fair_push(&f, keys[i], &items[i], bytes[i]), 0);
	assert_int_equal(fair_bytes(&f, 1), 300);
	assert_int_equal(fair_count(&f, 1), 3);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		assert_ptr_equal(fair_pop(&f), &items[order[i]]);
	/* A lane that comes has no arrears to be made good. */
	assert_int_equal(fair_push(&f, 2, &items[3], 30), 0);
	assert_ptr_equal(fair_peek(&f), &items[3]);
	assert_ptr_equal(fair_pop(&f), &items[3]);
	while (fair_pop(&f))
		;
	assert_int_equal(f.bytes, 0);
	assert_null(f.lanes);
}

/* Two lanes never have more than one item, and get the next one as soon as that has gone: a lane
 * with many has every third turn all the same. */
static void test_one_at_a_time(void **state)
{
	struct fair_item patient[3], hasty[2];
	struct fair f = {0};
	unsigned served = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(patient); i++)
		assert_int_equal(fair_push(&f, 9, &patient[i], 100), 0);
	for (uint64_t i = 0; i < ARRAY_SIZE(hasty); i++)
		assert_int_equal(fair_push(&f, i, &hasty[i], 100), 0);
	for (unsigned turn = 0; turn < 3 * ARRAY_SIZE(patient); turn++) {
		struct fair_item *item = fair_pop(&f);

		if (item == &hasty[0] || item == &hasty[1])
			assert_int_equal(fair_push(&f, item == &hasty[1], item, 100), 0);
		else
			assert_ptr_equal(item, &patient[served++]);
	}
	assert_int_equal(served, ARRAY_SIZE(patient));
	while (fair_pop(&f))
		;
	assert_null(f.lanes);
}

/* A message is counted as it will be written in a call: with P_Keys, and no text that grows. */
static void test_call_fits(void **state)
{
	struct json_object *told = json_object_new_object(), *one = json_object_new_object();
	struct json_object *list = json_object_new_array(), *pkeys = json_object_new_array();

	(void)state;
	for (unsigned i = 0; i < 200; i++)
		json_object_array_add(pkeys, json_object_new_string("0x8001"));
	json_set_guid(one, "guid", RUDE);
	json_set(one, "pkeys", pkeys);
	json_object_array_add(list, one);
	json_set(told, "guids", list);
	d.sm.partitions = told;
	sm_knows = true;
	for (unsigned i = 0; i < RELAY_QUEUE_MAX; i++)
		send_from(&rude, FAR);
	assert_int_equal(refused[0], 0);
	big = true;
	letter = '\1';
	send_from(&rude, FAR);
	assert_int_equal(refused[0], 1);
	letter = 'A';
	big = false;
	end_all();
	assert_int_equal(calls_to_there, RELAY_QUEUE_MAX);
	json_object_put(TAKE(d.sm.partitions));
}

/* A guest asks for GUIDs that nobody has: the others are served. */
static void test_leaves_room(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * RELAY_ROUTES_MAX; i++)
		send_from(&rude, FAR + i);
	assert_int_equal(refused[0], 2 * RELAY_ROUTES_MAX - RELAY_ASKED_MAX);
	sm_knows = true;
	send_from(&other, FAR - 1);
	end_all();
	assert_int_equal(refused[1], 0);
	assert_int_equal(calls_to_there, RELAY_ASKED_MAX + 1);
}

/* More GUIDs than there is room for, one after the other: what was asked for last is kept. */
static void test_forgets_the_oldest(void **state)
{
	unsigned before;

	(void)state;
	sm_knows = true;
	send_from(&other, FAR);
	end_all();
	for (unsigned i = 1; i <= RELAY_ROUTES_MAX + 1; i++) {
		send_from(&rude, FAR + i);
		end_all();
		send_from(&other, FAR); /* in use all the time */
		end_all();
		started = ended = 0;
	}
	assert_int_equal(refused[0] + refused[1], 0);
	send_from(&other, FAR);
	assert_ptr_equal(jobs[0]->owner != NULL, true); /* a call to its host, no look-up */
	before = started;
	end_all();
	assert_int_equal(started, before);
	send_from(&rude, FAR + 1);
	assert_null(jobs[started - 1]->owner); /* looked up anew */
}

/* A host whose answer was lost sends them once more: they are passed on twice, with one answer. */
static void test_receives_twice(void **state)
{
	const char *text = "{\"messages\":[{\"from\":\"fe80::2\",\"body\":\"AAAA\","
			   "\"to\":\"fe80::a1:b2ff:fe00:2\"},{\"from\":\"fe80::2\","
			   "\"to\":\"fe80::3\",\"body\":\"AAAA\"},{\"to\":\"fe80::3\"}]}";
	struct json_object *body AUTO_JSON = NULL;
	struct http_request req = {.user = &d};

	(void)state;
	assert_int_equal(json_parse(text, strlen(text), &body), 0);
	req.body = body;
	other.agent = (struct agent_line *)1;
	for (unsigned i = 1; i <= 2; i++) {
		relay_receive(&req);
		assert_string_equal(answer, "200 {\"refused\":[1,2]}");
		assert_int_equal(delivered, i);
	}
	other.agent = NULL;
	req.body = NULL;
	relay_receive(&req);
	assert_string_equal(answer, "400 bad-field");
}

/* Sends a message to OTHER, which is here, and one of another host whose VM has these P_Keys.
 * 0: neither was delivered, 2: both were. */
static unsigned heard(uint16_t pkey, const char *theirs)
{
	char *text AUTO_FREE = strf(
		"{\"messages\":[{\"from\":\"fe80::2\",\"body\":\"AAAA\",\"pkeys\":%s,"
		"\"to\":\"fe80::a1:b2ff:fe00:2\"}]}",
		theirs);
	struct json_object *body AUTO_JSON = NULL;
	struct http_request req = {.user = &d};

	assert_int_equal(json_parse(text, strlen(text), &body), 0);
	req.body = body;
	delivered = refused[0] = 0;
	other.agent = (struct agent_line *)1;
	rude.vfs[0].want.pkey = pkey;
	send_from(&rude, OTHER);
	assert_int_equal(refused[0], !delivered);
	relay_receive(&req);
	other.agent = NULL;
	assert_int_equal(strstr(answer, "barred") != NULL, delivered != 2);
	return delivered;
}

/* A VM hears only of who can reach its port: by its own P_Key, or those that ibvmig-sm tells. */
static void test_partitions(void **state)
{
	const char *told = "{\"guids\":[{\"guid\":\"0x00a1b2fffe000002\","
			   "\"pkeys\":[\"0x0003\",\"0x8004\"]}]}";

	(void)state;
	assert_int_equal(heard(0x8001, "[\"0x8001\"]"), 2);
	assert_int_equal(heard(0x0001, "[\"0x8002\",\"0x0001\"]"), 2);
	rights_asked = 0;
	assert_int_equal(heard(0x8002, "[\"0x8002\"]"), 0);
	assert_int_equal(rights_asked, 2);
	assert_int_equal(heard(0x8002, "[]"), 0);
	assert_int_equal(heard(0x8002, "[7,null,\"0x0000\"]"), 0);
	assert_int_equal(json_parse(told, strlen(told), &d.sm.partitions), 0);
	assert_int_equal(heard(0x8003, "[\"0x8002\",\"0x8003\"]"), 2);
	assert_int_equal(heard(0x0003, "[\"0x0003\"]"), 0); /* both are limited */
	assert_int_equal(heard(0x0004, "[\"0x0004\"]"), 2);
	other.vfs[0].want.pkey = 0x0001;
	assert_int_equal(heard(0x0001, "[\"0x0001\"]"), 0);
	json_object_put(TAKE(d.sm.partitions));
}

/* Another host bars a message: the P_Keys that went along are asked for anew. */
static void test_barred_there(void **state)
{
	(void)state;
	sm_knows = bars = true;
	rights_asked = 0;
	send_from(&rude, FAR);
	end_all();
	bars = false;
	assert_int_equal(refused[0], 1);
	assert_int_equal(rights_asked, 1);
}

#define DEADLINE_MS 20000 /* only a fault takes so long */

static void await_jobs(unsigned more)
{
	uint64_t give_up_ms = now_ms() + DEADLINE_MS;
	unsigned before = started;

	while (started < before + more && !refused[0] && now_ms() < give_up_ms)
		assert_true(sd_event_run(d.loop, 100000) >= 0);
}

/* No memory for the call of the host: its messages are sent later, and not lost behind its back. */
static void test_no_memory_for_a_call(void **state)
{
	(void)state;
	sm_knows = true;
	no_memory = 2;
	send_from(&rude, FAR);
	end_all(); /* the look-up */
	send_from(&rude, FAR);
	assert_int_equal(calls_to_there, 0);
	await_jobs(1);
	assert_int_equal(no_memory, 0);
	end_all();
	assert_int_equal(calls_to_there, 2);
	assert_int_equal(refused[0], 0);
	no_memory = UINT_MAX;
	send_from(&rude, FAR);
	await_jobs(1);
	no_memory = 0;
	assert_int_equal(refused[0], 1);
	send_from(&rude, FAR);
	end_all();
	assert_int_equal(calls_to_there, 3);
}

int main(void)
{
	const struct CMUnitTest relay_tests[] = {
		cmocka_unit_test_setup_teardown(test_looked_up_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few_lookups_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leaves_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_forgets_the_oldest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_floods_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bytes_are_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_call_fits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_partitions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_barred_there, setup, teardown),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test_setup_teardown(test_receives_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_memory_for_a_call, setup, teardown),
	};

	return RUN_TESTS(relay_tests);
}
