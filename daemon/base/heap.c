/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/heap.h"

#include <malloc.h>

#define MAPPED_BYTES (2 << 20)
#define KEPT_BYTES   (4 << 20)

void heap_init(void)
{
	/* One heap for all threads: in one for each worker, gaps of some 80 bytes a migration
	 * stay (docs/measurements.md, The daemon). */
	mallopt(M_ARENA_MAX, 1);
	/* Lists of many VMs and migrations are some 100 KB each. Mapped for each answer, or given
	 * back to the kernel after each, their pages cost a fault each time. */
	mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

void heap_trim(void)
{
	malloc_trim(0);
}
