/* SPDX-License-Identifier: GPL-2.0-or-later */
/* 64 complete migrations at once in one world (tests/sim/world.h). They go in both directions
 * between two hosts and from both to a third, by turns there and back. A migration has a peer of
 * its own, or several have the same. Each scene has another order of starts, messages and workers,
 * which is the same in each run with its seed. After each round all of the 64 must be right, and
 * once more they all move.
 *
 * Without arguments each scene with its own seed; SCENE: one; `seeds FIRST LAST [SCENE]`: each, or
 * this one, with each of these. */
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/lost.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"
#include "tests/sim/use.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOVERS   64
#define WHILE_US (2 * SIM_S) /* from the first start to the last arrival, about */
#define ABORT_US SIM_S       /* after its start, at most */
#define DOWN_US  (2 * SIM_S)
#define KEPT     100 /* records in a journal: four rounds reach it everywhere */

/* A mover has a home, a host where it goes, and a host of its peer: elsewhere, at its destination,
 * or at its source. */
static const struct way {
	int home, away, peer;
} ways[] = {
	{HOST_A, HOST_B, HOST_C}, {HOST_B, HOST_A, HOST_C}, {HOST_A, HOST_D, HOST_C},
	{HOST_B, HOST_D, HOST_C}, {HOST_A, HOST_B, HOST_B}, {HOST_B, HOST_A, HOST_B},
	{HOST_A, HOST_D, HOST_A}, {HOST_B, HOST_D, HOST_A},
};

struct many {
	uint32_t seed;
	unsigned ways;                /* the first of them */
	unsigned peers;               /* number for all movers together; 0: as many as they are */
	uint64_t start_us, jitter_us; /* starts, and messages, within that */
	unsigned rounds;
	void (*strike)(void); /* in the first round; NULL: nothing */
	bool any_end;         /* a migration that was struck may end in any way */
	unsigned flat_after;  /* rounds; more of them need no more; 0: not looked at */
};

static struct one {
	struct sim_guest *guest; /* NULL: it is no mover's */
	const struct way *way;
	bool aborted;
} movers[SIM_GUESTS];       /* by sim_index() */
static unsigned abort_each; /* a migration in so many is aborted; 0: none */
static unsigned at_once;
static unsigned waited; /* looks at a migration that waits for another one to give its peer back */
static unsigned struck; /* migrations under way where a fault came */

static struct one *one_of(const struct sim_guest *g)
{
	return &movers[sim_index(g)];
}

#define EACH(one)                                                                                  \
	for (struct one *one = movers; one < movers + SIM_GUESTS; one++)                           \
		if (one->guest)

/* ---- faults ---- */

static void count_struck(int host)
{
	EACH(one)
	{
		const struct sim_migration *m = &one->guest->migration;

		struck += m->under_way && (m->from == host || m->to == host);
	}
}

static void abort_one(void *arg)
{
	struct sim_guest *g = arg;

	one_of(g)->aborted = sim_abort(g, g->migration.from);
	struck += one_of(g)->aborted;
}

static void abort_some(void)
{
	abort_each = 3;
}

static void daemon_back(void *arg)
{
	sim_daemon_start((int)(intptr_t)arg);
}

static void kill_daemon(void *arg)
{
	count_struck((int)(intptr_t)arg);
	sim_daemon_kill((int)(intptr_t)arg);
	sim_after(NULL, DOWN_US, daemon_back, arg);
}

/* Kills every daemon once, perhaps several at a time. */
static void kill_daemons(void)
{
	for (int h = 0; h < (int)sim_size.hosts; h++)
		sim_after(NULL, sim_random(WHILE_US), kill_daemon, (void *)(intptr_t)h);
}

static void lose_d(void *arg)
{
	(void)arg;
	count_struck(HOST_D);
	sim_lost_strike(HOST_D);
}

static void lose_destination(void)
{
	sim_after(NULL, WHILE_US / 4 + sim_random(WHILE_US / 2), lose_d, NULL);
}

/* ---- a round ---- */

static void start_one(void *arg)
{
	struct sim_guest *g = arg;
	const struct way *w = one_of(g)->way;
	int from = sim_home(g);

	sim_migrate(g, from, from == w->home ? w->away : w->home);
	if (abort_each && (one_of(g) - movers) % abort_each == 0)
		sim_after(NULL, sim_random(ABORT_US), abort_one, g);
}

static void count_waiting(const struct daemon *d)
{
	for (const struct migration *m = d->migrations; m && waited < MOVERS; m = m->next)
		waited += m->step.busy;
}

static void watch(void)
{
	unsigned n = 0;

	sim_never();
	EACH(one)
	n += one->guest->migration.under_way;
	if (n > at_once)
		at_once = n;
	for (unsigned h = 0; h < sim_size.hosts; h++)
		count_waiting(&sim_hosts[h].d);
}

static bool settles(void)
{
	return sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) &&
	       sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) && !*sim_broken;
}

static void start_all(const struct many *m)
{
	EACH(one)
	sim_after(NULL, sim_random(m->start_us), start_one, one->guest);
}

/* Every VM has moved but those that were aborted. */
static bool ends_right(void)
{
	EACH(one)
	{
		const struct sim_migration *m = &one->guest->migration;

		if (sim_home(one->guest) != (one->aborted ? m->from : m->to))
			return sim_is_wrong("%s is on host %d, from %d to %d%s: %.300s",
					    one->guest->name, sim_home(one->guest), m->from, m->to,
					    one->aborted ? ", aborted" : "", m->error);
	}
	return true;
}

