/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The line to the agent, and the gate of control verbs. */
#include "guest-agent/shim/core/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct shim shim = {
	.agent = -1,
	.kick = -1,
	.ctl = PTHREAD_MUTEX_INITIALIZER,
	.ctl_changed = PTHREAD_COND_INITIALIZER,
	.contexts = LIST_INIT(shim.contexts),
	.pds = LIST_INIT(shim.pds),
	.xrcds = LIST_INIT(shim.xrcds),
	.mrs = LIST_INIT(shim.mrs),
	.channels = LIST_INIT(shim.channels),
	.cqs = LIST_INIT(shim.cqs),
	.srqs = LIST_INIT(shim.srqs),
	.qps = LIST_INIT(shim.qps),
	.ahs = LIST_INIT(shim.ahs),
	.partners = LIST_INIT(shim.partners),
	.peers = LIST_INIT(shim.peers),
	.untold = LIST_INIT(shim.untold),
	.call = PTHREAD_MUTEX_INITIALIZER,
	.call_done = PTHREAD_COND_INITIALIZER,
	.calls = LIST_INIT(shim.calls),
};

/* Verbs call verbs (librdmacm opens devices): only the outermost one waits. */
static __thread unsigned ctl_depth;
static __thread int ctl_cancel;

/* A thread that were cancelled inside would be waited for by each suspend from then on. */
void ctl_enter(void)
{
	if (ctl_depth++)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ctl_cancel);
	pthread_mutex_lock(&shim.ctl);
	while (shim.busy)
		pthread_cond_wait(&shim.ctl_changed, &shim.ctl);
	shim.users++;
	pthread_mutex_unlock(&shim.ctl);
}

bool ctl_enter_device(void)
{
	/* Our own thread must not wait for what only it can end. */
	bool waits = !pthread_equal(pthread_self(), shim.helper), waited = false;

	if (ctl_depth++)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ctl_cancel);
	pthread_mutex_lock(&shim.ctl);
	while (waits && (shim.busy || shim.held)) {
		waited = true;
		pthread_cond_wait(&shim.ctl_changed, &shim.ctl);
	}
	shim.users++;
	pthread_mutex_unlock(&shim.ctl);
	return waited;
}

void ctl_exit(void)
{
	bool wake;

	if (--ctl_depth)
		return;
	pthread_mutex_lock(&shim.ctl);
	wake = !--shim.users && shim.busy;
	pthread_mutex_unlock(&shim.ctl);
	if (wake)
		shim_wake_helper();
	pthread_setcancelstate(ctl_cancel, NULL);
}

void ctl_is_helper(void)
{
	ctl_depth = 1;
}

void shim_wake_helper(void)
{
	uint64_t one = 1;

	if (write(shim.kick, &one, sizeof(one)) < 0) {
		/* the counter is full: it wakes all the same */
	}
}

void shim_send(const void *packet)
{
	const struct shim_head *h = packet;
	ssize_t n;

	do
		n = send(shim.agent, packet, h->bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

void shim_log(const char *fmt, ...)
{
	struct shim_log l = {.head = {.bytes = sizeof(l), .type = SHIM_LOG}};
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l.text, sizeof(l.text), fmt, ap);
	va_end(ap);
	shim_send(&l);
	errno = saved;
}

void shim_set_uncovered(const char *why)
{
	pthread_mutex_lock(&shim.ctl);
	if (!shim.uncovered_objects++)
		snprintf(shim.uncovered_why, sizeof(shim.uncovered_why), "%s", why);
	pthread_mutex_unlock(&shim.ctl);
}

void shim_unset_uncovered(void)
{
	pthread_mutex_lock(&shim.ctl);
	shim.uncovered_objects--;
	pthread_mutex_unlock(&shim.ctl);
}

uint32_t shim_cookie(void)
{
	uint32_t cookie;

	pthread_mutex_lock(&shim.call);
	cookie = ++shim.last_cookie ? shim.last_cookie : ++shim.last_cookie;
	pthread_mutex_unlock(&shim.call);
	return cookie;
}

static struct timespec in_ms(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

bool shim_await_agent(unsigned ms)
{
	struct timespec until = in_ms(ms);
	int rc = 0, cancel;
	bool back;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&shim.call);
	while (shim.agent_lost && !rc)
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
	back = !shim.agent_lost;
	pthread_mutex_unlock(&shim.call);
	pthread_setcancelstate(cancel, NULL);
	return back;
}

int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms)
{
	struct shim_head *h = packet;
	struct shim_call c = {.cookie = shim_cookie(), .answer = answer, .bytes = bytes};
	struct timespec until = in_ms(timeout_ms);
	int rc = 0, cancel;
	unsigned losses;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	h->cookie = c.cookie;
	pthread_mutex_lock(&shim.call);
	list_add(&shim.calls, &c.link);
	losses = shim.agent_losses;
	pthread_mutex_unlock(&shim.call);
	shim_send(packet);
	pthread_mutex_lock(&shim.call);
	while (!c.done && !shim_agent_left(losses) && !rc)
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
	list_del(&c.link);
	rc = shim_agent_left(losses) ? -ECONNRESET : -ETIMEDOUT;
	pthread_mutex_unlock(&shim.call);
	pthread_setcancelstate(cancel, NULL);
	return c.done ? ((struct shim_head *)answer)->status : rc;
}

void shim_call_answered(const struct shim_head *h)
{
	struct shim_call *c;

	pthread_mutex_lock(&shim.call);
	list_for_each (c, &shim.calls, link) {
		if (c->cookie != h->cookie || c->done)
			continue;
		memcpy(c->answer, h, h->bytes < c->bytes ? h->bytes : c->bytes);
		c->done = true;
	}
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

void shim_agent_lost(void)
{
	pthread_mutex_lock(&shim.call);
	shim.agent_lost = true;
	shim.agent_losses++;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

void shim_agent_found(void)
{
	pthread_mutex_lock(&shim.call);
	shim.agent_lost = false;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

bool shim_start(void)
{
	pthread_mutex_lock(&start_lock);
	if (!started)
		shim_helper.start();
	started = true;
	pthread_mutex_unlock(&start_lock);
	return shim.agent >= 0;
}

void shim_reset(void)
{
	struct list *lists[] = {&shim.contexts, &shim.pds,   &shim.xrcds, &shim.mrs, &shim.channels,
				&shim.cqs,      &shim.srqs,  &shim.qps,   &shim.ahs, &shim.peers,
				&shim.partners, &shim.calls, &shim.untold};

	memset(&shim, 0, sizeof(shim));
	shim.agent = shim.kick = -1;
	pthread_mutex_init(&shim.ctl, NULL);
	pthread_cond_init(&shim.ctl_changed, NULL);
	pthread_mutex_init(&shim.call, NULL);
	pthread_cond_init(&shim.call_done, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		list_init(lists[i]);
	pthread_mutex_init(&start_lock, NULL);
	started = false;
}
