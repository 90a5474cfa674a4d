/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The talk between the processes at both ends of datagrams (proto/peer.h, PEER_UD_*). No packet has
 * to come in the order of any other, and every packet may come twice. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/ud/ud.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

#define QPS_PER_PACKET ((PEER_BODY_MAX - sizeof(struct peer_head)) / sizeof(struct peer_qp))
#define DEFERRED_MAX   1024
#define PORT           1 /* of a VF: the one that has its vGUID */

/* Questions that came while our device was away. */
static struct {
	struct peer_head head;
	struct peer_qp qp;
} deferred[DEFERRED_MAX];
static unsigned deferred_count;

void ud_forget_all(void)
{
	deferred_count = 0;
	nodes_reset();
}

/* The question is over, and q knows the number: known, or known not to be. Posts go on. */
static void ask_end(struct shim_qp *q, bool tell)
{
	struct shim_ud *u = q->ud;

	if (tell && ud_tell(u, ud_key(u->ask_node, u->ask_vqpn)))
		tell = false;
	if (u->asks)
		atomic_fetch_sub(&shim.ud_asks, 1);
	u->asks = false;
	u->ask_node = NULL;
	send_flush(q);
}

/* Tells the partner about all UD QPs on the device that it knows us by, in whatever context. */
void ud_send_numbers(struct shim_partner *p, uint64_t migration)
{
	static struct {
		struct ud_packet p;
		struct peer_qp qps[QPS_PER_PACKET];
	} out;
	struct shim_qp *q;
	unsigned n = 0;

	out.p.head = (struct peer_head){
		.dst_slot = p->slot, .dst_instance = p->instance, .migration = migration};
	ud_tell_lids(&out.p.head, ud_context(p->sgid), PORT);
	list_for_each (q, &shim.qps, link) {
		if (!q->ud || !q->real || !ud_shows(q->ctx, p->sgid))
			continue;
		out.qps[n++] = (struct peer_qp){.src_vqpn = q->v.qp_num, .qpn = q->real->qp_num};
		if (n < QPS_PER_PACKET)
			continue;
		/* More of them follow: a migration that is named ends the list. */
		out.p.head.count = (uint16_t)n;
		out.p.head.migration = 0;
		ud_send_packet(p->sgid, p->node->gid, &out.p, PEER_UD_NUMBERS);
		out.p.head.migration = migration;
		n = 0;
	}
	out.p.head.count = (uint16_t)n;
	ud_send_packet(p->sgid, p->node->gid, &out.p, PEER_UD_NUMBERS);
	p->told_us = now_us();
}

static void reply_gone(const struct peer_head *h, const struct peer_qp *e)
{
	struct ud_packet p = {.head = {.about = h->type,
				       .dst_slot = h->src_slot,
				       .dst_instance = h->src_instance,
				       .dst_vqpn = e ? e->dst_vqpn : 0,
				       .src_vqpn = e ? e->src_vqpn : 0,
				       .migration = h->migration}};

	ud_send_packet(h->dgid, h->sgid, &p, PEER_GONE);
}

static void answer(const struct peer_head *h, const struct peer_qp *e, const struct shim_qp *q,
		   uint16_t type)
{
	struct one_qp a = {.p.head = {.count = 1,
				      .dst_slot = h->src_slot,
				      .dst_instance = h->src_instance,
				      .dst_vqpn = e->src_vqpn,
				      .src_vqpn = e->dst_vqpn},
			   .qp = {.dst_vqpn = e->src_vqpn,
				  .src_vqpn = e->dst_vqpn,
				  .qpn = q->real ? q->real->qp_num : 0}};

	if (type == PEER_UD_RESOLVED)
		ud_tell_lids(&a.p.head, q->ctx, q->attr.port_num);
	ud_send_packet(h->dgid, h->sgid, &a.p, type);
}

/* An answer given now would not hold: the device is about to be given back, or is. */
static bool must_wait(const struct shim_qp *q)
{
	return !q->real || (job_holds() && job.role == SHIM_ROLE_MOVER &&
			    context_has_guid(q->ctx, &job.order, NULL));
}

/* True if another process there has the number. Should it have ended without a word, that shows,
 * and the next question finds the number free. */
static bool is_taken(const struct shim_partner *p, uint32_t vqpn)
{
	struct shim_partner *holder = node_holder(p->node, vqpn);

	if (!holder || holder->slot == p->slot)
		return false;
	partner_probe(holder);
	return true;
}

