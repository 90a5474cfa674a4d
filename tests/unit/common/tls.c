/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A server with TLS on a loopback port, and clients of all kinds. */
#include "tests/unit/tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/socket.h>

#include "common/http/client.h"
#include "common/http/private.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/tls/conf.h"
#include "common/work.h"
#include "tests/fake/certs.h"

#define DAY     86400
#define CALL_MS 60000 /* only a fault takes so long */

static sd_event *loop;
static struct work_pool *pool;
static struct http_server *server;
static struct tls *tls;
static struct cert ca, other_ca;
static struct role_table table;
static char dir[64], base[64];
static struct sockaddr_in address;
static char cert_file[80], key_file[80], ca_file[80];

static void on_hello(struct http_request *req)
{
	http_reply(req->exchange, 200, NULL);
}

static const struct http_route routes[] = {
	{"GET", "/v1/look", on_hello, REST_READ_ONLY},
	{"POST", "/v1/peer/do", on_hello, REST_PEER},
	{0},
};

static unsigned roles(const struct http_who *who, void *user)
{
	(void)user;
	return who->names ? role_table_find(&table, who->names) : REST_ALL;
}

/* ---- work for threads ---- */

static unsigned left;

static void work_done(void *arg)
{
	(void)arg;
	left--;
}

static void start(void (*run)(void *arg), void *arg)
{
	left++;
	assert_int_equal(work_submit(pool, run, work_done, arg), 0);
}

static void wait_all(void)
{
	while (left)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
}

/* The project's own client, with the certificate of the daemon. */
struct call {
	const char *url, *method, *path;
	int rc;
	char error[HTTP_ERROR_MAX];
};

static void run_call(void *arg)
{
	struct call *c = arg;
	struct json_object *answer AUTO_JSON = NULL;

	c->rc = http_call(c->url, c->method, c->path, NULL, CALL_MS, &answer, c->error);
}

static int call(const char *url, const char *method, const char *path,
		char error[static HTTP_ERROR_MAX])
{
	struct call c = {.url = url, .method = method, .path = path};

	start(run_call, &c);
	wait_all();
	strcpy(error, c.error);
	return c.rc;
}

/* Any client: what it is shown, or why it is not. */
struct raw {
	const struct cert *cert; /* NULL: it has none */
	const char *priority, *request;
	bool silent; /* the client connects and says nothing */
	int handshake;
	char answer[4096];
};

static int connect_to_server(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void talk(struct raw *r, gnutls_session_t session)
{
	size_t got = 0, sent = 0;
	ssize_t n = 1;

	r->handshake = gnutls_handshake(session);
	if (r->handshake)
		return;
	for (; n > 0 && sent<strlen(r->request); sent += n> 0 ? (size_t)n : 0)
		n = gnutls_record_send(session, r->request + sent, strlen(r->request) - sent);
	while ((n = gnutls_record_recv(session, r->answer + got, sizeof r->answer - 1 - got)) > 0)
		got += (size_t)n;
}

static void run_raw(void *arg)
{
	struct raw *r = arg;
	gnutls_certificate_credentials_t cred;
	int fd AUTO_CLOSE = connect_to_server();
	gnutls_session_t session;
	char byte;

	if (r->silent) {
		r->handshake = (int)read(fd, &byte, 1);
		return;
	}
	gnutls_init(&session, GNUTLS_CLIENT);
	gnutls_certificate_allocate_credentials(&cred);
	if (r->cert)
		gnutls_certificate_set_x509_key(cred, (gnutls_x509_crt_t *)&r->cert->crt, 1,
						r->cert->key);
	gnutls_priority_set_direct(session, r->priority ? r->priority : "NORMAL", NULL);
	gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, cred);
	gnutls_transport_set_int(session, fd);
	gnutls_handshake_set_timeout(session, CALL_MS);
	talk(r, session);
	gnutls_deinit(session);
	gnutls_certificate_free_credentials(cred);
}

#define GET "GET /v1/look HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

/* Returns the answer to a client with this certificate; "" if it gets none. */
static const char *ask(struct raw *r)
{
	if (!r->request)
		r->request = GET;
	start(run_raw, r);
	wait_all();
	return r->answer;
}

/* ---- a site ---- */

static struct cert make(const char *cn, const struct cert *by, time_t starts_s, time_t ends_s)
{
	return cert_make(&(struct cert_wish){.cn = cn,
					     .dns = cn,
					     .ip = "127.0.0.1",
					     .by = by,
					     .starts_s = starts_s,
					     .ends_s = ends_s});
}

