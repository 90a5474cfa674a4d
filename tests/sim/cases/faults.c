/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fault matrix: each state of a migration, with each fault at its beginning and a while later,
 * on simulated hosts (tests/sim/world.h). After each the world must be right again, or a PARKED
 * record names the command that makes it so, and it does; then the VM must migrate once more.
 *
 * Without arguments each pair of state and fault once for each strategy, `all` at each of
 * its moments, `STRATEGY FAULT STATE MS` one cell, with its log. The results are in
 * $BUILD/bench/faults.json (build/ by default), those of a part of the matrix in faults-part.json.
 */
#include "common/util.h"
#include "tests/sim/cells.h"
#include "tests/sim/lost.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"
#include "tests/sim/cases/faults_cold.h"

#define STAY_S  120
#define RIGHT_S 240
#define REACH_S 200

static struct sim_guest *const mover = &sim_guests[0];

/* ---- states ---- */

enum scenario {
	PLAIN,        /* a migration that nothing disturbs */
	ABORTED_LATE, /* the user aborts it while the addresses move */
	PARKED_THERE, /* QEMU at the destination has no device, and takes none */
	PARKED_HERE,  /* aborted, and the source's VF has vanished */
};

static const struct sim_point points[] = {
	{"PREPARE", ROLE_SOURCE, M_PREPARE, false, PLAIN, NULL},
	{"HOLD", ROLE_SOURCE, M_HOLD, false, PLAIN, NULL},
	{"QUIESCE", ROLE_SOURCE, M_QUIESCE, false, PLAIN, NULL},
	{"DETACH", ROLE_SOURCE, M_DETACH, false, PLAIN, NULL},
	{"SWITCH", ROLE_SOURCE, M_SWITCH, false, PLAIN, NULL},
	{"ATTACH", ROLE_SOURCE, M_ATTACH, false, PLAIN, NULL},
	{"RESUME", ROLE_SOURCE, M_RESUME, false, PLAIN, NULL},
	{"DONE", ROLE_SOURCE, M_DONE, false, PLAIN, NULL},
	{"CANCEL", ROLE_SOURCE, M_CANCEL, false, ABORTED_LATE, NULL},
	{"undo-SWITCH", ROLE_SOURCE, M_SWITCH, true, ABORTED_LATE, NULL},
	{"undo-DETACH", ROLE_SOURCE, M_DETACH, true, ABORTED_LATE, NULL},
	{"undo-QUIESCE", ROLE_SOURCE, M_QUIESCE, true, ABORTED_LATE, NULL},
	{"undo-HOLD", ROLE_SOURCE, M_HOLD, true, ABORTED_LATE, NULL},
	{"undo-PREPARE", ROLE_SOURCE, M_PREPARE, true, ABORTED_LATE, NULL},
	{"ABORTED", ROLE_SOURCE, M_ABORTED, true, ABORTED_LATE, NULL},
	{"PARKED", ROLE_SOURCE, M_PARKED, true, PARKED_HERE, NULL},
	{"dst-PREPARE", ROLE_DESTINATION, M_PREPARE, false, PLAIN, NULL},
	{"dst-SWITCH", ROLE_DESTINATION, M_SWITCH, false, PLAIN, NULL},
	{"dst-ATTACH", ROLE_DESTINATION, M_ATTACH, false, PLAIN, NULL},
	{"dst-RESUME", ROLE_DESTINATION, M_RESUME, false, PLAIN, NULL},
	{"dst-DONE", ROLE_DESTINATION, M_DONE, false, PLAIN, NULL},
	{"dst-undo-SWITCH", ROLE_DESTINATION, M_SWITCH, true, ABORTED_LATE, NULL},
	{"dst-undo-PREPARE", ROLE_DESTINATION, M_PREPARE, true, ABORTED_LATE, NULL},
	{"dst-ABORTED", ROLE_DESTINATION, M_ABORTED, true, ABORTED_LATE, NULL},
	{"dst-PARKED", ROLE_DESTINATION, M_PARKED, false, PARKED_THERE, NULL},
};

static bool in_state(enum migrate_role role, enum migrate_state state, bool back)
{
	struct migration *m = sim_record(role == ROLE_SOURCE ? HOST_A : HOST_B, role);

	return m && m->rec.state == state && m->rec.back == back;
}

static void abort_late(void *arg)
{
	(void)arg;
	if (in_state(ROLE_DESTINATION, M_SWITCH, false) && sim_abort(mover, HOST_A))
		return;
	sim_after(NULL, SIM_MS, abort_late, NULL);
}

