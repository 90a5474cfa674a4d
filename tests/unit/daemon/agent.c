/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The host's end of a guest channel against a guest that this test plays. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/vm/agent.h"

#define DEADLINE_MS 60000 /* only a fault takes so long */

static char dir[] = "/tmp/ibvmig-agent-XXXXXX";
static char path[64];

/* Both ends run in one thread: the guest's socket is read between turns of the loop. */
struct bench {
	sd_event *loop;
	struct agent_line *agent;
	int listen_fd, guest_fd;
	struct frame_parser guest_parser;
	struct json_object *last; /* owned: what the guest got last */
	unsigned hellos, messages, relayed, done;
	unsigned before_query, before_other; /* relayed messages that came before these */
	int rc;
	char error[256];
};

static struct json_object *on_hello(void *arg)
{
	(void)arg;
	return json_object_new_object();
}

static void on_changed(void *arg, enum agent_state s)
{
	(void)arg;
	(void)s;
}

static void on_message(void *arg, struct json_object *msg)
{
	struct bench *b = arg;

	(void)msg;
	b->messages++;
}

static const struct agent_ops ops = {on_hello, on_changed, on_message};

static void on_guest(void *arg, struct json_object *msg)
{
	struct bench *b = arg;

	json_object_put(b->last);
	b->last = json_object_get(msg);
	b->hellos += str_eq(json_opt_str(msg, "op", ""), "hello");
	if (str_eq(json_opt_str(msg, "op", ""), "query"))
		b->before_query = b->relayed;
	if (str_eq(json_opt_str(msg, "body", ""), "of the other"))
		b->before_other = b->relayed;
	b->relayed += str_eq(json_opt_str(msg, "op", ""), "relay");
}

static struct json_object *relay_of(const char *text)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", "relay");
	json_set_str(msg, "body", text);
	return msg;
}

static void turn(struct bench *b)
{
	char data[65536];
	ssize_t n;

	sd_event_run(b->loop, 10000);
	if (b->guest_fd < 0)
		b->guest_fd = accept4(b->listen_fd, NULL, NULL, SOCK_NONBLOCK);
	while (b->guest_fd >= 0 && (n = read(b->guest_fd, data, sizeof data)) > 0)
		frame_feed(&b->guest_parser, data, (size_t)n, on_guest, b);
}

#define UNTIL(b, condition)                                                                        \
	do {                                                                                       \
		uint64_t end_ms = now_ms() + DEADLINE_MS;                                          \
		while (!(condition) && now_ms() < end_ms)                                          \
			turn(b);                                                                   \
		assert_true(condition);                                                            \
	} while (0)

static void guest_write(struct bench *b, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = send(b->guest_fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		} else {
			assert_int_equal(errno, EAGAIN);
			turn(b);
		}
	}
}

static void guest_send(struct bench *b, const char *text)
{
	char *frame AUTO_FREE = strf("%08zx\n%s", strlen(text), text);

	guest_write(b, frame, strlen(frame));
}

static void guest_answer(struct bench *b, const char *rest)
{
	char *text AUTO_FREE = strf("{\"id\":%llu,%s}",
				    (unsigned long long)json_opt_u64(b->last, "id", 0), rest);

	guest_send(b, text);
}

static void on_done(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct bench *b = arg;

	(void)answer;
	b->done++;
	b->rc = rc;
	snprintf(b->error, sizeof b->error, "%s", error);
}

static void ask(struct bench *b, unsigned deadline_ms)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", "query");
	b->done = 0;
	json_object_put(TAKE(b->last));
	agent_request(b->agent, msg, deadline_ms, on_done, b);
}

static void come_up(struct bench *b)
{
	UNTIL(b, b->hellos > 0);
	guest_answer(b, "\"ok\":true,\"agent\":\"9.9\",\"qps\":3");
	UNTIL(b, agent_state(b->agent) == AGENT_UP);
}

