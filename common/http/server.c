/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http/private.h"
#include "common/json.h"
#include "common/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void exchange_free(struct http_exchange *x)
{
	free(x->body);
	free(x->text);
	json_object_put(x->reply);
	free(x);
}

void http_wake(struct http_server *s)
{
	sd_event_source_set_enabled(s->before, SD_EVENT_ONESHOT);
}

static void answer(struct http_exchange *x, unsigned status)
{
	if (x->finished) {
		exchange_free(x);
		return;
	}
	x->answered = true;
	x->status = status;
	if (x->suspended) {
		x->suspended = false;
		x->server->suspended--;
		MHD_resume_connection(x->conn);
		http_wake(x->server);
	}
}

void http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	x->reply = body ? body : json_object_new_object();
	answer(x, status);
}

void http_reply_text(struct http_exchange *x, unsigned status, const char *type, char *text)
{
	x->text = text;
	x->type = type;
	answer(x, status);
}

void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
{
	struct json_object *top = json_object_new_object(), *list = json_object_new_array(),
			   *e = json_object_new_object();
	char detail[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	json_set_str(e, "code", code);
	json_set_u64(e, "status", status);
	json_set_str(e, "detail", detail);
	json_set_str(e, "request_id", x->id);
	json_object_array_add(list, e);
	json_set(top, "errors", list);
	http_reply(x, status, top);
}

const char *http_query(struct http_exchange *x, const char *key)
{
	return x->conn ? MHD_lookup_connection_value(x->conn, MHD_GET_ARGUMENT_KIND, key) : NULL;
}

const char *http_header(struct http_exchange *x, const char *name)
{
	return x->conn ? MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name) : NULL;
}

void http_server_set_roles(struct http_server *s, http_roles *roles)
{
	s->roles = roles;
}

const struct http_counters *http_server_counters(const struct http_server *s)
{
	return &s->counters;
}

/* The client's own id of its request, if it is one, or a new one: so that both sides' logs can be
 * laid side by side. */
static void set_id(struct http_exchange *x)
{
	static uint64_t last;
	const char *id = http_header(x, "X-Request-Id");

	if (id && *id && strlen(id) < sizeof x->id &&
	    strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		    strlen(id)) {
		strcpy(x->id, id);
		return;
	}
	if (!last)
		last = wall_ms() << 16;
	snprintf(x->id, sizeof x->id, "%016llx", (unsigned long long)++last);
}

/* ---- routes ---- */

/* True if url fits the route; the segment at '*' goes to param. */
static bool route_fits(const char *route, const char *url, char param[static HTTP_PARAM_MAX])
{
	size_t n;

	for (;;) {
		size_t r = strcspn(route, "/");

		n = strcspn(url, "/");
		if (r == 1 && *route == '*') {
			if (!n || n >= HTTP_PARAM_MAX)
				return false;
			memcpy(param, url, n);
			param[n] = '\0';
		} else if (r != n || memcmp(route, url, n)) {
			return false;
		}
		route += r;
		url += n;
		if (!*route || !*url)
			return !*route && !*url;
		route++;
		url++;
	}
}

static size_t longest_segment(const char *url)
{
	size_t longest = 0;

	for (; *url; url += *url == '/') {
		size_t n = strcspn(url, "/");

		longest = n > longest ? n : longest;
		url += n;
	}
	return longest;
}

/* Before anything is done for the request; false: it has been answered. */
static bool admitted(struct http_exchange *x, const struct http_conn *c)
{
	x->server->counters.requests++;
	if (!c || (c->keys && !c->who.names) || x->no_memory)
		http_fail(x, 503, "no-memory", "out of memory");
	else if (!http_rate_take(x->server, &c->who, now_us()))
		http_fail(x, 429, "too-many-requests",
			  "more than %u requests a second from one client: wait a second",
			  x->server->rate_per_s);
	else if (x->too_large)
		http_fail(x, 413, "too-large", "the body is over %u bytes", HTTP_BODY_MAX);
	else
		return true;
	return false;
}

/* The sentence names who is meant and what would help, as far as that is the caller's business. */
static bool allowed(struct http_exchange *x, const struct http_who *who, const struct http_route *r,
		    unsigned roles)
{
	int n = who->names ? (int)strcspn(who->names, "\n") : 0;

	if (roles & r->role)
		return true;
	if (!roles && who->names)
		http_fail(x, 403, "no-role",
			  "the certificate of \"%.*s\" is good, but has no role here: role = ROLE "
			  "NAME "
			  "in the configuration gives it one",
			  n, who->names);
	else
		http_fail(x, 403, "forbidden", "%.*s%s may not %s %s: that takes the role %s", n,
			  n ? who->names : "", n ? "" : "you", r->method, r->path,
			  rest_role_name(r->role));
	return false;
}

