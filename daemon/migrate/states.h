/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The states of a migration, the rows of their table, and the edges between them. */
#ifndef IBVMIG_DAEMON_MIGRATE_STATES_H
#define IBVMIG_DAEMON_MIGRATE_STATES_H

#include <stdbool.h>
#include <stddef.h>

/* Who has the VF, the LID and vGUID, the QPs, and whether the guest runs. */
enum migrate_state {
	M_PREPARE, /* VF, LID: source; QPs live; guest runs; the destination has leased a VF */
	M_HOLD,    /* the same; pre-copy runs, and is held when little remains */
	M_QUIESCE, /* VF, LID: source; QPs drained at both ends; guest runs */
	M_DETACH,  /* VF: nobody; LID: source; QPs saved; guest runs */
	M_SAVED,   /* strategy cold. VF: nobody's, kept at the source; LID: source; QPs saved; the
		    * guest becomes a file */
	M_SWITCH,  /* VF: nobody; LID moves; guest stops, and resumes at the destination */
	M_ATTACH,  /* VF, LID: destination; QPs saved; guest runs at the destination after COMMIT */
	M_RESUME,  /* VF, LID: destination; QPs are rebuilt at both ends */
	M_DONE,    /* all at the destination; the source's VF is free */
	M_CANCEL,  /* as in the state that failed; QEMU's migration is made to end */
	M_ABORTED, /* all at the source, as before */
	M_PARKED,  /* as in the state that failed; an operator must look */
};

enum migrate_role { ROLE_SOURCE, ROLE_DESTINATION };

/* What run() and undo() return besides -errno. */
enum { STEP_DONE = 0, STEP_WAIT = 1 };

struct migration;

struct migrate_row {
	enum migrate_state state;
	enum migrate_role actor;
	unsigned deadline_ms;             /* 0: none */
	int (*run)(struct migration *m);  /* NULL: an end */
	int (*undo)(struct migration *m); /* NULL: nothing to undo */
	enum migrate_state next;
};

/* Before anything else here but the names: the table, in the order of the way forward. */
void migrate_set_rows(const struct migrate_row *rows, size_t count);
/* NULL: this role has no such state. */
const struct migrate_row *migrate_row(enum migrate_role role, enum migrate_state state);
/* The row before this one on the way forward; NULL at its beginning. */
const struct migrate_row *migrate_row_before(enum migrate_role role, enum migrate_state state);
const char *migrate_state_name(enum migrate_state s);
/* 0, or -EINVAL: it names no state. */
int migrate_state_parse(const char *name, enum migrate_state *ret_state);
const char *migrate_role_name(enum migrate_role role);
/* Whether the state machine knows this edge. */
bool migrate_edge_ok(enum migrate_role role, enum migrate_state from, enum migrate_state to,
		     bool back, bool committed);

#endif
