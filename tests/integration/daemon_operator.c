/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What operators ask of simulated hosts (tests/fake/sim.h): dry runs that find something in the
 * way, drained hosts, drains whose daemon is killed, full uplinks, VMs whose host is lost or that
 * are paused while they migrate; and how soon they hear of what fails. What a dry run says of
 * strategies is in daemon_strategies.c. */
#include "tests/fake/sim_right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate.h"
#include "daemon/vm.h"
#include "tests/fake/sim_scene.h"
#include "tests/fake/sim_virt.h"

#include <errno.h>
#include <string.h>

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

/* ---- calls ---- */

static struct json_object *answer;
static char refusal[512];
static bool answered;

static void hear(void *arg, int rc, struct json_object *a, const char *error)
{
	(void)arg;
	answer = rc ? NULL : json_object_get(a);
	snprintf(refusal, sizeof refusal, "%s", rc ? error : "");
	answered = true;
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answered;
}

/* body: JSON text, or NULL. The answer lives until the next call; false: it was refused. */
static bool ask(int host, const char *method, const char *path, const char *body)
{
	struct json_object *o = NULL;

	json_object_put(TAKE(answer));
	answered = false;
	if (body)
		json_parse(body, strlen(body), &o);
	sim_http(host, sim_hosts[host].url, method, path, o, 30000, hear, NULL);
	return sim_run(has_answered, NULL, sim_us() + 60 * SIM_S, sim_never) && answer;
}

/* ---- dry runs ---- */

#define DRY_RUN_TO_B "{\"to\":\"hostb\",\"dry_run\":true}"

static bool start(const char *dir)
{
	sim_mover = (struct sim_mover){.strategy = "auto"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool dry_run(void)
{
	if (!ask(HOST_A, "POST", "/v1/vms/g1/migrate", DRY_RUN_TO_B))
		return sim_is_wrong("refused: %s", refusal);
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (sim_hosts[h].d.migrations)
			return sim_is_wrong("host %s has a migration", sim_hosts[h].name);
	return true;
}

static bool blocked_by(const char *word)
{
	struct json_object *list = json_opt(answer, "blocked");

	return !json_opt_bool(answer, "possible", true) && strstr(json_text(list), word)
		       ? true
		       : sim_is_wrong("\"%s\" is not in the way: %.300s", word, json_text(answer));
}

static bool says(struct json_object *o, const char *key, const char *value)
{
	return str_eq(json_opt_str(o, key, ""), value)
		       ? true
		       : sim_is_wrong("%s is %s, not %s", key, json_opt_str(o, key, "-"), value);
}

static bool play_possible(const void *arg, const char *dir)
{
	struct json_object *first;

	(void)arg;
	if (!start(dir) || !dry_run())
		return false;
	first = json_object_array_get_idx(json_opt(answer, "peers"), 0);
	if (json_opt_u64(json_opt(answer, "cost"), "smps", 0) != 5 ||
	    json_opt_u64(answer, "lid", 0) != sim_binding(mover->vguids[0])->lid ||
	    json_count(json_opt(answer, "peers")) != 1 || json_opt(first, "problem"))
		return sim_is_wrong("not what is there: %.300s", json_text(answer));
	return says(answer, "vf", "a-vf1") && says(answer, "to", "hostb") &&
	       says(first, "host", "hostc") && says(first, "vm", peer->name) && sim_all_right(NULL);
}

/* hostb's VFs of this PF are another VM's. */
static void take_vfs(const char *pf)
{
	struct vf_table *t = &sim_hosts[HOST_B].d.vfs;

	for (size_t i = 0; i < t->vf_count; i++) {
		if (strcmp(t->vfs[i].pf, pf))
			continue;
		t->vfs[i].leased = true;
		snprintf(t->vfs[i].vm, sizeof t->vfs[i].vm, "another");
		snprintf(t->vfs[i].vm_name, sizeof t->vfs[i].vm_name, "another");
	}
}

static bool play_no_vf(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	take_vfs("pf0");
	return dry_run() && blocked_by("hostb has no free VF on pf0");
}

/* The cost of both VFs, each on its own PF; the peer is asked for both of the mover's vGUIDs. */
static bool play_two_vfs(const void *arg, const char *dir)
{
	struct json_object *vfs;

	(void)arg;
	sim_mover = (struct sim_mover){.strategy = "auto", .two_vfs = true};
	if (!sim_world_start(dir) || !sim_all_right(NULL) || !dry_run())
		return false;
	vfs = json_opt(answer, "vfs");
	for (unsigned i = 0; i < SIM_RAILS; i++) {
		struct json_object *v = json_object_array_get_idx(vfs, i);

		if (json_opt_u64(v, "lid", 0) != sim_binding(mover->vguids[i])->lid)
			return sim_is_wrong("not its LIDs: %.300s", json_text(answer));
		if (!says(v, "addresses", "prepopulated"))
			return false;
	}
	if (!json_opt_bool(answer, "possible", false) ||
	    json_opt_u64(json_opt(answer, "cost"), "smps", 0) != 5 + 7)
		return sim_is_wrong("not what is there: %.300s", json_text(answer));
	take_vfs("pf1");
	return dry_run() && blocked_by("hostb has no free VF on pf1") && sim_all_right(NULL);
}

static bool peer_agent_is_away(void *arg)
{
	struct vm *vm = vm_find(&sim_hosts[HOST_C].d, peer->uuid);

	(void)arg;
	return agent_state(vm->agent) != AGENT_UP;
}

static bool play_no_peer(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_guest_agent_kill(peer, 600 * SIM_S);
	return sim_run(peer_agent_is_away, NULL, sim_us() + 60 * SIM_S, sim_never) && dry_run() &&
	       blocked_by("no ibvmig-agent answers in it");
}

static bool play_no_sm(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_fabric.opensm_down_until_us = sim_us() + 600 * SIM_S;
	return dry_run() && blocked_by("OpenSM's plugin does not answer");
}

static bool play_no_host(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir))
		return false;
	sim_daemon_kill(HOST_B);
	return dry_run() && blocked_by("hostb does not answer");
}

