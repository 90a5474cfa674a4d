/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/paths/server.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/paths/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define IN_BYTES  (PATH_WIRE_HEAD_BYTES + PATH_WIRE_MAX * PATH_WIRE_QUERY_BYTES)
#define OUT_BYTES (PATH_WIRE_HEAD_BYTES + PATH_WIRE_MAX * PATH_WIRE_REPLY_BYTES)

struct conn {
	struct path_server *server; /* borrowed */
	int fd;                     /* owned; -1: gone, waits for its job */
	sd_event_source *io;        /* owned */
	bool busy;                  /* a worker has query and answer */
	struct path_wire_head head; /* head of the question that is answered now */
	size_t in_bytes, out_bytes, out_sent;
	struct path_query query[PATH_WIRE_MAX];
	struct path_answer answer[PATH_WIRE_MAX];
	uint8_t in[IN_BYTES], out[OUT_BYTES];
};

struct path_server {
	sd_event *loop; /* borrowed, as the next two */
	struct path_service *service;
	struct work_pool *pool;
	bool cacheable;
	int fd; /* owned, as the next two */
	sd_event_source *io;
	struct conn *conn[PATH_CONN_MAX];
};

static void conn_free(struct conn *c)
{
	sd_event_source_disable_unref(c->io);
	if (c->fd >= 0)
		close(c->fd);
	for (unsigned i = 0; i < PATH_CONN_MAX; i++)
		if (c->server->conn[i] == c)
			c->server->conn[i] = NULL;
	free(c);
}

/* Hung up, or speaks something else. Its job, if it has one, frees it. */
static void conn_close(struct conn *c)
{
	if (!c->busy) {
		conn_free(c);
		return;
	}
	c->io = sd_event_source_disable_unref(c->io);
	close(c->fd);
	c->fd = -1;
}

