/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The REST API: one table of routes; who may use which is decided by who asks. docs/openapi.json
 * describes it. */
#ifndef IBVMIG_DAEMON_REST_H
#define IBVMIG_DAEMON_REST_H

#include "common/http/server.h"

struct daemon;

extern const struct http_route rest_routes[];
/* user: a struct daemon. Root, and the daemon's own user, have all roles on the socket, others what
 * their group gives them. On TCP who shows a certificate has what the table of roles says. Without
 * TLS everybody there looks, and does what peers do. */
unsigned rest_roles(const struct http_who *who, void *user);

/* Listens on the socket and, if configured, on TCP. 0, or -errno and a line in *ret_error (owned
 * by the caller). */
int rest_start(struct daemon *d, char **ret_error);
void rest_stop(struct daemon *d);

#endif
