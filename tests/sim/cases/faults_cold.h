/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The strategy cold of the fault matrix: host A saves the VM, B restores it, or A does. */
#ifndef IBVMIG_TESTS_INTEGRATION_FAULTS_COLD_H
#define IBVMIG_TESTS_INTEGRATION_FAULTS_COLD_H

#include "tests/sim/cells.h"

#define FAULTS_COLD_POINTS 38
extern const struct sim_point faults_cold_points[FAULTS_COLD_POINTS];

/* This is the play of a struct sim_strategy. */
bool faults_cold_play(const struct sim_fault *f, const struct sim_point *p, unsigned delay_ms,
		      struct sim_result *ret);

#endif
