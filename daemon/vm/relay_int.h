/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the files of the relay: relay.c (in and out), relay_host.c (calls to other hosts) and
 * relay_route.c (where a GUID is). */
#ifndef IBVMIG_DAEMON_VM_RELAY_INT_H
#define IBVMIG_DAEMON_VM_RELAY_INT_H

#include <json-c/json.h>
#include <stdint.h>

#include "common/fair.h"
#include "daemon/vm/relay.h"

#define RELAY_BARRED      "the VM with that GID shares no partition with the sender"
#define RELAY_RETRIES_MAX 3 /* of one message, to where its GUID is said to be */

/* A VM of this host that has messages here. All limits are its own: it can fill nothing that is of
 * others. */
struct sender {
	struct sender *next;
	uint64_t key;      /* the vGUID of the VM's first VF */
	unsigned messages; /* of it that exist; without one it is freed */
	size_t bytes;      /* of these */
	unsigned asked;    /* GUIDs that are being looked up, or are to be, for its messages */
	unsigned asking;   /* of these, under way */
};

struct message {
	struct fair_item item; /* first; its .next also links those of a route, and of a batch */
	struct sender *sender; /* counted */
	uint64_t to;           /* GUID */
	size_t bytes;          /* for the limits: text, and what it costs to keep it */
	unsigned tries;
	struct json_object *json; /* owned: from, to, body, pkeys */
};

/* Messages in their order. */
struct messages {
	struct message *head, **tail;
};

struct route;
struct host;

struct relay {
	struct daemon *d;       /* borrowed */
	struct sender *senders; /* owned */
	struct route *routes;   /* owned; newest first */
	struct host *hosts;     /* owned */
	uint64_t uses;
	unsigned route_count, asking;
};

static inline void messages_init(struct messages *q)
{
	*q = (struct messages){.tail = &q->head};
}

static inline void messages_add(struct messages *q, struct message *m)
{
	m->item.next = NULL;
	*q->tail = m;
	q->tail = (struct message **)&m->item.next;
}

/* The first, or NULL: the caller's from now on. */
static inline struct message *messages_take(struct messages *q)
{
	struct message *m = q->head;

	if (m && !(q->head = (struct message *)m->item.next))
		q->tail = &q->head;
	return m;
}

/* The message is owned by the called function. error: for its sender. */
void relay_send(struct relay *r, struct message *m);
void relay_failed(struct relay *r, struct message *m, const char *error);
void relay_message_free(struct relay *r, struct message *m);
/* The other host does not have that VM (any more): its GUID is looked up again, a few times. */
void relay_again(struct relay *r, struct message *m, const char *url, const char *error);

void relay_host_add(struct relay *r, const char *url, struct message *m);
void relay_hosts_free(struct relay *r);

/* Sends it to where its GUID is, or has it wait for the answer. */
void relay_route_add(struct relay *r, struct message *m);
/* The GUID is not, or not any more, at url. */
void relay_route_wrong(struct relay *r, uint64_t guid, const char *url);
void relay_routes_free(struct relay *r);

#endif
