/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Our keys, as processes at the other end are told of them. A process is told each key once,
 * however many QPs it has, and keeps them by the GID that we speak from. Keys that it does not know
 * it asks for. */
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/mw.h"

#include <string.h>

#define WANT_AGAIN_MS   1000
#define KEYS_PER_PACKET ((PEER_BODY_MAX - sizeof(struct peer_head)) / sizeof(struct peer_key))

static struct key_packet {
	struct packet p;
	struct peer_key keys[KEYS_PER_PACKET];
} packet; /* helper thread only */

_Static_assert(sizeof(struct key_packet) <= SHIM_MSG_MAX, "fits in a packet");

static bool is_gid(const uint8_t a[16], const uint8_t b[16])
{
	return !memcmp(a, b, 16);
}

static const void *domain_of(const struct shim_qp *q)
{
	return q->v.pd ? (const void *)to_pd(q->v.pd) : q->xrcd;
}

/* The place of one more record. Above the bound, or without memory, the oldest is forgotten, and
 * the peer is told once more. */
static struct shim_told *new_record(struct shim_peer *p)
{
	static struct shim_told nowhere;
	struct shim_told *grown = p->told_count < SHIM_TOLD_MAX
					  ? realloc(p->told,
						    (p->told_count + 1) * sizeof(struct shim_told))
					  : NULL;

	if (grown) {
		p->told = grown;
		return &p->told[p->told_count++];
	}
	if (!p->told_count)
		return &nowhere;
	memmove(p->told, p->told + 1, (p->told_count - 1) * sizeof(p->told[0]));
	return &p->told[p->told_count - 1];
}

/* The record of what q's peer knows of q's PD by q's GID. */
static struct shim_told *told_of(const struct shim_qp *q)
{
	struct shim_peer *p = q->peer;
	struct shim_told *t;

	for (unsigned i = 0; i < p->told_count; i++)
		if (p->told[i].domain == domain_of(q) && is_gid(p->told[i].sgid, q->sgid))
			return &p->told[i];
	t = new_record(p);
	*t = (struct shim_told){.domain = domain_of(q)};
	memcpy(t->sgid, q->sgid, 16);
	return t;
}

static void send_packet(const struct shim_qp *q, uint16_t type, unsigned n)
{
	memset(&packet.p.head, 0, sizeof(packet.p.head));
	packet.p.head.count = (uint16_t)n;
	if (n)
		peer_send_to(q->sgid, q->dgid, q->peer, &packet.p, type, sizeof(struct peer_key));
}

static void send_windows(const struct shim_qp *q, bool again)
{
	unsigned n, done = 0;

	peer_flush(); /* the order is kept */
	while ((n = mw_keys(q, again, packet.keys, KEYS_PER_PACKET, &done)))
		send_packet(q, PEER_KEYS, n);
}

/* The keys of the regions that the peer may use, from the first-th that was ever registered on.
 * Regions are in that order in the list, and the newest are asked for first. */
static void send_regions(const struct shim_qp *q, uint64_t first)
{
	struct shim_mr *m = list_entry(shim.mrs.prev, struct shim_mr, link);
	unsigned n = 0;

	peer_flush(); /* the order is kept */
	while (&m->link != &shim.mrs && m->number >= first)
		m = list_entry(m->link.prev, struct shim_mr, link);
	for (m = list_entry(m->link.next, struct shim_mr, link); &m->link != &shim.mrs;
	     m = list_entry(m->link.next, struct shim_mr, link)) {
		if (!qp_shows(q, m->pd) || !m->v.rkey || !m->real)
			continue;
		packet.keys[n++] = (struct peer_key){m->v.rkey, m->real->rkey};
		if (n < KEYS_PER_PACKET)
			continue;
		send_packet(q, PEER_KEYS, n);
		n = 0;
	}
	send_packet(q, PEER_KEYS, n);
}

/* The numbers of the shared receive queues of q's XRC domain, as above. */
static void send_srqns(const struct shim_qp *q, uint64_t first)
{
	struct shim_srq *s;
	unsigned n = 0;

	peer_flush(); /* the order is kept */
	list_for_each (s, &shim.srqs, link) {
		if (!s->xrcd || s->xrcd != q->xrcd || !s->real || s->number < first)
			continue;
		packet.keys[n++] = (struct peer_key){s->srqn, s->real_srqn};
		if (n < KEYS_PER_PACKET)
			continue;
		send_packet(q, PEER_SRQS, n);
		n = 0;
	}
	send_packet(q, PEER_SRQS, n);
}

