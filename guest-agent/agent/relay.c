/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Routes packets between shims by GID, slot and QPN. What cannot be delivered comes back as
 * PEER_GONE, so that nobody waits for a process that does not exist. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "guest-agent/proto/list.h"
#include "guest-agent/proto/senders.h"

#include <string.h>

/* A relay body in a packet for a shim, big enough for any. */
struct delivery {
	struct shim_relay relay;
	union {
		struct peer_head head;
		char data[PEER_BODY_MAX];
	} body;
};

struct agent_met {
	uint8_t sgid[16], dgid[16];
};

#define MET_MAX        4096 /* for one process; the same as its own limit */
#define LATE_BYTES_MAX (1u << 20)

/* A packet for a process that may be there, but has not found this agent yet. */
struct late {
	struct list link;
	size_t bytes;
	bool from_host;
	_Alignas(struct peer_head) char body[];
};

static struct list late = LIST_INIT(late); /* in the order in which they came */
static size_t late_bytes;

_Static_assert(sizeof(struct delivery) <= SHIM_MSG_MAX, "fits in a packet");

static void to_host(struct agent *a, const struct peer_head *body, size_t bytes)
{
	char from[IB_GID_TEXT], to[IB_GID_TEXT];
	char *text AUTO_FREE = base64_encode(body, bytes);
	struct json_object *msg = json_object_new_object();
	const struct agent_shim *sender = agent_shim_by_slot(a, body->src_slot, 0);
	struct ib_gid gid;

	ib_gid_from_bytes(body->sgid, &gid);
	ib_gid_format(&gid, from);
	ib_gid_from_bytes(body->dgid, &gid);
	ib_gid_format(&gid, to);
	json_set_str(msg, "op", "relay");
	json_set_str(msg, "from", from);
	json_set_str(msg, "to", to);
	json_set_str(msg, "body", text);
	agent_host_send_of(a, sender ? sender->user->uid : 0, msg);
}

static void deliver(struct agent *a, struct agent_shim *s, const struct peer_head *body,
		    size_t bytes)
{
	static struct delivery d;
	const char *wrong = agent_receiver_refused(a, s, body);

	if (wrong) {
		log_warn("%s is dropped: %s", peer_rule_of(body->type)->name, wrong);
		return;
	}
	d.relay.head = (struct shim_head){.bytes = (uint32_t)(sizeof(d.relay) + bytes),
					  .type = SHIM_DELIVER};
	memcpy(d.relay.sgid, body->sgid, 16);
	memcpy(d.relay.dgid, body->dgid, 16);
	memcpy(&d.body, body, bytes);
	agent_shim_send(s, &d);
}

static void unreachable(struct agent *a, const uint8_t dgid[16])
{
	struct shim_relay r = {.head = {.bytes = sizeof(r), .type = SHIM_UNREACHABLE}};
	struct agent_shim *s;

	memcpy(r.dgid, dgid, 16);
	agent_for_each_shim(a, s) agent_shim_send(s, &r);
}

/* Above the bound it is lost: whoever waits for an answer says it again. */
static void hold(const struct peer_head *body, size_t bytes, bool from_host)
{
	struct late *l = late_bytes + bytes <= LATE_BYTES_MAX ? malloc(sizeof(*l) + bytes) : NULL;

	if (!l)
		return;
	l->bytes = bytes;
	l->from_host = from_host;
	memcpy(l->body, body, bytes);
	late_bytes += bytes;
	list_add(&late, &l->link);
}

static void route(struct agent *a, const struct peer_head *body, size_t bytes, bool from_host)
{
	struct agent_shim *s;

	if (!from_host && !agent_device_is_ours(a, body->dgid)) {
		if (agent_host_connected(a))
			to_host(a, body, bytes);
		else
			unreachable(a, body->dgid);
		return;
	}
	if (agent_for_all(body)) {
		agent_for_each_shim(a, s) deliver(a, s, body, bytes);
		return;
	}
	s = body->dst_slot ? agent_shim_by_slot(a, body->dst_slot, body->dst_instance)
			   : agent_shim_by_qpn(a, body->dst_vqpn);
	if (s) {
		deliver(a, s, body, bytes);
		return;
	}
	if (body->type == PEER_GONE)
		return;
	if (agent_unsettled(a)) { /* else its peer would take it for dead */
		hold(body, bytes, from_host);
		return;
	}
	struct peer_head gone = {.version = PEER_PROTO_VERSION,
				 .type = PEER_GONE,
				 .about = body->type,
				 .dst_slot = body->src_slot,
				 .src_slot = body->dst_slot,
				 .dst_vqpn = body->dst_vqpn,
				 .src_vqpn = body->src_vqpn,
				 .dst_instance = body->src_instance,
				 .src_instance = body->dst_instance,
				 .migration = body->migration};
	memcpy(gone.sgid, body->dgid, 16);
	memcpy(gone.dgid, body->sgid, 16);
	route(a, &gone, sizeof(gone), false);
}

