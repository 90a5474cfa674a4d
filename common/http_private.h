/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the REST server share. */
#ifndef IBVMIG_COMMON_HTTP_PRIVATE_H
#define IBVMIG_COMMON_HTTP_PRIVATE_H

#include "common/http_server.h"
#include "common/util.h"

#include <microhttpd.h>

#define HTTP_BUCKETS 256 /* clients with the same hash share one */

struct http_bucket {
	double tokens;
	uint64_t filled_us;
};

struct http_server {
	sd_event *loop; /* borrowed */
	struct MHD_Daemon *mhd;
	const struct http_route *routes; /* borrowed */
	void *user;
	http_may *may;               /* NULL: everybody may do everything */
	unsigned rate_per_s;         /* 0: not limited */
	struct http_bucket *buckets; /* owned; HTTP_BUCKETS of them once there is a rate */
	struct http_counters counters;
	sd_event_source *io, *before; /* owned */
	sd_event_source *timer;       /* owned */
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
	bool too_large, handled, answered, suspended, finished;
	unsigned status;
	struct json_object *reply;  /* owned; or: */
	char *text;                 /* owned */
	const char *type;           /* of text; constant */
	struct http_stream *stream; /* borrowed; or this one */
};

/* Lets the loop look at libmicrohttpd again, after a connection was resumed. */
void http_wake(struct http_server *s);
/* The response of a stream that has been started. */
struct MHD_Response *http_stream_response(struct http_exchange *x);
/* Whether a client may ask now; takes one token. */
bool http_rate_take(struct http_server *s, const struct http_who *who, uint64_t at_us);

#endif
