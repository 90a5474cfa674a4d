/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between shim/peer/peer.c, which knows the processes at the other end, and shim/verbs/keys.c,
 * which tells them our keys. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PEER_PEER_H
#define IBVMIG_GUEST_AGENT_SHIM_PEER_PEER_H

#include "guest-agent/shim/core/shim.h"

/* How every packet begins. */
struct packet {
	struct shim_relay relay;
	struct peer_head head;
	char entries[];
};

#pragma GCC visibility push(hidden)
/* p: head.count entries of each bytes. peer NULL: to the process that has head.dst_vqpn. */
void peer_send_to(const uint8_t sgid[16], const uint8_t dgid[16], const struct shim_peer *peer,
		  struct packet *p, uint16_t type, size_t each);
/* The sender, if it is known. */
struct shim_peer *peer_find(const struct peer_head *h);

/* shim/verbs/keys.c */
/* The keys on q's device that its peer does not know yet. */
void peer_send_new_keys(struct shim_qp *q);
/* It asks for one; or for the number of a shared receive queue. */
void peer_key_get(const struct peer_head *h, const struct peer_key *key);
void peer_srq_get(const struct peer_head *h, const struct peer_key *srqn);
#pragma GCC visibility pop

#endif
