/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A REST server on sd-event: libmicrohttpd, JSON bodies, one routing table. Handlers run in the
 * loop's thread and answer at once or later. */
#ifndef IBVMIG_COMMON_HTTP_SERVER_H
#define IBVMIG_COMMON_HTTP_SERVER_H

#include "common/tls/roles.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define HTTP_NO_ROUTE    "no-route" /* the code of what this version does not have */
#define HTTP_BODY_MAX    (1u << 20)
#define HTTP_CONN_MAX    256
#define HTTP_CONN_PER_IP 128
#define HTTP_PARAM_MAX   256 /* as long as a VM's name: libvirt makes files of them */
#define HTTP_ID_MAX      65
#define HTTP_ADDRESS_MAX 48
#define HTTP_GROUPS_MAX  64
#define HTTP_HEADERS_MAX (32u << 10)
#define HTTP_REQUEST_MS  10000        /* from the connection to its first whole request */
#define HTTP_IDLE_S      60           /* without a request, then it is closed */
#define HTTP_STREAM_MAX  (256u << 10) /* a client may leave that much unread */

struct http_server;
struct http_stream;
struct tls;

/* The client, as the socket tells: for AF_UNIX the process that connected, else its address, and
 * with TLS the names in its certificate. */
struct http_who {
	bool local;
	uid_t uid;
	gid_t groups[HTTP_GROUPS_MAX];
	unsigned group_count;
	char address[HTTP_ADDRESS_MAX];
	char *names; /* borrowed; one a line, the subject's CN first; NULL without TLS */
};

/* The roles that a client has; 0: it may do nothing. user: as given to http_server_new(). */
typedef unsigned http_roles(const struct http_who *who, void *user);

struct http_request {
	const char *method, *path;      /* borrowed */
	const char *param;              /* stood in the place of '*' in the route; or NULL */
	struct json_object *body;       /* borrowed; NULL without one */
	void *user;                     /* borrowed: the pointer given to http_server_new() */
	unsigned roles;                 /* enum rest_role: those that the client has */
	struct http_exchange *exchange; /* answer through this */
};

/* Must call http_reply() or http_fail() exactly once on req->exchange, now or later. The request
 * itself is gone after the return; the exchange stays until it is answered, also when the client
 * has hung up. */
typedef void http_handler(struct http_request *req);

/* Ends with a row whose method is NULL. path: whole segments; one segment may be "*". role: what a
 * client must have. */
struct http_route {
	const char *method, *path;
	http_handler *handler;
	enum rest_role role;
};

/* fd: a listening socket (AF_UNIX or TCP), owned by the server from here on. tls: borrowed, or NULL
 * for plain HTTP; with it, clients need a certificate of its CA. 0 or -errno. */
int http_server_new(sd_event *loop, int fd, struct tls *tls, const struct http_route *routes,
		    void *user, struct http_server **ret_server);
void http_server_free(struct http_server *s);
/* Sets which client has which roles; without a call, everybody has all. */
void http_server_set_roles(struct http_server *s, http_roles *roles);
/* Requests a second of one client (a user, or an address), twice that at once; more are answered
 * with 429. 0: no limit. 0 or -ENOMEM. */
int http_server_limit(struct http_server *s, unsigned per_s);

struct http_counters {
	uint64_t requests, refused; /* refused: any status from 400 on */
	uint64_t strangers;         /* TLS: connections without a certificate that we believe */
	uint64_t late;              /* connections that did not send a whole request in time */
};

const struct http_counters *http_server_counters(const struct http_server *s);

/* Takes the ownership of body (NULL: empty object). */
void http_reply(struct http_exchange *x, unsigned status, struct json_object *body);
/* The same with another body than JSON: type is constant, text (owned by the call) ends with NUL.
 */
void http_reply_text(struct http_exchange *x, unsigned status, const char *type, char *text);
/* {"errors":[{"code","status","detail","request_id"}]}; code is a short word such as "not-found".
 */
void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* names: of fields of the body, the last one NULL; each must be true, false or absent. false: one
 * is something else, and that has been answered. */
bool http_flags_fit(struct http_request *req, const char *const *names);
/* The same of strings. */
bool http_texts_fit(struct http_request *req, const char *const *names);
/* The value of a query argument, or NULL. Borrowed until the answer. */
const char *http_query(struct http_exchange *x, const char *key);
/* The same of a request's header. */
const char *http_header(struct http_exchange *x, const char *name);

/* Instead of a reply, from the handler itself: status 200, and a body that goes on with what is
 * written. gone(arg): the client is gone, and the stream with it; never called after
 * http_stream_end(). NULL: it has been answered with an error. */
struct http_stream *http_stream_start(struct http_exchange *x, const char *type,
				      void (*gone)(void *arg), void *arg);
/* 0; -ENOBUFS: the client does not read what it is sent, -ENOMEM. Then end it. */
int http_stream_write(struct http_stream *s, const char *text);
/* Sends what is left, and ends the answer. The stream is not the caller's any more. */
void http_stream_end(struct http_stream *s);

/* Listening sockets, close-on-exec. mode is the file mode of the socket; a stale file is replaced.
 * address: "ADDR:PORT". A descriptor or -errno. */
int http_listen_unix(const char *path, unsigned mode);
int http_listen_tcp(const char *address);

#endif
