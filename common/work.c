/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/work.h"
#include "common/util.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/eventfd.h>

#define WORK_THREADS_MAX 64

struct work {
	struct work *next;
	void (*run)(void *arg);
	void (*done)(void *arg);
	void *arg;
};

struct queue {
	struct work *head, **tail;
};

struct work_pool {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct queue todo, finished;
	unsigned waiting, queued, threads, threads_max;
	bool stopping;
	int wake_fd;           /* owned */
	sd_event_source *wake; /* owned */
	pthread_t thread[WORK_THREADS_MAX];
};

static void push(struct queue *q, struct work *w)
{
	w->next = NULL;
	*q->tail = w;
	q->tail = &w->next;
}

static struct work *pop(struct queue *q)
{
	struct work *w = q->head;

	if (w && !(q->head = w->next))
		q->tail = &q->head;
	return w;
}

static void *worker(void *arg)
{
	struct work_pool *p = arg;
	struct work *w;

	pthread_mutex_lock(&p->lock);
	while (!p->stopping) {
		if (!(w = pop(&p->todo))) {
			p->waiting++;
			pthread_cond_wait(&p->more, &p->lock);
			p->waiting--;
			continue;
		}
		p->queued--;
		pthread_mutex_unlock(&p->lock);
		w->run(w->arg);
		pthread_mutex_lock(&p->lock);
		push(&p->finished, w);
		eventfd_write(p->wake_fd, 1);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int run_finished(sd_event_source *s, int fd, uint32_t events, void *arg)
{
	struct work_pool *p = arg;
	eventfd_t count;
	struct work *w;

	(void)s;
	(void)events;
	eventfd_read(fd, &count);
	for (;;) {
		pthread_mutex_lock(&p->lock);
		w = pop(&p->finished);
		pthread_mutex_unlock(&p->lock);
		if (!w)
			return 0;
		w->done(w->arg);
		free(w);
	}
}

int work_pool_new(sd_event *loop, unsigned threads, struct work_pool **ret_pool)
{
	struct work_pool *p;
	int rc;

	if (threads < 1 || threads > WORK_THREADS_MAX)
		return -EINVAL;
	p = calloc(1, sizeof *p);
	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	p->todo.tail = &p->todo.head;
	p->finished.tail = &p->finished.head;
	p->threads_max = threads;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = p->wake_fd < 0 ? -errno
			    : sd_event_add_io(loop, &p->wake, p->wake_fd, 1 /* EPOLLIN */,
					      run_finished, p);
	if (rc < 0) {
		work_pool_free(p);
		return rc;
	}
	*ret_pool = p;
	return 0;
}

void work_pool_free(struct work_pool *p)
{
	struct work *w;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->threads; i++)
		pthread_join(p->thread[i], NULL);
	sd_event_source_disable_unref(p->wake);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	while ((w = pop(&p->todo)) || (w = pop(&p->finished)))
		free(w);
	free(p);
}

/* Workers leave all signals to the loop. */
static void start_thread(struct work_pool *p)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (!pthread_create(&p->thread[p->threads], NULL, worker, p))
		p->threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void unpush(struct queue *q, struct work *w)
{
	struct work **at = &q->head;

	while (*at != w)
		at = &(*at)->next;
	*at = NULL;
	q->tail = at;
}

int work_submit(struct work_pool *p, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
	struct work *w = malloc(sizeof *w);

	if (!w)
		return -ENOMEM;
	*w = (struct work){.run = run, .done = done, .arg = arg};
	pthread_mutex_lock(&p->lock);
	push(&p->todo, w);
	/* A thread that was woken for earlier work still counts as waiting. */
	if (++p->queued > p->waiting && p->threads < p->threads_max)
		start_thread(p);
	/* With others it waits for one of them; with none, for ever. */
	if (!p->threads) {
		unpush(&p->todo, w);
		p->queued--;
		pthread_mutex_unlock(&p->lock);
		free(w);
		return -EAGAIN;
	}
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* ---- several at once ---- */

struct each {
	void (*each)(void *arg, size_t i);
	void *arg;
	size_t i;
};

static void *each_run(void *arg)
{
	const struct each *e = arg;

	e->each(e->arg, e->i);
	return NULL;
}

void work_each(size_t n, void (*each)(void *arg, size_t i), void *arg)
{
	struct each e[WORK_EACH_MAX];
	pthread_t thread[WORK_EACH_MAX];
	bool started[WORK_EACH_MAX] = {0};

	for (size_t i = 0; i < n; i++)
		e[i] = (struct each){.each = each, .arg = arg, .i = i};
	for (size_t i = 1; i < n; i++)
		started[i] = !pthread_create(&thread[i], NULL, each_run, &e[i]);
	for (size_t i = 0; i < n; i++)
		if (!started[i])
			each(arg, i);
	for (size_t i = 0; i < n; i++)
		if (started[i])
			pthread_join(thread[i], NULL);
}
