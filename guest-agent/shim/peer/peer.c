/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The processes at the other end: finding them by GID and QPN, their keys, and the packets that
 * both ends exchange (proto/peer.h); what is told of our own keys is in shim/verbs/keys.c. Nothing
 * that a peer says is used before it is checked. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/ud.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define PEERS_MAX       4096
#define PEER_CHUNKS_MAX 256  /* 1 Mi keys of one peer */
#define ALL_CHUNKS_MAX  4096 /* of all peers together: 128 MiB */
#define QPS_PER_PACKET  ((PEER_BODY_MAX - sizeof(struct peer_head)) / sizeof(struct peer_qp))
#define BATCHES         64 /* of 48 KiB, touched as far as they are filled */
#define DEFERRED_MAX    4096
/* Who has no agent is refused at once; a guest that only gets no CPU answers late, and without its
 * answer the QP cannot move for as long as it lives. */
#define ANSWER_S 15

struct qp_packet {
	struct packet p;
	struct peer_qp qp;
};

struct qps_packet {
	struct packet p;
	struct peer_qp qps[QPS_PER_PACKET];
};

/* What the helper thread has to tell a process, until it is told something else. QPs that lead to
 * several processes in turn fill several of these, each process always the same one. */
static struct batch {
	struct qps_packet packet;
	struct shim_peer *peer; /* borrowed */
	uint8_t sgid[16], dgid[16];
	uint16_t type;
} batches[BATCHES];

_Static_assert(sizeof(struct qps_packet) <= SHIM_MSG_MAX, "fits in a packet");

/* Questions that came while the QP was between two devices. */
static struct {
	struct peer_head head;
	struct peer_qp qp;
} deferred[DEFERRED_MAX];
static unsigned deferred_count;

void peer_reset(void)
{
	for (size_t i = 0; i < BATCHES; i++) {
		batches[i].packet.p.head.count = 0;
		batches[i].peer = NULL;
	}
	deferred_count = 0;
}

static void address(const uint8_t sgid[16], const uint8_t dgid[16], const struct shim_peer *peer,
		    struct packet *p, uint16_t type, size_t each)
{
	size_t body = sizeof(p->head) + p->head.count * each;

	p->relay.head = (struct shim_head){.bytes = (uint32_t)(sizeof(p->relay) + body),
					   .type = SHIM_SEND};
	memcpy(p->relay.sgid, sgid, 16);
	memcpy(p->relay.dgid, dgid, 16);
	memcpy(p->head.sgid, sgid, 16);
	memcpy(p->head.dgid, dgid, 16);
	p->head.version = PEER_PROTO_VERSION;
	p->head.type = type;
	p->head.src_slot = shim.slot;
	p->head.src_instance = shim.instance;
	p->head.dst_slot = peer ? peer->slot : 0;
	p->head.dst_instance = peer ? peer->instance : 0;
}

void peer_send_to(const uint8_t sgid[16], const uint8_t dgid[16], const struct shim_peer *peer,
		  struct packet *p, uint16_t type, size_t each)
{
	address(sgid, dgid, peer, p, type, each);
	shim_send(p);
}

static struct peer_qp describe(const struct shim_qp *q)
{
	bool drain = q->phase == QP_DRAINING && q->end_psn_known;
	uint64_t received = atomic_load(&q->recv.tail);
	bool counted = !atomic_load(&q->uncounted); /* which is set before one more is received */

	return (struct peer_qp){.dst_vqpn = q->dvqpn,
				.src_vqpn = q->v.qp_num,
				.qpn = q->real ? q->real->qp_num : 0,
				.psn = drain ? q->end_psn : q->psn,
				.flags = (q->stuck ? PEER_STUCK : 0u) | (drain ? PEER_PSN : 0u) |
					 (q->v.state < IBV_QPS_RTR ? PEER_UNCONNECTED : 0u) |
					 (q->phase == QP_LIVE ? PEER_REPLY : 0u) |
					 (counted ? PEER_COUNTED : 0u),
				.srqn = q->next_srqn,
				.recv_posted = q->v.qp_type == IBV_QPT_XRC_SEND ? q->next_at
					       : !q->told_frozen                ? UINT64_MAX
					       : q->v.srq || q->xrcd            ? received
										: q->recv.posted,
				.sent = q->sent,
				.received = received};
}

void peer_send_qp(struct shim_qp *q, uint16_t type, uint64_t migration)
{
	struct qp_packet small = {.p.head = {.count = 1,
					     .dst_vqpn = q->dvqpn,
					     .src_vqpn = q->v.qp_num,
					     .migration = migration},
				  .qp = describe(q)};

	peer_send_to(q->sgid, q->dgid, type == PEER_RESOLVE ? NULL : q->peer, &small.p, type,
		     sizeof(small.qp));
}

