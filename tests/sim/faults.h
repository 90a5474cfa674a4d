/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The faults of simulated hosts (world.h), while the mover goes from host A to B and its peer is on
 * C: the rows of the fault matrix (tests/sim/cases/faults.c). */
#ifndef IBVMIG_TESTS_FAKE_SIM_FAULTS_H
#define IBVMIG_TESTS_FAKE_SIM_FAULTS_H

#include "tests/sim/world.h"

/* A promise holds beyond that all is right at the end, where nothing else has disturbed the VM's
 * way. */
enum sim_promise {
	PROMISE_NONE,
	PROMISE_ARRIVES, /* no event is the only one that tells something */
	PROMISE_STAYS,   /* up to DETACH: what cannot be written at the source is not done */
};

struct sim_fault {
	const char *name;
	void (*strike)(int arg);
	int arg; /* for strike(): a host, guest, number of seconds, or enum sim_replies */
	enum sim_promise promise;
	/* Returns whether the fault's target is there; NULL: it always is. */
	bool (*is_there)(int arg);
	/* Why it means nothing to a VM that is saved and restored, or whose device's state is
	 * migrated; NULL: it does. */
	const char *not_cold, *not_native;
};

extern const struct sim_fault sim_faults[];
extern const size_t sim_fault_count;

/* The lost host does not come back, and needs another end of the cell. */
extern bool sim_source_lost, sim_destination_lost;

#endif
