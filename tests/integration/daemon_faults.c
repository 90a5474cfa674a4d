/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fault matrix: each state of a migration, with each fault at its beginning and a while later,
 * on simulated hosts (tests/fake/sim.h). After each the world must be right again, or a PARKED
 * record names the command that makes it so, and it does; then the VM must migrate once more.
 *
 * Without arguments each pair of state and fault once for each strategy, `all` at each of
 * delays_ms, `STRATEGY FAULT STATE MS` one cell, with its log. The results are in
 * $BUILD/bench/faults.json (build/ by default), those of a part of the matrix in faults-part.json.
 */
#include "tests/fake/sim_lost.h"
#include "tests/fake/sim_right.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/journal.h"
#include "daemon/migrate.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define STAY_S   120
#define RIGHT_S  240
#define REACH_S  200
#define LOST_S   600 /* more than a peer waits for a source that does not answer */
#define JOBS     4
#define CPU_S    60
#define TEXT_MAX 400
#define DOWN_US  (2 * SIM_S)

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

static bool source_lost, destination_lost;

/* ---- states ---- */

enum scenario {
	PLAIN,        /* a migration that nothing disturbs */
	ABORTED_LATE, /* the user aborts it while the addresses move */
	PARKED_THERE, /* QEMU at the destination takes no device */
	PARKED_HERE,  /* aborted, and the source's VF has vanished */
};

static const struct point {
	const char *name;
	enum migrate_role role;
	enum migrate_state state;
	bool back;
	enum scenario scenario;
} points[] = {
	{"PREPARE", ROLE_SOURCE, M_PREPARE, false, PLAIN},
	{"HOLD", ROLE_SOURCE, M_HOLD, false, PLAIN},
	{"QUIESCE", ROLE_SOURCE, M_QUIESCE, false, PLAIN},
	{"DETACH", ROLE_SOURCE, M_DETACH, false, PLAIN},
	{"SWITCH", ROLE_SOURCE, M_SWITCH, false, PLAIN},
	{"ATTACH", ROLE_SOURCE, M_ATTACH, false, PLAIN},
	{"RESUME", ROLE_SOURCE, M_RESUME, false, PLAIN},
	{"DONE", ROLE_SOURCE, M_DONE, false, PLAIN},
	{"CANCEL", ROLE_SOURCE, M_CANCEL, false, ABORTED_LATE},
	{"undo-SWITCH", ROLE_SOURCE, M_SWITCH, true, ABORTED_LATE},
	{"undo-DETACH", ROLE_SOURCE, M_DETACH, true, ABORTED_LATE},
	{"undo-QUIESCE", ROLE_SOURCE, M_QUIESCE, true, ABORTED_LATE},
	{"undo-HOLD", ROLE_SOURCE, M_HOLD, true, ABORTED_LATE},
	{"undo-PREPARE", ROLE_SOURCE, M_PREPARE, true, ABORTED_LATE},
	{"ABORTED", ROLE_SOURCE, M_ABORTED, true, ABORTED_LATE},
	{"PARKED", ROLE_SOURCE, M_PARKED, true, PARKED_HERE},
	{"dst-PREPARE", ROLE_DESTINATION, M_PREPARE, false, PLAIN},
	{"dst-SWITCH", ROLE_DESTINATION, M_SWITCH, false, PLAIN},
	{"dst-ATTACH", ROLE_DESTINATION, M_ATTACH, false, PLAIN},
	{"dst-RESUME", ROLE_DESTINATION, M_RESUME, false, PLAIN},
	{"dst-DONE", ROLE_DESTINATION, M_DONE, false, PLAIN},
	{"dst-undo-SWITCH", ROLE_DESTINATION, M_SWITCH, true, ABORTED_LATE},
	{"dst-undo-PREPARE", ROLE_DESTINATION, M_PREPARE, true, ABORTED_LATE},
	{"dst-ABORTED", ROLE_DESTINATION, M_ABORTED, true, ABORTED_LATE},
	{"dst-PARKED", ROLE_DESTINATION, M_PARKED, false, PARKED_THERE},
};

