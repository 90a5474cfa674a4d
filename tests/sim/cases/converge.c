/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A lasting hold of a migration with auto-converge, on simulated hosts (tests/sim/world.h). QEMU
 * has hardly throttled the guest. After the release QEMU has what the user has set; on each way
 * back it has what it had before. */
#include "tests/sim/operator.h"
#include "common/util.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <string.h>

#define HOLDS_S      40 /* less than a source waits for a peer */
#define PARKED_S     160
#define THROTTLE_MAX 5 /* percent */
#define RESERVATION                                                                                \
	"{\"migration\":\"another\",\"vguids\":[],\"url\":\"\",\"guids\":[\"0x%016" PRIx64 "\"]}"

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

static struct sim_qemu *source_qemu(void)
{
	return &sim_hosts[HOST_A].qemus[0];
}

static struct migration *newest(void)
{
	return sim_hosts[HOST_A].d.migrations;
}

static bool is(struct qmp_throttle t)
{
	const struct qmp_throttle *now = &source_qemu()->throttle_by;

	return (now->initial == t.initial && now->increment == t.increment) ||
	       sim_is_wrong("QEMU throttles by %u and then %u", (unsigned)now->initial,
			    (unsigned)now->increment);
}

static bool is_in(void *arg)
{
	return newest() && newest()->rec.state == *(const enum migrate_state *)arg;
}

static bool reaches(enum migrate_state state, unsigned s)
{
	return sim_run(is_in, &state, sim_us() + s * SIM_S, sim_never) ||
	       sim_is_wrong("%s is not reached", migrate_state_name(state));
}

/* Another migration has the peer for so long. */
static bool holds(void)
{
	char *body AUTO_FREE = strf(RESERVATION, peer->vguids[0]);

	if (!sim_ask(HOST_C, "POST", "/v1/peer/reserve", body))
		return sim_is_wrong("no reservation: %s", sim_refusal);
	sim_migrate(mover, HOST_A, HOST_B);
	if (!reaches(M_QUIESCE, 60))
		return false;
	sim_run(NULL, NULL, sim_us() + HOLDS_S * SIM_S, sim_never);
	return newest()->rec.state == M_QUIESCE ||
	       sim_is_wrong("it is in %s: %.200s", migrate_state_name(newest()->rec.state),
			    newest()->rec.reason);
}

static bool frees_peer(void)
{
	return sim_ask(HOST_C, "POST", "/v1/peer/release", "{\"migration\":\"another\"}") ||
	       sim_is_wrong("no release: %s", sim_refusal);
}

static bool ends(int home)
{
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) || *sim_broken)
		return false;
	return sim_home(mover) == home || sim_is_wrong("it is on host %d", sim_home(mover));
}

static bool start(const char *dir, const struct sim_mover *how)
{
	sim_mover = *how;
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool moves(void)
{
	sim_migrate(mover, HOST_A, HOST_B);
	return ends(HOST_B);
}

static bool play_goes(const void *arg, const char *dir)
{
	if (!start(dir, arg) || !holds() || !is((struct qmp_throttle){1, 1}))
		return false;
	if (!source_qemu()->throttle || source_qemu()->throttle > THROTTLE_MAX)
		return sim_is_wrong("the guest is throttled by %u%%",
				    (unsigned)source_qemu()->throttle);
	return frees_peer() && ends(HOST_B) && is(SIM_ASKED_THROTTLE);
}

/* Nothing is set where QEMU does not throttle, or is not held. */
static bool play_left_alone(const void *arg, const char *dir)
{
	const struct sim_mover *how = arg;

	if (!start(dir, how))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	return reaches(M_SWITCH, 60) && is(how->converges ? SIM_ASKED_THROTTLE : SIM_THROTTLE) &&
	       ends(HOST_B);
}

/* ---- the ways back, and once more ---- */

static bool aborts(void)
{
	return sim_abort(mover, HOST_A) || sim_is_wrong("there is no job");
}

static bool restarts(void)
{
	sim_daemon_kill(HOST_A);
	sim_daemon_start(HOST_A);
	return true;
}

static bool is_parked(void)
{
	source_qemu()->job_hangs = true;
	if (!restarts() || !reaches(M_PARKED, PARKED_S))
		return false;
	source_qemu()->job_hangs = false;
	return aborts();
}

static bool loses_libvirtd(void)
{
	sim_libvirtd_kill(HOST_A, 3 * SIM_S);
	return true;
}

static bool cannot_quiesce(void)
{
	peer->agent_stopped_until_us = sim_us() + 60 * SIM_S;
	return true;
}

static const struct way_back {
	const char *name;
	bool (*begin)(void);
} ways_back[] = {
	{"auto-converge: aborted in the hold", aborts},
	{"auto-converge: the source's ibvmigd is restarted in the hold", restarts},
	{"auto-converge: PARKED, QEMU's job ends later", is_parked},
	{"auto-converge: the source's libvirtd dies in the hold", loses_libvirtd},
	{"auto-converge: QUIESCE is walked back", cannot_quiesce},
};

static bool play_way_back(const void *arg, const char *dir)
{
	const struct way_back *w = arg;

	return start(dir, &(struct sim_mover){.strategy = "late", .converges = true}) && holds() &&
	       is((struct qmp_throttle){1, 1}) && w->begin() && frees_peer() && ends(HOST_A) &&
	       is(SIM_THROTTLE) && moves() && is(SIM_ASKED_THROTTLE);
}

static const struct sim_mover late = {.strategy = "late", .converges = true},
			      plain = {.strategy = "late"},
			      early = {.strategy = "early", .converges = true},
			      native = {.strategy = "native",
					.migrates_state = true,
					.converges = true};

int main(int argc, char **argv)
{
	struct sim_scene scenes[4 + ARRAY_SIZE(ways_back)] = {
		{"auto-converge: late", play_goes, &late},
		{"no auto-converge", play_left_alone, &plain},
		{"auto-converge: early", play_left_alone, &early},
		{"auto-converge: native", play_left_alone, &native},
	};

	for (size_t i = 0; i < ARRAY_SIZE(ways_back); i++)
		scenes[4 + i] = (struct sim_scene){ways_back[i].name, play_way_back, &ways_back[i]};
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
