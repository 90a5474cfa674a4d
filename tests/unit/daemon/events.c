/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The listeners to events: as many as may be, one more, and what each hears. */
#include "tests/unit/tap.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/events.h"
#include "daemon/rest.h"

#define DEADLINE_S 60 /* only a fault takes so long */
#define TEXT_MAX   4096

static sd_event *loop;
static struct events *events;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void get_events(struct http_request *req)
{
	uint64_t since = 0;

	assert_int_equal(parse_u64(http_query(req->exchange, "since"), 0, UINT64_MAX, &since), 0);
	events_wait(events, req->exchange, since);
}

static void get_stream(struct http_request *req)
{
	events_stream(events, req->exchange, 0);
}

static const struct http_route routes[] = {{"GET", "/v1/events", get_events, REST_READ_ONLY},
					   {"GET", "/v1/stream", get_stream, REST_READ_ONLY},
					   {0}};

static int ask_for(const char *path)
{
	char *text AUTO_FREE = strf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static bool has_answer(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* Returns the answer on fd, which is short, as text that stays until the next call. */
static const char *answer_of(int fd)
{
	static char text[TEXT_MAX];
	uint64_t until = now_ms() + DEADLINE_S * 1000;
	ssize_t n;

	while (!has_answer(fd) && now_ms() < until)
		assert_true(sd_event_run(loop, 100000) >= 0);
	assert_true(has_answer(fd));
	n = read(fd, text, sizeof text - 1);
	assert_true(n > 0);
	text[n] = '\0';
	return text;
}

static void publish(const char *name)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "type", name);
	events_publish(events, o);
}

static int ask(uint64_t since)
{
	char *path AUTO_FREE = strf("/v1/events?since=%llu", (unsigned long long)since);

	return ask_for(path);
}

/* The one of n that has an answer, -1: none yet. */
static int answered(const int *fd, int n)
{
	for (int i = 0; i < n; i++)
		if (has_answer(fd[i]))
			return i;
	return -1;
}

/* An answer at once, without an event, would make a client ask again at once, for ever. Which one
 * comes last is the server's matter. */
static void test_one_too_many(void **state)
{
	int fd[EVENTS_POLL_MAX + 1], more;

	(void)state;
	for (int i = 0; i <= EVENTS_POLL_MAX; i++)
		fd[i] = ask(0);
	while ((more = answered(fd, EVENTS_POLL_MAX + 1)) < 0)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
	assert_non_null(strstr(answer_of(fd[more]), " 503 "));
	close(fd[more]);
	fd[more] = fd[EVENTS_POLL_MAX];
	assert_int_equal(answered(fd, EVENTS_POLL_MAX), -1);
	publish("first");
	for (int i = 0; i < EVENTS_POLL_MAX; i++) {
		assert_non_null(strstr(answer_of(fd[i]), "\"type\":\"first\""));
		close(fd[i]);
	}
	more = ask(0);
	assert_non_null(strstr(answer_of(more), "\"next\":1"));
	close(more);
}

/* As many streams as long polls; one that is closed makes room. Each begins with what is kept. */
static void test_streams(void **state)
{
	uint64_t until = now_ms() + DEADLINE_S * 1000;
	int fd[EVENTS_POLL_MAX + 1], more, full = 0;
	bool is_full;

	(void)state;
	for (int i = 0; i <= EVENTS_POLL_MAX; i++)
		fd[i] = ask_for("/v1/stream");
	for (int i = 0; i <= EVENTS_POLL_MAX; i++)
		full += strstr(answer_of(fd[i]), " 503 ") != NULL;
	assert_int_equal(full, 1);
	for (int i = 0; i <= EVENTS_POLL_MAX; i++)
		close(fd[i]);
	do {
		publish("more");
		more = ask_for("/v1/stream");
		is_full = strstr(answer_of(more), " 503 ");
		close(more);
	} while (is_full && now_ms() < until);
	assert_false(is_full);
}

static int setup(void **state)
{
	(void)state;
	log_init("test");
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/ibvmig-events-%d", getpid());
	return loop_new(&loop) || events_new(loop, &events) ||
	       http_server_new(loop, http_listen_unix(address.sun_path, 0600), NULL, routes, NULL,
			       &server);
}

static int teardown(void **state)
{
	(void)state;
	events_free(events);
	http_server_free(server);
	sd_event_unref(loop);
	return unlink(address.sun_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_too_many),
					   cmocka_unit_test(test_streams)};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("events", tests, setup, teardown);
}