void peer_send_disconnect(const struct cm_ends *ends, uint16_t how)
{
	struct qp_packet small = {
		.p.head = {.count = 1, .dst_vqpn = ends->dvqpn, .src_vqpn = ends->vqpn},
		.qp = {.dst_vqpn = ends->dvqpn, .src_vqpn = ends->vqpn}};
	const struct shim_peer to = {.slot = ends->slot, .instance = ends->instance};

	address(ends->sgid, ends->dgid, &to, &small.p, PEER_CM_DISCONNECT, sizeof(small.qp));
	small.p.relay.head.type = how;
	shim_send(&small);
}

static struct batch *batch_of(const struct shim_peer *p)
{
	return &batches[((uintptr_t)p * 0x9e3779b97f4a7c15ull >> 32) % BATCHES];
}

static void flush(struct batch *b)
{
	struct peer_head *h = &b->packet.p.head;

	if (!h->count)
		return;
	/* An answer to one entry names its QP, an answer to several means all of the process. */
	h->dst_vqpn = h->count == 1 ? b->packet.qps[0].dst_vqpn : 0;
	h->src_vqpn = h->count == 1 ? b->packet.qps[0].src_vqpn : 0;
	peer_send_to(b->sgid, b->dgid, b->peer, &b->packet.p, b->type, sizeof(struct peer_qp));
	h->count = 0;
}

void peer_flush(void)
{
	for (size_t i = 0; i < BATCHES; i++)
		flush(&batches[i]);
}

void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration)
{
	struct batch *b = batch_of(q->peer);
	struct peer_head *h = &b->packet.p.head;

	if (b->type != type || h->migration != migration || b->peer != q->peer ||
	    memcmp(b->sgid, q->sgid, 16) || memcmp(b->dgid, q->dgid, 16) ||
	    h->count == QPS_PER_PACKET)
		flush(b);
	b->type = type;
	h->migration = migration;
	b->peer = q->peer;
	memcpy(b->sgid, q->sgid, 16);
	memcpy(b->dgid, q->dgid, 16);
	b->packet.qps[h->count++] = describe(q);
}

struct shim_peer *peer_find(const struct peer_head *h)
{
	struct shim_peer *p;

	list_for_each (p, &shim.peers, link)
		if (p->slot == h->src_slot && p->instance == h->src_instance &&
		    !memcmp(p->gid, h->sgid, 16))
			return p;
	return NULL;
}

static void peer_set(struct shim_table *t, uint32_t index, uint64_t entry)
{
	unsigned before = t->chunks, limit = before + ALL_CHUNKS_MAX - shim.peer_chunks;

	table_set(t, index, entry, limit < PEER_CHUNKS_MAX ? limit : PEER_CHUNKS_MAX);
	shim.peer_chunks += t->chunks - before;
}

static void peer_set_key(struct shim_peer *p, struct peer_key key)
{
	peer_set(&p->keys, key.vkey >> 8, key_entry(key.vkey, key.key));
}

static void peer_set_srqn(struct shim_peer *p, struct peer_key n)
{
	struct shim_table *t = atomic_load(&p->srqns);

	if (!t) { /* few processes have any */
		t = calloc(1, sizeof(*t));
		if (!t)
			return;
		atomic_store_explicit(&p->srqns, t, memory_order_release);
	}
	peer_set(t, n.vkey, SRQN_KNOWN | (n.key < SRQN_NONE ? n.key : SRQN_NONE));
}

static bool peer_used(const struct shim_peer *p)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->peer == p)
			return true;
	return false;
}

static void peer_forget(struct shim_peer *p)
{
	struct shim_table *srqns = atomic_load(&p->srqns);
	struct batch *b = batch_of(p);

	if (b->peer == p) {
		flush(b);
		b->peer = NULL;
	}
	list_del(&p->link);
	shim.peer_chunks -= p->keys.chunks;
	table_free(&p->keys);
	if (srqns) {
		shim.peer_chunks -= srqns->chunks;
		table_free(srqns);
		free(srqns);
	}
	free(p);
}

/* Whom the newcomer replaces: a process that had its slot, which is therefore gone, or, where there
 * are too many, the first that nobody is connected to. NULL: nobody. */
static struct shim_peer *peer_replaced(const struct peer_head *h)
{
	struct shim_peer *p, *unused = NULL;
	unsigned n = 0;

	list_for_each (p, &shim.peers, link) {
		n++;
		if (p->slot == h->src_slot && !memcmp(p->gid, h->sgid, 16) && !peer_used(p))
			return p;
	}
	if (n < PEERS_MAX)
		return NULL;
	list_for_each (p, &shim.peers, link)
		if (!unused && !peer_used(p))
			unused = p;
	return unused;
}

static struct shim_peer *peer_get(const struct peer_head *h)
{
	struct shim_peer *p = peer_find(h), *old, *each;
	unsigned n = 0;

