/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The processes at the other end. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PEER_PEER_H
#define IBVMIG_GUEST_AGENT_SHIM_PEER_PEER_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/objects.h"

/* How every packet begins. */
struct packet {
	struct shim_relay relay;
	struct peer_head head;
	char entries[];
};

/* Both ends of a connection that the kernel does not manage any more. */
struct cm_ends {
	bool known;
	uint8_t sgid[16], dgid[16];
	uint32_t vqpn, dvqpn;
	uint16_t slot; /* the other process */
	uint64_t instance;
};

#pragma GCC visibility push(hidden)
#define RESOLVE_MS      2000
#define RESOLVE_BUSY_MS 120000
/* by_cm: the kernel has looked the path up just now, so nobody waits for it. */
int peer_connect(struct shim_qp *q, int sgid_index, bool by_cm);
/* In a child: nobody has said anything. */
void peer_reset(void);
/* Sends a packet for one QP: at once; or, in the helper thread, together with others like it until
 * peer_flush(). */
void peer_send_qp(struct shim_qp *q, uint16_t type, uint64_t migration);
void peer_queue_qp(struct shim_qp *q, uint16_t type, uint64_t migration);
void peer_flush(void);
/* At once, to the other end of q: q has no part in the migration, and is not to be waited for. */
void peer_send_gone(const struct shim_qp *q, uint64_t migration);

/* p: head.count entries of each bytes. peer NULL: to the process that has head.dst_vqpn. */
void peer_send_to(const uint8_t sgid[16], const uint8_t dgid[16], const struct shim_peer *peer,
		  struct packet *p, uint16_t type, size_t each);
/* The sender, if it is known. */
struct shim_peer *peer_find(const struct peer_head *h);
/* The same, made if it is not there yet. NULL: too many, or no memory. */
struct shim_peer *peer_get(const struct peer_head *h);
/* True if the sender's process is q's other end; .src_vqpn: its QP. */
bool peer_is_end(const struct shim_qp *q, const struct peer_head *h, uint32_t src_vqpn);
/* The same of the QP in the head, and q's program has connected it. */
bool peer_is_connected(const struct shim_qp *q, const struct peer_head *h);
/* The sender, if a QP that our program has connected leads to it. */
struct shim_peer *peer_connected(const struct peer_head *h);
/* The answer to the question of q, which waits: RESOLVE_DONE, RESOLVE_GONE. */
void peer_resolve_end(struct shim_qp *q, int result);
/* A number that the peer has told. A key of 0, or an SRQN_NONE, is known to be nobody's. */
void peer_set_key(struct shim_peer *p, struct peer_key key);
void peer_set_srqn(struct shim_peer *p, struct peer_key n);
void peer_drop_srqn(struct shim_peer *p, uint32_t vkey);
/* Forgets every number that the peer has told. */
void peer_forgets(struct shim_peer *p);
/* Tells the other end of a connection that the kernel does not know any more that it is over.
 * SHIM_SEND: at once; SHIM_WILL: when the process has ended; SHIM_WILL_DROP: not any more. */
void peer_send_disconnect(const struct cm_ends *ends, uint16_t how);
#pragma GCC visibility pop

#endif
