/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sockets of ibvmig-sm: REST and path queries, on AF_UNIX and TCP, and TLS. */
#ifndef IBVMIG_SM_HELPER_REST_LISTEN_H
#define IBVMIG_SM_HELPER_REST_LISTEN_H

#include "common/tls/conf.h"
#include "sm-helper/paths/server.h"
#include "sm-helper/rest/rest.h"

#define LISTEN_DEFAULT "/run/ibvmig/ibvmig-sm.sock"
#define LISTEN_MAX     8 /* lines of each kind */

struct listeners {
	struct tls_conf conf;
	struct tls *tls; /* owned; NULL without TLS */
	struct http_server *server[LISTEN_MAX];
	struct path_server *path_server[LISTEN_MAX];
};

/* Takes what conf says of TLS, for servers and for calls (common/http/client.h); conf: borrowed.
 * loop: NULL for who only calls. All calls: 0 or -errno, and the reason is logged. */
int listen_secure(struct listeners *l, const struct conf *conf, sd_event *loop);
int listen_rest(struct listeners *l, const struct conf *conf, sd_event *loop, struct rest *rest);
int listen_paths(struct listeners *l, const struct conf *conf, sd_event *loop, struct rest *rest,
		 struct work_pool *pool);
/* The URL of a listener, of one on AF_UNIX where there is one; owned by the caller; NULL without
 * memory. */
char *listen_url(const struct listeners *l, const struct conf *conf);

/* REST only: what path servers have handed to workers must end before those are freed. */
void listen_stop(struct listeners *l);
void listen_clear(struct listeners *l);

#endif