	if (p)
		return p;
	old = peer_replaced(h);
	if (old)
		peer_forget(old);
	list_for_each (each, &shim.peers, link)
		n++;
	p = n < PEERS_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	memcpy(p->gid, h->sgid, 16);
	p->slot = h->src_slot;
	p->instance = h->src_instance;
	list_add(&shim.peers, &p->link);
	return p;
}

static void reply_gone(const struct peer_head *h, uint32_t dst_vqpn, uint32_t src_vqpn)
{
	struct packet p = {.head = {.about = h->type,
				    .dst_vqpn = dst_vqpn,
				    .src_vqpn = src_vqpn,
				    .migration = h->migration}};
	struct shim_peer to = {.slot = h->src_slot, .instance = h->src_instance};

	peer_send_to(h->dgid, h->sgid, &to, &p, PEER_GONE, 0);
}

void peer_send_gone(const struct shim_qp *q, uint64_t migration)
{
	struct packet p = {.head = {.about = PEER_DRAINED,
				    .dst_vqpn = q->v.qp_num,
				    .src_vqpn = q->dvqpn,
				    .migration = migration}};

	peer_send_to(q->sgid, q->dgid, q->peer, &p, PEER_GONE, 0);
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
			     .v = {.qp_num = q->v.qp_num, .state = q->v.state}};

	memcpy(to.sgid, h->dgid, 16);
	memcpy(to.dgid, h->sgid, 16);
	if (type == PEER_RESOLVED)
		peer_send_new_keys(&to);
	peer_send_qp(&to, type, 0);
}

static void resolve_end(struct shim_qp *q, int result)
{
	pthread_mutex_lock(&shim.call);
	if (q->resolve == RESOLVE_WAITS)
		q->resolve = result;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
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
	if (atomic_load(&q->recv.tail)) /* the asker begins to count, and we have done so before */
		q->uncounted = true;
	if (!q->connected) {
		q->peer = peer;
		q->resolved = true;
		q->dvqpn = e->src_vqpn;
		q->dqpn = e->qpn & SHIM_QPN_MAX;
		q->dqpn_old = late; /* the asker may have a new one by now */
		memcpy(q->sgid, h->dgid, 16);
		memcpy(q->dgid, h->sgid, 16);
	} else if (q->resolve == RESOLVE_WAITS && !late && q->dvqpn == e->src_vqpn &&
		   !memcmp(q->dgid, h->sgid, 16)) {
		/* Both ask at the same time: this answers ours. Else the other end would take part
		 * in a migration that comes now, and this end, still waiting, would not. */
		q->peer = peer;
		q->dqpn = e->qpn & SHIM_QPN_MAX;
		resolve_end(q, RESOLVE_DONE);
	}
	answer_peer(q, peer, h, e, PEER_RESOLVED);
}

void peer_answer_deferred(void)
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

	if (!q || q->resolve != RESOLVE_WAITS || q->dvqpn != e->src_vqpn ||
	    memcmp(q->dgid, h->sgid, 16))
		return;
	if (h->type == PEER_BUSY) {
		pthread_mutex_lock(&shim.call);
		q->resolve_busy = true;
		pthread_cond_broadcast(&shim.call_done);
		pthread_mutex_unlock(&shim.call);
		return;
	}
	peer = peer_get(h);
	if (!peer || e->qpn > SHIM_QPN_MAX) {
		resolve_end(q, RESOLVE_GONE);
		return;
	}
	q->peer = peer;
	q->dqpn = e->qpn;
	resolve_end(q, RESOLVE_DONE);
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

/* Whether a QP of ours has just asked somebody there. */
static bool asked_there(const uint8_t gid[16])
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->resolve == RESOLVE_WAITS && !memcmp(q->dgid, gid, 16))
			return true;
	return false;
}

/* Who tells us numbers. They come before the first answer; a stranger's are not kept. */
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

/* That a number is nobody's is told to who waits, and not kept: it may become somebody's. */
static void peer_srqns(struct shim_peer *peer, const struct peer_key *srqns, unsigned count)
{
	struct shim_table *t;

	for (unsigned i = 0; i < count; i++)
		peer_set_srqn(peer, srqns[i]);
	flush_waiting(peer);
	t = atomic_load(&peer->srqns);
	for (unsigned i = 0; t && i < count; i++)
		if (srqns[i].key >= SRQN_NONE)
			peer_set(t, srqns[i].vkey, 0);
}

static void peer_forgets(struct shim_peer *peer)
{
	struct shim_table *srqns = atomic_load(&peer->srqns);

	table_clear(&peer->keys);
	if (srqns)
		table_clear(srqns);
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
		resolve_end(q, RESOLVE_GONE);
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
	case PEER_CM_DISCONNECT: /* all the better */
		break;
	default:
		job_qp_event(q, PEER_GONE, h->migration, NULL);
	}
}

