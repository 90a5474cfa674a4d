/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vm/agent.h"
#include "common/frame.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/vm/answers.h"
#include "common/fair.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define READ_BYTES    65536
#define RECONNECT_MIN 100
#define RECONNECT_MAX 3000
/* A hello can overtake the guest kernel's notice that the host is there, and is lost then. Later
 * ones only help agents that start: QEMU tells of those. */
#define HELLO_AGAIN_MS 100
#define HELLO_TRIES    7
#define AGENT_PRIORITY 100 /* after everything else: a guest that floods us starves nobody */

struct request {
	struct request *next;
	struct agent_line *agent;
	uint64_t id;
	bool sent;
	struct json_object *msg;  /* owned */
	struct loop_timer *timer; /* owned */
	agent_done *done;
	void *arg;
};

/* A frame of another guest. */
struct relayed {
	struct fair_item item; /* first */
	char *frame;           /* owned; item.bytes long */
};

struct agent_line {
	sd_event *loop;    /* borrowed */
	char *name, *path; /* owned */
	const struct agent_ops *ops;
	void *arg;
	enum agent_state state;
	int fd;
	sd_event_source *io;      /* owned */
	struct loop_timer *retry; /* owned */
	unsigned retry_ms;
	struct frame_parser parser;
	char *out; /* owned; not yet written */
	size_t out_bytes;
	struct fair relayed;      /* frames of other guests, which follow out */
	struct request *requests; /* owned */
	unsigned request_count;
	uint64_t last_id, hello_id;
	struct loop_timer *hello_again; /* owned */
	unsigned hellos;
	bool asleep;               /* the guest does not run yet: one hello waits for it */
	struct json_object *hello; /* owned */
	int64_t frames_left,
		bytes_left; /* that the guest may say at once; below 0: it is not read */
	uint64_t counted_ms;
	struct loop_timer *calm; /* owned; reads it again */
	bool paused;
	uint64_t pauses;
	bool garbage_logged, flood_logged, stuck_logged, path_logged;
};

static void set_state(struct agent_line *a, enum agent_state s)
{
	if (a->state == s)
		return;
	a->state = s;
	if (s != AGENT_UP) {
		json_object_put(a->hello);
		a->hello = NULL;
	}
	a->ops->changed(a->arg, s);
}

/* ---- requests ---- */

static void request_end(struct request *r, int rc, struct json_object *answer, const char *error)
{
	struct agent_line *a = r->agent;

	for (struct request **p = &a->requests; *p; p = &(*p)->next) {
		if (*p == r) {
			*p = r->next;
			break;
		}
	}
	a->request_count--;
	r->done(r->arg, rc, answer, error);
	loop_timer_free(r->timer);
	json_object_put(r->msg);
	free(r);
}

static void request_timeout(void *arg)
{
	struct request *r = arg;
	char line[160];

	snprintf(line, sizeof line, "the guest's agent %s",
		 r->sent ? "did not answer in time"
			 : "is not there: start ibvmig-agent in the guest");
	request_end(r, -ETIMEDOUT, NULL, line);
}

static void requests_fail(struct agent_line *a, bool only_sent)
{
	struct request *next;

	for (struct request *r = a->requests; r; r = next) {
		next = r->next;
		if (r->sent || !only_sent) {
			request_end(r, -ENOTCONN, NULL,
				    "the connection to the guest's agent broke");
			next = a->requests;
		}
	}
}

static void requests_send(struct agent_line *a)
{
	for (struct request *r = a->requests; r && a->state == AGENT_UP; r = r->next) {
		if (r->sent)
			continue;
		r->sent = true;
		agent_send(a, json_object_get(r->msg));
	}
}

void agent_request(struct agent_line *a, struct json_object *msg, unsigned deadline_ms,
		   agent_done *done, void *arg)
{
	struct request *r = a->request_count < AGENT_REQUESTS_MAX ? calloc(1, sizeof *r) : NULL;

	if (!r || loop_timer_new(a->loop, request_timeout, r, &r->timer)) {
		free(r);
		json_object_put(msg);
		done(arg, -EBUSY, NULL, "too many requests to the agent");
		return;
	}
	r->agent = a;
	r->id = ++a->last_id;
	r->msg = msg;
	r->done = done;
	r->arg = arg;
	json_set_u64(msg, "id", r->id);
	r->next = a->requests;
	a->requests = r;
	a->request_count++;
	loop_timer_arm(r->timer, deadline_ms);
	requests_send(a);
}

/* ---- what comes from the guest ---- */

