/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cells of the fault matrix: each in a process of its own, for the world (world.h) is built of
 * globals; and the report of all. */
#ifndef IBVMIG_TESTS_FAKE_SIM_CELLS_H
#define IBVMIG_TESTS_FAKE_SIM_CELLS_H

#include "daemon/migrate/machine.h"
#include "tests/sim/faults.h"

#define SIM_REASON_MAX 400

/* A moment where faults strike: a record of this role is in this state. */
struct sim_point {
	const char *name;
	enum migrate_role role;
	enum migrate_state state;
	bool back;
	int scenario; /* a number of the strategy's own; 0: nothing disturbs it */
	bool (*is_more)(const struct migration *m); /* further condition; NULL: none */
};

/* Condition for sim_run(): the point, as void *, is reached. */
bool sim_at_point(void *point);

struct sim_result {
	bool ok, reached;
	bool moved, dead;          /* the VM is on host B, or nowhere */
	bool missed;               /* the fault's target was not there */
	unsigned parked;           /* records that the operator has resolved */
	double seconds;            /* until all was right */
	char text[SIM_REASON_MAX]; /* the first thing that is wrong */
	bool ran;
};

/* A column of the matrix: a way that the VM goes. */
struct sim_strategy {
	const char *name;
	struct sim_mover mover;
	const struct sim_point *points;
	size_t point_count;
	const char *not_parked; /* why it has no cells in PARKED; NULL: it has. The report tells */
	bool cold;   /* as native ones, without faults that mean nothing to it; the report tells */
	bool sparse; /* in the sample every third moment only */
	/* From before the start of the way until all is right again, and stays so. false:
	 * sim_wrong says why not. fault NULL: none. */
	bool (*play)(const struct sim_fault *fault, const struct sim_point *p, unsigned delay_ms,
		     struct sim_result *ret);
};

/* fault NULL: none. */
void sim_strike(const struct sim_fault *fault, struct sim_result *r);

/* As a TAP program (see daemon_faults.c); its exit status. */
int sim_cells(const struct sim_strategy *strategies, size_t count, int argc, char **argv);

#endif