/* The program has put its QP to ERR, perhaps just before a migration, in which it has no part then,
 * also where our own suspend has begun: the other end must not wait for it. */
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
		resolve_end(q, RESOLVE_GONE);
		job_qp_event(q, 0, 0, NULL);
	}
	ud_unreachable(dgid);
	pthread_mutex_unlock(&shim.ctl);
}

/* false: the agent has gone, and with it the question: nobody counts on us meanwhile. */
static bool await_answer(struct shim_qp *q, unsigned losses)
{
	struct timespec until;
	bool busy = false, left;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ANSWER_S;
	pthread_mutex_lock(&shim.call);
	while (q->resolve == RESOLVE_WAITS && !shim_agent_left(losses) && !rc) {
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
		if (q->resolve_busy && !busy)
			until.tv_sec += RESOLVE_BUSY_MS / 1000;
		busy = q->resolve_busy;
	}
	left = q->resolve == RESOLVE_WAITS && shim_agent_left(losses);
	q->resolve_busy |= left;
	pthread_mutex_unlock(&shim.call);
	return !left;
}

static unsigned ask_once(struct shim_qp *q)
{
	unsigned losses;

	pthread_mutex_lock(&shim.call);
	losses = shim.agent_losses;
	q->resolve_busy = false;
	pthread_mutex_unlock(&shim.call);
	peer_send_qp(q, PEER_RESOLVE, 0);
	return losses;
}

/* How it ended is in q->resolve. Outside of the control verbs while it waits: a suspend of ours may
 * come in between, and the peer may be in the middle of one (then it says so, and it takes longer).
 */
static void ask_peer(struct shim_qp *q)
{
	bool again;
	int cancel;

	do {
		unsigned losses = ask_once(q);

		ctl_exit();
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		again = !await_answer(q, losses) && shim_await_agent(SHIM_AGENT_BACK_MS);
		if (!again)
			resolve_end(q, RESOLVE_GONE);
		pthread_setcancelstate(cancel, NULL);
		ctl_enter();
	} while (again);
}

/* 0: the device does not tell. */
static uint16_t partition_of(const struct shim_qp *q)
{
	const struct ibv_ah_attr *ah = &q->attr.ah_attr;
	__be16 pkey = 0;

	if (real_verbs.query_pkey(q->ctx->real, ah->port_num ? ah->port_num : q->attr.port_num,
				  q->attr.pkey_index, &pkey))
		return 0;
	return be16toh(pkey);
}

/* Before the QP goes to RTR: who is at the other end? In the program's thread; 0 or errno. */
int peer_connect(struct shim_qp *q)
{
	const struct ibv_ah_attr *ah = &q->attr.ah_attr;
	struct shim_route *r;
	union ibv_gid gid, dgid = ah->grh.dgid;
	bool known;

	if (!ah->is_global && !cm_find_gids(q, q->attr.dest_qp_num, gid.raw, dgid.raw)) {
		q->uncovered = "it is addressed by LID alone, without a GID (GRH)";
		q->dvqpn = q->dqpn = q->attr.dest_qp_num;
		q->connected = true;
		return 0;
	}
	if (ah->is_global &&
	    real_verbs.query_gid(q->ctx->real, ah->port_num ? ah->port_num : q->attr.port_num,
				 ah->grh.sgid_index, &gid))
		return EINVAL;
	q->pkey = partition_of(q);
	pthread_mutex_lock(&shim.ctl);
	/* The peer was first and asked for us: its numbers are known, and kept up to date. */
	known = q->resolved && !q->dqpn_old && q->dvqpn == q->attr.dest_qp_num &&
		!memcmp(q->dgid, dgid.raw, 16);
	memcpy(q->sgid, gid.raw, 16);
	memcpy(q->dgid, dgid.raw, 16);
	if (!known) {
		q->peer = NULL;
		q->resolved = false;
		q->dvqpn = q->dqpn = q->attr.dest_qp_num;
		pthread_mutex_lock(&shim.call);
		q->resolve = RESOLVE_WAITS;
		q->resolve_busy = false;
		pthread_mutex_unlock(&shim.call);
	}
	q->connected = true;
	pthread_mutex_unlock(&shim.ctl);
	if (!known)
		ask_peer(q);
	if (!known && q->resolve != RESOLVE_DONE) {
		q->peer = NULL;
		q->uncovered = "its peer has no agent or does not answer";
		shim_log("QP 0x%x goes on without cover: peer QP 0x%x does not answer", q->v.qp_num,
			 q->dvqpn);
		return 0;
	}
	q->resolved = true;
	r = route_get(q->sgid, q->dgid, q->pkey);
	if (r && r->state == ROUTE_NONE)
		route_ask(r, false);
	return 0;
}
