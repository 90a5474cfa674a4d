/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The SMPs that bring LIDs to other places of a fabric. A batch of moves touches each block of each
 * switch once, and no entry of any LID that is not in the batch changes. No path is computed: a LID
 * takes the entries of one that is at its new place already. */
#ifndef IBVMIG_VSWITCH_MOVES_MOVES_H
#define IBVMIG_VSWITCH_MOVES_MOVES_H

#include "vswitch/model/fabric.h"

#define MOVES_MAX      256  /* LIDs of a batch: 64 swaps, and LIDs that these make nobody's */
#define MOVES_LIDS_MAX 4096 /* LIDs of a batch, those of LMCs counted one by one */

/* The LIDs of one port in a batch. All read the tables as they were before the batch. */
struct move {
	uint16_t lid;
	uint16_t like;    /* LID whose entries it takes; 0: none, it becomes unreachable */
	uint32_t at_sw;   /* here it gets at_port instead; FABRIC_NONE: nowhere */
	uint8_t at_port;  /* of at_sw */
	bool unused;      /* nobody sends to it: no order is kept for it */
	uint32_t new_end; /* the CA port that has it afterwards, FABRIC_NONE: none */
	uint32_t old_end; /* and that had it; set by moves_plan() */
	uint8_t lmc; /* 2^lmc LIDs from `lid` on go together, the n-th like the n-th of `like` */
	uint8_t like_lmc; /* and begin again when these are fewer */
};

enum moves_rule {
	MOVES_ALL,   /* the entries of the other LID everywhere: routes, lanes and balance are those
			that the SM made, with the ports exchanged */
	MOVES_FEWEST /* an old entry stays where it still leads there in as few hops */
};

struct moves_smp {
	uint32_t sw;
	uint16_t block;
	uint16_t wave; /* SMPs of one wave may be sent together */
	uint16_t part; /* parts of this block that earlier SMPs of the plan write */
	uint8_t before[64], after[64];
};

struct moves_plan {
	struct move *move; /* owned; one for each LID, so lmc is 0; ports only in a run's first */
	unsigned moves;
	struct moves_smp *smp; /* owned; by wave */
	unsigned smps, room;
	unsigned switches;                     /* switches that get an SMP */
	unsigned smps_inside, switches_inside; /* share of vSwitches in these */
	unsigned waves;
	unsigned grown; /* switches whose table gets longer: one SwitchInfo SMP more each */
	unsigned split; /* SMPs more than blocks: those would wait for each other in a circle */
};

/* VMs at CA ports vm[] go to the VFs to[], all at once: one may go where another one leaves, and
 * two may change places. A VF's LID that no VM of the batch has goes to the place that its VM, or
 * the first of its chain, leaves. Fills ret_move, room for 2 * count. 0, or -EINVAL (no LID at one
 * of them, LMCs that differ, a port twice). */
int moves_swaps(const struct fabric *f, const uint32_t *vm, const uint32_t *to, unsigned count,
		struct move *ret_move, unsigned *ret_moves, struct fabric_error *e);
/* The two moves of one. */
int moves_swap(const struct fabric *f, uint32_t vm, uint32_t to, struct move ret_move[static 2],
	       struct fabric_error *e);
/* The one move of a copy: the LID of `vm` to the place of VF `to`, which has none. */
int moves_copy(const struct fabric *f, uint32_t vm, uint32_t to, struct move *ret_move,
	       struct fabric_error *e);
/* A LID, new or not, to a switch port. 0, -ENODATA (nothing with a LID is there to be like). */
int moves_to_port(const struct fabric *f, uint16_t lid, uint32_t sw, unsigned port,
		  struct move *ret_move, struct fabric_error *e);

/* Tables of switches, wherever they are kept. */
struct moves_tables {
	uint32_t switches;
	/* The 64 entries of a block, borrowed until the table changes; NULL: they are not known. */
	const uint8_t *(*block)(const void *arg, uint32_t sw, unsigned block);
	/* Blocks of a table that may get longer. NULL: none may, a LID beyond its end is -ENODATA.
	 */
	unsigned (*blocks)(const void *arg, uint32_t sw);
	const char *(*name)(const void *arg, uint32_t sw); /* for errors */
	/* The switch behind a port, FABRIC_NONE: none. For moves_order_tables(). */
	uint32_t (*behind)(const void *arg, uint32_t sw, unsigned port);
	const void *arg;
};

/* 0; -EINVAL (a LID twice, not unicast, no multiple of 2^lmc, a port beyond the switch, above
 * MOVES_MAX or MOVES_LIDS_MAX), -ENODATA (an LFT block is not known), -ENOMEM. All SMPs are in one
 * wave. *ret_plan is freed by moves_free(), or kept to be filled again. */
int moves_plan(const struct fabric *f, const struct move *move, unsigned count,
	       enum moves_rule rule, struct moves_plan *ret_plan, struct fabric_error *e);
/* The same by MOVES_ALL, for tables without a fabric around them: at_port is not checked, nothing
 * counts as inside, and no old or new port is known. */
int moves_plan_tables(const struct moves_tables *tables, const struct move *move, unsigned count,
		      struct moves_plan *ret_plan, struct fabric_error *e);
void moves_free(struct moves_plan *plan);

/* Orders the SMPs in waves from the new places outwards. Whatever of a wave has been done, a
 * packet to a moving LID does not loop. It arrives at the old or the new place; or it is dropped
 * where there was no way before. A block whose LIDs ask for different orders is sent in parts. 0,
 * -ENOMEM. */
int moves_order(const struct fabric *f, struct moves_plan *plan);
/* The same for tables that still are as they were when the plan was made, or as it wants them. */
int moves_order_tables(const struct moves_tables *tables, struct moves_plan *plan);

/* Makes the plan its own way back, waves in reverse order; only .like, .at_* and .part stay as they
 * were. */
void moves_undo(struct moves_plan *plan);

/* Does what a switch that takes the SMP does: 0, -ENOMEM. */
int moves_send(struct fabric *f, const struct moves_smp *smp);

#endif
