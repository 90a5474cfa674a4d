/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A request that comes a moment too early is tried again instead of refused. */
#ifndef IBVMIG_DAEMON_BASE_DEFER_H
#define IBVMIG_DAEMON_BASE_DEFER_H

#include "common/http/server.h"

#include <stdbool.h>

#define DEFER_STEP_MS 100
#define DEFER_TRIES   60

/* true: handler will be called again with the same request, and the caller must not answer.
 * false: it has been tried for DEFER_TRIES * DEFER_STEP_MS; refuse it. The user pointer of req is
 * the struct daemon. */
bool defer_request(struct http_request *req, http_handler *handler);

#endif
