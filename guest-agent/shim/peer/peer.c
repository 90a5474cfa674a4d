/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The processes at the other end: finding them by GID and QPN, their keys, and the packets that
 * both ends exchange (proto/peer.h). Packets that come are taken apart in shim/deliver.c. */
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/port/lid.h"

#include <errno.h>
#include <string.h>

#define PEERS_MAX       4096
#define PEER_CHUNKS_MAX 256  /* 1 Mi keys of one peer */
#define ALL_CHUNKS_MAX  4096 /* for all peers together: 128 MiB */
#define QPS_PER_PACKET  ((PEER_BODY_MAX - sizeof(struct peer_head)) / sizeof(struct peer_qp))
#define PARCELS         64 /* at 48 KiB, touched as far as they are filled */
/* A guest without an agent refuses at once. A guest that only gets no CPU answers late, and without
 * its answer the QP cannot move for as long as it lives. */
#define ANSWER_S 15

#define PEER_SILENT "its peer has no agent or does not answer"
#define PEER_BY_LID                                                                                \
	"it is addressed by LID alone, without a GID (GRH), and none is known for it: use a GID "  \
	"index, or ibvmig-agent --grh-required"

struct qp_packet {
	struct packet p;
	struct peer_qp qp;
};

struct qps_packet {
	struct packet p;
	struct peer_qp qps[QPS_PER_PACKET];
};

/* Words of the helper thread to one process, until it is told something else. QPs that lead to
 * several processes in turn fill several of these, each process always the same one. */
static struct parcel {
	struct qps_packet packet;
	struct shim_peer *peer; /* borrowed */
	uint8_t sgid[16], dgid[16];
	uint16_t type;
} parcels[PARCELS];

_Static_assert(sizeof(struct qps_packet) <= SHIM_MSG_MAX, "fits in a packet");

