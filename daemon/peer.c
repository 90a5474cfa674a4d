/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The host of a VM that a moving one is connected to: answers the mover's daemons, and sees to it
 * that no VM stays suspended when they fall silent. */
#include "common/http_server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/daemon.h"
#include "daemon/defer.h"
#include "daemon/job.h"
#include "daemon/migrate_step.h"
#include "daemon/relay.h"
#include "daemon/repath.h"
#include "daemon/settings.h"
#include "daemon/vm.h"

#include <errno.h>
#include <string.h>

#define AGENT_DEADLINE_MS 15000
#define QUERY_DEADLINE_MS 3000  /* less than who asks waits */
#define WATCH_MS          20000 /* longer than a migration keeps its peers suspended */
#define CALL_DEADLINE_MS  20000

/* A request to some agents of this host; the answer goes out when all have answered. */
struct peer_call {
	struct http_exchange *exchange;
	struct json_object *vms; /* owned */
	unsigned pending;
	int rc;
	char error[HTTP_ERROR_MAX];
};

struct peer_agent {
	struct peer_call *call;
	char name[64];
};

static void call_finish(struct peer_call *c)
{
	struct json_object *answer;

	if (c->pending)
		return;
	if (c->rc) {
		http_fail(c->exchange, 409, "peer-failed", "%s", c->error);
		json_object_put(c->vms);
	} else {
		answer = json_object_new_object();
		json_set(answer, "vms", c->vms);
		http_reply(c->exchange, 200, answer);
	}
	free(c);
}

static void call_error(struct peer_call *c, int rc, const char *name, const char *error)
{
	if (!c->rc)
		snprintf(c->error, sizeof c->error, "peer VM %.60s: %.400s", name, error);
	c->rc = c->rc ? c->rc : rc;
}

static void agent_answered(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct peer_agent *a = arg;
	struct peer_call *c = a->call;

	if (rc) {
		call_error(c, rc, a->name, error);
	} else {
		struct json_object *o = json_object_get(answer);

		json_set_str(o, "vm", a->name);
		json_object_array_add(c->vms, o);
	}
	free(a);
	c->pending--;
	call_finish(c);
}

static struct json_object *agent_message(struct vm *vm, struct json_object *body, const char *op)
{
	struct json_object *msg = json_object_new_object(), *list = json_object_new_array(), *paths;
	uint64_t mover = 0;

	ib_guid_parse(json_opt_str(body, "vguid", ""), &mover);
	paths = repath_of_peer(json_opt(body, "move"), mover, vm->want.vguid);
	if (paths)
		json_set(msg, "paths", paths);
	json_object_array_add(list, json_object_new_string(json_opt_str(body, "vguid", "")));
	json_set_str(msg, "op", op);
	json_set_str(msg, "migration", json_opt_str(body, "migration", ""));
	json_set_str(msg, "role", "peer");
	json_set(msg, "vguids", list);
	json_set_u64(msg, "deadline_ms", AGENT_DEADLINE_MS - 1000);
	json_set_bool(msg, "moved", json_opt_bool(body, "moved", false));
	return msg;
}

static void ask_agent(struct daemon *d, struct peer_call *c, const char *guid_text,
		      struct json_object *body, const char *op)
{
	struct peer_agent *a;
	uint64_t guid = 0;
	struct vm *vm;

	ib_guid_parse(guid_text, &guid);
	vm = vm_by_guid(d, guid);
	if (!vm) {
		call_error(c, -ENOENT, guid_text, "is not on this host");
		return;
	}
	/* A resume waits for an agent that is just restarting; the others must not. */
	if (!vm->agent || (strcmp(op, "resume") && agent_state(vm->agent) != AGENT_UP)) {
		call_error(c, -ENOENT, vm->name, "no ibvmig-agent answers in it: start it there");
		return;
	}
	a = calloc(1, sizeof *a);
	if (!a) {
		call_error(c, -ENOMEM, vm->name, "out of memory");
		return;
	}
	bool query = !strcmp(op, "query");
	a->call = c;
	snprintf(a->name, sizeof a->name, "%s", vm->name);
	c->pending++;
	agent_request(vm->agent, agent_message(vm, body, op),
		      query ? QUERY_DEADLINE_MS : AGENT_DEADLINE_MS, agent_answered, a);
}

static void ask_agents(struct http_request *req, const char *op)
{
	struct peer_call *c = calloc(1, sizeof *c);
	struct json_object *guids;
	struct json_reader r;

	json_reader_init(&r, req->body);
	json_need_guid(&r, "vguid");
	guids = json_need_array(&r, "guids");
	if (r.error || !c) {
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
		free(c);
		return;
	}
	c->exchange = req->exchange;
	c->vms = json_object_new_array();
	c->pending = 1; /* ourselves, until all are asked */
	for (size_t i = 0; i < json_object_array_length(guids); i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(guids, i));

		ask_agent(req->user, c, text ? text : "", req->body, op);
	}
	c->pending--;
	call_finish(c);
}

/* A peer that migrates itself cannot be suspended for another one. */
static struct migration *busy_peer(struct daemon *d, struct json_object *guids, const char *id)
{
	for (size_t i = 0; i < json_object_array_length(guids); i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(guids, i));
		uint64_t guid = 0;
		struct vm *vm;
		struct migration *m;

