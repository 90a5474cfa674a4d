/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Acts of libvirt and its users on a VM beside a migration, on simulated hosts (tests/sim/world.h).
 * VMs are stopped and started at once, and definitions stay where a VM has been. Afterwards
 * the world must be right (tests/sim/right.h). */
#include "tests/sim/right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/store/journal.h"
#include "daemon/store/lease.h"
#include "daemon/migrate/machine.h"
#include "daemon/start.h"
#include "daemon/vm/vm.h"
#include "tests/sim/scene.h"
#include "tests/sim/virt.h"

#include <errno.h>
#include <libvirt/libvirt.h>
#include <unistd.h>

static struct sim_guest *const mover = &sim_guests[0];

static bool start(struct sim_mover how, const char *dir)
{
	sim_mover = how;
	return sim_world_start(dir) && sim_all_right(NULL);
}

/* after_each: as in sim_run(); a guest that boots runs without its VF for a while. */
static bool gets_right(int home, void (*after_each)(void))
{
	if (!sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, after_each) ||
	    *sim_broken)
		return false;
	return sim_home(mover) == home ||
	       sim_is_wrong("the VM is on host %d, not %d", sim_home(mover), home);
}

/* ---- stopped and started ---- */

static struct vm *known(void)
{
	return vm_find(&sim_hosts[HOST_A].d, mover->uuid);
}

static bool is_leaving(void *arg)
{
	(void)arg;
	return known() && known()->state == VM_LEAVING;
}

static bool is_attaching(void *arg)
{
	(void)arg;
	return known() && known()->state == VM_ATTACHING;
}

/* Another guest, with programs of its own: the connections of the last one are gone. */
static void boots(void)
{
	mover->suspended[0] = '\0';
	mover->live = true;
	sim_qemu_start(HOST_A, mover);
}

static bool destroyed_until(bool (*cond)(void *arg))
{
	sim_qemu_kill(mover, HOST_A);
	return sim_run(cond, NULL, sim_us() + 60 * SIM_S, NULL) ||
	       sim_is_wrong("the moment does not come");
}

/* ms: after the daemon has begun to give the VF back. */
static bool play_restarted(const void *arg, const char *dir)
{
	uint64_t ms = *(const uint64_t *)arg;

	if (!start((struct sim_mover){.strategy = "auto"}, dir) || !destroyed_until(is_leaving))
		return false;
	sim_run(NULL, NULL, sim_us() + ms * SIM_MS, NULL);
	boots();
	return gets_right(HOST_A, NULL);
}

/* And again, while the next one's VF is being attached. */
static bool play_restarted_twice(const void *arg, const char *dir)
{
	uint64_t ms = *(const uint64_t *)arg;

	if (!start((struct sim_mover){.strategy = "auto"}, dir) || !destroyed_until(is_leaving))
		return false;
	boots();
	if (!sim_run(is_attaching, NULL, sim_us() + 60 * SIM_S, NULL))
		return sim_is_wrong("it is not attached again");
	sim_run(NULL, NULL, sim_us() + ms * SIM_MS, NULL);
	sim_qemu_kill(mover, HOST_A);
	boots();
	return gets_right(HOST_A, NULL);
}

/* Stopped for good before the first stop is dealt with: the VF is free. */
static bool play_stopped_twice(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "auto"}, dir) || !destroyed_until(is_leaving))
		return false;
	boots();
	sim_run(NULL, NULL, sim_us() + 3 * SIM_MS, NULL);
	sim_qemu_kill(mover, HOST_A);
	sim_vm_may_be_dead = true;
	sim_run(NULL, NULL, sim_us() + 30 * SIM_S, NULL);
	return sim_all_right(NULL);
}

/* ---- without a VF ---- */

static bool runs_without(void *arg)
{
	(void)arg;
	return known() && known()->state == VM_WITHOUT;
}

/* The hook lets it come as any VM, and it gets a VF there. */
static bool play_without(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "auto"}, dir) || !destroyed_until(is_leaving))
		return false;
	for (unsigned i = 0; i < sim_size.vfs; i++)
		sim_hosts[HOST_A].vfs[i].unfit = true;
	boots();
	if (!sim_run(runs_without, NULL, sim_us() + 60 * SIM_S, NULL))
		return sim_is_wrong("it has a VF");
	sim_migrate(mover, HOST_A, HOST_B);
	return gets_right(HOST_B, NULL);
}

/* ---- a definition that stays ---- */