void peer_reset(void)
{
	for (size_t i = 0; i < PARCELS; i++) {
		parcels[i].packet.p.head.count = 0;
		parcels[i].peer = NULL;
	}
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
	bool changes = q->change.state >= CHANGE_DRAINED;
	uint64_t received = atomic_load(&q->recv.tail);
	bool counted = !atomic_load(&q->uncounted); /* set before one more is received */

	return (struct peer_qp){.dst_vqpn = q->dvqpn,
				.src_vqpn = q->v.qp_num,
				.qpn = q->real ? q->real->qp_num : 0,
				.psn = drain     ? q->end_psn
				       : changes ? q->change.psn
						 : q->psn,
				.flags = (q->stuck ? PEER_STUCK : 0u) | (drain ? PEER_PSN : 0u) |
					 (q->v.state < IBV_QPS_RTR ? PEER_UNCONNECTED : 0u) |
					 (q->phase == QP_LIVE ? PEER_REPLY : 0u) |
					 (counted ? PEER_COUNTED : 0u) |
					 (changes ? q->change.mtu << PEER_MTU_SHIFT : 0u),
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

	if (type == PEER_RESOLVE || type == PEER_RESOLVED)
		small.p.head.src_vlid = lid_told(q->ctx, q->attr.port_num);
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

static struct parcel *parcel_of(const struct shim_peer *p)
{
	return &parcels[((uintptr_t)p * 0x9e3779b97f4a7c15ull >> 32) % PARCELS];
}

static void flush(struct parcel *b)
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
	for (size_t i = 0; i < PARCELS; i++)
		flush(&parcels[i]);
}

void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration)
{
	struct parcel *b = parcel_of(q->peer);
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

bool peer_is_end(const struct shim_qp *q, const struct peer_head *h, uint32_t src_vqpn)
{
	const struct shim_peer *p = q->peer;

	return p && p->slot == h->src_slot && p->instance == h->src_instance &&
	       q->dvqpn == src_vqpn && !memcmp(p->gid, h->sgid, 16);
}

bool peer_is_connected(const struct shim_qp *q, const struct peer_head *h)
{
	return q->connected && q->resolved && peer_is_end(q, h, h->src_vqpn);
}

struct shim_peer *peer_connected(const struct peer_head *h)
{
	struct shim_peer *p = peer_find(h);
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (p && q->peer == p && q->connected)
			return p;
	return NULL;
}

static void peer_set(struct shim_table *t, uint32_t index, uint64_t entry)
{
	unsigned before = t->chunks, limit = before + ALL_CHUNKS_MAX - shim.peer_chunks;

	table_set(t, index, entry, limit < PEER_CHUNKS_MAX ? limit : PEER_CHUNKS_MAX);
	shim.peer_chunks += t->chunks - before;
}

void peer_set_key(struct shim_peer *p, struct peer_key key)
{
	peer_set(&p->keys, key.vkey >> 8, key_entry(key.vkey, key.key));
}

void peer_set_srqn(struct shim_peer *p, struct peer_key n)
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

void peer_drop_srqn(struct shim_peer *p, uint32_t vkey)
{
	struct shim_table *t = atomic_load(&p->srqns);

	if (t)
		peer_set(t, vkey, 0);
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
	struct parcel *b = parcel_of(p);

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
	free(p->told);
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

struct shim_peer *peer_get(const struct peer_head *h)
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

void peer_send_gone(const struct shim_qp *q, uint64_t migration)
{
	struct packet p = {.head = {.about = PEER_DRAINED,
				    .dst_vqpn = q->v.qp_num,
				    .src_vqpn = q->dvqpn,
				    .migration = migration}};

	peer_send_to(q->sgid, q->dgid, q->peer, &p, PEER_GONE, 0);
}

void peer_resolve_end(struct shim_qp *q, int result)
{
	pthread_mutex_lock(&shim.call);
	if (q->resolve == RESOLVE_WAITS)
		q->resolve = result;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

void peer_forgets(struct shim_peer *peer)
{
	struct shim_table *srqns = atomic_load(&peer->srqns);

	table_clear(&peer->keys);
	if (srqns)
		table_clear(srqns);
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
 * come in between. The peer may be in the middle of one, too; then it says so, and the answer takes
 * longer. */
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
			peer_resolve_end(q, RESOLVE_GONE);
		pthread_setcancelstate(cancel, NULL);
		ctl_enter();
	} while (again);
}

static uint8_t port_of(const struct shim_qp *q)
{
	return q->attr.ah_attr.port_num ? q->attr.ah_attr.port_num : q->attr.port_num;
}

/* The peer was first and asked for us: its numbers are known, and kept up to date. Under ctl. */
static bool is_known(const struct shim_qp *q, const uint8_t dgid[16])
{
	return q->resolved && !q->dqpn_old && q->dvqpn == q->attr.dest_qp_num &&
	       !memcmp(q->dgid, dgid, 16);
}

/* Asks for the other end at that GID. true: q->peer has it. lid: as .asked_lid. */
static bool resolve_at(struct shim_qp *q, const uint8_t sgid[16], const uint8_t dgid[16],
		       uint16_t lid)
{
	bool known;

	pthread_mutex_lock(&shim.ctl);
	known = is_known(q, dgid);
	memcpy(q->sgid, sgid, 16);
	memcpy(q->dgid, dgid, 16);
	q->asked_lid = lid;
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
	return known || q->resolve == RESOLVE_DONE;
}

static void go_without(struct shim_qp *q, const char *why)
{
	pthread_mutex_lock(&shim.ctl);
	q->peer = NULL;
	q->resolved = false;
	q->uncovered = why;
	q->dvqpn = q->dqpn = q->attr.dest_qp_num;
	q->connected = true;
	pthread_mutex_unlock(&shim.ctl);
	shim_log("QP 0x%x goes on without cover: peer QP 0x%x (LID %u): %.80s", q->v.qp_num,
		 q->dvqpn, q->attr.ah_attr.dlid, why);
}

/* The end that has asked for us by itself, or -ENOENT. */
static int asker(const struct shim_qp *q, const struct lid_ends *ends)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);

	for (unsigned i = 0; i < ends->count; i++)
		if (is_known(q, ends->dgid[i]))
			return (int)i;
	return -ENOENT;
}