/* Sends as much of `out` as goes now. 1: all is out; 0: the rest waits; -errno. */
static int conn_flush(struct conn *c)
{
	while (c->out_sent < c->out_bytes) {
		ssize_t n = send(c->fd, c->out + c->out_sent, c->out_bytes - c->out_sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		c->out_sent += (size_t)n;
	}
	c->out_bytes = c->out_sent = 0;
	return 1;
}

static void make_answer(struct conn *c)
{
	struct path_wire_head h = {
		.id = c->head.id,
		.count = c->head.count,
		.flags = c->server->cacheable ? PATH_WIRE_CACHEABLE : 0,
	};

	path_wire_put_head(c->out, &h);
	for (unsigned i = 0; i < h.count; i++)
		path_wire_put_answer(c->out + PATH_WIRE_HEAD_BYTES + i * PATH_WIRE_REPLY_BYTES,
				     &c->answer[i]);
	c->out_bytes = PATH_WIRE_HEAD_BYTES + (size_t)h.count * PATH_WIRE_REPLY_BYTES;
	c->out_sent = 0;
}

static int conn_go_on(struct conn *c);

static void fill_run(void *arg)
{
	struct conn *c = arg;
	char error[BACKEND_ERROR_MAX];

	path_service_fill(c->server->service, c->query, c->head.count, c->answer, error);
	if (*error)
		log_debug("path records: %s", error);
}

static void fill_done(void *arg)
{
	struct conn *c = arg;

	c->busy = false;
	if (c->fd < 0) {
		conn_free(c);
		return;
	}
	make_answer(c);
	if (conn_go_on(c) < 0)
		conn_close(c);
}

/* The whole question at the start of `in`, if it is there. 1: answered, or a worker has it; 0: more
 * bytes are needed; -errno. */
static int conn_answer(struct conn *c)
{
	size_t bytes;
	int rc;

	if (c->in_bytes < PATH_WIRE_HEAD_BYTES)
		return 0;
	if ((rc = path_wire_get_head(c->in, &c->head)))
		return rc;
	bytes = PATH_WIRE_HEAD_BYTES + (size_t)c->head.count * PATH_WIRE_QUERY_BYTES;
	if (c->in_bytes < bytes)
		return 0;
	for (unsigned i = 0; i < c->head.count; i++)
		path_wire_get_query(c->in + PATH_WIRE_HEAD_BYTES + i * PATH_WIRE_QUERY_BYTES,
				    &c->query[i]);
	c->in_bytes -= bytes;
	memmove(c->in, c->in + bytes, c->in_bytes);
	if (!path_service_lookup(c->server->service, c->query, c->head.count, c->answer)) {
		make_answer(c);
		return 1;
	}
	c->busy = true;
	if (!work_submit(c->server->pool, fill_run, fill_done, c))
		return 1;
	c->busy = false;
	return -ENOMEM;
}

/* Answers as long as whole questions are there and their answers go out. 0 or -errno. */
static int conn_go_on(struct conn *c)
{
	int rc = 1;

	while (!c->busy) {
		if (c->out_bytes && (rc = conn_flush(c)) <= 0)
			break;
		if ((rc = conn_answer(c)) <= 0)
			break;
	}
	if (rc < 0)
		return rc;
	/* While one question is open, the next ones wait in the socket. */
	rc = sd_event_source_set_io_events(c->io, c->busy ? 0 : c->out_bytes ? EPOLLOUT : EPOLLIN);
	return rc < 0 ? rc : 0;
}

static int conn_on_io(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct conn *c = arg;
	ssize_t n = 0;
	int rc;

	(void)source;
	if (events & EPOLLIN) {
		n = recv(fd, c->in + c->in_bytes, sizeof c->in - c->in_bytes, MSG_DONTWAIT);
		if (n > 0)
			c->in_bytes += (size_t)n;
	}
	if ((events & EPOLLIN && !n) || (n < 0 && errno != EAGAIN && errno != EINTR) ||
	    (!(events & (EPOLLIN | EPOLLOUT)) && events & (EPOLLHUP | EPOLLERR))) {
		conn_close(c);
		return 0;
	}
	rc = conn_go_on(c);
	if (rc == -EPROTO || rc == -EINVAL)
		log_notice("path records: a client does not speak version %d, or asks for none or "
			   "more than %d at once; closed",
			   PATH_WIRE_VERSION, PATH_WIRE_MAX);
	if (rc < 0)
		conn_close(c);
	return 0;
}

static int find_free(const struct path_server *s)
{
	for (int i = 0; i < PATH_CONN_MAX; i++)
		if (!s->conn[i])
			return i;
	return -1;
}

static int on_connect(sd_event_source *source, int listen_fd, uint32_t events, void *arg)
{
	struct path_server *s = arg;
	int fd AUTO_CLOSE = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int i = find_free(s), one = 1;
	struct conn *c;

	(void)source;
	(void)events;
	if (fd < 0 || i < 0 || !(c = calloc(1, sizeof *c)))
		return 0;
	c->server = s;
	c->fd = -1;
	/* fails on AF_UNIX, where it is not needed */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (sd_event_add_io(s->loop, &c->io, fd, EPOLLIN, conn_on_io, c) < 0) {
		free(c);
		return 0;
	}
	c->fd = TAKE_FD(fd);
	s->conn[i] = c;
	return 0;
}

int path_server_new(sd_event *loop, int fd, struct path_service *service, struct work_pool *pool,
		    bool cacheable, struct path_server **ret_server)
{
	struct path_server *s = calloc(1, sizeof *s);
	int rc;

	if (!s) {
		close(fd);
		return -ENOMEM;
	}
	*s = (struct path_server){
		.loop = loop,
		.service = service,
		.pool = pool,
		.cacheable = cacheable,
		.fd = fd,
	};
	rc = sd_event_add_io(loop, &s->io, fd, EPOLLIN, on_connect, s);
	if (rc < 0) {
		path_server_free(s);
		return rc;
	}
	*ret_server = s;
	return 0;
}

void path_server_free(struct path_server *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < PATH_CONN_MAX; i++)
		if (s->conn[i])
			conn_free(s->conn[i]);
	sd_event_source_disable_unref(s->io);
	close(s->fd);
	free(s);
}
