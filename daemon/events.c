/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/events.h"
#include "common/http_server.h"
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

struct events {
	sd_event *loop;                        /* borrowed */
	struct json_object *ring[EVENTS_KEPT]; /* owned */
	uint64_t last;                         /* seq of the newest; 0: none yet */
	struct waiter *waiters;                /* owned */
	unsigned waiter_count;
};

int events_new(sd_event *loop, struct events **ret_events)
{
	struct events *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->loop = loop;
	*ret_events = e;
	return 0;
}

void events_answer(struct events *e, struct http_exchange *x, uint64_t since)
{
	struct json_object *top = json_object_new_object(), *list = json_object_new_array();
	uint64_t oldest = e->last > EVENTS_KEPT ? e->last - EVENTS_KEPT + 1 : 1;

	for (uint64_t n = since + 1 > oldest ? since + 1 : oldest; n <= e->last; n++)
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

void events_free(struct events *e)
{
	if (!e)
		return;
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
	while (e->waiters)
		waiter_end(e->waiters);
}

void events_wait(struct events *e, struct http_exchange *x, uint64_t since)
{
	struct waiter *w;

	/* A number from before a restart of the daemon: start over. */
	if (since > e->last)
		since = 0;
	w = since < e->last || e->waiter_count >= EVENTS_POLL_MAX ? NULL : calloc(1, sizeof *w);
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
