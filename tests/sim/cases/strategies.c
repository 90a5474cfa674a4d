/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The choice of a migration's strategy, and why it takes no better one, on simulated hosts
 * (tests/sim/world.h). A dry run must have said so; afterwards the world must be right
 * (tests/sim/right.h). */
#include "tests/sim/right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/vm/vm.h"
#include "tests/sim/scene.h"

#include <string.h>

#define IPOIB "IPoIB (on mlx5_0)"
#define THREE IPOIB "\nNFS/RDMA (on mlx5_0)\nSRP (on mlx5_1)"
#define ALL3  IPOIB ", NFS/RDMA (on mlx5_0) and SRP (on mlx5_1) use"
/* More than a sentence has room for. */
#define MANY                                                                                       \
	"an NVMe/RDMA target (on mlx5_0)\nan NVMe/RDMA target (on mlx5_1)\n"                       \
	"an NVMe/RDMA target (on mlx5_2)\nan NVMe/RDMA target (on mlx5_3)\n"                       \
	"an NVMe/RDMA target (on mlx5_4)\nan NVMe/RDMA target (on mlx5_5)\n"                       \
	"an NVMe/RDMA target (on mlx5_6)\nan NVMe/RDMA target (on mlx5_7)\n"

/* MiB: takes longer than any deadline before QEMU begins, and than the ballast's life; days at the
 * preset speed. */
#define DISK 300000

static const struct scene {
	const char *name;
	struct sim_mover mover;
	const char *chosen; /* NULL: it is refused */
	const char *word;   /* in the refusal, or in why not the one before chosen; or NULL */
	bool left_before;   /* the VF, before QEMU began */
} scenes[] = {
	{"auto, nothing special", {.strategy = "auto"}, "late", "cannot migrate its state", false},
	{"late", {.strategy = "late"}, "late", NULL, false},
	{"early", {.strategy = "early"}, "early", NULL, true},
	{"auto, a kernel user", {.strategy = "auto", .kernel_user = IPOIB}, "early", IPOIB, true},
	{"late, a kernel user", {.strategy = "late", .kernel_user = IPOIB}, NULL, IPOIB, false},
	{"late, three kernel users", {.strategy = "late", .kernel_user = THREE}, NULL, ALL3, false},
	{"auto, three kernel users",
	 {.strategy = "auto", .kernel_user = THREE},
	 "early",
	 ALL3,
	 true},
	{"late, more kernel users than can be named",
	 {.strategy = "late", .kernel_user = MANY},
	 NULL,
	 "(on mlx5_5) and 2 more use the VF inside the guest's kernel: what the device writes for "
	 "them during the copy would be lost",
	 false},
	{"auto, post-copy", {.strategy = "auto", .post_copy = true}, "early", "post-copy", false},
	{"late, post-copy", {.strategy = "late", .post_copy = true}, NULL, "post-copy", false},
	{"early, post-copy", {.strategy = "early", .post_copy = true}, "early", NULL, true},
	{"native, of a VF that cannot",
	 {.strategy = "native"},
	 NULL,
	 "cannot migrate its state",
	 false},
	{"native, of a VF that is passed as a descriptor",
	 {.strategy = "native", .by_descriptor = true},
	 NULL,
	 "set vfio-backend = group",
	 false},
	{"auto, of a VF that can",
	 {.strategy = "auto", .migrates_state = true},
	 "native",
	 NULL,
	 false},
	{"native", {.strategy = "native", .migrates_state = true}, "native", NULL, false},
	{"native, a kernel user",
	 {.strategy = "native", .migrates_state = true, .kernel_user = IPOIB},
	 "native",
	 NULL,
	 false},
	{"late, of a VF that can",
	 {.strategy = "late", .migrates_state = true},
	 "late",
	 NULL,
	 false},
	{"auto, native and post-copy",
	 {.strategy = "auto", .migrates_state = true, .post_copy = true},
	 NULL,
	 "post-copy",
	 false},
	{"late, two VFs", {.strategy = "late", .two_vfs = true}, "late", NULL, false},
	{"early, two VFs", {.strategy = "early", .two_vfs = true}, "early", NULL, true},
	{"auto, two VFs that can",
	 {.strategy = "auto", .migrates_state = true, .two_vfs = true},
	 "native",
	 NULL,
	 false},
	{"late, pre-attached", {.strategy = "late", .pre_attach = true}, "late", NULL, false},
	{"early, two VFs, pre-attached",
	 {.strategy = "early", .two_vfs = true, .pre_attach = true},
	 "early",
	 NULL,
	 true},
	{"native, with pre-attach",
	 {.strategy = "native", .migrates_state = true, .pre_attach = true},
	 "native",
	 NULL,
	 false},
	{"auto, of a VF that QEMU does not let leave",
	 {.strategy = "auto", .stays = true},
	 NULL,
	 "late, early: the VM's QEMU refuses to migrate while it has a VF of this class",
	 false},
	{"early, of a VF that QEMU does not let leave",
	 {.strategy = "early", .stays = true},
	 NULL,
	 "QEMU >= 10.1 lets it leave",
	 false},
	{"auto, of a VF that can, and that QEMU does not let leave",
	 {.strategy = "auto", .migrates_state = true, .stays = true},
	 "native",
	 NULL,
	 false},
	{"early, of a VF that can, and that QEMU does not let leave",
	 {.strategy = "early", .migrates_state = true, .stays = true},
	 "early",
	 NULL,
	 true},
	{"late, of a VF that can, and that QEMU does not let leave",
	 {.strategy = "late", .migrates_state = true, .stays = true},
	 NULL,
	 "QEMU unplugs no such device while it migrates",
	 false},
	{"late, a disk is copied before",
	 {.strategy = "late", .disk_mib = DISK},
	 "late",
	 NULL,
	 false},
	{"early, a disk is copied before",
	 {.strategy = "early", .disk_mib = DISK},
	 "early",
	 NULL,
	 true},
	{"native, a disk is copied before",
	 {.strategy = "native", .migrates_state = true, .disk_mib = DISK},
	 "native",
	 NULL,
	 false},
	{"late, its VF is a descriptor, so not pre-attached",
	 {.strategy = "late", .pre_attach = true, .by_descriptor = true},
	 "late",
	 NULL,
	 false},
	{"late, two VFs, pre-attached in vain",
	 {.strategy = "late", .two_vfs = true, .pre_attach = true, .starts_empty = true},
	 "late",
	 NULL,
	 false},
	{"cold", {.strategy = "cold"}, NULL, "ibvmig save here", false},
};

