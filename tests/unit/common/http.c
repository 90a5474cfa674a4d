/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A real server and real clients over a socket: at once, later, and wrong. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/http/client.h"
#include "common/http/private.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"

#define CALL_MS 60000 /* only a fault takes so long */

static sd_event *loop;
static struct work_pool *pool;
static struct http_exchange *parked;
static struct loop_timer *release;
static char base[128];

static void on_echo(struct http_request *req)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "param", req->param);
	json_set_str(o, "q", http_query(req->exchange, "q"));
	json_set_u64(o, "n", json_opt_u64(req->body, "n", 0));
	json_set_u64(o, "roles", req->roles);
	http_reply(req->exchange, 200, o);
}

/* A connection closes after less time here than in use, of which it tells. */
static void on_idle(struct http_request *req)
{
	struct MHD_Connection *conn = req->exchange->conn;
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "s",
		     MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_TIMEOUT)
			     ->connection_timeout);
	assert_int_equal(MHD_set_connection_option(conn, MHD_CONNECTION_OPTION_TIMEOUT, 1u),
			 MHD_YES);
	http_reply(req->exchange, 200, o);
}

static void on_park(struct http_request *req)
{
	parked = req->exchange;
	loop_timer_arm(release, 100);
}

/* A stream: "one" at once, more when the test says so. */
static struct {
	struct http_stream *stream;
	bool gone;
} watched;

static void on_gone(void *arg)
{
	(void)arg;
	watched.stream = NULL;
	watched.gone = true;
}

static void on_stream(struct http_request *req)
{
	watched.gone = false;
	watched.stream = http_stream_start(req->exchange, "text/event-stream", on_gone, NULL);
	http_stream_write(watched.stream, "one\n");
}

static void on_text(struct http_request *req)
{
	http_reply_text(req->exchange, 200, "text/plain", strdup("plain\n"));
}

/* The last caller; nobody may ask for what is secret. */
static struct http_who asked;

static unsigned roles(const struct http_who *who, void *user)
{
	(void)user;
	asked = *who;
	return REST_READ_ONLY;
}

static const struct http_route routes[] = {
	{"POST", "/v1/echo/*", on_echo, REST_READ_ONLY},
	{"GET", "/v1/stream", on_stream, REST_READ_ONLY},
	{"GET", "/v1/text", on_text, REST_READ_ONLY},
	{"GET", "/v1/idle", on_idle, REST_READ_ONLY},
	{"GET", "/v1/secret", on_text, REST_ROOT},
	{"GET", "/v1/park", on_park, REST_READ_ONLY},
	{0},
};

struct call {
	const char *method, *path, *text;
	int rc;
	char error[HTTP_ERROR_MAX];
	struct json_object *answer; /* owned */
	unsigned *left;
};

static void run_call(void *arg)
{
	struct call *c = arg;
	struct json_object *body AUTO_JSON = NULL;

	if (c->text)
		json_parse(c->text, strlen(c->text), &body);
	c->rc = http_call(base, c->method, c->path, body, CALL_MS, &c->answer, c->error);
}

static void call_done(void *arg)
{
	struct call *c = arg;

	--*c->left;
}

static void run_calls(struct call *calls, unsigned n)
{
	unsigned left = n;

	for (unsigned i = 0; i < n; i++) {
		calls[i].left = &left;
		assert_int_equal(work_submit(pool, run_call, call_done, &calls[i]), 0);
	}
	while (left)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
}

static int setup(void **state)
{
	struct http_server *server;
	char path[100];

	http_client_init();
	snprintf(path, sizeof path, "/tmp/ibvmig-http-%d", getpid());
	snprintf(base, sizeof base, "unix:%s", path);
	if (loop_new(&loop) || work_pool_new(loop, 4, &pool) ||
	    http_server_new(loop, http_listen_unix(path, 0600), NULL, routes, NULL, &server))
		return -1;
	*state = server;
	return 0;
}

static int teardown(void **state)
{
	work_pool_free(pool);
	http_server_free(*state);
	sd_event_unref(loop);
	unlink(base + 5);
	return 0;
}

