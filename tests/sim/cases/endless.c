/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Migrations there and back, one after the other, in one world (tests/sim/world.h): as many as
 * argv[1] says. The second half of them must need no more of heap, descriptors and records than the
 * first has left. */
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/right.h"
#include "tests/sim/use.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

#define MIGRATIONS 2000 /* journals keep 1000: the first half reaches it */

static struct sim_guest *const mover = &sim_guests[0];

static bool migrate(void)
{
	int from = sim_home(mover), to = from == HOST_A ? HOST_B : HOST_A;

	sim_migrate(mover, from, to);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	if (!mover->migration.ok)
		return sim_is_wrong("%.300s", mover->migration.error);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken && sim_home(mover) == to;
}

static bool play(const char *dir, uint64_t n)
{
	struct sim_use half = {0}, end;

	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		if (!migrate())
			return sim_is_wrong("migration %llu: %.300s", (unsigned long long)i + 1,
					    *sim_broken ? sim_broken : strdupa(sim_wrong));
		if (i == n / 2)
			half = sim_use();
	}
	end = sim_use();
	return sim_use_is_flat(&half, &end);
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
