/* SPDX-License-Identifier: GPL-2.0-or-later */
/* REST between simulated hosts: common/'s client and server without sockets (world.h). A call is
 * freed once nothing of it is under way; what a dead process had under way stays. */
#include "tests/sim/world.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/report/openapi.h"
#include "tests/sim/documented.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS_MAX  16
#define LATE_US      (3 * SIM_S)
#define REORDER_US   (1500 * SIM_MS)
#define AFTER_CUT_US (200 * SIM_MS) /* TCP sends again */
#define EXTERNAL     (-1)
#define PLUGIN_US    (5 * SIM_S) /* sm-helper/backend/plugin.c: CALL_MS */

struct sim_net sim_net = {.latency_us = 300};

struct http_server {
	char address[256];
	const struct http_route *routes;
	void *user;
	struct sim_proc *proc;
};

struct http_exchange {
	struct call *call; /* NULL: a double, whose answer nobody waits for */
	char *path;
	const struct http_route *route; /* NULL: none has this path */
};

struct call {
	struct call *next;
	struct sim_fiber *fiber; /* waits; or else done() */
	sim_http_done *done;
	void *arg;
	int from_host, to_host; /* EXTERNAL: ibvmig-sm, or on the same machine */
	struct sim_proc *server_proc;
	bool accepted, over, local, is_double;
	bool unread;     /* nobody looks at the body of its answer */
	bool has_double; /* with the same texts */
	unsigned refs;   /* events, an exchange, and who waits in http_call() */
	bool sm_waited;  /* ibvmig-sm, for an OpenSM that is stopped */
	char *base, *method, *path, *body;
	char param[64];
	struct sim_event *timeout;
	int rc;
	unsigned status;
	char *answer_text;
	struct json_object *answer;
	char error[HTTP_ERROR_MAX];
};

static struct http_server servers[SERVERS_MAX];
static char listening[SERVERS_MAX][256];
static unsigned listen_count;
static struct call *calls;

/* ---- servers ---- */

static int listen_at(const char *prefix, const char *address)
{
	for (unsigned i = 0; i < SERVERS_MAX; i++) {
		char text[256];

		snprintf(text, sizeof text, "%s%s", prefix, address);
		if (i < listen_count && strcmp(listening[i], text))
			continue;
		memcpy(listening[i], text, sizeof text);
		if (i == listen_count)
			listen_count++;
		return (int)i;
	}
	return -EMFILE;
}

int http_listen_unix(const char *path, unsigned mode)
{
	(void)mode;
	return listen_at("unix:", path);
}

int http_listen_tcp(const char *address)
{
	return listen_at("http://", address);
}

int http_server_new(sd_event *loop, int fd, struct tls *tls, const struct http_route *routes,
		    void *user, struct http_server **ret_server)
{
	struct http_server *s = &servers[fd];

	(void)tls;

	*s = (struct http_server){
		.routes = routes,
		.user = user,
		.proc = sim_proc_of_loop(loop),
	};
	memcpy(s->address, listening[fd], sizeof s->address);
	*ret_server = s;
	return 0;
}

void http_server_free(struct http_server *s)
{
	(void)s;
}

void http_server_set_roles(struct http_server *s, http_roles *roles)
{
	(void)s;
	(void)roles;
}

void http_client_secure(struct tls *tls, bool plain)
{
	(void)tls;
	(void)plain;
}

int http_server_limit(struct http_server *s, unsigned per_s)
{
	(void)s;
	(void)per_s;
	return 0;
}

const struct http_counters *http_server_counters(const struct http_server *s)
{
	static const struct http_counters none;

	(void)s;
	return &none;
}

static struct http_server *server_at(const char *base)
{
	for (unsigned i = 0; i < listen_count; i++)
		if (servers[i].proc && !strcmp(servers[i].address, base))
			return &servers[i];
	return NULL;
}

/* path without its query; *param: what stands for '*'. */
static bool matches(const char *route, const char *path, char param[64])
{
	const char *star = strchr(route, '*');
	size_t before = star ? (size_t)(star - route) : 0, n = strcspn(path, "?");
	size_t after = star ? strlen(star + 1) : 0;

	if (!star)
		return strlen(route) == n && !strncmp(route, path, n);
	if (n <= before + after || strncmp(route, path, before) ||
	    strncmp(star + 1, path + n - after, after) ||
	    memchr(path + before, '/', n - before - after) || n - before - after >= 64)
		return false;
	memcpy(param, path + before, n - before - after);
	param[n - before - after] = '\0';
	return true;
}

