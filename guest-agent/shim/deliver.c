/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The packets of other processes, as the agent hands them over: each goes to the part that it is
 * for. Nothing that a peer says is used before it is checked. */
#include "guest-agent/shim/deliver.h"
#include "guest-agent/proto/senders.h"
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/port/lid.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/ud/ud.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/post.h"

#include <string.h>

#define DEFERRED_MAX 4096

/* Questions that came while the QP was between two devices. */
static struct {
	struct peer_head head;
	struct peer_qp qp;
} deferred[DEFERRED_MAX];
static unsigned deferred_count;

static void reply_gone(const struct peer_head *h, uint32_t dst_vqpn, uint32_t src_vqpn)
{
	struct packet p = {.head = {.about = h->type,
				    .dst_vqpn = dst_vqpn,
				    .src_vqpn = src_vqpn,
				    .migration = h->migration}};
	struct shim_peer to = {.slot = h->src_slot, .instance = h->src_instance};

	peer_send_to(h->dgid, h->sgid, &to, &p, PEER_GONE, 0);
}

/* To the asker, whoever q is connected to. */
static void answer_peer(const struct shim_qp *q, const struct peer_head *h, const struct peer_qp *e,
			uint16_t type)
{
	struct shim_peer asker = {.slot = h->src_slot, .instance = h->src_instance};
	/* No copy of the whole: the program may be posting. */
	struct shim_qp to = {.ctx = q->ctx,
			     .real = q->real,
			     .psn = q->psn,
			     .phase = q->phase,
			     .peer = &asker,
			     .dvqpn = e->src_vqpn,
			     .attr = {.port_num = q->attr.port_num},
			     .v = {.qp_num = q->v.qp_num, .state = q->v.state}};

	memcpy(to.sgid, h->dgid, 16);
	memcpy(to.dgid, h->sgid, 16);
	peer_send_qp(&to, type, 0);
}

/* True if the packet is of the end that q names, and of its process where that is known. */
static bool is_other_end(const struct shim_qp *q, const struct peer_head *h,
			 const struct peer_qp *e)
{
	return q->dvqpn == e->src_vqpn && !memcmp(q->dgid, h->sgid, 16) &&
	       (!q->connected || !q->peer || peer_is_end(q, h, e->src_vqpn));
}

/* The program has named a LID, and after moves the number may be that of a QP at another one, which
 * its program has told with that. */
static bool is_misled(const struct shim_qp *q, const struct peer_head *h)
{
	return q->asked_lid && h->src_vlid &&
	       !lid_same_port(q->ctx, q->attr.port_num, q->asked_lid, h->src_vlid);
}

/* The asker connects to us. Before our own program has connected, this is all we know of it, and
 * the first asker is kept until then. */
static void note_asker(struct shim_qp *q, const struct peer_head *h, const struct peer_qp *e,
		       bool late)
{
	struct shim_peer *peer = !q->peer || is_other_end(q, h, e) ? peer_get(h) : NULL;

	if (!peer)
		return;
	q->peer = peer;
	q->resolved = true;
	q->dvqpn = e->src_vqpn;
	q->dqpn = e->qpn & SHIM_QPN_MAX;
	q->dqpn_old = late; /* the asker may have a new one by now */
	memcpy(q->sgid, h->dgid, 16);
	memcpy(q->dgid, h->sgid, 16);
}

/* Both ask at the same time: this answers ours. Else the other end would take part in a migration
 * that comes now, and this end, still waiting, would not. */
static void answered_by_question(struct shim_qp *q, const struct peer_head *h,
				 const struct peer_qp *e)
{
	struct shim_peer *peer = peer_get(h);

	if (!peer)
		return;
	q->peer = peer;
	q->dqpn = e->qpn & SHIM_QPN_MAX;
	peer_resolve_end(q, RESOLVE_DONE);
}

/* Whoever asks for a QP hears its number, but only its own other end changes anything here. */
static void resolve_for_peer(const struct peer_head *h, const struct peer_qp *e, bool late)
{
	struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);

	if (!q || q->ud) {
		reply_gone(h, e->dst_vqpn, e->src_vqpn);
		return;
	}
	if (!q->real || q->phase != QP_LIVE || job_concerns(q, h->sgid)) {
		if (deferred_count == DEFERRED_MAX)
			return; /* the asker goes on without cover */
		deferred[deferred_count].head = *h;
		deferred[deferred_count++].qp = *e;
		answer_peer(q, h, e, PEER_BUSY);
		return;
	}
	/* The asker begins to count, and we have done so before. */
	if (atomic_load(&q->recv.tail) && (!q->connected || is_other_end(q, h, e)))
		q->uncounted = true;
	if (!q->connected)
		note_asker(q, h, e, late);
	else if (q->resolve == RESOLVE_WAITS && !late && is_other_end(q, h, e) && !is_misled(q, h))
		answered_by_question(q, h, e);
	answer_peer(q, h, e, PEER_RESOLVED);
	if (q->connected && q->resolved && peer_is_end(q, h, e->src_vqpn))
		peer_send_new_keys(q);
}

