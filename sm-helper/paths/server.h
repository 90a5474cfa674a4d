/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The path record service on its sockets. In the loop's thread; what is not in the cache is looked
 * up by a worker, and meanwhile no more is read from that connection. */
#ifndef IBVMIG_SM_HELPER_PATHS_SERVER_H
#define IBVMIG_SM_HELPER_PATHS_SERVER_H

#include "common/work.h"
#include "sm-helper/paths/service.h"

#define PATH_CONN_MAX 256 /* connections of one server; more are closed at once */

struct path_server;

/* fd: a listening stream socket, owned by the server from here on. service and pool are borrowed.
 * 0 or -errno. */
int path_server_new(sd_event *loop, int fd, struct path_service *service, struct work_pool *pool,
		    bool cacheable, struct path_server **ret_server);
/* Called after the pool is freed, whose jobs still use it. */
void path_server_free(struct path_server *s);

#endif
