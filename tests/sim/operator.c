/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/operator.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/store/journal.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/right.h"

#include <string.h>

struct json_object *sim_answer;
char sim_refusal[512];
static bool answered;

static void hear(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	sim_answer = rc ? NULL : json_object_get(answer);
	snprintf(sim_refusal, sizeof sim_refusal, "%s", rc ? error : "");
	answered = true;
}

static bool has_answered(void *arg)
{
	(void)arg;
	return answered;
}

bool sim_ask(int host, const char *method, const char *path, const char *body)
{
	struct json_object *o AUTO_JSON = NULL;

	json_object_put(TAKE(sim_answer));
	answered = false;
	if (body)
		json_parse(body, strlen(body), &o);
	sim_http(host, sim_hosts[host].url, method, path, o, 30000, hear, NULL);
	return sim_run(has_answered, NULL, sim_us() + 60 * SIM_S, sim_never) && sim_answer;
}

void sim_mend_all(void)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		sim_hosts[h].device_add_fails = false;
		for (unsigned i = 0; i < sim_size.vfs; i++)
			sim_hosts[h].vfs[i].vanished = false;
	}
	for (unsigned i = 0; i < sim_size.guests; i++)
		sim_guests[i].ignores_device_del = sim_guests[i].port_dead = false;
}

bool sim_tells(int host, const struct migration *m, const char *command)
{
	struct json_object *both AUTO_JSON = journal_migration(sim_hosts[host].d.journal,
							       m->rec.id);
	struct json_object *list, *last;

	list = json_opt(json_opt(both, m->rec.role == ROLE_SOURCE ? "source" : "destination"),
			"transitions");
	last = list ? json_object_array_get_idx(list, json_object_array_length(list) - 1) : NULL;
	return str_eq(json_opt_str(last, "state", ""), migrate_state_name(m->rec.state)) &&
	       strstr(json_opt_str(last, "note", ""), command);
}

/* The line that an operator reads names the command. */
static bool names_command(int host, const struct migration *m)
{
	char *command AUTO_FREE = strf("ibvmig resolve %s", m->rec.id);

	return *m->rec.trouble && sim_tells(host, m, command);
}

static bool resolve_refused;

static void resolved(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	if (rc)
		resolve_refused = sim_is_wrong("resolve is refused: %.200s", error) || true;
}

bool sim_resolve_all(unsigned *count)
{
	for (int h = 0; h < (int)sim_size.hosts; h++) {
		for (struct migration *m = sim_hosts[h].d.migrations; m; m = m->next) {
			char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[h].name);
			char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", m->rec.id);

			if (m->rec.state != M_PARKED)
				continue;
			++*count;
			if (!names_command(h, m))
				return sim_is_wrong("a PARKED record names no command");
			sim_http(h, base, "POST", path, NULL, 10000, resolved, NULL);
		}
	}
	return true;
}

bool sim_resolve_was_refused(void)
{
	return resolve_refused;
}
