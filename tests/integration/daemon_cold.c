/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VM is saved and restored, here and on another host, on simulated hosts (tests/fake/sim.h): what
 * it keeps, who waits for it and for how long, what is refused; and each state struck by the death
 * of each daemon. Afterwards the world must be right (tests/fake/sim_right.h).
 *
 * Without arguments all; SCENE, or STATE FAULT, one with its log. */
#include "tests/fake/sim_right.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate.h"

#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CALL_MS   3600000
#define SETTLE_S  400
#define PEERS_S   60 /* saved-peers-s */
#define DOWN_US   (2 * SIM_S)
#define RESTORES  4
#define FILE_NAME "/var/tmp/g1.save"

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

/* ---- what an operator asks, and the answer ---- */

static struct {
	bool came;
	int rc;
	char error[512];
} reply;

static void answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	reply.came = true;
	reply.rc = rc;
	snprintf(reply.error, sizeof reply.error, "%s", rc ? error : "");
}

static void ask_about(int host, const char *path, bool source_lost)
{
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);
	struct json_object *body AUTO_JSON = json_object_new_object();

	reply.came = false;
	json_set_str(body, "file", FILE_NAME);
	if (source_lost)
		json_set_bool(body, "source_lost", true);
	sim_http(host, base, "POST", path, body, CALL_MS, answered, NULL);
}

static void ask(int host, const char *path)
{
	ask_about(host, path, false);
}

static bool has_answer(void *arg)
{
	(void)arg;
	return reply.came;
}

static bool wait_for_answer(const char *path)
{
	return sim_run(has_answer, NULL, sim_us() + SETTLE_S * SIM_S, sim_never) ||
	       sim_is_wrong("%s is not answered", path);
}

static bool ask_and_wait(int host, const char *path)
{
	ask(host, path);
	return wait_for_answer(path);
}

static bool restore_lost(int host)
{
	ask_about(host, "/v1/restore", true);
	return wait_for_answer("/v1/restore");
}

/* ---- the record ---- */

static struct migration *record(int host, enum migrate_role role)
{
	for (struct migration *m = sim_hosts[host].d.migrations; m; m = m->next)
		if (m->role == role)
			return m;
	return NULL;
}

static bool is_kept(void)
{
	struct migration *m = record(HOST_A, ROLE_SOURCE);

	return m && m->state == M_SAVED && m->saved && !m->back && !m->committed && !*m->to.url;
}

/* Nothing goes on: all has ended, or the VM is a file. */
static bool settled(void *arg)
{
	(void)arg;
	if (sim_image.saving || sim_image.restoring)
		return false;
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		if (!sim_hosts[h].proc.up)
			return false;
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next)
			if (!m->ended && m->state != M_PARKED && !(h == HOST_A && is_kept()))
				return sim_is_wrong("host %s: it does not end: %s%s (%.200s)",
						    sim_hosts[h].name, m->back ? "undo of " : "",
						    migrate_state_name(m->state), m->trouble);
	}
	return true;
}

