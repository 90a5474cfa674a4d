/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Datagrams: the numbers of other ends, by GID, and what a send and a receive do with them. */
#include "guest-agent/shim/verbs/ud.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/qp.h"

#include <errno.h>
#include <string.h>

#define HASH_SLOTS      (UD_NODES_MAX * 2) /* a power of two */
#define NODE_CHUNKS_MAX 64                 /* 256 Ki numbers of one GID */
#define TOLD_ROOM_MIN   64
#define TOLD_ROOM_MAX   (1u << 20)
#define ASK_AGAIN_US    1000000
#define PROBE_AGAIN_US  10000000
#define MULTICAST_QPN   0xffffffu
#define GRH_BYTES       40
#define WELL_KNOWN_QPNS 2                  /* QP0 and QP1 are the same everywhere */
#define LID_SLOTS       (UD_NODES_MAX * 4) /* a power of two */

struct shim_node *_Atomic shim_nodes[UD_NODES_MAX];
static struct shim_node *_Atomic hash[HASH_SLOTS];
static unsigned node_count;

/* The nodes that have had a LID, since the data path looks a sender up by it: LID << 16 | index, 0:
 * free. Nothing is taken out, so readers need no lock; they ask the node for its present LID. */
static _Atomic(uint32_t) at_lid[LID_SLOTS];
static _Atomic(unsigned) at_lid_count;

void nodes_reset(void)
{
	if (!node_count)
		return;
	memset(at_lid, 0, sizeof(at_lid));
	at_lid_count = 0;
	memset(shim_nodes, 0, sizeof(shim_nodes));
	memset(hash, 0, sizeof(hash));
	node_count = 0;
}

static uint32_t hash_of(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ull; /* 2^64 over the golden ratio */
	return (uint32_t)(x >> 40);
}

static uint32_t hash_gid(const uint8_t gid[16])
{
	uint64_t a, b;

	memcpy(&a, gid, 8);
	memcpy(&b, gid + 8, 8);
	return hash_of(a ^ b);
}

struct shim_node *node_find(const uint8_t gid[16])
{
	struct shim_node *n;

	for (uint32_t i = hash_gid(gid);; i++) {
		n = atomic_load_explicit(&hash[i % HASH_SLOTS], memory_order_acquire);
		if (!n || !memcmp(n->gid, gid, 16))
			return n;
	}
}

struct shim_node *node_get(const uint8_t gid[16])
{
	struct shim_node *n = node_find(gid);
	uint32_t i = hash_gid(gid);

	if (n || node_count == UD_NODES_MAX || !(n = calloc(1, sizeof(*n))))
		return n;
	memcpy(n->gid, gid, 16);
	n->index = node_count++;
	atomic_store(&shim_nodes[n->index], n);
	while (atomic_load(&hash[i % HASH_SLOTS]))
		i++;
	atomic_store_explicit(&hash[i % HASH_SLOTS], n, memory_order_release);
	return n;
}

/* Counts the numbers of the process in that slot, by whichever of our GIDs it knows us. */
static void count_numbers(const struct shim_node *n, uint64_t slot, int more)
{
	struct shim_partner *p;

	list_for_each (p, &shim.partners, link)
		if (p->node == n && p->slot == slot && !p->gone)
			p->numbers += (unsigned)more;
}

/* Takes the number out of both tables. */
static void unlearn(struct shim_node *n, uint32_t vqpn)
{
	uint64_t old = table_get(&n->real, vqpn);
	uint32_t qpn = (uint32_t)old & SHIM_QPN_MAX;

	if (!(old & NODE_KNOWN))
		return;
	if (table_get(&n->virtual, qpn) == (NODE_KNOWN | vqpn))
		table_set(&n->virtual, qpn, 0, NODE_CHUNKS_MAX);
	count_numbers(n, old >> NODE_SLOT_SHIFT, -1);
}

struct shim_partner *node_holder(struct shim_node *n, uint32_t vqpn)
{
	uint64_t entry = table_get(&n->real, vqpn);
	struct shim_partner *p;