/* ---- the way of a call ---- */

static void put(struct call *c)
{
	if (--c->refs || !c->over || c->is_double || c->has_double)
		return;
	for (struct call **p = &calls; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	free(c->base);
	free(c->method);
	free(c->path);
	free(c->body);
	free(c->answer_text);
	if (c->done)
		json_object_put(c->answer);
	free(c);
}

/* fn gives the reference back. */
static struct sim_event *call_after(struct call *c, struct sim_proc *owner, uint64_t us,
				    void (*fn)(void *arg))
{
	c->refs++;
	return sim_after(owner, us, fn, c);
}

static void finish(struct call *c)
{
	if (c->over || c->is_double)
		return;
	c->over = true;
	sim_net.status = c->status;
	if (c->timeout) {
		sim_cancel(TAKE(c->timeout));
		c->refs--; /* the caller has one */
	}
	if (c->done)
		c->done(c->arg, c->rc, c->answer, c->error);
	else
		sim_wake(c->fiber);
}

static void fail(struct call *c, int rc, const char *why)
{
	c->rc = rc;
	snprintf(c->error, sizeof c->error, "%s%s: %s", c->base, c->path, why);
	finish(c);
}

static void timed_out(void *arg)
{
	struct call *c = arg;

	c->timeout = NULL;
	if (!c->over)
		fail(c, -ETIMEDOUT, "Timeout was reached");
	put(c);
}

static void take_answer(struct call *c)
{
	struct json_object *body = NULL;

	if (c->over)
		return;
	if (c->unread) {
		c->rc = c->status == 200 ? 0 : -EREMOTEIO;
		finish(c);
		return;
	}
	if (json_parse(c->answer_text, strlen(c->answer_text), &body)) {
		fail(c, -EBADMSG, "answered without a JSON object");
		return;
	}
	if (c->status >= 200 && c->status < 300) {
		c->answer = body;
	} else {
		struct json_object *list = json_opt(body, "errors");

		c->rc = -EREMOTEIO;
		snprintf(c->error, sizeof c->error, "%s",
			 json_opt_str(json_object_array_get_idx(list, 0), "detail", "?"));
		json_object_put(body);
	}
	finish(c);
}

static void answer_arrives(void *arg)
{
	take_answer(arg);
	put(arg);
}

static uint64_t cut_wait(const struct call *c)
{
	bool crosses = (c->from_host == HOST_A && c->to_host == HOST_B) ||
		       (c->from_host == HOST_B && c->to_host == HOST_A);

	return crosses && sim_net.cut_until_us > sim_us()
		       ? sim_net.cut_until_us - sim_us() + AFTER_CUT_US
		       : 0;
}

static uint64_t latency_us(void)
{
	return sim_net.latency_us + sim_random(sim_net.jitter_us);
}

static void send_answer(struct call *c, unsigned status, struct json_object *body)
{
	uint64_t us = latency_us() + cut_wait(c);

	c->status = status;
	free(c->answer_text);
	c->answer_text = strdup(json_text(body));
	json_object_put(body);
	if (!c->local && sim_net.replies == REPLIES_LOST) {
		sim_net.lost++;
		return;
	}
	if (!c->local && sim_net.replies == REPLIES_LATE)
		us += LATE_US;
	if (!c->local && sim_net.replies == REPLIES_REORDERED)
		us += sim_random(REORDER_US);
	call_after(c, NULL, us, answer_arrives);
}

static struct json_object *errors(unsigned status, const char *code, const char *detail)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(),
			   *e = json_object_new_object();

	json_set_str(e, "code", code);
	json_set_u64(e, "status", status);
	json_set_str(e, "detail", detail);
	json_object_array_add(list, e);
	json_set(o, "errors", list);
	return o;
}

