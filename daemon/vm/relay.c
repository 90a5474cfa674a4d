/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/relay.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/base/settings.h"
#include "daemon/vm/vm.h"
#include "daemon/vm/channel.h"

#include <errno.h>
#include <string.h>

#define RELAY_DEADLINE_MS 5000
#define RELAY_TEXT_MAX    (RELAY_BODY_MAX / 3 * 4 + 8)
#define RETRIES_MAX       3
#define HOST_RETRIES      8
#define HOST_RETRY_MS     100

enum route_state {
	ROUTE_IDLE,   /* known, or nobody wants to know */
	ROUTE_QUEUED, /* to be looked up when others have been */
	ROUTE_ASKED,
};

/* The way to a GUID. Messages wait here while it is looked up. */
struct route {
	struct route *next;
	uint64_t guid;
	uint64_t asker; /* GUID: whose message it is looked up for */
	uint64_t used;  /* relay.uses at its last use */
	char url[256];  /* "" while unknown */
	enum route_state state;
	struct json_object *waiting; /* owned array */
};

/* A host, by its URL: the messages that wait, and whether a call is under way. */
struct host {
	struct host *next;
	char url[256];
	bool busy;
	unsigned failures;           /* calls in a row without an answer */
	struct loop_timer *retry;    /* owned */
	struct json_object *waiting; /* owned array */
	struct relay *relay;         /* borrowed */
};

struct relay {
	struct daemon *d;     /* borrowed */
	struct route *routes; /* owned; newest first */
	struct host *hosts;   /* owned */
	uint64_t uses;
	unsigned route_count, asking;
};

static void send_message(struct relay *r, struct json_object *msg);

int relay_new(struct daemon *d, struct relay **ret_relay)
{
	struct relay *r = calloc(1, sizeof *r);

	if (!r)
		return -ENOMEM;
	r->d = d;
	*ret_relay = r;
	return 0;
}

void relay_free(struct relay *r)
{
	if (!r)
		return;
	while (r->routes) {
		struct route *t = r->routes;

		r->routes = t->next;
		json_object_put(t->waiting);
		free(t);
	}
	while (r->hosts) {
		struct host *h = r->hosts;

		r->hosts = h->next;
		json_object_put(h->waiting);
		loop_timer_free(h->retry);
		free(h);
	}
	free(r);
}

static uint64_t guid_of(struct json_object *msg, const char *key)
{
	struct ib_gid gid;

	return ib_gid_parse(json_opt_str(msg, key, ""), &gid) ? 0 : gid.guid;
}

/* The sender, if it is on this host, hears of it; another host is told in the answer. */
static void failed(struct relay *r, struct json_object *msg, const char *error)
{
	struct vm *vm = vm_by_guid(r->d, guid_of(msg, "from"));

	log_debug("relay from %s to %s: %s", json_opt_str(msg, "from", "?"),
		  json_opt_str(msg, "to", "?"), error);
	if (vm)
		vm_channel_relay_failed(vm, json_opt_str(msg, "to", ""), error);
}

/* A VM of this host gets it. 0, or -errno if its guest cannot take it. */
static int deliver(struct vm *vm, struct json_object *msg)
{
	struct json_object *copy = json_object_new_object();

	json_set_str(copy, "op", "relay");
	json_set_str(copy, "from", json_opt_str(msg, "from", ""));
	json_set_str(copy, "to", json_opt_str(msg, "to", ""));
	json_set_str(copy, "body", json_opt_str(msg, "body", ""));
	return agent_send(vm->agent, copy);
}

/* ---- hosts ---- */

static void host_send(struct relay *r, struct host *h);

static void host_retry(void *arg)
{
	struct host *h = arg;

	h->busy = false;
	host_send(h->relay, h);
}

static struct host *host_of(struct relay *r, const char *url)
{
	struct host *h;

