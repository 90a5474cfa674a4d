/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Destinations for a VM: hosts with a free VF, by what the move costs. */
#ifndef IBVMIG_VSWITCH_COST_RANK_H
#define IBVMIG_VSWITCH_COST_RANK_H

#include "vswitch/moves/moves.h"

struct rank {
	uint32_t end;            /* the best free VF of its host */
	unsigned switches, smps; /* counted in the fabric, vSwitches left out */
	unsigned smps_inside;    /* counted in the two vSwitches */
	unsigned
		load; /* routes to VMs, this one's included, on the fullest link that leads there */
	bool same_leaf;
};

/* Marks the CA ports that a VM could take: not busy, and no PF where the host has VFs. */
void rank_free(const struct fabric *f, const bool *busy, bool *ret_free);

/* Gives one entry for each host but the VM's own that has a port marked in free_vf[]; cheapest
 * first: switches, SMPs, load, then the port's number. `busy` marks the ports with VMs. `copy`: the
 * VM takes its LID along instead of exchanging it. 0, -ENOMEM, or as moves_plan(); *ret_rank is
 * owned by the caller. */
int rank_hosts(const struct fabric *f, uint32_t vm, const bool *busy, const bool *free_vf,
	       bool copy, enum moves_rule rule, struct rank **ret_rank, unsigned *ret_count,
	       struct fabric_error *e);

#endif
