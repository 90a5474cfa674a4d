/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry as OpenSM's plugin knows it (SM_OP_OWNER of sm-helper/proto/plugin.h): a number for
 * good, and the grant by which it may change the subnet. A copy of the file has the same number and
 * gets another grant, so of two copies that are used only the one that came last goes on. */
#ifndef IBVMIG_SM_HELPER_REGISTRY_OWNER_H
#define IBVMIG_SM_HELPER_REGISTRY_OWNER_H

#include "sm-helper/registry/registry.h"

struct reg_owner {
	uint64_t registry;
	uint64_t epoch;   /* of the last grant */
	uint64_t granted; /* the last grant; 0: none yet */
	uint64_t wanted;  /* the grant of this process, asked for or given */
};

/* As far as is known in memory. */
struct reg_owner registry_owner(struct registry *r);
/* Makes sure that the grant that will be asked for is in the file: whoever is killed before the
 * answer knows it again. 0 or -EIO. */
int registry_want_grant(struct registry *r);
/* Notes that it was given. 0 or -EIO. */
int registry_granted(struct registry *r, uint64_t epoch);

#endif
