/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Migrations whose other host is lost, or has lost its journal, on simulated hosts
 * (tests/sim/world.h); the loss of the destination in each state is in daemon_faults.c. */
#include "tests/sim/right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/base/sm.h"
#include "daemon/vm/vm.h"
#include "tests/sim/scene.h"
#include "tests/sim/virt.h"

#include <ftw.h>
#include <string.h>

#define REACH_S 60
#define RIGHT_S 240

static struct sim_guest *const mover = &sim_guests[0];
static const char *world;

static bool start(const char *dir)
{
	world = dir;
	sim_mover = (struct sim_mover){.strategy = "late"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool becomes(bool (*is)(void *arg), unsigned seconds, const char *what)
{
	return sim_run(is, NULL, sim_us() + seconds * SIM_S, sim_never) ? !*sim_broken
									: sim_is_wrong("%s", what);
}

static bool becomes_right(int home)
{
	if (!sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never) || *sim_broken)
		return false;
	return sim_home(mover) == home || sim_is_wrong("it is on host %d", sim_home(mover));
}

/* ---- records and calls ---- */

static struct migration *newest(int host)
{
	return sim_hosts[host].d.migrations;
}

static bool answered;
static char refusal[512];

static void heard(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	answered = true;
	snprintf(refusal, sizeof refusal, "%s", rc ? error : "");
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answered;
}

/* body: JSON text, or NULL. false: refused. */
static bool post(int host, const char *path, const char *body)
{
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);
	struct json_object *o AUTO_JSON = NULL;

	answered = false;
	if (body)
		json_parse(body, strlen(body), &o);
	sim_http(host, base, "POST", path, o, 30000, heard, NULL);
	return sim_run(has_answered, NULL, sim_us() + 40 * SIM_S, NULL) && !*refusal;
}

static bool resolve(bool destination_lost)
{
	char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", newest(HOST_A)->rec.id);

	return post(HOST_A, path, destination_lost ? "{\"destination_lost\":true}" : NULL);
}

static bool refuses(const char *word)
{
	return !resolve(true) && strstr(refusal, word)
		       ? true
		       : sim_is_wrong("it does not say \"%s\": \"%.300s\"", word, refusal);
}

/* ---- conditions ---- */

static bool source_holds(void *arg)
{
	(void)arg;
	return newest(HOST_A) && newest(HOST_A)->rec.state == M_HOLD;
}

static bool there_shows(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->rec.state == M_SWITCH &&
	       sim_hosts[HOST_B].vfs[0].guid == mover->vguids[0];
}

static bool runs_there(void *arg)
{
	(void)arg;
	return sim_home(mover) == HOST_B && !mover->migration.under_way;
}

static bool attached_there(void *arg)
{
	(void)arg;
	return runs_there(NULL) && record_did(&newest(HOST_B)->rec, DID_ATTACH);
}

static bool parked_there(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->rec.state == M_PARKED;
}

static bool source_has_ended(void *arg)
{
	(void)arg;
	return newest(HOST_A) && newest(HOST_A)->rec.ended;
}

static bool leases(int host)
{
	const struct vf_table *t = sim_hosts[host].d.vfs;

	for (size_t i = 0; t && i < t->vf_count; i++)
		if (t->vfs[i].leased)
			return true;
	return false;
}

static bool b_leases_nothing(void *arg)
{
	(void)arg;
	return !leases(HOST_B);
}

/* ---- a destination that has lost its journal ---- */

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* The host's ibvmigd is installed anew; the VFs show what they did. */
static void reinstall(int host)
{
	char *dir AUTO_FREE = strf("%s/%s", world, sim_hosts[host].name);

	sim_daemon_kill(host);
	nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
	sim_daemon_start(host);
}

/* The VF there still shows the vGUID as the source takes it back, while QEMU has yet to copy. */
static bool play_forgotten_before(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_mover.writes_per_s = 400ull << 20;
	sim_mover.writes_to = 4ull << 30;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!becomes(there_shows, REACH_S, "SWITCH is not reached"))
		return false;
	reinstall(HOST_B);
	sim_abort(mover, HOST_A);
	return becomes_right(HOST_A) && newest(HOST_A)->rec.state == M_ABORTED;
}

