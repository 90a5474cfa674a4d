/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The host of a GUID. ibvmig-sm is asked for it, for a few messages' senders at a time. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/locate.h"
#include "daemon/base/settings.h"
#include "daemon/vm/relay_int.h"

#include <string.h>

enum route_state {
	ROUTE_IDLE,   /* known, or nobody wants to know */
	ROUTE_QUEUED, /* to be looked up when others have been */
	ROUTE_ASKED,
};

/* The way to a GUID. Messages wait here while it is looked up. */
struct route {
	struct route *next;
	uint64_t guid;
	uint64_t used; /* relay.uses at its last use */
	char url[256]; /* "" while unknown */
	enum route_state state;
	struct sender *asker;    /* whose message it is looked up for; one of those that wait */
	struct messages waiting; /* owned */
};

static struct route *route_find(struct relay *r, uint64_t guid)
{
	for (struct route *t = r->routes; t; t = t->next)
		if (t->guid == guid)
			return t;
	return NULL;
}

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
		messages_init(&t->waiting);
		t->next = r->routes;
		r->routes = t;
		r->route_count++;
	}
	if (t)
		t->used = ++r->uses;
	return t;
}

/* The look-up has ended: its messages go, or have failed. */
static void route_flush(struct relay *r, struct route *t, const char *error)
{
	struct messages waiting = t->waiting;
	bool known = *t->url;

	t->state = ROUTE_IDLE;
	if (t->asker)
		t->asker->asked--;
	t->asker = NULL;
	if (!waiting.head)
		return;
	messages_init(&t->waiting);
	while (waiting.head) {
		struct message *m = messages_take(&waiting);

		if (known)
			relay_send(r, m);
		else
			relay_failed(r, m, error);
	}
}

static void ask_run(struct job *j)
{
	struct location l;

	j->rc = locate_guid(j->d->settings, j->serial, &l, j->error);
	if (!j->rc)
		json_set_str(j->out, "url", l.url);
}

/* The oldest of the sender that has the fewest under way, and may have one more. */
static struct route *next_queued(const struct relay *r)
{
	struct route *found = NULL;

	for (struct route *t = r->routes; t; t = t->next)
		if (t->state == ROUTE_QUEUED && t->asker->asking < RELAY_LOOKUPS_EACH &&
		    (!found || t->asker->asking <= found->asker->asking))
			found = t;
	return found;
}

static void ask_done(struct job *j);

/* A few at a time: with an ibvmig-sm that is slow, or silent, they would have all workers. */
static void ask_more(struct relay *r)
{
	struct route *t;

	while (r->asking < RELAY_LOOKUPS_MAX && (t = next_queued(r))) {
		if (job_order(r->d, &(struct job_order){.pool = r->d->guests,
							.run = ask_run,
							.done = ask_done,
							.serial = t->guid})) {
			route_flush(r, t, "the host is out of memory");
			continue;
		}
		t->state = ROUTE_ASKED;
		t->asker->asking++;
		r->asking++;
	}
}

static void ask_done(struct job *j)
{
	struct relay *r = j->d->relay;
	struct route *t = route_find(r, j->serial);

	r->asking--;
	t->asker->asking--;
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
	if (t->state != ROUTE_ASKED)
		route_flush(r, t, "");
}

void relay_route_wrong(struct relay *r, uint64_t guid, const char *url)
{
	struct route *t = route_find(r, guid);

	if (t && !strcmp(t->url, url))
		t->url[0] = '\0';
}

void relay_route_add(struct relay *r, struct message *m)
{
	struct route *t = route_of(r, m->to);

	if (!t) {
		relay_failed(r, m, "the host looks too many GIDs up");
		return;
	}
	/* A route to ourselves is stale: the VM is not here. */
	if (*t->url && strcmp(t->url, r->d->settings->url)) {
		relay_host_add(r, t->url, m);
		return;
	}
	if (*t->url && m->tries++ >= RELAY_RETRIES_MAX) {
		relay_failed(r, m, "the VM with that GID has left this host");
		return;
	}
	t->url[0] = '\0';
	if (t->state == ROUTE_IDLE && m->sender->asked >= RELAY_ASKED_MAX) {
		relay_failed(r, m, "too many GIDs at once that are not known yet");
		return;
	}
	messages_add(&t->waiting, m);
	if (t->state != ROUTE_IDLE)
		return;
	t->state = ROUTE_QUEUED;
	t->asker = m->sender;
	t->asker->asked++;
	ask_more(r);
}

void relay_routes_free(struct relay *r)
{
	while (r->routes) {
		struct route *t = r->routes;

		r->routes = t->next;
		while (t->waiting.head)
			relay_message_free(r, messages_take(&t->waiting));
		free(t);
	}
}