static void answer_deferred(void)
{
	unsigned n = deferred_count;

	deferred_count = 0;
	for (unsigned i = 0; i < n; i++)
		resolve_for_peer(&deferred[i].head, &deferred[i].qp, true);
}

static void peer_resolved(const struct peer_head *h, const struct peer_qp *e)
{
	struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);
	struct shim_peer *peer;

	if (!q || q->resolve != RESOLVE_WAITS || !is_other_end(q, h, e))
		return;
	if (h->type == PEER_BUSY) {
		pthread_mutex_lock(&shim.call);
		q->resolve_busy = true;
		pthread_cond_broadcast(&shim.call_done);
		pthread_mutex_unlock(&shim.call);
		return;
	}
	peer = peer_get(h);
	if (!peer || e->qpn > SHIM_QPN_MAX || is_misled(q, h)) {
		peer_resolve_end(q, RESOLVE_GONE);
		return;
	}
	q->peer = peer;
	q->dqpn = e->qpn;
	peer_resolve_end(q, RESOLVE_DONE);
}

/* Posts that waited for a number go on. */
static void flush_waiting(struct shim_peer *peer)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (q->peer != peer || !q->wanted.type)
			continue;
		lock_take(&q->send.lock);
		q->wanted.type = 0;
		send_flush(q);
		lock_give(&q->send.lock);
	}
}

static void peer_keys(struct shim_peer *peer, const struct peer_key *keys, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		peer_set_key(peer, keys[i]);
	flush_waiting(peer);
}

/* A number that is nobody's is told to the QPs that wait, and not kept: it may become somebody's.
 */
static void peer_srqns(struct shim_peer *peer, const struct peer_key *srqns, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		peer_set_srqn(peer, srqns[i]);
	flush_waiting(peer);
	for (unsigned i = 0; i < count; i++)
		if (srqns[i].key >= SRQN_NONE)
			peer_drop_srqn(peer, srqns[i].vkey);
}

/* The answer to a packet about several QPs: the whole process has gone. */
static void all_gone(const struct peer_head *h)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (q->peer && q->peer->slot == h->src_slot &&
		    q->peer->instance == h->src_instance && !memcmp(q->peer->gid, h->sgid, 16))
			job_qp_event(q, PEER_GONE, h->migration, NULL);
	}
}

static void peer_gone(const struct peer_head *h)
{
	struct shim_qp *q = qp_by_vqpn(h->src_vqpn);
	struct peer_key none = {.key = SRQN_NONE};

	if (!h->src_vqpn) {
		all_gone(h);
		return;
	}
	if (!q || q->dvqpn != h->dst_vqpn || memcmp(q->dgid, h->sgid, 16))
		return;
	if (h->about == PEER_RESOLVE) { /* perhaps by the agent there, of no process */
		peer_resolve_end(q, RESOLVE_GONE);
		return;
	}
	if (!peer_is_end(q, h, h->dst_vqpn))
		return;
	switch (h->about) {
	case PEER_KEY_GET:
		if (q->wanted.type == PEER_KEY_GET) {
			peer_set_key(q->peer, (struct peer_key){q->wanted.number, KEY_NONE});
			flush_waiting(q->peer);
		}
		break;
	case PEER_SRQ_GET:
		none.vkey = q->wanted.number;
		if (q->wanted.type == PEER_SRQ_GET)
			peer_srqns(q->peer, &none, 1);
		break;
	case PEER_CM_DISCONNECT: /* nothing is left to end there */
		break;
	default:
		job_qp_event(q, PEER_GONE, h->migration, NULL);
	}
}

/* The program has put its QP to ERR, perhaps just before a migration. The QP has no part in that,
 * also where our own suspend has begun, and the other end must not wait for it. */
static bool ended(const struct shim_qp *q, unsigned type)
{
	return q->v.state == IBV_QPS_ERR && (type == PEER_DRAINED || type == PEER_FREEZE);
}