void agent_relay_again(struct agent *a, uint32_t vqpn)
{
	size_t left = late_bytes; /* later packets that must be held come behind it */

	while (left) {
		struct late *l = list_entry(late.next, struct late, link);
		const struct peer_head *body = (const void *)l->body;

		list_del(&l->link);
		left -= l->bytes;
		if (vqpn && (body->dst_slot || body->dst_vqpn != vqpn)) {
			list_add(&late, &l->link);
			continue;
		}
		late_bytes -= l->bytes;
		route(a, body, l->bytes, l->from_host);
		free(l);
	}
}

/* Nobody comes any more: then they are answered. */
static void look_at_late(struct agent *a)
{
	if (late_bytes && !agent_unsettled(a))
		agent_relay_again(a, 0);
}

/* The packet has been checked, since the end of the process is told in the same names. */
static void note_met(struct agent_shim *s, const struct peer_head *h)
{
	struct agent_met *grown;

	if (h->type != PEER_UD_RESOLVE && h->type != PEER_UD_RESOLVED)
		return;
	for (unsigned i = 0; i < s->met_count; i++)
		if (!memcmp(s->met[i].sgid, h->sgid, 16) && !memcmp(s->met[i].dgid, h->dgid, 16))
			return;
	grown = s->met_count < MET_MAX
			? realloc(s->met, (s->met_count + 1) * sizeof(struct agent_met))
			: NULL;
	if (!grown)
		return;
	s->met = grown;
	memcpy(s->met[s->met_count].sgid, h->sgid, 16);
	memcpy(s->met[s->met_count++].dgid, h->dgid, 16);
}

void agent_relay_from_shim(struct agent *a, struct agent_shim *s, const struct shim_relay *r)
{
	static struct delivery d;
	size_t bytes = r->head.bytes - sizeof(*r);
	const char *wrong;

	if (bytes > sizeof(d.body))
		return;
	memcpy(&d.body, r->body, bytes);
	wrong = agent_packet_valid(&d.body.head, bytes) ? agent_sender_refused(a, s, &d.body.head)
							: "that is none of this build";
	if (wrong) {
		log_warn("process %d (%s) sent a packet of type %u %s: it is dropped", s->pid,
			 s->comm, d.body.head.type, wrong);
	} else {
		note_met(s, &d.body.head);
		route(a, &d.body.head, bytes, false);
	}
	look_at_late(a);
}

/* Hosts know who may speak for a GID, the body's writer need not be honest. */
static bool gid_is(struct json_object *msg, const char *key, const uint8_t gid[16])
{
	const char *text = json_opt_str(msg, key, "");
	struct ib_gid said;
	uint8_t bytes[16];

	if (ib_gid_parse(text, &said))
		return false;
	ib_gid_to_bytes(&said, bytes);
	return !memcmp(bytes, gid, 16);
}

void agent_relay_ended(struct agent_shim *s)
{
	for (unsigned i = 0; i < s->met_count; i++) {
		struct peer_head gone = {.version = PEER_PROTO_VERSION,
					 .type = PEER_GONE,
					 .about = PEER_UD_ENDED,
					 .src_slot = s->slot,
					 .src_instance = s->instance};

		memcpy(gone.sgid, s->met[i].sgid, 16);
		memcpy(gone.dgid, s->met[i].dgid, 16);
		route(s->agent, &gone, sizeof(gone), false);
	}
	free(TAKE(s->met));
	s->met_count = 0;
}

void agent_relay_from_host(struct agent *a, struct json_object *msg)
{
	static struct delivery d;
	const char *text = json_opt_str(msg, "body", "");
	const char *wrong;
	size_t bytes = 0;

	if (base64_decode(text, &d.body, sizeof(d.body), &bytes) ||
	    !agent_packet_valid(&d.body.head, bytes)) {
		log_warn("the host relayed a packet of %zu characters that is not one of version "
			 "%u",
			 strlen(text), PEER_PROTO_VERSION);
		return;
	}
	if (!gid_is(msg, "from", d.body.head.sgid) || !gid_is(msg, "to", d.body.head.dgid)) {
		log_warn("a relayed packet from %s to %s bears other GIDs",
			 json_opt_str(msg, "from", "?"), json_opt_str(msg, "to", "?"));
		return;
	}
	wrong = agent_stranger_refused(a, &d.body.head);
	if (wrong) {
		log_warn("a relayed packet from %s, type %u, is dropped: %s",
			 json_opt_str(msg, "from", "?"), d.body.head.type, wrong);
		return;
	}
	route(a, &d.body.head, bytes, true);
	look_at_late(a);
}

void agent_relay_failed(struct agent *a, struct json_object *msg)
{
	const char *to = json_opt_str(msg, "to", "");
	struct ib_gid gid;
	uint8_t bytes[16];

	if (ib_gid_parse(to, &gid)) {
		log_warn("relay-failed names \"%.40s\", which is no GID", to);
		return;
	}
	log_info("no way to %s: %s", to, json_opt_str(msg, "error", "no reason given"));
	ib_gid_to_bytes(&gid, bytes);
	unreachable(a, bytes);
}
