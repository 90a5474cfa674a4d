/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The keys of ours that peers know. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_KEYS_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_KEYS_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/objects.h"

/* True if the other end of q may use keys of that PD. The target of an XRC connection has none: the
 * shared receive queues of its domain have (IBA 1.4, A14.3). */
static inline bool qp_shows(const struct shim_qp *q, const struct shim_pd *pd)
{
	struct shim_srq *s;

	if (q->v.pd)
		return to_pd(q->v.pd) == pd;
	list_for_each (s, &shim.srqs, link)
		if (s->xrcd && s->xrcd == q->xrcd && s->pd == pd)
			return true;
	return false;
}

#pragma GCC visibility push(hidden)
/* A resume begins: all keys may be new. */
void peer_begin_keys(void);
/* q's peer forgets what it knows of that GID of ours, and is told all of q's PD; once. */
void peer_tell_keys(struct shim_qp *q);
/* Windows that are bound again, to all who may use them. */
void peer_tell_windows(void);
/* Asks q's peer for q->wanted, under its send.lock. */
void peer_want(struct shim_qp *q);
/* Helper thread: asks again who has not answered, also where the agent or the peer's has gone with
 * the question. Milliseconds until then, -1: nobody waits. */
void peer_want_again(void);
int peer_want_timeout(void);

/* The keys of q's PD that its peer does not know yet. */
void peer_send_new_keys(struct shim_qp *q);
/* The peer asks for a key; or for the number of a shared receive queue. */
void peer_key_get(const struct peer_head *h, const struct peer_key *key);
void peer_srq_get(const struct peer_head *h, const struct peer_key *srqn);
#pragma GCC visibility pop

#endif
