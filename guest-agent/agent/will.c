/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The will of a process: packets that are sent when it has ended, however it ends. */
#include "guest-agent/agent/main.h"
#include "common/log.h"
#include "common/util.h"

#include <stdlib.h>
#include <string.h>

#define WILLS_MAX 8192 /* for one process */

struct agent_will {
	struct agent_will *next;
	struct peer_head head;    /* the packet's */
	struct shim_relay packet; /* the last: its body follows */
};

static const struct peer_head *head_of(const struct shim_relay *r, struct peer_head *ret)
{
	memcpy(ret, r->body, sizeof(*ret));
	return ret;
}

static bool same(const struct peer_head *a, const struct peer_head *b)
{
	return a->type == b->type && a->dst_vqpn == b->dst_vqpn && a->src_vqpn == b->src_vqpn &&
	       a->dst_slot == b->dst_slot && a->dst_instance == b->dst_instance &&
	       !memcmp(a->dgid, b->dgid, sizeof(a->dgid));
}

/* NULL, or why it is not kept. */
static const char *refused(struct agent_shim *s, const struct shim_relay *r)
{
	size_t bytes = r->head.bytes - sizeof(*r);
	struct {
		struct peer_head head;
		struct peer_qp qp;
	} body;

	if (bytes > sizeof(body))
		return "that is too long";
	memcpy(&body, r->body, bytes);
	if (!agent_packet_valid(&body.head, bytes))
		return "that is none of this build";
	return agent_will_refused(s->agent, s, &body.head);
}

void agent_will_keep(struct agent_shim *s, const struct shim_relay *r)
{
	const char *wrong = refused(s, r);
	struct agent_will *w;

	if (wrong) {
		log_warn("process %d (%s) leaves a packet %s: it is dropped", s->pid, s->comm,
			 wrong);
		return;
	}
	agent_will_drop(s, r); /* said again: to an agent that was started again, too */
	w = s->will_count < WILLS_MAX &&
			    agent_user_may(s->user, s->user->wills, AGENT_USER_WILLS_MAX)
		    ? malloc(sizeof(*w) + r->head.bytes)
		    : NULL;
	if (!w) {
		log_warn("process %d (%s) has left %u packets for its end: no more", s->pid,
			 s->comm, s->will_count);
		return;
	}
	memcpy(&w->packet, r, r->head.bytes);
	head_of(r, &w->head);
	w->next = s->wills;
	s->wills = w;
	s->will_count++;
	s->user->wills++;
}

void agent_will_drop(struct agent_shim *s, const struct shim_relay *r)
{
	struct agent_will **at = &s->wills, *w;
	struct peer_head h;

	head_of(r, &h);
	while (*at && !same(&(*at)->head, &h))
		at = &(*at)->next;
	w = *at;
	if (!w)
		return;
	*at = w->next;
	s->will_count--;
	s->user->wills--;
	free(w);
}

void agent_will_end(struct agent_shim *s, bool send)
{
	while (s->wills) {
		struct agent_will *w = s->wills;

		s->wills = w->next;
		if (send)
			agent_relay_from_shim(s->agent, s, &w->packet);
		free(w);
	}
	s->user->wills -= s->will_count;
	s->will_count = 0;
}