static bool settles(void)
{
	return sim_run(settled, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
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
	struct migration *m = record(HOST_B, ROLE_DESTINATION);

	(void)arg;
	return m && m->armed;
}

static bool save(void)
{
	if (!ask_and_wait(HOST_A, "/v1/vms/g1/save"))
		return false;
	if (reply.rc)
		return sim_is_wrong("save fails: %.300s", reply.error);
	return true;
}

/* The VM is a file; its address and VF are kept for it, and its peer waits. */
static bool kept_right(void)
{
	struct sim_binding *b = sim_binding(mover->vguids[0]);
	struct vf *vf = vf_of_vm(&sim_hosts[HOST_A].d.vfs, mover->uuid, 0);

	if (sim_home(mover) >= 0 || !sim_image.whole || !is_kept())
		return sim_is_wrong("it is not saved");
	if (!b || strcmp(b->host, "hosta") || sim_vfs_with(mover->vguids[0]) != 1 || !vf)
		return sim_is_wrong("its address is not kept");
	return !peer->live || sim_is_wrong("its peer does not wait");
}

static bool restore_here(void)
{
	if (!save() || !kept_right() || !ask_and_wait(HOST_A, "/v1/restore"))
		return false;
	if (reply.rc)
		return sim_is_wrong("restore fails: %.300s", reply.error);
	return gets_right() && runs_on(HOST_A);
}

static bool restore_there(void)
{
	if (!save() || !kept_right() || !ask_and_wait(HOST_B, "/v1/restore"))
		return false;
	if (reply.rc)
		return sim_is_wrong("restore fails: %.300s", reply.error);
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
	char *resolve AUTO_FREE = NULL;

	if (!save() || !restore_lost(HOST_B) || !strstr(reply.error, "it answers"))
		return sim_is_wrong("taken from a host that answers: %.200s", reply.error);
	resolve = strf("/v1/migrations/%s/resolve", record(HOST_A, ROLE_SOURCE)->id);
	lose_a();
	if (!ask_and_wait(HOST_B, "/v1/restore") || !strstr(reply.error, "--source-lost"))
		return sim_is_wrong("it does not name the way out: %.300s", reply.error);
	if (!restore_lost(HOST_B) || reply.rc)
		return sim_is_wrong("not restored: %.300s", reply.error);
	sim_run(NULL, NULL, sim_us() + 600 * SIM_S, NULL);
	sim_net.cut_until_us = 0;
	sim_daemon_start(HOST_A);
	if (!settles() || !ask_and_wait(HOST_A, resolve) || reply.rc)
		return sim_is_wrong("resolve: %.300s", reply.error);
	return gets_right() && runs_on(HOST_B);
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
	if (!sim_run(peer_lives, NULL, sim_us() + 3 * PEERS_S * SIM_S, sim_never))
		return sim_is_wrong("the peer waits for ever");
	if (sim_us() - start < PEERS_S * SIM_S)
		return sim_is_wrong("the peer has not waited");
	sim_run(NULL, NULL, sim_us() + 3600 * SIM_S, sim_never);
	return ask_and_wait(HOST_B, "/v1/restore") && gets_right() && runs_on(HOST_B);
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
	char *path AUTO_FREE = NULL;

	if (!save())
		return false;
	path = strf("/v1/migrations/%s/resolve", record(HOST_A, ROLE_SOURCE)->id);
	sim_vm_may_be_dead = true;
	return ask_and_wait(HOST_A, path) && gets_right() &&
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
	ask(HOST_A, "/v1/vms/g1/save");
	if (!sim_run(saving, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("libvirt was not asked");
	sim_abort(mover, HOST_A);
	if (!sim_run(has_answer, NULL, sim_us() + SETTLE_S * SIM_S, sim_never) || !reply.rc)
		return sim_is_wrong("the save does not fail");
	return strstr(reply.error, "canceled by client") && gets_right() && runs_on(HOST_A)
		       ? true
		       : sim_is_wrong("%.300s (%.80s)", reply.error, sim_wrong);
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
	if (!ask_and_wait(HOST_A, "/v1/vms/g1/save") || !reply.rc || sim_image.whole)
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
	ask(HOST_B, "/v1/restore");
	if (!sim_run(armed_there, NULL, sim_us() + SETTLE_S * SIM_S, sim_never))
		return sim_is_wrong("the hook has not been answered");
	sim_run(NULL, NULL, sim_us() + 100 * SIM_MS, sim_never);
	kill_daemon(HOST_B);
	sim_run(restored, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
	return gets_right() && runs_on(HOST_B);
}

static const struct scene {
	const char *name;
	bool (*play)(void);
} scenes[] = {
	{"saved, restored here", restore_here},
	{"saved, restored there, and migrated back", restore_there},
	{"plain virsh restore", plain_virsh},
	{"refused while the host that saved it is silent", no_source},
	{"the host that saved it is lost", lost_source},
	{"an old file is refused elsewhere", old_file},
	{"peers wait for a minute", long_wait},
	{"the VM is started instead", boots_instead},
	{"given up by the operator", given_up},
	{"restored after that, without connections", alone},
	{"the user aborts the save", abort_save},
	{"agents that answer late", slow_agents},
	{"a device that stays", stuck_device},
	{"the daemon dies while libvirt loads", slow_load},
};

/* ---- faults ---- */

static const struct point {
	const char *name;
	int host;
	enum migrate_role role;
	enum migrate_state state;
	bool restore; /* reached only in the restore */
} points[] = {
	{"PREPARE", HOST_A, ROLE_SOURCE, M_PREPARE, false},
	{"QUIESCE", HOST_A, ROLE_SOURCE, M_QUIESCE, false},
	{"DETACH", HOST_A, ROLE_SOURCE, M_DETACH, false},
	{"saving", HOST_A, ROLE_SOURCE, M_SAVED, false},
	{"kept", HOST_A, ROLE_SOURCE, M_SAVED, true},
	{"dst-PREPARE", HOST_B, ROLE_DESTINATION, M_PREPARE, true},
	{"SWITCH", HOST_A, ROLE_SOURCE, M_SWITCH, true},
	{"dst-SWITCH", HOST_B, ROLE_DESTINATION, M_SWITCH, true},
	{"dst-ATTACH", HOST_B, ROLE_DESTINATION, M_ATTACH, true},
	{"dst-RESUME", HOST_B, ROLE_DESTINATION, M_RESUME, true},
	{"RESUME", HOST_A, ROLE_SOURCE, M_RESUME, true},
};

static bool at_point(void *arg)
{
	const struct point *p = arg;
	struct migration *m = record(p->host, p->role);

	return m && m->state == p->state && !m->back;
}

static void kill_libvirtd(int host)
{
	sim_libvirtd_kill(host, 3 * SIM_S);
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

static void kill_agent(int guest)
{
	sim_guest_agent_kill(&sim_guests[guest], SIM_S);
}

static void disk_well(void *arg)
{
	((struct sim_proc *)arg)->disk_errno = 0;
}

static void fill_disk(int host)
{
	sim_hosts[host].proc.disk_errno = ENOSPC;
	sim_after(NULL, 20 * SIM_S, disk_well, &sim_hosts[host].proc);
}

static void cut(int seconds)
{
	sim_net.cut_until_us = sim_us() + (unsigned)seconds * SIM_S;
}

static const struct fault {
	const char *name;
	void (*strike)(int arg);
	int arg;
} faults[] = {
	{"kill-source-ibvmigd", kill_daemon, HOST_A},
	{"kill-destination-ibvmigd", kill_daemon, HOST_B},
	{"kill-peer-ibvmigd", kill_daemon, HOST_C},
	{"kill-source-libvirtd", kill_libvirtd, HOST_A},
	{"kill-destination-libvirtd", kill_libvirtd, HOST_B},
	{"kill-ibvmig-sm", kill_sm, 0},
	{"kill-agent", kill_agent, 0},
	{"kill-peer-agent", kill_agent, 1},
	{"source-disk-full-20s", fill_disk, HOST_A},
	{"destination-disk-full-20s", fill_disk, HOST_B},
	{"cut-10s", cut, 10},
};

static const unsigned delays_ms[] = {0, 7, 45, 250};

/* What an operator does who finds the VM a file, where it was to go first. */
static bool bring_back(void)
{
	for (int n = 0; n < RESTORES && sim_home(mover) < 0; n++) {
		if (!sim_image.whole)
			return sim_is_wrong("the VM is lost");
		sim_restore(n < 2 ? HOST_B : HOST_A);
		sim_run(restored, NULL, sim_us() + SETTLE_S * SIM_S, sim_never);
		if (!settles())
			return false;
	}
	return sim_home(mover) >= 0 || sim_is_wrong("it is not restored: %.300s", sim_image.error);
}

static bool play_fault(const struct point *p, const struct fault *f, unsigned delay_ms)
{
	uint64_t until;

	ask(HOST_A, "/v1/vms/g1/save");
	if (p->restore) {
		if (!sim_run(has_answer, NULL, sim_us() + SETTLE_S * SIM_S, sim_never) || reply.rc)
			return sim_is_wrong("save fails: %.300s", reply.error);
		ask(HOST_B, "/v1/restore");
	}
	until = sim_us() + SETTLE_S * SIM_S;
	if (!sim_run(at_point, (void *)(uintptr_t)p, until, sim_never))
		return sim_is_wrong("the state was not reached");
	sim_run(NULL, NULL, sim_us() + delay_ms * SIM_MS, sim_never);
	f->strike(f->arg);
	/* Nothing goes on behind what looks settled. */
	sim_run(NULL, NULL, sim_us() + 30 * SIM_S, sim_never);
	return settles() && bring_back() && gets_right();
}

/* ---- all of them, each in a process: the world is built of globals ---- */

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

struct cell {
	const struct scene *scene; /* or: */
	const struct point *point;
	const struct fault *fault;
	unsigned delay_ms;
};

static bool play(const struct cell *c, const char *dir)
{
	sim_mover.strategy = "auto";
	mkdir(dir, 0700);
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	return (c->scene ? c->scene->play() : play_fault(c->point, c->fault, c->delay_ms)) &&
	       !*sim_broken;
}

static bool run(const struct cell *c, const char *dir)
{
	int status = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		bool ok = play(c, dir);

		if (!ok)
			printf("# %s %s %u: %s %s\n", c->scene ? c->scene->name : c->point->name,
			       c->scene ? "" : c->fault->name, c->delay_ms, sim_wrong, sim_broken);
		fflush(NULL);
		nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
		_exit(!ok);
	}
	waitpid(pid, &status, 0);
	return !status;
}

static bool run_fault(const struct fault *f, const char *dir)
{
	unsigned bad = 0;

	for (size_t p = 0; p < ARRAY_SIZE(points); p++) {
		size_t d = (p + (size_t)(f - faults)) % ARRAY_SIZE(delays_ms);

		bad += !run(
			&(struct cell){.point = &points[p], .fault = f, .delay_ms = delays_ms[d]},
			dir);
	}
	return !bad;
}

static int run_one(char **words, int n, const char *dir)
{
	for (size_t i = 0; n == 1 && i < ARRAY_SIZE(scenes); i++)
		if (!strcmp(scenes[i].name, words[0]))
			return !run(&(struct cell){.scene = &scenes[i]}, dir);
	for (size_t p = 0; n == 3 && p < ARRAY_SIZE(points); p++)
		for (size_t f = 0; f < ARRAY_SIZE(faults); f++)
			if (!strcmp(points[p].name, words[0]) && !strcmp(faults[f].name, words[1]))
				return !run(&(struct cell){.point = &points[p],
							   .fault = &faults[f],
							   .delay_ms = (unsigned)atoi(words[2])},
					    dir);
	fprintf(stderr, "usage: daemon_cold [SCENE | STATE FAULT MS]\n");
	return 2;
}

int main(int argc, char **argv)
{
	char dir[] = "/dev/shm/ibvmig-cold-XXXXXX", slow[] = "/tmp/ibvmig-cold-XXXXXX";
	char *folder = mkdtemp(dir), *own AUTO_FREE = NULL;
	unsigned bad = 0, n = 0;
	int rc = 0;

	if (!folder)
		folder = mkdtemp(slow);
	if (!folder) {
		perror("mkdtemp");
		return 1;
	}
	own = strf("%s/world", folder);
	log_init("cold");
	log_set_level(argc > 1 ? LOG_DEBUG : (enum log_level)0);
	if (argc > 1) {
		rc = run_one(argv + 1, argc - 1, own);
		rmdir(folder);
		return rc;
	}
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
		bool ok = run(&(struct cell){.scene = &scenes[i]}, own);

		printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, scenes[i].name);
		bad += !ok;
	}
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		bool ok = run_fault(&faults[i], own);

		printf("%s %u - %s: %zu cells\n", ok ? "ok" : "not ok", ++n, faults[i].name,
		       ARRAY_SIZE(points));
		bad += !ok;
	}
	printf("1..%u\n", n);
	rmdir(folder);
	return bad != 0;
}
