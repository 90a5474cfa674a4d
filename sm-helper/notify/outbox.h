/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Notices on their way to hosts: to each host in order, to many hosts side by side. One that is not
 * acknowledged is sent again, later each time; when that is over, the host is given up: it gets no
 * more until it subscribes again. */
#ifndef IBVMIG_SM_HELPER_NOTIFY_OUTBOX_H
#define IBVMIG_SM_HELPER_NOTIFY_OUTBOX_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#define OUTBOX_THREADS  8
#define OUTBOX_LANE_MAX 128 /* notices that wait for one host; then the host is given up */
#define OUTBOX_TRIES    6

struct outbox;

/* Delivers one notice; blocks. From our threads. 0: acknowledged; -errno with a line in error. */
typedef int outbox_send_fn(void *arg, const char *url, struct json_object *body, char *error);
/* The host does not take notices. From our threads. */
typedef void outbox_lost_fn(void *arg, const char *host, const char *url, const char *error);

/* Counts since the start, but for pending. */
struct outbox_counts {
	uint64_t sent;    /* attempts */
	uint64_t acked;   /* notices that were taken */
	uint64_t retried; /* attempts that were followed by another one */
	uint64_t lost;    /* notices given up, tried or not */
	uint64_t pending;
};

/* backoff_ms: before the second attempt; four times as long before each later one. 0 or -errno. */
int outbox_new(outbox_send_fn *send, outbox_lost_fn *lost, void *arg, unsigned backoff_ms,
	       struct outbox **ret_outbox);
/* Pending notices are dropped; attempts that run are waited for. */
void outbox_free(struct outbox *b);

/* body is copied. False without memory, or when the host has just been given up. */
bool outbox_post(struct outbox *b, const char *host, const char *url, struct json_object *body);
/* Waits until each notice that was posted has been attempted once, at most ms. */
void outbox_settle(struct outbox *b, unsigned ms);

/* Waits until fewer than max notices have not been attempted yet, at most ms. Those that wait for
 * their next attempt, at hosts that are silent, hold nobody up. */
void outbox_wait(struct outbox *b, unsigned max, unsigned ms);

struct outbox_counts outbox_counts(struct outbox *b);

#endif
