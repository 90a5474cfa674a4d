/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part that moves have in common, whatever the kind of addresses: the registry's word on each
 * before anything is done, trying again, and what the registry has afterwards. */
#ifndef IBVMIG_SM_HELPER_MOVES_BATCH_H
#define IBVMIG_SM_HELPER_MOVES_BATCH_H

#include "sm-helper/moves/ops.h"

/* Moves on their way. Large: on the heap. */
struct batch {
	struct ops *o;
	const struct move_request *m;      /* borrowed; count of them, as of the next three */
	unsigned count, going;             /* going: those that are not there */
	struct reg_entry x[OPS_MOVES_MAX]; /* as in the registry; .to: the destination */
	bool there[OPS_MOVES_MAX];         /* the vGUID is where the move would take it */
	struct move_result res;
	bool parked; /* switches may have kept entries of it, or of its way back */
	union {
		struct { /* VMs with LIDs of their own: moves/move.c */
			/* Places that the vGUIDs shall have, in the order of the moves. Behind them
			 * are the places that are left to nobody, first of those that are going. */
			struct sm_target target[SM_ASSIGN_MAX];
			unsigned targets, checked; /* checked: of these, the first, whose LIDs are
						      verified */
			bool swept; /* because OpenSM did not see one of the places */
			struct sm_assign_reply reply;
		};
		struct { /* VMs that share the LID of a port: moves/shared.c */
			unsigned first[OPS_MOVES_MAX]; /* the move's first entry in slot[] */
			struct sm_slot slot[SM_ASSIGN_MAX];
			unsigned slots;
			struct sm_guids_reply guids;
		};
	};
};

/* Whatever host a request names: a parked GUID is of one VF. */
static inline bool batch_same_vf(const struct reg_vf *a, const struct reg_vf *b)
{
	return a->parked_guid == b->parked_guid;
}

/* The part in which kinds of addresses differ. With ops.lock held; 0, or -errno with *e filled. */
struct batch_kind {
	bool chains; /* a VM may go where another one of the batch leaves */
	/* The destinations of those that are going, as o->fabric has them, into x[].to. */
	int (*find)(struct batch *b, struct op_error *e);
	/* Does all moves and verifies them, or does none, and fills res but for its times.
	 * *ret_unknown: the outcome is not known. An error that ops_again() lets pass makes it
	 * start again. */
	int (*carry_out)(struct batch *b, bool *ret_unknown, struct op_error *e);
	void (*log)(const struct batch *b);
};

/* Tells if a move may begin, as far as the registry goes. 0: yes, with what the registry has of the
 * vGUID; 1: the vGUID is there already. batch: count of moves, whose VFs are free as soon as they
 * move. */
int batch_check_move(struct ops *o, const struct move_request *m, const struct move_request *batch,
		     unsigned count, struct reg_entry *ret_entry, struct op_error *e);
/* Refuses moves of which two name one vGUID, or come from or go to one VF. */
int batch_check(const struct move_request *m, unsigned count, struct op_error *e);
/* As ops_move(). */
int batch_move(struct ops *o, const struct batch_kind *kind, const struct move_request *m,
	       unsigned count, uint64_t deadline_us, struct move_result *ret_result,
	       struct op_error *e);

#endif