	for (h = r->hosts; h; h = h->next)
		if (!strcmp(h->url, url))
			return h;
	h = calloc(1, sizeof *h);
	if (!h || loop_timer_new(r->d->loop, host_retry, h, &h->retry)) {
		free(h);
		return NULL;
	}
	h->relay = r;
	snprintf(h->url, sizeof h->url, "%s", url);
	h->waiting = json_object_new_array();
	h->next = r->hosts;
	r->hosts = h;
	return h;
}

static void host_run(struct job *j)
{
	struct json_object *answer = NULL;

	j->rc = http_call(json_opt_str(j->in, "url", ""), "POST", "/v1/peer/relay",
			  json_opt(j->in, "batch"), RELAY_DEADLINE_MS, &answer, j->error);
	json_set(j->out, "answer", answer);
}

static struct route *route_find(struct relay *r, uint64_t guid)
{
	for (struct route *t = r->routes; t; t = t->next)
		if (t->guid == guid)
			return t;
	return NULL;
}

/* The other host does not have that VM (any more): look it up again, a few times. */
static void again(struct relay *r, struct json_object *msg, const char *url, const char *error)
{
	struct route *t = route_find(r, guid_of(msg, "to"));
	uint64_t tries = json_opt_u64(msg, "tries", 0);

	if (tries >= RETRIES_MAX) {
		failed(r, msg, error);
		return;
	}
	if (t && !strcmp(t->url, url))
		t->url[0] = '\0';
	json_set_u64(msg, "tries", tries + 1);
	send_message(r, json_object_get(msg));
}

/* The host's daemon may be restarting, or there was no memory for the call: the same messages go
 * again, in their order. true: they wait. */
static bool put_back(struct host *h, struct json_object *sent)
{
	struct json_object *list;

	if (h->failures >= HOST_RETRIES)
		return false;
	list = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(sent); i++)
		json_object_array_add(list, json_object_get(json_object_array_get_idx(sent, i)));
	for (size_t i = 0; i < json_object_array_length(h->waiting); i++)
		json_object_array_add(list,
				      json_object_get(json_object_array_get_idx(h->waiting, i)));
	json_object_put(h->waiting);
	h->waiting = list;
	loop_timer_arm(h->retry, HOST_RETRY_MS * ++h->failures);
	return true;
}

static void host_done(struct job *j)
{
	struct host *h = j->owner;
	struct relay *r = j->d->relay;
	struct json_object *sent = json_opt(json_opt(j->in, "batch"), "messages");
	struct json_object *refused = json_opt(json_opt(j->out, "answer"), "refused");

	if (j->rc && j->rc != -EREMOTEIO && put_back(h, sent))
		return;
	h->busy = false;
	h->failures = 0;
	for (size_t i = 0; j->rc && i < json_object_array_length(sent); i++)
		again(r, json_object_array_get_idx(sent, i), h->url, j->error);
	for (size_t i = 0;
	     json_object_is_type(refused, json_type_array) && i < json_object_array_length(refused);
	     i++) {
		size_t n = (size_t)json_object_get_uint64(json_object_array_get_idx(refused, i));

		if (n < json_object_array_length(sent))
			again(r, json_object_array_get_idx(sent, n), h->url,
			      "the VM with that GID is not reachable");
	}
	host_send(r, h);
}

/* As many of the waiting messages as one call takes. */
static struct json_object *host_batch(struct host *h)
{
	struct json_object *batch = json_object_new_object(), *list = json_object_new_array();
	size_t n = json_object_array_length(h->waiting), bytes = 0, i;

	for (i = 0; i < n; i++) {
		struct json_object *msg = json_object_array_get_idx(h->waiting, i);

		bytes += (size_t)json_object_get_string_len(json_opt(msg, "body")) + 256;
		if (i && bytes > RELAY_BATCH_BYTES)
			break;
		json_object_array_add(list, json_object_get(msg));
	}
	json_object_array_del_idx(h->waiting, 0, i);
	json_set(batch, "messages", list);
	return batch;
}

