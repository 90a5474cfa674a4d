/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests that come twice from an operator, Nova or libvirt's hook, on simulated hosts
 * (tests/sim/world.h). The second answer tells what is so, and nothing is done twice; a
 * contradiction alone is refused. Each POST of daemon/rest.c has one scene. The daemons' own
 * requests to each other in a migration are sent twice by daemon_faults ("replies-doubled"). */
#include "tests/sim/right.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "daemon/rest.h"
#include "daemon/vm/vm.h"
#include "tests/sim/operator.h"
#include "tests/sim/scene.h"
#include "tests/sim/virt.h"

#include <string.h>

#define FILE_NAME "/var/tmp/g1.save"
#define ASKED_MAX 3

static struct sim_guest *const mover = &sim_guests[0];

/* ---- calls ---- */

/* The last answers, in the order of their requests. */
static struct reply {
	bool there;
	unsigned status;
	struct json_object *body; /* NULL: refused */
	char error[300];
} replies[ASKED_MAX];
static unsigned asked;

static void hear(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct reply *r = arg;

	r->there = true;
	r->status = sim_net.status;
	r->body = rc ? NULL : json_object_get(answer);
	snprintf(r->error, sizeof r->error, "%s", rc ? error : json_text(answer));
}

static void ask(int host, const char *path, const char *body)
{
	struct json_object *o AUTO_JSON = NULL;
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);

	if (body)
		json_parse(body, strlen(body), &o);
	sim_http(host, base, "POST", path, o, 600000, hear, &replies[asked++]);
}

static bool all_there(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < asked; i++)
		if (!replies[i].there)
			return false;
	return true;
}

/* Waits for what was asked, and compares the statuses; 0: no more. */
static bool hear_all(unsigned first, unsigned second, unsigned third)
{
	const unsigned expected[] = {first, second, third};
	unsigned n = asked;

	if (!sim_run(all_there, NULL, sim_us() + 600 * SIM_S, sim_never))
		return sim_is_wrong("no answer");
	asked = 0;
	for (unsigned i = 0; i < n; i++) {
		replies[i].there = false;
		if (replies[i].status != expected[i])
			return sim_is_wrong("answer %u is %u, not %u: %s", i + 1, replies[i].status,
					    expected[i], replies[i].error);
	}
	return true;
}

/* The same, one after the other. */
static bool twice(int host, const char *path, const char *body, unsigned first, unsigned second)
{
	ask(host, path, body);
	if (!sim_run(all_there, NULL, sim_us() + 600 * SIM_S, sim_never))
		return sim_is_wrong("no answer");
	ask(host, path, body);
	return hear_all(first, second, 0);
}

static bool at_once(int host, const char *path, const char *body, unsigned first, unsigned second)
{
	ask(host, path, body);
	ask(host, path, body);
	return hear_all(first, second, 0);
}

static bool refused(int host, const char *path, const char *body, unsigned status)
{
	ask(host, path, body);
	return hear_all(status, 0, 0);
}

static bool same(const char *key)
{
	const char *a AUTO_FREE = strdup(json_text(json_opt(replies[0].body, key)));

	return str_eq(a, json_text(json_opt(replies[1].body, key))) ||
	       sim_is_wrong("%s is not the same: %s %s", key, replies[0].error, replies[1].error);
}

/* ---- the hosts ---- */

static bool start(const char *dir)
{
	sim_mover = (struct sim_mover){.strategy = "late"};
	return sim_world_start(dir) && sim_all_right(NULL);
}

