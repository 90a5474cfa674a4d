/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/store/durable.h"
#include "common/http/server.h"
#include "common/loop.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/store/journal.h"

#include <errno.h>
#include <stdio.h>

#define REWRITE_MS 1000

struct waiter {
	struct waiter *next;
	uint64_t write; /* the last one that it waits for */
	void (*fn)(void *arg, int rc);
	void *arg;
};

static void sync_start(struct durable *p);

static void sync_run(void *arg)
{
	struct durable *p = arg;

	p->covered = *p->written;
	p->rc = journal_sync(p->journal);
}

static void sync_done(void *arg)
{
	struct durable *p = arg;
	const uint64_t covered = p->covered; /* fn() may start the next sync */
	const int rc = p->rc;

	p->running = false;
	if (!rc)
		p->on_disk = covered;
	while (p->first && p->first->write <= covered) {
		struct waiter *w = p->first;

		if (!(p->first = w->next))
			p->last = &p->first;
		w->fn(w->arg, rc);
		free(w);
	}
	if (p->first)
		sync_start(p);
}

static void sync_start(struct durable *p)
{
	if (p->running)
		return;
	p->running = true;
	if (work_submit(p->pool, sync_run, sync_done, p))
		abort(); /* the waiting callers have no other way to hear; as in job.c */
}

void durable_wait(struct durable *p, void (*fn)(void *arg, int rc), void *arg)
{
	struct waiter *w = malloc(sizeof *w);

	/* A deed that must not come before the record is durable can be neither done nor refused.
	 */
	if (!w)
		abort();
	*w = (struct waiter){.write = *p->written, .fn = fn, .arg = arg};
	*p->last = w;
	p->last = &w->next;
	sync_start(p);
}

struct reply {
	struct http_exchange *exchange;
	unsigned status;
	struct json_object *body; /* owned */
};

static void reply_now(void *arg, int rc)
{
	struct reply *r = arg;

	if (rc) {
		json_object_put(r->body);
		http_fail(r->exchange, 503, "journal",
			  "the journal cannot be made durable; ibvmigd's log says why");
	} else {
		http_reply(r->exchange, r->status, r->body);
	}
	free(r);
}

void durable_reply(struct durable *p, struct http_exchange *x, unsigned status,
		   struct json_object *body)
{
	struct reply *r = malloc(sizeof *r);

	if (!r)
		abort(); /* the request would never be answered */
	*r = (struct reply){.exchange = x, .status = status, .body = body};
	durable_then(p, reply_now, r);
}

int durable_new(sd_event *loop, struct journal *journal, struct durable **ret_durable)
{
	struct durable *p = calloc(1, sizeof *p);
	int rc = p ? work_pool_new(loop, 1, &p->pool) : -ENOMEM;

	if (rc) {
		free(p);
		return rc;
	}
	p->journal = journal;
	p->written = journal_written(journal);
	p->last = &p->first;
	*ret_durable = p;
	return 0;
}

void durable_free(struct durable *p)
{
	if (!p)
		return;
	work_pool_free(p->pool);
	while (p->first) {
		struct waiter *w = p->first;

		p->first = w->next;
		free(w);
	}
	free(p);
}

/* ---- a record that is kept ---- */

/* An end, or PARKED with its command, comes into the journal once the disk takes it: a restarted
 * daemon would take up an open record again. */
static void on_rewrite(void *arg)
{
	struct kept *k = arg;

	k->again(k->arg, *k->note ? k->note : NULL);
}

static void on_durable(void *arg, int rc)
{
	struct kept *k = arg;

	k->saving--;
	k->durable(k->arg, rc);
}

int kept_init(struct kept *k, sd_event *loop, void (*again)(void *arg, const char *note),
	      void (*durable)(void *arg, int rc), void *arg)
{
	*k = (struct kept){.again = again, .durable = durable, .arg = arg};
	return loop_timer_new(loop, on_rewrite, k, &k->rewrite);
}

void kept_clear(struct kept *k)
{
	loop_timer_free(TAKE(k->rewrite));
}

void kept_written(struct kept *k, struct durable *durable, int rc, const char *note)
{
	k->behind = rc;
	if (rc) {
		if (note != k->note)
			snprintf(k->note, sizeof k->note, "%s", note ? note : "");
		loop_timer_arm(k->rewrite, REWRITE_MS);
		return;
	}
	loop_timer_disarm(k->rewrite);
	k->saving++;
	durable_then(durable, on_durable, k);
}
