/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GIDs by the program's indices. An address that a program has seen at an index stays there for it,
 * as long as the port has it anywhere. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_PORT_GID_H
#define IBVMIG_GUEST_AGENT_SHIM_PORT_GID_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* The device's index for the program's, or -EADDRNOTAVAIL: the port has that GID no more. */
int gid_index_at_device(struct shim_context *c, uint8_t port, unsigned index);
/* The program's index for the device's. */
unsigned gid_index_of_device(struct shim_context *c, uint8_t port, unsigned index);
/* The device's index of the GID at the port, or -errno. */
int gid_find(const struct shim_context *c, uint8_t port, const uint8_t gid[16]);
/* The device's index that answers for the program's. */
unsigned gid_answering(struct shim_context *c, uint8_t port, unsigned index);
/* The program has seen gid at its index. */
void gid_saw(struct shim_context *c, uint8_t port, unsigned index, const union ibv_gid *gid);
void gids_forget_all(void); /* in a child: the lock is the parent's */
#pragma GCC visibility pop

#endif