/* In SWITCH the record is on the disk before QEMU is released: killed until then, the VM stays. */
static bool source_is_in(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;
	const struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];
	enum migrate_state state = *(const enum migrate_state *)arg;

	return m && m->rec.state == state && (state != M_SWITCH || q->job >= QJOB_DEVICE);
}

/* The migration goes on for 20 s without the source's daemon. */
static bool kill_source_in(const void *state)
{
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_in, (void *)(uintptr_t)state, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the state is not reached");
	sim_daemon_kill(HOST_A);
	sim_run(NULL, NULL, sim_us() + 20 * SIM_S, sim_never);
	return true;
}

/* The source is killed, and comes back when the VM runs at the destination, but is defined here. */
static bool play_defined(const void *arg, const char *dir)
{
	if (!start((struct sim_mover){.strategy = "late", .persistent = true}, dir) ||
	    !kill_source_in(arg))
		return false;
	if (sim_home(mover) != HOST_B)
		return sim_is_wrong("it has not migrated: %s", mover->migration.error);
	sim_daemon_start(HOST_A);
	return gets_right(HOST_B, sim_never);
}

/* ---- libvirtd goes as open migrations are taken up again ---- */

static bool source_is_taken_up(void *arg)
{
	const struct daemon *d = &sim_hosts[HOST_A].d;

	(void)arg;
	return d->recovered && d->migrations && d->migrations->inflight;
}

/* The source cannot ask whether the VM, which runs at the destination, is still here. Nothing is
 * undone on a guess, and no operator is needed. */
