/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets that datagram QPs send without their program: questions and words to other shims, and the
 * marker that shows when all datagrams have been sent. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/port/lid.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

#define MARKER_QKEY 0x1b7a6d61

void ud_tell_lids(struct peer_head *h, const struct shim_context *c, uint8_t port)
{
	h->src_lid = c ? lid_now(c, port) : 0;
	h->src_vlid = h->src_lid ? lid_shown(c, port, h->src_lid) : 0;
}

void ud_send_packet(const uint8_t sgid[16], const uint8_t dgid[16], struct ud_packet *p,
		    uint16_t type)
{
	size_t body = sizeof(p->head) + p->head.count * sizeof(struct peer_qp);

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
	shim_send(p);
}

void ud_ask(struct shim_qp *q, struct shim_node *n, const uint8_t sgid[16], uint32_t vqpn)
{
	struct one_qp ask = {
		.p.head = {.count = 1, .dst_vqpn = vqpn, .src_vqpn = q->v.qp_num},
		.qp = {.dst_vqpn = vqpn, .src_vqpn = q->v.qp_num, .qpn = q->real->qp_num}};
	struct shim_ud *u = q->ud;

	ud_tell_lids(&ask.p.head, q->ctx, q->attr.port_num);
	u->ask_node = n;
	u->ask_vqpn = vqpn;
	u->ask_qpn = q->real->qp_num;
	u->ask_until_us = now_us() + RESOLVE_MS * 1000ull;
	memcpy(u->ask_sgid, sgid, 16);
	atomic_store(&n->asked_us, now_us());
	if (u->asks)
		atomic_fetch_add(&shim.ud_asks, 1);
	ud_send_packet(sgid, n->gid, &ask.p, PEER_UD_RESOLVE);
}

void ud_send_head(struct shim_partner *p, uint16_t type, uint64_t migration)
{
	struct ud_packet packet = {
		.head = {.dst_slot = p->slot, .dst_instance = p->instance, .migration = migration}};

	ud_send_packet(p->sgid, p->node->gid, &packet, type);
}

void ud_bye(struct shim_qp *q)
{
	struct shim_partner *p;

	list_for_each (p, &shim.partners, link) {
		struct one_qp bye = {
			.p.head = {.count = 1, .dst_slot = p->slot, .dst_instance = p->instance},
			.qp = {.src_vqpn = q->v.qp_num}};

		if (!p->gone && ud_shows(q->ctx, p->sgid))
			ud_send_packet(p->sgid, p->node->gid, &bye.p, PEER_UD_BYE);
	}
	lock_take(&q->send.lock);
	if (q->ud->asks)
		atomic_fetch_sub(&shim.ud_asks, 1);
	q->ud->asks = false;
	lock_give(&q->send.lock);
}

/* Drops what is sent to it: a QP in INIT discards all packets (IBA 1.4, 10.3.1), without the trap
 * that a wrong Q_Key would raise at the subnet manager. */
static struct ibv_qp *make_sink(struct shim_qp *q)
{
	struct ibv_qp_init_attr init = {.send_cq = q->send_cq->real,
					.recv_cq = q->send_cq->real,
					.cap = {1, 1, 1, 1, 0},
					.qp_type = IBV_QPT_UD};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.pkey_index = q->pkey_at,
				.port_num = q->attr.port_num,
				.qkey = MARKER_QKEY};
	struct ibv_qp *sink = real_verbs.create_qp(to_pd(q->v.pd)->real, &init);

	if (sink &&
	    real_verbs.modify_qp(sink, &a,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) {
		real_verbs.destroy_qp(sink);
		sink = NULL;
	}
	return sink;
}

/* To our own port. */
static struct ibv_ah *make_way_home(struct shim_qp *q)
{
	struct verbs_context *v = verbs_get_ctx_op(q->ctx->real, query_port);
	struct ibv_ah_attr a = {.is_global = 1, .port_num = q->attr.port_num};
	struct ibv_port_attr port;

	memset(&port, 0, sizeof(port));
	if (!v || v->query_port(q->ctx->real, a.port_num, &port, sizeof(port)) ||
	    real_verbs.query_gid(q->ctx->real, a.port_num, 0, &a.grh.dgid))
		return NULL;
	a.dlid = port.lid;
	a.grh.hop_limit = 1;
	return real_verbs.create_ah(to_pd(q->v.pd)->real, &a);
}

/* A datagram without data whose completion ends all before it. There is no RDMA WRITE on UD, and
 * no receiver may see it. 0, or errno. */
int ud_marker(struct shim_qp *q, struct ibv_send_wr *wr)
{
	struct shim_ud *u = q->ud;

	if (!u->sink)
		u->sink = make_sink(q);
	if (u->sink && !u->home)
		u->home = make_way_home(q);
	if (!u->sink || !u->home)
		return ENOMEM;
	wr->opcode = IBV_WR_SEND;
	wr->wr.ud.ah = u->home;
	wr->wr.ud.remote_qpn = u->sink->qp_num;
	wr->wr.ud.remote_qkey = MARKER_QKEY;
	return 0;
}

void ud_drop_marker(struct shim_qp *q)
{
	if (!q->ud || q->marker) /* under way: they are still needed */
		return;
	if (q->ud->home)
		real_verbs.destroy_ah(TAKE(q->ud->home));
	if (q->ud->sink)
		real_verbs.destroy_qp(TAKE(q->ud->sink));
}