	if (entry & NODE_KNOWN)
		list_for_each (p, &shim.partners, link)
			if (p->node == n && p->slot == entry >> NODE_SLOT_SHIFT && !p->gone)
				return p;
	return NULL;
}

int node_learn(struct shim_node *n, struct shim_partner *p, uint32_t vqpn, uint32_t qpn)
{
	const struct shim_partner *holder = node_holder(n, vqpn);
	int rc;

	if (vqpn > SHIM_QPN_MAX || qpn > SHIM_QPN_MAX || !qpn)
		return -EINVAL;
	if (holder && holder->slot != p->slot)
		return -EADDRINUSE;
	unlearn(n, vqpn);
	rc = table_set(&n->virtual, qpn, NODE_KNOWN | vqpn, NODE_CHUNKS_MAX);
	if (!rc)
		rc = table_set(&n->real, vqpn,
			       (uint64_t)p->slot << NODE_SLOT_SHIFT | NODE_KNOWN | qpn,
			       NODE_CHUNKS_MAX);
	if (rc)
		return rc;
	count_numbers(n, p->slot, 1);
	if (vqpn != qpn)
		atomic_store_explicit(&shim.ud_moved, true, memory_order_release);
	return 0;
}

void node_forget(struct shim_node *n, uint32_t vqpn, uint64_t why)
{
	unlearn(n, vqpn);
	table_set(&n->real, vqpn, why | vqpn, NODE_CHUNKS_MAX);
}

static bool lids_are_crowded(void)
{
	return atomic_load(&at_lid_count) > LID_SLOTS / 2;
}

/* Once there is no room, all nodes are looked at. */
static void note_lid(const struct shim_node *n, uint16_t lid)
{
	const uint32_t entry = (uint32_t)lid << 16 | n->index;

	for (uint32_t i = hash_of(lid); !lids_are_crowded(); i++) {
		uint32_t there = 0;

		if (atomic_compare_exchange_strong(&at_lid[i % LID_SLOTS], &there, entry))
			atomic_fetch_add(&at_lid_count, 1);
		if (!there || there == entry)
			return;
	}
}

void node_at_lid(struct shim_node *n, uint16_t lid, uint16_t shown, bool told)
{
	if (!lid || (n->lid_told && !told))
		return;
	n->lid_told |= told;
	if (!atomic_load(&n->vlid))
		atomic_store(&n->vlid, shown);
	note_lid(n, lid);
	atomic_store(&n->lid, lid);
	if (lid != atomic_load(&n->vlid))
		atomic_store_explicit(&shim.ud_moved, true, memory_order_release);
}

struct shim_partner *partner_find(const struct peer_head *h)
{
	struct shim_partner *p;

	list_for_each (p, &shim.partners, link)
		if (p->slot == h->src_slot && p->instance == h->src_instance && !p->gone &&
		    !memcmp(p->node->gid, h->sgid, 16) && !memcmp(p->sgid, h->dgid, 16)) {
			p->silent = false;
			return p;
		}
	return NULL;
}

struct shim_partner *partner_get(const struct peer_head *h)
{
	struct shim_partner *p = partner_find(h), *each;
	struct shim_node *n = p ? p->node : node_get(h->sgid);
	unsigned count = 0, numbers = 0;

	if (p || !n || !h->src_slot || h->src_slot > SHIM_SLOT_MAX)
		return p;
	list_for_each (each, &shim.partners, link) {
		count++;
		if (each->node == n && each->slot == h->src_slot && !each->gone)
			numbers = each->numbers;
	}
	p = count < UD_PARTNERS_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	p->node = n;
	p->slot = h->src_slot;
	p->numbers = numbers;
	p->instance = h->src_instance;
	memcpy(p->sgid, h->dgid, 16);
	list_add(&shim.partners, &p->link);
	return p;
}