/* A test that sees another answer than clients are told of is over. */
static void must_be_documented(const struct http_route *r, unsigned status)
{
	static struct json_object *doc;

	if (!doc)
		json_parse(openapi_text, strlen(openapi_text), &doc);
	if (documented_status(doc, r, status))
		return;
	printf("# docs/openapi.json does not have the answer %u of %s %s\n", status, r->method,
	       r->path);
	fflush(stdout);
	abort();
}

void http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	if (x->route)
		must_be_documented(x->route, status);
	if (!body)
		body = json_object_new_object();
	if (!x->call->is_double)
		send_answer(x->call, status, body);
	else
		json_object_put(body);
	put(x->call);
	free(x->path);
	free(x);
}

void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
{
	char detail[HTTP_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	http_reply(x, status, errors(status, code, detail));
}

const char *http_query(struct http_exchange *x, const char *key)
{
	const char *q = strchr(x->path, '?');
	size_t n = strlen(key);

	return q && !strncmp(q + 1, key, n) && q[1 + n] == '=' ? q + 2 + n : NULL;
}

const char *http_header(struct http_exchange *x, const char *name)
{
	(void)x;
	(void)name;
	return NULL;
}

/* Nobody here asks for another body than JSON. */
void http_reply_text(struct http_exchange *x, unsigned status, const char *type, char *text)
{
	(void)status;
	free(text);
	http_fail(x, 406, "played", "no %s here", type);
}

struct http_stream *http_stream_start(struct http_exchange *x, const char *type,
				      void (*gone)(void *arg), void *arg)
{
	(void)gone;
	(void)arg;
	http_fail(x, 406, "played", "no %s here", type);
	return NULL;
}

int http_stream_write(struct http_stream *s, const char *text)
{
	(void)s;
	(void)text;
	return 0;
}

void http_stream_end(struct http_stream *s)
{
	(void)s;
}

static void serve_request(struct call *c)
{
	struct http_server *s = server_at(c->base);
	struct http_request req = {
		.method = c->method, .path = c->path, .user = s->user, .roles = REST_ALL};
	struct json_object *body AUTO_JSON = NULL;

	c->accepted = true;
	req.exchange = calloc(1, sizeof *req.exchange);
	req.exchange->call = c;
	c->refs++;
	req.exchange->path = strdup(c->path);
	if (c->body && json_parse(c->body, strlen(c->body), &body)) {
		http_fail(req.exchange, 400, "bad-json", "the body is not one JSON object");
		return;
	}
	req.body = body;
	for (const struct http_route *r = s->routes; r->method; r++) {
		if (strcmp(r->method, c->method) || !matches(r->path, c->path, c->param))
			continue;
		req.param = strchr(r->path, '*') ? c->param : NULL;
		req.exchange->route = r;
		r->handler(&req);
		return;
	}
	http_fail(req.exchange, 404, "not-found", "%s %s", c->method, c->path);
}

static void serve(void *arg)
{
	serve_request(arg);
	put(arg);
}

static bool is_move(const struct call *c)
{
	return !strcmp(c->path, "/v1/moves");
}

static uint64_t sm_us(const struct call *c)
{
	return 20 * SIM_MS +
	       (is_move(c)                      ? sim_fabric.move_us
		: !strcmp(c->path, "/v1/fence") ? sim_fabric.fence_us
		: !strcmp(c->path, "/v1/memberships") && sim_fabric.rights == RIGHTS_SILENT
			? 3600 * SIM_S
			: 0);
}

static void serve_sm(void *arg);
static void serve_sm_request(struct call *c)
{
	struct json_object *body AUTO_JSON = NULL, *answer = NULL;
	char error[HTTP_ERROR_MAX] = "";
	unsigned status;

	if (sim_fabric.opensm_stopped_until_us > sim_us() && !c->sm_waited) {
		uint64_t us = sim_fabric.opensm_stopped_until_us - sim_us();

		c->sm_waited = true;
		call_after(c, &sim_fabric.sm, us < PLUGIN_US ? us : PLUGIN_US, serve_sm);
		return;
	}
	if (c->body)
		json_parse(c->body, strlen(c->body), &body);
	sim_fabric.asked -= is_move(c);
	status = sim_sm_request(c->method, c->path, body, &answer, error);
	if (status == 200)
		send_answer(c, 200, answer);
	else
		send_answer(c, status, errors(status, "sm", error));
}

static void serve_sm(void *arg)
{
	serve_sm_request(arg);
	put(arg);
}

static void ask_sm(struct call *c)
{
	c->server_proc = &sim_fabric.sm;
	if (!sim_fabric.sm.up) {
		fail(c, -ECONNREFUSED, "Could not connect to server");
		return;
	}
	sim_fabric.asked += is_move(c);
	if (sim_fabric.asked > sim_fabric.asked_most)
		sim_fabric.asked_most = sim_fabric.asked;
	call_after(c, c->server_proc, sm_us(c), serve_sm);
}

static void arrives(void *arg);
static void take_request(struct call *c)
{
	struct http_server *s = server_at(c->base);
	uint64_t cut_us = cut_wait(c);

	if (c->over)
		return;
	if (cut_us) {
		call_after(c, NULL, cut_us, arrives);
		return;
	}
	if (!strcmp(c->base, "http://10.0.0.9:7610")) {
		ask_sm(c);
		return;
	}
	if (!s || !s->proc->up) {
		fail(c, -ECONNREFUSED, "Could not connect to server");
		return;
	}
	c->server_proc = s->proc;
	call_after(c, s->proc, 0, serve);
}

static void arrives(void *arg)
{
	take_request(arg);
	put(arg);
}

/* The same request once more, as from a client that was told to try again. */
static void send_double(struct call *c)
{
	struct call *twin = malloc(sizeof *twin);

	c->has_double = true;
	*twin = *c;
	twin->refs = 0;
	twin->answer_text = NULL;
	twin->is_double = true;
	twin->over = false;
	twin->timeout = NULL;
	twin->fiber = NULL;
	twin->done = NULL;
	call_after(twin, NULL, sim_net.latency_us * 20, arrives);
}

static int host_of_url(const char *base)
{
	for (int i = 0; i < (int)sim_size.hosts; i++)
		if (!strcmp(sim_hosts[i].url, base))
			return i;
	return EXTERNAL;
}

static struct call *call_new(const char *base, const char *method, const char *path,
			     struct json_object *body, unsigned timeout_ms)
{
	struct call *c = calloc(1, sizeof *c);

	c->base = strdup(base);
	c->method = strdup(method);
	c->path = strdup(path);
	c->body = body ? strdup(json_text(body)) : NULL;
	c->from_host = EXTERNAL;
	c->to_host = host_of_url(base);
	c->local = !strncmp(base, "unix:", 5);
	c->next = calls;
	calls = c;
	sim_net.calls++;
	c->timeout = call_after(c, NULL, timeout_ms * SIM_MS, timed_out);
	call_after(c, NULL, latency_us(), arrives);
	if (!c->local && sim_net.replies == REPLIES_DOUBLED)
		send_double(c);
	return c;
}

void sim_http(int from_host, const char *base, const char *method, const char *path,
	      struct json_object *body, unsigned timeout_ms, sim_http_done *done, void *arg)
{
	struct call *c = call_new(base, method, path, body, timeout_ms);

	c->from_host = from_host;
	c->done = done;
	c->arg = arg;
}

void sim_http_get(const char *base, const char *path, unsigned timeout_ms, sim_http_done *done,
		  void *arg)
{
	struct call *c = call_new(base, "GET", path, NULL, timeout_ms);

	c->unread = true;
	c->done = done;
	c->arg = arg;
}

void http_client_init(void)
{
}

int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body, char error[static HTTP_ERROR_MAX])
{
	struct call *c = call_new(base, method, path, body, timeout_ms);
	int rc;

	*ret_body = NULL;
	for (int i = 0; i < (int)sim_size.hosts; i++)
		if (&sim_hosts[i].proc == sim_self)
			c->from_host = i;
	c->fiber = sim_fiber();
	c->refs++;
	sim_wait();
	memcpy(error, c->error, sizeof c->error);
	*ret_body = c->answer;
	rc = c->rc;
	put(c);
	return rc;
}

void sim_net_proc_died(struct sim_proc *p)
{
	for (struct call *c = calls, *next; c; c = next) {
		next = c->next;
		if (c->over || c->is_double)
			continue;
		if (c->server_proc == p)
			fail(c, -EIO, "Failure when receiving data from the peer");
	}
}
