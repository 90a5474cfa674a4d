/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bind, unbind and move where VFs share the LID of their port (ADDRESS_SHARED_PORT): a vGUID is an
 * entry of a port's GUID table, and its LID is the port's. As ops_* of the same name, and with the
 * same errors; of reg_vf, switch_guid and switch_port are the port and the entry. */
#ifndef IBVMIG_SM_HELPER_MOVES_SHARED_H
#define IBVMIG_SM_HELPER_MOVES_SHARED_H

#include "sm-helper/moves/ops.h"

int shared_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		uint16_t *ret_lid, struct op_error *e);
int shared_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		  uint64_t deadline_us, struct op_error *e);
int shared_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
		struct move_result *ret_result, struct op_error *e);

#endif
