/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/balance: asks ibvmig-sm how full the links are, and the hosts what they have. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/fleet/balance.h"
#include "daemon/fleet/capacity.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"

static void run(struct job *j)
{
	const struct settings *s = j->d->settings;
	struct json_object *loads AUTO_JSON = NULL, *answers AUTO_JSON = NULL;
	struct json_object *hosts AUTO_JSON = json_object_new_array();

	if (!s->sm_url) {
		job_fail(j, -1, "sm-url is not configured: nobody knows how full links are");
		return;
	}
	j->rc = sm_call(s, "GET", "/v1/loads", NULL, &loads, j->error);
	if (j->rc)
		return;
	json_object_array_add(hosts, capacity_host(s->host_name, s->url));
	for (size_t i = 0; i < s->peer_count; i++)
		if (!str_eq(s->peers[i].name, s->host_name))
			json_object_array_add(hosts,
					      capacity_host(s->peers[i].name, s->peers[i].url));
	answers = capacity_ask(hosts);
	capacity_ask_partitions(s, answers, NULL, answers);
	/* A host that does not answer has no VF there: its link is left out. */
	json_set(j->out, "balance", balance_moves(json_opt(loads, "links"), answers));
}

static void done(struct job *j)
{
	struct http_exchange *x = j->owner;

	if (j->rc)
		http_fail(x, 503, "no-loads", "%s", j->error);
	else
		http_reply(x, 200, json_object_get(json_opt(j->out, "balance")));
}

void balance_get(struct http_request *req)
{
	job_look(req->user, req->exchange, NULL, run, done, req->exchange);
}
