/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers that go on: Server-Sent Events. */
#include "common/http/private.h"

#include <errno.h>
#include <string.h>

#define BLOCK_BYTES 4096

struct http_stream {
	struct http_server *server;
	struct MHD_Connection *conn;
	char *text; /* owned; not sent yet */
	size_t bytes;
	const char *type;
	bool suspended, ended;
	void (*gone)(void *arg);
	void *arg;
};

static ssize_t on_read(void *arg, uint64_t at, char *to, size_t max)
{
	struct http_stream *s = arg;
	size_t n = s->bytes < max ? s->bytes : max;

	(void)at;
	if (!n && s->ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (!n) {
		s->suspended = true;
		s->server->suspended++;
		MHD_suspend_connection(s->conn);
		return 0;
	}
	memcpy(to, s->text, n);
	memmove(s->text, s->text + n, s->bytes - n);
	s->bytes -= n;
	return (ssize_t)n;
}

static void on_free(void *arg)
{
	struct http_stream *s = arg;

	if (s->suspended)
		s->server->suspended--;
	if (s->gone)
		s->gone(s->arg);
	free(s->text);
	free(s);
}

struct MHD_Response *http_stream_response(struct http_exchange *x)
{
	struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
								   on_read, x->stream, on_free);

	if (!r)
		on_free(x->stream);
	else
		MHD_add_response_header(r, "Cache-Control", "no-store");
	x->type = r ? x->stream->type : NULL;
	return r;
}

struct http_stream *http_stream_start(struct http_exchange *x, const char *type,
				      void (*gone)(void *arg), void *arg)
{
	struct http_stream *s = calloc(1, sizeof *s);

	if (!s) {
		http_fail(x, 503, "no-memory", "out of memory");
		return NULL;
	}
	*s = (struct http_stream){.server = x->server, .conn = x->conn, .type = type};
	s->gone = gone;
	s->arg = arg;
	x->stream = s;
	x->status = 200;
	x->answered = true;
	return s;
}

static void resume(struct http_stream *s)
{
	if (!s->suspended)
		return;
	s->suspended = false;
	s->server->suspended--;
	MHD_resume_connection(s->conn);
	http_wake(s->server);
}

int http_stream_write(struct http_stream *s, const char *text)
{
	size_t n = strlen(text);
	char *grown;

	if (s->bytes + n > HTTP_STREAM_MAX)
		return -ENOBUFS;
	grown = realloc(s->text, s->bytes + n + 1);
	if (!grown)
		return -ENOMEM;
	memcpy(grown + s->bytes, text, n);
	s->text = grown;
	s->bytes += n;
	resume(s);
	return 0;
}

void http_stream_end(struct http_stream *s)
{
	s->gone = NULL;
	s->ended = true;
	resume(s);
}
