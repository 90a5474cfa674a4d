/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The use of memory and descriptors by a world of simulated hosts (world.h). */
#ifndef IBVMIG_TESTS_FAKE_SIM_USE_H
#define IBVMIG_TESTS_FAKE_SIM_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_use {
	size_t heap_bytes;     /* without SQLite's caches, which have limits of their own */
	uint64_t rss_kib;      /* with all daemons and what plays the rest; only shown */
	unsigned fds, records; /* descriptors; migrations in the daemons' memory */
};

struct sim_use sim_use(void);
/* false: now is more than before; sim_wrong says of what. Prints both. */
bool sim_use_is_flat(const struct sim_use *before, const struct sim_use *now);

#endif