static void resolve(const struct peer_head *h, const struct peer_qp *e, bool late)
{
	struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);
	struct shim_partner *p = q && q->ud ? partner_get(h) : NULL;

	if (!p || is_taken(p, e->src_vqpn)) {
		reply_gone(h, e);
		return;
	}
	/* A question that was put off may hold a number that has changed since; then it has been
	 * told already. */
	if (!late || !(table_get(&p->node->real, e->src_vqpn) & NODE_KNOWN)) {
		node_learn(p->node, p, e->src_vqpn, e->qpn);
		node_at_lid(p->node, h->src_lid, h->src_vlid, true);
	}
	if (p->node->alone) {
		p->node->alone = false;
		ud_check_all_covered();
	}
	if (!must_wait(q)) {
		answer(h, e, q, PEER_UD_RESOLVED);
		return;
	}
	if (deferred_count < DEFERRED_MAX) {
		deferred[deferred_count].head = *h;
		deferred[deferred_count++].qp = *e;
	}
	answer(h, e, q, PEER_UD_BUSY);
}

void ud_answer_deferred(void)
{
	unsigned n = deferred_count;

	deferred_count = 0;
	for (unsigned i = 0; i < n; i++)
		resolve(&deferred[i].head, &deferred[i].qp, true);
}

/* True if this is about what q asks just now. Under its send.lock. */
static bool asked(const struct shim_qp *q, const uint8_t gid[16], uint32_t vqpn)
{
	return q->ud->ask_node && q->ud->ask_vqpn == vqpn && !memcmp(q->ud->ask_node->gid, gid, 16);
}

static void resolved(const struct peer_head *h, const struct peer_qp *e)
{
	struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);
	struct shim_partner *p;

	if (!q || !q->ud)
		return;
	lock_take(&q->send.lock);
	if (asked(q, h->sgid, e->src_vqpn) && h->type == PEER_UD_BUSY) {
		q->ud->ask_until_us = now_us() + RESOLVE_BUSY_MS * 1000ull;
	} else if (asked(q, h->sgid, e->src_vqpn) && (p = partner_get(h)) &&
		   !is_taken(p, e->src_vqpn) && !node_learn(p->node, p, e->src_vqpn, e->qpn)) {
		p->node->alone = false;
		node_at_lid(p->node, h->src_lid, h->src_vlid, true);
		/* A holder that was told a number that we do not have any more is told again. */
		ask_end(q, q->real && q->real->qp_num == q->ud->ask_qpn);
	}
	lock_give(&q->send.lock);
	ud_check_all_covered();
}

/* Sends go by the number that the program knows; the QP refuses migrations if why is a reason. */
static void goes_without(struct shim_qp *q, uint64_t why)
{
	struct shim_ud *u = q->ud;
	uint64_t entry = table_get(&u->ask_node->real, u->ask_vqpn);

	if (why == NODE_NOBODY && entry & (NODE_KNOWN | NODE_ENDED))
		why = NODE_ENDED;
	if (why == NODE_ALONE)
		u->ask_node->alone = true;
	if (why != NODE_ALONE || !(entry & NODE_KNOWN))
		node_forget(u->ask_node, u->ask_vqpn, why);
	/* Another port may have the QP where a LID stands for several. */
	if (why != NODE_ENDED && why != entry >> 32 << 32 && u->ask_node->ahs)
		shim_log("QP 0x%x: datagrams to QP 0x%x go without cover: %s", q->v.qp_num,
			 u->ask_vqpn,
			 why == NODE_ALONE ? "no agent answers there"
					   : "that QP is not under a shim");
	ask_end(q, true);
}

static void nobody(const struct peer_head *h)
{
	struct shim_qp *q = qp_by_vqpn(h->src_vqpn);

	if (!q || !q->ud)
		return;
	lock_take(&q->send.lock);
	if (asked(q, h->sgid, h->dst_vqpn)) {
		q->ud->ask_node->alone = false;
		goes_without(q, NODE_NOBODY);
	}
	lock_give(&q->send.lock);
	ud_check_all_covered();
}

static void end_asks(const uint8_t *gid, uint64_t now)
{
	struct shim_qp *q;
	bool any = false;

	list_for_each (q, &shim.qps, link) {
		if (!q->ud)
			continue;
		lock_take(&q->send.lock);
		if (q->ud->ask_node &&
		    (gid ? !memcmp(q->ud->ask_node->gid, gid, 16) : now > q->ud->ask_until_us)) {
			goes_without(q, NODE_ALONE);
			any = true;
		}
		lock_give(&q->send.lock);
	}
	if (any)
		ud_check_all_covered();
}

