/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The REST API: one table of routes for the AF_UNIX socket, its part for peers on TCP. */
#ifndef IBVMIG_DAEMON_REST_H
#define IBVMIG_DAEMON_REST_H

struct daemon;

/* Listens on the socket and, if configured, on TCP. 0, or -errno and a line in *ret_error (owned
 * by the caller). */
int rest_start(struct daemon *d, char **ret_error);
void rest_stop(struct daemon *d);

#endif
