/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/fence.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/base/sm.h"

#include <errno.h>

static void fence_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;

	j->rc = sm_change(j->d->settings, "/v1/fence", json_object_get(j->in), &answer, j->error);
	json_set(j->out, "vguids", json_object_get(json_opt(answer, "vguids")));
}

static void fence_done(struct job *j)
{
	const char *vm = json_opt_str(j->in, "vm", "?"), *host = json_opt_str(j->in, "host", "?");

	if (j->rc) {
		http_fail(j->owner, j->rc == -EREMOTEIO ? 409 : 503, "not-fenced", "%s", j->error);
		return;
	}
	log_notice("fence: VM %s may start elsewhere: %s is off", vm, host);
	http_reply(j->owner, 200, json_object_get(j->out));
}

void fence_post(struct http_request *req)
{
	const char *host = json_opt_str(req->body, "host", "");
	struct json_object *in;

	if (!*host) {
		http_fail(req->exchange, 400, "bad-field",
			  "host is missing: name the host that is off, as `ibvmig-sm vguids` does");
		return;
	}
	in = json_object_new_object();
	json_set_str(in, "vm", req->param);
	json_set_str(in, "host", host);
	if (job_start(req->user, in, fence_run, fence_done, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
