/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFT blocks as the switches hold them, for a walk. */
#ifndef IBVMIG_SM_HELPER_FABRIC_LFT_READER_H
#define IBVMIG_SM_HELPER_FABRIC_LFT_READER_H

#include "sm-helper/fabric/probe.h"
#include "vswitch/moves/walk.h"

/* arg of lft_fetch(), which is a walk_fetch. */
struct lft_reader {
	struct probe *m;   /* borrowed */
	uint64_t own_guid; /* GUID of the port that we look from */
};
void lft_fetch(void *arg, struct fabric *f, const struct walk_block *want, unsigned count);

#endif
