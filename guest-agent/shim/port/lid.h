/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The LID of a port as its program knows it. A program may have told it to others, so a move that
 * gives the port another LID changes nothing of it. What leads there is translated by who sends. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PORT_LID_H
#define IBVMIG_GUEST_AGENT_SHIM_PORT_LID_H

#include "guest-agent/shim/core/objects.h"

#define LID_MULTICAST                                                                              \
	0xc000 /* the first (IBA 1.4, 4.1.3); those from LID_NONE on are no port's                 \
		*/
#define LID_NONE 0xffff

#pragma GCC visibility push(hidden)
/* The device's answer becomes the program's: attr reaches to its flags at least. Under the gate of
 * control verbs. Ports that are not InfiniBand have no LID, and are left as they are. */
void lid_answer(struct shim_context *c, uint8_t port, struct ibv_port_attr *attr);
/* The LID that the port has now; 0: none, or no InfiniBand port. Asks the device. */
uint16_t lid_now(const struct shim_context *c, uint8_t port);
/* The same as the program knows it; now: lid_now(). */
uint16_t lid_shown(const struct shim_context *c, uint8_t port, uint16_t now);
/* The LID that the program has seen, and may have told; 0: it has not asked. */
uint16_t lid_told(const struct shim_context *c, uint8_t port);
/* True if both are LIDs of one port: where ports have several (LMC), a program may choose. */
bool lid_same_port(const struct shim_context *c, uint8_t port, uint16_t a, uint16_t b);
/* True for a LID that one port has. */
static inline bool lid_is_unicast(uint16_t lid)
{
	return lid && lid < LID_MULTICAST;
}
#pragma GCC visibility pop

#endif