static bool play_round(const struct many *m)
{
	abort_each = 0;
	EACH(one)
	one->aborted = false;
	start_all(m);
	sim_run(NULL, NULL, sim_us() + WHILE_US, watch);
	return settles() && ends_right();
}

static bool play_struck(const struct many *m)
{
	unsigned commands = 0;

	m->strike();
	start_all(m);
	sim_run(NULL, NULL, sim_us() + WHILE_US, watch);
	if (sim_lost_host >= 0 && !sim_lost_play(&commands))
		return false;
	printf("# %u migrations struck, %u commands\n", struck, commands);
	return settles() && (m->any_end || ends_right()) &&
	       (struck || sim_is_wrong("the fault came too late"));
}

/* ---- scenes ---- */

/* The first is there, with its peer. */
static void add_mover(unsigned i, const struct way *w, unsigned peers)
{
	static struct sim_guest *of[MOVERS];
	struct sim_guest *g = !i          ? &sim_guests[0]
			      : i < peers ? sim_add_pair(w->home, w->peer)
					  : sim_add_mover(w->home, of[i % peers]);

	of[i] = g->other;
	movers[sim_index(g)] = (struct one){.guest = g, .way = w};
}

static bool start(const struct many *m, const char *dir)
{
	sim_size.hosts = 4;
	sim_size.vfs = SIM_VFS;
	sim_size.kept = KEPT;
	sim_mover.strategy = "late";
	for (unsigned i = 0; i < MOVERS; i++)
		add_mover(i, &ways[i % m->ways], m->peers ? m->peers : MOVERS);
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_seed(m->seed);
	sim_net.jitter_us = m->jitter_us;
	return true;
}

static bool play(const void *arg, const char *dir)
{
	const struct many *m = arg;
	struct sim_use before = {0}, end;

	if (!start(m, dir) || (m->strike && !play_struck(m)))
		return false;
	for (unsigned i = 0; i < m->rounds; i++) {
		if (!play_round(m))
			return false;
		if (i + 1 == m->flat_after)
			before = sim_use();
	}
	end = sim_use();
	if (m->peers && waited < MOVERS)
		return sim_is_wrong("none had to wait for its peer");
	if (!m->start_us && at_once < MOVERS)
		return sim_is_wrong("only %u at once", at_once);
	return !m->flat_after || sim_use_is_flat(&before, &end);
}

#define MANY(...) (&(const struct many){__VA_ARGS__})
#define ANY_ORDER .ways = ARRAY_SIZE(ways), .start_us = SIM_S, .jitter_us = 50 * SIM_MS

static const struct sim_scene scenes[] = {
	{"all at the same moment, between two hosts", play,
	 MANY(.seed = 1, .ways = 2, .jitter_us = 2 * SIM_MS, .rounds = 2)},
	{"some are aborted", play, MANY(.seed = 3, ANY_ORDER, .rounds = 1, .strike = abort_some)},
	{"each ibvmigd dies meanwhile", play,
	 MANY(.seed = 4, ANY_ORDER, .rounds = 1, .strike = kill_daemons, .any_end = true)},
	{"a destination is lost", play,
	 MANY(.seed = 5, ANY_ORDER, .rounds = 1, .strike = lose_destination, .any_end = true)},
	{"each ibvmigd dies meanwhile, in another order", play,
	 MANY(.seed = 14, ANY_ORDER, .rounds = 1, .strike = kill_daemons, .any_end = true)},
	{"a destination is lost, in another order", play,
	 MANY(.seed = 15, ANY_ORDER, .rounds = 1, .strike = lose_destination, .any_end = true)},
	{"eight of them share a peer", play, MANY(.seed = 7, ANY_ORDER, .peers = 8, .rounds = 2)},
	{"all share a peer", play, MANY(.seed = 8, ANY_ORDER, .peers = 1, .rounds = 1)},
	{"in any order, again and again, and nothing grows", play,
	 MANY(.seed = 6, ANY_ORDER, .rounds = 6, .flat_after = 4)},
};

/* Plays each scene, or the one of this name, with each of these seeds. */
static int sweep(uint64_t first, uint64_t last, const char *only)
{
	size_t n = 0, count = ARRAY_SIZE(scenes) * (size_t)(last - first + 1);
	struct sim_scene *all AUTO_FREE = calloc(count, sizeof *all);
	struct many *many AUTO_FREE = calloc(count, sizeof *many);
	char *program[] = {"daemon_many", NULL};

	for (uint64_t seed = first; seed <= last; seed++) {
		for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
			if (only && strcmp(only, scenes[i].name))
				continue;
			many[n] = *(const struct many *)scenes[i].arg;
			many[n].seed = (uint32_t)seed;
			all[n] = (struct sim_scene){
				.name = strf("%s, seed %" PRIu64, scenes[i].name, seed),
				.play = play,
				.arg = &many[n]};
			n++;
		}
	}
	return sim_scenes(all, n, 1, program);
}

int main(int argc, char **argv)
{
	uint64_t first, last;

	if (argc < 4 || argc > 5 || strcmp(argv[1], "seeds"))
		return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
	if (parse_u64(argv[2], 0, UINT32_MAX, &first) ||
	    parse_u64(argv[3], first, UINT32_MAX, &last)) {
		fprintf(stderr, "seeds are numbers, the second not below the first\n");
		return 2;
	}
	return sweep(first, last, argv[4]);
}