static bool settles(void)
{
	return sim_run(sim_quiet, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       sim_run(sim_all_right, NULL, sim_us() + SIM_QUIET_S * SIM_S, sim_never) &&
	       !*sim_broken;
}

static struct migration *newest(int host)
{
	return sim_hosts[host].d.migrations;
}

static bool in_state(int host, enum migrate_state state)
{
	return newest(host) && newest(host)->rec.state == state;
}

static bool wait_until(bool (*is)(void *arg), const char *what)
{
	return sim_run(is, NULL, sim_us() + 600 * SIM_S, sim_never) || sim_is_wrong("%s", what);
}

static bool in_hold(void *arg)
{
	(void)arg;
	return in_state(HOST_A, M_HOLD);
}

static unsigned records(int host)
{
	unsigned n = 0;

	for (struct migration *m = newest(host); m; m = m->next)
		n++;
	return n;
}

static bool has_gone(void *arg)
{
	(void)arg;
	return in_state(HOST_A, M_DONE);
}

static bool one_record(int host)
{
	return records(host) == 1 ||
	       sim_is_wrong("%u migrations on %s", records(host), sim_hosts[host].name);
}

/* The mover goes to host B, and in one migration. */
static bool moves_once(void)
{
	return wait_until(has_gone, "it does not go") && settles() && one_record(HOST_A) &&
	       sim_home(mover) == HOST_B;
}

/* ---- scenes ---- */

static bool play_attach(const void *arg, const char *dir)
{
	(void)arg;
	return start(dir) && twice(HOST_A, "/v1/vms/g1/attach", NULL, 200, 200) && settles();
}

static bool vm_is(int host, enum vm_state state)
{
	struct vm *vm = vm_find(&sim_hosts[host].d, mover->uuid);

	return vm && vm->state == state;
}

static bool runs_without(void *arg)
{
	(void)arg;
	return vm_is(HOST_B, VM_WITHOUT);
}

static bool runs_with(void *arg)
{
	(void)arg;
	return vm_is(HOST_B, VM_ATTACHED);
}

/* The VM's host is off; the fence, and then the VF, are asked for twice. */
static bool play_fence(const void *arg, const char *dir)
{
	char *fence AUTO_FREE = strf("/v1/vms/%s/fence", mover->uuid);

	(void)arg;
	if (!start(dir))
		return false;
	sim_daemon_kill(HOST_A);
	sim_qemu_kill(mover, HOST_A);
	for (unsigned i = 0; i < sim_size.vfs; i++) {
		sim_hosts[HOST_A].vfs[i].guid = sim_hosts[HOST_A].vfs[i].parked_guid;
		sim_hosts[HOST_A].vfs[i].prepared = false;
	}
	sim_qemu_start(HOST_B, mover);
	return wait_until(runs_without, "it does not run without its VF") &&
	       twice(HOST_B, fence, "{\"host\":\"hosta\"}", 200, 200) &&
	       at_once(HOST_B, "/v1/vms/g1/attach", NULL, 202, 202) &&
	       wait_until(runs_with, "it gets no VF") &&
	       refused(HOST_B, "/v1/vms/g1/attach", NULL, 200);
}

#define JOB_S 5 /* libvirt refuses it at once */

/* The VM has gone. Asked for at path, the job ends in that state. */
static bool job_ends(const char *path, const char *body, const char *state)
{
	struct json_object *job;
	const char *id;

	if (!refused(HOST_A, path, body, 202))
		return false;
	sim_run(NULL, NULL, sim_us() + JOB_S * SIM_S, sim_never);
	if (!sim_ask(HOST_A, "GET", "/v1/jobs", NULL))
		return sim_is_wrong("no jobs: %s", sim_refusal);
	job = json_object_array_get_idx(json_opt(sim_answer, "jobs"), 0);
	id = json_opt_str(json_opt(job, "migration"), "id", NULL);
	return (str_eq(json_opt_str(job, "state", ""), state) &&
		str_eq(id, newest(HOST_A)->rec.id) == !strcmp(state, "done")) ||
	       sim_is_wrong("it has not %s: %.300s", state, json_text(job));
}

static bool play_migrate(const void *arg, const char *dir)
{
	static const char path[] = "/v1/vms/g1/migrate",
			  body[] = "{\"to\":\"hostb\",\"strategy\":\"late\"}";

	(void)arg;
	return start(dir) && at_once(HOST_A, path, body, 202, 200) && same("job") &&
	       refused(HOST_A, path, "{\"to\":\"hostc\"}", 409) &&
	       refused(HOST_A, path, "{\"to\":\"hostb\",\"bandwidth_mib\":9}", 409) &&
	       moves_once() && job_ends(path, body, "done") &&
	       refused(HOST_A, path, "{\"to\":\"hostb\",\"strategy\":\"early\"}", 400) &&
	       job_ends(path, "{\"to\":\"hostc\"}", "failed") && one_record(HOST_A);
}

static bool play_drained_vm(const void *arg, const char *dir)
{
	static const char body[] = "{\"vm\":\"g1\",\"to\":\"hostb\"}";

	(void)arg;
	return start(dir) && at_once(HOST_A, "/v1/peer/migrate", body, 202, 200) &&
	       (str_eq(json_opt_str(replies[1].body, "busy", ""), "hostb") ||
		sim_is_wrong("it is not busy: %s", replies[1].error)) &&
	       moves_once() && job_ends("/v1/peer/migrate", body, "done") && one_record(HOST_A);
}

struct abort {
	const char *path, *body;
};

static bool play_abort(const void *arg, const char *dir)
{
	const struct abort *a = arg;

	if (!start(dir) || !twice(HOST_A, a->path, a->body, 200, 200) ||
	    json_opt_bool(replies[0].body, "under_way", true))
		return sim_is_wrong("under way: %s", replies[0].error);
	sim_migrate(mover, HOST_A, HOST_B);
	return wait_until(in_hold, "no HOLD") && twice(HOST_A, a->path, a->body, 202, 200) &&
	       settles() && one_record(HOST_A) && in_state(HOST_A, M_ABORTED);
}

static const struct abort of_operator = {"/v1/vms/g1/abort", NULL},
			  of_drain = {"/v1/peer/cancel", "{\"vm\":\"g1\"}"};

/* The answer tells the time of the first request, and no time once that is taken back. */
static bool play_drained(const void *arg, const char *dir)
{
	static const char path[] = "/v1/peer/drained";
	const struct daemon *b = &sim_hosts[HOST_B].d;
	uint64_t since_ms;

	(void)arg;
	if (!start(dir) || !refused(HOST_B, path, "{\"drained\":true}", 200))
		return false;
	since_ms = b->drained_ms;
	sim_run(NULL, NULL, sim_us() + SIM_S, sim_never);
	if (!refused(HOST_B, path, "{\"drained\":true}", 200) || !since_ms ||
	    b->drained_ms != since_ms)
		return sim_is_wrong("drained since %llu, then %llu", (unsigned long long)since_ms,
				    (unsigned long long)b->drained_ms);
	return twice(HOST_B, path, "{\"drained\":false}", 200, 200) &&
	       (!b->drained_ms || sim_is_wrong("it is still drained")) && settles();
}

static bool parked_there(void *arg)
{
	(void)arg;
	return in_state(HOST_B, M_PARKED);
}

static bool play_resolve(const void *arg, const char *dir)
{
	char *path AUTO_FREE = NULL;

	(void)arg;
	if (!start(dir))
		return false;
	sim_hosts[HOST_B].device_add_fails = true;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!wait_until(parked_there, "it is not parked"))
		return false;
	sim_hosts[HOST_B].device_add_fails = false;
	path = strf("/v1/migrations/%s/resolve", newest(HOST_B)->rec.id);
	return at_once(HOST_B, path, NULL, 200, 200) && settles() &&
	       twice(HOST_B, path, NULL, 200, 200) && refused(HOST_A, path, NULL, 409) &&
	       refused(HOST_C, path, NULL, 404) && settles();
}