static bool play_bad_requests(const void *arg, const char *dir)
{
	static const struct {
		const char *vm, *body, *word;
	} bad[] = {
		{"g1", "{\"to\":\"hostx\",\"dry_run\":true}", "hostx"},
		{"g1", "{\"to\":\"hosta\",\"dry_run\":true}", "runs on host hosta already"},
		{"g1", "{\"to\":\"hostb\",\"strategy\":\"best\",\"dry_run\":true}", "late or"},
		{"nobody", DRY_RUN_TO_B, "no VM nobody runs on hosta"},
	};
	static const struct {
		const char *method, *path;
	} of_nobody[] = {
		{"GET", "/v1/vms/nobody"},
		{"GET", "/v1/vms/nobody/qps"},
		{"POST", "/v1/vms/nobody/attach"},
	};

	(void)arg;
	if (!start(dir))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *path AUTO_FREE = strf("/v1/vms/%s/migrate", bad[i].vm);

		if (ask(HOST_A, "POST", path, bad[i].body) || !strstr(refusal, bad[i].word))
			return sim_is_wrong("%s: \"%.200s\"", bad[i].body, refusal);
	}
	for (size_t i = 0; i < ARRAY_SIZE(of_nobody); i++)
		if (ask(HOST_A, of_nobody[i].method, of_nobody[i].path, NULL) ||
		    !strstr(refusal, "no VM nobody with") ||
		    !strstr(refusal, "virsh metadata nobody"))
			return sim_is_wrong("%s: \"%.200s\"", of_nobody[i].path, refusal);
	return true;
}

/* Nothing is kept for a suspend that nobody was asked for. */
static bool play_bad_suspends(const void *arg, const char *dir)
{
	static const char *const paths[] = {"/v1/peer/suspend", "/v1/peer/reserve"};

	(void)arg;
	if (!start(dir))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		if (ask(HOST_C, "POST", paths[i], "{\"migration\":\"m\",\"vguids\":[]}") ||
		    !strstr(refusal, "guids"))
			return sim_is_wrong("%s: \"%.200s\"", paths[i], refusal);
		if (sim_hosts[HOST_C].d.peer_watches)
			return sim_is_wrong("%s: it is watched all the same", paths[i]);
	}
	return true;
}

/* ---- what only the guest knows ---- */