static void set_scene(enum scenario s)
{
	if (s == ABORTED_LATE || s == PARKED_HERE)
		sim_after(NULL, SIM_MS, abort_late, NULL);
	if (s == PARKED_THERE)
		sim_hosts[HOST_B].device_add_fails = sim_mover.starts_empty = true;
	if (s == PARKED_HERE)
		sim_hosts[HOST_A].device_add_fails = true;
}

/* ---- one cell ---- */

static bool settle(struct sim_result *r)
{
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	sim_mend_all();
	if (sim_virsh_mends() &&
	    !sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	for (int tries = 0; tries < 3; tries++) {
		if (sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never))
			return true;
		if (!sim_resolve_all(&r->parked) || sim_resolve_was_refused())
			return false;
	}
	return false;
}

static bool migrate_again(void)
{
	int from = sim_home(mover), to = from == HOST_A ? HOST_B : HOST_A;

	sim_migrate(mover, from, to);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	if (!mover->migration.ok)
		return sim_is_wrong("the next migration fails: %.300s", mover->migration.error);
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
}

static bool keeps_promise(const struct sim_fault *f, const struct sim_point *p,
			  const struct sim_result *r)
{
	enum sim_promise promise = f && p->scenario == PLAIN ? f->promise : PROMISE_NONE;
	bool before = p->role == ROLE_SOURCE && p->state <= M_DETACH;

	if (promise == PROMISE_ARRIVES && (!r->moved || r->parked))
		return sim_is_wrong("it was given up for an event: %.200s", mover->migration.error);
	if (promise == PROMISE_STAYS && before && (r->moved || r->parked))
		return sim_is_wrong("it went on without its journal");
	return true;
}

static bool play(const struct sim_fault *f, const struct sim_point *p, unsigned delay_ms,
		 struct sim_result *r)
{
	uint64_t start = sim_us();

	set_scene(p->scenario);
	sim_migrate(mover, HOST_A, HOST_B);
	r->reached = sim_run(sim_at_point, (void *)(uintptr_t)p, start + REACH_S * SIM_S,
			     sim_never);
	if (!r->reached)
		return sim_is_wrong("the state was not reached");
	sim_run(NULL, NULL, sim_us() + delay_ms * SIM_MS, sim_never);
	sim_strike(f, r);
	if (sim_source_lost) {
		bool right = sim_lost_source_play(&r->parked);

		r->dead = sim_home(mover) < 0;
		r->moved = sim_home(mover) == HOST_B;
		return right;
	}
	start = sim_us();
	if (sim_destination_lost ? !sim_lost_play(&r->parked) : !settle(r))
		return false;
	r->seconds = (double)(sim_us() - start) / 1e6;
	r->moved = sim_home(mover) == HOST_B;
	r->dead = sim_home(mover) < 0;
	if (!keeps_promise(f, p, r))
		return false;
	/* The world stays right, too. */
	sim_run(NULL, NULL, sim_us() + STAY_S * SIM_S, sim_never);
	return sim_all_right(NULL) && (r->dead || migrate_again());
}

#define LIVE(...)                                                                                  \
	.mover = {__VA_ARGS__}, .points = points, .point_count = ARRAY_SIZE(points), .play = play

#define COLD(...)                                                                                  \
	.mover = {__VA_ARGS__}, .points = faults_cold_points, .point_count = FAULTS_COLD_POINTS,   \
	.cold = true, .play = faults_cold_play

/* The whole matrix of faults is played with each of these. */
static const struct sim_strategy strategies[] = {
	{.name = "late", LIVE(.strategy = "late")},
	{.name = "early", LIVE(.strategy = "early")},
	{.name = "native",
	 LIVE(.strategy = "native", .migrates_state = true),
	 .not_parked = "the scenarios are a QEMU that takes no device, and it is given none"},
	{.name = "late-two-vfs", LIVE(.strategy = "late", .two_vfs = true), .sparse = true},
	{.name = "late-pre-attached", LIVE(.strategy = "late", .pre_attach = true), .sparse = true},
	{.name = "cold", COLD(.strategy = "auto")},
	{.name = "cold-two-vfs", COLD(.strategy = "auto", .two_vfs = true), .sparse = true},
};

int main(int argc, char **argv)
{
	return sim_cells(strategies, ARRAY_SIZE(strategies), argc, argv);
}
