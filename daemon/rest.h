/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The REST API: one table of routes; who may use which is decided by who asks. docs/openapi.json
 * describes it. */
#ifndef IBVMIG_DAEMON_REST_H
#define IBVMIG_DAEMON_REST_H

#include "common/http_server.h"

struct daemon;

extern const struct http_route rest_routes[];
/* user: a struct daemon. Root, and the daemon's own user, may do everything on the socket; others
 * what their group may; on TCP everybody may look, and do what peers do. */
bool rest_may(const struct http_who *who, const char *method, const char *path, void *user);

/* Listens on the socket and, if configured, on TCP. 0, or -errno and a line in *ret_error (owned
 * by the caller). */
int rest_start(struct daemon *d, char **ret_error);
void rest_stop(struct daemon *d);

#endif
