/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The memory that this process has mapped, to find regions that could not be registered again. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_MAPS_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_MAPS_H

#include "guest-agent/shim/core/objects.h"

struct shim_maps {
	struct maps_span *span; /* owned; by address */
	size_t count, room;
};

enum maps_lost {
	MAPS_THERE, /* or it cannot be told */
	MAPS_UNMAPPED,
	MAPS_PROTECTED, /* mapped, but not so that it can be registered */
};

#pragma GCC visibility push(hidden)
/* m: all 0, or of an earlier call. path: /proc/self/maps. 0 or -errno; m is to be freed always. */
int maps_read(struct shim_maps *m, const char *path);
void maps_free(struct shim_maps *m);
/* True if the kernel would refuse to register the region now; then the first page for which it
 * would is told, too. Where the maps do not say, the device of the region is asked, so it must be
 * there. */
enum maps_lost maps_lost(struct shim_maps *m, const struct shim_mr *mr, uintptr_t *ret_at);
#pragma GCC visibility pop

#endif
