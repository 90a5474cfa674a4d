/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VM is saved and restored, here and on another host, on simulated hosts (tests/sim/world.h):
 * what it keeps, who waits for it and for how long, what is refused. Afterwards the world must be
 * right (tests/sim/right.h). Each fault in each state is a cell of daemon_faults.
 *
 * Without arguments all; SCENE: one, with its log. */
#include "common/util.h"
#include "tests/sim/cold.h"
#include "tests/sim/lost.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <string.h>

#define SETTLE_S 400
#define TOLD_S   10
#define OFF_S    20
#define DOWN_US  (2 * SIM_S)

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

/* ---- what an operator asks for ---- */

static bool ask_save(void)
{
	sim_cold_save(HOST_A);
	return sim_cold_wait();
}

static bool ask_restore(int host)
{
	sim_cold_restore(host, false);
	return sim_cold_wait();
}

static bool restore_lost(int host)
{
	sim_cold_restore(host, true);
	return sim_cold_wait();
}

static bool resolve(void)
{
	sim_cold_resolve(false);
	return sim_cold_wait();
}

/* ---- what has become of it ---- */

static bool settles(void)
{
	return sim_run(sim_cold_settled, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
}

static bool gets_right(void)
{
	return sim_run(sim_all_right, NULL, sim_us() + SETTLE_S * SIM_S, sim_never) &&
	       (!*sim_broken || sim_is_wrong("%s", sim_broken));
}

static bool runs_on(int host)
{
	return sim_home(mover) == host ||
	       sim_is_wrong("the VM is on host %d, not %d", sim_home(mover), host);
}

/* ---- scenes ---- */

static void daemon_back(void *arg)
{
	sim_daemon_start((int)(intptr_t)arg);
}

static void kill_daemon(int host)
{
	sim_daemon_kill(host);
	sim_after(NULL, DOWN_US, daemon_back, (void *)(intptr_t)host);
}

static bool armed_there(void *arg)
{
	struct migration *m = sim_record(HOST_B, ROLE_DESTINATION);

	(void)arg;
	return m && record_did(&m->rec, DID_ARM);
}

static bool save(void)
{
	if (!ask_save())
		return false;
	if (sim_reply.rc)
		return sim_is_wrong("save fails: %.300s", sim_reply.error);
	return true;
}

/* The VM is a file; its address and VF are kept for it, and its peer waits. */
static bool kept_right(void)
{
	struct sim_binding *b = sim_binding(mover->vguids[0]);
	struct vf_table *t = sim_hosts[HOST_A].d.vfs; /* NULL while no daemon runs there */
	struct vf *vf = t ? vf_of_vm(t, mover->uuid, 0) : NULL;

	if (sim_home(mover) >= 0 || !sim_image.whole || !sim_cold_is_kept())
		return sim_is_wrong("it is not saved");
	if (!b || strcmp(b->host, "hosta") || sim_vfs_with(mover->vguids[0]) != 1 || !vf)
		return sim_is_wrong("its address is not kept");
	return !peer->live || sim_is_wrong("its peer does not wait");
}

static bool restore_here(void)
{
	if (!save() || !kept_right() || !ask_restore(HOST_A))
		return false;
	if (sim_reply.rc)
		return sim_is_wrong("restore fails: %.300s", sim_reply.error);
	return gets_right() && runs_on(HOST_A);
}

static bool restore_there(void)
{
	if (!save() || !kept_right() || !ask_restore(HOST_B))
		return false;
	if (sim_reply.rc)
		return sim_is_wrong("restore fails: %.300s", sim_reply.error);
	if (!gets_right() || !runs_on(HOST_B))
		return false;
	sim_migrate(mover, HOST_B, HOST_A);
	return sim_run(sim_quiet, NULL, sim_us() + SETTLE_S * SIM_S, sim_never) && gets_right() &&
	       runs_on(HOST_A);
}

static bool restored(void *arg)
{
	(void)arg;
	return !sim_image.restoring;
}

/* Without the daemon's being asked: the hook alone. */
static bool virsh_restore(int host)
{
	sim_restore(host);
	sim_run(restored, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
	return sim_image.restored || sim_is_wrong("virsh restore: %.300s", sim_image.error);
}

static bool plain_virsh(void)
{
	return save() && virsh_restore(HOST_B) && gets_right() && runs_on(HOST_B);
}

static bool refused(int host, const char *word)
{
	if (virsh_restore(host))
		return sim_is_wrong("host %d restores it", host);
	return strstr(sim_image.error, word) ||
	       sim_is_wrong("it does not say \"%s\": %.300s", word, sim_image.error);
}

static bool no_source(void)
{
	if (!save())
		return false;
	sim_daemon_kill(HOST_A);
	if (!refused(HOST_B, "hosta") && !strstr(sim_image.error, "10.0.0.1"))
		return false;
	sim_daemon_start(HOST_A);
	if (!settles() || !kept_right() || !virsh_restore(HOST_B))
		return false;
	return gets_right() && runs_on(HOST_B);
}

/* Host A is off: its VFs are gone, and it answers nothing. */
static void lose_a(void)
{
	sim_daemon_kill(HOST_A);
	sim_net.cut_until_us = sim_us() + 3600 * SIM_S;
	for (unsigned i = 0; i < sim_size.vfs; i++)
		sim_hosts[HOST_A].vfs[i].guid = sim_hosts[HOST_A].vfs[i].parked_guid;
}

/* Restored elsewhere all the same; what the lost host still has when it comes back harms nobody. */
static bool lost_source(void)
{
	if (!save() || !restore_lost(HOST_B) || !strstr(sim_reply.error, "it answers"))
		return sim_is_wrong("taken from a host that answers: %.200s", sim_reply.error);
	lose_a();
	if (!ask_restore(HOST_B) || !strstr(sim_reply.error, "--source-lost"))
		return sim_is_wrong("it does not name the way out: %.300s", sim_reply.error);
	if (!restore_lost(HOST_B) || sim_reply.rc)
		return sim_is_wrong("not restored: %.300s", sim_reply.error);
	sim_run(NULL, NULL, sim_us() + 600 * SIM_S, NULL);
	sim_net.cut_until_us = 0;
	sim_daemon_start(HOST_A);
	if (!settles() || !resolve() || sim_reply.rc)
		return sim_is_wrong("resolve: %.300s", sim_reply.error);
	return gets_right() && runs_on(HOST_B);
}

static bool asked_for(void *arg)
{
	(void)arg;
	return *sim_record(HOST_A, ROLE_SOURCE)->rec.to.url;
}

static bool way_out_is_told(void *arg)
{
	(void)arg;
	return strstr(sim_record(HOST_A, ROLE_SOURCE)->rec.trouble, "--destination-lost");
}

/* The host that restores it is lost, and another one does. */
static bool lost_destination(void)
{
	if (!save())
		return false;
	sim_cold_restore(HOST_B, false);
	if (!sim_run(asked_for, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("the source was not asked");
	sim_lost_strike(HOST_B);
	sim_vm_may_be_dead = false; /* the VM is a file */
	if (!sim_run(way_out_is_told, NULL, sim_us() + TOLD_S * SIM_S, sim_never))
		return sim_is_wrong("nobody is told of the command");
	sim_cold_resolve(true);
	if (!sim_cold_wait() || sim_reply.rc || !ask_restore(HOST_C) || sim_reply.rc)
		return sim_is_wrong("another host does not restore it: %.300s", sim_reply.error);
	if (!gets_right() || !runs_on(HOST_C))
		return false;
	sim_power_on(HOST_B);
	sim_lost_host = -1;
	return gets_right() && runs_on(HOST_C);
}

static bool has_come(void *arg)
{
	struct migration *m = sim_record(HOST_B, ROLE_DESTINATION);

	(void)arg;
	return m && m->rec.committed;
}

/* The VM's addresses are not there yet, and somebody takes the host that has them for lost. */
static bool not_lost(void)
{
	char *path AUTO_FREE = NULL;

	if (!save())
		return false;
	sim_fabric.opensm_stopped_until_us = sim_us() + 15 * SIM_S;
	sim_cold_restore(HOST_B, false);
	if (!sim_run(has_come, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("it does not come");
	path = strf("/v1/migrations/%s/resolve", sim_record(HOST_B, ROLE_DESTINATION)->rec.id);
	if (sim_ask(HOST_B, "POST", path, "{\"source_lost\":true}") ||
	    !strstr(sim_refusal, "hosta is not lost"))
		return sim_is_wrong("taken from a host that answers: %.300s", sim_refusal);
	return gets_right() && runs_on(HOST_B) &&
	       (!mover->connection_ended || sim_is_wrong("its connection has ended"));
}

/* The VF shows the vGUID again, and the peer has waited, since the power was off for less than
 * that. */
static bool source_off(void)
{
	if (!save())
		return false;
	sim_power_off(HOST_A);
	sim_run(NULL, NULL, sim_us() + OFF_S * SIM_S, sim_never);
	sim_power_on(HOST_A);
	if (!settles() || !kept_right() || !ask_restore(HOST_A) || sim_reply.rc)
		return sim_is_wrong("not restored: %.200s %.200s", sim_reply.error, sim_wrong);
	return gets_right() && runs_on(HOST_A) &&
	       (!mover->connection_ended || sim_is_wrong("its connection has ended"));
}

static bool old_file(void)
{
	if (!restore_here())
		return false;
	sim_qemu_kill(mover, HOST_A);
	sim_vm_may_be_dead = true;
	return gets_right() && refused(HOST_B, "restored already");
}

static bool peer_lives(void *arg)
{
	(void)arg;
	return peer->live && !sim_hosts[HOST_C].d.peer_watches;
}

/* After saved-peers-s the peer goes on alone, not before; the restored program as well. */
static bool long_wait(void)
{
	uint64_t start = sim_us();

	if (!save() || !kept_right())
		return false;
	if (!sim_run(peer_lives, NULL, sim_us() + 3 * SIM_PEERS_S * SIM_S, sim_never))
		return sim_is_wrong("the peer waits for ever");
	if (sim_us() - start < SIM_PEERS_S * SIM_S)
		return sim_is_wrong("the peer has not waited");
	sim_run(NULL, NULL, sim_us() + 3600 * SIM_S, sim_never);
	return ask_restore(HOST_B) && gets_right() && runs_on(HOST_B);
}

static bool boots_instead(void)
{
	if (!save())
		return false;
	mover->suspended[0] = '\0'; /* another guest */
	mover->live = true;
	sim_qemu_start(HOST_A, mover);
	sim_run(NULL, NULL, sim_us() + 60 * SIM_S, NULL);
	return sim_all_right(NULL) && runs_on(HOST_A);
}

static bool given_up(void)
{
	if (!save())
		return false;
	sim_cold_resolve(true);
	if (!sim_cold_wait() || !strstr(sim_reply.error, "ibvmig resolve"))
		return sim_is_wrong("it does not say how it ends: %.300s", sim_reply.error);
	sim_vm_may_be_dead = true;
	return resolve() && gets_right() &&
	       (!sim_binding(mover->vguids[0]) || sim_is_wrong("its address is still kept"));
}

/* A file whose record has ended: the VM comes back, without its connections. */
static bool alone(void)
{
	return given_up() && virsh_restore(HOST_A) && gets_right() && runs_on(HOST_A);
}

static bool saving(void *arg)
{
	(void)arg;
	return sim_image.saving;
}

static bool abort_save(void)
{
	sim_cold_save(HOST_A);
	if (!sim_run(saving, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("libvirt was not asked");
	sim_abort(mover, HOST_A);
	if (!sim_cold_wait() || !sim_reply.rc)
		return sim_is_wrong("the save does not fail");
	return strstr(sim_reply.error, "canceled by client") && gets_right() && runs_on(HOST_A)
		       ? true
		       : sim_is_wrong("%.300s (%.80s)", sim_reply.error, sim_wrong);
}

/* No hook of libvirt waits for a save: agents of busy guests have time for their answers. */
static bool slow_agents(void)
{
	mover->channel_stuck_until_us = sim_us() + 10 * SIM_S;
	peer->channel_stuck_until_us = sim_us() + 22 * SIM_S;
	return restore_there();
}

/* A guest that does not let its VF go: nothing is saved, and nothing lost. */
static bool stuck_device(void)
{
	mover->ignores_device_del = true;
	if (!ask_save() || !sim_reply.rc || sim_image.whole)
		return sim_is_wrong("the save does not fail");
	mover->ignores_device_del = false;
	return gets_right() && runs_on(HOST_A);
}

/* libvirt has its hook's answer, and the daemon that gave it is killed before the VM is there. */
static bool slow_load(void)
{
	sim_load_us = 20 * SIM_S;
	if (!save())
		return false;
	sim_cold_restore(HOST_B, false);
	if (!sim_run(armed_there, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("the hook has not been answered");
	sim_run(NULL, NULL, sim_us() + 100 * SIM_MS, sim_never);
	kill_daemon(HOST_B);
	sim_run(restored, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
	return gets_right() && runs_on(HOST_B);
}

static bool play(const void *scene, const char *dir)
{
	bool (*const *run)(void) = scene;

	sim_mover.strategy = "auto";
	return sim_world_start(dir) && sim_all_right(NULL) && (*run)() && !*sim_broken;
}

#define SCENE(fn)                                                                                  \
	play, &(bool (*const)(void))                                                               \
	{                                                                                          \
		fn                                                                                 \
	}

static const struct sim_scene scenes[] = {
	{"saved, restored here", SCENE(restore_here)},
	{"saved, restored there, and migrated back", SCENE(restore_there)},
	{"plain virsh restore", SCENE(plain_virsh)},
	{"refused while the host that saved it is silent", SCENE(no_source)},
	{"the host that saved it is lost", SCENE(lost_source)},
	{"it runs elsewhere, and the host that saved it is not lost", SCENE(not_lost)},
	{"the host that restores it is lost", SCENE(lost_destination)},
	{"the host that saved it is off for a while", SCENE(source_off)},
	{"an old file is refused elsewhere", SCENE(old_file)},
	{"peers wait for a minute", SCENE(long_wait)},
	{"the VM is started instead", SCENE(boots_instead)},
	{"given up by the operator", SCENE(given_up)},
	{"restored after that, without connections", SCENE(alone)},
	{"the user aborts the save", SCENE(abort_save)},
	{"agents that answer late", SCENE(slow_agents)},
	{"a device that stays", SCENE(stuck_device)},
	{"the daemon dies while libvirt loads", SCENE(slow_load)},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