static bool no_memory; /* for the server, in the loop's thread: no body grows */
static pthread_t loop_thread;

void *__real_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);

void *__wrap_realloc(void *at, size_t bytes)
{
	return no_memory && pthread_equal(pthread_self(), loop_thread) ? NULL
								       : __real_realloc(at, bytes);
}

/* Half a body must not be taken for the whole, nor for none. */
static void test_no_memory_for_a_body(void **state)
{
	struct call c[] = {{"POST", "/v1/echo/abc", "{\"n\":5}", .rc = 0},
			   {"POST", "/v1/echo/abc", "{\"n\":5}", .rc = -1}};

	(void)state;
	loop_thread = pthread_self();
	no_memory = true;
	run_calls(&c[0], 1);
	no_memory = false;
	assert_int_equal(c[0].rc, -EREMOTEIO);
	assert_string_equal(c[0].error, "out of memory");
	run_calls(&c[1], 1);
	assert_int_equal(c[1].rc, 0);
	assert_int_equal(json_opt_u64(c[1].answer, "n", 0), 5);
	json_object_put(c[1].answer);
}

static void test_echo(void **state)
{
	struct call c = {"POST", "/v1/echo/abc?q=x%20y", "{\"n\":5}", .rc = -1};

	(void)state;
	run_calls(&c, 1);
	assert_int_equal(c.rc, 0);
	assert_string_equal(json_opt_str(c.answer, "param", ""), "abc");
	assert_string_equal(json_opt_str(c.answer, "q", ""), "x y");
	assert_int_equal(json_opt_u64(c.answer, "n", 0), 5);
	json_object_put(c.answer);
}

/* The name has one byte more than a name in a path may have, and the other is as long as it may
 * be. */
static void test_long_name(void **state)
{
	static const char before[] = "/v1/echo/";
	char path[sizeof before + HTTP_PARAM_MAX];
	struct call c = {"POST", path, "{\"n\":5}", .rc = -1};

	(void)state;
	memset(path, 'x', sizeof path - 1);
	memcpy(path, before, sizeof before - 1);
	path[sizeof path - 1] = '\0';
	run_calls(&c, 1);
	assert_int_equal(c.rc, -EREMOTEIO);
	assert_non_null(strstr(c.error, "has 256 bytes; at most 255 are allowed"));

	path[sizeof path - 2] = '\0';
	c.rc = -1;
	run_calls(&c, 1);
	assert_int_equal(c.rc, 0);
	assert_string_equal(json_opt_str(c.answer, "param", ""), path + sizeof before - 1);
	json_object_put(c.answer);
}

static void release_parked(void *arg)
{
	(void)arg;
	http_fail(parked, 409, "conflict", "parked until now");
}

static void test_answered_later(void **state)
{
	struct call c = {"GET", "/v1/park", NULL, .rc = 0};

	(void)state;
	assert_int_equal(loop_timer_new(loop, release_parked, NULL, &release), 0);
	run_calls(&c, 1);
	loop_timer_free(release);
	assert_int_equal(c.rc, -EREMOTEIO);
	assert_string_equal(c.error, "parked until now");
}

static void test_wrong_calls(void **state)
{
	struct call c[] = {
		{"GET", "/v1/nothing", NULL, .rc = 0},
		{"GET", "/v1/echo/x", NULL, .rc = 0},
		{"POST", "/v1/echo/", NULL, .rc = 0},
		{"POST", "/v1/echo/a/b", NULL, .rc = 0},
	};

	(void)state;
	run_calls(c, ARRAY_SIZE(c));
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		assert_int_equal(c[i].rc, -EREMOTEIO);
	assert_non_null(strstr(c[0].error, "has no /v1/nothing: another version of ibvmig runs "));
	assert_string_equal(c[1].error, "GET is not allowed on /v1/echo/x");
}