static void answer_arrived(struct agent_line *a, uint64_t id, struct json_object *msg)
{
	bool ok = json_opt_bool(msg, "ok", false);

	if (id == a->hello_id && id) {
		if (!ok) {
			log_warn("VM %s: the agent refuses hello: %.200s", a->name,
				 json_opt_str(msg, "error", "no reason"));
			return;
		}
		a->hello_id = 0;
		json_object_put(a->hello);
		a->hello = answers_reduce("hello", msg);
		set_state(a, AGENT_UP);
		requests_send(a);
		return;
	}
	for (struct request *r = a->requests; r; r = r->next) {
		struct json_object *known AUTO_JSON = NULL;

		if (r->id != id || !r->sent)
			continue;
		known = answers_reduce(json_opt_str(r->msg, "op", ""), msg);
		request_end(r, ok ? 0 : -EREMOTEIO, known,
			    ok ? "" : json_opt_str(msg, "error", "the agent gave no reason"));
		return;
	}
}

static void on_message(void *arg, struct json_object *msg)
{
	struct agent_line *a = arg;
	struct json_object *id = json_opt(msg, "id");

	a->frames_left--;
	if (!json_opt(msg, "op") && json_object_is_type(id, json_type_int))
		answer_arrived(a, json_object_get_uint64(id), msg);
	else if (a->state == AGENT_UP)
		a->ops->message(a->arg, msg);
}

/* ---- the connection ---- */

static void relayed_free(struct relayed *r)
{
	free(r->frame);
	free(r);
}

static void out_free(struct agent_line *a)
{
	struct fair_item *item;

	free(TAKE(a->out));
	a->out_bytes = 0;
	while ((item = fair_pop(&a->relayed)))
		relayed_free((struct relayed *)item);
}

static void disconnect(struct agent_line *a)
{
	a->io = sd_event_source_disable_unref(a->io);
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	out_free(a);
	a->paused = false;
	a->hello_id = 0;
	frame_parser_reset(&a->parser);
	set_state(a, AGENT_DOWN);
	requests_fail(a, true);
	a->retry_ms = a->retry_ms ? a->retry_ms * 2 : RECONNECT_MIN;
	if (a->retry_ms > RECONNECT_MAX)
		a->retry_ms = RECONNECT_MAX;
	loop_timer_arm(a->retry, a->retry_ms);
}

/* Once in out, a frame goes whole, whatever is to be said meanwhile. */
static void take_relayed(struct agent_line *a)
{
	struct relayed *r = a->out_bytes ? NULL : (struct relayed *)fair_pop(&a->relayed);

	if (!r)
		return;
	free(a->out);
	a->out = TAKE(r->frame);
	a->out_bytes = r->item.bytes;
	relayed_free(r);
}

static void set_events(struct agent_line *a)
{
	bool writes = a->out_bytes || a->relayed.bytes;

	sd_event_source_set_io_events(a->io, (a->paused ? 0u : EPOLLIN) | (writes ? EPOLLOUT : 0u));
}

/* Sends as much as the socket takes. True while the connection lives. */
static bool flush(struct agent_line *a)
{
	while (take_relayed(a), a->out_bytes) {
		ssize_t n = send(a->fd, a->out, a->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0)
			return false;
		a->out_bytes -= (size_t)n;
		memmove(a->out, a->out + n, a->out_bytes);
	}
	set_events(a);
	return true;
}

static int note_stuck(struct agent_line *a)
{
	if (!a->stuck_logged)
		log_warn("VM %s: the guest does not read its channel; messages to it are dropped "
			 "(said once)",
			 a->name);
	a->stuck_logged = true;
	return -ENOBUFS;
}

static int queue_bytes(struct agent_line *a, const void *data, size_t bytes)
{
	char *grown;

	if (a->out_bytes + bytes > AGENT_QUEUE_MAX ||
	    !(grown = realloc(a->out, a->out_bytes + bytes)))
		return note_stuck(a);
	memcpy(grown + a->out_bytes, data, bytes);
	a->out = grown;
	a->out_bytes += bytes;
	return 0;
}

int agent_send(struct agent_line *a, struct json_object *msg)
{
	size_t bytes = 0;
	char *frame AUTO_FREE = frame_pack(msg, &bytes);
	int rc = -EMSGSIZE;

	json_object_put(msg);
	if (a->fd < 0)
		return -ENOTCONN;
	if (frame)
		rc = queue_bytes(a, frame, bytes);
	/* A broken connection is noticed by the reader, in the loop. */
	if (!rc)
		flush(a);
	return rc;
}

