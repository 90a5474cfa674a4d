/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Pre-copy before a hold, of guests that write while they are copied, on simulated hosts
 * (tests/sim/world.h). QEMU sends what is left then while the VF is away, so pre-copy must go far
 * enough. */
#include "tests/sim/operator.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* QEMU keeps the VM while the VF is there (x-late-detach), or does not. */
static const struct scene {
	const char *name;
	struct sim_mover mover;
	uint64_t least, most;               /* bytes that are left when it is held */
	unsigned passes_least, passes_most; /* the pass in which it is */
	unsigned outage_ms;                 /* at most; 0: as it comes */
} scenes[] = {
	{"a guest that writes nothing, kept",
	 {.strategy = "late", .ram_bytes = 4 * GIB, .pre_attach = true},
	 6 * MIB,
	 16 * MIB,
	 2,
	 2,
	 400},
	{"a guest that writes 50 MiB/s, kept",
	 {.strategy = "late",
	  .ram_bytes = 16 * GIB,
	  .writes_per_s = 50 * MIB,
	  .writes_to = 4 * GIB,
	  .pre_attach = true},
	 6 * MIB,
	 300 * MIB,
	 3,
	 8,
	 400},
	/* Nobody waits for what the link cannot reach. */
	{"a guest that writes 800 MiB/s, kept",
	 {.strategy = "late",
	  .ram_bytes = 4 * GIB,
	  .writes_per_s = 800 * MIB,
	  .writes_to = 4 * GIB,
	  .pre_attach = true},
	 3 * GIB,
	 5 * GIB,
	 2,
	 2,
	 0},
	{"a guest that writes 50 MiB/s, not kept",
	 {.strategy = "late",
	  .ram_bytes = 16 * GIB,
	  .writes_per_s = 50 * MIB,
	  .writes_to = 4 * GIB},
	 6 * MIB,
	 8 * MIB,
	 1,
	 1,
	 0},
	/* virsh migrate --compressed: what is left is told in neither pages nor bandwidth. */
	{"a guest that writes 50 MiB/s, --compressed by XBZRLE, kept",
	 {.strategy = "late",
	  .ram_bytes = 16 * GIB,
	  .writes_per_s = 50 * MIB,
	  .writes_to = 4 * GIB,
	  .compresses = SIM_XBZRLE,
	  .pre_attach = true},
	 6 * MIB,
	 8 * MIB,
	 1,
	 1,
	 0},
	{"a guest that writes 50 MiB/s, --compressed by threads, kept",
	 {.strategy = "late",
	  .ram_bytes = 16 * GIB,
	  .writes_per_s = 50 * MIB,
	  .writes_to = 4 * GIB,
	  .compresses = SIM_COMPRESS,
	  .pre_attach = true},
	 6 * MIB,
	 8 * MIB,
	 1,
	 1,
	 0},
	/* QEMU asks in the middle of later passes, too, what is dirty: here of the second. */
	{"a guest that writes 520 MiB/s, with auto-converge, kept",
	 {.strategy = "late",
	  .ram_bytes = 16 * GIB,
	  .writes_per_s = 520 * MIB,
	  .writes_to = 16 * GIB,
	  .converges = true,
	  .pre_attach = true},
	 6 * MIB,
	 3 * GIB,
	 5,
	 20,
	 7000},
};

static struct sim_guest *const mover = &sim_guests[0];

static bool within(const char *what, uint64_t n, uint64_t least, uint64_t most)
{
	return (n >= least && n <= most) ||
	       sim_is_wrong("%s: %" PRIu64 ", not %" PRIu64 " to %" PRIu64, what, n, least, most);
}

static bool ends(int home)
{
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) || *sim_broken)
		return false;
	return sim_home(mover) == home ||
	       sim_is_wrong("it is on host %d: %.300s", sim_home(mover), mover->migration.error);
}

