/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The channel to the host (docs/wire.md, "Guest channel"). It outlives any number of hosts: a
 * virtio port reports HUP while nobody has it open, and the host that opens it says hello. */
#include "guest-agent/agent/main.h"
#include "common/fair.h"
#include "common/frame.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define OUT_BYTES_MAX (16u << 20)
#define OF_USER_MAX   (4u << 20)  /* bytes of the processes of one user */
#define OF_USERS_MAX  (32u << 20) /* and of all */
#define REOPEN_MS     200         /* a port that is not there yet, or a socket that was closed */
#define LOGS_A_MINUTE 20
#define LOG_TEXT_MAX  512

/* A frame of a user's process. */
struct host_frame {
	struct fair_item item; /* first */
	char *text;            /* owned; item.bytes long */
};

struct agent_host {
	struct agent *agent; /* borrowed */
	char *port;          /* owned: path */
	bool is_socket;
	int fd; /* owned; -1 while there is none */
	sd_event_source *io;
	struct loop_timer *reopen;
	struct frame_parser parser;
	bool connected; /* the host has said hello on this connection */
	char *out;      /* owned */
	size_t out_bytes, out_room;
	uint64_t drops;       /* messages, on this connection */
	struct fair of_users; /* frames that follow out, by uid */
	uint64_t log_minute;
	unsigned logs;
};

static void of_users_free(struct agent_host *h)
{
	struct host_frame *f;

	while ((f = (struct host_frame *)fair_pop(&h->of_users))) {
		free(f->text);
		free(f);
	}
}

static void host_lost(struct agent_host *h)
{
	if (h->connected)
		log_notice("the host has left the channel");
	h->connected = false;
	h->out_bytes = 0;
	h->drops = 0;
	of_users_free(h);
	frame_parser_reset(&h->parser);
	if (!h->is_socket || h->fd < 0)
		return;
	h->io = sd_event_source_disable_unref(h->io);
	close(TAKE_FD(h->fd));
	loop_timer_arm(h->reopen, REOPEN_MS);
}

