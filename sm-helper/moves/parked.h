/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The rest of a batch that failed and could not be taken back either, for `ibvmig-sm status` and
 * the way out: undo or commit. OpenSM's plugin knows which entries the batch was to change
 * (proto/plugin.h, SM_OP_PARKED), and the switches are asked what they hold. */
#ifndef IBVMIG_SM_HELPER_MOVES_PARKED_H
#define IBVMIG_SM_HELPER_MOVES_PARKED_H

#include "sm-helper/proto/plugin.h"
#include "sm-helper/registry/registry.h"
#include "vswitch/model/fabric.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ops;
struct op_error;
struct move_request;

enum parked_state {
	PARKED_OLD,     /* as before the batch */
	PARKED_NEW,     /* as the batch was to make it */
	PARKED_OTHER,   /* neither: routed anew since */
	PARKED_UNKNOWN, /* the switch or port does not answer, or nothing leads there */
	PARKED_STATES
};

struct parked_entry {
	struct sm_parked_entry of;
	char name[FABRIC_DESC_MAX]; /* name of the switch; "" where OpenSM sees it no more */
	bool read;                  /* an answer has come */
	uint16_t holds;             /* a port, or a LID, as of.before */
};

/* An entry of a port's GUID table that a parked move was to change (ADDRESS_SHARED_PORT). */
struct parked_guid {
	struct reg_vf at;
	uint16_t lid;           /* LID of the port; 0: OpenSM sees it no more */
	uint64_t before, after; /* 0: nothing */
	bool read;              /* an answer has come */
	uint64_t holds;
};

/* A zeroed one with its lock initialised holds nothing. */
struct parked {
	pthread_mutex_t lock;       /* guards all; ops.lock may be taken before it, never after */
	struct parked_entry *entry; /* owned; those that are not settled first */
	uint32_t entries;
	struct parked_guid *guid; /* owned; two of each such move */
	unsigned guids;
	uint64_t since_ms, looked_ms; /* wall clock; looked_ms: when the switches were asked */
	char why[SM_REASON_MAX];
	struct move_request *move; /* owned; of VMs that have not moved by any other call since:
				      what the registry has, too */
	unsigned moves;
};

void parked_clear(struct parked *k);
enum parked_state parked_state(const struct parked_entry *e);
enum parked_state parked_guid_state(const struct parked_guid *g);
/* "old", "new", "other", "unknown" */
const char *parked_state_name(enum parked_state s);

/* The moves of a batch that was parked; a vGUID whose place is sure again, if it is of one. The
 * registry has them, so that they outlive this process, and a take-over: parked_load_moves(), of
 * who begins to lead. ops.lock may be held. */
void parked_add_moves(struct ops *o, const struct move_request *m, unsigned count);
void parked_drop_move(struct ops *o, uint64_t vguid);
void parked_load_moves(struct ops *o);
/* Copies them to room for OPS_MOVES_MAX; returns how many. */
unsigned parked_moves(struct parked *k, struct move_request *ret_move);

/* The rest without ops.lock, which they take for moments; SMPs that nobody answers are waited
 * for without it.
 *
 * Asks plugin and switches, where there is something to ask about and it has changed or was asked
 * long ago. For a timer. */
void parked_watch(struct ops *o);
/* Asks now. 0, or -errno with *e filled; then o->parked is as it was. */
int parked_look(struct ops *o, struct op_error *e);
/* Sweeps until every switch that is there holds what OpenSM wants it to. Nothing parked: 0. -EBUSY
 * with *e: some switch still does not answer. */
int parked_settle(struct ops *o, struct op_error *e);

#endif
