/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory windows. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_MW_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_MW_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
struct ibv_mw *shim_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int shim_dealloc_mw(struct ibv_mw *mw);
int shim_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw, struct ibv_mw_bind *bind);
/* Under the queue's lock: hands IBV_WR_BIND_MW or IBV_WR_LOCAL_INV, logged as number, to the
 * hardware. 0 or errno. */
int mw_hand_over(struct shim_qp *q, uint64_t number, const struct ibv_send_wr *wr);
/* The peer may have invalidated a key of ours: gives the completion the virtual one. */
void mw_invalidated(struct shim_context *ctx, struct ibv_wc *wc);
/* Requests of q from number on have failed. */
void mw_failed(struct shim_qp *q, uint64_t number);
/* The log of q ends; requests that have not completed have failed. */
void mw_reset_qp(struct shim_qp *q);
void mw_forget_qp(struct shim_qp *q);
void mw_forget_mr(struct shim_mr *m);
void mw_leave(const struct shim_context *c); /* its device is closed, with windows on it */
void mw_forget_all(void);                    /* in a child: they are the parent's */
/* Why the windows of a device could not be bound again, or NULL. */
const char *mw_uncovered(const struct shim_context *ctx);
/* Before the job's QPs go, once it is known what of theirs was executed. device: it goes as well.
 */
void mw_release(bool device);
/* Allocates those that have gone; 0 or -errno. */
int mw_rebuild(void);
/* QPs that are .connecting are in RTS again: binds what belongs to them. Where that is not done,
 * .connect_error says why (-EINPROGRESS: it takes longer), .unbound for which window. */
void mw_bind_again(void);
/* The real QP goes, or has come to its end. */
void mw_stop_binding(struct shim_qp *q);
/* The real QP goes back to RESET: its windows of type 2 are to be bound once more. In any thread.
 */
void mw_start_over(struct shim_qp *q);
/* True if windows of type 2 are bound on q, or requests for windows are under way. */
bool mw_on(const struct shim_qp *q);
/* True if it has bound some since mw_told(). */
bool mw_bound_again(void);
void mw_told(void);
/* Fills in keys of the windows that q's other end may use, from *skip on, which moves on: those
 * that have been bound again, or all. How many. */
unsigned mw_keys(const struct shim_qp *q, bool again, struct peer_key *keys, unsigned room,
		 unsigned *skip);
/* *ret_key is changed where rkey is a window's that q's other end may use. false: it will be, and
 * is told then. */
bool mw_key(const struct shim_qp *q, uint32_t rkey, uint32_t *ret_key);
#pragma GCC visibility pop

#endif