static struct sim_guest *const mover = &sim_guests[0];
static bool left_early, ballast_ended;

static void watch(void)
{
	struct sim_qemu *q = &sim_hosts[HOST_A].qemus[0];
	struct migration *m = sim_hosts[HOST_A].d.migrations;

	sim_never();
	left_early |= mover->migration.under_way && q->exists && q->job == QJOB_NONE &&
		      !sim_devices(q);
	ballast_ended |= m && m->rec.state == M_HOLD && record_did(&m->rec, DID_BALLAST) &&
			 mover->ballast_until_us <= sim_us();
}

/* The reason is that of the chosen one's better neighbour. */
static const char *why_not(struct json_object *choice, const char *chosen)
{
	enum domain_strategy s = STRATEGY_AUTO;

	strategy_parse(chosen, &s);
	return json_opt_str(json_opt(choice, "why_not"),
			    strategy_name((enum domain_strategy)(s - 1)), "");
}

static bool is_named_once(const char *text)
{
	const char *first = strstr(text, "VM g1");

	return first && !strstr(first + 1, "VM g1")
		       ? true
		       : sim_is_wrong("the VM is not named once: %.300s", text);
}

static bool chosen_right(const struct scene *s)
{
	struct json_object *r AUTO_JSON = sim_record_json(),
			      *choice = json_opt(json_opt(r, "data"), "choice");

	/* virsh shows the hook's refusal; of a job that is cancelled later, the record has it. */
	if (!s->chosen && strstr(mover->migration.error, s->word) &&
	    !is_named_once(mover->migration.error))
		return false;
	if (!s->chosen)
		return !mover->migration.ok && (strstr(mover->migration.error, s->word) ||
						strstr(json_opt_str(r, "reason", ""), s->word))
			       ? true
			       : sim_is_wrong("it is not refused with \"%s\": %.200s", s->word,
					      mover->migration.error);
	if (!mover->migration.ok)
		return sim_is_wrong("it fails: %.300s", mover->migration.error);
	if (!str_eq(json_opt_str(r, "strategy", ""), s->chosen) ||
	    !str_eq(json_opt_str(r, "asked", ""), s->mover.strategy))
		return sim_is_wrong("the record says %s, of %s", json_opt_str(r, "strategy", "-"),
				    json_opt_str(r, "asked", "-"));
	if (s->word && !strstr(why_not(choice, s->chosen), s->word))
		return sim_is_wrong("it does not say why not better: %.300s", json_text(choice));
	if (sim_fabric.moves_alive != (str_eq(s->chosen, "native") ? sim_fabric.moves : 0))
		return sim_is_wrong("of %u moves %u have senders that are alive", sim_fabric.moves,
				    sim_fabric.moves_alive);
	if (ballast_ended)
		return sim_is_wrong("nothing keeps pre-copy from ending in HOLD");
	return left_early == s->left_before ? true
					    : sim_is_wrong("the VF has%s left before QEMU began",
							   left_early ? "" : " not");
}