static int setup(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct bench *b = calloc(1, sizeof *b);

	snprintf(path, sizeof path, "%s/port", dir);
	unlink(path);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	b->guest_fd = -1;
	b->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(b->listen_fd, (struct sockaddr *)&a, sizeof a) || listen(b->listen_fd, 1) ||
	    sd_event_new(&b->loop) < 0)
		return -1;
	*state = b;
	return agent_new(b->loop, "g1", path, false, &ops, b, &b->agent);
}

static int teardown(void **state)
{
	struct bench *b = *state;

	agent_free(b->agent);
	sd_event_unref(b->loop);
	close(b->listen_fd);
	if (b->guest_fd >= 0)
		close(b->guest_fd);
	frame_parser_reset(&b->guest_parser);
	json_object_put(b->last);
	free(b);
	return unlink(path);
}

static void test_hello_and_requests(void **state)
{
	struct bench *b = *state;

	come_up(b);
	assert_int_equal(json_opt_u64(agent_hello(b->agent), "qps", 0), 3);
	ask(b, DEADLINE_MS);
	UNTIL(b, str_eq(json_opt_str(b->last, "op", ""), "query"));
	guest_answer(b, "\"ok\":true");
	UNTIL(b, b->done);
	assert_int_equal(b->rc, 0);
	ask(b, DEADLINE_MS);
	UNTIL(b, str_eq(json_opt_str(b->last, "op", ""), "query"));
	guest_answer(b, "\"ok\":false,\"error\":\"no device\"");
	UNTIL(b, b->done);
	assert_int_equal(b->rc, -EREMOTEIO);
	assert_string_equal(b->error, "no device");
}

/* The guest's kernel drops a hello that comes before it knows of the host, so the host repeats
 * it. */
static void test_hello_is_repeated(void **state)
{
	struct bench *b = *state;

	UNTIL(b, b->hellos >= 3);
	guest_answer(b, "\"ok\":true");
	UNTIL(b, agent_state(b->agent) == AGENT_UP);
}

/* As of a channel in a deep folder: the same one, by a path that no socket's address holds. */
static void test_path_longer_than_an_address(void **state)
{
	struct bench *b = *state;
	char *deep AUTO_FREE = strf("%s%0*d/port", dir, 120, 0);

	for (char *at = deep + strlen(dir); *at == '0'; at += 2)
		memcpy(at, "/.", 2);
	agent_free(TAKE(b->agent));
	assert_int_equal(agent_new(b->loop, "g1", deep, false, &ops, b, &b->agent), 0);
	come_up(b);
}

static void test_request_waits_for_the_agent(void **state)
{
	struct bench *b = *state;

	ask(b, DEADLINE_MS);
	come_up(b);
	UNTIL(b, str_eq(json_opt_str(b->last, "op", ""), "query"));
	guest_answer(b, "\"ok\":true");
	UNTIL(b, b->done);
	assert_int_equal(b->rc, 0);
}

static void test_deadlines_and_lost_connections(void **state)
{
	struct bench *b = *state;

	ask(b, 50);
	UNTIL(b, b->done);
	assert_int_equal(b->rc, -ETIMEDOUT);
	assert_non_null(strstr(b->error, "start ibvmig-agent"));
	come_up(b);
	ask(b, DEADLINE_MS);
	UNTIL(b, str_eq(json_opt_str(b->last, "op", ""), "query"));
	close(b->guest_fd);
	b->guest_fd = -1;
	b->hellos = 0;
	UNTIL(b, b->done);
	assert_int_equal(b->rc, -ENOTCONN);
	come_up(b); /* reconnected by itself */
}

static long resident_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static struct json_object *status(struct bench *b)
{
	struct printbuf *text = printbuf_new();

	agent_write_status(text, NULL, b->agent);
	return json_read_back(text);
}