static bool guest_port_is(const char *verdict)
{
	struct json_object *found;

	if (!ask(HOST_A, "GET", "/v1/doctor", NULL))
		return sim_is_wrong("no doctor: %s", refusal);
	found = json_find(json_opt(answer, "checks"), "subject", "g1, VF a-vf1");
	return (str_eq(json_opt_str(found, "check", ""), "guest-port") &&
		str_eq(json_opt_str(found, "verdict", ""), verdict)) ||
	       sim_is_wrong("it is not %s: %.300s", verdict, json_text(found));
}

/* The host has given its VF away, and cannot look at the port. */
static bool play_doctor(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !guest_port_is("ok"))
		return false;
	mover->port_dead = true;
	if (!guest_port_is("bad"))
		return false;
	sim_agent_replies = REPLIES_LOST;
	return guest_port_is("skipped");
}

/* ---- drained hosts ---- */

static bool migrates_to_b(void)
{
	sim_migrate(mover, HOST_A, HOST_B);
	return sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never);
}

static bool tells_drained(int host, bool drained)
{
	if (!ask(host, "GET", "/v1/status", NULL))
		return sim_is_wrong("no status: %s", refusal);
	return json_opt_bool(answer, "drained", !drained) == drained &&
			       !json_opt(answer, "drained_since_ms") == !drained
		       ? true
		       : sim_is_wrong("status: %.300s", json_text(answer));
}

/* What libvirt's hook is told when the mover is to start, or to be restored, on host B. */
static bool hook_says(const char *op, bool refused)
{
	char *xml AUTO_FREE = sim_domain_xml(mover, "/channel", "");
	struct json_object *o AUTO_JSON = json_object_new_object();
	bool ok;

	json_set_str(o, "name", mover->name);
	json_set_str(o, "op", op);
	json_set_str(o, "sub_op", "begin");
	json_set_str(o, "xml", xml);
	ok = ask(HOST_B, "POST", "/v1/hook", json_text(o));
	if (refused ? !ok && strstr(refusal, "ibvmig undrain hostb") : ok)
		return true;
	return sim_is_wrong("%s: %s", op, ok ? "it is let in" : refusal);
}

/* Marked, killed, started again: still marked, until the mark is ended from another host. */
static bool play_drained(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !ask(HOST_A, "POST", "/v1/drains", "{\"host\":\"hostb\"}"))
		return sim_is_wrong("no drain: %s", refusal);
	sim_daemon_kill(HOST_B);
	sim_daemon_start(HOST_B);
	if (!sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    !tells_drained(HOST_B, true) || !dry_run() || !blocked_by("hostb is drained"))
		return false;
	if (!migrates_to_b() || mover->migration.ok ||
	    !strstr(mover->migration.error, "host hostb is drained and takes no VM"))
		return sim_is_wrong("it migrates: %s", mover->migration.error);
	if (!hook_says("prepare", true) || !hook_says("restore", true))
		return false;
	if (!ask(HOST_A, "POST", "/v1/hosts/hostb/undrain", NULL) || !tells_drained(HOST_B, false))
		return sim_is_wrong("no undrain: %s", refusal);
	if (!hook_says("prepare", false) || !hook_says("restore", false))
		return false;
	return migrates_to_b() && sim_home(mover) == HOST_B ? true : sim_is_wrong("it stays");
}

/* ---- from port counters to moves ---- */

static struct json_object *link_of(const char *host)
{
	return json_find(json_opt(answer, "links"), "host", host);
}

static bool link_is(const char *host, const char *key, uint64_t mbps)
{
	return json_opt_u64(link_of(host), key, UINT64_MAX) == mbps ||
	       sim_is_wrong("%s of %s is not %llu: %.300s", key, host, (unsigned long long)mbps,
			    json_text(answer));
}

static bool drain_is_over(int host, uint64_t number);

/* As `ibvmig rebalance --apply` does: what was proposed is asked for. */
static bool apply(void)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	uint64_t number, until_us = sim_us() + SIM_QUIET_S * SIM_S;

	json_set(body, "moves", json_object_get(json_opt(answer, "moves")));
	if (!ask(HOST_C, "POST", "/v1/drains", json_text(body)))
		return sim_is_wrong("the moves are refused: %s", refusal);
	number = json_opt_u64(answer, "drain", 0);
	while (!drain_is_over(HOST_C, number))
		if (sim_us() > until_us)
			return false;
	return json_opt_u64(json_opt(answer, "counts"), "done", 0) == 1 ||
	       sim_is_wrong("not one move: %.300s", json_text(answer));
}

