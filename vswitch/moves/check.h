/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Check that a fabric's LFTs bring every packet where it belongs. */
#ifndef IBVMIG_VSWITCH_MOVES_CHECK_H
#define IBVMIG_VSWITCH_MOVES_CHECK_H

#include "vswitch/model/fabric.h"

struct check_result {
	uint64_t pairs;    /* pairs of a switch with CA ports and a LID of a CA port */
	uint64_t broken;   /* of these */
	unsigned max_hops; /* switches passed */
};

/* Every LID of a CA port from every switch that has CA ports; `lid_step` > 1 takes only each
 * lid_step'th LID. 0, -EHOSTUNREACH (*e names the first pair that is broken), -ENOMEM. */
int check_fabric(const struct fabric *f, unsigned lid_step, struct check_result *ret_result,
		 struct fabric_error *e);

/* The same for one LID, which must lead to the place of CA port `end`. */
int check_lid(const struct fabric *f, uint16_t lid, uint32_t end, struct check_result *ret_result,
	      struct fabric_error *e);

#endif