static void host_send(struct relay *r, struct host *h)
{
	struct json_object *in, *batch AUTO_JSON = NULL, *messages;

	if (h->busy || !json_object_array_length(h->waiting))
		return;
	in = json_object_new_object();
	batch = host_batch(h);
	json_set_str(in, "url", h->url);
	json_set(in, "batch", json_object_get(batch));
	h->busy = true;
	if (!job_start(r->d, in, host_run, host_done, h, 0))
		return;
	messages = json_opt(batch, "messages");
	if (put_back(h, messages))
		return;
	h->busy = false;
	h->failures = 0;
	for (size_t i = 0; i < json_object_array_length(messages); i++)
		failed(r, json_object_array_get_idx(messages, i), "the host is out of memory");
}

/* ---- routes ---- */

/* The one that has not been used for longest, of those that nobody waits for. */
static bool route_forget(struct relay *r)
{
	struct route **oldest = NULL, *t;

	for (struct route **p = &r->routes; *p; p = &(*p)->next)
		if ((*p)->state == ROUTE_IDLE && (!oldest || (*p)->used < (*oldest)->used))
			oldest = p;
	if (!oldest)
		return false;
	t = *oldest;
	*oldest = t->next;
	json_object_put(t->waiting);
	free(t);
	r->route_count--;
	return true;
}

static struct route *route_of(struct relay *r, uint64_t guid)
{
	struct route *t = route_find(r, guid);

	if (!t && (r->route_count < RELAY_ROUTES_MAX || route_forget(r)) &&
	    (t = calloc(1, sizeof *t))) {
		t->guid = guid;
		t->waiting = json_object_new_array();
		t->next = r->routes;
		r->routes = t;
		r->route_count++;
	}
	if (t)
		t->used = ++r->uses;
	return t;
}

static void route_flush(struct relay *r, struct route *t, const char *error)
{
	struct json_object *waiting AUTO_JSON = t->waiting;

	t->waiting = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(waiting); i++) {
		struct json_object *msg = json_object_array_get_idx(waiting, i);

		if (*t->url)
			send_message(r, json_object_get(msg));
		else
			failed(r, msg, error);
	}
}

static void ask_run(struct job *j)
{
	struct location l;

	j->rc = locate_guid(j->d->settings, j->serial, &l, j->error);
	if (!j->rc)
		json_set_str(j->out, "url", l.url);
}

static void ask_done(struct job *j);

static struct route *oldest_queued(const struct relay *r)
{
	struct route *found = NULL;

	for (struct route *t = r->routes; t; t = t->next)
		if (t->state == ROUTE_QUEUED)
			found = t;
	return found;
}

/* A few at a time: with an ibvmig-sm that is slow, or silent, they would have all workers, which
 * migrations need. */
static void ask_more(struct relay *r)
{
	struct route *t;

	while (r->asking < RELAY_LOOKUPS_MAX && (t = oldest_queued(r))) {
		if (job_start(r->d, NULL, ask_run, ask_done, NULL, t->guid)) {
			t->state = ROUTE_IDLE;
			route_flush(r, t, "the host is out of memory");
			continue;
		}
		t->state = ROUTE_ASKED;
		r->asking++;
	}
}

static void ask_done(struct job *j)
{
	struct relay *r = j->d->relay;
	struct route *t = route_find(r, j->serial);

	r->asking--;
	t->state = ROUTE_IDLE;
	if (!j->rc && !*t->url)
		snprintf(t->url, sizeof t->url, "%s", json_opt_str(j->out, "url", ""));
	route_flush(r, t, j->error);
	ask_more(r);
}

void relay_set_route(struct relay *r, uint64_t guid, const char *url)
{
	struct route *t = route_of(r, guid);

	if (!t)
		return;
	snprintf(t->url, sizeof t->url, "%s", url);
	if (t->state == ROUTE_QUEUED)
		t->state = ROUTE_IDLE;
	if (t->state == ROUTE_IDLE)
		route_flush(r, t, "");
}