static struct migration *newest(int host, enum migrate_role role)
{
	for (struct migration *m = sim_hosts[host].d.migrations; m; m = m->next)
		if (m->role == role)
			return m;
	return NULL;
}

static bool in_state(enum migrate_role role, enum migrate_state state, bool back)
{
	struct migration *m = newest(role == ROLE_SOURCE ? HOST_A : HOST_B, role);

	return m && m->state == state && m->back == back;
}

static bool at_point(void *arg)
{
	const struct point *p = arg;

	return in_state(p->role, p->state, p->back);
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
		sim_hosts[HOST_B].device_add_fails = true;
	if (s == PARKED_HERE)
		sim_hosts[HOST_A].device_add_fails = true;
}

/* ---- faults ---- */

static void daemon_back(void *arg)
{
	int host = (int)(intptr_t)arg;

	/* systemd tries again. */
	if (!sim_hosts[host].proc.up)
		sim_daemon_start(host);
	if (!sim_hosts[host].proc.up)
		sim_after(NULL, DOWN_US, daemon_back, arg);
}

static void kill_daemon(int host)
{
	sim_daemon_kill(host);
	sim_after(NULL, DOWN_US, daemon_back, (void *)(intptr_t)host);
}

static void sm_back(void *arg)
{
	(void)arg;
	sim_proc_start(&sim_fabric.sm, NULL);
}

static void kill_sm(int arg)
{
	(void)arg;
	sim_proc_die(&sim_fabric.sm);
	sim_after(NULL, 5 * SIM_S, sm_back, NULL);
}