#define LOST "{\"destination_lost\":true}"

static void lose_b(void)
{
	sim_power_off(HOST_B);
	sim_lost_host = HOST_B;
}

/* Also when the record has ended, and its daemon was restarted since. */
static bool says_lost_again(const char *path)
{
	if (!settles() || !refused(HOST_A, path, LOST, 200))
		return false;
	sim_daemon_kill(HOST_A);
	sim_daemon_start(HOST_A);
	return settles() && refused(HOST_A, path, LOST, 200) && refused(HOST_C, path, LOST, 404) &&
	       settles();
}

static bool b_shows(void *arg)
{
	(void)arg;
	return in_state(HOST_B, M_SWITCH) && sim_hosts[HOST_B].vfs[0].guid == mover->vguids[0];
}

static bool waits_for_b(void *arg)
{
	(void)arg;
	return newest(HOST_A)->rec.back && newest(HOST_A)->step.failures;
}

static bool play_lost(const void *arg, const char *dir)
{
	char *path AUTO_FREE = NULL;

	(void)arg;
	if (!start(dir))
		return false;
	sim_migrate(mover, HOST_A, HOST_B);
	if (!wait_until(b_shows, "SWITCH is not reached"))
		return false;
	lose_b();
	path = strf("/v1/migrations/%s/resolve", newest(HOST_A)->rec.id);
	return wait_until(waits_for_b, "nothing waits for the destination") &&
	       at_once(HOST_A, path, LOST, 200, 200) && settles() && one_record(HOST_A) &&
	       in_state(HOST_A, M_ABORTED) && says_lost_again(path);
}

