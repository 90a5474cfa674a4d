/* SPDX-License-Identifier: GPL-2.0-or-later */
/* REST requests beside 64 complete migrations at once, on simulated hosts (tests/sim/world.h). The
 * hosts' moves are simulated; the CPU time that the code of one ibvmigd needs for them and for the
 * requests is measured. A request takes as long as one processor needs for all that came before it:
 * loop and workers take turns there. HTTP and TLS themselves are not in it (tests/bench/daemon),
 * nor is the disk, for which a thread of its own waits.
 *
 *     many_rest [SECONDS]        the report, as JSON */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/start.h"
#include "tests/sim/right.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOVERS      64
#define RATE        500 /* requests a second, all to one host */
#define SECONDS     20
#define SECONDS_MAX 600
#define TIMEOUT_MS  60000

static const char *const paths[] = {"/v1/status", "/v1/vms", "/v1/migrations"};

static uint64_t *took_us;
static unsigned asked, answered, refused, at_once;
static uint64_t next_us; /* when the next one is due */
static bool enough;

static struct sim_guest *mover(unsigned i)
{
	return &sim_guests[2 * i];
}

/* ---- requests ---- */

static void answer_came(void *arg, int rc, struct json_object *answer, const char *error)
{
	const struct sim_proc *p = &sim_hosts[HOST_A].proc;
	uint64_t *due = arg, through_us = p->busy_until_ns / 1000;

	(void)answer;
	(void)error;
	*due = (through_us > sim_us() ? through_us : sim_us()) - *due;
	answered++;
	refused += rc != 0;
}

static void ask(void *arg)
{
	unsigned n = asked;

	(void)arg;
	if (enough || n == SECONDS_MAX * RATE)
		return;
	asked++;
	took_us[n] = next_us;
	sim_http_get(sim_hosts[HOST_A].url, paths[n % ARRAY_SIZE(paths)], TIMEOUT_MS, answer_came,
		     &took_us[n]);
	next_us += SIM_S / RATE;
	sim_after(NULL, next_us > sim_us() ? next_us - sim_us() : 0, ask, NULL);
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double of_ms(unsigned per_mille)
{
	return (double)took_us[(uint64_t)(answered - 1) * per_mille / 1000] / 1000;
}

/* ---- migrations ---- */

static void count(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MOVERS; i++)
		n += mover(i)->migration.under_way;
	if (n > at_once)
		at_once = n;
}

static bool all_answered(void *arg)
{
	(void)arg;
	return answered == asked;
}

/* Moves every mover at the same moment, one half in each direction. */
static bool play_round(void)
{
	for (unsigned i = 0; i < MOVERS; i++) {
		int from = sim_home(mover(i));

		sim_migrate(mover(i), from, from == HOST_A ? HOST_B : HOST_A);
	}
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, count))
		return false;
	for (unsigned i = 0; i < MOVERS; i++)
		if (!mover(i)->migration.ok)
			return sim_is_wrong("%s: %.300s", mover(i)->name,
					    mover(i)->migration.error);
	return true;
}

static bool play(const char *dir, uint64_t seconds, unsigned *rounds)
{
	sim_size.vfs = SIM_VFS;
	sim_size.kept = 1000;
	sim_mover.strategy = "late";
	for (unsigned i = 1; i < MOVERS; i++) /* the first is there */
		sim_add_pair(i % 2 ? HOST_B : HOST_A, HOST_C);
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_hosts[HOST_A].proc.timed = true;
	next_us = sim_us();
	ask(NULL);
	for (uint64_t end = sim_us() + seconds * SIM_S; sim_us() < end; ++*rounds)
		if (!play_round())
			return false;
	enough = true;
	return sim_run(all_answered, NULL, sim_us() + TIMEOUT_MS * SIM_MS, NULL) ||
	       sim_is_wrong("%u of %u requests are answered", answered, asked);
}

static void report(unsigned rounds)
{
	struct json_object *o AUTO_JSON = json_object_new_object();

	qsort(took_us, answered, sizeof *took_us, by_time);
	json_set_u64(o, "at_once", at_once);
	json_set_u64(o, "migrations", (uint64_t)rounds * MOVERS);
	json_set_u64(o, "requests", answered);
	json_set_u64(o, "wrong", refused);
	json_set(o, "p50_ms", json_object_new_double(of_ms(500)));
	json_set(o, "p99_ms", json_object_new_double(of_ms(990)));
	json_set(o, "max_ms", json_object_new_double(of_ms(1000)));
	puts(json_text(o));
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
	char dir[] = "/tmp/ibvmig-many-rest-XXXXXX", run[] = "/dev/shm/ibvmig-many-rest-XXXXXX";
	uint64_t seconds = SECONDS;
	unsigned rounds = 0;
	bool ok;

	daemon_set_heap();
	took_us = calloc(SECONDS_MAX * RATE, sizeof *took_us);
	if ((argc > 1 && parse_u64(argv[1], 1, SECONDS_MAX / 2, &seconds)) || !took_us ||
	    !mkdtemp(dir) || !mkdtemp(run)) {
		fprintf(stderr, "usage: %s [SECONDS]\n", argv[0]);
		return 2;
	}
	sim_run_dir = run;
	log_init("many_rest");
	log_set_level((enum log_level)0);
	ok = play(dir, seconds, &rounds);
	if (ok)
		report(rounds);
	else
		fprintf(stderr, "%s\n", sim_wrong);
	nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	nftw(run, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	return !ok;
}