/* A peer asks for the keys of windows that are bound later. */
void peer_send_new_keys(struct shim_qp *q)
{
	struct shim_told *t = told_of(q);

	send_regions(q, t->next);
	if (!t->told)
		send_windows(q, false);
	send_srqns(q, t->next_srq);
	t->told = true;
	t->next = shim.mr_count;
	t->next_srq = shim.srq_count;
}

void peer_begin_keys(void)
{
	struct shim_peer *p;

	list_for_each (p, &shim.peers, link)
		p->told_count = 0;
}

/* A GID of ours may be that of two contexts. */
static bool has_dropped(const struct shim_qp *q)
{
	const struct shim_peer *p = q->peer;

	for (unsigned i = 0; i < p->told_count; i++)
		if (p->told[i].told && is_gid(p->told[i].sgid, q->sgid))
			return true;
	return false;
}

void peer_tell_keys(struct shim_qp *q)
{
	struct packet drop = {0};

	if (!has_dropped(q)) {
		peer_flush();
		peer_send_to(q->sgid, q->dgid, q->peer, &drop, PEER_KEYS_DROP, 0);
	}
	if (!told_of(q)->told)
		peer_send_new_keys(q);
}

void peer_tell_windows(void)
{
	static unsigned pass;
	struct shim_told *t;
	struct shim_qp *q;

	if (!mw_bound_again())
		return;
	pass++;
	/* Tells every process that may use a window of type 1, whether it takes part or not. */
	list_for_each (q, &shim.qps, link) {
		if (!q->peer || q->said.gone || (q->in_job && !q->paired))
			continue;
		t = told_of(q);
		if (t->pass == pass || (q->in_job && !t->told)) /* then it is told all */
			continue;
		t->pass = pass;
		send_windows(q, true);
	}
	mw_told();
}

static void send_one_key(struct shim_qp *q, uint16_t type, struct peer_key key)
{
	struct {
		struct packet p;
		struct peer_key key;
	} small = {.p.head = {.count = 1, .dst_vqpn = q->dvqpn, .src_vqpn = q->v.qp_num},
		   .key = key};

	peer_send_to(q->sgid, q->dgid, q->peer, &small.p, type, sizeof(key));
}

static void ask(struct shim_qp *q)
{
	q->wanted.asked_us = now_us();
	send_one_key(q, q->wanted.type, (struct peer_key){q->wanted.number, 0});
}

void peer_want(struct shim_qp *q)
{
	ask(q);
	if (!atomic_exchange(&shim.wants, true))
		shim_wake_helper();
}

int peer_want_timeout(void)
{
	return atomic_load(&shim.wants) ? WANT_AGAIN_MS : -1;
}

/* A QP that is held asks when it goes on. */
static bool waits(const struct shim_qp *q)
{
	return q->wanted.type && q->peer && q->phase == QP_LIVE;
}

void peer_want_again(void)
{
	static uint64_t look_us;
	uint64_t now = now_us();
	struct shim_qp *q;

	if (!atomic_load(&shim.wants) || now < look_us)
		return;
	look_us = now + WANT_AGAIN_MS * 1000ull;
	pthread_mutex_lock(&shim.ctl);
	atomic_store(&shim.wants, false); /* before the look: who comes behind it sets it again */
	list_for_each (q, &shim.qps, link) {
		lock_take(&q->send.lock);
		if (waits(q)) {
			atomic_store(&shim.wants, true);
			if (now - q->wanted.asked_us >= WANT_AGAIN_MS * 1000ull)
				ask(q);
		}
		lock_give(&q->send.lock);
	}
	pthread_mutex_unlock(&shim.ctl);
}

void peer_key_get(const struct peer_head *h, const struct peer_key *key)
{
	struct shim_qp *q = qp_by_vqpn(h->dst_vqpn);
	struct peer_key answer = {key->vkey, KEY_NONE};
	struct shim_mr *m;

	if (!q || !peer_is_connected(q, h))
		return;
	list_for_each (m, &shim.mrs, link)
		if (m->v.rkey == key->vkey && m->v.rkey && m->real && qp_shows(q, m->pd))
			answer.key = m->real->rkey;
	if (mw_key(q, key->vkey, &answer.key))
		send_one_key(q, PEER_KEYS, answer);
}

void peer_srq_get(const struct peer_head *h, const struct peer_key *srqn)
{
	struct shim_qp *q = qp_by_vqpn(h->dst_vqpn);
	struct shim_srq *s = srq_by_number(srqn->vkey);

	if (!q || !peer_is_connected(q, h) || (s && !s->real)) /* the resume tells it */
		return;
	if (s && s->xrcd != q->xrcd) /* no target of its domain: nothing that is sent comes in */
		s = NULL;
	send_one_key(q, PEER_SRQS, (struct peer_key){srqn->vkey, s ? s->real_srqn : SRQN_NONE});
}
