/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the other ibvmig-sm asks: sm-helper/twin/twin.h. */
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void fail(struct job *j, int rc, const char *text)
{
	j->error.status = rc == -EPERM ? 409 : rc == -EINVAL ? 400 : 500;
	strcpy(j->error.code, rc == -EPERM    ? "peer-leads"
			      : rc == -EINVAL ? "bad-request"
					      : "peer-failed");
	snprintf(j->error.detail, sizeof j->error.detail, "%s", text);
}

static struct twin *need_twin(struct job *j)
{
	struct twin *p = j->rest->ops->twin;

	if (!p) {
		fail(j, -EPERM, "this ibvmig-sm has no peer: set `peer` in its configuration too");
		strcpy(j->error.code, "no-peer");
	}
	return p;
}

static void run_state(struct job *j)
{
	struct twin *p = need_twin(j);

	if (p)
		j->reply = twin_state(p);
}

static void run_registry(struct job *j)
{
	struct twin *p = need_twin(j);
	char text[BACKEND_ERROR_MAX];
	int rc = p ? twin_export(p, &j->reply, text) : 0;

	if (rc)
		fail(j, rc, text);
}

static void run_heard(struct job *j)
{
	struct twin *p = need_twin(j);
	char text[BACKEND_ERROR_MAX];
	int rc = p ? twin_heard(p, j->body, &j->reply, text) : 0;

	if (rc)
		fail(j, rc, text);
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