static void test_garbage_is_dropped(void **state)
{
	struct bench *b = *state;
	static char junk[1 << 20];
	unsigned seed = 1;

	come_up(b);
	for (size_t i = 0; i < sizeof junk; i++)
		junk[i] = (char)rand_r(&seed);
	long before = resident_kib();
	for (int i = 0; i < 64; i++)
		guest_write(b, junk, sizeof junk);
	guest_write(b, (char[]){(char)FRAME_RESET}, 1);
	ask(b, DEADLINE_MS);
	UNTIL(b, str_eq(json_opt_str(b->last, "op", ""), "query"));
	guest_answer(b, "\"ok\":true");
	UNTIL(b, b->done);
	assert_int_equal(b->rc, 0);
	assert_true(resident_kib() - before < 8192);
	struct json_object *s AUTO_JSON = status(b);
	assert_true(json_opt_u64(s, "dropped_bytes", 0) > 30u << 20);
}

/* A guest that says too much is read as fast as it may speak, and nothing of it is lost. */
static void test_floods_are_limited(void **state)
{
	struct bench *b = *state;
	const unsigned all = 2 * AGENT_FRAMES_PER_S;
	uint64_t start_ms;

	come_up(b);
	start_ms = now_ms();
	for (unsigned i = 0; i < all; i++)
		guest_send(b, "{\"op\":\"log\"}");
	UNTIL(b, b->messages == all);
	assert_true(now_ms() - start_ms > 500);
	struct json_object *s AUTO_JSON = status(b);
	assert_true(json_opt_u64(s, "pauses", 0) > 0);
}

/* A guest does not read what others send it: each of them has its own share of the room, and what
 * the host itself says has its own. */
static void test_others_do_not_fill_it(void **state)
{
	struct bench *b = *state;
	static char text[100001];
	unsigned taken = 0;

	come_up(b);
	memset(text, 'A', sizeof text - 1);
	while (!agent_send_of(b->agent, 1, relay_of(text)))
		taken++;
	assert_in_range(taken, AGENT_SENDER_MAX / sizeof text - 1,
			2 * AGENT_SENDER_MAX / sizeof text);
	assert_int_equal(agent_send_of(b->agent, 2, relay_of("of the other")), 0);
	ask(b, DEADLINE_MS);
	UNTIL(b, b->relayed == taken + 1);
	/* The kernel had some of the first one's already. */
	assert_in_range(b->before_query, 0, taken - 1);
	assert_in_range(b->before_other, b->before_query, taken - 1);
}

/* Nothing of a guest counts before it has answered hello. */
static void test_silent_before_hello(void **state)
{
	struct bench *b = *state;

	UNTIL(b, b->hellos > 0);
	guest_send(b, "{\"op\":\"log\",\"text\":\"x\"}");
	come_up(b);
	assert_int_equal(b->messages, 0);
	guest_send(b, "{\"op\":\"log\",\"text\":\"x\"}");
	UNTIL(b, b->messages == 1);
}

static void test_guest_that_does_not_read(void **state)
{
	struct bench *b = *state;
	struct json_object *msg;
	int rc = 0;
	char *text AUTO_FREE = malloc(100001);

	come_up(b);
	memset(text, 'x', 100000);
	text[100000] = '\0';
	for (int i = 0; i < 200 && !rc; i++) {
		msg = json_object_new_object();
		json_set_str(msg, "op", text);
		rc = agent_send(b->agent, msg);
	}
	assert_int_equal(rc, -ENOBUFS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hello_and_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hello_is_repeated, setup, teardown),
		cmocka_unit_test_setup_teardown(test_path_longer_than_an_address, setup, teardown),
		cmocka_unit_test_setup_teardown(test_request_waits_for_the_agent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deadlines_and_lost_connections, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_garbage_is_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_floods_are_limited, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others_do_not_fill_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent_before_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(test_guest_that_does_not_read, setup, teardown),
	};
	int rc;

	log_set_level(LOG_ERROR);
	if (!mkdtemp(dir))
		return 1;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rc;
}