static void stop_daemon(int host)
{
	sim_hosts[host].proc.stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_sm(int arg)
{
	(void)arg;
	sim_fabric.sm.stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_libvirtd(int host)
{
	sim_libvirtd_stop(host, 30 * SIM_S);
}

static void stop_opensm(int arg)
{
	(void)arg;
	sim_fabric.opensm_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_agent(int guest)
{
	sim_guests[guest].agent_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void stop_process(int guest)
{
	sim_guests[guest].process_stopped_until_us = sim_us() + 30 * SIM_S;
}

static void kill_opensm(int seconds)
{
	sim_fabric.opensm_down_until_us = sim_us() + (unsigned)seconds * SIM_S;
}

static void kill_libvirtd(int host)
{
	sim_libvirtd_kill(host, 3 * SIM_S);
}

static void kill_virsh(int arg)
{
	(void)arg;
	sim_virsh_kill(mover);
}

static void kill_agent(int guest)
{
	sim_guest_agent_kill(&sim_guests[guest], SIM_S);
}

static void kill_process(int guest)
{
	sim_guest_process_kill(&sim_guests[guest]);
}

static void cut(int seconds)
{
	sim_net.cut_until_us = sim_us() + (unsigned)seconds * SIM_S;
}

static void stick_channel(int guest)
{
	sim_guests[guest].channel_stuck_until_us = sim_us() + 30 * SIM_S;
}

static void replies_well(void *arg)
{
	(void)arg;
	sim_net.replies = REPLIES_WELL;
	sim_agent_replies = REPLIES_WELL;
	sim_provider_replies = REPLIES_WELL;
	sim_libvirt = (struct sim_libvirt){0};
}

/* Of what is lost or refused it is shorter than what is tried again. */
static void let_pass(enum sim_replies how)
{
	bool no_answers = how == REPLIES_LOST || how == REPLIES_REFUSED;

	sim_after(NULL, (no_answers ? 10 : 60) * SIM_S, replies_well, NULL);
}

static void replies(int how)
{
	sim_net.replies = (enum sim_replies)how;
	let_pass(sim_net.replies);
}

static void agent_replies(int how)
{
	sim_agent_replies = (enum sim_replies)how;
	let_pass(sim_agent_replies);
}

static void provider_replies(int how)
{
	sim_provider_replies = (enum sim_replies)how;
	let_pass(sim_provider_replies);
}

static void libvirt_calls(int how)
{
	sim_libvirt.calls = (enum sim_replies)how;
	let_pass(sim_libvirt.calls);
}

static void libvirt_events(int how)
{
	sim_libvirt.events = (enum sim_replies)how;
	sim_after(NULL, 60 * SIM_S, replies_well, NULL);
}

static const char *const event_names[] = {"DEVICE_DELETED", "MIGRATION", "RESUME", "lifecycle"};

static void lose_event(int which)
{
	sim_libvirt.event = event_names[which];
	libvirt_events(REPLIES_LOST);
}

static void disk_well(void *arg)
{
	((struct sim_proc *)arg)->disk_errno = 0;
}

static void fail_disk(int host, int error)
{
	sim_hosts[host].proc.disk_errno = error;
	sim_after(NULL, 20 * SIM_S, disk_well, &sim_hosts[host].proc);
}

static void fill_disk(int host)
{
	fail_disk(host, ENOSPC);
}

static void make_disk_readonly(int host)
{
	fail_disk(host, EROFS);
}

static void jump_clock(int host)
{
	sim_hosts[host].proc.wall_offset_ms += 3600 * 1000ll;
}

static void jump_clock_back(int host)
{
	sim_hosts[host].proc.wall_offset_ms -= 3600 * 1000ll;
}

static void vanish_vf(int host)
{
	struct migration *m = newest(HOST_B, ROLE_DESTINATION);

	for (unsigned i = 0; m && i < sim_size.vfs; i++)
		if (!strcmp(sim_hosts[host].vfs[i].name, m->vfs[m->vf_count - 1].to.vf))
			sim_hosts[host].vfs[i].vanished = true;
}

static void ignore_device_del(int arg)
{
	(void)arg;
	mover->ignores_device_del = true;
}

static void kill_port(int arg)
{
	(void)arg;
	mover->port_dead = true;
}

/* Nothing tells of it. */
static void abort_unheard(int host)
{
	libvirt_events(REPLIES_LOST);
	sim_abort(mover, host);
}

static void kill_qemu(int host)
{
	sim_vm_may_be_dead = true;
	sim_qemu_kill(mover, host);
}

static void kill_qemu_unheard(int host)
{
	libvirt_events(REPLIES_LOST);
	kill_qemu(host);
}

/* And what tells the peer's guest of it is not there, for longer than anyone asks. */
static void kill_qemu_and_peer_daemon(int host)
{
	kill_qemu(host);
	sim_daemon_kill(HOST_C);
	sim_after(NULL, 40 * SIM_S, daemon_back, (void *)(intptr_t)HOST_C);
}

static void kill_qemu_and_peer_agent(int host)
{
	kill_qemu(host);
	sim_guest_agent_kill(peer, 40 * SIM_S);
}

static void kill_qemu_and_cut(int host)
{
	kill_qemu(host);
	cut(60);
}

/* The whole source, for good. */
static void lose_source(int host)
{
	source_lost = true;
	kill_qemu(host);
	sim_daemon_kill(host);
}

static void lose_destination(int host)
{
	destination_lost = true;
	sim_lost_strike(host);
}

static void power_back(void *arg)
{
	(void)arg;
	sim_power_on(HOST_A);
}

/* The source's power fails, and is back. */
static void cycle_source(int host)
{
	sim_vm_may_be_dead = true;
	sim_power_off(host);
	sim_after(NULL, 60 * SIM_S, power_back, NULL);
}

static void programs_begin(void *arg)
{
	(void)arg;
	mover->live = true;
}

static void power_and_vm_back(void *arg)
{
	power_back(arg);
	if (sim_qemu_of(mover))
		return;
	mover->suspended[0] = '\0';
	mover->live = false;
	mover->connection_ended = true;
	sim_qemu_start(HOST_A, mover);
	sim_after(NULL, 100 * SIM_S, programs_begin, NULL);
}

/* And the VM starts with its host. */
static void cycle_source_and_vm(int host)
{
	sim_power_off(host);
	sim_after(NULL, 60 * SIM_S, power_and_vm_back, NULL);
}

static void user_abort(int host)
{
	sim_abort(mover, host);
}

static const struct fault {
	const char *name;
	void (*strike)(int arg);
	int arg;
} faults[] = {
	{"user-abort", user_abort, HOST_A},
	{"kill-source-ibvmigd", kill_daemon, HOST_A},
	{"kill-destination-ibvmigd", kill_daemon, HOST_B},
	{"kill-peer-ibvmigd", kill_daemon, HOST_C},
	{"kill-ibvmig-sm", kill_sm, 0},
	{"kill-opensm-15s", kill_opensm, 15},
	{"kill-opensm-90s", kill_opensm, 90},
	{"kill-source-libvirtd", kill_libvirtd, HOST_A},
	{"kill-destination-libvirtd", kill_libvirtd, HOST_B},
	{"kill-virsh", kill_virsh, 0},
	{"kill-agent", kill_agent, 0},
	{"kill-peer-agent", kill_agent, 1},
	{"kill-process", kill_process, 0},
	{"stop-source-ibvmigd-30s", stop_daemon, HOST_A},
	{"stop-destination-ibvmigd-30s", stop_daemon, HOST_B},
	{"stop-peer-ibvmigd-30s", stop_daemon, HOST_C},
	{"stop-ibvmig-sm-30s", stop_sm, 0},
	{"stop-opensm-30s", stop_opensm, 0},
	{"stop-source-libvirtd-30s", stop_libvirtd, HOST_A},
	{"stop-destination-libvirtd-30s", stop_libvirtd, HOST_B},
	{"stop-agent-30s", stop_agent, 0},
	{"stop-peer-agent-30s", stop_agent, 1},
	{"stop-process-30s", stop_process, 0},
	{"stop-peer-process-30s", stop_process, 1},
	{"cut-1s", cut, 1},
	{"cut-10s", cut, 10},
	{"cut-60s", cut, 60},
	{"channel-stuck-30s", stick_channel, 0},
	{"peer-channel-stuck-30s", stick_channel, 1},
	{"replies-late", replies, REPLIES_LATE},
	{"replies-doubled", replies, REPLIES_DOUBLED},
	{"replies-reordered", replies, REPLIES_REORDERED},
	{"replies-lost-10s", replies, REPLIES_LOST},
	{"agent-replies-late", agent_replies, REPLIES_LATE},
	{"agent-replies-doubled", agent_replies, REPLIES_DOUBLED},
	{"agent-replies-reordered", agent_replies, REPLIES_REORDERED},
	{"agent-replies-lost-10s", agent_replies, REPLIES_LOST},
	{"events-late", libvirt_events, REPLIES_LATE},
	{"events-doubled", libvirt_events, REPLIES_DOUBLED},
	{"events-reordered", libvirt_events, REPLIES_REORDERED},
	{"events-lost-60s", libvirt_events, REPLIES_LOST},
	{"event-device-deleted-lost", lose_event, 0},
	{"event-migration-lost", lose_event, 1},
	{"event-resume-lost", lose_event, 2},
	{"event-lifecycle-lost", lose_event, 3},
	{"events-lost-and-abort", abort_unheard, HOST_A},
	{"events-lost-and-kill-source-qemu", kill_qemu_unheard, HOST_A},
	{"events-lost-and-kill-destination-qemu", kill_qemu_unheard, HOST_B},
	{"libvirt-late", libvirt_calls, REPLIES_LATE},
	{"libvirt-refuses-10s", libvirt_calls, REPLIES_REFUSED},
	{"libvirt-answers-lost-10s", libvirt_calls, REPLIES_LOST},
	{"provider-late", provider_replies, REPLIES_LATE},
	{"provider-refuses-10s", provider_replies, REPLIES_REFUSED},
	{"provider-answers-lost-10s", provider_replies, REPLIES_LOST},
	{"source-disk-full-20s", fill_disk, HOST_A},
	{"destination-disk-full-20s", fill_disk, HOST_B},
	{"source-disk-read-only-20s", make_disk_readonly, HOST_A},
	{"destination-disk-read-only-20s", make_disk_readonly, HOST_B},
	{"source-clock-forward-1h", jump_clock, HOST_A},
	{"source-clock-back-1h", jump_clock_back, HOST_A},
	{"destination-clock-forward-1h", jump_clock, HOST_B},
	{"destination-clock-back-1h", jump_clock_back, HOST_B},
	{"destination-vf-vanishes", vanish_vf, HOST_B},
	{"device-del-ignored", ignore_device_del, 0},
	{"port-never-active", kill_port, 0},
	{"kill-source-qemu", kill_qemu, HOST_A},
	{"kill-destination-qemu", kill_qemu, HOST_B},
	{"kill-source-qemu-no-peer-ibvmigd-40s", kill_qemu_and_peer_daemon, HOST_A},
	{"kill-source-qemu-no-peer-agent-40s", kill_qemu_and_peer_agent, HOST_A},
	{"kill-source-qemu-and-cut-60s", kill_qemu_and_cut, HOST_A},
	{"lose-source", lose_source, HOST_A},
	{"cycle-source", cycle_source, HOST_A},
	{"cycle-source-and-vm", cycle_source_and_vm, HOST_A},
	{"lose-destination", lose_destination, HOST_B},
};

/* After the state has begun: before anything, amid its first call, and amid a later one. */
static const unsigned delays_ms[] = {0, 7, 45};

/* ---- one cell ---- */

struct result {
	bool ran, ok, reached, moved, dead;
	unsigned parked;
	double seconds;
	char text[TEXT_MAX];
};

static void mend_all(void)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		sim_hosts[h].device_add_fails = false;
		for (unsigned i = 0; i < sim_size.vfs; i++)
			sim_hosts[h].vfs[i].vanished = false;
	}
	mover->ignores_device_del = mover->port_dead = false;
}

/* The line that an operator reads names the command. */
static bool names_command(struct sim_host *h, const struct migration *m)
{
	struct json_object *both AUTO_JSON = journal_migration(h->d.journal, m->id), *list, *last;
	char *command AUTO_FREE = strf("ibvmig resolve %s", m->id);

	list = json_opt(json_opt(both, m->role == ROLE_SOURCE ? "source" : "destination"),
			"transitions");
	last = list ? json_object_array_get_idx(list, json_object_array_length(list) - 1) : NULL;
	return str_eq(json_opt_str(last, "state", ""), "PARKED") &&
	       strstr(json_opt_str(last, "note", ""), command) && *m->trouble;
}

static bool resolve_refused;

static void resolved(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	if (rc)
		resolve_refused = sim_is_wrong("resolve is refused: %.200s", error) || true;
}

/* Runs the command of each PARKED record. */
static bool resolve_all(struct result *r)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next) {
			char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[h].name);
			char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", m->id);

			if (m->state != M_PARKED)
				continue;
			r->parked++;
			if (!names_command(&sim_hosts[h], m))
				return sim_is_wrong("a PARKED record names no command");
			sim_http(h, base, "POST", path, NULL, 10000, resolved, NULL);
		}
	}
	return true;
}

