/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/store/durable.h"
#include "common/http/server.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/store/journal.h"

#include <errno.h>

struct waiter {
	struct waiter *next;
	uint64_t write; /* the last one that it waits for */
	void (*fn)(void *arg, int rc);
	void *arg;
};

struct durable {
	struct journal *journal;
	const _Atomic uint64_t *written; /* by the journal, so far */
	struct work_pool *pool;          /* owned: a thread that nothing but the disk can hold up */
	struct waiter *first, **last;
	uint64_t durable; /* number of writes that are on the disk */
	bool running;
	/* The result of the sync under way; the thread's until it is over. */
	uint64_t covered;
	int rc;
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
		p->durable = covered;
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

void durable_then(struct durable *p, void (*fn)(void *arg, int rc), void *arg)
{
	uint64_t write = *p->written;
	struct waiter *w;

	if (write == p->durable) {
		fn(arg, 0);
		return;
	}
	/* A deed that must not come before the record is durable can be neither done nor refused.
	 */
	if (!(w = malloc(sizeof *w)))
		abort();
	*w = (struct waiter){.write = write, .fn = fn, .arg = arg};
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
