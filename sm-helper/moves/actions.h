/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bind, unbind and move as the configured backend does them: by itself, or through ops. What each
 * does stands in the movers (moves/mover.h). */
#ifndef IBVMIG_SM_HELPER_MOVES_ACTIONS_H
#define IBVMIG_SM_HELPER_MOVES_ACTIONS_H

#include "sm-helper/moves/mover.h"

/* deadline_us, of all three: as in ops.h, also with a backend that does not go through ops. */
int action_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		uint16_t *ret_lid, struct op_error *e);
/* from: as in ops_unbind(). */
int action_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		  uint64_t deadline_us, struct op_error *e);
/* Moves all or nothing; ret_result NULL: only tells if they may begin. */
int action_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
		struct move_result *ret_result, struct op_error *e);

/* True if a bind and the check of a move see to the partition of the VM's own P_Key. */
bool action_joins(const struct ops *o);
/* True if the subnet manager moves by itself, and shows neither switches nor LFTs. */
bool action_sm_moves(const struct ops *o);
/* Asks that subnet manager where it lists vGUIDs; *ret_list is owned by the caller.
 * action_sm_moves() only.
 */
int action_places(struct ops *o, struct sm_place **ret_list, size_t *ret_n, struct op_error *e);

#endif
