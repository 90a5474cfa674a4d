/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A way to carry changes of addresses out. actions.c lists them and knows which one a vGUID needs.
 */
#ifndef IBVMIG_SM_HELPER_MOVES_MOVER_H
#define IBVMIG_SM_HELPER_MOVES_MOVER_H

#include "sm-helper/moves/ops.h"

/* A virtual port as a subnet manager that moves by itself lists it. lid 0: it is not active. */
struct sm_place {
	uint64_t vguid, port_guid; /* port_guid: of the physical port that it is on */
	uint8_t port;
	uint16_t lid;
};

/* Arguments and errors are those of ops_bind(), ops_unbind() and ops_move(). places: NULL where
 * o->fabric tells them; *ret_list is owned by the caller. */
struct mover {
	int (*bind)(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		    uint16_t *ret_lid, struct op_error *e);
	int (*unbind)(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		      uint64_t deadline_us, struct op_error *e);
	int (*move)(struct ops *o, const struct move_request *m, unsigned count,
		    uint64_t deadline_us, struct move_result *ret_result, struct op_error *e);
	int (*places)(struct ops *o, struct sm_place **ret_list, size_t *ret_n, struct op_error *e);
};

extern const struct mover mover_ufm; /* UFM's SM moves; only what it says is waited for */

#endif
