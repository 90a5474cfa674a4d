/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's LFTs as tables for libvswitch's planner, and a plan on its way. The gate is held by the
 * caller of all. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_LFTS_H
#define IBVMIG_SM_HELPER_PLUGIN_LFTS_H

#include "sm-helper/plugin/main.h"
#include "vswitch/moves/moves.h"

/* lfts_note() copies so many blocks in one hold of OpenSM's lock. */
#define LFTS_PIECE 2048

/* A zeroed one is empty. The switches stay while the gate is held: only heavy sweeps drop some. */
struct lfts {
	osm_switch_t **sw; /* owned; of the plan's numbers, borrowed from OpenSM */
	uint32_t switches;
	struct moves_plan plan; /* made from new_lft: what OpenSM wants to be in the switches */
	uint16_t top;           /* highest LID that the plan gives entries */
	unsigned tops;          /* switches whose tables do not reach up to it */
	bool *taken;            /* owned; of each SMP: the switch holds it */
	bool sent, turned;      /* turned: it is the way back */
};

/* Finds the switches. 0, or -ENOMEM with reason. OpenSM's lock held, as for the next two; shared is
 * enough. */
int lfts_open(struct plugin *p, struct lfts *l, struct sm_reply_head *h);
/* A switch's number in plans; FABRIC_NONE: it is none of them. */
uint32_t lfts_index(const struct lfts *l, const osm_switch_t *sw);
/* Plans what has to be sent for a batch; changes nothing. ordered: in waves. 0, or -errno with
 * reason. */
int lfts_plan(struct lfts *l, const struct move *move, unsigned moves, bool ordered,
	      struct sm_reply_head *h);
/* Makes OpenSM's tables as long as the plan needs them. 0, or -ENOMEM with reason. Lock held
 * exclusively, as for the next three. */
int lfts_grow(struct lfts *l, struct sm_reply_head *h);
/* True if OpenSM's tables are no longer those that the plan was made from: without a heavy sweep
 * only a reroute by hand changes them. */
bool lfts_stale(const struct lfts *l);
/* Makes OpenSM's tables as they shall be. */
void lfts_want(struct lfts *l);
/* Tells the switches whose tables have got longer. 0 or -EIO. */
int lfts_send_tops(struct plugin *p, struct lfts *l);
/* Sends the plan wave by wave, and waits for the answers until deadline_us. A plan without an order
 * is one wave: then nobody uses the LIDs whose entries change. Where a wave was not taken, the next
 * ones are not sent, unless it is the way back. Without the lock. 0, -EIO or -ETIMEDOUT. */
int lfts_send(struct plugin *p, struct lfts *l, uint64_t deadline_us);
/* Tells OpenSM what the switches hold now, from SMP `first` on, LFTS_PIECE of them. Lock held
 * exclusively. Returns the SMP to go on with, 0 at the end. */
unsigned lfts_note(struct plugin *p, const struct lfts *l, unsigned first);
/* Makes sure that every switch has taken its blocks. 0, or -EIO with reason. */
int lfts_check(const struct lfts *l, struct sm_reply_head *h);
/* Turns the plan round, so that it is the way back. What the switches hold is unknown to OpenSM
 * until lfts_note(). Lock held exclusively. */
void lfts_turn(struct lfts *l);
void lfts_free(struct lfts *l);

#endif
