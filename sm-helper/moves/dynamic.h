/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs of VMs that come from a range of their own (addresses = dynamic). With the ops lock held. */
#ifndef IBVMIG_SM_HELPER_MOVES_DYNAMIC_H
#define IBVMIG_SM_HELPER_MOVES_DYNAMIC_H

#include "sm-helper/moves/ops.h"
#include "vswitch/model/lids.h"

/* "FIRST - LAST", as lid-range in the configuration. 0, or -EINVAL and *ret_why (static) says what
 * is wrong. */
int dynamic_range_parse(const char *text, struct lid_range *ret_range, const char **ret_why);

/* The LIDs of the range, with those held that a port or a bound vGUID has. Without a range it
 * begins above the highest LID of all that is no VM's. 0, or -errno with *e. */
int dynamic_lids(struct ops *o, struct lids *ret_lids, struct op_error *e);
/* The LMC of the subnet's CA ports: VFs have it too. */
unsigned dynamic_lmc(const struct ops *o);
/* The next free one, the first of 2^lmc, held from now on. -ENOSPC with *e: how many there are. */
int dynamic_take(struct lids *lids, unsigned lmc, uint16_t *ret_lid, struct op_error *e);

/* The port whose routes a VM's LID takes at this place: the PF's of its HCA. Where there is none,
 * the VF's own, which it has when no VM does: parked_guid. */
uint64_t dynamic_like(const struct ops *o, const struct reg_vf *at);

/* Tells OpenSM again which LIDs are copies of which, and which wait at their VFs, in few batches:
 * what it knows already costs nothing. o->fabric is stale afterwards. 0; -EHOSTDOWN with *e:
 * nothing may be changed now, to be called again. What is refused otherwise is logged. */
int dynamic_restate(struct ops *o, struct op_error *e);

#endif