/* A VM that asks for GUIDs which nobody has must leave room for the others. */
static bool asks_too_much(struct relay *r, uint64_t asker)
{
	unsigned n = 0;

	for (struct route *t = r->routes; t; t = t->next)
		n += t->state != ROUTE_IDLE && t->asker == asker;
	return n >= RELAY_ASKED_MAX;
}

static void look_up(struct relay *r, struct route *t, uint64_t asker)
{
	t->asker = asker;
	t->state = ROUTE_QUEUED;
	ask_more(r);
}

/* msg: owned by the call. */
static void send_message(struct relay *r, struct json_object *msg)
{
	struct json_object *owned AUTO_JSON = msg;
	uint64_t from = guid_of(msg, "from"), to = guid_of(msg, "to");
	struct vm *vm = vm_by_guid(r->d, to);
	struct route *t;
	struct host *h;

	if (vm && vm->agent && !deliver(vm, msg))
		return;
	t = route_of(r, to);
	if (!t) {
		failed(r, msg, "the host looks too many GIDs up");
		return;
	}
	/* A route to ourselves is stale: the VM is not here. */
	if (*t->url && strcmp(t->url, r->d->settings->url)) {
		h = host_of(r, t->url);
		if (!h || json_object_array_length(h->waiting) >= RELAY_QUEUE_MAX) {
			failed(r, msg, "too many messages wait for that host");
			return;
		}
		json_object_array_add(h->waiting, TAKE(owned));
		host_send(r, h);
		return;
	}
	t->url[0] = '\0';
	if (json_object_array_length(t->waiting) >= RELAY_QUEUE_MAX) {
		failed(r, msg, "too many messages wait for that GID");
		return;
	}
	if (t->state == ROUTE_IDLE && asks_too_much(r, from)) {
		failed(r, msg, "too many GIDs at once that are not known yet");
		return;
	}
	json_object_array_add(t->waiting, TAKE(owned));
	if (t->state == ROUTE_IDLE)
		look_up(r, t, from);
}

/* ---- in and out ---- */

static const char *check(struct json_object *msg)
{
	struct ib_gid gid;

	if (ib_gid_parse(json_opt_str(msg, "to", ""), &gid))
		return "field \"to\" must be a GID";
	if (ib_gid_parse(json_opt_str(msg, "from", ""), &gid))
		return "field \"from\" must be a GID";
	if (strlen(json_opt_str(msg, "body", "")) > RELAY_TEXT_MAX)
		return "field \"body\" must be at most 256 KiB of base 64";
	return NULL;
}

void relay_from_guest(struct relay *r, struct vm *vm, struct json_object *msg)
{
	const char *wrong = check(msg);
	struct json_object *copy;

	if (!wrong && !vm_has_guid(vm, guid_of(msg, "from")))
		wrong = "field \"from\" is not a GID of this VM";
	if (wrong) {
		vm_channel_relay_failed(vm, json_opt_str(msg, "to", ""), wrong);
		return;
	}
	/* Only known fields leave the host. */
	copy = json_object_new_object();
	json_set_str(copy, "from", json_opt_str(msg, "from", ""));
	json_set_str(copy, "to", json_opt_str(msg, "to", ""));
	json_set_str(copy, "body", json_opt_str(msg, "body", ""));
	send_message(r, copy);
}

void relay_receive(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *list, *refused, *answer;
	struct json_reader r;

	json_reader_init(&r, req->body);
	list = json_need_array(&r, "messages");
	if (r.error) {
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
		return;
	}
	refused = json_object_new_array();
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *msg = json_object_array_get_idx(list, i);
		struct vm *vm = check(msg) ? NULL : vm_by_guid(d, guid_of(msg, "to"));

		if (!vm || !vm->agent || deliver(vm, msg))
			json_object_array_add(refused, json_object_new_uint64(i));
	}
	answer = json_object_new_object();
	json_set(answer, "refused", refused);
	http_reply(req->exchange, 200, answer);
}
