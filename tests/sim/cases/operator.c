/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Operators' requests to simulated hosts (tests/sim/world.h): dry runs that find something in the
 * way, drained hosts, drains whose daemon is killed, full uplinks, VMs whose host is lost.
 * daemon_strategies.c has what a dry run says of strategies. */
#include "tests/sim/right.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/vm/vm.h"
#include "tests/sim/operator.h"
#include "tests/sim/scene.h"
#include "tests/sim/virt.h"

#include <errno.h>
#include <string.h>

static struct sim_guest *const mover = &sim_guests[0], *const peer = &sim_guests[1];

/* ---- dry runs ---- */

#define DRY_RUN_TO_B "{\"to\":\"hostb\",\"dry_run\":true}"

static bool start(const char *dir)
{
	sim_mover = (struct sim_mover){.strategy = "auto"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool dry_run(void)
{
	if (!sim_ask(HOST_A, "POST", "/v1/vms/g1/migrate", DRY_RUN_TO_B))
		return sim_is_wrong("refused: %s", sim_refusal);
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (sim_hosts[h].d.migrations)
			return sim_is_wrong("host %s has a migration", sim_hosts[h].name);
	return true;
}

static bool blocked_by(const char *word)
{
	struct json_object *list = json_opt(sim_answer, "blocked");

	return !json_opt_bool(sim_answer, "possible", true) && strstr(json_text(list), word)
		       ? true
		       : sim_is_wrong("\"%s\" is not in the way: %.300s", word,
				      json_text(sim_answer));
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
	first = json_object_array_get_idx(json_opt(sim_answer, "peers"), 0);
	if (json_opt_u64(json_opt(sim_answer, "cost"), "smps", 0) != 5 ||
	    json_opt_u64(sim_answer, "lid", 0) != sim_binding(mover->vguids[0])->lid ||
	    json_count(json_opt(sim_answer, "peers")) != 1 || json_opt(first, "problem"))
		return sim_is_wrong("not what is there: %.300s", json_text(sim_answer));
	return says(sim_answer, "vf", "a-vf1") && says(sim_answer, "to", "hostb") &&
	       says(first, "host", "hostc") && says(first, "vm", peer->name) && sim_all_right(NULL);
}

/* hostb's VFs of this PF are another VM's. */
static void take_vfs(const char *pf)
{
	struct vf_table *t = sim_hosts[HOST_B].d.vfs;

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
	vfs = json_opt(sim_answer, "vfs");
	for (unsigned i = 0; i < SIM_RAILS; i++) {
		struct json_object *v = json_object_array_get_idx(vfs, i);

		if (json_opt_u64(v, "lid", 0) != sim_binding(mover->vguids[i])->lid)
			return sim_is_wrong("not its LIDs: %.300s", json_text(sim_answer));
		if (!says(v, "addresses", "prepopulated"))
			return false;
	}
	if (!json_opt_bool(sim_answer, "possible", false) ||
	    json_opt_u64(json_opt(sim_answer, "cost"), "smps", 0) != 5 + 7)
		return sim_is_wrong("not what is there: %.300s", json_text(sim_answer));
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

		if (sim_ask(HOST_A, "POST", path, bad[i].body) || !strstr(sim_refusal, bad[i].word))
			return sim_is_wrong("%s: \"%.200s\"", bad[i].body, sim_refusal);
	}
	for (size_t i = 0; i < ARRAY_SIZE(of_nobody); i++)
		if (sim_ask(HOST_A, of_nobody[i].method, of_nobody[i].path, NULL) ||
		    !strstr(sim_refusal, "no VM nobody with") ||
		    !strstr(sim_refusal, "virsh metadata nobody"))
			return sim_is_wrong("%s: \"%.200s\"", of_nobody[i].path, sim_refusal);
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
		if (sim_ask(HOST_C, "POST", paths[i], "{\"migration\":\"m\",\"vguids\":[]}") ||
		    !strstr(sim_refusal, "guids"))
			return sim_is_wrong("%s: \"%.200s\"", paths[i], sim_refusal);
		if (sim_hosts[HOST_C].d.peer_watches)
			return sim_is_wrong("%s: it is watched all the same", paths[i]);
	}
	return true;
}

/* ---- what only the guest knows ---- */

