/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's LFTs as tables for libvswitch's planner, and a plan's SMPs on their way. All calls with
 * OpenSM's lock held exclusively, but lfts_check(): shared is enough. */
#ifndef IBVMIG_SM_PLUGIN_LFTS_H
#define IBVMIG_SM_PLUGIN_LFTS_H

#include "sm-helper/plugin.h"
#include "vswitch/moves.h"

/* A zeroed one is empty. The switches stay while the gate is held: only heavy sweeps drop some. */
struct lfts {
	osm_switch_t **sw;      /* owned; of the plan's numbers, borrowed from OpenSM */
	struct moves_plan plan; /* made from new_lft: what OpenSM wants to be in the switches */
	bool sent;
};

/* What has to be sent for a batch; changes nothing. 0, or -errno with reason. */
int lfts_plan(struct plugin *p, struct lfts *l, const struct move *move, unsigned moves,
	      struct sm_reply_head *h);
/* All of the plan at once, unordered: the only entries that change belong to LIDs nobody uses now.
 * 0 or -EIO. */
int lfts_send(struct plugin *p, struct lfts *l);
/* Whether every switch has taken its blocks. 0, or -EIO with reason. */
int lfts_check(const struct lfts *l, struct sm_reply_head *h);
/* Sends what stood there before. The plan then is the way back. */
void lfts_undo(struct plugin *p, struct lfts *l);
void lfts_free(struct lfts *l);

#endif
