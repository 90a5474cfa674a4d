/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The channel dependency graph: which link a packet may hold while it waits for which other. A
 * cycle in it, on one virtual lane, can be a deadlock (Dally and Seitz). SLs and lanes are not
 * looked at: what is reported for an engine that separates by lanes is an upper bound. */
#ifndef IBVMIG_VSWITCH_MOVES_DEPS_H
#define IBVMIG_VSWITCH_MOVES_DEPS_H

#include "vswitch/moves/moves.h"

struct deps {
	uint32_t *first; /* owned; per switch the number of its channel 0 */
	uint32_t channels;
	uint64_t (*next)[4]; /* owned; per channel the ports of the switch at its other end */
	uint32_t *stamp;     /* owned; per switch */
	uint32_t now;
};

/* Empty, for this fabric's links. 0, -ENOMEM. */
int deps_init(struct deps *d, const struct fabric *f);
void deps_free(struct deps *d);

/* Adds what packets to all LIDs of CA ports depend on, from all switches that have CA ports. */
void deps_add_fabric(struct deps *d, const struct fabric *f);

/* Looks for a cycle: 0 no, 1 yes (ret_text then names its switches and ports, as far as there is
 * room), -ENOMEM. */
int deps_find_cycle(const struct deps *d, const struct fabric *f, char *ret_text, size_t room);

/* Tells if the plan's new routes close a cycle together with all that is in d: as above. d is kept
 * as it is, and so is f. */
int deps_plan_cycle(const struct deps *d, struct fabric *f, struct moves_plan *plan, char *ret_text,
		    size_t room);

#endif