static void peer_qp_packet(const struct peer_head *h, const struct peer_qp *entries)
{
	for (unsigned i = 0; i < h->count; i++) {
		const struct peer_qp *e = &entries[i];
		struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);

		if (!q || !peer_is_end(q, h, e->src_vqpn) || ended(q, h->type))
			reply_gone(h, e->dst_vqpn, e->src_vqpn);
		else if (h->type >= PEER_PATH_HOLD)
			change_heard(q, h->type, h->migration, e);
		else
			job_qp_event(q, h->type, h->migration, e);
	}
}

/* Numbers of the sender's: only of an end that our program has connected to. */
static void told_numbers(const struct peer_head *h, const void *entries)
{
	struct shim_peer *peer = peer_connected(h);

	if (!peer)
		return;
	if (h->type == PEER_KEYS)
		peer_keys(peer, entries, h->count);
	else if (h->type == PEER_SRQS)
		peer_srqns(peer, entries, h->count);
	else
		peer_forgets(peer);
}

/* Under ctl. */
static void take(const struct peer_head *h, const void *entries)
{
	switch (h->type) {
	case PEER_RESOLVE:
		resolve_for_peer(h, entries, false);
		break;
	case PEER_RESOLVED:
	case PEER_BUSY:
		peer_resolved(h, entries);
		break;
	case PEER_KEYS:
	case PEER_SRQS:
	case PEER_KEYS_DROP:
		told_numbers(h, entries);
		break;
	case PEER_SRQ_GET:
		peer_srq_get(h, entries);
		break;
	case PEER_KEY_GET:
		peer_key_get(h, entries);
		break;
	case PEER_GONE:
		if (h->about >= PEER_UD_RESOLVE)
			ud_gone(h);
		else
			peer_gone(h);
		break;
	case PEER_CM_DISCONNECT:
		cm_peer_disconnected(h, entries);
		break;
	case PEER_DRAINED:
	case PEER_FREEZE:
	case PEER_FROZEN:
	case PEER_ABORT:
	case PEER_PREPARED:
	case PEER_CONNECT:
	case PEER_READY:
	case PEER_PATH_HOLD:
	case PEER_PATH_DRAINED:
	case PEER_PATH_READY:
	case PEER_PATH_ABORT:
		peer_qp_packet(h, entries);
		break;
	default:
		ud_delivered(h, entries);
		break;
	}
}

/* True if this process is meant, and not one that had its slot before. */
static bool is_for_us(const struct peer_rule *r, const struct peer_head *h)
{
	if (h->dst_slot)
		return h->dst_slot == shim.slot && h->dst_instance == shim.instance;
	return r->to == PEER_TO_HOLDER || (h->type == PEER_GONE && h->about == PEER_UD_ENDED);
}

void peer_delivered(const struct shim_relay *r)
{
	const struct peer_rule *rule;
	struct peer_head h;

	if (r->head.bytes < sizeof(*r) + sizeof(h))
		return;
	memcpy(&h, r->body, sizeof(h));
	rule = peer_rule_of(h.type); /* NULL: of a newer build, or none at all */
	if (h.version != PEER_PROTO_VERSION || !rule ||
	    !peer_fits(rule, &h, r->head.bytes - sizeof(*r)) || !is_for_us(rule, &h))
		return;
	pthread_mutex_lock(&shim.ctl);
	take(&h, r->body + sizeof(h));
	pthread_mutex_unlock(&shim.ctl);
}

/* The keys of QPs that have been connected just now, but not between two devices: the resume tells
 * them. */
static void tell_keys(void)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);
	struct list *at = shim.untold.next;

	while (at != &shim.untold) {
		struct shim_qp *q = list_entry(at, struct shim_qp, untold);

		at = at->next;
		if (!q->real || q->phase != QP_LIVE || job_concerns(q, q->dgid))
			continue;
		list_del(&q->untold);
		if (q->peer)
			peer_send_new_keys(q);
	}
}

void peer_unreachable(const uint8_t dgid[16])
{
	struct shim_qp *q;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (q, &shim.qps, link) {
		if (memcmp(q->dgid, dgid, 16))
			continue;
		peer_resolve_end(q, RESOLVE_GONE);
		job_qp_event(q, 0, 0, NULL);
	}
	ud_unreachable(dgid);
	pthread_mutex_unlock(&shim.ctl);
}

static void forget(void)
{
	deferred_count = 0;
}

const struct shim_part deliver_part = {
	.name = "peers", .answer = answer_deferred, .step = tell_keys, .forget = forget};