static bool b_restores(void *arg)
{
	(void)arg;
	return newest(HOST_B) && record_did(&newest(HOST_B)->rec, DID_ARM) &&
	       *newest(HOST_A)->rec.to.url;
}

static bool nobody_restores(void *arg)
{
	(void)arg;
	return !*newest(HOST_A)->rec.to.url;
}

/* The host that restores it is lost, then the VM is restored elsewhere. */
static bool play_lost_restore(const void *arg, const char *dir)
{
	static const char file[] = "{\"file\":\"" FILE_NAME "\"}";
	char *path AUTO_FREE = NULL;

	(void)arg;
	if (!start(dir) || !twice(HOST_A, "/v1/vms/g1/save", file, 200, 200))
		return false;
	path = strf("/v1/migrations/%s/resolve", newest(HOST_A)->rec.id);
	sim_restore(HOST_B);
	if (!wait_until(b_restores, "no host restores it"))
		return false;
	lose_b();
	return at_once(HOST_A, path, LOST, 200, 200) &&
	       wait_until(nobody_restores, "it waits for a host that is lost") &&
	       refused(HOST_A, path, LOST, 200) && refused(HOST_C, "/v1/restore", file, 200) &&
	       settles() && one_record(HOST_A) && sim_home(mover) == HOST_C;
}

static bool play_save(const void *arg, const char *dir)
{
	static const char file[] = "{\"file\":\"" FILE_NAME "\"}";

	(void)arg;
	return start(dir) && at_once(HOST_A, "/v1/vms/g1/save", file, 200, 202) && same("id") &&
	       refused(HOST_A, "/v1/vms/g1/save", file, 200) && one_record(HOST_A) &&
	       refused(HOST_A, "/v1/vms/g1/save", "{\"file\":\"/another\"}", 404) &&
	       at_once(HOST_B, "/v1/restore", file, 200, 202) && settles() &&
	       refused(HOST_B, "/v1/restore", file, 200) && settles() && one_record(HOST_B) &&
	       sim_home(mover) == HOST_B;
}

static bool play_drain(const void *arg, const char *dir)
{
	static const char body[] = "{\"host\":\"hosta\",\"to\":[\"hostb\"]}";

	(void)arg;
	return start(dir) && twice(HOST_C, "/v1/drains", body, 202, 200) && same("drain") &&
	       moves_once() && twice(HOST_C, "/v1/hosts/hosta/undrain", NULL, 200, 200);
}

static bool play_moves(const void *arg, const char *dir)
{
	static const char body[] =
		"{\"moves\":[{\"vm\":\"g1\",\"from\":\"hosta\",\"to\":\"hostb\"}]}";

	(void)arg;
	return start(dir) && at_once(HOST_C, "/v1/drains", body, 202, 200) && same("drain") &&
	       twice(HOST_C, "/v1/drains/1/abort", "{\"cancel\":true}", 202, 202) && settles() &&
	       twice(HOST_C, "/v1/drains/1/abort", "{\"cancel\":true}", 202, 202);
}

static bool play_planning(const void *arg, const char *dir)
{
	static const char body[] = "{\"host\":\"hosta\",\"to\":[\"hostb\"]}";

	(void)arg;
	return start(dir) && at_once(HOST_C, "/v1/drains", body, 202, 200) && same("drain") &&
	       moves_once();
}

/* Neither is of a migration that is under way. */
static bool play_notice(const void *arg, const char *dir)
{
	(void)arg;
	return start(dir) &&
	       twice(HOST_A, "/v1/peer/repath",
		     "{\"notices\":[{\"vguid\":\"0x00a1b2fffe0000f0\",\"lid\":17}]}", 200, 200) &&
	       settles();
}

