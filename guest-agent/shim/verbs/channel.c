/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Completion channels. The descriptor that the program polls is an epoll instance of ours. In it
 * are the real channel, which comes and goes, and an eventfd for the events that we make. */
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/core/fork.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/core/sleep.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define ARM_TRIES 8

int channel_open(struct shim_channel *ch)
{
	struct ibv_comp_channel *real = real_verbs.create_comp_channel(ch->ctx->real);

	if (!real)
		return -errno;
	fcntl(real->fd, F_SETFL, fcntl(real->fd, F_GETFL) | O_NONBLOCK);
	fork_keep_fd(real->fd);
	/* A thread of the program that finds it reads from it with the lock held. */
	pthread_mutex_lock(&ch->lock);
	ch->real = real;
	pthread_mutex_unlock(&ch->lock);
	return 0;
}

void channel_close(struct shim_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	if (ch->real) {
		atomic_store(&ch->attached, false);
		fork_drop_fd(ch->real->fd);
		real_verbs.destroy_comp_channel(TAKE(ch->real));
	}
	pthread_mutex_unlock(&ch->lock);
}

/* Under the lock. */
static void attach(struct shim_channel *ch)
{
	struct epoll_event e = {.events = EPOLLIN};

	if (ch->helped || !ch->real || atomic_load(&ch->attached))
		return;
	if (!epoll_ctl(ch->v.fd, EPOLL_CTL_ADD, ch->real->fd, &e))
		atomic_store(&ch->attached, true);
}

static void channel_free(struct shim_channel *ch)
{
	fork_drop_fd(ch->v.fd);
	fork_drop_fd(ch->soft);
	if (ch->v.fd >= 0)
		close(ch->v.fd);
	if (ch->soft >= 0)
		close(ch->soft);
	free(ch);
}

static int channel_set_up(struct shim_channel *ch)
{
	struct epoll_event e = {.events = EPOLLIN};

	pthread_mutex_init(&ch->lock, NULL);
	list_init(&ch->events);
	ch->v.fd = epoll_create1(EPOLL_CLOEXEC);
	ch->soft = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	fork_keep_fd(ch->v.fd);
	fork_keep_fd(ch->soft);
	if (ch->v.fd < 0 || ch->soft < 0 || epoll_ctl(ch->v.fd, EPOLL_CTL_ADD, ch->soft, &e))
		return -errno;
	return channel_open(ch);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct shim_channel *ch;
	int rc;

	if (!shim_ours(context))
		return real_verbs.create_comp_channel(context);
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->v.context = context;
	ch->v.fd = ch->soft = -1;
	ch->ctx = to_context(context);
	ctl_enter();
	rc = channel_set_up(ch);
	if (!rc) {
		attach(ch);
		pthread_mutex_lock(&shim.ctl);
		list_add(&shim.channels, &ch->link);
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	if (rc) {
		channel_free(ch);
		errno = -rc;
		return NULL;
	}
	return &ch->v;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct shim_channel *ch;

	if (!shim_ours(channel->context))
		return real_verbs.destroy_comp_channel(channel);
	ch = to_channel(channel);
	if (shim_inherited(ch->ctx))
		return EBADF;
	if (ch->v.refcnt)
		return EBUSY;
	ctl_enter();
	pthread_mutex_lock(&shim.ctl);
	list_del(&ch->link);
	pthread_mutex_unlock(&shim.ctl);
	channel_close(ch);
	channel_free(ch);
	ctl_exit();
	return 0;
}

static bool queued(const struct shim_cq *cq)
{
	return cq->event.next != &cq->event;
}

/* Under the lock. */
static void queue(struct shim_channel *ch, struct shim_cq *cq, enum cq_due due)
{
	uint64_t one = 1;

	if (queued(cq)) {
		if (due == CQ_YES)
			atomic_store(&cq->perhaps, false);
		if (due != CQ_EXTRA)
			cq->extra = false;
		return;
	}
	list_add(&ch->events, &cq->event);
	atomic_store(&cq->perhaps, due == CQ_PERHAPS);
	cq->extra = due == CQ_EXTRA;
	if (write(ch->soft, &one, sizeof(one)) < 0)
		list_del(&cq->event);
}

/* Under the lock. */
static void unqueue(struct shim_channel *ch, struct shim_cq *cq)
{
	uint64_t one;

	list_del(&cq->event);
	atomic_store(&cq->perhaps, false);
	cq->extra = false;
	if (read(ch->soft, &one, sizeof(one)) < 0) {
		/* an element is there, and the counter has one for each */
	}
}

void channel_push(struct shim_channel *ch, struct shim_cq *cq, enum cq_due due)
{
	pthread_mutex_lock(&ch->lock);
	queue(ch, cq, due);
	pthread_mutex_unlock(&ch->lock);
}

void channel_forget(struct shim_channel *ch, struct shim_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	if (queued(cq))
		unqueue(ch, cq);
	pthread_mutex_unlock(&ch->lock);
}

void channel_left(struct shim_channel *ch, struct shim_cq *cq)
{
	enum cq_due due;

	pthread_mutex_lock(&ch->lock);
	due = cq_left(cq);
	if (due)
		queue(ch, cq, due);
	pthread_mutex_unlock(&ch->lock);
}

void channel_retract(struct shim_channel *ch, struct shim_cq *cq)
{
	enum cq_due due;

	pthread_mutex_lock(&ch->lock);
	if (queued(cq) && atomic_load(&cq->perhaps)) {
		due = cq_wait_on(cq);
		if (due == CQ_NO) {
			unqueue(ch, cq);
			attach(ch); /* the next event is the hardware's */
		} else {
			atomic_store(&cq->perhaps, due == CQ_PERHAPS);
		}
	}
	pthread_mutex_unlock(&ch->lock);
}

/* Acknowledged at once: a real CQ must be free to go at any time. NULL: no event. */
static struct shim_cq *take_real(struct ibv_comp_channel *real)
{
	struct shim_cq *shadow;
	struct ibv_cq *cq;
	void *arg;

	if (!real || real_verbs.get_cq_event(real, &cq, &arg))
		return NULL;
	shadow = arg;
	atomic_store(&shadow->awaited, false);
	real_verbs.ack_cq_events(cq, 1);
	return shadow;
}

/* Under the lock: those of the hardware become ours. How many of them were mine, which are dropped;
 * mine may be NULL. */
static unsigned take_all(struct shim_channel *ch, const struct shim_cq *mine)
{
	struct shim_cq *cq;
	enum cq_due due;
	unsigned n = 0;

	while ((cq = take_real(ch->real))) {
		if (cq == mine) {
			n++;
			continue;
		}
		due = cq_event(cq, atomic_load(&ch->attached));
		if (due)
			queue(ch, cq, due);
	}
	return n;
}

void channel_take_events(struct shim_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	take_all(ch, NULL);
	pthread_mutex_unlock(&ch->lock);
}

void channel_drop_events(struct ibv_comp_channel *real)
{
	while (take_real(real))
		;
}

void channel_detach(struct shim_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	ch->helped = true;
	if (atomic_load(&ch->attached)) {
		epoll_ctl(ch->v.fd, EPOLL_CTL_DEL, ch->real->fd, NULL);
		take_all(ch, NULL);
		atomic_store(&ch->attached, false);
	}
	pthread_mutex_unlock(&ch->lock);
}

void channel_unhelp(struct shim_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	ch->helped = false;
	pthread_mutex_unlock(&ch->lock);
}

void channel_go_on(struct shim_channel *ch, struct shim_cq *cq)
{
	enum cq_due due;
	bool clean;

	pthread_mutex_lock(&ch->lock);
	due = cq_go_on(cq, &clean);
	if (due)
		queue(ch, cq, due);
	if (clean)
		attach(ch);
	pthread_mutex_unlock(&ch->lock);
}

/* The arming takes place when the hardware has been told and nothing from before is on its way. An
 * event that comes in between is for completions that the program finds when it polls now. So is
 * one that was the second for an older arming, whichever of the channel's CQs was armed first. */
int channel_arm(struct shim_channel *ch, struct shim_cq *cq, int solicited_only)
{
	int rc, cancel, tries = ARM_TRIES;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&ch->lock);
	do {
		rc = cq_arm_anew(cq, solicited_only);
	} while (!rc && tries-- && take_all(ch, cq));
	if (queued(cq) && cq->extra)
		unqueue(ch, cq);
	attach(ch);
	pthread_mutex_unlock(&ch->lock);
	pthread_setcancelstate(cancel, NULL);
	return rc;
}