static enum MHD_Result look_at_argument(void *arg, enum MHD_ValueKind kind, const char *key,
					const char *value)
{
	bool *valid = arg;

	(void)kind;
	*valid = utf8_is_valid(key, strlen(key)) && (!value || utf8_is_valid(value, strlen(value)));
	return *valid ? MHD_YES : MHD_NO;
}

/* The path and the query, which come percent-decoded, in UTF-8. */
static bool address_is_text(struct http_exchange *x, const char *url)
{
	bool valid = utf8_is_valid(url, strlen(url));

	if (valid)
		MHD_get_connection_values(x->conn, MHD_GET_ARGUMENT_KIND, look_at_argument, &valid);
	return valid;
}

static void dispatch(struct http_exchange *x, const char *method, const char *url)
{
	struct http_conn *conn = http_conn_of(x->conn);
	struct json_object *body AUTO_JSON = NULL;
	char param[HTTP_PARAM_MAX] = "";
	bool path_known = false;
	unsigned roles;

	if (!admitted(x, conn))
		return;
	if (!address_is_text(x, url)) {
		http_fail(x, 400, "bad-text", "the path or the query is not UTF-8");
		return;
	}
	if (x->body_bytes && json_parse(x->body, x->body_bytes, &body)) {
		http_fail(x, 400, "bad-json", "the body is not one JSON object in UTF-8");
		return;
	}
	for (const struct http_route *r = x->server->routes; r->method; r++) {
		if (!route_fits(r->path, url, param))
			continue;
		path_known = true;
		if (strcmp(r->method, method))
			continue;
		roles = x->server->roles ? x->server->roles(&conn->who, x->server->user) : REST_ALL;
		if (!allowed(x, &conn->who, r, roles))
			return;
		struct http_request req = {
			.method = method,
			.path = url,
			.param = *param ? param : NULL,
			.body = body,
			.user = x->server->user,
			.roles = roles,
			.exchange = x,
		};
		r->handler(&req);
		return;
	}
	if (longest_segment(url) >= HTTP_PARAM_MAX)
		http_fail(
			x, 400, "too-long",
			"a name in the path has %zu bytes; at most %d are allowed (libvirt itself "
			"takes no VM whose name and \".xml\" have more)",
			longest_segment(url), HTTP_PARAM_MAX - 1);
	else if (path_known)
		http_fail(x, 405, "bad-method", "%s is not allowed on %s", method, url);
	else
		http_fail(x, 404, HTTP_NO_ROUTE, "there is no %s", url);
}

static struct MHD_Response *make_response(struct http_exchange *x)
{
	const char *text = x->text;

	if (x->stream)
		return http_stream_response(x);
	if (!text) {
		text = json_text(x->reply);
		x->type = "application/json";
	}
	return MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result send_reply(struct http_exchange *x)
{
	struct MHD_Response *resp = make_response(x);
	enum MHD_Result rc;

	if (!resp)
		return MHD_NO;
	x->server->counters.refused += x->status >= 400;
	MHD_add_response_header(resp, "Content-Type", x->type);
	MHD_add_response_header(resp, "X-Request-Id", x->id);
	if (x->status == 429)
		MHD_add_response_header(resp, "Retry-After", "1");
	if (http_conn_is_old(http_conn_of(x->conn)))
		MHD_add_response_header(resp, "Connection", "close");
	rc = MHD_queue_response(x->conn, x->status, resp);
	MHD_destroy_response(resp);
	return rc;
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *conn, const char *url,
				 const char *method, const char *version, const char *data,
				 size_t *bytes, void **state)
{
	struct http_server *s = arg;
	struct http_exchange *x = *state;

	(void)version;
	if (!x) {
		if (!(x = *state = calloc(1, sizeof *x)))
			return MHD_NO; /* closes the connection: the client sees that */
		x->server = s;
		x->conn = conn;
		set_id(x);
		return MHD_YES;
	}
	if (*bytes) {
		char *grown = NULL;

		if (x->body_bytes + *bytes > HTTP_BODY_MAX)
			x->too_large = true;
		else if (!(grown = realloc(x->body, x->body_bytes + *bytes)))
			x->no_memory = true; /* half a body must not be taken for one */
		if (grown) {
			memcpy(grown + x->body_bytes, data, *bytes);
			x->body = grown;
			x->body_bytes += *bytes;
		}
		*bytes = 0;
		return MHD_YES;
	}
	if (!x->handled) {
		x->handled = true;
		http_conn_busy(http_conn_of(conn));
		dispatch(x, method, url);
		if (!x->answered) {
			x->suspended = true;
			x->server->suspended++;
			MHD_suspend_connection(conn);
			return MHD_YES;
		}
	}
	return x->answered ? send_reply(x) : MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode why)
{
	struct http_exchange *x = *state;

	(void)arg;
	(void)why;
	*state = NULL;
	if (!x)
		return;
	http_conn_idle(http_conn_of(conn));
	x->conn = NULL;
	x->finished = true;
	if (x->answered || !x->handled)
		exchange_free(x);
}

/* libmicrohttpd's own time-outs and resumed connections ask for a run without a readable fd. */
static void run_mhd(struct http_server *s)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(s->mhd);
	if (s->stopping)
		return;
	if (MHD_get_timeout(s->mhd, &wait_ms) == MHD_YES) {
		sd_event_source_set_time(s->timer, now_us() + wait_ms * 1000u);
		sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
	} else {
		sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
	}
}

