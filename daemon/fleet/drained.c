/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/drained.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"

#include <errno.h>

#define CALL_MS 5000

void drained_load(struct daemon *d)
{
	d->drained_ms = journal_drained(d->journal);
}

void drained_tell(const struct daemon *d, struct json_object *o)
{
	json_set_bool(o, "drained", d->drained_ms);
	if (d->drained_ms)
		json_set_u64(o, "drained_since_ms", d->drained_ms);
}

int drained_set(struct job *j, const char *host, const char *url, bool drained)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	char why[HTTP_ERROR_MAX];

	json_set_bool(body, "drained", drained);
	if (!http_call(url, "POST", "/v1/peer/drained", body, CALL_MS, &answer, why))
		return 0;
	return job_fail(j, -EHOSTDOWN, "ibvmigd of %.60s cannot be told: %.400s", host, why);
}

void drained_on_set(struct http_request *req)
{
	struct daemon *d = req->user;
	bool drained = json_opt_bool(req->body, "drained", false);
	uint64_t since_ms = !drained ? 0 : d->drained_ms ? d->drained_ms : wall_ms();

	if (journal_set_drained(d->journal, since_ms)) {
		http_fail(req->exchange, 503, "journal",
			  "host %s cannot write that into its journal; its log says why",
			  d->settings->host_name);
		return;
	}
	if (!d->drained_ms != !since_ms)
		log_notice("this host takes %s VMs with a VF", drained ? "no" : "again");
	d->drained_ms = since_ms;
	durable_reply(d->durable, req->exchange, 200, NULL);
}

/* ---- undrain ---- */

static void undrain_run(struct job *j)
{
	drained_set(j, json_opt_str(j->in, "host", ""), json_opt_str(j->in, "url", ""), false);
}

static void undrained(struct job *j)
{
	if (j->rc)
		http_fail(j->owner, 503, "not-told", "%s", j->error);
	else
		http_reply(j->owner, 200, NULL);
}

void drained_post_undrain(struct http_request *req)
{
	struct daemon *d = req->user;
	const char *url = settings_host_url(d->settings, req->param);
	struct json_object *in;

	if (!url) {
		http_fail(req->exchange, 404, "unknown-host",
			  "\"%.60s\" is neither this host nor a peer of ibvmigd.conf", req->param);
		return;
	}
	in = json_object_new_object();
	json_set_str(in, "host", req->param);
	json_set_str(in, "url", url);
	if (job_start(d, in, undrain_run, undrained, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
