/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices, and the events of their objects. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_CONTEXT_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_CONTEXT_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* True if the context is one of our shadows; all others pass through. */
bool shim_ours(const struct ibv_context *context);

int context_open(struct shim_context *c, struct ibv_device *device);
void context_close(struct shim_context *c);
bool context_has_guid(const struct shim_context *c, const struct shim_order *o,
		      unsigned *ret_index);
int context_query_gids(struct shim_context *c);
/* Events that the program has not taken yet are kept for it: the objects below them go. */
void context_keep_events(struct shim_context *c);
/* The device is closed with objects on it (verbs/leftovers.c). */
void context_leave_objects(struct shim_context *c);
/* Under ctl: no event names that object (of the program's) any more. */
void context_forget_events(struct shim_context *c, const void *object);
#pragma GCC visibility pop

#endif
