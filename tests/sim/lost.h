/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that is lost for good, and the operator who says so (world.h). */
#ifndef IBVMIG_TESTS_FAKE_SIM_LOST_H
#define IBVMIG_TESTS_FAKE_SIM_LOST_H

#include "tests/sim/world.h"

/* This host's power is gone for good, and what ran there. */
void sim_lost_strike(int host);
/* After the strike each source's record ends by itself, or names the operator's command, which ends
 * it. A VM that was lost with the host is started again on its source before that. Then all must be
 * right without that host, and when its power is back. *ret_commands: how often the operator was
 * needed. false: sim_wrong says why. */
bool sim_lost_play(unsigned *ret_commands);
/* The same for the first mover, whose source is lost. Where it runs on host B and nobody is left to
 * give its addresses away, B's record names the operator's command, which lets it have them. Where
 * it has died only its peer is looked at. */
bool sim_lost_source_play(unsigned *ret_commands);

#endif
