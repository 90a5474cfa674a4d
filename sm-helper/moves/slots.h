/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entries of ports' GUID tables, where VFs share the LID of their port: what they show, what OpenSM
 * is told of them. All with the ops lock held. */
#ifndef IBVMIG_SM_HELPER_MOVES_SLOTS_H
#define IBVMIG_SM_HELPER_MOVES_SLOTS_H

#include "sm-helper/moves/ops.h"

/* The LID of a port; 0: no such port, or it has none. */
uint16_t slot_lid(const struct ops *o, uint64_t port_guid);
/* The VM at this place, or nothing: a VF without a VM needs no GUID here. The one of its own may be
 * there all the same, from its host. */
struct sm_slot slot_show(const struct reg_vf *at, const struct reg_entry *x);
struct sm_slot slot_park(const struct reg_vf *at, uint64_t vguid);
/* Assigns a batch; *ret_unknown: its outcome is not known. LIDs and links are as they were. */
int slot_assign(struct ops *o, const struct sm_slot *slots, unsigned count,
		struct sm_guids_reply *r, bool *ret_unknown, struct op_error *e);
/* Asks the port itself which GUID the entry shows. */
int slot_look(struct ops *o, const struct sm_slot *s, uint64_t *ret_guid, struct op_error *e);

/* Settles what was begun with an entry of this mode and not finished: the ports say how it ended.
 * 0 or -EIO. */
int slots_settle(struct ops *o, struct reg_entry *x);
/* Tells OpenSM, in few batches, which ports show which vGUIDs: it forgets that at a restart and
 * when a port was away. What it knows already costs nothing; what it refuses is logged. o->fabric
 * must be fresh. False: not all has been told. */
bool slots_restate(struct ops *o);

#endif