/* The VF was in QEMU from its start; a native one always is. */
static bool pre_attached_right(const struct scene *s)
{
	struct json_object *r AUTO_JSON = sim_record_json(),
			      *there = json_opt(json_opt(r, "data"), "destination");
	bool wanted = s->mover.pre_attach && !s->mover.by_descriptor &&
		      !str_eq(s->chosen, "native");

	return !s->chosen || json_opt_bool(there, "pre_attached", false) == wanted
		       ? true
		       : sim_is_wrong("the VF was%s in QEMU from its start", wanted ? " not" : "");
}

/* ---- what a dry run says before ---- */

static struct json_object *said;

static void hear(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	said = rc ? json_object_new_object() : json_object_get(answer);
	json_set_str(said, "error", rc ? error : NULL);
}

static bool has_heard(void *arg)
{
	(void)arg;
	return said;
}

static bool ask_before(void)
{
	struct json_object *body = json_object_new_object();

	json_set_str(body, "to", sim_hosts[HOST_B].name);
	json_set_bool(body, "dry_run", true);
	sim_http(HOST_A, sim_hosts[HOST_A].url, "POST", "/v1/vms/g1/migrate", body, 30000, hear,
		 NULL);
	return sim_run(has_heard, NULL, sim_us() + 60 * SIM_S, watch)
		       ? true
		       : sim_is_wrong("the dry run is not answered");
}

/* QEMU tells whether it may switch to post-copy only when it has begun, so the dry run leaves it
 * open. */
static bool said_right(const struct scene *s)
{
	struct json_object *choice = json_opt(said, "choice");
	const char *chosen = json_opt_str(choice, "chosen", "");

	if (s->mover.post_copy)
		return true;
	if (json_opt_bool(said, "possible", false) != (s->chosen != NULL))
		return sim_is_wrong("the dry run says something else: %.300s", json_text(said));
	if (s->chosen ? strcmp(chosen, s->chosen) != 0 : !strstr(json_text(said), s->word))
		return sim_is_wrong("the dry run has chosen %s: %.300s", chosen, json_text(said));
	return true;
}

static bool play(const void *arg, const char *dir)
{
	const struct scene *s = arg;

	sim_mover = s->mover;
	if (!sim_world_start(dir) || !sim_all_right(NULL) || !ask_before() ||
	    !sim_all_right(NULL) || !said_right(s))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) ||
	    !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch))
		return false;
	if (sim_home(mover) != (s->chosen ? HOST_B : HOST_A))
		return sim_is_wrong("the VM is on the wrong host");
	return chosen_right(s) && pre_attached_right(s) && !*sim_broken;
}

/* ---- metadata that has changed since the VM started ---- */

static bool play_changed_metadata(const void *arg, const char *dir)
{
	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "late"};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_mover.strategy = "early";
	if (!ask_before() || !sim_all_right(NULL))
		return false;
	return str_eq(json_opt_str(json_opt(said, "choice"), "asked", ""), "early")
		       ? true
		       : sim_is_wrong("the dry run does not know: %.300s", json_text(said));
}

/* ---- a user that comes in HOLD ---- */

static bool in_hold(void *arg)
{
	struct migration *m = sim_hosts[HOST_A].d.migrations;

	(void)arg;
	return m && m->rec.state == M_HOLD;
}

static bool migrated(void)
{
	return sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) &&
	       sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) && !*sim_broken;
}

/* The migration has gone late as far as that; with what the device has written it must not
 * arrive. */