/* The source's part ends; what runs there without a lease is that host's matter. */
static bool play_forgotten_after(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!becomes(attached_there, REACH_S, "it does not arrive"))
		return false;
	reinstall(HOST_B);
	return becomes(source_has_ended, REACH_S,
		       "the source waits for a host that knows nothing") &&
	       newest(HOST_A)->rec.state == M_DONE && !leases(HOST_A);
}

/* ---- what the operator may say, and when ---- */

static bool play_not_lost(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_hosts[HOST_B].device_add_fails = true;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!becomes(source_holds, REACH_S, "HOLD is not reached") ||
	    !refuses("is HOLD, and waits for no destination: ibvmig abort") ||
	    !becomes(parked_there, 200, "it is not parked") || !refuses("hostb is not lost"))
		return false;
	sim_hosts[HOST_B].device_add_fails = false;
	migrate_resolve(&sim_hosts[HOST_B].d, newest(HOST_B)->rec.id);
	if (!becomes_right(HOST_B))
		return false;
	return refuses("is DONE, and waits for no destination");
}

/* ---- the VM starts anew ---- */

static void boots(int host)
{
	mover->suspended[0] = '\0';
	mover->live = true;
	mover->connection_ended = true;
	sim_qemu_start(host, mover);
}

static bool lost_after_commit(const char *dir)
{
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!becomes(attached_there, REACH_S, "it does not arrive"))
		return false;
	sim_power_off(HOST_B);
	sim_lost_host = HOST_B;
	return true;
}

static bool gets_right(int home)
{
	if (!sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, NULL) || *sim_broken)
		return false;
	return sim_home(mover) == home || sim_is_wrong("it is on host %d", sim_home(mover));
}

static bool returns(int home)
{
	sim_power_on(HOST_B);
	sim_lost_host = -1;
	return gets_right(home);
}

/* Evacuated, as Nova does: another host gets the vGUID, whatever the source waits for. */
static bool play_evacuated(const void *arg, const char *dir)
{
	char *fence AUTO_FREE = strf("/v1/vms/%s/fence", mover->uuid);

	(void)arg;
	if (!lost_after_commit(dir) || !post(HOST_C, fence, "{\"host\":\"hostb\"}"))
		return sim_is_wrong("not fenced: %.300s", refusal);
	boots(HOST_C);
	sim_run(NULL, NULL, sim_us() + 30 * SIM_S, NULL);
	if (!leases(HOST_A) || newest(HOST_A)->rec.ended)
		return sim_is_wrong("it ended without a word");
	if (!resolve(true))
		return sim_is_wrong("refused: %.300s", refusal);
	return gets_right(HOST_C) && returns(HOST_C);
}

/* As long as ibvmig-sm may take, its question to the lost host and all vGUIDs of the VM included:
 * who asks hears of it at the first try. */
static bool play_slow_sm(const void *arg, const char *dir)
{
	char *fence AUTO_FREE = strf("/v1/vms/%s/fence", mover->uuid);

	(void)arg;
	if (!lost_after_commit(dir))
		return false;
	sim_fabric.fence_us = (SM_CHANGE_MS - 1000) * SIM_MS;
	if (!resolve(true))
		return sim_is_wrong("refused: %.300s", refusal);
	if (!becomes(source_has_ended, 30, "the source does not end"))
		return false;
	if (strstr(newest(HOST_A)->rec.trouble, "ibvmig-sm") || sim_binding(mover->vguids[0]))
		return sim_is_wrong("it is not fenced at once: %s", newest(HOST_A)->rec.trouble);
	if (!post(HOST_C, fence, "{\"host\":\"hostb\"}"))
		return sim_is_wrong("not fenced: %.300s", refusal);
	boots(HOST_C);
	return gets_right(HOST_C) && returns(HOST_C);
}

static bool is_known(void *arg)
{
	(void)arg;
	return vm_find(&sim_hosts[HOST_A].d, mover->uuid);
}

