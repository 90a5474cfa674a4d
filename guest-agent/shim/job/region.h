/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The regions of a job. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_JOB_REGION_H
#define IBVMIG_GUEST_AGENT_SHIM_JOB_REGION_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The job's regions. Suspend of the mover, nothing is held yet: 0; -EAGAIN, look
 * again soon, where one could not be registered again; that is an error, and has failed the job,
 * from job.lost_until_us on. */
int regions_check(void);
/* Resume: PDs are there. 0 or -errno. */
int regions_rebuild(void);
#pragma GCC visibility pop

#endif
