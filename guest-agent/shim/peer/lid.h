/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Peers that the program names by LID alone. The agent tells whose it is, and the path there. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PEER_LID_H
#define IBVMIG_GUEST_AGENT_SHIM_PEER_LID_H

#include "guest-agent/shim/core/objects.h"

/* Ports that the program may mean, as seen from the port of ours that it uses. */
struct lid_ends {
	uint8_t sgid[16];
	bool shared; /* others than these may have the LID */
	unsigned count;
	uint8_t dgid[SHIM_ENDS_MAX][16];
};

#pragma GCC visibility push(hidden)
/* Inside a control verb, which is left while the agent is asked. anew: what it knows did not help.
 * The routes to these ends are known then. 0, or -errno: nobody knows whose LID it is. */
int lid_find_ends(const struct shim_context *c, uint8_t port, uint16_t lid, uint16_t pkey,
		  bool anew, struct lid_ends *ret_ends);
/* The LID in ah becomes the one that leads to the route's end now, with the SL of that path.
 * Nothing changes where it is the same port's, the path is not known, and on RoCE. */
void lid_translate(const struct shim_context *c, const struct shim_route *r,
		   struct ibv_ah_attr *ah);
#pragma GCC visibility pop

#endif
