/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Cancelled migrations that do not end, on simulated hosts (tests/sim/world.h). The record is
 * PARKED in time, with the reason, and the daemon finds out without an operator how QEMU's job ends
 * later. Afterwards the world must be right (tests/sim/right.h). */
#include "tests/sim/right.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/scene.h"
#include "tests/sim/virt.h"

#include <string.h>

#define PARKED_S 160 /* 60 s in CANCEL, 90 s of tries, and a little */
#define UNDONE_S 190 /* HOLD has 90 s, and its undo as many */

static struct sim_guest *const mover = &sim_guests[0];

/* The job's end, which comes after the record was PARKED. */
enum job_end { END_CANCELLED, END_COMPLETED, END_KILLED };

/* News of that end which the source's daemon gets. */
enum news { NEWS_EVENTS, NEWS_NONE, NEWS_RESTART };

struct hang {
	enum migrate_state state; /* in which the source's ibvmigd is restarted, and cancels */
	enum job_end end;
	enum news news;
	int home; /* the VM's host then, -1: nowhere */
};

static struct migration *newest(void)
{
	return sim_hosts[HOST_A].d.migrations;
}

static struct sim_qemu *source_qemu(void)
{
	return &sim_hosts[HOST_A].qemus[0];
}

static bool is_in(void *arg)
{
	const enum migrate_state *state = arg;

	return newest() && newest()->rec.state == *state && source_qemu()->job == QJOB_ACTIVE;
}

static bool wait_for(enum migrate_state state, unsigned s)
{
	return sim_run(is_in, &state, sim_us() + s * SIM_S, sim_never) ||
	       sim_is_wrong("in %s, not %s", migrate_state_name(newest()->rec.state),
			    migrate_state_name(state));
}

/* A daemon that finds an open migration cancels it. */
static bool hangs_in(enum migrate_state state)
{
	sim_migrate(mover, HOST_A, HOST_B);
	if (!wait_for(state, 60))
		return false;
	source_qemu()->job_hangs = true;
	sim_daemon_kill(HOST_A);
	sim_daemon_start(HOST_A);
	return wait_for(M_CANCEL, 10);
}

static bool tells_way_out(void)
{
	return (strstr(newest()->rec.trouble, "QEMU's migration goes on") &&
		strstr(newest()->rec.trouble, "virsh domjobabort g1")) ||
	       sim_is_wrong("its reason is \"%s\"", newest()->rec.trouble);
}

static void ends(enum job_end how)
{
	source_qemu()->job_hangs = false;
	source_qemu()->bandwidth = 1000ull << 20;
	source_qemu()->downtime_ms = 300;
	if (how == END_CANCELLED)
		sim_abort(mover, HOST_A);
	else if (how == END_KILLED)
		sim_qemu_kill(mover, HOST_A);
}

static bool is_over(void *arg)
{
	(void)arg;
	return !mover->migration.under_way;
}

