/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Posts: the log of a queue, and what is handed to the hardware of it. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_POST_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_POST_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int queue_init(struct shim_queue *q, uint32_t cap, uint32_t max_sge, uint32_t max_inline,
	       bool send);
void queue_free(struct shim_queue *q);
void queue_reset(struct shim_queue *q);
/* Under the queue's lock: whether posts go to the log only. */
void queue_hold(struct shim_queue *q, bool on);
/* Under the queue's lock: posts take the long way, and .posted is right. */
void queue_leave_direct(struct shim_queue *q);
/* Under the queue's lock: hands the log's rest to the hardware. */
void send_flush(struct shim_qp *q);
void recv_flush(struct shim_qp *q);
/* True if a send in the log consumes a receive of the peer. */
bool send_takes_receive(const struct shim_qp *q, uint64_t number);
bool send_signalled(const struct shim_qp *q, uint64_t number);
/* Posts the whole list (n long) or nothing: 0 or errno. */
int send_post_all(struct shim_qp *q, struct ibv_send_wr *wr, uint32_t n);
int send_post_marker(struct shim_qp *q);
/* Posts go to the log only; .sent_all is what the hardware was given for receives of the peer. */
void send_hold(struct shim_qp *q);
/* Under a hold: the hardware's last send is not signalled, so no completion tells of its end. */
bool send_ends_silent(struct shim_qp *q);

/* Posts of sends and of receives have the following in common. */
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

/* A program mostly uses one region at a time, so the table's entry of the last key is kept. The
 * entry is still right when it holds the key that is looked for. */
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
