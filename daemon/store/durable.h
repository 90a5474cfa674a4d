/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes the journal durable beside the loop: a thread of its own waits for the disk, and one sync
 * is for all that was written before it. Whoever acts on what he has written waits for it here. A
 * record that the disk does not take is written again until it does. */
#ifndef IBVMIG_DAEMON_STORE_DURABLE_H
#define IBVMIG_DAEMON_STORE_DURABLE_H

#include "common/http/client.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct durable;
struct http_exchange;
struct journal;
struct loop_timer;
struct waiter;
struct work_pool;

/* The counts are of writes; the other fields are durable.c's. */
struct durable {
	const _Atomic uint64_t *written; /* by the journal, so far */
	uint64_t on_disk;
	struct journal *journal;
	struct work_pool *pool; /* owned: a thread that nothing but the disk can hold up */
	struct waiter *first, **last;
	bool running;
	/* The result of the sync under way; the thread's until it is over. */
	uint64_t covered;
	int rc;
};

/* journal: borrowed, used until durable_free(). 0 or -errno. */
int durable_new(sd_event *loop, struct journal *journal, struct durable **ret_durable);
/* Waits for the sync under way. Those who wait are forgotten. */
void durable_free(struct durable *p);

/* For durable_then(), when not all is durable. */
void durable_wait(struct durable *p, void (*fn)(void *arg, int rc), void *arg);
/* Calls fn(arg, rc) in the loop's thread when all that is in the journal now is durable (0), or
 * could not be made so (-errno). fn comes before this returns, if all is durable already. In the
 * order of the calls. */
static inline void durable_then(struct durable *p, void (*fn)(void *arg, int rc), void *arg)
{
	if (*p->written == p->on_disk)
		fn(arg, 0);
	else
		durable_wait(p, fn, arg);
}

/* http_reply() then, so that nobody hears of what a power cut would take back; or 503 "journal". */
void durable_reply(struct durable *p, struct http_exchange *x, unsigned status,
		   struct json_object *body);

/* ---- a record in the journal whose newest text gets there in the end ---- */

struct kept {
	unsigned saving; /* writes that are not durable yet */
	bool behind;     /* the journal did not take the latest; what it is to be told with it: */
	char note[HTTP_ERROR_MAX + 64];
	struct loop_timer *rewrite; /* owned; runs while the journal is behind */
	void (*again)(void *arg, const char *note);
	void (*durable)(void *arg, int rc);
	void *arg; /* borrowed */
};

/* again(arg, note) is to write the record once more; durable(arg, rc) is told of each write that
 * the journal took: 0, or -errno if the disk did not. */
int kept_init(struct kept *k, sd_event *loop, void (*again)(void *arg, const char *note),
	      void (*durable)(void *arg, int rc), void *arg);
void kept_clear(struct kept *k);

/* The record was written, with note or NULL. rc: the journal's word; if -errno, it has not taken
 * the record, and again() is called in a second. */
void kept_written(struct kept *k, struct durable *durable, int rc, const char *note);

#endif
