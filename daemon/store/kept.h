/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A record in the journal whose newest text gets there in the end: one that the disk does not take
 * is written again until it does. */
#ifndef IBVMIG_DAEMON_STORE_KEPT_H
#define IBVMIG_DAEMON_STORE_KEPT_H

#include "common/http/client.h"

#include <stdbool.h>
#include <systemd/sd-event.h>

struct durable;
struct journal;
struct journal_step;
struct loop_timer;

struct kept {
	unsigned saving; /* writes that are not durable yet */
	bool behind;     /* the journal did not take the latest; what it is to be told with it: */
	char note[HTTP_ERROR_MAX + 64];
	struct loop_timer *rewrite; /* owned; runs while the journal is behind */
	void (*again)(void *arg, const char *note);
	void (*durable)(void *arg, int rc);
	void *arg; /* borrowed */
};

/* again(arg, note) is to call kept_write() once more; durable(arg, rc) is told of each write that
 * the journal took: 0, or -errno if the disk did not. */
int kept_init(struct kept *k, sd_event *loop, void (*again)(void *arg, const char *note),
	      void (*durable)(void *arg, int rc), void *arg);
void kept_clear(struct kept *k);

/* 0, or -errno: the journal has not taken it, and again() is called in a second. */
int kept_write(struct kept *k, struct journal *journal, struct durable *durable,
	       const struct journal_step *s);

#endif
