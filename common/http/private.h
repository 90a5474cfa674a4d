/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The files of the REST server share this. */
#ifndef IBVMIG_COMMON_HTTP_PRIVATE_H
#define IBVMIG_COMMON_HTTP_PRIVATE_H

#include "common/http/server.h"
#include "common/tls/tls.h"
#include "common/util.h"

#include <microhttpd.h>

#define HTTP_BUCKETS 256 /* clients with the same hash share one */

struct http_bucket {
	double tokens;
	uint64_t filled_us;
};

/* The connection of a client. */
struct http_conn {
	struct http_conn *next, *prev;
	struct http_server *server;
	struct MHD_Connection *mhd;
	int fd; /* libmicrohttpd's */
	struct http_who who;
	struct tls_keys *keys; /* a reference, that it began with; NULL without TLS */
	uint64_t due_us;       /* when a whole request must be there; 0: one is being answered */
};

struct http_server {
	sd_event *loop;  /* borrowed, as the next */
	struct tls *tls; /* NULL: plain */
	struct MHD_Daemon *mhd;
	const struct http_route *routes; /* borrowed */
	void *user;
	http_roles *roles;           /* NULL: everybody has all */
	unsigned rate_per_s;         /* 0: not limited */
	struct http_bucket *buckets; /* owned; HTTP_BUCKETS of them once there is a rate */
	struct http_counters counters;
	sd_event_source *io, *before; /* owned */
	sd_event_source *timer;       /* owned */
	struct http_conn *conns;
	unsigned request_ms;  /* HTTP_REQUEST_MS, or less in tests */
	sd_event_source *due; /* owned: of the connection that is the first to be late */
	uint64_t told_us;     /* when a stranger was logged last */
	bool stopping;
	unsigned suspended; /* exchanges whose answer is still to come, streams that wait */
};

/* Lives until both the handler has answered and libmicrohttpd has finished the request. */
struct http_exchange {
	struct http_server *server;
	struct MHD_Connection *conn; /* NULL when the client is gone */
	char id[HTTP_ID_MAX];
	char *body; /* owned */
	size_t body_bytes;
	bool too_large, no_memory, handled, answered, suspended, finished;
	unsigned status;
	struct json_object *reply;  /* owned; or: */
	char *text;                 /* owned */
	const char *type;           /* the content type of text; constant */
	struct http_stream *stream; /* borrowed; or this one */
};

/* Lets the loop look at libmicrohttpd again, after a connection was resumed. */
void http_wake(struct http_server *s);
/* The response of a stream that has been started. */
struct MHD_Response *http_stream_response(struct http_exchange *x);
/* libmicrohttpd's word on connections that come and go. */
void http_conn_notify(void *server, struct MHD_Connection *conn, void **context,
		      enum MHD_ConnectionNotificationCode what);
/* NULL only without memory. */
struct http_conn *http_conn_of(struct MHD_Connection *conn);
/* A request is complete; one has been answered. */
void http_conn_busy(struct http_conn *c);
void http_conn_idle(struct http_conn *c);
/* The connection began with a certificate that is not the present one any more. */
bool http_conn_is_old(const struct http_conn *c);
/* The handler of http_server.due: closes connections that are late. */
int http_conn_late(sd_event_source *source, uint64_t usec, void *server);
/* Takes one token; false: the client may not ask now. */
bool http_rate_take(struct http_server *s, const struct http_who *who, uint64_t at_us);

#endif