/* Bytes of a path or a query that are not UTF-8 get no further than the server. */
static void test_only_utf8(void **state)
{
	struct call c[] = {
		{"POST", "/v1/echo/caf%c3%a9?x=%c3%a9", "{\"n\":5}", .rc = -1},
		{"POST", "/v1/echo/caf%e9", "{\"n\":5}", .rc = 0},
		{"POST", "/v1/echo/x?a=b&x=%c3", "{\"n\":5}", .rc = 0},
		{"POST", "/v1/echo/x?%ff", "{\"n\":5}", .rc = 0},
	};

	(void)state;
	run_calls(c, ARRAY_SIZE(c));
	assert_int_equal(c[0].rc, 0);
	assert_string_equal(json_opt_str(c[0].answer, "param", ""), "caf\xc3\xa9");
	json_object_put(c[0].answer);
	for (size_t i = 1; i < ARRAY_SIZE(c); i++) {
		assert_int_equal(c[i].rc, -EREMOTEIO);
		assert_string_equal(c[i].error, "the path or the query is not UTF-8");
	}
}

/* ---- what is said on the wire ---- */

struct raw {
	const char *request;
	size_t enough; /* bytes after which it hangs up; 0: reads to the end */
	int *keep;     /* instead of hanging up: the socket goes there */
	char answer[4096];
	bool done;
};

static void run_raw(void *arg)
{
	struct raw *r = arg;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t got = 0;
	ssize_t n;

	snprintf(a.sun_path, sizeof a.sun_path, "%.100s", base + 5);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) ||
	    write(fd, r->request, strlen(r->request)) < 0)
		return;
	while ((!r->enough || got < r->enough) &&
	       (n = read(fd, r->answer + got, sizeof r->answer - 1 - got)) > 0)
		got += (size_t)n;
	r->answer[got] = '\0';
	if (r->keep)
		*r->keep = TAKE_FD(fd);
}

static void raw_done(void *arg)
{
	((struct raw *)arg)->done = true;
}

static void raw_start(struct raw *r)
{
	assert_int_equal(work_submit(pool, run_raw, raw_done, r), 0);
}

static void raw_wait(struct raw *r)
{
	while (!r->done)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
}

#define GET(path, headers)                                                                         \
	"GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" headers "\r\n"

/* The status of the line must be that of the error's body. */
static void assert_statuses_agree(const char *answer)
{
	const char *body = strstr(answer, "\"status\":");
	unsigned told = 0, status = 0;

	if (!body)
		return;
	sscanf(answer, "HTTP/1.1 %u", &status);
	sscanf(body, "\"status\":%u", &told);
	assert_int_equal(told, status);
}

static void expect_raw(const char *request, const char *const *words, size_t n)
{
	struct raw r = {.request = request};

	raw_start(&r);
	raw_wait(&r);
	for (size_t i = 0; i < n; i++)
		if (!strstr(r.answer, words[i]))
			fail_msg("\"%s\" is not in %s", words[i], r.answer);
	assert_statuses_agree(r.answer);
}