/* Finds which of the ports that may be meant has the QP. Index, -ENOENT: none of them, or
 * -ENOTUNIQ: several, because after moves their numbers may be the same. */
static int find_end(struct shim_qp *q, const struct lid_ends *ends)
{
	const uint16_t lid = ends->shared ? q->attr.ah_attr.dlid : 0;
	const int known = asker(q, ends), n = (int)ends->count;
	int at = known;

	for (int i = 0; known < 0 && i < n; i++) {
		if (!resolve_at(q, ends->sgid, ends->dgid[i], lid))
			continue;
		if (at >= 0)
			return -ENOTUNIQ;
		at = i;
	}
	/* The one that was asked last is the one that q leads to. */
	if (at >= 0 && (known >= 0 || at != n - 1) &&
	    !resolve_at(q, ends->sgid, ends->dgid[at], lid))
		return -ENOENT;
	return at;
}

static bool same_ends(const struct lid_ends *a, const struct lid_ends *b)
{
	return a->count == b->count && !memcmp(a->dgid, b->dgid, a->count * sizeof(a->dgid[0]));
}

/* The program has named no GID. What the agent knows of a LID may be out of date. */
static void connect_by_lid(struct shim_qp *q)
{
	const struct ibv_ah_attr *ah = &q->attr.ah_attr;
	struct lid_ends ends, before = {.count = 0};
	const char *why = PEER_BY_LID;
	int at = -ENOENT;

	for (int anew = 0; anew < 2 && at == -ENOENT; anew++) {
		if (lid_find_ends(q->ctx, port_of(q), ah->dlid, q->pkey, anew, &ends) ||
		    same_ends(&ends, &before))
			break;
		before = ends;
		why = PEER_SILENT;
		at = find_end(q, &ends);
	}
	if (at == -ENOTUNIQ)
		why = "its peer's LID and QP number are those of two VMs";
	if (at >= 0)
		q->resolved = true;
	else
		go_without(q, why);
}

/* 0 or errno. */
static int find_other_end(struct shim_qp *q, int sgid_index, bool by_cm)
{
	const struct ibv_ah_attr *ah = &q->attr.ah_attr;
	struct shim_route *r;
	union ibv_gid gid, dgid = ah->grh.dgid;

	if (!ah->is_global && !parts_find_gids(q, q->attr.dest_qp_num, gid.raw, dgid.raw)) {
		connect_by_lid(q);
		return 0;
	}
	if (ah->is_global && real_verbs.query_gid(q->ctx->real, port_of(q), sgid_index, &gid))
		return EINVAL;
	if (!resolve_at(q, gid.raw, dgid.raw, 0)) {
		go_without(q, PEER_SILENT);
		return 0;
	}
	q->resolved = true;
	r = route_get(q->sgid, q->dgid, q->pkey);
	if (r && ah->dlid && !by_cm) /* a LID that was told may have changed since */
		route_renew(r);
	else if (r && r->state == ROUTE_NONE)
		route_ask(r, false);
	return 0;
}

/* The helper thread tells the other end our keys. */
static void tell_keys(struct shim_qp *q)
{
	bool tell;

	pthread_mutex_lock(&shim.ctl);
	tell = q->resolved && q->peer;
	if (tell) {
		list_del(&q->untold);
		list_add(&shim.untold, &q->untold);
	}
	pthread_mutex_unlock(&shim.ctl);
	if (tell)
		shim_wake_helper();
}

/* Before the QP goes to RTR: who is at the other end? In the program's thread; 0 or errno. */
int peer_connect(struct shim_qp *q, int sgid_index, bool by_cm)
{
	int rc = find_other_end(q, sgid_index, by_cm);

	if (!rc)
		tell_keys(q);
	return rc;
}
