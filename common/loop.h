/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Our daemons add to sd-event a clean stop on SIGTERM and SIGINT, and timers in one call. */
#ifndef IBVMIG_COMMON_LOOP_H
#define IBVMIG_COMMON_LOOP_H

#include <stdint.h>
#include <systemd/sd-event.h>

/* A loop that ends on SIGTERM and SIGINT, keeps systemd's watchdog and has SIGPIPE ignored. Both
 * signals, and SIGHUP, are blocked in the calling thread, so call this before any thread starts. 0
 * or -errno. */
int loop_new(sd_event **ret_loop);

typedef void loop_timer_fn(void *arg);

struct loop_timer; /* owned by its creator */

/* A timer of one shot; arm it as often as wanted. loop_timer_free(NULL) is allowed, and a free from
 * inside fn as well. */
int loop_timer_new(sd_event *loop, loop_timer_fn *fn, void *arg, struct loop_timer **ret_timer);
void loop_timer_arm(struct loop_timer *t, uint64_t delay_ms);
void loop_timer_disarm(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t);

#endif
