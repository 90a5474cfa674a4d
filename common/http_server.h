/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A REST server on sd-event: libmicrohttpd, JSON bodies, one routing table. Handlers run in the
 * loop's thread and answer at once or later. */
#ifndef IBVMIG_COMMON_HTTP_SERVER_H
#define IBVMIG_COMMON_HTTP_SERVER_H

#include <json-c/json.h>
#include <systemd/sd-event.h>

#define HTTP_BODY_MAX  (1u << 20)
#define HTTP_CONN_MAX  256
#define HTTP_PARAM_MAX 64

struct http_server;

struct http_request {
	const char *method, *path;      /* borrowed */
	const char *param;              /* what stood in the place of '*' in the route, or NULL */
	struct json_object *body;       /* borrowed; NULL without one */
	void *user;                     /* borrowed: the pointer given to http_server_new() */
	struct http_exchange *exchange; /* answer through this */
};

/* Must call http_reply() or http_fail() exactly once on req->exchange, now or later (the request
 * itself is gone after the return; the exchange stays until it is answered, also when the client
 * has hung up). */
typedef void http_handler(struct http_request *req);

/* Ends with a row whose method is NULL. path: whole segments; one segment may be "*". */
struct http_route {
	const char *method, *path;
	http_handler *handler;
};

/* fd: a listening socket (AF_UNIX or TCP), owned by the server from here on. 0 or -errno. */
int http_server_new(sd_event *loop, int fd, const struct http_route *routes, void *user,
		    struct http_server **ret_server);
void http_server_free(struct http_server *s);

/* Takes the ownership of body (NULL: empty object). */
void http_reply(struct http_exchange *x, unsigned status, struct json_object *body);
/* {"errors":[{"code","status","detail"}]}; code is a short word such as "not-found". */
void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The value of a query argument, or NULL. Borrowed until the answer. */
const char *http_query(struct http_exchange *x, const char *key);

/* Listening sockets, close-on-exec. mode is the file mode of the socket; a stale file is replaced.
 * address: "ADDR:PORT". A descriptor or -errno. */
int http_listen_unix(const char *path, unsigned mode);
int http_listen_tcp(const char *address);

#endif