void ud_unreachable(const uint8_t gid[16])
{
	struct shim_partner *p;

	end_asks(gid, 0);
	list_for_each (p, &shim.partners, link) {
		if (memcmp(p->node->gid, gid, 16))
			continue;
		p->silent = true;
		if (p->in_job)
			p->said.drained_by = p->said.numbers_by = p->said.have_by = job.migration;
	}
}

int ud_timeout(void)
{
	return atomic_load(&shim.ud_asks) ? RESOLVE_MS / 4 : -1;
}

void ud_step(void)
{
	if (!atomic_load(&shim.ud_asks))
		return;
	pthread_mutex_lock(&shim.ctl);
	end_asks(NULL, now_us());
	pthread_mutex_unlock(&shim.ctl);
}

void ud_gone(const struct peer_head *h)
{
	struct shim_partner *p, *found = NULL;

	if (h->about == PEER_UD_RESOLVE) {
		nobody(h);
		return;
	}
	list_for_each (p, &shim.partners, link)
		if (p->slot == h->src_slot && p->instance == h->src_instance && !p->gone &&
		    !memcmp(p->node->gid, h->sgid, 16))
			found = p;
	if (!found)
		return;
	partner_end(found);
	ud_check_all_covered();
}

/* Datagrams that have been received so far came from the old numbers. */
static void take_received(const uint8_t sgid[16])
{
	struct shim_cq *cq;

	list_for_each (cq, &shim.cqs, link)
		if (cq->real && ud_shows(cq->ctx, sgid))
			cq_harvest(cq);
}

static void numbers(const struct peer_head *h, const struct peer_qp *e, struct shim_partner *p)
{
	bool change = h->src_lid && h->src_lid != atomic_load(&p->node->lid);

	for (unsigned i = 0; i < h->count; i++) {
		uint64_t entry = table_get(&p->node->real, e[i].src_vqpn);

		change |= !(entry & NODE_KNOWN) || ((uint32_t)entry & SHIM_QPN_MAX) != e[i].qpn;
	}
	if (change)
		take_received(p->sgid);
	for (unsigned i = 0; i < h->count; i++)
		node_learn(p->node, p, e[i].src_vqpn, e[i].qpn);
	node_at_lid(p->node, h->src_lid, h->src_vlid, true);
	if (!h->migration)
		return;
	p->said.numbers_by = h->migration;
	ud_send_head(p, PEER_UD_HAVE, h->migration);
}

/* Our own numbers are true, and stay so for now. */
static bool settled(const struct shim_partner *p)
{
	return job.state <= JOB_QUIET || job.role != SHIM_ROLE_MOVER ||
	       !gid_in_order(p->sgid, &job.order);
}

static bool holds(const struct shim_partner *p, uint32_t vqpn)
{
	const struct shim_partner *holder = node_holder(p->node, vqpn);

	return holder && holder->slot == p->slot;
}

static void from_partner(const struct peer_head *h, const struct peer_qp *entries,
			 struct shim_partner *p)
{
	switch (h->type) {
	case PEER_UD_DRAINED:
		p->said.drained_by = h->migration;
		break;
	case PEER_UD_ABORT:
		p->said.drained_by = 0;
		break;
	case PEER_UD_NUMBERS:
		numbers(h, entries, p);
		break;
	case PEER_UD_HAVE:
		p->said.have_by = h->migration;
		break;
	case PEER_UD_ASK:
		if (settled(p))
			ud_send_numbers(p, h->migration);
		break;
	case PEER_UD_BYE:
		for (unsigned i = 0; i < h->count; i++)
			if (holds(p, entries[i].src_vqpn))
				node_forget(p->node, entries[i].src_vqpn, NODE_ENDED);
		break;
	default:
		break;
	}
}

void ud_delivered(const struct peer_head *h, const struct peer_qp *entries)
{
	struct shim_partner *p;

	switch (h->type) {
	case PEER_UD_RESOLVE:
		if (h->count == 1)
			resolve(h, entries, false);
		return;
	case PEER_UD_RESOLVED:
	case PEER_UD_BUSY:
		if (h->count == 1)
			resolved(h, entries);
		return;
	default:
		p = partner_find(h);
		if (p)
			from_partner(h, entries, p);
		else if (h->type != PEER_UD_BYE)
			reply_gone(h, NULL);
	}
}