static int queue_relayed(struct agent_line *a, uint64_t sender, char **frame, size_t bytes)
{
	struct relayed *r = NULL;

	if (fair_bytes(&a->relayed, sender) + bytes <= AGENT_SENDER_MAX &&
	    a->relayed.bytes + bytes <= AGENT_SENDERS_MAX)
		r = calloc(1, sizeof *r);
	if (!r || fair_push(&a->relayed, sender, &r->item, bytes)) {
		free(r);
		return note_stuck(a);
	}
	r->frame = TAKE(*frame);
	return 0;
}

int agent_send_of(struct agent_line *a, uint64_t sender, struct json_object *msg)
{
	size_t bytes = 0;
	char *frame AUTO_FREE = frame_pack(msg, &bytes);
	int rc = -EMSGSIZE;

	json_object_put(msg);
	if (a->fd < 0)
		return -ENOTCONN;
	if (frame)
		rc = queue_relayed(a, sender, &frame, bytes);
	if (!rc)
		flush(a);
	return rc;
}

static void send_hello(void *arg)
{
	struct agent_line *a = arg;
	const char reset = (char)FRAME_RESET;
	struct json_object *msg;

	if (a->state != AGENT_WAITING)
		return;
	msg = a->ops->hello(a->arg);
	json_set_str(msg, "op", "hello");
	json_set_u64(msg, "id", a->hello_id);
	json_set_u64(msg, "version", 1);
	queue_bytes(a, &reset, 1);
	agent_send(a, msg);
	if (!a->asleep && ++a->hellos < HELLO_TRIES)
		loop_timer_arm(a->hello_again, (uint64_t)HELLO_AGAIN_MS << a->hellos);
}

static void say_hello(struct agent_line *a)
{
	set_state(a, AGENT_WAITING);
	requests_fail(a, true);
	a->hello_id = ++a->last_id;
	a->hellos = 0;
	send_hello(a);
}

static void note_garbage(struct agent_line *a)
{
	a->garbage_logged = true;
	log_warn("VM %s: the guest sends bytes that are no messages; they are dropped (said once)",
		 a->name);
}

/* ---- how much it may say ---- */

static int64_t at_most(int64_t n, int64_t max)
{
	return n < max ? n : max;
}

static void count_time(struct agent_line *a)
{
	uint64_t now = now_ms(), passed = now - a->counted_ms;
	int64_t ms = passed < 10000 ? (int64_t)passed : 10000;

	a->counted_ms = now;
	a->frames_left = at_most(a->frames_left + ms * AGENT_FRAMES_PER_S / 1000,
				 AGENT_FRAMES_PER_S);
	a->bytes_left = at_most(a->bytes_left + ms * AGENT_BYTES_PER_S / 1000, AGENT_BURST_BYTES);
}

static uint64_t ms_until(int64_t left, int64_t per_s)
{
	return left < 0 ? (uint64_t)(-left * 1000 / per_s) + 1 : 0;
}

static void read_again(void *arg)
{
	struct agent_line *a = arg;

	a->paused = false;
	if (a->io)
		set_events(a);
}

/* A message beyond the share of its guest waits in the guest, and costs this host nothing. */
static void pause_reading(struct agent_line *a)
{
	uint64_t frames_ms = ms_until(a->frames_left, AGENT_FRAMES_PER_S);
	uint64_t bytes_ms = ms_until(a->bytes_left, AGENT_BYTES_PER_S);
	uint64_t ms = frames_ms > bytes_ms ? frames_ms : bytes_ms;

	if (!ms || !a->io)
		return;
	a->paused = true;
	a->pauses++;
	set_events(a);
	loop_timer_arm(a->calm, ms);
	if (!a->flood_logged)
		log_warn("VM %s: the guest says more than %d messages or %u MiB a second; it is "
			 "read that fast, and no faster (said once)",
			 a->name, AGENT_FRAMES_PER_S, AGENT_BYTES_PER_S >> 20);
	a->flood_logged = true;
}

static int on_io(sd_event_source *src, int fd, uint32_t events, void *arg)
{
	static char chunk[READ_BYTES];
	struct agent_line *a = arg;
	ssize_t n = 0;

	(void)src;
	if (events & EPOLLOUT && !flush(a)) {
		disconnect(a);
		return 0;
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return 0;
	n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		disconnect(a);
		return 0;
	}
	count_time(a);
	a->bytes_left -= n;
	frame_feed(&a->parser, chunk, (size_t)n, on_message, a);
	if (a->parser.dropped && !a->garbage_logged)
		note_garbage(a);
	pause_reading(a);
	return 0;
}

/* A path that is too long for a socket's address is shortened: a descriptor stands for its folder.
 * 0 or -errno; -ENAMETOOLONG: the name in the folder is too long as well. */