static bool settle(struct result *r)
{
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	mend_all();
	if (sim_virsh_mends() &&
	    !sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never))
		return false;
	for (int tries = 0; tries < 3; tries++) {
		if (sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never))
			return true;
		if (!resolve_all(r) || resolve_refused)
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

/* Beyond that all is right at the end, where nothing but the fault has disturbed the migration: no
 * event is the only one that tells something, and what cannot be written at the source is not done.
 */
static bool keeps_promise(const struct fault *f, const struct point *p, const struct result *r)
{
	bool is_plain = f && p->scenario == PLAIN;
	bool is_event = is_plain && (f->strike == libvirt_events || f->strike == lose_event);
	bool is_disk = is_plain && (f->strike == fill_disk || f->strike == make_disk_readonly) &&
		       f->arg == HOST_A;

	if (is_event && (!r->moved || r->parked))
		return sim_is_wrong("it was given up for an event: %.200s", mover->migration.error);
	if (is_disk && p->role == ROLE_SOURCE && p->state <= M_DETACH && (r->moved || r->parked))
		return sim_is_wrong("it went on without its journal");
	return true;
}

static bool play(const struct fault *f, const struct point *p, unsigned delay_ms, struct result *r)
{
	uint64_t start = sim_us();

	set_scene(p->scenario);
	sim_migrate(mover, HOST_A, HOST_B);
	r->reached = sim_run(at_point, (void *)(uintptr_t)p, start + REACH_S * SIM_S, sim_never);
	if (!r->reached)
		return sim_is_wrong("the state was not reached");
	sim_run(NULL, NULL, sim_us() + delay_ms * SIM_MS, sim_never);
	if (f)
		f->strike(f->arg);
	if (source_lost) {
		sim_run(NULL, NULL, sim_us() + LOST_S * SIM_S, sim_never);
		r->dead = sim_home(mover) < 0;
		return sim_peer_right();
	}
	start = sim_us();
	if (destination_lost ? !sim_lost_play(&r->parked) : !settle(r))
		return false;
	r->seconds = (double)(sim_us() - start) / 1e6;
	r->moved = sim_home(mover) == HOST_B;
	r->dead = sim_home(mover) < 0;
	if (!keeps_promise(f, p, r))
		return false;
	/* It stays right. */
	sim_run(NULL, NULL, sim_us() + STAY_S * SIM_S, sim_never);
	return sim_all_right(NULL) && (r->dead || migrate_again());
}

