/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Migrations there and back, one after the other, in one world (tests/fake/sim.h): as many as
 * argv[1] says. The second half of them must need no more of heap, descriptors and records than the
 * first has left. */
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate.h"
#include "tests/fake/sim_right.h"

#include <dirent.h>
#include <ftw.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>

#define MIGRATIONS     2000        /* journals keep 1000: the first half reaches it */
#define HEAP_MAX_BYTES (64u << 10) /* SQLite's caches come and go */

struct use {
	size_t heap_bytes;
	unsigned fds, records;
};

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

static struct use look(void)
{
	struct use u = {.heap_bytes = mallinfo2().uordblks, .fds = count_fds()};

	for (int h = 0; h < SIM_HOSTS; h++)
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next)
			u.records++;
	return u;
}

static bool migrate(void)
{
	int from = sim_home(&sim_guests[0]), to = from == HOST_A ? HOST_B : HOST_A;

	sim_migrate(from, to);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	if (!sim_migration.ok)
		return sim_is_wrong("%.300s", sim_migration.error);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken && sim_home(&sim_guests[0]) == to;
}

static bool play(const char *dir, uint64_t n)
{
	struct use half = {0}, end;

	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		if (!migrate())
			return sim_is_wrong("migration %llu: %.300s", (unsigned long long)i + 1,
					    *sim_broken ? sim_broken : strdupa(sim_wrong));
		if (i == n / 2)
			half = look();
	}
	end = look();
	printf("# %llu migrations: heap %zu KiB after half of them, %zu at the end; %u and %u "
	       "descriptors, %u and %u records\n",
	       (unsigned long long)n, half.heap_bytes >> 10, end.heap_bytes >> 10, half.fds,
	       end.fds, half.records, end.records);
	if (end.heap_bytes > half.heap_bytes + HEAP_MAX_BYTES)
		return sim_is_wrong("the heap grows");
	return (end.fds <= half.fds && end.records <= half.records) ||
	       sim_is_wrong("descriptors or records grow");
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/ibvmig-endless-XXXXXX";
	uint64_t n = MIGRATIONS;
	bool ok;

	if ((argc > 1 && parse_u64(argv[1], 4, 1000000, &n)) || !mkdtemp(dir)) {
		fprintf(stderr, "usage: %s [MIGRATIONS]\n", argv[0]);
		return 2;
	}
	log_init("endless");
	log_set_level((enum log_level)0);
	ok = play(dir, n);
	if (!ok)
		printf("# %s\n", sim_wrong);
	printf("%s 1 - %llu migrations leave nothing behind\n1..1\n", ok ? "ok" : "not ok",
	       (unsigned long long)n);
	nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	return !ok;
}
