/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The host of a VM that a moving one is connected to: answers the mover's daemons. */
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/src.h"
#include "daemon/base/daemon.h"
#include "daemon/base/defer.h"
#include "daemon/migrate/step.h"
#include "daemon/migrate/peer_watch.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/vm.h"

#include <errno.h>
#include <string.h>

#define AGENT_DEADLINE_MS 15000
#define QUERY_MAX_MS      60000

/* A request to some agents of this host; the answer goes out when all have answered. */
struct peer_call {
	struct daemon *d; /* borrowed */
	struct http_exchange *exchange;
	struct json_object *vms; /* owned */
	char *resumes;           /* owned; the migration that this ends, or NULL */
	bool still_suspended;    /* a VM of this host may be */
	bool numbers;            /* the asker wants the agents' numbers, of a suspend or a resume */
	unsigned pending;
	int rc;
	char error[HTTP_ERROR_MAX];
};

struct peer_agent {
	struct peer_call *call;
	char name[VM_NAME_MAX];
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
	if (c->resumes && !c->still_suspended)
		peer_watch_end(c->d, c->resumes);
	free(c->resumes);
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
		c->still_suspended = true;
	} else {
		/* A guest's answer stays at its own host, unless numbers were asked for. */
		struct json_object *o = c->numbers ? json_object_get(answer)
						   : json_object_new_object();

		json_set_str(o, "vm", a->name);
		json_object_array_add(c->vms, o);
	}
	free(a);
	c->pending--;
	call_finish(c);
}

/* The mover's vGUIDs; owned by the caller. A watch of an older journal names one. */
static struct json_object *movers(struct json_object *body)
{
	struct json_object *list = json_opt(body, "vguids");

	if (json_object_is_type(list, json_type_array))
		return json_object_get(list);
	list = json_object_new_array();
	json_object_array_add(list, json_object_new_string(json_opt_str(body, "vguid", "")));
	return list;
}

/* How long an agent has for its answer: less than who asks us waits. */
static unsigned deadline_ms(struct json_object *body, const char *op)
{
	uint64_t ms = json_opt_u64(body, "deadline_ms", MIGRATE_PEER_QUERY_MS);

	if (strcmp(op, "query"))
		return AGENT_DEADLINE_MS;
	if (ms < MIGRATE_PEER_QUERY_MS)
		return MIGRATE_PEER_QUERY_MS;
	return ms < QUERY_MAX_MS ? (unsigned)ms : QUERY_MAX_MS;
}

static struct json_object *agent_message(struct vm *vm, struct json_object *body, const char *op,
					 unsigned ms)
{
	struct json_object *msg = json_object_new_object(), *list = movers(body), *paths;
	struct json_object *own AUTO_JSON = vm_guids(vm);

	paths = repath_of_peer(json_opt(body, "move"), list, own);
	if (paths)
		json_set(msg, "paths", paths);
	json_set_str(msg, "op", op);
	json_set_str(msg, "migration", json_opt_str(body, "migration", ""));
	json_set_str(msg, "role", "peer");
	json_set(msg, "vguids", list);
	json_set_u64(msg, "deadline_ms", ms - MIGRATE_AGENT_MARGIN_MS);
	json_set_bool(msg, "moved", json_opt_bool(body, "moved", false));
	return msg;
}

static void ask_agent(struct peer_call *c, struct vm *vm, struct json_object *body, const char *op)
{
	unsigned ms = deadline_ms(body, op);
	struct peer_agent *a;

	/* A resume waits for an agent that is just restarting; the others must not. */
	if (!vm->agent || (strcmp(op, "resume") && agent_state(vm->agent) != AGENT_UP)) {
		call_error(c, -ENOENT, vm->name, "no ibvmig-agent answers in it: start it there");
		c->still_suspended = true;
		return;
	}
	a = calloc(1, sizeof *a);
	if (!a) {
		call_error(c, -ENOMEM, vm->name, "out of memory");
		c->still_suspended = true;
		return;
	}
	a->call = c;
	snprintf(a->name, sizeof a->name, "%s", vm->name);
	c->pending++;
	agent_request(vm->agent, agent_message(vm, body, op, ms), ms, agent_answered, a);
}

static uint64_t guid_at(struct json_object *guids, size_t i)
{
	const char *text = json_object_get_string(json_object_array_get_idx(guids, i));
	uint64_t guid = 0;

	ib_guid_parse(text ? text : "", &guid);
	return guid;
}

/* A VM with several of the GUIDs is asked once. */
static bool asked_before(struct json_object *guids, size_t i, const struct vm *vm)
{
	while (i--)
		if (vm_has_guid(vm, guid_at(guids, i)))
			return true;
	return false;
}