/* Each strategy goes through all faults, where it has the state for long enough to be struck in it.
 */
static const struct {
	const char *name;
	bool migrates_state, two_vfs;
	unsigned passed; /* states that it only passes, if it comes to them at all */
} strategies[] = {
	{"late", false, false, 0},
	{"early", false, false, 1u << M_HOLD},
	/* Nothing is attached, so nothing parks for a VF that cannot be. */
	{"native", true, false, 1u << M_QUIESCE | 1u << M_DETACH | 1u << M_PARKED},
	{"late-two-vfs", false, true, 0},
};

static bool only_passes(size_t strategy, const struct point *p)
{
	return (p->role == ROLE_SOURCE || p->state == M_PARKED) &&
	       strategies[strategy].passed & 1u << p->state;
}

static void run_cell(const char *dir, size_t strategy, const struct fault *f, const struct point *p,
		     unsigned delay_ms, struct result *r)
{
	sim_mover.strategy = strategies[strategy].two_vfs ? "late" : strategies[strategy].name;
	sim_mover.two_vfs = strategies[strategy].two_vfs;
	sim_mover.migrates_state = strategies[strategy].migrates_state;
	mkdir(dir, 0700);
	if (!sim_world_start(dir) || !sim_all_right(NULL)) {
		snprintf(r->text, sizeof r->text, "the world does not start: %.300s", sim_wrong);
	} else {
		r->ok = play(f, p, delay_ms, r) && !*sim_broken;
		snprintf(r->text, sizeof r->text, "%.390s",
			 *sim_broken ? sim_broken
			 : r->ok     ? ""
				     : sim_wrong);
	}
	r->ran = true;
}