static bool refuses_balance(const char *word)
{
	return !ask(HOST_C, "GET", "/v1/balance", NULL) && strstr(refusal, word)
		       ? true
		       : sim_is_wrong("it does not say \"%s\": %s", word, refusal);
}

/* The uplink of host A is full, its VM leaves, and takes its traffic along. */
static bool play_balance(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !refuses_balance("no answer about its counters"))
		return false;
	sim_fabric.loads = (struct sim_loads){
		.mbps = 25000, .others = {13000, 500, 20000}, .mover = 9000};
	if (!ask(HOST_C, "GET", "/v1/balance", NULL) || json_count(json_opt(answer, "moves")) != 1)
		return sim_is_wrong("not one move: %s %.300s", refusal, json_text(answer));
	if (!json_opt_bool(link_of("hosta"), "full", false) ||
	    !link_is("hosta", "out_mbps", 22000) || !link_is("hosta", "out_after", 13000) ||
	    !link_is("hostb", "out_after", 9500) || !link_is("hostc", "out_after", 20000))
		return sim_is_wrong("hosta is not full: %.300s", json_text(answer));
	if (!apply() || !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    sim_home(mover) != HOST_B)
		return sim_is_wrong("it is on host %d, not B", sim_home(mover));
	if (!ask(HOST_C, "GET", "/v1/balance", NULL) || json_count(json_opt(answer, "moves")))
		return sim_is_wrong("more moves: %s %.300s", refusal, json_text(answer));
	return !json_opt_bool(link_of("hosta"), "full", true) &&
	       link_is("hosta", "out_mbps", 13000) && link_is("hostb", "out_mbps", 9500);
}

/* ---- a drain whose daemon is killed ---- */

/* When, and which of them runs it. */
struct killing {
	int runs, host;
	bool (*now)(void *arg);
};

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

static bool in_state(enum migrate_state state)
{
	struct migration *m = sim_hosts[HOST_A].d.migrations;

	return m && m->state == state;
}

static bool in_hold(void *arg)
{
	(void)arg;
	return in_state(M_HOLD);
}

static bool in_attach(void *arg)
{
	(void)arg;
	return in_state(M_ATTACH);
}

static bool has_moved(void *arg)
{
	(void)arg;
	return in_state(M_DONE) && !mover->migration.under_way;
}

static bool drain_is_over(int host, uint64_t number)
{
	char *path AUTO_FREE = strf("/v1/drains/%llu", (unsigned long long)number);
	const char *state;

	if (!ask(host, "GET", path, NULL))
		return sim_is_wrong("the drain is not known: %s", refusal);
	state = json_opt_str(answer, "state", "");
	return str_eq(state, "done") ||
	       sim_is_wrong("the drain is %s: %.300s", state, json_text(answer));
}

/* It is taken up under its number, and the host is empty at its end. */
static bool play_killed_drain(const void *arg, const char *dir)
{
	const struct killing *k = arg;
	uint64_t number, until_us;

	if (!start(dir) || !ask(k->runs, "POST", "/v1/drains", "{\"host\":\"hosta\"}"))
		return sim_is_wrong("no drain: %s", refusal);
	number = json_opt_u64(answer, "drain", 0);
	if (!sim_run(k->now, NULL, sim_us() + 60 * SIM_S, sim_never))
		return sim_is_wrong("the moment does not come");
	sim_daemon_kill(k->host);
	sim_run(NULL, NULL, sim_us() + 2 * SIM_S, sim_never);
	sim_daemon_start(k->host);
	until_us = sim_us() + SIM_QUIET_S * SIM_S;
	while (!drain_is_over(k->runs, number))
		if (sim_us() > until_us)
			return false;
	return sim_run(sim_all_right, NULL, until_us, sim_never) && !*sim_broken &&
			       sim_home(mover) != HOST_A && tells_drained(HOST_A, true)
		       ? true
		       : sim_is_wrong("%s is on host %d", mover->name, sim_home(mover));
}

static const struct killing killings[] = {
	{HOST_C, HOST_C, at_once},   {HOST_C, HOST_C, in_hold}, {HOST_C, HOST_C, in_attach},
	{HOST_C, HOST_C, has_moved}, {HOST_A, HOST_A, at_once}, {HOST_A, HOST_A, in_hold},
	{HOST_A, HOST_A, in_attach}, {HOST_C, HOST_A, in_hold},
};

