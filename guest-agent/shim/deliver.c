/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The packets of other processes, as the agent hands them over: each goes to the part that it is
 * for. Nothing that a peer says is used before it is checked. */
#include "guest-agent/shim/deliver.h"
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/port/lid.h"
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
static void answer_peer(const struct shim_qp *q, struct shim_peer *peer, const struct peer_head *h,
			const struct peer_qp *e, uint16_t type)
{
	/* No copy of the whole: the program may be posting. */
	struct shim_qp to = {.ctx = q->ctx,
			     .real = q->real,
			     .psn = q->psn,
			     .phase = q->phase,
			     .peer = peer,
			     .dvqpn = e->src_vqpn,
			     .attr = {.port_num = q->attr.port_num},
			     .v = {.qp_num = q->v.qp_num, .state = q->v.state}};

	memcpy(to.sgid, h->dgid, 16);
	memcpy(to.dgid, h->sgid, 16);
	if (type == PEER_RESOLVED)
		peer_send_new_keys(&to);
	peer_send_qp(&to, type, 0);
}

/* True if the packet is of the end that q names. */
static bool is_other_end(const struct shim_qp *q, const struct peer_head *h,
			 const struct peer_qp *e)
{
	return q->dvqpn == e->src_vqpn && !memcmp(q->dgid, h->sgid, 16);
}

/* The program has named a LID, and after moves the number may be that of a QP at another one, which
 * its program has told with that. */
static bool is_misled(const struct shim_qp *q, const struct peer_head *h)
{
	return q->asked_lid && h->src_vlid &&
	       !lid_same_port(q->ctx, q->attr.port_num, q->asked_lid, h->src_vlid);
}

/* The asker connects to us. Before our own program has connected, this is all we know of it. */
static void resolve_for_peer(const struct peer_head *h, const struct peer_qp *e, bool late)
{
	struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);
	struct shim_peer *peer = q && !q->ud ? peer_get(h) : NULL;

	if (!peer) {
		reply_gone(h, e->dst_vqpn, e->src_vqpn);
		return;
	}
	if (!q->real || q->phase != QP_LIVE || job_concerns(q, h->sgid)) {
		if (deferred_count == DEFERRED_MAX)
			return; /* the asker goes on without cover */
		deferred[deferred_count].head = *h;
		deferred[deferred_count++].qp = *e;
		answer_peer(q, peer, h, e, PEER_BUSY);
		return;
	}
	/* The asker begins to count, and we have done so before. */
	if (atomic_load(&q->recv.tail) && (!q->connected || is_other_end(q, h, e)))
		q->uncounted = true;
	if (!q->connected) {
		q->peer = peer;
		q->resolved = true;
		q->dvqpn = e->src_vqpn;
		q->dqpn = e->qpn & SHIM_QPN_MAX;
		q->dqpn_old = late; /* the asker may have a new one by now */
		memcpy(q->sgid, h->dgid, 16);
		memcpy(q->dgid, h->sgid, 16);
	} else if (q->resolve == RESOLVE_WAITS && !late && is_other_end(q, h, e) &&
		   !is_misled(q, h)) {
		/* Both ask at the same time: this answers ours. Else the other end would take part
		 * in a migration that comes now, and this end, still waiting, would not. */
		q->peer = peer;
		q->dqpn = e->qpn & SHIM_QPN_MAX;
		peer_resolve_end(q, RESOLVE_DONE);
	}
	answer_peer(q, peer, h, e, PEER_RESOLVED);
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

/* True if a QP of ours has just asked somebody there. */
static bool asked_there(const uint8_t gid[16])
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->resolve == RESOLVE_WAITS && !memcmp(q->dgid, gid, 16))
			return true;
	return false;
}

/* The process that tells us numbers. Numbers come before the first answer; a stranger's are not
 * kept. */
static struct shim_peer *teller(const struct peer_head *h)
{
	return asked_there(h->sgid) ? peer_get(h) : peer_find(h);
}

static void peer_keys(const struct peer_head *h, const struct peer_key *keys)
{
	struct shim_peer *peer = teller(h);

	for (unsigned i = 0; peer && i < h->count; i++)
		peer_set_key(peer, keys[i]);
	if (peer)
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
	switch (h->about) {
	case PEER_RESOLVE:
		peer_resolve_end(q, RESOLVE_GONE);
		break;
	case PEER_KEY_GET:
		if (q->peer && q->wanted.type == PEER_KEY_GET) {
			peer_set_key(q->peer, (struct peer_key){q->wanted.number, KEY_NONE});
			flush_waiting(q->peer);
		}
		break;
	case PEER_SRQ_GET:
		none.vkey = q->wanted.number;
		if (q->peer && q->wanted.type == PEER_SRQ_GET)
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
	struct shim_peer *peer = peer_find(h);

	for (unsigned i = 0; i < h->count; i++) {
		const struct peer_qp *e = &entries[i];
		struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);

		if (q && peer && q->peer == peer && q->dvqpn == e->src_vqpn && !ended(q, h->type))
			job_qp_event(q, h->type, h->migration, e);
		else
			reply_gone(h, e->dst_vqpn, e->src_vqpn);
	}
}

void peer_delivered(const struct shim_relay *r)
{
	struct peer_head h;
	const void *entries = r->body + sizeof(h);
	size_t bytes = r->head.bytes - sizeof(*r);
	struct shim_peer *peer;
	size_t each;

	if (r->head.bytes < sizeof(*r) + sizeof(h))
		return;
	memcpy(&h, r->body, sizeof(h));
	each = peer_entry_bytes(h.type);
	if (h.version != PEER_PROTO_VERSION || bytes != sizeof(h) + h.count * each)
		return;
	pthread_mutex_lock(&shim.ctl);
	switch (h.type) {
	case PEER_RESOLVE:
		if (h.count == 1)
			resolve_for_peer(&h, entries, false);
		break;
	case PEER_RESOLVED:
	case PEER_BUSY:
		if (h.count == 1)
			peer_resolved(&h, entries);
		break;
	case PEER_KEYS:
		peer_keys(&h, entries);
		break;
	case PEER_KEYS_DROP:
		if ((peer = peer_find(&h)))
			peer_forgets(peer);
		break;
	case PEER_SRQS:
		if ((peer = teller(&h)))
			peer_srqns(peer, entries, h.count);
		break;
	case PEER_SRQ_GET:
		if (h.count == 1)
			peer_srq_get(&h, entries);
		break;
	case PEER_KEY_GET:
		if (h.count == 1)
			peer_key_get(&h, entries);
		break;
	case PEER_GONE:
		if (h.about >= PEER_UD_RESOLVE)
			ud_gone(&h);
		else
			peer_gone(&h);
		break;
	case PEER_CM_DISCONNECT:
		if (h.count == 1)
			cm_peer_disconnected(&h, entries);
		break;
	case PEER_DRAINED:
	case PEER_FREEZE:
	case PEER_FROZEN:
	case PEER_ABORT:
	case PEER_PREPARED:
	case PEER_CONNECT:
	case PEER_READY:
		peer_qp_packet(&h, entries);
		break;
	default: /* or of a newer build, or none at all */
		if (h.type >= PEER_UD_RESOLVE)
			ud_delivered(&h, entries);
		break;
	}
	pthread_mutex_unlock(&shim.ctl);
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
	.name = "peers", .answer = answer_deferred, .forget = forget};
