/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/cold.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/machine.h"
#include "tests/sim/right.h"

#define CALL_MS  3600000
#define ANSWER_S 400

struct sim_reply sim_reply;

static void answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	(void)arg;
	(void)answer;
	sim_reply.came = true;
	sim_reply.rc = rc;
	snprintf(sim_reply.error, sizeof sim_reply.error, "%s", rc ? error : "");
}

static void ask(int host, const char *path, struct json_object *body)
{
	char *base AUTO_FREE = strf("unix:/ibvmigd-%s.sock", sim_hosts[host].name);

	sim_reply = (struct sim_reply){0};
	sim_http(host, base, "POST", path, body, CALL_MS, answered, NULL);
}

void sim_cold_save(int host)
{
	char *path AUTO_FREE = strf("/v1/vms/%s/save", sim_guests[0].name);
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_str(body, "file", SIM_COLD_FILE);
	ask(host, path, body);
}

void sim_cold_restore(int host, bool source_lost)
{
	struct json_object *body AUTO_JSON = json_object_new_object();

	json_set_str(body, "file", SIM_COLD_FILE);
	if (source_lost)
		json_set_bool(body, "source_lost", true);
	ask(host, "/v1/restore", body);
}

void sim_cold_resolve(bool destination_lost)
{
	const struct migration *m = sim_record(HOST_A, ROLE_SOURCE);
	char *path AUTO_FREE = strf("/v1/migrations/%s/resolve", m ? m->rec.id : "none");
	struct json_object *body AUTO_JSON = json_object_new_object();

	if (destination_lost)
		json_set_bool(body, "destination_lost", true);
	ask(HOST_A, path, body);
}

static bool has_answer(void *arg)
{
	(void)arg;
	return sim_reply.came;
}

bool sim_cold_wait(void)
{
	return sim_run(has_answer, NULL, sim_us() + ANSWER_S * SIM_S, sim_never) ||
	       sim_is_wrong("no answer has come");
}

bool sim_cold_is_kept(void)
{
	const struct migration *m = sim_record(HOST_A, ROLE_SOURCE);

	return m && sim_is_kept(m);
}

bool sim_cold_settled(void *arg)
{
	(void)arg;
	if (sim_image.saving || sim_image.restoring)
		return sim_is_wrong("libvirt still saves or restores");
	for (int h = 0; h < (int)sim_size.hosts; h++)
		if (!sim_hosts[h].proc.up && h != sim_lost_host)
			return sim_is_wrong("ibvmigd is down on %s", sim_hosts[h].name);
	return sim_quiet(NULL);
}