void partner_end(struct shim_partner *p)
{
	for (uint32_t chunk = 0; chunk < TABLE_MAX / TABLE_CHUNK; chunk++) {
		if (!atomic_load(&p->node->real.chunk[chunk]))
			continue;
		for (uint32_t i = chunk * TABLE_CHUNK; i < (chunk + 1) * TABLE_CHUNK; i++) {
			uint64_t e = table_get(&p->node->real, i);

			if (e & NODE_KNOWN && e >> NODE_SLOT_SHIFT == p->slot)
				node_forget(p->node, i, NODE_ENDED);
		}
	}
	p->gone = true;
}

void partners_reap(void)
{
	struct list *at = shim.partners.next;

	while (at != &shim.partners) {
		struct shim_partner *p = list_entry(at, struct shim_partner, link);

		at = at->next;
		if (!p->gone)
			continue;
		list_del(&p->link);
		free(p);
	}
}

bool ud_told(const struct shim_ud *u, uint64_t key)
{
	for (uint32_t i = hash_of(key); u->told_room; i++) {
		uint64_t found = u->told[i & (u->told_room - 1)];

		if (found == key || !found)
			return found;
	}
	return false;
}

static void told_insert(uint64_t *told, uint32_t room, uint64_t key)
{
	uint32_t i = hash_of(key);

	while (told[i & (room - 1)])
		i++;
	told[i & (room - 1)] = key;
}

