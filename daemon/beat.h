/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An idle ibvmigd wakes up here only, for all that is due, and at one time: with systemd's
 * watchdog. */
#ifndef IBVMIG_DAEMON_BEAT_H
#define IBVMIG_DAEMON_BEAT_H

/* Every 15 s; more often where the unit's WatchdogSec is below 30 s. */
#define BEAT_MS 15000

struct daemon;

/* Starts with the first beat after one interval. 0 or -errno. */
int beat_new(struct daemon *d);
void beat_free(struct daemon *d);

#endif