static bool guest_port_is(const char *verdict)
{
	struct json_object *found;

	if (!sim_ask(HOST_A, "GET", "/v1/doctor", NULL))
		return sim_is_wrong("no doctor: %s", sim_refusal);
	found = json_find(json_opt(sim_answer, "checks"), "subject", "g1, VF a-vf1");
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

/* A guest's answer is kept in the record, nested as deep as the parser lets it be. */
static bool play_deep_answer(const void *arg, const char *dir)
{
	struct json_object *deep = json_object_new_object();

	(void)arg;
	if (!start(dir) || !migrates_to_b())
		return false;
	for (unsigned i = 1; i < JSON_DEPTH_MAX; i++) {
		struct json_object *outer = json_object_new_object();

		json_set(outer, "in", deep);
		deep = outer;
	}
	json_set(sim_hosts[HOST_B].d.migrations->rec.data, "resume", deep);
	return (sim_ask(HOST_B, "GET", "/v1/doctor", NULL) &&
		json_count(json_opt(sim_answer, "checks"))) ||
	       sim_is_wrong("no doctor: %s", sim_refusal);
}

static bool tells_drained(int host, bool drained)
{
	if (!sim_ask(host, "GET", "/v1/status", NULL))
		return sim_is_wrong("no status: %s", sim_refusal);
	return json_opt_bool(sim_answer, "drained", !drained) == drained &&
			       !json_opt(sim_answer, "drained_since_ms") == !drained
		       ? true
		       : sim_is_wrong("status: %.300s", json_text(sim_answer));
}

/* libvirt's hook gets this answer when the mover is to start, or to be restored, on host B. */
static bool hook_says(const char *op, bool refused)
{
	char *xml AUTO_FREE = sim_domain_xml(mover, "/channel", "");
	struct json_object *o AUTO_JSON = json_object_new_object();
	bool ok;

	json_set_str(o, "name", mover->name);
	json_set_str(o, "op", op);
	json_set_str(o, "sub_op", "begin");
	json_set_str(o, "xml", xml);
	ok = sim_ask(HOST_B, "POST", "/v1/hook", json_text(o));
	if (refused ? !ok && strstr(sim_refusal, "ibvmig undrain hostb") : ok)
		return true;
	return sim_is_wrong("%s: %s", op, ok ? "it is let in" : sim_refusal);
}

/* Marked, killed, started again: still marked, until the mark is ended from another host. */
static bool play_drained(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !sim_ask(HOST_A, "POST", "/v1/drains", "{\"host\":\"hostb\"}"))
		return sim_is_wrong("no drain: %s", sim_refusal);
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
	if (!sim_ask(HOST_A, "POST", "/v1/hosts/hostb/undrain", NULL) ||
	    !tells_drained(HOST_B, false))
		return sim_is_wrong("no undrain: %s", sim_refusal);
	if (!hook_says("prepare", false) || !hook_says("restore", false))
		return false;
	return migrates_to_b() && sim_home(mover) == HOST_B ? true : sim_is_wrong("it stays");
}

/* ---- from port counters to moves ---- */

static struct json_object *link_of(const char *host)
{
	return json_find(json_opt(sim_answer, "links"), "host", host);
}

static bool link_is(const char *host, const char *key, uint64_t mbps)
{
	return json_opt_u64(link_of(host), key, UINT64_MAX) == mbps ||
	       sim_is_wrong("%s of %s is not %llu: %.300s", key, host, (unsigned long long)mbps,
			    json_text(sim_answer));
}

static bool drain_is_over(int host, uint64_t number);

/* As `ibvmig rebalance --apply` does: what was proposed is asked for. */
static bool apply(void)
{
	struct json_object *body AUTO_JSON = json_object_new_object();
	uint64_t number, until_us = sim_us() + SIM_QUIET_S * SIM_S;

	json_set(body, "moves", json_object_get(json_opt(sim_answer, "moves")));
	if (!sim_ask(HOST_C, "POST", "/v1/drains", json_text(body)))
		return sim_is_wrong("the moves are refused: %s", sim_refusal);
	number = json_opt_u64(sim_answer, "drain", 0);
	while (!drain_is_over(HOST_C, number))
		if (sim_us() > until_us)
			return false;
	return json_opt_u64(json_opt(sim_answer, "counts"), "done", 0) == 1 ||
	       sim_is_wrong("not one move: %.300s", json_text(sim_answer));
}