		ib_guid_parse(text ? text : "", &guid);
		vm = vm_by_guid(d, guid);
		m = vm ? migrate_open(d, vm->uuid) : NULL;
		if (m && strcmp(m->id, id))
			return m;
	}
	return NULL;
}

void peer_on_check(struct http_request *req)
{
	struct json_object *guids = json_opt(req->body, "guids");
	struct migration *busy = NULL;

	if (json_object_is_type(guids, json_type_array))
		busy = busy_peer(req->user, guids, json_opt_str(req->body, "migration", ""));
	if (!busy)
		ask_agents(req, "query");
	else if (!(busy->committed || busy->back) || !defer_request(req, peer_on_check))
		http_fail(req->exchange, 409, "peer-busy",
			  "peer VM %s is migrating itself: wait until it has arrived",
			  busy->vm_name);
}

/* ---- peers must not stay suspended ---- */

/* A suspend that no resume has followed yet. */
struct peer_watch {
	struct peer_watch *next;
	struct daemon *d;         /* borrowed */
	struct json_object *body; /* owned: of the suspend */
	struct loop_timer *timer; /* owned */
	unsigned jobs;
	bool over;
};

static const char *watch_id(const struct peer_watch *w)
{
	return json_opt_str(w->body, "migration", "");
}

static void watch_collect(struct daemon *d)
{
	for (struct peer_watch **p = &d->peer_watches; *p;) {
		struct peer_watch *w = *p;

		if (!w->over || w->jobs) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		loop_timer_free(w->timer);
		json_object_put(w->body);
		free(w);
	}
}

/* Asks the source, and resumes as the migration ended: through our own REST, as its daemon would.
 */
static void watch_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL, *done AUTO_JSON = NULL, *src;
	struct json_object *body = json_opt(j->in, "body");
	char *path AUTO_FREE = strf("/v1/migrations/%s", json_opt_str(body, "migration", ""));
	char *self AUTO_FREE = strf("unix:%s", j->d->settings->socket);
	bool moved;

	j->rc = http_call(json_opt_str(body, "url", ""), "GET", path, NULL, CALL_DEADLINE_MS,
			  &answer, j->error);
	src = json_opt(answer, "source");
	if (j->rc || !json_opt_bool(src, "ended", false))
		return;
	moved = str_eq(json_opt_str(src, "state", ""), "DONE");
	json_set_bool(body, "moved", moved);
	if (moved)
		json_set_str(body, "url", json_opt_str(json_opt(src, "to"), "url", ""));
	j->rc = http_call(self, "POST", "/v1/peer/resume", body, CALL_DEADLINE_MS, &done, j->error);
	json_set_bool(j->out, "resumed", !j->rc);
}

static void watch_done(struct job *j)
{
	struct peer_watch *w = j->owner;

	w->jobs--;
	if (json_opt_bool(j->out, "resumed", false))
		log_notice("migration %s: its end was not told; the VMs of this host that were "
			   "suspended for it are resumed",
			   watch_id(w));
	if (j->rc && !w->over)
		log_warn("migration %s: VMs of this host are suspended for it, and its source does "
			 "not resume them: %s",
			 watch_id(w), j->error);
	loop_timer_arm(w->timer, WATCH_MS);
	watch_collect(j->d);
}

static void watch_ask(void *arg)
{
	struct peer_watch *w = arg;
	const char *text = json_text(w->body);
	struct json_object *in = json_object_new_object(), *copy = NULL;

	/* A copy: the worker changes it. */
	json_parse(text, strlen(text), &copy);
	json_set(in, "body", copy);
	if (!job_start(w->d, in, watch_run, watch_done, w, 0))
		w->jobs++;
}

static void watch_start(struct daemon *d, struct json_object *body)
{
	struct peer_watch *w = calloc(1, sizeof *w);

	if (!w || loop_timer_new(d->loop, watch_ask, w, &w->timer)) {
		free(w);
		return;
	}
	w->d = d;
	w->body = json_object_get(body);
	w->next = d->peer_watches;
	d->peer_watches = w;
	loop_timer_arm(w->timer, WATCH_MS);
}

static void watch_end(struct daemon *d, const char *id)
{
	for (struct peer_watch *w = d->peer_watches; w; w = w->next)
		if (!strcmp(watch_id(w), id))
			w->over = true;
	watch_collect(d);
}

void peer_free_all(struct daemon *d)
{
	for (struct peer_watch *w = d->peer_watches; w; w = w->next) {
		w->over = true;
		w->jobs = 0;
	}
	watch_collect(d);
}

/* ---- calls ---- */

void peer_on_suspend(struct http_request *req)
{
	if (req->body)
		watch_start(req->user, req->body);
	ask_agents(req, "suspend");
}

void peer_on_resume(struct http_request *req)
{
	struct daemon *d = req->user;
	struct migration *m = migrate_find(d, json_opt_str(req->body, "migration", ""),
					   ROLE_SOURCE);
	uint64_t mover = 0;

	watch_end(d, json_opt_str(req->body, "migration", ""));
	/* We may be the source as well, and not have heard of COMMIT yet. */
	if (m && !m->ended && json_opt_bool(req->body, "moved", false)) {
		migrate_set_committed(m);
		migrate_drive(m);
	}
	/* From now on, what our VMs send to the mover goes to its new host. */
	if (!ib_guid_parse(json_opt_str(req->body, "vguid", ""), &mover))
		relay_set_route(d->relay, mover, json_opt_str(req->body, "url", ""));
	ask_agents(req, "resume");
}
