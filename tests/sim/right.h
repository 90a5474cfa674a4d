/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state that simulated hosts (world.h) must have whatever has happened to them. */
#ifndef IBVMIG_TESTS_FAKE_SIM_RIGHT_H
#define IBVMIG_TESTS_FAKE_SIM_RIGHT_H

#include "daemon/migrate/machine.h"
#include "tests/sim/world.h"

#define SIM_WRONG_MAX 400
#define SIM_QUIET_S   1500 /* by the simulated clock: all retries of all steps together take less */

extern char sim_wrong[SIM_WRONG_MAX];  /* the finding of the last of these that failed */
extern char sim_broken[SIM_WRONG_MAX]; /* the finding of sim_never(), or "" */
extern bool sim_vm_may_be_dead;
extern int sim_lost_host; /* this host's ibvmigd need not be up; -1: all must */

/* Notes it in sim_wrong; returns false. */
bool sim_is_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The host where g is, or -1. */
int sim_home(struct sim_guest *g);
/* The newest record of this role in the memory of that host's daemon, or NULL. */
struct migration *sim_record(int host, enum migrate_role role);
/* The newest one of HOST_A as its journal keeps it, or NULL; the caller's. */
struct json_object *sim_record_json(void);
/* The VM of this record of its source is a file, and can be restored anywhere. */
bool sim_is_kept(const struct migration *m);
/* Conditions for sim_run(). All is as it was before a migration, wherever the mover is. */
bool sim_all_right(void *arg);
/* No migration goes on, but those that wait for an operator; a VM that is a file does. */
bool sim_quiet(void *arg);
/* Looks only at a peer whose mover's source is lost for good. */
bool sim_peer_right(void);
/* Finds what must never be, not even for a moment: for sim_run(), after each event. */
void sim_never(void);
/* Finds, of that, what must not be even while a guest boots and has no VF yet. */
void sim_never_twice(void);

#endif