/* Under the lock. One that is extra is given only where there is no other: what has made the
 * descriptor readable gives an event. */
static struct shim_cq *next_event(struct shim_channel *ch)
{
	struct shim_cq *cq, *extra = NULL;
	enum cq_due due;
	bool is_extra;

	while (ch->events.next != &ch->events) {
		cq = list_entry(ch->events.next, struct shim_cq, event);
		is_extra = cq->extra;
		unqueue(ch, cq);
		if (!is_extra)
			return cq;
		extra = cq;
	}
	while ((cq = take_real(ch->real))) {
		due = cq_event(cq, atomic_load(&ch->attached));
		if (due == CQ_EXTRA)
			extra = cq;
		else if (due)
			return cq;
	}
	return extra;
}

static struct shim_cq *take_event(struct shim_channel *ch)
{
	struct shim_cq *cq;
	int cancel;

	/* A thread that sleeps in ibv_get_cq_event() may be cancelled, but not with the lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&ch->lock);
	cq = next_event(ch);
	if (cq)
		cq->events++; /* ibv_destroy_cq() waits from now on */
	pthread_mutex_unlock(&ch->lock);
	pthread_setcancelstate(cancel, NULL);
	return cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct shim_channel *ch;
	struct shim_cq *found;
	int rc;

	if (!shim_ours(channel->context))
		return real_verbs.get_cq_event(channel, cq, cq_context);
	ch = to_channel(channel);
	if (shim_inherited(ch->ctx)) {
		errno = EBADF;
		return -1;
	}
	while (!(found = take_event(ch))) {
		if (fcntl(ch->v.fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		rc = shim_sleep(ch->v.fd);
		if (rc) {
			errno = -rc;
			return -1;
		}
	}
	*cq = &found->v;
	*cq_context = found->v.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned int n)
{
	if (!shim_ours(ibcq->context)) {
		real_verbs.ack_cq_events(ibcq, n);
		return;
	}
	pthread_mutex_lock(&ibcq->mutex);
	ibcq->comp_events_completed += n;
	pthread_cond_signal(&ibcq->cond);
	pthread_mutex_unlock(&ibcq->mutex);
}