int ud_tell(struct shim_ud *u, uint64_t key)
{
	uint32_t room = u->told_room ? u->told_room * 2 : TOLD_ROOM_MIN;
	uint64_t *grown;

	if (ud_told(u, key))
		return 0;
	if (2 * (u->told_count + 1) > u->told_room) {
		grown = room > TOLD_ROOM_MAX ? NULL : calloc(room, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		for (uint32_t i = 0; i < u->told_room; i++)
			if (u->told[i])
				told_insert(grown, room, u->told[i]);
		free(u->told);
		u->told = grown;
		u->told_room = room;
	}
	told_insert(u->told, u->told_room, key);
	u->told_count++;
	return 0;
}

int ud_init(struct shim_qp *q)
{
	if (q->init.qp_type != IBV_QPT_UD)
		return 0;
	q->ud = calloc(1, sizeof(*q->ud));
	return q->ud ? 0 : -ENOMEM;
}

void ud_free(struct shim_qp *q)
{
	if (!q->ud)
		return;
	q->marker = false;
	ud_drop_marker(q);
	free(q->ud->told);
	free(q->ud->groups);
	free(TAKE(q->ud));
}

void ud_reset(struct shim_qp *q)
{
	struct shim_ud *u = q->ud;

	if (!u)
		return;
	lock_take(&q->send.lock);
	free(TAKE(u->told));
	u->told_room = u->told_count = 0;
	u->last = 0;
	if (u->asks)
		atomic_fetch_sub(&shim.ud_asks, 1);
	u->ask_node = NULL;
	u->asks = u->by_lid = u->unclear = false;
	lock_give(&q->send.lock);
}

/* A number that is not in the tables yet, or that nobody has. false: the post waits. */
static bool miss(struct shim_qp *q, const struct shim_ah *ah, uint32_t vqpn, uint64_t entry)
{
	struct shim_node *n = ah->node;
	uint64_t now;

	if (!ud_told(q->ud, ud_key(n, vqpn)) || !entry) {
		if (!q->ud->asks || q->ud->ask_node != n || q->ud->ask_vqpn != vqpn) {
			q->ud->asks = true;
			ud_ask(q, n, ah->sgid, vqpn);
			shim_wake_helper(); /* the answer has a deadline */
		}
		return false;
	}
	if (entry & NODE_KNOWN)
		return true;
	now = now_us();
	if (now - atomic_load(&n->asked_us) > ASK_AGAIN_US)
		ud_ask(q, n, ah->sgid, vqpn);
	return true;
}

/* Chooses, of the ports that a LID may stand for, the one that has the number, or had it. All are
 * asked before that; where none has it, the one that was asked the longest ago is asked again. */
static const struct shim_ah *choose(struct shim_ud *u, const struct shim_ah *first, uint32_t vqpn)
{
	const struct shim_ah *has = NULL, *had = NULL, *oldest = first;

	for (const struct shim_ah *ah = first; ah; ah = ah->alt) {
		uint64_t entry = ah->node ? table_get(&ah->node->real, vqpn) : NODE_NOBODY;

		if (!entry)
			return ah;
		u->unclear |= entry & NODE_KNOWN && has;
		if (entry & NODE_KNOWN && !has)
			has = ah;
		if (entry & NODE_ENDED && !had)
			had = ah;
		if (ah->node && oldest->node &&
		    atomic_load(&ah->node->asked_us) < atomic_load(&oldest->node->asked_us))
			oldest = ah;
	}
	if (!has)
		has = had;
	u->by_lid |= !has && !ah_sole_node(first);
	return has ? has : oldest;
}

/* The handle to the LID as the program gave it, behind those to ports; NULL: there is none. */
static const struct shim_ah *plain_of(const struct shim_ah *ah)
{
	while (ah && ah->node)
		ah = ah->alt;
	return ah;
}

bool ud_translate(struct shim_qp *q, struct ibv_send_wr *wr)
{
	const struct shim_ah *first = to_ah(wr->wr.ud.ah), *ah = first;
	uint32_t vqpn = wr->wr.ud.remote_qpn;
	uint64_t entry, key;

	if (ah->alt && vqpn >= WELL_KNOWN_QPNS)
		ah = choose(q->ud, ah, vqpn);
	wr->wr.ud.ah = ah->real;
	if (!ah->node) {
		q->ud->by_lid |= !ah->multicast;
		return true;
	}
	if (vqpn < WELL_KNOWN_QPNS || vqpn >= MULTICAST_QPN)
		return true;
	entry = table_get(&ah->node->real, vqpn);
	key = ud_key(ah->node, vqpn);
	if (!(entry & NODE_KNOWN) || q->ud->last != key) {
		if (!miss(q, ah, vqpn, entry))
			return false;
		q->ud->last = key;
	}
	wr->wr.ud.remote_qpn = (uint32_t)entry & SHIM_QPN_MAX;
	if (!(entry & (NODE_KNOWN | NODE_ENDED)) && (ah = plain_of(first)))
		wr->wr.ud.ah = ah->real; /* not to where a port is now that once had the LID */
	return true;
}

/* The sender's GID: from the GRH in front of the data (IBA 1.4, 11.4.2.1), which a RoCE device
 * makes of an IP header: of version 4, its last 20 bytes. */
static struct shim_node *node_of_grh(const struct ibv_sge *sge, int num_sge)
{
	static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
	uint8_t grh[GRH_BYTES], gid[16];
	size_t have = 0;

	for (int i = 0; i < num_sge && have < sizeof(grh); i++) {
		size_t n = sge[i].length < sizeof(grh) - have ? sge[i].length : sizeof(grh) - have;

		memcpy(grh + have, (const void *)(uintptr_t)sge[i].addr, n);
		have += n;
	}
	if (have < sizeof(grh))
		return NULL;
	if (grh[0] >> 4 == 6)
		return node_find(grh + 8);
	if (grh[20] >> 4 != 4)
		return NULL;
	memcpy(gid, mapped, sizeof(gid));
	memcpy(gid + 12, grh + 32, 4);
	return node_find(gid);
}

/* Ports that share a LID have no number twice at the hardware. */
static bool has_at_lid(struct shim_node *n, uint16_t lid, uint32_t qpn)
{
	return atomic_load(&n->lid) == lid && table_get(&n->virtual, qpn);
}

static struct shim_node *node_of_lid(uint16_t lid, uint32_t qpn)
{
	struct shim_node *n;
	uint32_t e;

	for (uint32_t i = hash_of(lid); (e = atomic_load(&at_lid[i % LID_SLOTS])); i++)
		if (e >> 16 == lid && has_at_lid(n = shim_nodes[e & 0xffff], lid, qpn))
			return n;
	for (unsigned i = 0; lids_are_crowded() && i < UD_NODES_MAX && (n = shim_nodes[i]); i++)
		if (lid && has_at_lid(n, lid, qpn))
			return n;
	return NULL;
}

void ud_source(struct ibv_wc *wc, const struct ibv_sge *sge, int num_sge)
{
	struct shim_node *n = NULL;
	uint64_t entry;

	if (!(wc->wc_flags & IBV_WC_GRH))
		n = node_of_lid(wc->slid, wc->src_qp);
	else if (!shim.odd_iova)
		n = node_of_grh(sge, num_sge);
	entry = n ? table_get(&n->virtual, wc->src_qp) : 0;
	if (entry)
		wc->src_qp = (uint32_t)entry & SHIM_QPN_MAX;
	if (n && wc->slid && wc->slid == atomic_load(&n->lid))
		wc->slid = atomic_load(&n->vlid);
}

bool ud_sends_to(struct shim_qp *q, const struct shim_order *o)
{
	bool any = false;

	lock_take(&q->send.lock);
	for (uint32_t i = 0; q->ud && i < q->ud->told_room && !any; i++) {
		uint64_t key = q->ud->told[i];

		any = key &&
		      gid_in_order(atomic_load(&shim_nodes[key >> 24 & (UD_NODES_MAX - 1)])->gid,
				   o);
	}
	lock_give(&q->send.lock);
	return any;
}

void ud_check_covered(struct shim_qp *q)
{
	const char *why = NULL;

	if (!q->ud)
		return;
	lock_take(&q->send.lock);
	if (q->ud->by_lid)
		why = "it sends datagrams by LID alone, without a GID (GRH), and none is known "
		      "for it: use a GID index, or ibvmig-agent --grh-required";
	else if (q->ud->unclear)
		why = "it sends datagrams to a LID and QP number that two VMs have";
	for (uint32_t i = 0; i < q->ud->told_room && !why; i++) {
		uint64_t key = q->ud->told[i];
		struct shim_node *n = key ? atomic_load(&shim_nodes[key >> 24 & (UD_NODES_MAX - 1)])
					  : NULL;

		if (!n || !n->ahs)
			continue;
		if (n->alone)
			why = "it sends datagrams to a GID where no agent answers";
		else if (table_get(&n->real, key & SHIM_QPN_MAX) & NODE_NOBODY)
			why = "it sends datagrams to a QP that is not under a shim";
	}
	lock_give(&q->send.lock);
	q->uncovered = why ? why : qp_type_uncovered(&q->init);
}

void ud_check_all_covered(void)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		ud_check_covered(q);
}

