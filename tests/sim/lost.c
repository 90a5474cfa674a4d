/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/lost.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/operator.h"
#include "tests/sim/right.h"

#include <string.h>

#define TOLD_S  300 /* by then an operator has read what to do */
#define RIGHT_S 240
#define ALONE_S 600 /* more than a peer waits for a source that does not answer */

static void (*never)(void) = sim_never;

void sim_lost_strike(int host)
{
	sim_power_off(host);
	sim_lost_host = host;
	sim_vm_may_be_dead = true;
}

static struct migration *record(const struct sim_guest *g)
{
	for (struct migration *m = sim_hosts[g->migration.from].d.migrations; m; m = m->next)
		if (m->rec.role == ROLE_SOURCE && !strcmp(m->rec.vm_uuid, g->uuid))
			return m;
	return NULL;
}

static bool has_ended(void *arg)
{
	const struct sim_guest *g = arg;
	struct migration *m = record(g);

	return !g->migration.under_way && (!m || m->rec.ended);
}

/* ---- what the operator reads, and does ---- */

static struct json_object *shown;
static bool answered, refused;

static void heard(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	answered = true;
	refused = rc && (sim_is_wrong("refused: %.300s", error) || true);
	json_object_put(shown);
	shown = rc ? NULL : json_object_get(answer);
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answered;
}

static bool ask(int host, const char *method, const char *path, struct json_object *body)
{
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);

	answered = false;
	sim_http(host, base, method, path, body, 30000, heard, NULL);
	return sim_run(has_answered, NULL, sim_us() + 40 * SIM_S, NULL) && !refused;
}

/* `ibvmig list` has a line with the command, or the record is PARKED for another reason. */
static bool told(int host, const char *id)
{
	char *path AUTO_FREE = strf("/v1/migrations/%s", id);
	char *command AUTO_FREE = strf("ibvmig resolve %s --destination-lost", id);
	struct json_object *m;
	const char *trouble;
	bool parked;

	if (!ask(host, "GET", path, NULL))
		return false;
	m = json_opt(shown, "source");
	trouble = json_opt_str(m, "trouble", "-");
	parked = str_eq(json_opt_str(m, "state", ""), "PARKED");
	if (parked && !strstr(trouble, sim_hosts[sim_lost_host].name))
		return true;
	/* `ibvmig status` shows what is tried again, and what is PARKED. */
	return strstr(trouble, command) && (parked || json_opt_u64(m, "failures", 0))
		       ? true
		       : sim_is_wrong("in %s nobody is told of the command: \"%.300s\"",
				      json_opt_str(m, "state", "?"), trouble);
}

static bool resolve(int host, const char *id)
{
	char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", id);
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_bool(body, "destination_lost", true);
	return ask(host, "POST", path, body);
}

/* `ibvmig fence`, for a VM whose migration had ended. */
static bool fence(const struct sim_guest *g)
{
	char *path AUTO_FREE = strf("/v1/vms/%s/fence", g->uuid);
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_str(body, "host", sim_hosts[sim_lost_host].name);
	return ask(g->migration.from, "POST", path, body);
}

/* ---- the VM ---- */

/* Another guest, with programs of its own; they begin when it has its VF. */
static void start_again(struct sim_guest *g)
{
	g->suspended[0] = '\0';
	g->live = true;
	g->connection_ended = true;
	never = sim_never_twice; /* the VM runs without its VF for a while */
	sim_qemu_start(g->migration.from, g);
}

static void mend(struct sim_guest *g)
{
	for (unsigned h = 0; h < sim_size.hosts; h++)
		sim_hosts[h].device_add_fails = false;
	g->ignores_device_del = g->port_dead = false;
	sim_virsh_mends();
}

/* The migration ends by itself, or by the command. */
static bool ends(struct sim_guest *g, unsigned *ret_commands)
{
	char id[37];

	if (has_ended(g))
		return true;
	memcpy(id, record(g)->rec.id, sizeof id);
	mend(g);
	if (!told(g->migration.from, id))
		return false;
	if (sim_home(g) < 0) {
		start_again(g);
		sim_run(NULL, NULL, sim_us() + 5 * SIM_S, never);
	}
	if (!resolve(g->migration.from, id))
		return false;
	++*ret_commands;
	return sim_run(has_ended, g, sim_us() + RIGHT_S * SIM_S, never) ||
	       sim_is_wrong("the command does not end it: %s%s (%.200s)",
			    record(g)->rec.back ? "undo of " : "",
			    migrate_state_name(record(g)->rec.state), record(g)->rec.trouble);
}

static bool is_there(struct sim_guest *g)
{
	if (sim_home(g) >= 0)
		return true;
	if (!fence(g))
		return false;
	start_again(g);
	return true;
}

static bool concerns(const struct sim_guest *g)
{
	return g->mover && g->migration.to == sim_lost_host;
}

static bool all_have_ended(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < sim_size.guests; i++)
		if (concerns(&sim_guests[i]) && !has_ended(&sim_guests[i]))
			return false;
	return true;
}

/* The host takes nothing away; what it keeps for a VM that it had saved, and that was restored
 * without it, an operator has it give up. */
static bool comes_back(void)
{
	const struct migration *m;
	int host = sim_lost_host;

	sim_power_on(host);
	sim_lost_host = -1;
	sim_run(sim_quiet, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
	m = sim_record(host, ROLE_SOURCE);
	if (m && sim_is_kept(m)) {
		char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", m->rec.id);

		if (!ask(host, "POST", path, NULL))
			return false;
	}
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
}

bool sim_lost_play(unsigned *ret_commands)
{
	sim_run(all_have_ended, NULL, sim_us() + TOLD_S * SIM_S, never);
	for (unsigned i = 0; i < sim_size.guests; i++) {
		struct sim_guest *g = &sim_guests[i];

		if (!concerns(g))
			continue;
		if (!ends(g, ret_commands))
			return false;
		mend(g);
		if (!is_there(g))
			return false;
	}
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, never) && comes_back();
}

/* ---- the source ---- */

static bool source_is_given_up(unsigned *ret_commands)
{
	const struct migration *m = sim_record(HOST_B, ROLE_DESTINATION);
	struct json_object *body AUTO_JSON = json_object_new_object();
	char *command AUTO_FREE = NULL, *path AUTO_FREE = NULL;

	if (!m || m->rec.ended || record_did(&m->rec, DID_MOVE))
		return true;
	command = strf("ibvmig resolve %s --source-lost", m->rec.id);
	path = strf("/v1/migrations/%s/resolve", m->rec.id);
	if (!strstr(m->rec.trouble, command))
		return sim_is_wrong("nobody is told of the command: %s \"%.300s\"",
				    migrate_state_name(m->rec.state), m->rec.trouble);
	json_set_bool(body, "source_lost", true);
	++*ret_commands;
	return ask(HOST_B, "POST", path, body) && ask(HOST_B, "POST", path, body);
}

bool sim_lost_source_play(unsigned *ret_commands)
{
	sim_run(NULL, NULL, sim_us() + ALONE_S * SIM_S, sim_never);
	if (sim_home(&sim_guests[0]) < 0)
		return sim_peer_right();
	mend(&sim_guests[0]);
	if (!source_is_given_up(ret_commands) || !sim_resolve_all(ret_commands) ||
	    !sim_run(sim_all_right, NULL, sim_us() + ALONE_S * SIM_S, sim_never))
		return false;
	return comes_back();
}