static bool play(const void *arg, const char *dir)
{
	const struct scene *s = arg;
	struct json_object *r AUTO_JSON = NULL, *data;
	uint64_t passes, left, outage_ms;

	sim_mover = s->mover;
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!ends(HOST_B))
		return false;
	r = sim_record_json();
	data = json_opt(r, "data");
	passes = json_opt_u64(data, "hold_passes", 0);
	left = json_opt_u64(data, "hold_remaining_bytes", 0);
	outage_ms = json_opt_u64(data, "outage_us", 0) / 1000;
	printf("# %s: held after %" PRIu64 " ms in pass %" PRIu64 ", %" PRIu64
	       " MiB left, outage %" PRIu64 " ms\n",
	       s->name, json_opt_u64(data, "hold_us", 0) / 1000, passes, left / MIB, outage_ms);
	return within("the pass", passes, s->passes_least, s->passes_most) &&
	       within("what is left", left, s->least, s->most) &&
	       within("the outage", outage_ms, 1, s->outage_ms ? s->outage_ms : UINT64_MAX);
}

/* ---- nobody keeps memory dirty where a pass ends ---- */

static bool pass_ends(void *arg)
{
	struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];

	(void)arg;
	return mover->migration.under_way && q->passes == 1 && q->remaining < 2 * MIB;
}

static bool play_agent_dies(const void *arg, const char *dir)
{
	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "late", .ram_bytes = GIB, .pre_attach = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(pass_ends, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the first pass does not end");
	sim_guest_agent_kill(mover, 30 * SIM_S);
	return ends(HOST_A) && (!mover->migration.ok || sim_is_wrong("it says that it has moved"));
}

#define STOPS_S 14

static bool half_is_sent(void *arg)
{
	struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];

	(void)arg;
	return mover->migration.under_way && q->passes == 1 &&
	       q->remaining < sim_mover.ram_bytes / 2;
}

/* The agent answers again some seconds after the pass would have ended. */
static bool play_agent_stops(const void *arg, const char *dir)
{
	struct json_object *r AUTO_JSON = NULL;

	(void)arg;
	sim_mover = (struct sim_mover){
		.strategy = "late", .ram_bytes = 16 * GIB, .pre_attach = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(half_is_sent, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the first pass does not begin");
	mover->agent_stopped_until_us = sim_us() + STOPS_S * SIM_S;
	if (!ends(HOST_B))
		return false;
	r = sim_record_json();
	return within("the pass", json_opt_u64(json_opt(r, "data"), "hold_passes", 0), 1, 1);
}

/* ---- virsh migrate-setmaxdowntime in HOLD ---- */

#define USERS_MS 777

static bool is_released(void *arg)
{
	(void)arg;
	return sim_hosts[HOST_A].d.migrations->rec.state > M_SWITCH || !mover->migration.under_way;
}

/* With it QEMU could stop the guest where a pass ends, for all that the ballast is. */
static bool play_downtime(const void *arg, const char *dir)
{
	struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];

	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "late", .ram_bytes = GIB, .pre_attach = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(half_is_sent, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the first pass does not begin");
	q->downtime_ms = USERS_MS;
	return sim_run(is_released, NULL, sim_us() + 60 * SIM_S, sim_never) &&
	       within("the limit after the release", q->downtime_ms, USERS_MS, USERS_MS) &&
	       ends(HOST_B);
}

int main(int argc, char **argv)
{
	struct sim_scene list[ARRAY_SIZE(scenes) + 3];

	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++)
		list[i] = (struct sim_scene){scenes[i].name, play, &scenes[i]};
	list[ARRAY_SIZE(scenes)] = (struct sim_scene){"an agent that dies where a pass ends, kept",
						      play_agent_dies, NULL};
	list[ARRAY_SIZE(scenes) + 1] = (struct sim_scene){
		"an agent that does not answer where a pass would end", play_agent_stops, NULL};
	list[ARRAY_SIZE(scenes) + 2] = (struct sim_scene){"a downtime limit of the user's",
							  play_downtime, NULL};
	return sim_scenes(list, ARRAY_SIZE(list), argc, argv);
}
