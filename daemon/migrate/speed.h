/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A user's settings for QEMU's migration (migrate-setspeed, migrate-setmaxdowntime), beside those
 * of ibvmigd. In jobs. */
#ifndef IBVMIG_DAEMON_MIGRATE_SPEED_H
#define IBVMIG_DAEMON_MIGRATE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

struct job;

#define FULL_SPEED       (1000ull << 20) /* bytes/s: the user has set no --bandwidth */
#define DOWNTIME_MS      300             /* the user has set no downtime */
#define HOLD_DOWNTIME_MS 1               /* ours, until the VF has left */

/* Bytes/s and ms; 0: nothing is known, or nothing has changed. */
struct speed {
	uint64_t bandwidth, downtime_ms;
};

/* The migration of the VM would run with these without us. 0 or j->rc. */
int speed_read(struct job *j, const char *vm, struct speed *ret_user);
/* The user has set these since we set the bandwidth ours (0: we have not). 0 or j->rc. */
int speed_read_changes(struct job *j, const char *vm, uint64_t ours, struct speed *ret_changed);
/* Disks that are copied along get their full speed. *ret_copies: there are some. 0 or j->rc. */
int speed_let_copy(struct job *j, const char *vm, bool *ret_copies);

#endif