#define EXPECT(request, ...)                                                                       \
	expect_raw(request, (const char *const[]){__VA_ARGS__},                                    \
		   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_request_ids(void **state)
{
	(void)state;
	EXPECT(GET("/v1/nothing", "X-Request-Id: my-1.2\r\n"), "404", "X-Request-Id: my-1.2\r\n",
	       "\"request_id\":\"my-1.2\"");
	/* A request id that could split a header or a log line is not taken over. */
	EXPECT(GET("/v1/nothing", "X-Request-Id: a b\r\n"), "X-Request-Id: 0",
	       "\"request_id\":\"0");
	EXPECT(GET("/v1/text", ""), "X-Request-Id: 0", "Content-Type: text/plain\r\n",
	       "\r\n\r\nplain");
}

#define POST_HEAD                                                                                  \
	"POST /v1/echo/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n"

/* With a body of so many bytes: JSON, and blanks. */
static char *long_post(size_t bytes)
{
	char *text = malloc(sizeof POST_HEAD + 20 + bytes);
	size_t head = (size_t)sprintf(text, POST_HEAD, bytes);

	memset(text + head, ' ', bytes);
	memcpy(text + head, "{\"n\":5}", 7);
	text[head + bytes] = '\0';
	return text;
}

static void test_long_body(void **state)
{
	char *fits AUTO_FREE = long_post(HTTP_BODY_MAX),
		   *over AUTO_FREE = long_post(HTTP_BODY_MAX + 1);

	(void)state;
	EXPECT(fits, "200 OK", "\"n\":5");
	EXPECT(over, "413", "\"too-large\"", "over 1048576 bytes", "X-Request-Id: ");
}

/* A request that libmicrohttpd refuses itself has no request id, and the answer is no JSON
 * (docs/wire.md). */
static void test_wrong_heads(void **state)
{
	char *over AUTO_FREE = malloc(HTTP_HEADERS_MAX + 100);

	(void)state;
	sprintf(over, "GET /v1/text HTTP/1.1\r\nHost: x\r\nX: %0*d\r\n\r\n", (int)HTTP_HEADERS_MAX,
		0);
	EXPECT(over, "HTTP/1.1 431 ");
	EXPECT("GET /v1/text HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 ");
	EXPECT(GET("/v1/text", ""), "200 OK");
}

/* Nobody asks anything any more. */
static void test_idle(void **state)
{
	char *after AUTO_FREE = strf("\"s\":%d", HTTP_IDLE_S);

	(void)state;
	EXPECT("GET /v1/idle HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", after);
}

static int connected(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%.100s", base + 5);
	while (connect(fd, (struct sockaddr *)&a, sizeof a)) {
		assert_int_equal(errno, EAGAIN); /* the server's queue is full */
		assert_true(sd_event_run(loop, 10000) >= 0);
	}
	return fd;
}

static void ask_on(int fd)
{
	static const char get[] = "GET /v1/text HTTP/1.1\r\nHost: x\r\n\r\n";

	assert_int_equal(write(fd, get, sizeof get - 1), sizeof get - 1);
}

/* false: nothing is there. */
static bool is_answered(int fd)
{
	char text[1000];

	return read(fd, text, sizeof text) > 0;
}

static void await_answer(int fd)
{
	uint64_t until = now_ms() + CALL_MS;

	while (!is_answered(fd)) {
		assert_true(now_ms() < until);
		assert_true(sd_event_run(loop, 10000) >= 0);
	}
}

/* The connection beyond the maximum is heard when another one has left. The server is not deaf
 * either when all of them leave at once. */
static void test_too_many_connections(void **state)
{
	int fd[HTTP_CONN_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < HTTP_CONN_MAX; i++) {
		fd[i] = connected();
		ask_on(fd[i]);
		await_answer(fd[i]);
	}
	ask_on(fd[HTTP_CONN_MAX] = connected());
	for (unsigned i = 0; i < HTTP_CONN_MAX; i++) {
		ask_on(fd[i]);
		await_answer(fd[i]);
	}
	assert_false(is_answered(fd[HTTP_CONN_MAX]));
	close(fd[0]);
	await_answer(fd[HTTP_CONN_MAX]);
	for (unsigned i = 1; i <= HTTP_CONN_MAX; i++)
		close(fd[i]);
	ask_on(fd[0] = connected());
	await_answer(fd[0]);
	close(fd[0]);
}

static void test_who_asks(void **state)
{
	gid_t gid = getegid();
	bool ours = false;

	http_server_set_roles(*state, roles);
	EXPECT(GET("/v1/secret", ""), "403", "\"forbidden\"", "the role root");
	EXPECT(GET("/v1/text", ""), "200");
	EXPECT("POST /v1/echo/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "200",
	       "\"roles\":1");
	http_server_set_roles(*state, NULL);
	assert_true(asked.local);
	assert_int_equal(asked.uid, geteuid());
	for (unsigned i = 0; i < asked.group_count; i++)
		ours |= asked.groups[i] == gid;
	assert_true(ours);
}

static void test_rate(void **state)
{
	struct http_server *server = *state;

	assert_int_equal(http_server_limit(server, 1), 0);
	EXPECT(GET("/v1/text", ""), "200 OK");
	for (int i = 0; i < HTTP_BUCKETS; i++)
		server->buckets[i] = (struct http_bucket){.tokens = -1e9, .filled_us = now_us()};
	EXPECT(GET("/v1/text", ""), "429", "Retry-After: 1\r\n", "\"too-many-requests\"");
	assert_int_equal(http_server_limit(server, 0), 0);
	EXPECT(GET("/v1/text", ""), "200 OK");
	assert_true(http_server_counters(server)->refused > 0);
}

static void test_buckets(void **state)
{
	struct http_server s = {0};
	const struct http_who one = {.local = true, .uid = 1}, two = {.address = "10.0.0.1"};
	unsigned taken = 0;

	(void)state;
	assert_true(http_rate_take(&s, &one, 1));
	assert_int_equal(http_server_limit(&s, 10), 0);
	while (taken < 100 && http_rate_take(&s, &one, 1000000))
		taken++;
	assert_int_equal(taken, 20);
	assert_true(http_rate_take(&s, &two, 1000000));
	assert_false(http_rate_take(&s, &one, 1050000));
	assert_true(http_rate_take(&s, &one, 1100000));
	assert_false(http_rate_take(&s, &one, 1100000));
	free(s.buckets);
}

/* More is written later, and then the end. */
static void write_more(void *arg)
{
	(void)arg;
	assert_int_equal(http_stream_write(watched.stream, "two\n"), 0);
	http_stream_end(watched.stream);
}

static void test_stream(void **state)
{
	struct raw r = {.request = GET("/v1/stream", "")};
	struct loop_timer *t;

	(void)state;
	assert_int_equal(loop_timer_new(loop, write_more, NULL, &t), 0);
	watched.stream = NULL;
	raw_start(&r);
	while (!watched.stream)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
	loop_timer_arm(t, 50);
	raw_wait(&r);
	loop_timer_free(t);
	assert_non_null(strstr(r.answer, "Content-Type: text/event-stream\r\n"));
	assert_non_null(strstr(r.answer, "one\n"));
	assert_non_null(strstr(r.answer, "two\n"));
	assert_false(watched.gone);
}

static void test_stream_of_one_who_left(void **state)
{
	struct raw r = {.request = GET("/v1/stream", ""), .enough = 20};

	(void)state;
	raw_start(&r);
	raw_wait(&r);
	for (int i = 0; i < 1000 && !watched.gone; i++) {
		http_stream_write(watched.stream, "more\n");
		assert_true(sd_event_run(loop, 10000) >= 0);
	}
	assert_true(watched.gone);
}

static void test_stream_of_one_who_does_not_read(void **state)
{
	int fd AUTO_CLOSE = -1;
	struct raw r = {.request = GET("/v1/stream", ""), .enough = 20, .keep = &fd};
	char block[4097];
	int rc = 0;

	(void)state;
	memset(block, 'x', sizeof block - 1);
	block[sizeof block - 1] = '\0';
	raw_start(&r);
	raw_wait(&r);
	for (unsigned i = 0; !rc && i < HTTP_STREAM_MAX / 4096 + 2; i++)
		rc = http_stream_write(watched.stream, block);
	assert_int_equal(rc, -ENOBUFS);
	http_stream_end(watched.stream);
	EXPECT(GET("/v1/text", ""), "200 OK");
}

/* A request that is begun and not ended. */
static void test_half_a_request(void **state)
{
	struct raw r = {.request = "GET /v1/te"};
	struct http_server *server = *state;
	uint64_t late = server->counters.late;

	server->request_ms = 200;
	raw_start(&r);
	raw_wait(&r);
	server->request_ms = HTTP_REQUEST_MS;
	assert_int_equal(server->counters.late, late + 1);
	EXPECT(GET("/v1/text", ""), "200 OK");
}

int main(void)
{
	const struct CMUnitTest common_http[] = {
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_no_memory_for_a_body),
		cmocka_unit_test(test_long_name),
		cmocka_unit_test(test_answered_later),
		cmocka_unit_test(test_wrong_calls),
		cmocka_unit_test(test_only_utf8),
		cmocka_unit_test(test_request_ids),
		cmocka_unit_test(test_long_body),
		cmocka_unit_test(test_wrong_heads),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_too_many_connections),
		cmocka_unit_test(test_who_asks),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_half_a_request),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_of_one_who_left),
		cmocka_unit_test(test_stream_of_one_who_does_not_read),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(common_http, setup, teardown);
}
