/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Completion channels: whose events the program sees, the hardware's or ours. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_CHANNEL_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_CHANNEL_H

#include "guest-agent/shim/verbs/cq.h"

#pragma GCC visibility push(hidden)
int channel_open(struct shim_channel *ch);
void channel_close(struct shim_channel *ch);
/* A job begins: the helper takes the hardware's events from now on, the program sees ours. What it
 * may have seen becomes ours. */
void channel_detach(struct shim_channel *ch);
/* The job ends, for the channel first, then for each of its CQs. The program sees the hardware's
 * events again, where these are what it asked for; else as soon as it asks, channel_arm(). */
void channel_unhelp(struct shim_channel *ch);
void channel_go_on(struct shim_channel *ch, struct shim_cq *cq);
/* An event of ours. */
void channel_push(struct shim_channel *ch, struct shim_cq *cq, enum cq_due due);
/* The program has polled and left completions behind: an event, if it waits for one and nobody has
 * taken them meanwhile. */
void channel_left(struct shim_channel *ch, struct shim_cq *cq);
/* Takes back an event that was only CQ_PERHAPS, since the program has polled all: it waits on. */
void channel_retract(struct shim_channel *ch, struct shim_cq *cq);
void channel_forget(struct shim_channel *ch, struct shim_cq *cq);
/* ibv_req_notify_cq() where events may be on their way that are none for this arming. errno. */
int channel_arm(struct shim_channel *ch, struct shim_cq *cq, int solicited_only);
/* For the helper: what has come of the hardware, to the program as far as it waits for it. */
void channel_take_events(struct shim_channel *ch);
/* The same where no program waits. */
void channel_drop_events(struct ibv_comp_channel *real);
#pragma GCC visibility pop

#endif
