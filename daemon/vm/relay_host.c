/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls to other hosts: one at a time to each, with what waits, some of each sender. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/vm/relay_int.h"
#include "daemon/vm/rights.h"

#include <errno.h>
#include <string.h>

#define RELAY_DEADLINE_MS 5000
#define HOST_RETRIES      8
#define HOST_RETRY_MS     100

/* A host, by its URL: the messages that wait, and those of the call that is under way. */
struct host {
	struct host *next;
	char url[256];
	unsigned failures;        /* calls in a row without an answer */
	struct loop_timer *retry; /* owned */
	struct fair waiting;      /* by sender */
	struct messages sent;     /* of the call; none: there is no call */
	struct relay *relay;      /* borrowed */
};

static void host_call(struct host *h);

static void host_retry(void *arg)
{
	host_call(arg);
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
	messages_init(&h->sent);
	snprintf(h->url, sizeof h->url, "%s", url);
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

/* Takes as many messages as one call takes. */
static void host_take(struct host *h)
{
	size_t bytes = 0;

	while (h->waiting.bytes &&
	       (!bytes || bytes + fair_peek(&h->waiting)->bytes <= RELAY_BATCH_BYTES)) {
		struct message *m = (struct message *)fair_pop(&h->waiting);

		bytes += m->item.bytes;
		messages_add(&h->sent, m);
	}
}

static void host_send(struct host *h)
{
	if (h->sent.head)
		return; /* what waits goes with the next call */
	host_take(h);
	if (h->sent.head)
		host_call(h);
}

/* The host's daemon may be restarting, or there was no memory for the call: the same messages go
 * again. false: they have gone often enough. */
static bool host_later(struct host *h)
{
	if (h->failures >= HOST_RETRIES)
		return false;
	loop_timer_arm(h->retry, HOST_RETRY_MS * ++h->failures);
	return true;
}

static bool is_in(struct json_object *list, size_t i)
{
	for (size_t k = 0; k < json_count(list); k++)
		if (json_object_get_uint64(json_object_array_get_idx(list, k)) == i)
			return true;
	return false;
}

/* The P_Keys that were sent along may be old. */
static void host_barred(struct host *h, struct message *m)
{
	vm_rights_refresh(h->relay->d);
	relay_failed(h->relay, m, RELAY_BARRED);
}

static void host_done(struct job *j)
{
	struct host *h = j->owner;
	struct json_object *answer = json_opt(j->out, "answer");
	struct messages sent = h->sent;
	struct message *m;

	if (j->rc && j->rc != -EREMOTEIO && host_later(h))
		return;
	h->failures = 0;
	messages_init(&h->sent);
	for (size_t i = 0; sent.head && (m = messages_take(&sent)); i++) {
		if (j->rc)
			relay_again(h->relay, m, h->url, j->error);
		else if (is_in(json_opt(answer, "barred"), i))
			host_barred(h, m);
		else if (is_in(json_opt(answer, "refused"), i))
			relay_again(h->relay, m, h->url, "the VM with that GID is not reachable");
		else
			relay_message_free(h->relay, m);
	}
	host_send(h);
}

static struct json_object *host_batch(const struct host *h)
{
	struct json_object *batch = json_object_new_object(), *list = json_object_new_array();

	for (const struct message *m = h->sent.head; m; m = (const void *)m->item.next)
		json_object_array_add(list, json_object_get(m->json));
	json_set(batch, "messages", list);
	return batch;
}

static void host_call(struct host *h)
{
	struct json_object *in = json_object_new_object();
	struct messages sent;

	json_set_str(in, "url", h->url);
	json_set(in, "batch", host_batch(h));
	if (!job_order(h->relay->d, &(struct job_order){.pool = h->relay->d->relays,
							.in = in,
							.run = host_run,
							.done = host_done,
							.owner = h}) ||
	    host_later(h))
		return;
	h->failures = 0;
	sent = h->sent;
	messages_init(&h->sent);
	while (sent.head)
		relay_failed(h->relay, messages_take(&sent), "the host is out of memory");
}

void relay_host_add(struct relay *r, const char *url, struct message *m)
{
	struct host *h = host_of(r, url);

	if (!h || fair_push(&h->waiting, m->sender->key, &m->item, m->bytes)) {
		relay_failed(r, m, "the host is out of memory");
		return;
	}
	host_send(h);
}

void relay_hosts_free(struct relay *r)
{
	while (r->hosts) {
		struct host *h = r->hosts;
		struct fair_item *item;

		r->hosts = h->next;
		while (h->sent.head)
			relay_message_free(r, messages_take(&h->sent));
		while ((item = fair_pop(&h->waiting)))
			relay_message_free(r, (struct message *)item);
		loop_timer_free(h->retry);
		free(h);
	}
}
