/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The host's end of a guest channel (docs/wire.md, "Guest channel"). The guest is not trusted. */
#ifndef IBVMIG_DAEMON_VM_AGENT_H
#define IBVMIG_DAEMON_VM_AGENT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

/* More than this of a guest is read later, when it has said nothing for so long. */
#define AGENT_FRAMES_PER_S 10000
#define AGENT_BYTES_PER_S  (8u << 20)
#define AGENT_BURST_BYTES  (16u << 20)
#define AGENT_QUEUE_MAX    (8u << 20)  /* bytes to a guest that does not read, of this host */
#define AGENT_SENDER_MAX   (1u << 20)  /* the same of one other guest */
#define AGENT_SENDERS_MAX  (16u << 20) /* and of all others */
#define AGENT_REQUESTS_MAX 64

struct agent_line;

enum agent_state {
	AGENT_DOWN,    /* no connection to the channel's socket */
	AGENT_WAITING, /* connected; hello not answered yet */
	AGENT_UP,
};

/* answer: the guest's, reduced to what we know (daemon/vm/answers.h) and borrowed during the call,
 * if rc is 0; otherwise error has one line. */
typedef void agent_done(void *arg, int rc, struct json_object *answer, const char *error);

struct agent_ops {
	/* The hello to send; owned by the agent. */
	struct json_object *(*hello)(void *arg);
	void (*changed)(void *arg, enum agent_state s);
	/* Requests (with an id) and events of the guest; borrowed during the call. */
	void (*message)(void *arg, struct json_object *msg);
};

/* name: for the log. path: the socket. It connects, and re-connects, by itself. asleep: the guest
 * does not run until agent_guest_runs() says so. */
int agent_new(sd_event *loop, const char *name, const char *path, bool asleep,
	      const struct agent_ops *ops, void *arg, struct agent_line **ret_agent);
/* Pending requests end with -ENOTCONN. */
void agent_free(struct agent_line *a);

enum agent_state agent_state(const struct agent_line *a);
/* The answer to hello, borrowed; NULL unless AGENT_UP. */
struct json_object *agent_hello(const struct agent_line *a);

/* msg: {"op":…}, owned by the call. done() is called exactly once, also when the agent goes away
 * or deadline_ms passes; a request made before the agent is up waits for it. */
void agent_request(struct agent_line *a, struct json_object *msg, unsigned deadline_ms,
		   agent_done *done, void *arg);
/* An event or an answer to the guest; owned by the call. 0, or -ENOBUFS if the guest does not
 * read. */
int agent_send(struct agent_line *a, struct json_object *msg);
/* The same of another guest, which sender stands for. What this host says itself goes before all of
 * these, and they go in turn. */
int agent_send_of(struct agent_line *a, uint64_t sender, struct json_object *msg);

/* QEMU says that the guest has opened (or closed) its end. */
void agent_guest_opened(struct agent_line *a, bool open);
/* A migration has arrived: an agent answers from now on. */
void agent_guest_runs(struct agent_line *a);

/* Writes one object (common/json.h). */
void agent_write_status(struct printbuf *text, const char *key, const struct agent_line *a);

#endif