static bool refuses_balance(const char *word)
{
	return !sim_ask(HOST_C, "GET", "/v1/balance", NULL) && strstr(sim_refusal, word)
		       ? true
		       : sim_is_wrong("it does not say \"%s\": %s", word, sim_refusal);
}

/* The uplink of host A is full, its VM leaves, and takes its traffic along. */
static bool play_balance(const void *arg, const char *dir)
{
	(void)arg;
	if (!start(dir) || !refuses_balance("no answer about its counters"))
		return false;
	sim_fabric.loads = (struct sim_loads){
		.mbps = 25000, .others = {13000, 500, 20000}, .mover = 9000};
	if (!sim_ask(HOST_C, "GET", "/v1/balance", NULL) ||
	    json_count(json_opt(sim_answer, "moves")) != 1)
		return sim_is_wrong("not one move: %s %.300s", sim_refusal, json_text(sim_answer));
	if (!json_opt_bool(link_of("hosta"), "full", false) ||
	    !link_is("hosta", "out_mbps", 22000) || !link_is("hosta", "out_after", 13000) ||
	    !link_is("hostb", "out_after", 9500) || !link_is("hostc", "out_after", 20000))
		return sim_is_wrong("hosta is not full: %.300s", json_text(sim_answer));
	if (!apply() || !sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) ||
	    sim_home(mover) != HOST_B)
		return sim_is_wrong("it is on host %d, not B", sim_home(mover));
	if (!sim_ask(HOST_C, "GET", "/v1/balance", NULL) ||
	    json_count(json_opt(sim_answer, "moves")))
		return sim_is_wrong("more moves: %s %.300s", sim_refusal, json_text(sim_answer));
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

	return m && m->rec.state == state;
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

	if (!sim_ask(host, "GET", path, NULL))
		return sim_is_wrong("the drain is not known: %s", sim_refusal);
	state = json_opt_str(sim_answer, "state", "");
	return str_eq(state, "done") ||
	       sim_is_wrong("the drain is %s: %.300s", state, json_text(sim_answer));
}

/* The drain is taken up under its number, and the host is empty at its end. */
static bool play_killed_drain(const void *arg, const char *dir)
{
	const struct killing *k = arg;
	uint64_t number, until_us;

	if (!start(dir) || !sim_ask(k->runs, "POST", "/v1/drains", "{\"host\":\"hosta\"}"))
		return sim_is_wrong("no drain: %s", sim_refusal);
	number = json_opt_u64(sim_answer, "drain", 0);
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
	const struct vf_table *t = sim_hosts[HOST_A].d.vfs;

	(void)arg;
	for (size_t i = 0; t && i < t->vf_count; i++)
		if (t->vfs[i].leased)
			return false;
	return t && t->vf_count;
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
	if (sim_ask(HOST_B, "POST", fence, "{}") || !strstr(sim_refusal, "host is missing") ||
	    sim_ask(HOST_B, "POST", fence, "{\"host\":\"hostc\"}") || !strstr(sim_refusal, "hosta"))
		return sim_is_wrong("fenced without the right host's name: %s", sim_refusal);
	if (!sim_ask(HOST_B, "POST", fence, "{\"host\":\"hosta\"}") ||
	    !sim_ask(HOST_B, "POST", "/v1/vms/g1/attach", NULL))
		return sim_is_wrong("refused: %s", sim_refusal);
	if (!wait_until(runs_with, "it gets no VF"))
		return false;
	sim_power_on(HOST_A);
	return wait_until(leases_nothing, "hosta keeps its lease") && bound_to_b();
}

static const struct sim_scene scenes[] = {
	{"a lost host's VM starts elsewhere, and the host comes back", play_lost_host, NULL},
	{"dry run: nothing in the way", play_possible, NULL},
	{"dry run: no free VF there", play_no_vf, NULL},
	{"dry run: two VFs, and the second one's PF is full", play_two_vfs, NULL},
	{"dry run: a peer without an agent", play_no_peer, NULL},
	{"dry run: OpenSM is away", play_no_sm, NULL},
	{"dry run: the destination's ibvmigd is away", play_no_host, NULL},
	{"dry run: what cannot be asked for", play_bad_requests, NULL},
	{"doctor: a VF's port is down in its guest", play_doctor, NULL},
	{"doctor: a guest has answered with deep nesting", play_deep_answer, NULL},
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
