/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reports to an operator of what disturbs a migration, how soon and in which words, on simulated
 * hosts (tests/sim/world.h). Hosts, disks and VFs fail, a guest is paused, virsh or libvirtd dies
 * before Finish or Confirm, and ibvmig-sm is slow. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/report/openapi.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"
#include "tests/sim/scene.h"

#include <errno.h>
#include <string.h>

static struct sim_guest *const mover = &sim_guests[0];

static bool start(const char *dir)
{
	sim_mover = (struct sim_mover){.strategy = "auto"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

/* ---- hosts, disks and VFs ---- */

static struct migration *newest(int host)
{
	return sim_hosts[host].d.migrations;
}

static bool source_is_armed(void *arg)
{
	(void)arg;
	return newest(HOST_A) && record_did(&newest(HOST_A)->rec, DID_ARM);
}

static bool source_has_ended(void *arg)
{
	(void)arg;
	return newest(HOST_A)->rec.ended;
}

/* The destination's ibvmigd is lost in PREPARE, and is back after back_s (0: never). The source
 * walks back within within_s, and has this word for the loss. */
struct loss {
	unsigned back_s, within_s;
	const char *word;
};

static void start_there(void *arg)
{
	(void)arg;
	sim_daemon_start(HOST_B);
}

static bool play_lost_destination(const void *arg, const char *dir)
{
	const struct loss *l = arg;

	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(source_is_armed, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it is not armed");
	sim_daemon_kill(HOST_B);
	if (l->back_s)
		sim_after(NULL, l->back_s * SIM_S, start_there, NULL);
	if (!sim_run(source_has_ended, NULL, sim_us() + l->within_s * SIM_S, sim_never))
		return sim_is_wrong("in %s after %u s",
				    migrate_state_name(newest(HOST_A)->rec.state), l->within_s);
	if (!strstr(newest(HOST_A)->rec.reason, l->word))
		return sim_is_wrong("the reason is \"%s\"", newest(HOST_A)->rec.reason);
	if (!l->back_s)
		sim_daemon_start(HOST_B);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken;
}

static const struct loss losses[] = {
	{1, 5, "host hostb has given the migration up: ibvmigd was restarted"},
	{0, 30, "ibvmigd on host hostb has not answered for 20 s"},
};

static bool has_failed(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->step.failures;
}

static bool is_parked(void *arg)
{
	(void)arg;
	return newest(HOST_B)->rec.state == M_PARKED;
}

/* The agent needs 24 s for each try. The first try is told, and the text is not repeated for
 * minutes. */
static bool play_no_link(const void *arg, const char *dir)
{
	struct json_object *m;

	(void)arg;
	if (!start(dir))
		return false;
	mover->port_dead = true;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(has_failed, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("no try has failed");
	if (!sim_ask(HOST_B, "GET", "/v1/vms/g1", NULL))
		return sim_is_wrong("no status: %s", sim_refusal);
	m = json_opt(sim_answer, "migration");
	if (!str_eq(json_opt_str(m, "state", ""), "RESUME") ||
	    json_opt_u64(m, "failures", 0) != 1 || !*json_opt_str(m, "trouble", ""))
		return sim_is_wrong("the first try is not told: %.300s", json_text(m));
	if (!sim_run(is_parked, NULL, sim_us() + 120 * SIM_S, sim_never))
		return sim_is_wrong("in %s", migrate_state_name(newest(HOST_B)->rec.state));
	mover->port_dead = false;
	migrate_resolve(&sim_hosts[HOST_B].d, newest(HOST_B)->rec.id);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_home(mover) == HOST_B && !*sim_broken;
}

static bool destination_shows(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->rec.state == M_SWITCH &&
	       sim_hosts[HOST_B].vfs[0].guid == mover->vguids[0];
}

static bool source_is_parked(void *arg)
{
	(void)arg;
	return newest(HOST_A)->rec.state == M_PARKED;
}

/* Both halves wait for an operator, and the source says what the other one waits for. */
static bool play_parked_there(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(destination_shows, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("SWITCH is not reached");
	sim_hosts[HOST_B].vfs[0].vanished = true;
	sim_abort(mover, HOST_A);
	if (!sim_run(source_is_parked, NULL, sim_us() + 300 * SIM_S, sim_never))
		return sim_is_wrong("in %s", migrate_state_name(newest(HOST_A)->rec.state));
	if (!strstr(newest(HOST_A)->rec.trouble, "host hostb") ||
	    !strstr(newest(HOST_A)->rec.trouble, "no such VF"))
		return sim_is_wrong("its reason is \"%s\"", newest(HOST_A)->rec.trouble);
	sim_hosts[HOST_B].vfs[0].vanished = false;
	migrate_resolve(&sim_hosts[HOST_B].d, newest(HOST_B)->rec.id);
	migrate_resolve(&sim_hosts[HOST_A].d, newest(HOST_A)->rec.id);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_home(mover) == HOST_A && !*sim_broken;
}

static bool has_committed(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->rec.committed;
}

/* The account has all that docs/openapi.json promises of it, and nothing else, for somebody reads a
 * list of many VMs. */
static bool is_as_documented(struct json_object *account)
{
	struct json_object *doc AUTO_JSON = NULL, *promised;

	json_parse(openapi_text, strlen(openapi_text), &doc);
	promised = json_opt(json_opt(doc, "components"), "schemas");
	promised = json_opt(json_opt(promised, "MigrationAccount"), "properties");
	json_object_object_foreach(promised, key, property)
	{
		(void)property;
		if (!json_object_object_get_ex(account, key, NULL))
			return sim_is_wrong("no %s in %.300s", key, json_text(account));
	}
	return json_object_object_length(account) == json_object_object_length(promised) ||
	       sim_is_wrong("more than is documented: %.300s", json_text(account));
}

/* Nothing waits for the disk after COMMIT; the status says that it is missing. */
static bool play_full_disk(const void *arg, const char *dir)
{
	bool has_run;

	(void)arg;
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(has_committed, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("it has not arrived");
	sim_hosts[HOST_B].proc.disk_errno = ENOSPC;
	sim_run(NULL, NULL, sim_us() + 10 * SIM_S, sim_never);
	if (!sim_ask(HOST_B, "GET", "/v1/vms/g1", NULL))
		return sim_is_wrong("no status: %s", sim_refusal);
	if (!json_opt_bool(json_opt(sim_answer, "migration"), "journal_behind", false))
		return sim_is_wrong("the full disk is not told: %.300s", json_text(sim_answer));
	if (!is_as_documented(json_opt(sim_answer, "migration")))
		return false;
	has_run = mover->live && newest(HOST_B)->rec.state == M_DONE;
	sim_hosts[HOST_B].proc.disk_errno = 0;
	sim_run(NULL, NULL, sim_us() + 3 * SIM_S, sim_never);
	if (!sim_ask(HOST_B, "GET", "/v1/vms/g1", NULL) ||
	    json_opt_bool(json_opt(sim_answer, "migration"), "journal_behind", true))
		return sim_is_wrong("the journal has not caught up");
	return (has_run || sim_is_wrong("the VM waits for the disk")) &&
	       sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken;
}

/* ---- virsh migrate --timeout, or virsh suspend, while it migrates ---- */

#define STANDS_S  1
#define UNHEARD_S 7 /* the next look finds it, 3 s after the state began */

/* When the guest is paused, with which strategy, and where the VM is in the end. */
struct pause {
	enum migrate_state state;
	const char *strategy;
	bool two_vfs, unheard;
	int home;
};

static bool at_pause(void *arg)
{
	const struct pause *p = arg;

	return newest(HOST_A) && newest(HOST_A)->rec.state == p->state &&
	       mover->migration.under_way &&
	       (p->state != M_HOLD || record_did(&newest(HOST_A)->rec, DID_RAISE));
}

static bool runs_on(void *arg)
{
	return sim_running(mover) == 1 && sim_home(mover) == *(int *)arg;
}

/* While its VF is still there it is given up, soon enough for pre-copy not to end meanwhile; later
 * it only arrives sooner. */
static bool play_paused(const void *arg, const char *dir)
{
	const struct pause *p = arg;
	unsigned stands_s = p->unheard ? UNHEARD_S : STANDS_S;
	int home = p->home;

	sim_mover = (struct sim_mover){.strategy = p->strategy,
				       .two_vfs = p->two_vfs,
				       .migrates_state = str_eq(p->strategy, "native")};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(at_pause, (void *)(uintptr_t)p, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the moment does not come");
	sim_libvirt.events = p->unheard ? REPLIES_LOST : REPLIES_WELL;
	sim_suspend(mover);
	if (!sim_run(runs_on, &home, sim_us() + stands_s * SIM_S, sim_never))
		return sim_is_wrong("the guest stands still for more than %u s", stands_s);
	sim_libvirt.events = REPLIES_WELL;
	if (!sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) || *sim_broken)
		return false;
	if (home == HOST_A && !strstr(newest(HOST_A)->rec.reason, "virsh migrate --timeout"))
		return sim_is_wrong("the reason is \"%s\"", newest(HOST_A)->rec.reason);
	return sim_home(mover) == home || sim_is_wrong("it is on host %d", sim_home(mover));
}

static const struct pause pauses[] = {
	{M_HOLD, "late", false, false, HOST_A},    {M_HOLD, "late", false, true, HOST_A},
	{M_QUIESCE, "late", false, false, HOST_A}, {M_DETACH, "late", true, false, HOST_A},
	{M_SWITCH, "late", false, false, HOST_B},  {M_SWITCH, "early", false, false, HOST_B},
	{M_HOLD, "native", false, false, HOST_B},
};

/* ---- nobody calls Finish, or Confirm ---- */

static void virsh_dies(void)
{
	sim_virsh_kill(mover);
}

static void source_dies(void)
{
	sim_libvirtd_kill(HOST_A, 3 * SIM_S);
}

static void destination_dies(void)
{
	sim_libvirtd_kill(HOST_B, 3 * SIM_S);
}

struct unfinished {
	void (*strike)(void);
	const char *strategy;
	bool finished; /* only Confirm is missing */
	int home;
};

static bool at_end(void *arg)
{
	const struct unfinished *u = arg;
	const struct sim_qemu *here = &sim_hosts[HOST_A].qemus[0];

	return here->exists && here->job == QJOB_COMPLETED &&
	       u->finished == (sim_home(mover) == HOST_B);
}

/* libvirt leaves a guest paused that it has sent, if nobody tells it how that ended: the record
 * says so, waiting for it if its connections do. */
static bool tells_of_pause(void)
{
	struct migration *m = newest(HOST_A);
	bool waits = m->rec.strategy != STRATEGY_NATIVE;

	if (sim_running(mover))
		return true;
	return (waits == (m->rec.state == M_PARKED) &&
		strstr(waits ? m->rec.trouble : m->rec.reason, "virsh resume g1")) ||
	       sim_is_wrong("it stands still, and %s says \"%s\"", migrate_state_name(m->rec.state),
			    waits ? m->rec.trouble : m->rec.reason);
}

static bool play_unfinished(const void *arg, const char *dir)
{
	const struct unfinished *u = arg;

	sim_mover = (struct sim_mover){.strategy = u->strategy,
				       .migrates_state = str_eq(u->strategy, "native")};
	if (!sim_world_start(dir) || !sim_all_right(NULL))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!sim_run(at_end, (void *)(uintptr_t)u, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the moment does not come");
	u->strike();
	if (!sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    !tells_of_pause())
		return false;
	sim_virsh_mends();
	migrate_resolve(&sim_hosts[HOST_A].d, newest(HOST_A)->rec.id);
	if (!sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) || *sim_broken)
		return false;
	return sim_home(mover) == u->home || sim_is_wrong("it is on host %d", sim_home(mover));
}

static const struct unfinished unfinished[] = {
	{virsh_dies, "late", false, HOST_A},       {virsh_dies, "late", true, HOST_B},
	{virsh_dies, "native", false, HOST_A},     {source_dies, "late", false, HOST_A},
	{source_dies, "late", true, HOST_B},       {source_dies, "native", false, HOST_A},
	{destination_dies, "late", false, HOST_A}, {destination_dies, "late", true, HOST_B},
};

/* ---- many ask ---- */

#define ASKERS 100 /* more than a daemon has workers */
#define SLOW_S 3

static unsigned answers, good;

static void answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	(void)error;
	answers++;
	good += !rc;
}

static bool all_answered(void *arg)
{
	(void)arg;
	return answers == ASKERS;
}

/* For its status, which has ibvmig-sm's in it, and its word on partitions: one question there for
 * each does for all. */
static bool play_many_ask(const void *arg, const char *dir)
{
	uint64_t calls;

	(void)arg;
	if (!start(dir))
		return false;
	/* The last word of ibvmig-sm is old by then. */
	sim_run(NULL, NULL, sim_us() + 60 * SIM_S, sim_never);
	sim_fabric.opensm_stopped_until_us = sim_us() + SLOW_S * SIM_S;
	calls = sim_net.calls;
	for (unsigned i = 0; i < ASKERS; i++)
		sim_http_get(sim_hosts[HOST_A].url, "/v1/status", 60000, answered, NULL);
	if (!sim_run(all_answered, NULL, sim_us() + 2 * SLOW_S * SIM_S, sim_never) ||
	    good != ASKERS)
		return sim_is_wrong("%u answers, %u of them good", answers, good);
	calls = sim_net.calls - calls - ASKERS;
	return calls == 2 || sim_is_wrong("ibvmig-sm was asked %u times", (unsigned)calls);
}

#define LOOKS   40
#define EACH_MS 250
#define WORD_MS 20   /* ibvmig-sm needs that long for its word alone */
#define TOLD_MS 2500 /* the age of an answer that daemon/base/sm.c calls fresh, and a question */

/* Somebody who watches waits for ibvmig-sm at first only, and what he is told of it is no older
 * for that. */
static bool play_watch(const void *arg, const char *dir)
{
	uint64_t begun_us = 0, dead_us = 0;

	(void)arg;
	if (!start(dir))
		return false;
	sim_run(NULL, NULL, sim_us() + 60 * SIM_S, sim_never);
	for (unsigned i = 0; i < 2 * LOOKS; i++) {
		if (i == LOOKS) {
			sim_proc_die(&sim_fabric.sm);
			dead_us = sim_us();
		}
		begun_us = sim_us();
		if (!sim_ask(HOST_A, "GET", "/v1/status", NULL))
			return sim_is_wrong("no status: %s", sim_refusal);
		if (!json_opt_bool(json_opt(sim_answer, "sm"), "ok", false))
			break;
		if (i && sim_us() - begun_us >= WORD_MS * SIM_MS)
			return sim_is_wrong("look %u waits %u us", i + 1,
					    (unsigned)(sim_us() - begun_us));
		sim_run(NULL, NULL, sim_us() + EACH_MS * SIM_MS, sim_never);
	}
	return (dead_us && begun_us - dead_us <= TOLD_MS * SIM_MS) ||
	       sim_is_wrong("ibvmig-sm is %s", dead_us ? "dead, and nobody says so" : "not well");
}

static const struct sim_scene scenes[] = {
	{"virsh dies before Finish", play_unfinished, &unfinished[0]},
	{"virsh dies before Confirm", play_unfinished, &unfinished[1]},
	{"virsh dies before Finish, native", play_unfinished, &unfinished[2]},
	{"the source's libvirtd dies before Finish", play_unfinished, &unfinished[3]},
	{"the source's libvirtd dies before Confirm", play_unfinished, &unfinished[4]},
	{"the source's libvirtd dies before Finish, native", play_unfinished, &unfinished[5]},
	{"the destination's libvirtd dies before Finish", play_unfinished, &unfinished[6]},
	{"the destination's libvirtd dies before Confirm", play_unfinished, &unfinished[7]},
	{"the guest is paused in HOLD, by virsh migrate --timeout", play_paused, &pauses[0]},
	{"the same, and no event tells of it", play_paused, &pauses[1]},
	{"the guest is paused in QUIESCE", play_paused, &pauses[2]},
	{"the guest is paused in DETACH, with two VFs", play_paused, &pauses[3]},
	{"the guest is paused in SWITCH", play_paused, &pauses[4]},
	{"the guest is paused, and its VF has left early", play_paused, &pauses[5]},
	{"the guest is paused, and its VF's state migrates", play_paused, &pauses[6]},
	{"the destination's disk is full after COMMIT", play_full_disk, NULL},
	{"the destination's ibvmigd is killed in PREPARE, and is back", play_lost_destination,
	 &losses[0]},
	{"the same, and it does not come back", play_lost_destination, &losses[1]},
	{"the destination's VF gets no link", play_no_link, NULL},
	{"the destination cannot park its VF", play_parked_there, NULL},
	{"many ask for a status, and ibvmig-sm does not answer at once", play_many_ask, NULL},
	{"somebody watches, and ibvmig-sm dies meanwhile", play_watch, NULL},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
