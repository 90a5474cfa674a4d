/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The route of a migration's timeline: our half from the journal, the other host's by asking it. */
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/migrate/step.h"
#include "daemon/report/timeline.h"

#define CALL_MS 5000

/* in: {"source","destination"} as far as they are here, and "url" of the host that has the rest. */
static void fetch_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;
	char *path AUTO_FREE = strf("/v1/migrations/%s", json_opt_str(j->in, "id", ""));

	j->rc = http_call(json_opt_str(j->in, "url", ""), "GET", path, NULL, CALL_MS, &answer,
			  j->error);
	json_set(j->out, "halves", json_object_get(answer));
}

static void reply(struct job *j, struct http_exchange *x)
{
	struct json_object *here = json_opt(j->in, "halves"), *there = json_opt(j->out, "halves");
	struct json_object *source = json_opt(here, "source"), *dst = json_opt(here, "destination");
	struct json_object *top;
	const char *missing = NULL;

	source = source ? source : json_opt(there, "source");
	dst = dst ? dst : json_opt(there, "destination");
	if (!source || !dst)
		missing = j->rc ? j->error : "the other host has no record of it";
	top = timeline_make(source, dst, json_opt(here, "source") ? source : dst, now_us());
	json_set_str(top, "missing", missing);
	http_reply(x, 200, top);
}

static void fetched(struct job *j)
{
	reply(j, j->owner);
}

void timeline_get(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *halves = journal_migration(d->journal, req->param), *in;
	struct json_object *source = json_opt(halves, "source");
	struct json_object *dst = json_opt(halves, "destination");
	const char *url;

	if (!halves) {
		rest_no_migration(req, req->param);
		return;
	}
	url = source ? json_opt_str(json_opt(source, "to"), "url", "")
		     : json_opt_str(json_opt(dst, "from"), "url", "");
	in = json_object_new_object();
	json_set_str(in, "id", req->param);
	json_set_str(in, "url", url);
	json_set(in, "halves", halves);
	if ((source && dst) || !*url) {
		struct job alone = {.d = d, .in = in, .out = NULL};

		reply(&alone, req->exchange);
		json_object_put(in);
	} else {
		job_look(d, req->exchange, in, fetch_run, fetched, req->exchange);
	}
}