static void install(const char *cn, const struct cert *by, time_t ends_s)
{
	struct cert c = make(cn, by, -2 * DAY, ends_s);

	cert_write_key(&c, key_file);
	cert_write(&c, cert_file);
	cert_write(by, ca_file);
	cert_free(&c);
}

static int open_server(void)
{
	const struct tls_files files = {{cert_file, key_file, ca_file}};
	char *error AUTO_FREE = NULL;
	socklen_t bytes = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	address = (struct sockaddr_in){.sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 512) ||
	    getsockname(fd, (struct sockaddr *)&address, &bytes))
		return -errno;
	snprintf(base, sizeof base, "https://127.0.0.1:%d", ntohs(address.sin_port));
	if (tls_new(&files, &tls, &error))
		fprintf(stderr, "# %s\n", error);
	return !tls || tls_watch(tls, loop) ||
	       http_server_new(loop, fd, tls, routes, NULL, &server);
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/ibvmig-tls-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(cert_file, sizeof cert_file, "%s/cert.pem", dir);
	snprintf(key_file, sizeof key_file, "%s/key.pem", dir);
	snprintf(ca_file, sizeof ca_file, "%s/ca.pem", dir);
	ca = make("ca", NULL, -2 * DAY, 10 * DAY);
	other_ca = make("ca", NULL, -2 * DAY, 10 * DAY);
	install("hosta.example", &ca, DAY);
	http_client_init();
	if (loop_new(&loop) || work_pool_new(loop, 48, &pool) || open_server() ||
	    role_table_add(&table, "peer hosta.example") ||
	    role_table_add(&table, "read-only watcher"))
		return -1;
	http_server_set_roles(server, roles);
	http_client_secure(tls, false);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	work_pool_free(pool);
	http_server_free(server);
	tls_free(tls);
	sd_event_unref(loop);
	role_table_clear(&table);
	cert_free(&ca);
	cert_free(&other_ca);
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- tests ---- */

static void test_daemons_talk(void **state)
{
	char error[HTTP_ERROR_MAX];

	(void)state;
	assert_int_equal(call(base, "GET", "/v1/look", error), 0);
	assert_int_equal(call(base, "POST", "/v1/peer/do", error), 0);
}

static void test_roles(void **state)
{
	struct cert watcher = make("watcher", &ca, -DAY, DAY), nobody = make("x", &ca, -DAY, DAY);
	struct raw look = {.cert = &watcher}, none = {.cert = &nobody};
	struct raw act = {.cert = &watcher,
			  .request = "POST /v1/peer/do HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				     "Content-Length: 0\r\n\r\n"};

	(void)state;
	assert_non_null(strstr(ask(&look), "200 OK"));
	assert_non_null(strstr(ask(&act), "403"));
	assert_non_null(strstr(act.answer, "watcher may not POST /v1/peer/do: that takes the role "
					   "peer"));
	assert_non_null(strstr(ask(&none), "403"));
	assert_non_null(strstr(none.answer, "is good, but has no role here"));
	cert_free(&watcher);
	cert_free(&nobody);
}

/* None of these gets as far as HTTP. */
static void test_strangers(void **state)
{
	struct cert foreign = make("hosta.example", &other_ca, -DAY, DAY);
	struct cert old = make("hosta.example", &ca, -2 * DAY, -DAY);
	struct cert early = make("hosta.example", &ca, DAY, 2 * DAY);
	struct cert serves = cert_make(
		&(struct cert_wish){.cn = "hosta.example",
				    .by = &ca,
				    .starts_s = -DAY,
				    .ends_s = DAY,
				    .only_purpose = GNUTLS_KP_TLS_WWW_SERVER});
	struct raw r[] = {{.cert = &foreign},
			  {.cert = &old},
			  {.cert = &early},
			  {.cert = &serves},
			  {.cert = NULL}};
	uint64_t before = http_server_counters(server)->requests;
	uint64_t strangers = http_server_counters(server)->strangers;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(r); i++)
		if (*ask(&r[i]))
			fail_msg("stranger %zu is answered: %s", i, r[i].answer);
	assert_int_equal(http_server_counters(server)->requests, before);
	assert_int_equal(http_server_counters(server)->strangers, strangers + ARRAY_SIZE(r));
	cert_free(&foreign);
	cert_free(&old);
	cert_free(&early);
	cert_free(&serves);
}

