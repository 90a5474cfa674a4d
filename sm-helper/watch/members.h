/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members of partitions that were added through us, at a standby. The ibvmig-sm that leads passes
 * each change on, but the standby may be away then. So it asks for all of them when it comes, and
 * from time to time, and has its OpenSM keep what differs. */
#ifndef IBVMIG_SM_HELPER_WATCH_MEMBERS_H
#define IBVMIG_SM_HELPER_WATCH_MEMBERS_H

#include "sm-helper/moves/ops.h"

#define MEMBERS_FOLLOW_MS 30000
#define MEMBERS_AGAIN_MS  2000 /* after a failure */

struct members {
	uint64_t instance; /* process of our OpenSM that was brought up to date */
	uint64_t due_ms;   /* now_ms(); 0: at once */
	bool told;         /* the last failure has been logged */
};

/* For a timer, in a worker. Does nothing where our OpenSM is no standby, or it is not time. */
void members_follow(struct members *m, struct ops *o);

#endif
