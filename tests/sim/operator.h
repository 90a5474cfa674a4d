/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Acts of an operator on simulated hosts (world.h). */
#ifndef IBVMIG_TESTS_FAKE_SIM_OPERATOR_H
#define IBVMIG_TESTS_FAKE_SIM_OPERATOR_H

#include "daemon/migrate/machine.h"
#include "tests/sim/world.h"

/* A call to that host's ibvmigd, as the command line makes it; returns when it is answered. body:
 * JSON text, or NULL. false: it is refused, and sim_refusal says why. */
bool sim_ask(int host, const char *method, const char *path, const char *body);
extern struct json_object *sim_answer; /* lives until the next call */
extern char sim_refusal[512];

/* Mends what is broken until somebody mends it: VFs that have vanished, a QEMU that takes no
 * device, guests that keep their device or whose port has no link. */
void sim_mend_all(void);
/* The last line of this record in the host's journal names the command. */
bool sim_tells(int host, const struct migration *m, const char *command);
/* Runs the command of each PARKED record, which must name it, and counts them in *count. false:
 * one names none. */
bool sim_resolve_all(unsigned *count);
/* A daemon has refused one of those commands. */
bool sim_resolve_was_refused(void);

#endif
