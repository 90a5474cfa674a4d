/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/events.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>

struct waiter {
	struct waiter *next;
	struct events *events;
	struct http_exchange *exchange;
	struct loop_timer *timer; /* owned */
	uint64_t since;
};

struct follower {
	struct follower *next;
	struct events *events;
	struct http_stream *stream;
};

struct events {
	sd_event *loop;                        /* borrowed */
	struct json_object *ring[EVENTS_KEPT]; /* owned */
	uint64_t last;                         /* seq of the newest; 0: none yet */
	struct waiter *waiters;                /* owned */
	unsigned waiter_count;
	struct follower *followers; /* owned */
	unsigned follower_count;
	struct loop_timer *beat; /* owned */
};

static void on_beat(void *arg);

int events_new(sd_event *loop, struct events **ret_events)
{
	struct events *e = calloc(1, sizeof *e);
	int rc;

	if (!e)
		return -ENOMEM;
	e->loop = loop;
	rc = loop_timer_new(loop, on_beat, e, &e->beat);
	if (rc) {
		free(e);
		return rc;
	}
	*ret_events = e;
	return 0;
}

static uint64_t oldest(const struct events *e, uint64_t since)
{
	uint64_t kept = e->last > EVENTS_KEPT ? e->last - EVENTS_KEPT + 1 : 1;

	return since + 1 > kept ? since + 1 : kept;
}

void events_answer(struct events *e, struct http_exchange *x, uint64_t since)
{
	struct json_object *top = json_object_new_object(), *list = json_object_new_array();

	for (uint64_t n = oldest(e, since); n <= e->last; n++)
		json_object_array_add(list, json_object_get(e->ring[n % EVENTS_KEPT]));
	json_set_u64(top, "next", e->last);
	json_set(top, "events", list);
	http_reply(x, 200, top);
}

static void waiter_end(struct waiter *w)
{
	struct events *e = w->events;

	for (struct waiter **p = &e->waiters; *p; p = &(*p)->next) {
		if (*p == w) {
			*p = w->next;
			break;
		}
	}
	e->waiter_count--;
	events_answer(e, w->exchange, w->since);
	loop_timer_free(w->timer);
	free(w);
}

static void on_timeout(void *arg)
{
	waiter_end(arg);
}

/* ---- streams ---- */

static void follower_free(struct follower *w)
{
	struct events *e = w->events;

	for (struct follower **p = &e->followers; *p; p = &(*p)->next) {
		if (*p == w) {
			*p = w->next;
			break;
		}
	}
	if (!--e->follower_count)
		loop_timer_disarm(e->beat);
	free(w);
}

static void on_gone(void *arg)
{
	follower_free(arg);
}

/* A client that does not read is left behind; it may come again with the last number it had. */
static void follower_write(struct follower *w, const char *text)
{
	if (!http_stream_write(w->stream, text))
		return;
	http_stream_end(w->stream);
	follower_free(w);
}

static void write_event(struct follower *w, struct json_object *event)
{
	char *text AUTO_FREE = strf("id: %llu\nevent: %s\ndata: %s\n\n",
				    (unsigned long long)json_opt_u64(event, "seq", 0),
				    json_opt_str(event, "type", "message"), json_text(event));

	follower_write(w, text ? text : "");
}

static void each_follower(struct events *e, struct json_object *event)
{
	struct follower *next;

	for (struct follower *w = e->followers; w; w = next) {
		next = w->next;
		if (event)
			write_event(w, event);
		else
			follower_write(w, ": alive\n\n");
	}
}

static void on_beat(void *arg)
{
	struct events *e = arg;

	each_follower(e, NULL);
	if (e->followers)
		loop_timer_arm(e->beat, EVENTS_BEAT_MS);
}

void events_stream(struct events *e, struct http_exchange *x, uint64_t since)
{
	struct follower *w = e->follower_count < EVENTS_POLL_MAX ? calloc(1, sizeof *w) : NULL;
	uint64_t n;

	if (!w) {
		http_fail(x, 503, "too-many", "%d clients have streams already", EVENTS_POLL_MAX);
		return;
	}
	w->events = e;
	w->stream = http_stream_start(x, "text/event-stream", on_gone, w);
	if (!w->stream) {
		free(w);
		return;
	}
	w->next = e->followers;
	e->followers = w;
	if (!e->follower_count++)
		loop_timer_arm(e->beat, EVENTS_BEAT_MS);
	/* A number from before a restart of the daemon: start over. */
	for (n = oldest(e, since > e->last ? 0 : since); n <= e->last && e->followers == w; n++)
		write_event(w, e->ring[n % EVENTS_KEPT]);
}

void events_free(struct events *e)
{
	if (!e)
		return;
	while (e->followers) {
		http_stream_end(e->followers->stream);
		follower_free(e->followers);
	}
	loop_timer_free(e->beat);
	while (e->waiters)
		waiter_end(e->waiters);
	for (unsigned i = 0; i < EVENTS_KEPT; i++)
		json_object_put(e->ring[i]);
	free(e);
}

void events_publish(struct events *e, struct json_object *event)
{
	struct json_object **slot = &e->ring[++e->last % EVENTS_KEPT];

	json_set_u64(event, "seq", e->last);
	json_set_u64(event, "wall_ms", wall_ms());
	json_object_put(*slot);
	*slot = event;
	each_follower(e, event);
	while (e->waiters)
		waiter_end(e->waiters);
}

void events_wait(struct events *e, struct http_exchange *x, uint64_t since)
{
	struct waiter *w;

	/* A number from before a restart of the daemon: start over. */
	if (since > e->last)
		since = 0;
	/* Without an event and at once, it would be asked again at once. */
	if (since == e->last && e->waiter_count >= EVENTS_POLL_MAX) {
		http_fail(x, 503, "too-many", "%d clients wait for events already",
			  EVENTS_POLL_MAX);
		return;
	}
	w = since < e->last ? NULL : calloc(1, sizeof *w);
	if (!w || loop_timer_new(e->loop, on_timeout, w, &w->timer)) {
		free(w);
		events_answer(e, x, since);
		return;
	}
	w->events = e;
	w->exchange = x;
	w->since = since;
	w->next = e->waiters;
	e->waiters = w;
	e->waiter_count++;
	loop_timer_arm(w->timer, EVENTS_POLL_MS);
}
