/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/notify/outbox.h"
#include "common/http/client.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

struct note {
	struct note *next;
	struct json_object *body; /* owned; of this note alone: json-c's objects know no threads */
	bool tried;
};

/* The notices for one host. It exists while it has any, or one is on its way. */
struct lane {
	struct lane *next;
	char *host, *url; /* owned */
	struct note *head, **tail;
	unsigned notes, tries; /* tries: of head */
	uint64_t due_us;
	bool busy;
};

struct outbox {
	outbox_send_fn *send;
	outbox_lost_fn *lost;
	void *arg;
	unsigned backoff_ms, threads;
	pthread_t thread[OUTBOX_THREADS];
	pthread_mutex_t lock; /* guards all below, and the lanes */
	pthread_cond_t more;  /* a lane is due or free again, or the end has come */
	pthread_cond_t tried;
	struct lane *lanes;
	uint64_t untried;
	struct outbox_counts count;
	bool stopping;
};

static void note_free(struct note *n)
{
	json_object_put(n->body);
	free(n);
}

/* Drops the first note of a lane. */
static void lane_drop(struct outbox *b, struct lane *l)
{
	struct note *n = l->head;

	if (!(l->head = n->next))
		l->tail = &l->head;
	l->notes--;
	l->tries = 0;
	b->untried -= !n->tried;
	b->count.pending--;
	note_free(n);
}

static void lane_free(struct outbox *b, struct lane *lane)
{
	struct lane **at = &b->lanes;

	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	while (lane->head)
		lane_drop(b, lane);
	free(lane->host);
	free(lane->url);
	free(lane);
}

/* A new URL is taken when no attempt is on its way, so perhaps with the next notice only. */
static struct lane *lane_find(struct outbox *b, const char *host, const char *url)
{
	struct lane *l;

	for (l = b->lanes; l; l = l->next)
		if (str_eq(l->host, host))
			return str_eq(l->url, url) || l->busy || !str_set(&l->url, url) ? l : NULL;
	if (!(l = calloc(1, sizeof *l)))
		return NULL;
	l->tail = &l->head;
	if (str_set(&l->host, host) || str_set(&l->url, url)) {
		free(l->host);
		free(l->url);
		free(l);
		return NULL;
	}
	l->next = b->lanes;
	b->lanes = l;
	return l;
}

bool outbox_post(struct outbox *b, const char *host, const char *url, struct json_object *body)
{
	struct note *n = calloc(1, sizeof *n);
	struct lane *l;

	if (!n || json_object_deep_copy(body, &n->body, NULL)) {
		free(n);
		return false;
	}
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&b->lock);
	l = lane_find(b, host, url);
	if (!l || l->notes >= OUTBOX_LANE_MAX) {
		b->count.lost++;
		note_free(n);
		return false;
	}
	*l->tail = n;
	l->tail = &n->next;
	l->notes++;
	b->untried++;
	b->count.pending++;
	pthread_cond_signal(&b->more);
	return true;
}

static struct timespec at_us(uint64_t us)
{
	return (struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
}

/* The lane whose turn it is, or NULL and when to look again. Lock held. */
static struct lane *lane_due(struct outbox *b, uint64_t *ret_us)
{
	uint64_t now = now_us();
	struct lane *best = NULL;

	*ret_us = UINT64_MAX;
	for (struct lane *l = b->lanes; l; l = l->next) {
		if (l->busy || !l->head)
			continue;
		if (l->due_us <= now && (!best || l->due_us < best->due_us))
			best = l;
		if (l->due_us < *ret_us)
			*ret_us = l->due_us;
	}
	return best;
}

static void wait_more(struct outbox *b, uint64_t until_us)
{
	struct timespec until = at_us(until_us);

	if (until_us == UINT64_MAX)
		pthread_cond_wait(&b->more, &b->lock);
	else
		pthread_cond_clockwait(&b->more, &b->lock, CLOCK_MONOTONIC, &until);
}

/* Ends an attempt. Lock held, which is let go for the word that a host is lost. */
static void conclude(struct outbox *b, struct lane *l, int rc, const char *error)
{
	struct note *n = l->head;
	uint64_t pause_ms = b->backoff_ms;

	b->count.sent++;
	b->untried -= !n->tried;
	n->tried = true;
	if (!rc) {
		b->count.acked++;
		lane_drop(b, l);
		l->due_us = 0;
	} else if (++l->tries < OUTBOX_TRIES) {
		b->count.retried++;
		for (unsigned i = 1; i < l->tries; i++)
			pause_ms *= 4;
		l->due_us = now_us() + pause_ms * 1000;
	} else {
		b->count.lost += l->notes;
		while (l->head)
			lane_drop(b, l);
		pthread_mutex_unlock(&b->lock);
		b->lost(b->arg, l->host, l->url, error); /* the lane is busy, so it stays */
		pthread_mutex_lock(&b->lock);
	}
	l->busy = false;
	if (!l->head)
		lane_free(b, l);
	pthread_cond_broadcast(&b->tried);
	pthread_cond_signal(&b->more);
}

static void *send_thread(void *arg)
{
	struct outbox *b = arg;
	char error[HTTP_ERROR_MAX];
	struct lane *l;
	uint64_t until;
	int rc;

	pthread_mutex_lock(&b->lock);
	while (!b->stopping) {
		if (!(l = lane_due(b, &until))) {
			wait_more(b, until);
			continue;
		}
		l->busy = true;
		pthread_mutex_unlock(&b->lock);
		*error = '\0';
		rc = b->send(b->arg, l->url, l->head->body, error);
		pthread_mutex_lock(&b->lock);
		conclude(b, l, rc, error);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

void outbox_settle(struct outbox *b, unsigned ms)
{
	struct timespec until = at_us(now_us() + (uint64_t)ms * 1000);
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&b->lock);

	while (b->untried && !pthread_cond_clockwait(&b->tried, &b->lock, CLOCK_MONOTONIC, &until))
		;
}

void outbox_wait(struct outbox *b, unsigned max, unsigned ms)
{
	struct timespec until = at_us(now_us() + (uint64_t)ms * 1000);
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&b->lock);

	while (b->untried >= max &&
	       !pthread_cond_clockwait(&b->tried, &b->lock, CLOCK_MONOTONIC, &until))
		;
}

struct outbox_counts outbox_counts(struct outbox *b)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&b->lock);

	return b->count;
}

int outbox_new(outbox_send_fn *send, outbox_lost_fn *lost, void *arg, unsigned backoff_ms,
	       struct outbox **ret_outbox)
{
	struct outbox *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->send = send;
	b->lost = lost;
	b->arg = arg;
	b->backoff_ms = backoff_ms;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	pthread_cond_init(&b->tried, NULL);
	while (b->threads < OUTBOX_THREADS &&
	       !pthread_create(&b->thread[b->threads], NULL, send_thread, b))
		b->threads++;
	if (!b->threads) {
		free(b);
		return -EAGAIN;
	}
	*ret_outbox = b;
	return 0;
}

void outbox_free(struct outbox *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->stopping = true;
	pthread_cond_broadcast(&b->more);
	pthread_mutex_unlock(&b->lock);
	for (unsigned i = 0; i < b->threads; i++)
		pthread_join(b->thread[i], NULL);
	while (b->lanes)
		lane_free(b, b->lanes);
	free(b);
}