static int on_io(sd_event_source *src, int fd, uint32_t events, void *arg)
{
	(void)src;
	(void)fd;
	(void)events;
	run_mhd(arg);
	return 0;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	(void)src;
	(void)usec;
	run_mhd(arg);
	return 0;
}

static int on_deferred(sd_event_source *src, void *arg)
{
	(void)src;
	run_mhd(arg);
	return 0;
}

/* Connections bring their own keys (http/conn.c), so that these can change. */
static int no_keys(gnutls_session_t session, const gnutls_datum_t *ca, int n_ca,
		   const gnutls_pk_algorithm_t *algos, int n_algos, gnutls_pcert_st **ret_cert,
		   unsigned *ret_n, gnutls_privkey_t *ret_key)
{
	(void)session;
	(void)ca;
	(void)n_ca;
	(void)algos;
	(void)n_algos;
	(void)ret_cert;
	(void)ret_n;
	(void)ret_key;
	return -1;
}

static struct MHD_Daemon *start_mhd(struct http_server *s, int fd)
{
	const struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)no_keys},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (char[]){TLS_PRIORITY}},
		{MHD_OPTION_END, 0, NULL},
	};
	const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (s->tls ? MHD_USE_TLS : 0);

	return MHD_start_daemon(flags, 0, NULL, NULL, on_access, s, MHD_OPTION_LISTEN_SOCKET, fd,
				MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONN_MAX,
				MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADERS_MAX,
				MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)HTTP_CONN_PER_IP,
				MHD_OPTION_NOTIFY_CONNECTION, http_conn_notify, s, MHD_OPTION_ARRAY,
				s->tls ? tls : none, MHD_OPTION_END);
}

int http_server_new(sd_event *loop, int fd, struct tls *tls, const struct http_route *routes,
		    void *user, struct http_server **ret_server)
{
	struct http_server *s = calloc(1, sizeof *s);
	const union MHD_DaemonInfo *info;
	int rc = -EIO;

	if (!s) {
		close(fd);
		return -ENOMEM;
	}
	s->loop = loop;
	s->tls = tls;
	s->request_ms = HTTP_REQUEST_MS;
	s->routes = routes;
	s->user = user;
	s->mhd = start_mhd(s, fd);
	if (!s->mhd) {
		close(fd);
		free(s);
		return -EIO;
	}
	info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info ||
	    (rc = sd_event_add_io(loop, &s->io, info->epoll_fd, 1 /* EPOLLIN */, on_io, s)) < 0 ||
	    (rc = sd_event_add_defer(loop, &s->before, on_deferred, s)) < 0 ||
	    (rc = sd_event_add_time(loop, &s->timer, CLOCK_MONOTONIC, UINT64_MAX, 1000, on_timer,
				    s)) < 0 ||
	    (rc = sd_event_add_time(loop, &s->due, CLOCK_MONOTONIC, UINT64_MAX, 100000,
				    http_conn_late, s)) < 0) {
		http_server_free(s);
		return rc;
	}
	*ret_server = s;
	return 0;
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	s->stopping = true;
	sd_event_source_disable_unref(s->io);
	sd_event_source_disable_unref(s->before);
	sd_event_source_disable_unref(s->timer);
	sd_event_source_disable_unref(s->due);
	/* libmicrohttpd aborts the process if it is stopped while a connection is suspended. Those
	 * who still wait see the end of the process instead. */
	if (s->suspended)
		return;
	MHD_stop_daemon(s->mhd);
	free(s->buckets);
	free(s);
}

int http_listen_unix(const char *path, unsigned mode)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof a.sun_path)
		return -ENAMETOOLONG;
	strcpy(a.sun_path, path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || chmod(path, mode) || listen(fd, SOMAXCONN))
		return -errno;
	return TAKE_FD(fd);
}

int http_listen_tcp(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int fd AUTO_CLOSE = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const char *colon = strrchr(address, ':');
	char host[INET_ADDRSTRLEN] = "";
	uint64_t port;

	if (fd < 0)
		return -errno;
	if (!colon || (size_t)(colon - address) >= sizeof host ||
	    parse_u64(colon + 1, 1, 65535, &port))
		return -EINVAL;
	memcpy(host, address, (size_t)(colon - address));
	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return -EINVAL;
	a.sin_port = htons((uint16_t)port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, SOMAXCONN))
		return -errno;
	return TAKE_FD(fd);
}