/* The job ends, and the source's ibvmigd hears of it as it may. */
static bool goes_on(const struct hang *h)
{
	sim_vm_may_be_dead = h->end == END_KILLED;
	if (h->news == NEWS_RESTART)
		sim_daemon_kill(HOST_A);
	if (h->news == NEWS_NONE)
		sim_libvirt.events = REPLIES_LOST;
	ends(h->end);
	if (!sim_run(is_over, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("QEMU's job does not end");
	sim_run(NULL, NULL, sim_us() + SIM_S, sim_never);
	sim_libvirt.events = REPLIES_WELL;
	if (h->news == NEWS_RESTART)
		sim_daemon_start(HOST_A);
	if (!sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) || *sim_broken)
		return false;
	return sim_home(mover) == h->home || sim_is_wrong("it is on host %d", sim_home(mover));
}

static bool start(const char *dir)
{
	sim_mover = (struct sim_mover){.strategy = "late"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool play_hangs(const void *arg, const char *dir)
{
	const struct hang *h = arg;

	return start(dir) && hangs_in(h->state) && wait_for(M_PARKED, PARKED_S) &&
	       tells_way_out() && goes_on(h);
}

/* Nothing is undone that QEMU still sends: it is cancelled once more. */
static bool play_resolved(const void *arg, const char *dir)
{
	static const struct hang then = {M_QUIESCE, END_CANCELLED, NEWS_EVENTS, HOST_A};

	(void)arg;
	if (!start(dir) || !hangs_in(M_QUIESCE) || !wait_for(M_PARKED, PARKED_S))
		return false;
	migrate_resolve(&sim_hosts[HOST_A].d, newest()->rec.id);
	if (newest()->rec.state != M_CANCEL)
		return sim_is_wrong("it goes on in %s", migrate_state_name(newest()->rec.state));
	return wait_for(M_PARKED, PARKED_S) && tells_way_out() && goes_on(&then);
}

#define HUNG_S 200 /* longer than all tries */
#define SOON_S 15  /* to look, and to walk back */

/* libvirtd does not cancel it in all the time, and then is itself again. */
static bool play_hung(const void *arg, const char *dir)
{
	struct sim_host *a = &sim_hosts[HOST_A];

	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!wait_for(*(const enum migrate_state *)arg, 60))
		return false;
	a->libvirtd_hangs = source_qemu()->job_hangs = true;
	if (!wait_for(M_PARKED, HUNG_S))
		return false;
	a->libvirtd_hangs = source_qemu()->job_hangs = false;
	return sim_run(sim_all_right, NULL, sim_us() + SOON_S * SIM_S, sim_never) && !*sim_broken &&
	       (sim_home(mover) == HOST_A || sim_is_wrong("it is on host %d", sim_home(mover)));
}

static bool is_raised(void *arg)
{
	(void)arg;
	return newest() && newest()->rec.state == M_HOLD && record_did(&newest()->rec, DID_RAISE);
}

static bool undoes_hold(void *arg)
{
	(void)arg;
	return newest() && newest()->rec.back && newest()->rec.state == M_HOLD;
}

static bool is_parked(void *arg)
{
	(void)arg;
	return newest()->rec.state == M_PARKED;
}

/* A call that libvirtd does not come back from counts as a failed one. */
static bool play_stands(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(is_raised, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("HOLD is not reached");
	sim_abort(mover, HOST_A);
	if (!sim_run(undoes_hold, NULL, sim_us() + 10 * SIM_S, sim_never))
		return sim_is_wrong("HOLD is not undone");
	sim_libvirtd_stop(HOST_A, (UNDONE_S + 20) * SIM_S);
	if (!sim_run(is_parked, NULL, sim_us() + UNDONE_S * SIM_S, sim_never))
		return sim_is_wrong("in %s", migrate_state_name(newest()->rec.state));
	if (!strstr(newest()->rec.trouble, "undo of HOLD was not done within 90 s"))
		return sim_is_wrong("its reason is \"%s\"", newest()->rec.trouble);
	migrate_resolve(&sim_hosts[HOST_A].d, newest()->rec.id);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken;
}

static const enum migrate_state held[] = {M_HOLD, M_QUIESCE};

static const struct hang hangs[] = {
	{M_HOLD, END_CANCELLED, NEWS_EVENTS, HOST_A},
	{M_QUIESCE, END_CANCELLED, NEWS_NONE, HOST_A},
	{M_DETACH, END_CANCELLED, NEWS_RESTART, HOST_A},
	{M_SWITCH, END_CANCELLED, NEWS_EVENTS, HOST_A},
	{M_SWITCH, END_COMPLETED, NEWS_EVENTS, HOST_B},
	{M_SWITCH, END_COMPLETED, NEWS_NONE, HOST_B},
	{M_SWITCH, END_COMPLETED, NEWS_RESTART, HOST_B},
	{M_QUIESCE, END_KILLED, NEWS_EVENTS, -1},
	{M_QUIESCE, END_KILLED, NEWS_NONE, -1},
};

static const struct sim_scene scenes[] = {
	{"QEMU's job hangs in HOLD, and is cancelled after PARKED", play_hangs, &hangs[0]},
	{"in QUIESCE, and no event tells of its end", play_hangs, &hangs[1]},
	{"in DETACH, and ibvmigd is down as it ends", play_hangs, &hangs[2]},
	{"in SWITCH, and is cancelled after PARKED", play_hangs, &hangs[3]},
	{"in SWITCH, and the VM leaves after PARKED", play_hangs, &hangs[4]},
	{"the same, and no event tells of it", play_hangs, &hangs[5]},
	{"the same, and ibvmigd is down as it leaves", play_hangs, &hangs[6]},
	{"in QUIESCE, and QEMU is killed after PARKED", play_hangs, &hangs[7]},
	{"the same, and no event tells of it", play_hangs, &hangs[8]},
	{"resolved while QEMU's job still hangs", play_resolved, NULL},
	{"libvirtd hangs from HOLD on, longer than all tries", play_hung, &held[0]},
	{"the same from QUIESCE on", play_hung, &held[1]},
	{"libvirtd stands still as HOLD is undone", play_stands, NULL},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
