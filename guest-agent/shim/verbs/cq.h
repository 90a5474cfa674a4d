/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Completion queues: their software queues, and which events the program gets. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_CQ_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_CQ_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The claim of the program to an event. PERHAPS: the event may have been given before the arming
 * that it is for. EXTRA: the second event for an arming, which the program may have seen in its
 * descriptor. The program has that event, unless it arms anew before. perftest takes an event
 * without a completion for an error. */
enum cq_due { CQ_NO, CQ_PERHAPS, CQ_EXTRA, CQ_YES };

/* On a shadow. NULL and errno. */
struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int vector);
int cq_create_real(struct shim_cq *cq);
/* Under the CQ's lock: the real CQ, which the caller destroys, or NULL. */
struct ibv_cq *cq_take_real(struct shim_cq *cq);
/* Completions of q's real QP that are still there belong to nobody any more. cq may be NULL. */
void cq_forget_qp(struct shim_cq *cq, const struct shim_qp *q);
/* Takes the completions of the hardware into the software queue. */
void cq_harvest(struct shim_cq *cq);
void cq_harvest_locked(struct shim_cq *cq); /* under its lock */
/* Under its lock: wc at the end of the software queue. false: no memory. */
bool cq_add(struct shim_cq *cq, const struct ibv_wc *wc);
int shim_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc);

/* verbs/arm.c: which events the program gets. */
/* Takes the completions of the hardware into the software queue, and makes an event of ours if the
 * program waits for one: the real CQ is gone. */
void cq_announce(struct shim_cq *cq);
/* A job begins: as cq_harvest(), of what may be older than the program's arming. */
void cq_harvest_old(struct shim_cq *cq);
/* Under channel.lock: an event of the hardware has come. seen: the program may have seen it. */
enum cq_due cq_event(struct shim_cq *cq, bool seen);
/* A completion that the hardware will not make. */
void cq_push(struct shim_cq *cq, const struct ibv_wc *wc);
/* The helper wants the next event. */
void cq_watch(struct shim_cq *cq);
/* Under channel.lock, after a job: the program's arming, on the CQ that there is now.
 * ret_clean: whether the hardware makes events for the program only. */
enum cq_due cq_go_on(struct shim_cq *cq, bool *ret_clean);
/* Under channel.lock: the program has polled all before it took its event, and waits on (CQ_NO), if
 * there is nothing else by now. */
enum cq_due cq_wait_on(struct shim_cq *cq);
/* Under channel.lock: what channel_left() asks. */
enum cq_due cq_left(struct shim_cq *cq);
/* For channel_arm(): errno. */
int cq_arm_anew(struct shim_cq *cq, int solicited_only);
int shim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);

/* verbs/ex_cq.c: ibv_create_cq_ex, ibv_start_poll, ibv_wc_read_* */
struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init);
#pragma GCC visibility pop

#endif
