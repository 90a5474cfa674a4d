/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/sim_lost.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate.h"
#include "tests/fake/sim_right.h"

#include <string.h>

#define TOLD_S  300 /* by then an operator has read what to do */
#define RIGHT_S 240

static struct sim_guest *const mover = &sim_guests[0];
static struct sim_host *const source = &sim_hosts[HOST_A];

void sim_lost_strike(void)
{
	sim_power_off(HOST_B);
	sim_lost_host = HOST_B;
	sim_vm_may_be_dead = true;
}

static struct migration *record(void)
{
	for (struct migration *m = source->d.migrations; m; m = m->next)
		if (m->role == ROLE_SOURCE)
			return m;
	return NULL;
}

static bool has_ended(void *arg)
{
	struct migration *m = record();

	(void)arg;
	return !sim_migration.under_way && (!m || m->ended);
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

static bool ask(const char *method, const char *path, struct json_object *body)
{
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", source->name);

	answered = false;
	sim_http(HOST_A, base, method, path, body, 30000, heard, NULL);
	return sim_run(has_answered, NULL, sim_us() + 40 * SIM_S, NULL) && !refused;
}

/* `ibvmig list` has a line with the command, or the record is PARKED for another reason. */
static bool told(const char *id)
{
	char *path AUTO_FREE = strf("/v1/migrations/%s", id);
	char *command AUTO_FREE = strf("ibvmig resolve %s --destination-lost", id);
	struct json_object *m;
	const char *trouble;
	bool parked;

	if (!ask("GET", path, NULL))
		return false;
	m = json_opt(shown, "source");
	trouble = json_opt_str(m, "trouble", "-");
	parked = str_eq(json_opt_str(m, "state", ""), "PARKED");
	if (parked && !strstr(trouble, "hostb"))
		return true;
	/* `ibvmig status` shows what is tried again, and what is PARKED. */
	return strstr(trouble, command) && (parked || json_opt_u64(m, "failures", 0))
		       ? true
		       : sim_is_wrong("in %s nobody is told of the command: \"%.300s\"",
				      json_opt_str(m, "state", "?"), trouble);
}

static bool resolve(const char *id)
{
	char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", id);
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_bool(body, "destination_lost", true);
	return ask("POST", path, body);
}

/* `ibvmig fence`, for a VM whose migration had ended. */
static bool fence(void)
{
	char *path AUTO_FREE = strf("/v1/vms/%s/fence", mover->uuid);
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_str(body, "host", sim_hosts[HOST_B].name);
	return ask("POST", path, body);
}

/* ---- the VM ---- */

/* Another guest, with programs of its own; they begin when it has its VF. */
static void start_again(void)
{
	mover->suspended[0] = '\0';
	mover->live = true;
	sim_connection_ended = true;
	sim_qemu_start(HOST_A, mover);
}

/* sim_never() but for a guest that boots, and runs without its VF for a while. */
static void never_twice(void)
{
	for (unsigned i = 0; !*sim_broken && i < sim_rails(mover); i++)
		if (sim_vfs_with(mover->vguids[i]) > 1)
			snprintf(sim_broken, sizeof sim_broken, "two VFs show one vGUID");
	if (!*sim_broken && sim_running(mover) > 1)
		snprintf(sim_broken, sizeof sim_broken, "the VM runs twice");
}

static void mend(void)
{
	source->device_add_fails = false;
	sim_hosts[HOST_B].device_add_fails = false;
	mover->ignores_device_del = mover->port_dead = false;
	sim_virsh_mends();
}

bool sim_lost_play(unsigned *ret_commands)
{
	void (*never)(void) = sim_never;

	if (!sim_run(has_ended, NULL, sim_us() + TOLD_S * SIM_S, never)) {
		char id[37];

		memcpy(id, record()->id, sizeof id);
		mend();
		if (!told(id))
			return false;
		if (sim_home(mover) < 0) {
			start_again();
			never = never_twice;
			sim_run(NULL, NULL, sim_us() + 5 * SIM_S, never);
		}
		if (!resolve(id))
			return false;
		++*ret_commands;
		if (!sim_run(has_ended, NULL, sim_us() + RIGHT_S * SIM_S, never))
			return sim_is_wrong("the command does not end it: %s%s (%.200s)",
					    record()->back ? "undo of " : "",
					    migrate_state_name(record()->state), record()->trouble);
	}
	mend();
	if (sim_home(mover) < 0) {
		if (!fence())
			return false;
		start_again();
		never = never_twice;
	}
	if (!sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, never))
		return false;
	sim_power_on(HOST_B);
	sim_lost_host = -1;
	return sim_run(sim_all_right, NULL, sim_us() + RIGHT_S * SIM_S, sim_never);
}
