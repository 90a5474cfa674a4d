/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>
#include <signal.h>

int loop_new(sd_event **ret_loop)
{
	sd_event *loop = NULL;
	sigset_t stop;
	int rc = sd_event_new(&loop);

	if (rc < 0)
		return rc;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop,
		  SIGHUP); /* for who has something to read again; else nothing comes of it */
	pthread_sigmask(SIG_BLOCK, &stop, NULL);
	signal(SIGPIPE, SIG_IGN);
	if ((rc = sd_event_add_signal(loop, NULL, SIGTERM, NULL, NULL)) < 0 ||
	    (rc = sd_event_add_signal(loop, NULL, SIGINT, NULL, NULL)) < 0 ||
	    (rc = sd_event_set_watchdog(loop, true)) < 0) {
		sd_event_unref(loop);
		return rc;
	}
	*ret_loop = loop;
	return 0;
}

struct loop_timer {
	sd_event_source *source; /* owned */
	loop_timer_fn *fn;
	void *arg; /* borrowed from the creator */
};

static int timer_fired(sd_event_source *s, uint64_t usec, void *arg)
{
	struct loop_timer *t = arg;

	(void)s;
	(void)usec;
	t->fn(t->arg);
	return 0;
}

int loop_timer_new(sd_event *loop, loop_timer_fn *fn, void *arg, struct loop_timer **ret_timer)
{
	struct loop_timer *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return -ENOMEM;
	t->fn = fn;
	t->arg = arg;
	rc = sd_event_add_time(loop, &t->source, CLOCK_MONOTONIC, UINT64_MAX, 1000, timer_fired, t);
	if (rc >= 0)
		rc = sd_event_source_set_enabled(t->source, SD_EVENT_OFF);
	if (rc < 0) {
		loop_timer_free(t);
		return rc;
	}
	*ret_timer = t;
	return 0;
}

void loop_timer_arm(struct loop_timer *t, uint64_t delay_ms)
{
	sd_event_source_set_time(t->source, now_us() + delay_ms * 1000);
	sd_event_source_set_enabled(t->source, SD_EVENT_ONESHOT);
}

void loop_timer_disarm(struct loop_timer *t)
{
	if (t)
		sd_event_source_set_enabled(t->source, SD_EVENT_OFF);
}

void loop_timer_free(struct loop_timer *t)
{
	if (!t)
		return;
	sd_event_source_disable_unref(t->source);
	free(t);
}