/* Guests say things again themselves: both are passed on, and the answers are the same. */
static bool play_relay(const void *arg, const char *dir)
{
	struct ib_gid to = {IB_GID_PREFIX_LL, mover->vguids[0]};
	char *body AUTO_FREE = NULL, gid[IB_GID_TEXT];

	(void)arg;
	ib_gid_format(&to, gid);
	body = strf("{\"messages\":[{\"from\":\"fe80::2\",\"to\":\"%s\",\"body\":\"AAAA\"},"
		    "{\"from\":\"fe80::2\",\"to\":\"fe80::3\",\"body\":\"AAAA\"}]}",
		    gid);
	return start(dir) && twice(HOST_A, "/v1/peer/relay", body, 200, 200) && same("refused") &&
	       (strstr(replies[0].error, "[1]") || strstr(replies[0].error, "[ 1 ]") ||
		sim_is_wrong("refused: %s", replies[0].error)) &&
	       settles();
}

/* libvirt's next try, before the VM has come. */
static bool play_hook(const void *arg, const char *dir)
{
	char *xml AUTO_FREE = NULL;
	struct json_object *o AUTO_JSON = json_object_new_object();

	(void)arg;
	if (!start(dir))
		return false;
	xml = sim_domain_xml(mover, "/channel", "");
	json_set_str(o, "name", mover->name);
	json_set_str(o, "op", "start");
	json_set_str(o, "sub_op", "begin");
	json_set_str(o, "xml", xml);
	return twice(HOST_B, "/v1/hook", json_text(o), 200, 200) && settles();
}

static const struct {
	const char *route;
	struct sim_scene scene;
} table[] = {
	{"/v1/vms/*/attach", {"attach: it has its VF", play_attach, NULL}},
	{"/v1/vms/*/fence", {"fence, and attach: it is given its VF", play_fence, NULL}},
	{"/v1/vms/*/migrate", {"migrate", play_migrate, NULL}},
	{"/v1/peer/migrate", {"migrate, by who drains", play_drained_vm, NULL}},
	{"/v1/vms/*/abort",
	 {"abort: nothing is under way, and a migration is", play_abort, &of_operator}},
	{"/v1/peer/cancel", {"the same by who drains", play_abort, &of_drain}},
	{"/v1/migrations/*/resolve", {"resolve", play_resolve, NULL}},
	{"/v1/migrations/*/resolve", {"resolve --destination-lost", play_lost, NULL}},
	{"/v1/migrations/*/resolve",
	 {"resolve --destination-lost of a saved VM", play_lost_restore, NULL}},
	{"/v1/vms/*/save", {"save, and restore", play_save, NULL}},
	{"/v1/restore", {NULL, NULL, NULL}},
	{"/v1/drains", {"drain of a host", play_drain, NULL}},
	{"/v1/hosts/*/undrain", {NULL, NULL, NULL}},
	{"/v1/drains", {"drain of a host, while it is planned", play_planning, NULL}},
	{"/v1/drains/*/abort", {"moves, and their abort", play_moves, NULL}},
	{"/v1/peer/drained", {"a host takes no VMs, and takes them again", play_drained, NULL}},
	{"/v1/peer/repath", {"notice of a changed path", play_notice, NULL}},
	{"/v1/peer/relay", {"messages between guests", play_relay, NULL}},
	{"/v1/hook", {"libvirt's hook", play_hook, NULL}},
};

/* A migration of daemon_faults makes these requests, with each message sent twice. */
static const char *const doubled[] = {
	"/v1/peer/prepare", "/v1/peer/switch", "/v1/peer/unswitch", "/v1/peer/abort",
	"/v1/peer/outcome", "/v1/peer/check",  "/v1/peer/reserve",  "/v1/peer/release",
	"/v1/peer/suspend", "/v1/peer/resume",
};

static bool in_table(const char *route)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].route, route))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(doubled); i++)
		if (!strcmp(doubled[i], route))
			return true;
	return false;
}

static bool play_all_routes(const void *arg, const char *dir)
{
	(void)arg;
	(void)dir;
	for (const struct http_route *r = rest_routes; r->method; r++)
		if (!strcmp(r->method, "POST") && !in_table(r->path))
			return sim_is_wrong("no scene asks for POST %s twice", r->path);
	return true;
}

int main(int argc, char **argv)
{
	struct sim_scene scenes[ARRAY_SIZE(table) + 1];
	size_t n = 0;

	scenes[n++] = (struct sim_scene){"each route is here", play_all_routes, NULL};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].scene.name)
			scenes[n++] = table[i].scene;
	return sim_scenes(scenes, n, argc, argv);
}
