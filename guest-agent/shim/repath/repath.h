/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Live connections and address handles take a path record that has changed. After a fault in the
 * fabric its SL, MTU or rate is another one (docs/guest.md, "A path that changes"). */
#ifndef IBVMIG_GUEST_AGENT_SHIM_REPATH_REPATH_H
#define IBVMIG_GUEST_AGENT_SHIM_REPATH_REPATH_H

#include "guest-agent/proto/peer.h"
#include "guest-agent/shim/core/part.h"

#pragma GCC visibility push(hidden)
extern const struct shim_part repath_part;

/* The agent's word that a record is another one now, or not known any more; its answer to a
 * question for one. In the helper thread. */
void repath_told(const struct shim_path *p);
void repath_answered(const struct shim_path *p);

/* repath/change.c: one connection. All under ctl, in the helper thread. */

/* A PEER_PATH_* of the other end of q. */
void change_heard(struct shim_qp *q, unsigned type, uint64_t round, const struct peer_qp *e);
/* The record of q's path may be another one than q was built with. */
void change_want(struct shim_qp *q);
/* Goes on with all connections that take another path. */
void change_step(void);
/* Milliseconds until change_step() has something to do, -1: nothing. */
int change_timeout(void);
/* A job concerns connections that cannot stop now: the other end may have begun anew. */
bool change_must_end(void);
/* A job holds the QPs that are .in_job: their changes are given up. The resume takes the path. */
void change_give_way(void);
/* The program destroys q; in its thread. */
void change_end(struct shim_qp *q);
/* In a child. */
void change_forget_all(void);
#pragma GCC visibility pop

#endif