/* Back on the source, whose daemon was restarted: its VF is not taken for the one that it had. */
static bool play_back(const void *arg, const char *dir)
{
	struct vm *vm;

	(void)arg;
	if (!lost_after_commit(dir))
		return false;
	sim_daemon_kill(HOST_A);
	sim_daemon_start(HOST_A);
	sim_run(NULL, NULL, sim_us() + 10 * SIM_S, NULL);
	boots(HOST_A);
	if (!sim_run(is_known, NULL, sim_us() + REACH_S * SIM_S, NULL))
		return sim_is_wrong("it is not known");
	sim_run(NULL, NULL, sim_us() + 10 * SIM_S, NULL);
	vm = vm_find(&sim_hosts[HOST_A].d, mover->uuid);
	if (vm->state == VM_ATTACHED)
		return sim_is_wrong("its VF counts as attached, and QEMU has none");
	if (!resolve(true))
		return sim_is_wrong("refused: %.300s", refusal);
	return gets_right(HOST_A) && returns(HOST_A);
}

/* ---- a VF that was prepared for a VM that does not come ---- */

static bool hook(void)
{
	char *xml AUTO_FREE = sim_domain_xml(mover, sim_hosts[HOST_B].qemus[0].path, "");
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_str(body, "name", mover->name);
	json_set_str(body, "op", "migrate");
	json_set_str(body, "sub_op", "begin");
	json_set_str(body, "xml", xml);
	return post(HOST_B, "/v1/hook", json_text(body)) && leases(HOST_B)
		       ? true
		       : sim_is_wrong("the hook leases nothing: %.300s", refusal);
}

static bool play_nothing_comes(const void *arg, const char *dir)
{
	(void)arg;
	return start(dir) && hook() &&
	       becomes(b_leases_nothing, 120, "the VF is kept for nobody") && becomes_right(HOST_A);
}

/* The source's power fails; the VM goes with it. */
static bool play_source_lost(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !hook())
		return false;
	sim_vm_may_be_dead = true;
	sim_power_off(HOST_A);
	if (!becomes(b_leases_nothing, 300, "the VF is kept for nobody"))
		return false;
	sim_power_on(HOST_A);
	if (!sim_run(source_has_ended, NULL, sim_us() + REACH_S * SIM_S, NULL))
		return sim_is_wrong("the source waits");
	boots(HOST_A);
	return gets_right(HOST_A);
}

/* The source is only cut off, and hears of it. */
static bool play_source_cut_off(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !hook())
		return false;
	sim_net.cut_until_us = sim_us() + 600 * SIM_S;
	if (!becomes(b_leases_nothing, 300, "the VF is kept for nobody") ||
	    !becomes(source_has_ended, 300, "the source waits"))
		return false;
	sim_net.cut_until_us = 0;
	return becomes_right(HOST_A);
}

/* libvirt has started QEMU, which waits: nobody takes the VF away from it. */
static bool play_incoming(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !hook())
		return false;
	sim_qemu_new(HOST_B, mover, VCPU_INCOMING);
	sim_net.cut_until_us = sim_us() + 600 * SIM_S;
	sim_run(NULL, NULL, sim_us() + 400 * SIM_S, sim_never);
	return leases(HOST_B) ||
	       sim_is_wrong("the VF of a QEMU that waits for its VM is given back");
}

static const struct sim_scene scenes[] = {
	{"a destination loses its journal, and the source walks back", play_forgotten_before, NULL},
	{"the same after COMMIT", play_forgotten_after, NULL},
	{"a destination that answers is not lost", play_not_lost, NULL},
	{"a VM that was lost with its destination is evacuated", play_evacuated, NULL},
	{"the same, and ibvmig-sm takes its time", play_slow_sm, NULL},
	{"it is started again where it came from", play_back, NULL},
	{"a VF is prepared, and no VM comes", play_nothing_comes, NULL},
	{"the same, and the source's power fails", play_source_lost, NULL},
	{"the same, and the source is cut off", play_source_cut_off, NULL},
	{"the same, and QEMU waits here", play_incoming, NULL},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
