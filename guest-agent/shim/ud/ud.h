/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Datagrams as a part of a job, and what the processes at both ends tell each other of it. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_UD_UD_H
#define IBVMIG_GUEST_AGENT_SHIM_UD_UD_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/verbs/ud.h"

#pragma GCC visibility push(hidden)
extern const struct shim_part ud_part;

/* ud/peer.c: a packet of another process, and the PEER_GONE about a packet of ours. */
void ud_delivered(const struct peer_head *h, const struct peer_qp *entries);
void ud_gone(const struct peer_head *h);
/* No way leads to the guest with that GID. */
void ud_unreachable(const uint8_t gid[16]);
void ud_answer_deferred(void);
void ud_send_numbers(struct shim_partner *p, uint64_t migration);
/* Questions that are not answered in time end. Milliseconds until then, -1: there are none. */
void ud_step(void);
int ud_timeout(void);
/* In a child. */
void ud_forget_all(void);
#pragma GCC visibility pop

#endif
