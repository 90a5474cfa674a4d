/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Cost of a move in SMPs on a given fabric, against distributing all LFTs anew: the numbers of the
 * vSwitch paper, counted instead of derived. SMPs inside vSwitches are not among them. */
#ifndef IBVMIG_VSWITCH_COST_COST_H
#define IBVMIG_VSWITCH_COST_COST_H

#include "vswitch/moves/moves.h"

struct cost_range {
	unsigned least, most;
	double mean;
};

struct cost {
	unsigned switches, hosts, lids, blocks; /* vSwitches not counted */
	unsigned long full;                     /* SMPs: switches times blocks */
	unsigned bound;                         /* two for each switch */
	unsigned pairs;                         /* tried at random, and all of one leaf */
	struct cost_range all, fewest, copy;    /* SMPs of a move by rule; of a dynamic LID */
	struct cost_range waves;                /* waves of an ordered swap */
	unsigned drained;                       /* VMs with prepopulated LIDs, of an emptied host */
	double one_by_one, coalesced;           /* SMPs for it, mean of some hosts */
	double copy_one_by_one, copy_coalesced; /* as many as were asked for, with dynamic LIDs */
};

/* Measures with `pairs` random pairs of ports that may hold VMs, and with hosts of `drained` VMs.
 * These are at most MOVES_MAX / 2; fewer where VFs are fewer, then .drained says so. The fabric is
 * as before afterwards, but its tables may be a block longer. 0, -ENOMEM, or as moves_plan(). */
int cost_measure(struct fabric *f, unsigned pairs, unsigned drained, uint64_t seed,
		 struct cost *ret_cost, struct fabric_error *e);

#endif
