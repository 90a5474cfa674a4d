/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The regions of a job. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_JOB_REGION_H
#define IBVMIG_GUEST_AGENT_SHIM_JOB_REGION_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* Suspend of the mover, while nothing is held yet: 0, or -EAGAIN where a region could not be
 * registered again: look again soon. From job.lost_until_us on that is an error, which has failed
 * the job. */
int regions_check(void);
/* Resume: PDs are there. 0 or -errno. */
int regions_rebuild(void);
#pragma GCC visibility pop

#endif
