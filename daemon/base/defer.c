/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/defer.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"

#define TRIES_KEY "deferred_tries"

struct deferred {
	struct http_request req; /* body: an owned reference */
	http_handler *handler;
	struct loop_timer *timer; /* owned */
};

static void again(void *arg)
{
	struct deferred *f = arg;
	struct json_object *body AUTO_JSON = f->req.body;

	f->handler(&f->req);
	loop_timer_free(f->timer);
	free(f);
}

bool defer_request(struct http_request *req, http_handler *handler)
{
	struct daemon *d = req->user;
	uint64_t tries = json_opt_u64(req->body, TRIES_KEY, 0);
	struct deferred *f = tries < DEFER_TRIES ? calloc(1, sizeof *f) : NULL;

	if (!f || loop_timer_new(d->loop, again, f, &f->timer)) {
		free(f);
		return false;
	}
	json_set_u64(req->body, TRIES_KEY, tries + 1);
	/* The route's texts are not needed again: these handlers look at the body only. */
	f->req = (struct http_request){
		.body = json_object_get(req->body),
		.user = d,
		.exchange = req->exchange,
	};
	f->handler = handler;
	loop_timer_arm(f->timer, DEFER_STEP_MS);
	return true;
}
