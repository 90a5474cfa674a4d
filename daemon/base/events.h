/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events of this host for those who wait: the last ones in memory, and long polls for the next. */
#ifndef IBVMIG_DAEMON_BASE_EVENTS_H
#define IBVMIG_DAEMON_BASE_EVENTS_H

#include <json-c/json.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define EVENTS_KEPT     1024
#define EVENTS_POLL_MS  25000
#define EVENTS_POLL_MAX 64 /* long polls, and as many streams */
#define EVENTS_BEAT_MS  15000

struct events;
struct http_exchange;

int events_new(sd_event *loop, struct events **ret_events);
/* Answers all who wait. */
void events_free(struct events *e);

/* Takes the ownership of event; adds seq and wall_ms. */
void events_publish(struct events *e, struct json_object *event);
/* Answers at once with what is newer than since and still kept. */
void events_answer(struct events *e, struct http_exchange *x, uint64_t since);
/* Answers {"next","events":[…]} with what is newer than since, at once or when something comes,
 * after EVENTS_POLL_MS at the latest; 503 to more than EVENTS_POLL_MAX who would wait. */
void events_wait(struct events *e, struct http_exchange *x, uint64_t since);
/* Server-Sent Events: what is newer than since and still kept, then all that comes; a comment every
 * EVENTS_BEAT_MS, so that a client that is gone is noticed. */
void events_stream(struct events *e, struct http_exchange *x, uint64_t since);

#endif