static bool play_user_in_hold(const void *arg, const char *dir)
{
	struct json_object *first AUTO_JSON = NULL, *second AUTO_JSON = NULL;

	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto"};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(in_hold, NULL, sim_us() + 60 * SIM_S, watch))
		return sim_is_wrong("HOLD is not reached");
	sim_mover.kernel_user = IPOIB;
	if (!migrated())
		return false;
	first = sim_record_json();
	if (mover->migration.ok || !strstr(json_opt_str(first, "reason", ""), IPOIB " has begun"))
		return sim_is_wrong("it goes on: %s", json_opt_str(first, "reason", "-"));
	sim_migrate(mover, HOST_A, HOST_B);
	if (!migrated())
		return false;
	second = sim_record_json();
	return mover->migration.ok && str_eq(json_opt_str(second, "strategy", ""), "early")
		       ? true
		       : sim_is_wrong("the next one goes %s: %.200s",
				      json_opt_str(second, "strategy", "-"),
				      mover->migration.error);
}

/* ---- a QEMU that does not let it leave ---- */

/* Known at the destination from its device_add on, also to the next ibvmigd. */
static bool play_stays_there(const void *arg, const char *dir)
{
	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto"};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_mover.stays = true;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!migrated() || !mover->migration.ok)
		return sim_is_wrong("it does not arrive: %.200s", mover->migration.error);
	sim_daemon_kill(HOST_B);
	sim_daemon_start(HOST_B);
	if (!migrated())
		return false;
	sim_migrate(mover, HOST_B, HOST_A);
	return migrated() && !mover->migration.ok &&
			       strstr(mover->migration.error, "QEMU refuses to migrate")
		       ? true
		       : sim_is_wrong("it is not refused: %.200s", mover->migration.error);
}

static bool agent_is_away(void *arg)
{
	struct vm *vm = vm_find(&sim_hosts[HOST_A].d, mover->uuid);

	(void)arg;
	return agent_state(vm->agent) != AGENT_UP;
}

/* No agent could help that. */
static bool play_stays_without_agent(const void *arg, const char *dir)
{
	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto", .stays = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_guest_agent_kill(mover, 600 * SIM_S);
	if (!sim_run(agent_is_away, NULL, sim_us() + 60 * SIM_S, watch) || !ask_before())
		return false;
	return strstr(json_text(json_opt(said, "blocked")), "QEMU refuses to migrate")
		       ? true
		       : sim_is_wrong("the dry run says: %.300s", json_text(said));
}

/* ---- a VM whose agent is away, and need not be there ---- */

static bool has_ended(void *arg)
{
	(void)arg;
	return !mover->migration.under_way;
}

static bool both_ended(void *arg)
{
	struct migration *m = sim_hosts[HOST_B].d.migrations;

	return has_ended(arg) && m && m->rec.state == M_DONE;
}

/* Nobody can make the guest look for a device that QEMU has started with. It runs no program that
 * uses the VF. */
static bool play_without_agent(const void *arg, const char *dir)
{
	struct json_object *r AUTO_JSON = NULL;

	(void)arg;
	sim_mover = (struct sim_mover){
		.strategy = "auto", .agent_optional = true, .pre_attach = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_guest_process_kill(mover);
	sim_guest_agent_kill(mover, 600 * SIM_S);
	if (!sim_run(agent_is_away, NULL, sim_us() + 60 * SIM_S, watch))
		return sim_is_wrong("the agent stays");
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(both_ended, NULL, sim_us() + SIM_QUIET_S * SIM_S, NULL) ||
	    !mover->migration.ok)
		return sim_is_wrong("it does not arrive: %.300s", mover->migration.error);
	r = sim_record_json();
	if (!str_eq(json_opt_str(r, "strategy", ""), "early"))
		return sim_is_wrong("it goes %s", json_opt_str(r, "strategy", "-"));
	return sim_devices(sim_qemu_of(mover)) == 1 && !sim_qemu_of(mover)->devices[0].unseen
		       ? true
		       : sim_is_wrong("the guest does not see its VF");
}

/* Nobody has made dirty what the VM's device wrote during the copy, so the VM stays. */
static bool play_agent_goes(const void *arg, const char *dir)
{
	struct json_object *r AUTO_JSON = NULL;

	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto", .agent_optional = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(in_hold, NULL, sim_us() + 60 * SIM_S, watch))
		return sim_is_wrong("HOLD is not reached");
	sim_guest_agent_kill(mover, 100 * SIM_S);
	if (!migrated())
		return false;
	r = sim_record_json();
	return !mover->migration.ok && sim_home(mover) == HOST_A &&
			       strstr(json_opt_str(r, "reason", ""), "agent is not there")
		       ? true
		       : sim_is_wrong("it is %s: %.300s", json_opt_str(r, "state", "-"),
				      json_opt_str(r, "reason", "-"));
}