static void test_old_versions(void **state)
{
	struct cert c = make("watcher", &ca, -DAY, DAY);
	struct raw twelve = {.cert = &c, .priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2"};
	struct raw thirteen = {.cert = &c, .priority = "NORMAL:-VERS-ALL:+VERS-TLS1.3"};

	(void)state;
	assert_string_equal(ask(&twelve), "");
	assert_true(twelve.handshake < 0);
	assert_non_null(strstr(ask(&thirteen), "200 OK"));
	cert_free(&c);
}

/* Our client believes no server of another CA or name, and falls back to nothing. */
static void test_client_is_careful(void **state)
{
	struct cert foreign = make("hosta.example", &other_ca, -DAY, DAY);
	char error[HTTP_ERROR_MAX], url[64];
	char foreign_file[80], foreign_key[80];
	char *text AUTO_FREE = NULL;
	struct tls *theirs;

	(void)state;
	snprintf(foreign_file, sizeof foreign_file, "%s/foreign.pem", dir);
	snprintf(foreign_key, sizeof foreign_key, "%s/foreign.key", dir);
	cert_write(&foreign, foreign_file);
	cert_write_key(&foreign, foreign_key);
	char other[80];
	snprintf(other, sizeof other, "%s/other-ca.pem", dir);
	cert_write(&other_ca, other);
	assert_int_equal(
		tls_new(&(struct tls_files){{foreign_file, foreign_key, other}}, &theirs, &text),
		0);
	http_client_secure(theirs, false);
	assert_int_equal(call(base, "GET", "/v1/look", error), -EACCES); /* the server's CA */
	http_client_secure(tls, false);
	tls_free(theirs);

	snprintf(url, sizeof url, "https://127.0.0.2:%d", ntohs(address.sin_port));
	assert_true(call(url, "GET", "/v1/look", error) < 0); /* nobody is there */
	snprintf(url, sizeof url, "https://localhost:%d", ntohs(address.sin_port));
	assert_int_equal(call(url, "GET", "/v1/look", error), -EACCES); /* the name */
	assert_int_equal(call("http://192.0.2.1:1", "GET", "/v1/look", error), -EACCES);
	assert_non_null(strstr(error, "only https:// is allowed"));
	snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(address.sin_port));
	assert_true(call(url, "GET", "/v1/look", error) < 0); /* plain to the TLS port */
	cert_free(&foreign);
}

/* Our certificate from a CA that the server does not know: the error says where to look. */
static void test_client_is_refused(void **state)
{
	struct cert foreign = make("hosta.example", &other_ca, -DAY, DAY);
	char error[HTTP_ERROR_MAX], file[80], key[80];
	char *text AUTO_FREE = NULL;
	struct tls *ours;

	(void)state;
	snprintf(file, sizeof file, "%s/foreign.pem", dir);
	snprintf(key, sizeof key, "%s/foreign.key", dir);
	cert_write(&foreign, file);
	cert_write_key(&foreign, key);
	assert_int_equal(tls_new(&(struct tls_files){{file, key, ca_file}}, &ours, &text), 0);
	http_client_secure(ours, false);
	assert_int_equal(call(base, "GET", "/v1/look", error), -EACCES);
	assert_non_null(strstr(error, "perhaps on our certificate"));
	http_client_secure(tls, false);
	tls_free(ours);
	cert_free(&foreign);
}

/* ---- reload ---- */

static bool stop_traffic;
static unsigned called, failed;

static void run_traffic(void *arg)
{
	struct call c = {.url = base, .method = "GET", .path = "/v1/look"};

	(void)arg;
	while (!__atomic_load_n(&stop_traffic, __ATOMIC_RELAXED)) {
		run_call(&c);
		__atomic_add_fetch(&called, 1, __ATOMIC_RELAXED);
		if (c.rc) {
			__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
			fprintf(stderr, "# %s\n", c.error);
		}
	}
}

static struct tls_keys *present(void)
{
	struct tls_keys *k = tls_keys_get(tls);

	tls_keys_put(k);
	return k;
}

static void wait_until_calls(unsigned n)
{
	n += __atomic_load_n(&called, __ATOMIC_RELAXED);
	while (__atomic_load_n(&called, __ATOMIC_RELAXED) < n)
		assert_true(sd_event_run(loop, 50000) >= 0);
}

