/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `ibvmig save` and `ibvmig restore` of the mover on simulated hosts (world.h): host A saves it. */
#ifndef IBVMIG_TESTS_FAKE_SIM_COLD_H
#define IBVMIG_TESTS_FAKE_SIM_COLD_H

#include "tests/sim/world.h"

#define SIM_COLD_FILE "/var/tmp/g1.save"
#define SIM_PEERS_S   60 /* saved-peers-s */

/* The answer to what was asked last. */
struct sim_reply {
	bool came;
	int rc;
	char error[512];
};
extern struct sim_reply sim_reply;

/* Ask ibvmigd of that host; sim_reply tells. A call is not waited for; a wait of sim_cold_wait() is
 * long enough for each of them. false: no answer came. */
void sim_cold_save(int host);
void sim_cold_restore(int host, bool source_lost);
/* `ibvmig resolve` of host A's record. */
void sim_cold_resolve(bool destination_lost);
bool sim_cold_wait(void);

/* The VM is a file, which can be restored anywhere: host A's record is SAVED, and no host restores
 * it. */
bool sim_cold_is_kept(void);
/* Condition for sim_run(): nothing goes on; all has ended, is PARKED, or the VM is such a file. */
bool sim_cold_settled(void *arg);

#endif
