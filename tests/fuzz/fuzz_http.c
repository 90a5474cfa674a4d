/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Input of a client to the REST server, heads and bodies: a real one on a socket. A handler reads
 * fields as the daemons' do. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#define ROUNDS_MAX 200

static sd_event *loop;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_body(struct http_request *req)
{
	struct json_reader r;
	struct json_object *o = json_object_new_object();

	json_reader_init(&r, req->body);
	json_set_guid(o, "vguid", json_need_guid(&r, "vguid"));
	json_set_u64(o, "n", json_need_u64(&r, "n", 1, 64));
	json_set_str(o, "name", json_need_str(&r, "name"));
	json_set_u64(o, "moves", json_count(json_need_array(&r, "moves")));
	json_set_str(o, "q", http_query(req->exchange, "q"));
	json_set_str(o, "accept", http_header(req->exchange, "Accept"));
	json_set_str(o, "last", http_header(req->exchange, "Last-Event-ID"));
	json_set_str(o, "param", req->param);
	if (r.error) {
		json_object_put(o);
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
	} else {
		http_reply(req->exchange, 200, o);
	}
}

static const struct http_route routes[] = {
	{"GET", "/v1/vms/*", on_body, REST_READ_ONLY},
	{"POST", "/v1/vms/*/migrate", on_body, REST_READ_ONLY},
	{"POST", "/v1/peer/switch", on_body, REST_READ_ONLY},
	{0},
};

static void clean_up(void)
{
	unlink(address.sun_path);
}

static void start(void)
{
	log_set_level(LOG_ERROR);
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/ibvmig-fuzz-%d", getpid());
	if (loop_new(&loop) || http_server_new(loop, http_listen_unix(address.sun_path, 0600), NULL,
					       routes, NULL, &server))
		abort();
	atexit(clean_up);
}

/* The client: reads what comes, and hangs up at the latest when the server has nothing to do. */
static void talk(int fd, const uint8_t *data, size_t size)
{
	char answer[4096];
	ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)n;
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < ROUNDS_MAX; i++) {
		if (sd_event_run(loop, 0) <= 0)
			break;
		if (recv(fd, answer, sizeof answer, MSG_DONTWAIT) == 0)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd;

	if (!loop)
		start();
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
		abort();
	talk(fd, data, size);
	close(fd);
	while (sd_event_run(loop, 0) > 0)
		;
	return 0;
}