static bool play_unknown(const void *arg, const char *dir)
{
	if (!start((struct sim_mover){.strategy = "late"}, dir) || !kill_source_in(arg))
		return false;
	sim_daemon_start(HOST_A);
	if (!sim_run(source_is_taken_up, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not taken up");
	sim_libvirtd_kill(HOST_A, 90 * SIM_S);
	sim_run(NULL, NULL, sim_us() + 80 * SIM_S, sim_never);
	if (sim_hosts[HOST_A].d.migrations->rec.back)
		return sim_is_wrong("it is walked back: %s",
				    sim_hosts[HOST_A].d.migrations->rec.reason);
	return gets_right(HOST_B, sim_never);
}

static bool asked_twice(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;

	(void)arg;
	return m->recovery.unprobed && m->inflight > 1;
}

static bool undoes_switch(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;

	(void)arg;
	return m && m->rec.back && m->rec.state == M_SWITCH;
}

/* A step that fails meanwhile, for the VM has ended, is tried again when that is known, and nobody
 * asks twice at once. */
static bool play_ended_unknown(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_in, &(enum migrate_state){M_SWITCH}, sim_us() + 60 * SIM_S,
		     sim_never))
		return sim_is_wrong("SWITCH is not reached");
	sim_abort(mover, HOST_A);
	if (!sim_run(undoes_switch, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("SWITCH is not undone");
	sim_daemon_kill(HOST_A);
	sim_libvirt.calls = REPLIES_LATE;
	sim_daemon_start(HOST_A);
	if (!sim_run(source_is_taken_up, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not taken up");
	sim_vm_may_be_dead = true;
	sim_qemu_kill(mover, HOST_A);
	if (sim_run(asked_twice, NULL, sim_us() + 20 * SIM_S, sim_never))
		return sim_is_wrong("libvirt is asked twice at once");
	sim_libvirt.calls = REPLIES_WELL;
	return gets_right(-1, sim_never);
}

static bool destination_is_taken_up(void *arg)
{
	const struct daemon *d = &sim_hosts[HOST_B].d;

	(void)arg;
	return d->recovered && d->migrations && d->migrations->inflight;
}

static bool source_is_armed(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;

	(void)arg;
	return m && record_did(&m->rec, DID_ARM);
}

/* QEMU has not begun, and the source gives the migration up while the destination cannot tell yet
 * whether the VM is there: it asks on, and then walks back. */
static bool play_given_up_unknown(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_armed, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not armed");
	sim_daemon_kill(HOST_B);
	sim_daemon_start(HOST_B);
	if (!sim_run(destination_is_taken_up, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not taken up");
	sim_libvirtd_kill(HOST_B, 120 * SIM_S);
	return gets_right(HOST_A, sim_never);
}

/* ---- it leaves while its last migration is walked back ---- */

static bool undo_fails_in(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;

	return m && m->rec.back && m->rec.state == *(const enum migrate_state *)arg &&
	       (m->step.failures || m->rec.state == M_PARKED);
}

/* By a migration to a host without ibvmigd: it has no VF that would keep it. */
static bool play_left_meanwhile(const void *arg, const char *dir)
{
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_in, &(enum migrate_state){M_SWITCH}, sim_us() + 60 * SIM_S,
		     sim_never))
		return sim_is_wrong("SWITCH is not reached");
	sim_hosts[HOST_A].device_add_fails = true;
	sim_abort(mover, HOST_A);
	if (!sim_run(undo_fails_in, (void *)(uintptr_t)arg, sim_us() + 120 * SIM_S, sim_never))
		return sim_is_wrong("the undo of DETACH does not fail");
	sim_qemu_gone(&sim_hosts[HOST_A].qemus[0], VIR_DOMAIN_EVENT_STOPPED_MIGRATED);
	sim_vm_may_be_dead = true;
	return gets_right(-1, sim_never);
}

/* ---- libvirtd does not tell of a VM ---- */

static bool has_vf_again(void *arg)
{
	(void)arg;
	return known() && known()->state == VM_ATTACHED;
}

/* As while another job holds the domain's lock: refused, over a connection that lives. */
static bool play_refused_at_start(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_daemon_kill(HOST_A);
	sim_libvirt.calls = REPLIES_REFUSED;
	sim_daemon_start(HOST_A);
	sim_run(NULL, NULL, sim_us() + 5 * SIM_S, NULL);
	if (known())
		return sim_is_wrong("it is known, and nobody has told");
	sim_libvirt.calls = REPLIES_WELL;
	if (!sim_run(has_vf_again, NULL, sim_us() + 20 * SIM_S, NULL))
		return sim_is_wrong("nobody asks again");
	return gets_right(HOST_A, NULL);
}

/* A connection that was made in vain must be closed: the daemon listens to none of them any
 * more. */
static bool play_no_events(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_libvirt.events = REPLIES_REFUSED;
	sim_libvirtd_kill(HOST_A, 3 * SIM_S);
	sim_run(NULL, NULL, sim_us() + 8 * SIM_S, NULL);
	if (sim_libvirt_watched(HOST_A))
		return sim_is_wrong("%u connections that were given up can tell of their end",
				    sim_libvirt_watched(HOST_A));
	sim_libvirt.events = REPLIES_WELL;
	sim_run(NULL, NULL, sim_us() + 2 * SIM_S, NULL);
	return (sim_libvirt_watched(HOST_A) == 1 || sim_is_wrong("it does not connect again")) &&
	       gets_right(HOST_A, sim_never);
}

static bool mover_is_suspended(void *arg)
{
	(void)arg;
	return *mover->suspended;
}

static bool is_taken_up(void *arg)
{
	(void)arg;
	return !sim_hosts[HOST_A].d.migrations->recovery.unprobed;
}

/* For 40 s the daemon learns neither what the VM's QEMU does nor that the VM has an agent to be
 * resumed, and waits. seen: libvirtd has told of the VM before it hangs. */
static bool play_hung_at_start(const void *seen, const char *dir)
{
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(mover_is_suspended, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("QUIESCE is not reached");
	sim_daemon_kill(HOST_A);
	sim_hosts[HOST_A].libvirtd_hangs = !seen;
	sim_daemon_start(HOST_A);
	if (seen && !sim_run(source_is_taken_up, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not asked for");
	sim_hosts[HOST_A].libvirtd_hangs = true;
	if (sim_run(is_taken_up, NULL, sim_us() + 40 * SIM_S, sim_never))
		return sim_is_wrong("it goes on, and what QEMU does is not known");
	sim_hosts[HOST_A].libvirtd_hangs = false;
	sim_run(is_taken_up, NULL, sim_us() + 40 * SIM_S, sim_never);
	if (!known())
		return sim_is_wrong("it goes on, and what the VM has is not known");
	return gets_right(HOST_A, sim_never);
}

/* ---- words that cannot be ---- */

static bool is_parked(void *arg)
{
	(void)arg;
	return sim_hosts[HOST_A].d.migrations->rec.state == M_PARKED;
}

static bool undoes_quiesce(void *arg)
{
	const struct migration *m = sim_hosts[HOST_A].d.migrations;

	(void)arg;
	return m && m->rec.back && m->rec.state == M_QUIESCE;
}

static void ignore(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)rc;
	(void)answer;
	(void)error;
}

/* A destination that has walked back says that the VM runs there: the table has no way on from
 * there, and ibvmigd does not look for one for ever. */
static bool play_impossible(const void *arg, const char *dir)
{
	struct json_object *body = json_object_new_object();

	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_in, &(enum migrate_state){M_SWITCH}, sim_us() + 60 * SIM_S,
		     sim_never))
		return sim_is_wrong("SWITCH is not reached");
	sim_abort(mover, HOST_A);
	if (!sim_run(undoes_quiesce, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("QUIESCE is not undone");
	json_set_str(body, "migration", sim_hosts[HOST_A].d.migrations->rec.id);
	json_set_bool(body, "committed", true);
	sim_http(HOST_B, sim_hosts[HOST_A].url, "POST", "/v1/peer/outcome", body, 5000, ignore,
		 NULL);
	alarm(60); /* in seconds of the real clock: a daemon that spins ends the scene */
	return sim_run(is_parked, NULL, sim_us() + 60 * SIM_S, NULL) ||
	       sim_is_wrong("it is not parked");
}

/* ---- many records ---- */

#define MANY 300

/* The records are of VMs that were saved: each keeps its address until it is restored. */
static int journal_many(const char *dir)
{
	char *own AUTO_FREE = strf("%s/hosta", dir), *why AUTO_FREE = NULL;
	struct journal *j = NULL;
	int rc = journal_open(own, 100, &j, &why);

	for (unsigned i = 0; !rc && i < MANY; i++) {
		char *record AUTO_FREE = strf(
			"{\"version\":2,\"id\":\"saved%u\",\"role\":\"source\",\"state\":"
			"\"SAVED\",\"reached\":\"SAVED\",\"vm\":\"vm%u\",\"name\":\"vm%u\","
			"\"strategy\":\"cold\",\"file\":\"/vm%u\",\"saved\":true}",
			i, i, i, i);
		char *id AUTO_FREE = strf("saved%u", i);
		const struct journal_step s = {.id = id,
					       .role = "source",
					       .vm = id,
					       .state = "SAVED",
					       .direction = "forward",
					       .record = record};

		rc = journal_step(j, &s);
	}
	journal_close(j);
	return rc;
}

static bool play_many(const void *arg, const char *dir)
{
	unsigned n = 0;

	(void)arg;
	if (journal_many(dir))
		return sim_is_wrong("the journal cannot be written");
	sim_mover = (struct sim_mover){.strategy = "auto"};
	if (!sim_world_start(dir))
		return false;
	for (struct migration *m = sim_hosts[HOST_A].d.migrations; m; m = m->next)
		n += m->rec.state == M_SAVED && !m->rec.ended;
	return n == MANY || sim_is_wrong("%u records of %u are taken up", n, MANY);
}

/* ---- ibvmigd is stopped ---- */

/* As daemon/main.c does when the loop has ended. */
static void stop_daemon(struct sim_host *h)
{
	sim_self = &h->proc;
	daemon_stop(&h->d);
	sim_self = NULL;
	sim_proc_die(&h->proc);
	h->d = (struct daemon){0};
}

static bool journal_has(const char *dir, const char *state)
{
	char *own AUTO_FREE = strf("%s/hosta", dir), *why AUTO_FREE = NULL;
	struct json_object *open AUTO_JSON = NULL;
	struct journal *j = NULL;
	const char *text;

	if (journal_open(own, 100, &j, &why))
		return sim_is_wrong("%s", why);
	open = journal_open_migrations(j, 1);
	journal_close(j);
	text = json_opt_str(json_object_array_get_idx(open, 0), "state", "-");
	return str_eq(text, state) || sim_is_wrong("the journal has it in %s", text);
}

/* While the guest's agent is asked: nobody is told a lie of the agent, and the record stays. */
static bool play_stopped(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(mover_is_suspended, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("QUIESCE is not reached");
	stop_daemon(&sim_hosts[HOST_A]);
	if (!journal_has(dir, "QUIESCE"))
		return false;
	sim_daemon_start(HOST_A);
	return gets_right(HOST_A, sim_never);
}

/* ---- slow disks ---- */

/* Longer than all that a step asks before. */
#define SLOW_US SIM_S

/* The mover is neither suspended nor resumed before its host has that on the disk. A peer's host
 * may be later: where its power goes, the peer goes. */
static bool play_slow_disks(const void *arg, const char *dir)
{
	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	for (unsigned h = 0; h < sim_size.hosts; h++)
		sim_hosts[h].sync_us = SLOW_US;
	sim_hasty = sim_not_hasty = 0;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    !gets_right(HOST_B, sim_never))
		return false;
	return (!sim_hasty && sim_not_hasty == 2) ||
	       sim_is_wrong("%u requests come before the disk, %u after", sim_hasty, sim_not_hasty);
}

/* ---- libvirtd hangs as a migration is to be cancelled ---- */

/* Does what ibvmig-lease does when a lease has run out. */
static int cut(void *arg, const char *uuid)
{
	(void)uuid;
	++*(unsigned *)arg;
	if (sim_hosts[HOST_A].libvirtd_hangs)
		return -EIO;
	return sim_abort(mover, HOST_A) ? -EAGAIN : 0;
}

/* How many leases have run out. */
static unsigned cuts(const char *dir)
{
	char *leases AUTO_FREE = strf("%s/hosta-leases", dir);
	unsigned n = 0;
	const struct lease_holder h = {.dir = leases, .cut = cut, .arg = &n};

	lease_look(&h, sim_us());
	return n;
}

/* The VF is there, and pre-copy is held, and goes on: ibvmig-lease has something to cancel all the
 * while. */
static bool play_hung(const void *arg, const char *dir)
{
	struct sim_host *a = &sim_hosts[HOST_A];

	(void)arg;
	if (!start((struct sim_mover){.strategy = "late"}, dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_in, &(enum migrate_state){M_QUIESCE}, sim_us() + 60 * SIM_S,
		     sim_never))
		return sim_is_wrong("QUIESCE is not reached");
	a->libvirtd_hangs = true;
	if (!sim_run(source_is_in, &(enum migrate_state){M_CANCEL}, sim_us() + 60 * SIM_S,
		     sim_never))
		return sim_is_wrong("it is not cancelled");
	if (cuts(dir))
		return sim_is_wrong("the lease has run out before");
	sim_run(NULL, NULL, sim_us() + 6 * SIM_S, sim_never);
	if (cuts(dir) != 1)
		return sim_is_wrong("there is no lease in CANCEL");
	if (!sim_run(is_parked, NULL, sim_us() + 200 * SIM_S, sim_never))
		return sim_is_wrong("it is not parked");
	a->libvirtd_hangs = false;
	if (!mover->migration.under_way || cuts(dir) != 1)
		return sim_is_wrong("there is no lease, or no migration, in PARKED");
	sim_run(NULL, NULL, sim_us() + 2 * SIM_S, sim_never);
	if (mover->migration.under_way || cuts(dir))
		return sim_is_wrong("the lease stays when nothing migrates");
	return gets_right(HOST_A, sim_never);
}

static const uint64_t delays_ms[] = {0, 1, 4, 20};
static const enum migrate_state states[] = {M_SWITCH, M_ATTACH, M_RESUME};

static const struct sim_scene scenes[] = {
	{"started again as its VF begins to be given back", play_restarted, &delays_ms[0]},
	{"a ms later", play_restarted, &delays_ms[1]},
	{"4 ms later", play_restarted, &delays_ms[2]},
	{"20 ms later", play_restarted, &delays_ms[3]},
	{"stopped and started again as it is attached", play_restarted_twice, &delays_ms[0]},
	{"the same a ms later", play_restarted_twice, &delays_ms[1]},
	{"the same 4 ms later", play_restarted_twice, &delays_ms[2]},
	{"the same 20 ms later", play_restarted_twice, &delays_ms[3]},
	{"started and stopped as its VF is given back", play_stopped_twice, NULL},
	{"a VM without a VF migrates", play_without, NULL},
	{"a persistent VM has left while its daemon was dead, from SWITCH", play_defined,
	 &states[0]},
	{"from ATTACH", play_defined, &states[1]},
	{"from RESUME", play_defined, &states[2]},
	{"libvirtd goes as the migration is taken up in SWITCH", play_unknown, &states[0]},
	{"in ATTACH", play_unknown, &states[1]},
	{"the VM ends as the undo of SWITCH is taken up", play_ended_unknown, NULL},
	{"the source gives up while the destination's libvirtd is away", play_given_up_unknown,
	 NULL},
	{"it leaves, without its VF, while DETACH is undone", play_left_meanwhile,
	 &(const enum migrate_state){M_DETACH}},
	{"the same when that is parked", play_left_meanwhile,
	 &(const enum migrate_state){M_PARKED}},
	{"libvirtd refuses to tell of VMs as ibvmigd starts", play_refused_at_start, NULL},
	{"libvirtd gives no events to who connects", play_no_events, NULL},
	{"libvirtd hangs as ibvmigd starts, in QUIESCE", play_hung_at_start, NULL},
	{"the same when it has told of the VM", play_hung_at_start, ""},
	{"COMMIT is told while QUIESCE is undone", play_impossible, NULL},
	{"300 saved VMs are taken up again", play_many, NULL},
	{"ibvmigd is stopped while it asks the agent", play_stopped, NULL},
	{"no agent is asked before the disk has it", play_slow_disks, NULL},
	{"libvirtd hangs in QUIESCE: the lease outlives CANCEL", play_hung, NULL},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