/* ---- a VM whose host is lost ---- */

static bool is_in(int host, enum vm_state state)
{
	struct vm *vm = vm_find(&sim_hosts[host].d, mover->uuid);

	return vm && vm->state == state;
}

static bool runs_without(void *arg)
{
	(void)arg;
	return is_in(HOST_B, VM_WITHOUT);
}

static bool runs_with(void *arg)
{
	(void)arg;
	return is_in(HOST_B, VM_ATTACHED);
}

static bool leases_nothing(void *arg)
{
	const struct vf_table *t = &sim_hosts[HOST_A].d.vfs;

	(void)arg;
	for (size_t i = 0; i < t->vf_count; i++)
		if (t->vfs[i].leased)
			return false;
	return t->vf_count;
}

static bool wait_until(bool (*is)(void *arg), const char *what)
{
	return sim_run(is, NULL, sim_us() + 60 * SIM_S, sim_never) ? true
								   : sim_is_wrong("%s", what);
}

static bool bound_to_b(void)
{
	struct sim_binding *b = sim_binding(mover->vguids[0]);

	return b && !strcmp(b->host, "hostb")
		       ? true
		       : sim_is_wrong("the vGUID is on %s", b ? b->host : "-");
}

/* Only once somebody vouches for that it is off; and when it is back, it takes nothing away. */
static bool play_lost_host(const void *arg, const char *dir)
{
	char *fence AUTO_FREE = strf("/v1/vms/%s/fence", mover->uuid);

	(void)arg;
	if (!start(dir))
		return false;
	sim_power_off(HOST_A);
	sim_qemu_start(HOST_B, mover);
	if (!wait_until(runs_without, "it takes the vGUID of a host that nobody has fenced"))
		return false;
	if (ask(HOST_B, "POST", fence, "{}") || !strstr(refusal, "host is missing") ||
	    ask(HOST_B, "POST", fence, "{\"host\":\"hostc\"}") || !strstr(refusal, "hosta"))
		return sim_is_wrong("fenced without the right host's name: %s", refusal);
	if (!ask(HOST_B, "POST", fence, "{\"host\":\"hosta\"}") ||
	    !ask(HOST_B, "POST", "/v1/vms/g1/attach", NULL))
		return sim_is_wrong("refused: %s", refusal);
	if (!wait_until(runs_with, "it gets no VF"))
		return false;
	sim_power_on(HOST_A);
	return wait_until(leases_nothing, "hosta keeps its lease") && bound_to_b();
}

/* ---- what fails is told soon, and in words ---- */

static struct migration *newest(int host)
{
	return sim_hosts[host].d.migrations;
}

static bool source_is_armed(void *arg)
{
	(void)arg;
	return newest(HOST_A) && newest(HOST_A)->armed;
}

static bool source_has_ended(void *arg)
{
	(void)arg;
	return newest(HOST_A)->ended;
}

/* How the destination's ibvmigd is lost in PREPARE: after how long it is back (0: never), within
 * what time the source walks back, and the words that it has for it. */
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
		return sim_is_wrong("in %s after %u s", migrate_state_name(newest(HOST_A)->state),
				    l->within_s);
	if (!strstr(newest(HOST_A)->reason, l->word))
		return sim_is_wrong("the reason is \"%s\"", newest(HOST_A)->reason);
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
	return newest(HOST_B)->state == M_PARKED;
}

/* Each try takes the agent 24 s: told from the first one on, and not repeated for minutes. */
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
	if (!ask(HOST_B, "GET", "/v1/vms/g1", NULL))
		return sim_is_wrong("no status: %s", refusal);
	m = json_opt(answer, "migration");
	if (!says(m, "state", "RESUME") || json_opt_u64(m, "failures", 0) != 1 ||
	    !*json_opt_str(m, "trouble", ""))
		return sim_is_wrong("the first try is not told: %.300s", json_text(m));
	if (!sim_run(is_parked, NULL, sim_us() + 120 * SIM_S, sim_never))
		return sim_is_wrong("in %s", migrate_state_name(newest(HOST_B)->state));
	mover->port_dead = false;
	migrate_resolve(&sim_hosts[HOST_B].d, newest(HOST_B)->id);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_home(mover) == HOST_B && !*sim_broken;
}