static void ask_each(struct daemon *d, struct peer_call *c, struct json_object *guids,
		     struct json_object *body, const char *op)
{
	for (size_t i = 0; i < json_count(guids); i++) {
		struct vm *vm = vm_by_guid(d, guid_at(guids, i));

		if (vm && !asked_before(guids, i, vm)) {
			ask_agent(c, vm, body, op);
		} else if (!vm) {
			call_error(c, -ENOENT,
				   json_object_get_string(json_object_array_get_idx(guids, i)),
				   cold_keeps(d, guid_at(guids, i))
					   ? "is saved to a file: restore it first"
					   : "is not on this host");
			c->still_suspended |= !d->recovered; /* or it is not known yet */
		}
	}
}

/* false: the request is refused, and nobody was asked. */
static bool ask_agents(struct http_request *req, const char *op)
{
	struct peer_call *c = calloc(1, sizeof *c);
	struct json_object *guids;
	struct json_reader r;

	json_reader_init(&r, req->body);
	if (!json_opt(req->body, "vguids"))
		json_need_guid(&r, "vguid");
	guids = json_need_array(&r, "guids");
	if (r.error || !c) {
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
		free(c);
		return false;
	}
	c->d = req->user;
	c->exchange = req->exchange;
	c->numbers = strcmp(op, "query");
	if (!strcmp(op, "resume"))
		c->resumes = strf("%s", json_opt_str(req->body, "migration", ""));
	c->vms = json_object_new_array();
	c->pending = 1; /* ourselves, until all are asked */
	ask_each(req->user, c, guids, req->body, op);
	c->pending--;
	call_finish(c);
	return true;
}

/* A peer that migrates itself cannot be suspended for another one. */
static struct migration *busy_peer(struct daemon *d, struct json_object *guids, const char *id)
{
	for (size_t i = 0; i < json_object_array_length(guids); i++) {
		struct vm *vm = vm_by_guid(d, guid_at(guids, i));
		struct migration *m = vm ? migrate_open(d, vm->uuid) : NULL;

		if (m && strcmp(m->rec.id, id))
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
	else if (!(busy->rec.committed || busy->rec.back) || !defer_request(req, peer_on_check))
		http_fail(req->exchange, 409, "peer-busy",
			  "peer VM %s is migrating itself: wait until it has arrived",
			  busy->rec.vm_name);
}

/* ---- calls ---- */

/* Why a VM cannot be suspended for this migration now, into text; false: it can. */
static bool is_taken(struct daemon *d, const struct vm *vm, const char *id, char *text,
		     size_t bytes)
{
	const char *holder = peer_watch_holder(d, vm, id);
	struct migration *m = migrate_open(d, vm->uuid);

	if (holder)
		snprintf(text, bytes, "peer VM %s is suspended for migration %s", vm->name, holder);
	else if (m && record_did(&m->rec, DID_SUSPEND) && strcmp(m->rec.id, id))
		snprintf(text, bytes, "peer VM %s is migrating itself (%s)", vm->name, m->rec.id);
	else
		return false;
	return true;
}

void peer_on_reserve(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *guids, *answer;
	char busy[HTTP_ERROR_MAX] = "";
	struct json_reader r;
	const char *id;

	json_reader_init(&r, req->body);
	guids = json_need_array(&r, "guids");
	id = json_need_str(&r, "migration");
	if (r.error) {
		http_fail(req->exchange, 400, "bad-field", "%s", r.message);
		return;
	}
	for (size_t i = 0; !*busy && i < json_count(guids); i++) {
		struct vm *vm = vm_by_guid(d, guid_at(guids, i));

		if (vm)
			is_taken(d, vm, id, busy, sizeof busy);
	}
	answer = json_object_new_object();
	if (*busy)
		json_set_str(answer, "busy", busy);
	else
		peer_watch_reserve(d, req->body);
	http_reply(req->exchange, 200, answer);
}

void peer_on_release(struct http_request *req)
{
	peer_watch_release(req->user, json_opt_str(req->body, "migration", ""));
	http_reply(req->exchange, 200, json_object_new_object());
}

void peer_on_suspend(struct http_request *req)
{
	struct json_object *body AUTO_JSON = json_object_get(req->body);

	/* Behind it: the guests have begun while the journal is written. */
	if (ask_agents(req, "suspend"))
		peer_watch_start(req->user, body);
}

void peer_on_resume(struct http_request *req)
{
	struct daemon *d = req->user;
	struct migration *m = migrate_find(d, json_opt_str(req->body, "migration", ""),
					   ROLE_SOURCE);
	struct json_object *list AUTO_JSON = movers(req->body);

	peer_watch_heard(d, json_opt_str(req->body, "migration", ""));
	/* We may be the source as well, and not have heard of COMMIT yet. */
	if (m && !m->rec.ended && json_opt_bool(req->body, "moved", false)) {
		migrate_set_committed(m);
		migrate_drive(m);
	}
	/* From now on, what our VMs send to the mover goes to its new host. */
	for (size_t i = 0; i < json_count(list); i++)
		if (guid_at(list, i))
			relay_set_route(d->relay, guid_at(list, i),
					json_opt_str(req->body, "url", ""));
	ask_agents(req, "resume");
}
