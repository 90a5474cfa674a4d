/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs that are taken. Ports with an LMC take 2^LMC LIDs that begin at a multiple of it. */
#ifndef IBVMIG_VSWITCH_MODEL_LIDS_H
#define IBVMIG_VSWITCH_MODEL_LIDS_H

#include "vswitch/model/fabric.h"

struct lids {
	uint16_t first, last; /* range to hand out; others can be held too */
	uint64_t used[768];   /* a bit for each LID; 0 and 0xC000 up are not unicast */
};

/* Begins with first to last free. 0, or -EINVAL: not a range of unicast LIDs. */
int lids_init(struct lids *l, unsigned first, unsigned last, struct fabric_error *e);

/* The lowest free LIDs for one port: low ones keep the number of LFT blocks small. 0, or -ENOSPC
 * with the number of those that are free. */
int lids_take(struct lids *l, unsigned lmc, uint16_t *ret_lid, struct fabric_error *e);
/* These LIDs, in the range or not. 0, -EEXIST (one is held), -EINVAL. */
int lids_hold(struct lids *l, unsigned lid, unsigned lmc, struct fabric_error *e);

bool lids_held(const struct lids *l, unsigned lid);
/* Free ones in the range. */
unsigned lids_free(const struct lids *l);

#endif