static bool destination_shows(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->state == M_SWITCH &&
	       sim_hosts[HOST_B].vfs[0].guid == mover->vguids[0];
}

static bool source_is_parked(void *arg)
{
	(void)arg;
	return newest(HOST_A)->state == M_PARKED;
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
		return sim_is_wrong("in %s", migrate_state_name(newest(HOST_A)->state));
	if (!strstr(newest(HOST_A)->trouble, "host hostb") ||
	    !strstr(newest(HOST_A)->trouble, "no such VF"))
		return sim_is_wrong("its reason is \"%s\"", newest(HOST_A)->trouble);
	sim_hosts[HOST_B].vfs[0].vanished = false;
	migrate_resolve(&sim_hosts[HOST_B].d, newest(HOST_B)->id);
	migrate_resolve(&sim_hosts[HOST_A].d, newest(HOST_A)->id);
	return sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_home(mover) == HOST_A && !*sim_broken;
}

static bool has_committed(void *arg)
{
	(void)arg;
	return newest(HOST_B) && newest(HOST_B)->committed;
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
	if (!ask(HOST_B, "GET", "/v1/vms/g1", NULL))
		return sim_is_wrong("no status: %s", refusal);
	if (!json_opt_bool(json_opt(answer, "migration"), "journal_behind", false))
		return sim_is_wrong("the full disk is not told: %.300s", json_text(answer));
	has_run = mover->live && newest(HOST_B)->state == M_DONE;
	sim_hosts[HOST_B].proc.disk_errno = 0;
	sim_run(NULL, NULL, sim_us() + 3 * SIM_S, sim_never);
	if (!ask(HOST_B, "GET", "/v1/vms/g1", NULL) ||
	    json_opt_bool(json_opt(answer, "migration"), "journal_behind", true))
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

	return in_state(p->state) && mover->migration.under_way &&
	       (p->state != M_HOLD || newest(HOST_A)->raised);
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
	if (home == HOST_A && !strstr(newest(HOST_A)->reason, "virsh migrate --timeout"))
		return sim_is_wrong("the reason is \"%s\"", newest(HOST_A)->reason);
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
	bool waits = m->strategy != STRATEGY_NATIVE;

	if (sim_running(mover))
		return true;
	return (waits == (m->state == M_PARKED) &&
		strstr(waits ? m->trouble : m->reason, "virsh resume g1")) ||
	       sim_is_wrong("it stands still, and %s says \"%s\"", migrate_state_name(m->state),
			    waits ? m->trouble : m->reason);
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
	migrate_resolve(&sim_hosts[HOST_A].d, newest(HOST_A)->id);
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
	{"a lost host's VM starts elsewhere, and the host comes back", play_lost_host, NULL},
	{"dry run: nothing in the way", play_possible, NULL},
	{"dry run: no free VF there", play_no_vf, NULL},
	{"dry run: two VFs, and the second one's PF is full", play_two_vfs, NULL},
	{"dry run: a peer without an agent", play_no_peer, NULL},
	{"dry run: OpenSM is away", play_no_sm, NULL},
	{"dry run: the destination's ibvmigd is away", play_no_host, NULL},
	{"dry run: what cannot be asked for", play_bad_requests, NULL},
	{"doctor: a VF's port is down in its guest", play_doctor, NULL},
	{"a full uplink: the counters, the proposal, the move, the counters", play_balance, NULL},
	{"a suspend, or a reservation, without the peers' GUIDs", play_bad_suspends, NULL},
	{"a drained host takes no VM until undrain, restarts included", play_drained, NULL},
	{"another host's drain, killed as it begins", play_killed_drain, &killings[0]},
	{"another host's drain, killed in HOLD", play_killed_drain, &killings[1]},
	{"another host's drain, killed in ATTACH", play_killed_drain, &killings[2]},
	{"another host's drain, killed before it has seen the end", play_killed_drain,
	 &killings[3]},
	{"the host's own drain, killed as it begins", play_killed_drain, &killings[4]},
	{"the host's own drain, killed in HOLD", play_killed_drain, &killings[5]},
	{"the host's own drain, killed in ATTACH", play_killed_drain, &killings[6]},
	{"another host's drain, the source killed in HOLD", play_killed_drain, &killings[7]},
};

int main(int argc, char **argv)
{
	return sim_scenes(scenes, ARRAY_SIZE(scenes), argc, argv);
}