bool ud_shows(const struct shim_context *c, const uint8_t sgid[16])
{
	uint64_t guid = 0;

	for (int i = 8; i < 16; i++)
		guid = guid << 8 | sgid[i];
	for (unsigned i = 0; i < c->guid_count; i++)
		if (c->guid[i] == guid)
			return true;
	return false;
}

struct shim_context *ud_context(const uint8_t sgid[16])
{
	struct shim_context *c;

	list_for_each (c, &shim.contexts, link)
		if (ud_shows(c, sgid))
			return c;
	return NULL;
}

static bool sends_from(const uint8_t sgid[16])
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->ud && ud_shows(q->ctx, sgid))
			return true;
	return false;
}

void partner_probe(struct shim_partner *p)
{
	uint64_t now = now_us();

	if (p->probed_us && now - p->probed_us < PROBE_AGAIN_US)
		return;
	p->probed_us = now;
	ud_send_head(p, PEER_UD_ASK, 0);
}

void ud_describe(uint32_t cookie)
{
	struct shim_peer_info i = {.head = {sizeof(i), SHIM_PEER_INFO, 0, cookie, 0}};
	struct shim_partner *p;

	list_for_each (p, &shim.partners, link) {
		if (p->gone || !p->numbers || !sends_from(p->sgid))
			continue;
		partner_probe(p);
		if (p->silent)
			continue;
		memcpy(i.sgid, p->sgid, 16);
		memcpy(i.dgid, p->node->gid, 16);
		shim_send(&i);
	}
}
