/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A drain's plan: asks the hosts what they have and ibvmig-sm what each move would cost. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/fleet/capacity.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain.h"
#include "daemon/fleet/drained.h"
#include "daemon/base/job.h"
#include "daemon/fleet/plan.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"

#include <errno.h>
#include <string.h>

#define HOST_DEADLINE_MS 3000
#define RANKED_AT_ONCE   64 /* VFs in a call: it must end within ibvmig-sm's deadline */

static const char *str(struct json_object *o, const char *key)
{
	return json_opt_str(o, key, "");
}

/* Any free VF of each PF: which one the host will take is its own matter. */
static void add_free_vfs(struct json_object *list, struct json_object *target)
{
	struct json_object *vfs = json_opt(target, "vfs"), *seen = json_object_new_object();

	for (size_t i = 0; i < json_count(vfs); i++) {
		struct json_object *vf = json_object_array_get_idx(vfs, i);

		if (*str(vf, "vm") || *str(vf, "migration") || json_opt(seen, str(vf, "pf")))
			continue;
		json_set_bool(seen, str(vf, "pf"), true);
		json_object_array_add(list, json_object_new_string(str(vf, "parked_guid")));
	}
	json_object_put(seen);
}

/* The target that has this VF, and the PF that it is of; false: none has. */
static bool find_vf(struct json_object *targets, const char *parked_guid, const char **ret_host,
		    const char **ret_pf)
{
	for (size_t i = 0; i < json_count(targets); i++) {
		struct json_object *t = json_object_array_get_idx(targets, i);
		struct json_object *vf = json_find(json_opt(t, "vfs"), "parked_guid", parked_guid);

		if (!vf)
			continue;
		*ret_host = str(t, "host");
		*ret_pf = str(vf, "pf");
		return true;
	}
	return false;
}

static struct json_object *child(struct json_object *o, const char *key)
{
	if (!json_opt(o, key))
		json_set(o, key, json_object_new_object());
	return json_opt(o, key);
}

/* ibvmig-sm speaks of VFs, the plan of hosts and their PFs: {vguid: {host: {pf: cost}}}. */
static void by_host(struct json_object *ranks, struct json_object *targets,
		    struct json_object *answer)
{
	struct json_object *list = json_opt(answer, "ranks");

	for (size_t i = 0; i < json_count(list); i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		struct json_object *to = json_opt(one, "to");
		struct json_object *hosts = child(ranks, str(one, "vguid"));

		for (size_t k = 0; k < json_count(to); k++) {
			struct json_object *r = json_object_array_get_idx(to, k);
			const char *host, *pf;

			if (find_vf(targets, str(r, "parked_guid"), &host, &pf))
				json_set(child(hosts, host), pf, json_object_get(r));
		}
	}
}

static int ask_ranks(struct job *j, struct json_object *vguids, struct json_object *free_vfs,
		     struct json_object *targets, struct json_object *ranks)
{
	struct json_object *body = json_object_new_object(), *answer AUTO_JSON = NULL;
	int rc;

	json_set(body, "vguids", vguids);
	json_set(body, "free", json_object_get(free_vfs));
	rc = sm_call(j->d->settings, "POST", "/v1/ranks", body, &answer, j->error);
	if (!rc)
		by_host(ranks, targets, answer);
	return rc;
}

static void add_vguids(struct json_object *list, struct json_object *domain)
{
	struct json_object *vfs = json_opt(domain, "vfs");

	for (size_t i = 0; i < json_count(vfs); i++)
		json_object_array_add(list, json_object_new_string(str(
						    json_object_array_get_idx(vfs, i), "vguid")));
}

/* NULL where the fabric cannot tell; why is in j->error then. A VM's VFs are in one call. */
static struct json_object *rank_all(struct job *j, struct json_object *source,
				    struct json_object *targets)
{
	struct json_object *domains = json_opt(source, "domains"), *vguids = NULL,
			   *ranks = json_object_new_object();
	struct json_object *free_vfs AUTO_JSON = json_object_new_array();
	int rc = 0;

	for (size_t i = 0; i < json_count(targets); i++)
		add_free_vfs(free_vfs, json_object_array_get_idx(targets, i));
	for (size_t i = 0; !rc && i < json_count(domains); i++) {
		if (!vguids)
			vguids = json_object_new_array();
		add_vguids(vguids, json_object_array_get_idx(domains, i));
		if (json_count(vguids) >= RANKED_AT_ONCE ||
		    (i + 1 == json_count(domains) && json_count(vguids)))
			rc = ask_ranks(j, TAKE(vguids), free_vfs, targets, ranks);
	}
	json_object_put(vguids);
	if (!rc)
		return ranks;
	json_object_put(ranks);
	return NULL;
}

/* A plan that is made again may name VMs that have gone. */
static int check_wanted(struct job *j, struct json_object *source)
{
	struct json_object *vms = json_opt(j->in, "vms");

	for (size_t i = 0; !json_opt_bool(j->in, "again", false) && i < json_count(vms); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(vms, i));

		if (!name || !json_find(json_opt(source, "domains"), "name", name))
			return job_fail(j, -ENOENT, "no VM %.80s runs on %.60s", name ? name : "?",
					str(source, "host"));
	}
	return 0;
}

void drain_plan_run(struct job *j)
{
	struct json_object *from = json_opt(j->in, "from"), *list = json_opt(j->in, "targets");
	struct json_object *source AUTO_JSON = NULL, *ranks AUTO_JSON = NULL,
				   *targets AUTO_JSON = NULL, *sources AUTO_JSON = NULL;
	bool mark = json_opt_bool(j->in, "mark", false);
	struct json_object *moves;

	if (mark && drained_set(j, str(from, "host"), str(from, "url"), true))
		return;
	if (http_call(str(from, "url"), "GET", "/v1/host", NULL, HOST_DEADLINE_MS, &source,
		      j->error)) {
		char why[HTTP_ERROR_MAX];

		memcpy(why, j->error, sizeof why);
		job_fail(j, -EHOSTDOWN, "ibvmigd of %.60s cannot be asked: %.250s%s%.60s",
			 str(from, "host"), why,
			 mark ? "; no VM can migrate there before ibvmig undrain " : "",
			 mark ? str(from, "host") : "");
		return;
	}
	if (check_wanted(j, source))
		return;
	/* Hosts that do not answer are asked too: the plan says so where it matters. */
	targets = capacity_ask(list);
	sources = json_object_new_array();
	json_object_array_add(sources, json_object_get(source));
	capacity_ask_partitions(j->d->settings, sources, json_opt(j->in, "vms"), targets);
	ranks = rank_all(j, source, targets);
	moves = plan_moves(source, targets, ranks, json_opt(j->in, "vms"));
	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i);

		json_set_str(m, "from", str(from, "host"));
		json_set_str(m, "url", str(from, "url"));
	}
	json_set(j->out, "partitions",
		 json_object_get(json_opt(json_object_array_get_idx(targets, 0), "partitions")));
	json_set(j->out, "moves", moves);
	json_set_bool(j->out, "ranked", ranks && j->d->settings->sm_url);
	json_set_str(j->out, "rank_error", ranks ? NULL : j->error);
}