static int connect_path(int fd, const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const char *name = strrchr(path, '/');
	char *folder AUTO_FREE = NULL, *shorter AUTO_FREE = NULL;
	int folder_fd AUTO_CLOSE = -1;

	if (name && strlen(path) >= sizeof addr.sun_path) {
		folder = strf("%.*s", (int)(name - path), path);
		folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (folder_fd < 0)
			return -errno;
		path = shorter = strf("/proc/self/fd/%d%s", folder_fd, name);
	}
	if (strlen(path) >= sizeof addr.sun_path)
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	return connect(fd, (struct sockaddr *)&addr, sizeof addr) ? -errno : 0;
}

static void note_path(struct agent_line *a)
{
	if (!a->path_logged)
		log_warn("VM %s: the agent cannot be reached: the name of its channel's socket, "
			 "%s, is "
			 "too long; give the channel a shorter one in the domain's XML (said once)",
			 a->name, a->path);
	a->path_logged = true;
}

static void try_connect(void *arg)
{
	struct agent_line *a = arg;
	int rc;

	if (a->fd >= 0)
		return;
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = a->fd < 0 ? -errno : connect_path(a->fd, a->path);
	if (rc == -ENAMETOOLONG)
		note_path(a);
	if (rc || sd_event_add_io(a->loop, &a->io, a->fd, EPOLLIN, on_io, a) < 0) {
		disconnect(a);
		return;
	}
	sd_event_source_set_priority(a->io, AGENT_PRIORITY);
	a->retry_ms = 0;
	say_hello(a);
}

int agent_new(sd_event *loop, const char *name, const char *path, bool asleep,
	      const struct agent_ops *ops, void *arg, struct agent_line **ret_agent)
{
	struct agent_line *a = calloc(1, sizeof *a);

	if (!a)
		return -ENOMEM;
	*a = (struct agent_line){.loop = loop,
				 .ops = ops,
				 .arg = arg,
				 .fd = -1,
				 .asleep = asleep,
				 .frames_left = AGENT_FRAMES_PER_S,
				 .bytes_left = AGENT_BURST_BYTES,
				 .counted_ms = now_ms()};
	if (str_set(&a->name, name) || str_set(&a->path, path) ||
	    loop_timer_new(loop, try_connect, a, &a->retry) ||
	    loop_timer_new(loop, send_hello, a, &a->hello_again) ||
	    loop_timer_new(loop, read_again, a, &a->calm)) {
		agent_free(a);
		return -ENOMEM;
	}
	loop_timer_arm(a->retry, 0);
	*ret_agent = a;
	return 0;
}

void agent_free(struct agent_line *a)
{
	if (!a)
		return;
	requests_fail(a, false);
	sd_event_source_disable_unref(a->io);
	loop_timer_free(a->retry);
	loop_timer_free(a->hello_again);
	loop_timer_free(a->calm);
	if (a->fd >= 0)
		close(a->fd);
	frame_parser_reset(&a->parser);
	json_object_put(a->hello);
	out_free(a);
	free(a->name);
	free(a->path);
	free(a);
}

enum agent_state agent_state(const struct agent_line *a)
{
	return a ? a->state : AGENT_DOWN;
}

struct json_object *agent_hello(const struct agent_line *a)
{
	return a && a->state == AGENT_UP ? a->hello : NULL;
}

void agent_guest_opened(struct agent_line *a, bool open)
{
	if (a->fd < 0)
		return;
	if (open) {
		say_hello(a);
	} else {
		loop_timer_disarm(a->hello_again);
		set_state(a, AGENT_WAITING);
		requests_fail(a, true);
	}
}

void agent_guest_runs(struct agent_line *a)
{
	a->asleep = false;
	a->retry_ms = 0;
	if (a->fd < 0)
		loop_timer_arm(a->retry, 0);
	else if (a->state == AGENT_WAITING)
		loop_timer_arm(a->hello_again, HELLO_AGAIN_MS);
}

void agent_write_status(struct printbuf *text, const char *key, const struct agent_line *a)
{
	static const char *const names[] = {"down", "waiting", "up"};
	struct json_object *h = agent_hello(a);

	json_write_open(text, key, '{');
	json_write_str(text, "state", a ? names[a->state] : "none");
	if (h) {
		json_write_str(text, "version", json_opt_str(h, "agent", NULL));
		json_write_u64(text, "processes", json_opt_u64(h, "processes", 0));
		json_write_u64(text, "qps", json_opt_u64(h, "qps", 0));
	}
	if (a) {
		json_write_u64(text, "dropped_bytes", a->parser.dropped);
		json_write_u64(text, "pauses", a->pauses);
	}
	json_write_close(text, '}');
}