/* New files, noticed by themselves while calls go on; not one of these fails. */
static void test_reload_under_traffic(void **state)
{
	(void)state;
	stop_traffic = false;
	for (int i = 0; i < 4; i++)
		start(run_traffic, NULL);
	for (int i = 0; i < 3; i++) {
		struct tls_keys *before = tls_keys_get(tls);

		wait_until_calls(4);
		install("hosta.example", &ca, (2 + i) * DAY);
		while (present() == before)
			assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
		tls_keys_put(before);
	}
	wait_until_calls(4);
	__atomic_store_n(&stop_traffic, true, __ATOMIC_RELAXED);
	wait_all();
	assert_int_equal(failed, 0);
	assert_true(called >= 16);
}

static void expect_kept(const char *why)
{
	struct tls_keys *before = present();
	char *error AUTO_FREE = NULL;
	char line[HTTP_ERROR_MAX];

	assert_true(tls_reload(tls, &error) < 0);
	assert_non_null(error);
	if (!strstr(error, why))
		fail_msg("\"%s\" does not say \"%s\"", error, why);
	assert_ptr_equal(present(), before);
	assert_int_equal(call(base, "GET", "/v1/look", line), 0);
}

static void test_bad_files_change_nothing(void **state)
{
	struct cert c = make("hosta.example", &ca, -DAY, DAY);
	char *error AUTO_FREE = NULL;
	FILE *f;

	(void)state;
	cert_write(&c, cert_file); /* without its key */
	expect_kept(key_file);
	install("hosta.example", &ca, -DAY);
	expect_kept("has expired");
	f = fopen(cert_file, "w");
	fputs("-----BEGIN CERTIFICATE-----\nno\n", f);
	fclose(f);
	expect_kept("no certificates in PEM");
	unlink(ca_file);
	expect_kept("No such file");
	install("hosta.example", &ca, DAY);
	assert_int_equal(tls_reload(tls, &error), 0);
	cert_free(&c);
}

/* SIGHUP, and a connection that began before it is told to come again. */
static void test_sighup(void **state)
{
	struct cert c = make("watcher", &ca, -DAY, DAY);
	struct raw r = {.cert = &c};
	struct tls_keys *before = tls_keys_get(tls);

	(void)state;
	kill(getpid(), SIGHUP);
	while (present() == before)
		assert_true(sd_event_run(loop, UINT64_MAX) >= 0);
	assert_non_null(strstr(ask(&r), "200 OK"));
	assert_true(http_conn_is_old(&(struct http_conn){.server = server, .keys = before}));
	tls_keys_put(before);
	cert_free(&c);
}

/* ---- limits ---- */

/* A client that connects and does not go on is shut out, also if it sends a byte now and then. */
static void test_slow_clients(void **state)
{
	uint64_t late = http_server_counters(server)->late;
	struct raw silent = {.silent = true};

	(void)state;
	server->request_ms = 200;
	ask(&silent);
	server->request_ms = HTTP_REQUEST_MS;
	assert_true(silent.handshake <= 0); /* the end of the stream */
	assert_int_equal(http_server_counters(server)->late, late + 1);
}

static void run_drip(void *arg)
{
	int fd AUTO_CLOSE = connect_to_server();
	unsigned *sent = arg;

	/* A TLS record's head, and then never all of it. */
	while (*sent < 1000 &&
	       send(fd, &"\x16\x03\x01\x02"[*sent < 4 ? *sent : 3], 1, MSG_NOSIGNAL) == 1) {
		(*sent)++;
		usleep(10000);
	}
}

static void test_dripping_client(void **state)
{
	unsigned sent = 0;

	(void)state;
	server->request_ms = 300;
	start(run_drip, &sent);
	wait_all();
	server->request_ms = HTTP_REQUEST_MS;
	assert_true(sent < 1000);
}

static void run_crowd(void *arg)
{
	struct raw *r = arg;
	char error[HTTP_ERROR_MAX];
	struct json_object *answer AUTO_JSON = NULL;

	r->handshake = http_call(base, "GET", "/v1/look", NULL, CALL_MS, &answer, error);
}

static unsigned connections(void)
{
	unsigned n = 0;

	for (struct http_conn *c = server->conns; c; c = c->next)
		n++;
	return n;
}

static void wait_for_connections(unsigned n)
{
	uint64_t until = now_ms() + CALL_MS;

	while (connections() != n && now_ms() < until)
		assert_true(sd_event_run(loop, 100000) >= 0);
	assert_int_equal(connections(), n);
}

