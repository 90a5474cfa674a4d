/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A drain of a host with many VMs asks ibvmig-sm, on simulated hosts (tests/sim/world.h), for as
 * many moves at once as VMs may migrate at once. ibvmig-sm makes batches of those
 * (tests/integration/fabric/plan), which it could not do with moves that come one after the
 * other. */
#include "common/json.h"
#include "common/util.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <string.h>

#define MOVERS  16
#define VFS     40    /* a host has room for all movers, and for their peers */
#define MOVE_US SIM_S /* longer than the VMs' last passes differ */
#define DRAIN_S 300

static bool answered, drained;
static uint64_t number;

static void heard(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	answered = true;
	number = json_opt_u64(answer, "drain", 0);
	drained = str_eq(json_opt_str(answer, "state", ""), "done");
	if (rc)
		sim_is_wrong("refused: %.300s", error);
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answered;
}

/* body: owned by the call, or NULL. */
static bool ask(const char *method, const char *path, struct json_object *body)
{
	struct json_object *owned AUTO_JSON = body;

	answered = false;
	sim_http(HOST_A, sim_hosts[HOST_A].url, method, path, owned, 30000, heard, NULL);
	return sim_run(has_answered, NULL, sim_us() + 60 * SIM_S, sim_never) && !*sim_broken;
}

/* Drains all VMs of hosta, so many at once; false: it does not end well. */
static bool drain(unsigned parallel)
{
	struct json_object *body = json_object_new_object();
	uint64_t until = sim_us() + DRAIN_S * SIM_S;
	char path[40];

	json_set_str(body, "host", "hosta");
	json_set_u64(body, "parallel", parallel);
	if (!ask("POST", "/v1/drains", body) || !number)
		return false;
	snprintf(path, sizeof path, "/v1/drains/%llu", (unsigned long long)number);
	while (ask("GET", path, NULL) && !drained && sim_us() < until)
		sim_run(NULL, NULL, sim_us() + SIM_S, sim_never);
	return drained || sim_is_wrong("the drain does not end: %s", strdupa(sim_wrong));
}

static bool start(const char *dir)
{
	sim_size.vfs = 2 * VFS;
	sim_mover = (struct sim_mover){.strategy = "late"};
	for (unsigned i = 1; i < MOVERS; i++)
		sim_add_pair(HOST_A, HOST_C);
	return sim_world_start(dir) && sim_all_right(NULL);
}

/* A call for each VM, none of which waits for another one's answer. */
static bool play(const void *arg, const char *dir)
{
	const unsigned *parallel = arg;

	if (!start(dir))
		return false;
	sim_fabric.move_us = MOVE_US;
	if (!drain(*parallel) || !sim_all_right(NULL))
		return false;
	if (sim_fabric.moves != MOVERS)
		return sim_is_wrong("%u moves of %d VMs", sim_fabric.moves, MOVERS);
	return sim_fabric.asked_most == *parallel ||
	       sim_is_wrong("at most %u moves are asked for at once, with %u migrations",
			    sim_fabric.asked_most, *parallel);
}

static const struct sim_scene scenes[] = {
	{"16 VMs, 16 at once", play, &(const unsigned){16}},
	{"16 VMs, 4 at once", play, &(const unsigned){4}},
	{"16 VMs, one after the other", play, &(const unsigned){1}},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