/* ---- all cells ---- */

struct cell {
	size_t strategy;           /* index */
	const struct fault *fault; /* NULL: none */
	const struct point *point;
	unsigned delay_ms;
	pid_t pid;
	struct result *result; /* shared with the process that runs it */
};

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void start_cell(const char *dir, struct cell *c, int number)
{
	struct rlimit cpu = {.rlim_cur = CPU_S, .rlim_max = CPU_S + 5};
	char *own AUTO_FREE = strf("%s/cell%d", dir, number);

	fflush(NULL);
	c->pid = fork();
	if (c->pid)
		return;
	/* Of the processor's time, not of the clock's: a loaded machine is no failure. */
	setrlimit(RLIMIT_CPU, &cpu);
	run_cell(own, c->strategy, c->fault, c->point, c->delay_ms, c->result);
	nftw(own, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

static void end_cell(struct cell *cells, size_t n)
{
	int status;
	pid_t pid = wait(&status);

	for (size_t i = 0; i < n; i++) {
		struct cell *c = &cells[i];

		if (c->pid != pid || pid <= 0)
			continue;
		if (!c->result->ran)
			snprintf(c->result->text, TEXT_MAX, "the process ended with status 0x%x",
				 (unsigned)status);
		c->pid = 0;
	}
}

static const char *verdict(const struct result *r)
{
	if (!r->ok)
		return "failed";
	if (r->dead)
		return "vm-dead";
	if (r->parked)
		return r->moved ? "resolved-moved" : "resolved-stayed";
	return r->moved ? "moved" : "stayed";
}

static const char *fault_name(const struct cell *c)
{
	return c->fault ? c->fault->name : "none";
}

static bool same_row(const struct cell *a, const struct cell *b)
{
	return a->fault == b->fault && a->strategy == b->strategy;
}

static void print_report(FILE *f, const struct cell *cells, size_t n)
{
	size_t passed = 0;

	for (size_t i = 0; i < n; i++)
		passed += cells[i].result->ok;
	fprintf(f, "{\"cells\":%zu,\"passed\":%zu,\"matrix\":[\n", n, passed);
	for (size_t i = 0; i < n; i++) {
		const struct cell *c = &cells[i];
		struct json_object *o AUTO_JSON = json_object_new_object();

		json_set_str(o, "strategy", strategies[c->strategy].name);
		json_set_str(o, "fault", fault_name(c));
		json_set_str(o, "state", c->point->name);
		json_set_u64(o, "after_ms", c->delay_ms);
		json_set_str(o, "verdict", verdict(c->result));
		json_set_u64(o, "parked", c->result->parked);
		json_set_u64(o, "settled_ms", (uint64_t)(c->result->seconds * 1e3));
		if (!c->result->ok)
			json_set_str(o, "why", c->result->text);
		fprintf(f, "%s%s\n", json_text(o), i + 1 < n ? "," : "");
	}
	fprintf(f, "]}\n");
}

/* Whether it is on disk; a part of the matrix does not replace the report of the whole one. */
static bool write_report(const struct cell *cells, size_t n, bool whole)
{
	const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
	char *path AUTO_FREE = strf("%s/bench/faults%s.json", build, whole ? "" : "-part");
	FILE *f;
	bool ok;

	make_parent_dir(path);
	f = fopen(path, "w");
	if (f)
		print_report(f, cells, n);
	ok = f && !ferror(f);
	ok = f && !fclose(f) && ok;
	if (!ok)
		fprintf(stderr, "%s: cannot be written: %s\n", path, strerror(errno));
	return ok;
}

/* One line of TAP for each fault. */
static unsigned print_rows(const struct cell *cells, size_t n)
{
	unsigned failed_rows = 0, row = 0;

	for (size_t i = 0; i < n;) {
		const char *name = fault_name(&cells[i]);
		unsigned count = 0, failed = 0;
		size_t first = i;

		for (; i < n && same_row(&cells[i], &cells[first]); i++, count++)
			failed += !cells[i].result->ok;
		printf("%s %u - %s, %s: %u cells\n", failed ? "not ok" : "ok", ++row,
		       strategies[cells[first].strategy].name, name, count);
		for (size_t k = first; k < i; k++)
			if (!cells[k].result->ok)
				printf("# %s %s %s %u: %s\n", strategies[cells[k].strategy].name,
				       name, cells[k].point->name, cells[k].delay_ms,
				       cells[k].result->text);
		failed_rows += failed > 0;
	}
	printf("1..%u\n", row);
	return failed_rows;
}

/* One moment of each state and fault; of two VFs, every third of these. */
static bool in_sample(size_t strategy, size_t fault, size_t point, size_t delay)
{
	const size_t n = ARRAY_SIZE(delays_ms);

	if (strategies[strategy].two_vfs)
		return (fault + point) % n == 0 && (fault + point) / n % n == delay;
	return (fault + point) % n == delay;
}

static size_t add_cells(struct cell *cells, struct result *results, size_t n, size_t strategy,
			const char *fault, const char *state, bool all_delays)
{
	for (size_t f = 0; f < ARRAY_SIZE(faults) + 1; f++) {
		const struct fault *one = f ? &faults[f - 1] : NULL;

		if (fault && strcmp(one ? one->name : "none", fault))
			continue;
		for (size_t p = 0; p < ARRAY_SIZE(points); p++) {
			if ((state && strcmp(points[p].name, state)) ||
			    only_passes(strategy, &points[p]))
				continue;
			for (size_t d = 0; d < ARRAY_SIZE(delays_ms); d++) {
				if (!all_delays && !in_sample(strategy, f, p, d))
					continue;
				cells[n] = (struct cell){.strategy = strategy,
							 .fault = one,
							 .point = &points[p],
							 .delay_ms = delays_ms[d],
							 .result = &results[n]};
				n++;
			}
		}
	}
	return n;
}

/* strategy, fault, state: NULL for all. */
static size_t make_cells(struct cell *cells, struct result *results, const char *strategy,
			 const char *fault, const char *state, bool all_delays)
{
	size_t n = 0;

	for (size_t s = 0; s < ARRAY_SIZE(strategies); s++)
		if (!strategy || !strcmp(strategies[s].name, strategy))
			n = add_cells(cells, results, n, s, fault, state, all_delays);
	return n;
}

#define CELLS_MAX                                                                                  \
	(ARRAY_SIZE(strategies) * ARRAY_SIZE(points) * (ARRAY_SIZE(faults) + 1) *                  \
	 ARRAY_SIZE(delays_ms))

static int run_all(const char *dir, const char *strategy, const char *fault, const char *state,
		   bool all_delays)
{
	static struct cell cells[CELLS_MAX];
	struct result *results = mmap(NULL, CELLS_MAX * sizeof *results, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t n = make_cells(cells, results, strategy, fault, state, all_delays), running = 0;
	unsigned failed;
	bool whole;

	for (size_t i = 0; i < n; i++) {
		if (running == JOBS) {
			end_cell(cells, i);
			running--;
		}
		start_cell(dir, &cells[i], (int)i);
		running++;
	}
	for (; running; running--)
		end_cell(cells, n);
	failed = print_rows(cells, n);
	whole = all_delays && !strategy && !fault && !state;
	return !write_report(cells, n, whole) || failed;
}

static int run_one(const char *dir, const char *strategy, const char *fault, const char *state,
		   const char *ms)
{
	static struct cell cells[CELLS_MAX];
	static struct result results[CELLS_MAX];
	size_t n = make_cells(cells, results, strategy, fault, state, true);
	uint64_t delay = 0;

	if (!n || parse_u64(ms, 0, 100000, &delay)) {
		fprintf(stderr, "there is no strategy %s, fault %s, or state %s\n", strategy, fault,
			state);
		return 2;
	}
	log_set_level(LOG_DEBUG);
	run_cell(dir, cells[0].strategy, cells[0].fault, cells[0].point, (unsigned)delay, results);
	printf("%s: %s%s%s, %u parked, settled after %.3f s, %llu steps\n",
	       results->ok ? "ok" : "not ok", verdict(results), *results->text ? ": " : "",
	       results->text, results->parked, results->seconds, (unsigned long long)sim_steps());
	return !results->ok;
}

int main(int argc, char **argv)
{
	char dir[] = "/dev/shm/ibvmig-faults-XXXXXX", slow[] = "/tmp/ibvmig-faults-XXXXXX";
	char *own = mkdtemp(dir);
	int rc;

	if (!own)
		own = mkdtemp(slow);
	if (!own) {
		perror("mkdtemp");
		return 1;
	}
	log_init("faults");
	log_set_level((enum log_level)0);
	if (argc > 1 && strcmp(argv[1], "all") && argc != 5) {
		fprintf(stderr,
			"usage: %s [all [STRATEGY [FAULT [STATE]]] | STRATEGY FAULT STATE MS]\n",
			argv[0]);
		return 2;
	}
	if (argc > 4 && strcmp(argv[1], "all"))
		rc = run_one(own, argv[1], argv[2], argv[3], argv[4]);
	else
		rc = run_all(own, argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL,
			     argc > 4 ? argv[4] : NULL, argc > 1);
	nftw(own, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	return rc;
}
