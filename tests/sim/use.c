/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/use.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/right.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#define HEAP_MAX_BYTES (64u << 10) /* requests under way come and go */

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static uint64_t rss_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) >> 10;
}

struct sim_use sim_use(void)
{
	struct sim_use u = {.heap_bytes = mallinfo2().uordblks - (size_t)sqlite3_memory_used(),
			    .rss_kib = rss_kib(),
			    .fds = count_fds()};

	for (unsigned h = 0; h < sim_size.hosts; h++)
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next)
			u.records++;
	return u;
}

bool sim_use_is_flat(const struct sim_use *before, const struct sim_use *now)
{
	printf("# heap %zu KiB, then %zu; RSS %" PRIu64 " and %" PRIu64
	       " KiB, %u and %u descriptors, %u and %u records\n",
	       before->heap_bytes >> 10, now->heap_bytes >> 10, before->rss_kib, now->rss_kib,
	       before->fds, now->fds, before->records, now->records);
	if (now->heap_bytes > before->heap_bytes + HEAP_MAX_BYTES)
		return sim_is_wrong("the heap grows");
	return (now->fds <= before->fds && now->records <= before->records) ||
	       sim_is_wrong("descriptors or records grow");
}
