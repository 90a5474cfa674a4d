/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The plugin's status for who only wants to see: over a connection of its own, and at once. The
 * plugin serves one request after the other, and a batch may wait for a sweep; then what it has
 * told last is told again. */
#ifndef IBVMIG_SM_HELPER_BACKEND_LOOK_H
#define IBVMIG_SM_HELPER_BACKEND_LOOK_H

#include "sm-helper/proto/plugin.h"

struct look; /* owned by the caller of look_new() */

/* path: borrowed. NULL: no memory. */
struct look *look_new(const char *path);
void look_free(struct look *l);
/* Tells the status as backend_look() does. Any thread. */
int look_status(struct look *l, struct sm_status_reply *ret_status, uint64_t *ret_age_ms,
		char *error);

/* Connects to the plugin, for backend/plugin.c too. 0, or -errno with error. */
int look_connect(const char *path, int *ret_fd, char *error);
/* Says why a call has failed, with an error for the caller of backend_*. */
int look_fail(const char *path, int rc, char *error);

#endif
