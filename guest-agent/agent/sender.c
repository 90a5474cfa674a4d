/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process may say and be told what proto/senders.h allows: this agent knows which process
 * has which QP. */
#include "guest-agent/agent/main.h"
#include "guest-agent/proto/senders.h"

bool agent_packet_valid(const struct peer_head *h, size_t bytes)
{
	const struct peer_rule *r;

	if (bytes < sizeof(*h) || bytes > PEER_BODY_MAX || h->version != PEER_PROTO_VERSION)
		return false;
	r = peer_rule_of(h->type);
	return r && peer_fits(r, h, bytes);
}

bool agent_for_all(const struct peer_head *h)
{
	return h->type == PEER_GONE && h->about == PEER_UD_ENDED && !h->dst_slot;
}

/* True if the process is named, or whoever has the QP is meant, and that is enough. */
static bool names_a_receiver(const struct peer_rule *r, const struct peer_head *h)
{
	return h->dst_slot ? h->dst_instance != 0 : r->to == PEER_TO_HOLDER || agent_for_all(h);
}

/* True if the QP is that process's, or, where that is enough, nobody's. */
static bool is_of(struct agent *a, const struct agent_shim *s, uint32_t vqpn, bool or_nobody)
{
	const struct agent_shim *holder = agent_shim_by_qpn(a, vqpn);

	return holder == s || (!holder && or_nobody);
}

static bool has_qps(const struct peer_head *h)
{
	return peer_entry_bytes(h->type) == sizeof(struct peer_qp);
}

static const struct peer_qp *qps_of(const struct peer_head *h)
{
	return (const void *)(h + 1);
}

/* A PEER_GONE has the numbers as they were in the packet that it answers. */
static uint32_t senders_qpn(const struct peer_head *h)
{
	return h->type == PEER_GONE ? h->dst_vqpn : h->src_vqpn;
}

static uint32_t receivers_qpn(const struct peer_head *h)
{
	return h->type == PEER_GONE ? h->src_vqpn : h->dst_vqpn;
}

/* 0 in a head is no QP; each entry names one. */
static bool speaks_for_its_own(struct agent *a, const struct agent_shim *s,
			       const struct peer_rule *r, const struct peer_head *h)
{
	const bool ended = r->from == PEER_FROM_LAST;

	if (senders_qpn(h) && !is_of(a, s, senders_qpn(h), ended))
		return false;
	for (unsigned i = 0; has_qps(h) && i < h->count; i++)
		if (!is_of(a, s, qps_of(h)[i].src_vqpn, ended))
			return false;
	return true;
}

/* The kernel says which process a message comes from: the other end of the socket. */
const char *agent_sender_refused(struct agent *a, const struct agent_shim *s,
				 const struct peer_head *h)
{
	const struct peer_rule *r = peer_rule_of(h->type);

	if (r->from == PEER_FROM_AGENT || (r->type == PEER_GONE && h->about == PEER_UD_ENDED))
		return "that no process sends";
	if (h->src_slot != s->slot || h->src_instance != s->instance)
		return "in the name of another process";
	/* The host looks at what leaves this VM. */
	if (agent_device_is_ours(a, h->dgid) && !agent_device_is_ours(a, h->sgid))
		return "from a GID of another VM";
	if (!names_a_receiver(r, h))
		return "to no process";
	if (!speaks_for_its_own(a, s, r, h))
		return "in the name of a QP that is another process's";
	return NULL;
}

const char *agent_will_refused(struct agent *a, const struct agent_shim *s,
			       const struct peer_head *h)
{
	const struct peer_rule *r = peer_rule_of(h->type);

	return r->will ? agent_sender_refused(a, s, h) : "that no process leaves for its end";
}

const char *agent_stranger_refused(struct agent *a, const struct peer_head *h)
{
	const struct peer_rule *r = peer_rule_of(h->type);

	if (r->from == PEER_FROM_AGENT)
		return "of a type that no other VM sends";
	if (agent_device_is_ours(a, h->sgid))
		return "in the name of this VM";
	if (r->type != PEER_GONE && !(h->src_slot && h->src_instance)) /* which agents send, too */
		return "from no process";
	if (!names_a_receiver(r, h))
		return "to no process";
	return NULL;
}

const char *agent_receiver_refused(struct agent *a, const struct agent_shim *s,
				   const struct peer_head *h)
{
	if (receivers_qpn(h) && !is_of(a, s, receivers_qpn(h), true))
		return "to a process about a QP that is another one's";
	for (unsigned i = 0; has_qps(h) && i < h->count; i++)
		if (qps_of(h)[i].dst_vqpn && !is_of(a, s, qps_of(h)[i].dst_vqpn, true))
			return "to a process about a QP that is another one's";
	return NULL;
}