/* More connections than one address may have: the rest is closed, and after it all is well. */
static void test_many_connections(void **state)
{
	int fd[HTTP_CONN_PER_IP + 20];
	struct raw crowd[40];
	char error[HTTP_ERROR_MAX];

	(void)state;
	server->request_ms = 600000; /* none of them is late */
	for (size_t i = 0; i < ARRAY_SIZE(crowd); i++)
		start(run_crowd, &crowd[i]);
	wait_all();
	for (size_t i = 0; i < ARRAY_SIZE(crowd); i++)
		assert_int_equal(crowd[i].handshake, 0);
	wait_for_connections(0); /* the crowd's ends have been seen, or they would count */
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		fd[i] = connect_to_server();
	wait_for_connections(HTTP_CONN_PER_IP);
	/* This call comes after all of these. */
	assert_true(call(base, "GET", "/v1/look", error) < 0);
	assert_int_equal(connections(), HTTP_CONN_PER_IP);
	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	wait_for_connections(0);
	server->request_ms = HTTP_REQUEST_MS;
	assert_int_equal(call(base, "GET", "/v1/look", error), 0);
}

static void test_sizes(void **state)
{
	struct cert c = make("hosta.example", &ca, -DAY, DAY);
	char *head AUTO_FREE = calloc(1, HTTP_HEADERS_MAX + 100);
	struct raw r = {.cert = &c, .request = head};

	(void)state;
	strcpy(head, "GET /v1/look HTTP/1.1\r\nHost: x\r\nX-Long: ");
	memset(head + strlen(head), 'x', HTTP_HEADERS_MAX);
	strcat(head, "\r\n\r\n");
	ask(&r);
	assert_non_null(strstr(r.answer, " 431 "));
	assert_int_equal(http_server_limit(server, 1), 0);
	for (int i = 0; i < HTTP_BUCKETS; i++)
		server->buckets[i] = (struct http_bucket){.tokens = -1e9, .filled_us = now_us()};
	r = (struct raw){.cert = &c};
	assert_non_null(strstr(ask(&r), " 429 "));
	assert_int_equal(http_server_limit(server, 0), 0);
	cert_free(&c);
}

static void test_configuration(void **state)
{
	struct tls_conf plain = {0}, on = {.on = true}, insecure = {.insecure = true};
	static const char *const local[] = {"unix:/run/x", "http://127.0.0.1:1",
					    "http://localhost:1"};
	static const char *const far[] = {
		"http://127.example:1",         "http://10.0.0.1:1",
		"http://localhost.example:1",   "https://127.0.0.1:1",
		"http://127.0.0.1:1@example:1", "http://localhost:1@example/"};
	char *error = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		assert_true(tls_url_is_local(local[i]));
	for (size_t i = 0; i < ARRAY_SIZE(far); i++)
		assert_false(tls_url_is_local(far[i]));
	assert_int_equal(tls_conf_check_listen(&plain, "listen", "127.0.0.1:1", &error), 0);
	assert_int_equal(tls_conf_check_listen(&on, "listen", "0.0.0.0:1", &error), 0);
	assert_int_equal(tls_conf_check_listen(&insecure, "listen", "0.0.0.0:1", &error), 0);
	assert_int_equal(tls_conf_check_listen(&plain, "listen", "0.0.0.0:1", &error), -EINVAL);
	assert_non_null(strstr(error, "insecure = yes"));
	free(error);
	assert_int_equal(tls_conf_check_url(&on, "peer", "http://h:1", &error), -EINVAL);
	free(error);
	assert_int_equal(tls_conf_check_url(&plain, "peer", "https://h:1", &error), -EINVAL);
	free(error);
	assert_int_equal(tls_conf_check_url(&on, "peer", "ftp://h:1", &error), -EINVAL);
	free(error);
	assert_int_equal(tls_conf_check_url(&on, "peer", "https://h:1", &error), 0);
	assert_int_equal(tls_conf_check_url(&insecure, "peer", "http://h:1", &error), 0);
}

int main(void)
{
	const struct CMUnitTest common_tls[] = {
		cmocka_unit_test(test_daemons_talk),
		cmocka_unit_test(test_roles),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_old_versions),
		cmocka_unit_test(test_client_is_careful),
		cmocka_unit_test(test_client_is_refused),
		cmocka_unit_test(test_reload_under_traffic),
		cmocka_unit_test(test_bad_files_change_nothing),
		cmocka_unit_test(test_sighup),
		cmocka_unit_test(test_slow_clients),
		cmocka_unit_test(test_dripping_client),
		cmocka_unit_test(test_many_connections),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_configuration),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(common_tls, setup, teardown);
}