/* ---- a VM that is paused ---- */

#define REFUSED_S 2 /* no agent is waited for, who cannot answer */

static const struct paused {
	const char *name, *strategy; /* the latter when it is asked for; it has started with auto */
	bool migrates_state;
	const char *way_out; /* beside virsh resume, or NULL */
	bool goes_paused;    /* the migration is not refused */
} paused[] = {
	{"auto, paused", "auto", false, NULL, false},
	{"late, paused", "late", false, NULL, false},
	{"early, paused", "early", false, NULL, false},
	{"early, paused, of a VF that can be native", "early", true, ", or strategy native", false},
	{"auto, paused, of a VF that can be native", "auto", true, NULL, true},
};

static bool names_way_out(const struct paused *p, const char *text)
{
	if (!strstr(text, "the VM is paused") || !strstr(text, "virsh resume g1") ||
	    strstr(text, "in time") ||
	    (p->way_out ? !strstr(text, p->way_out) : strstr(text, ", or strategy") != NULL))
		return sim_is_wrong("the way out is not told: %.400s", text);
	return true;
}

/* libvirt lets it arrive as it was. */
static bool goes_paused(void)
{
	struct json_object *r AUTO_JSON = NULL;

	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(has_ended, NULL, sim_us() + SIM_QUIET_S * SIM_S, watch) ||
	    !mover->migration.ok || sim_running(mover))
		return sim_is_wrong("it does not arrive paused: %.300s", mover->migration.error);
	sim_virsh_mends();
	if (!migrated())
		return false;
	r = sim_record_json();
	return sim_home(mover) == HOST_B && str_eq(json_opt_str(r, "strategy", ""), "native")
		       ? true
		       : sim_is_wrong("it has not gone: %.300s", json_text(r));
}

static bool play_paused(const void *arg, const char *dir)
{
	const struct paused *p = arg;

	sim_mover = (struct sim_mover){.strategy = "auto", .migrates_state = p->migrates_state};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_mover.strategy = p->strategy;
	sim_suspend(mover);
	if (!ask_before())
		return false;
	if (json_opt_bool(said, "possible", false) != p->goes_paused)
		return sim_is_wrong("the dry run says: %.300s", json_text(said));
	if (p->goes_paused)
		return goes_paused();
	if (!names_way_out(p, json_text(json_opt(said, "blocked"))))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(has_ended, NULL, sim_us() + REFUSED_S * SIM_S, watch))
		return sim_is_wrong("it is not refused within %d s", REFUSED_S);
	if (mover->migration.ok || !names_way_out(p, mover->migration.error))
		return false;
	sim_virsh_mends();
	if (!migrated())
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	return migrated() && mover->migration.ok && sim_home(mover) == HOST_B;
}

int main(int argc, char **argv)
{
	struct sim_scene list[ARRAY_SIZE(scenes) + ARRAY_SIZE(paused) + 6];

	list[ARRAY_SIZE(scenes)] = (struct sim_scene){"a kernel user that comes in HOLD",
						      play_user_in_hold, NULL};
	list[ARRAY_SIZE(scenes) + 1] = (struct sim_scene){"metadata that changes while it runs",
							  play_changed_metadata, NULL};
	list[ARRAY_SIZE(scenes) + 2] = (struct sim_scene){
		"a VF that QEMU does not let leave, at the destination", play_stays_there, NULL};
	list[ARRAY_SIZE(scenes) + 3] = (struct sim_scene){
		"one that QEMU does not let leave, without an agent", play_stays_without_agent,
		NULL};
	list[ARRAY_SIZE(scenes) + 4] = (struct sim_scene){"auto, pre-attach, without an agent",
							  play_without_agent, NULL};
	list[ARRAY_SIZE(scenes) + 5] = (struct sim_scene){
		"an agent that goes in HOLD, and is not required", play_agent_goes, NULL};
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++)
		list[i] = (struct sim_scene){scenes[i].name, play, &scenes[i]};
	for (size_t i = 0; i < ARRAY_SIZE(paused); i++)
		list[ARRAY_SIZE(scenes) + 6 + i] = (struct sim_scene){paused[i].name, play_paused,
								      &paused[i]};
	return sim_scenes(list, ARRAY_SIZE(list), argc, argv);
}
