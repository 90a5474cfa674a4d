/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared receive queues, and XRC, whose queues have numbers. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_SRQ_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_SRQ_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Under the lock of the CQ: the receive in that slot has completed on q, which counts it. false:
 * there is none. */
bool srq_take(struct shim_srq *s, uint32_t slot, struct shim_qp *q, uint64_t *ret_wr_id);
/* Posts to s, which q takes from, go to the log only until each QP that holds it has let go. A QP
 * holds one at a time. */
void srq_hold(struct shim_qp *q, struct shim_srq *s);
void srq_unhold(struct shim_qp *q);
/* True if every receive that the hardware was given has completed. */
bool srq_is_empty(struct shim_srq *s);
/* The sender of a datagram into that slot, in wc, as programs know it; before srq_take(). */
void srq_source(struct shim_srq *s, uint32_t slot, struct ibv_wc *wc);
void srq_release(struct shim_srq *s);
/* The real queue with all that was not consumed, oldest first, and its limit. 0 or -errno. */
int srq_rebuild(struct shim_srq *s);

struct ibv_srq *shim_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init);

/* verbs/xrc.c: XRC domains, numbers of shared receive queues, and what a target has received.
 */
struct ibv_xrcd *shim_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *init);
int shim_close_xrcd(struct ibv_xrcd *xrcd);
int shim_get_srq_num(struct ibv_srq *srq, uint32_t *number);
/* Gives a queue that has its .real and .real_srqn its virtual number. 0 or -errno. */
int xrc_number_srq(struct shim_srq *s);
/* The queue has been destroyed. */
void xrc_forget_srq(struct shim_srq *s);
/* Takes the completions of receives that q has taken from shared queues into software queues. */
void xrc_harvest(const struct shim_qp *q);
/* The real QP of q goes: no CQ remembers it. */
void xrc_forget_qp(const struct shim_qp *q);
void xrc_forget_all(void); /* in a child */
/* The device goes, has come: domains. 0 or -errno. */
void xrc_release(const struct shim_context *c);
int xrc_rebuild(void);
#pragma GCC visibility pop

#endif
