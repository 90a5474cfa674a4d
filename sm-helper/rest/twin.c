/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests of the other ibvmig-sm: sm-helper/twin/twin.h. */
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void fail(struct rest_call *call, int rc, const char *text)
{
	call->error.status = rc == -EPERM ? 409 : rc == -EINVAL ? 400 : 500;
	strcpy(call->error.code, rc == -EPERM    ? "peer-leads"
				 : rc == -EINVAL ? "bad-request"
						 : "peer-failed");
	snprintf(call->error.detail, sizeof call->error.detail, "%s", text);
}

static struct twin *need_twin(struct rest_call *call)
{
	struct twin *p = call->rest->ops->twin;

	if (!p) {
		fail(call, -EPERM,
		     "this ibvmig-sm has no peer: set `peer` in its configuration too");
		strcpy(call->error.code, "no-peer");
	}
	return p;
}

static void run_state(struct rest_call *call)
{
	struct twin *p = need_twin(call);

	if (p)
		call->reply = twin_state(p);
}

static void run_registry(struct rest_call *call)
{
	struct twin *p = need_twin(call);
	char text[BACKEND_ERROR_MAX];
	int rc = p ? twin_export(p, &call->reply, text) : 0;

	if (rc)
		fail(call, rc, text);
}

static void run_heard(struct rest_call *call)
{
	struct twin *p = need_twin(call);
	char text[BACKEND_ERROR_MAX];
	int rc = p ? twin_heard(p, call->body, &call->reply, text) : 0;

	if (rc)
		fail(call, rc, text);
}

void rest_get_twin(struct http_request *req)
{
	rest_submit(req, run_state, NULL);
}

void rest_get_twin_registry(struct http_request *req)
{
	rest_submit(req, run_registry, NULL);
}

void rest_post_twin(struct http_request *req)
{
	rest_submit(req, run_heard, NULL);
}