/* Writes what the port takes of out. false: it takes no more, or is lost. */
static bool write_out(struct agent_host *h)
{
	size_t done = 0;

	while (h->fd >= 0 && done < h->out_bytes) {
		ssize_t n = write(h->fd, h->out + done, h->out_bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			host_lost(h);
			return false;
		}
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	h->out_bytes -= done;
	if (done)
		memmove(h->out, h->out + done, h->out_bytes);
	return h->fd >= 0 && !h->out_bytes;
}

static int host_append(struct agent_host *h, const void *data, size_t bytes)
{
	if (h->out_bytes + bytes > h->out_room) {
		size_t room = (h->out_bytes + bytes) * 2;
		char *grown = h->out_bytes + bytes > OUT_BYTES_MAX ? NULL : realloc(h->out, room);

		if (!grown)
			return -ENOBUFS;
		h->out = grown;
		h->out_room = room;
	}
	memcpy(h->out + h->out_bytes, data, bytes);
	h->out_bytes += bytes;
	return 0;
}

/* Once in out, a frame goes whole, whatever is to be said meanwhile. */
static void host_flush(struct agent_host *h)
{
	while (write_out(h) && h->of_users.bytes) {
		struct host_frame *f = (struct host_frame *)fair_pop(&h->of_users);

		host_append(h, f->text, f->item.bytes);
		free(f->text);
		free(f);
	}
}

static void note_dropped(struct agent_host *h, size_t bytes)
{
	if (!h->drops++)
		log_error("a message of %zu bytes for the host is dropped: the limit is %u a "
			  "message, %u waiting, and %u of one user's processes (said once for each "
			  "host)",
			  bytes, FRAME_TEXT_MAX, OUT_BYTES_MAX, OF_USER_MAX);
}

void agent_host_send(struct agent *a, struct json_object *msg)
{
	struct json_object *owned AUTO_JSON = msg;
	struct agent_host *h = a->host;
	size_t bytes = 0;
	char *frame AUTO_FREE = frame_pack(owned, &bytes);

	if (!h->connected)
		return;
	if (!frame || host_append(h, frame, bytes)) {
		note_dropped(h, bytes);
		return;
	}
	host_flush(h);
}

void agent_host_send_of(struct agent *a, uid_t uid, struct json_object *msg)
{
	struct json_object *owned AUTO_JSON = msg;
	struct agent_host *h = a->host;
	struct host_frame *f = NULL;
	size_t bytes = 0;
	char *frame AUTO_FREE = frame_pack(owned, &bytes);

	if (!h->connected)
		return;
	if (frame && fair_bytes(&h->of_users, uid) + bytes <= OF_USER_MAX &&
	    h->of_users.bytes + bytes <= OF_USERS_MAX)
		f = calloc(1, sizeof(*f));
	if (!f || fair_push(&h->of_users, uid, &f->item, bytes)) {
		free(f);
		note_dropped(h, bytes);
		return;
	}
	f->text = TAKE(frame);
	host_flush(h);
}

void agent_answer(struct agent *a, uint64_t id, struct json_object *answer)
{
	json_set_u64(answer, "id", id);
	json_set_bool(answer, "ok", true);
	agent_host_send(a, answer);
}

void agent_answer_error(struct agent *a, uint64_t id, const char *fmt, ...)
{
	struct json_object *answer = json_object_new_object();
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_warn("the host's request fails: %s", text);
	json_set_u64(answer, "id", id);
	json_set_bool(answer, "ok", false);
	json_set_str(answer, "error", text);
	agent_host_send(a, answer);
}

void agent_log(struct agent *a, int level, const char *fmt, ...)
{
	struct agent_host *h = a->host;
	uint64_t minute = now_ms() / 60000;
	char text[LOG_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_at((enum log_level)level, "%s", text);
	if (!h || minute != h->log_minute) {
		if (!h)
			return;
		h->log_minute = minute;
		h->logs = 0;
	}
	if (h->logs++ >= LOGS_A_MINUTE)
		return;
	struct json_object *event = json_object_new_object();
	json_set_str(event, "op", "log");
	json_set_u64(event, "level", (uint64_t)level);
	json_set_str(event, "text", text);
	agent_host_send(a, event);
}

static int boot_id(char **ret_text)
{
	char *text AUTO_FREE = NULL;
	int rc = read_file("/proc/sys/kernel/random/boot_id", 64, &text, NULL);

	if (rc)
		return rc;
	text[strcspn(text, "\n")] = '\0';
	*ret_text = TAKE(text);
	return 0;
}

static int hello_vfs(struct agent *a, struct json_object *msg)
{
	struct json_object *vfs = json_opt(msg, "vfs");
	size_t n = vfs && json_object_is_type(vfs, json_type_array) ? json_object_array_length(vfs)
								    : 0;

	if (n > AGENT_VFS_MAX)
		return -E2BIG;
	a->vf_count = 0;
	for (size_t i = 0; i < n; i++)
		if (!ib_guid_parse(json_opt_str(json_object_array_get_idx(vfs, i), "vguid", ""),
				   &a->vf[a->vf_count]))
			a->vf_count++;
	return 0;
}

static void op_hello(struct agent *a, uint64_t id, struct json_object *msg)
{
	struct json_object *answer = json_object_new_object();
	char *boot AUTO_FREE = NULL;
	const unsigned char reset = FRAME_RESET;
	unsigned processes = 0, qps = 0;
	struct agent_shim *s;

	host_append(a->host, &reset, 1);
	a->host->connected = true;
	if (hello_vfs(a, msg)) {
		json_object_put(answer);
		agent_answer_error(a, id, "hello names more than %u VFs", AGENT_VFS_MAX);
		return;
	}
	/* A host that does not know it yet (its own ibvmig-sm is silent) says nothing. */
	agent_path_use(a, json_opt_bool(msg, "path_cache", a->path_cache));
	agent_for_each_shim(a, s)
	{
		processes++;
		qps += s->qps;
	}
	boot_id(&boot);
	json_set_u64(answer, "version", AGENT_PROTO_VERSION);
	json_set_str(answer, "agent", IBVMIG_VERSION);
	json_set_str(answer, "boot_id", boot ? boot : "");
	json_set_u64(answer, "processes", processes);
	json_set_u64(answer, "qps", qps);
	log_info("the host says hello: %u VFs, path cache %s", a->vf_count,
		 a->path_cache ? "on" : "off");
	agent_answer(a, id, answer);
}

static void op_query(struct agent *a, uint64_t id, struct json_object *msg)
{
	agent_query(a, id, json_opt_u64(msg, "deadline_ms", 0));
}

static void op_relay(struct agent *a, uint64_t id, struct json_object *msg)
{
	(void)id;
	agent_relay_from_host(a, msg);
}

static void op_relay_failed(struct agent *a, uint64_t id, struct json_object *msg)
{
	(void)id;
	agent_relay_failed(a, msg);
}

static const struct {
	const char *op;
	void (*run)(struct agent *a, uint64_t id, struct json_object *msg);
	bool event; /* has no answer */
} ops[] = {
	{"hello", op_hello, false},
	{"query", op_query, false},
	{"suspend", agent_suspend, false},
	{"resume", agent_resume, false},
	{"ballast", agent_ballast, false},
	{"relay", op_relay, true},
	{"relay-failed", op_relay_failed, true},
	{"repath", agent_repath, true},
	{"unpath", agent_unpath, true},
	{"path-cache", agent_path_cache, true},
};

static void host_message(void *arg, struct json_object *msg)
{
	struct agent *a = arg;
	const char *op = json_opt_str(msg, "op", NULL);
	uint64_t id = json_opt_u64(msg, "id", 0);

	if (!op) {
		agent_path_answer(a, id, msg);
		agent_lid_answer(a, id, msg);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (strcmp(op, ops[i].op))
			continue;
		if (!ops[i].event && !id)
			log_warn("the host asks \"%s\" without an id, which must be 1 or more", op);
		else
			ops[i].run(a, id, msg);
		return;
	}
	if (id)
		agent_answer_error(a, id, "op \"%.32s\" is unknown to this agent (version %u)", op,
				   AGENT_PROTO_VERSION);
}

/* Edge-triggered: a virtio port without a host would report HUP for ever. */
static int host_ready(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct agent_host *h = arg;
	char data[16384];

	(void)source;
	(void)events;
	for (;;) {
		ssize_t n = read(fd, data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			host_lost(h);
			return 0;
		}
		frame_feed(&h->parser, data, (size_t)n, host_message, h->agent);
		if (h->fd < 0)
			return 0;
	}
	host_flush(h);
	return 0;
}

static int port_connect(struct agent_host *h)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	int fd AUTO_CLOSE = -1;

	if (stat(h->port, &st))
		return -errno;
	h->is_socket = S_ISSOCK(st.st_mode);
	if (!h->is_socket) {
		fd = open(h->port, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		return fd < 0 ? -errno : TAKE_FD(fd);
	}
	if (strlen(h->port) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, h->port);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return -errno;
	return TAKE_FD(fd);
}

static void host_reopen(void *arg)
{
	struct agent_host *h = arg;
	int rc = port_connect(h);

	if (rc >= 0) {
		h->fd = rc;
		rc = sd_event_add_io(h->agent->loop, &h->io, h->fd, EPOLLIN | EPOLLOUT | EPOLLET,
				     host_ready, h);
		if (rc >= 0) {
			/* After the shims: a peer may ask for a QPN that a shim has just told. */
			sd_event_source_set_priority(h->io, SD_EVENT_PRIORITY_NORMAL + 10);
			return;
		}
		close(TAKE_FD(h->fd));
	}
	log_debug("%s: %s", h->port, strerror(-rc));
	loop_timer_arm(h->reopen, REOPEN_MS);
}

int agent_host_open(struct agent *a, const char *port)
{
	struct agent_host *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	a->host = h;
	h->agent = a;
	h->fd = -1;
	if ((rc = str_set(&h->port, port)) ||
	    (rc = loop_timer_new(a->loop, host_reopen, h, &h->reopen)))
		return rc;
	host_reopen(h);
	if (h->fd < 0)
		log_notice("%s is not there yet, waiting for it", port);
	return 0;
}

void agent_host_close(struct agent *a)
{
	struct agent_host *h = TAKE(a->host);

	if (!h)
		return;
	sd_event_source_disable_unref(h->io);
	loop_timer_free(h->reopen);
	frame_parser_reset(&h->parser);
	of_users_free(h);
	if (h->fd >= 0)
		close(h->fd);
	free(h->out);
	free(h->port);
	free(h);
}

bool agent_host_connected(const struct agent *a)
{
	return a->host && a->host->connected;
}
