/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What posts of sends and of receives have in common. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_QUEUE_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_QUEUE_H

#include "guest-agent/shim/core/shim.h"

#pragma GCC visibility push(hidden)
/* Up to which number posts may take the short way: as far as the log has room, if the hardware has
 * got all before it. */
uint64_t queue_direct_until(const struct shim_queue *q, const struct shim_qp *qp);
/* sge, n long, into .translated with the hardware's keys. */
void queue_translate(struct shim_queue *q, const struct ibv_sge *sge, int n);
/* For local_key(): of another key than the last one. */
uint32_t queue_other_key(struct shim_queue *q, uint32_t vkey);
/* An error that comes after the post has been taken can only be told by a completion. */
void queue_fail_later(struct shim_qp *q, struct shim_cq *cq, struct ibv_wc wc, int rc);
#pragma GCC visibility pop

/* A program mostly uses one region at a time: the table's entry of the last key is kept, which is
 * still right when it holds the key that is looked for. */
static inline uint64_t last_key(const struct shim_queue *q)
{
	return atomic_load_explicit(q->lkey, memory_order_acquire);
}

static inline uint32_t local_key(struct shim_queue *q, uint32_t vkey)
{
	uint64_t e = last_key(q);

	return likely((uint32_t)(e >> 32) == vkey) ? (uint32_t)e : queue_other_key(q, vkey);
}

/* Copied as words, so that the compiler does not take them to pieces. */
struct sge_words {
	uint64_t word[2];
};
_Static_assert(sizeof(struct sge_words) == sizeof(struct ibv_sge), "layout");

#endif
