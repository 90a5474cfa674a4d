/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Questions of the mover's daemon to the hosts of the VMs that the mover is connected to; and
 * `resume` to the mover itself. */
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/base/job.h"
#include "daemon/migrate/step.h"
#include "daemon/vm/repath.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define AGENT_DEADLINE_MS 15000
#define PEER_DEADLINE_MS  18000
#define RESERVE_MS        3000
#define AT_ONCE_MS        2000
#define AGAIN_MS          250

/* ---- asking ---- */

/* A call to the hosts of all peers. */
struct peer_call {
	const char *path;
	unsigned patience_ms;
	bool again; /* asked again where it is refused at once */
	bool moved;
	void (*done)(struct migration *m, struct job *j);
};

/* The same to one of them. */
struct call_work {
	char host[64], url[256];
	struct peer_call call;
	struct json_object *body, *answer; /* owned */
};

static void call_clear(void *work)
{
	struct call_work *w = work;

	json_object_put(w->body);
	json_object_put(w->answer);
}

/* A resume ("again") must get through. A daemon that is just restarting, or an agent that is still
 * at the call of one that was, refuses at once, and is asked again. */
static bool worth_another_try(struct job *j, uint64_t asked_ms, uint64_t start_ms)
{
	uint64_t now = now_ms();

	return j->rc && j->rc != -ETIMEDOUT && ((const struct call_work *)j->work)->call.again &&
	       now - asked_ms < AT_ONCE_MS && now - start_ms < AGENT_DEADLINE_MS;
}

static void call_run(struct job *j)
{
	struct call_work *w = j->work;
	uint64_t start_ms = now_ms(), asked_ms;

	do {
		asked_ms = now_ms();
		if (j->rc)
			poll(NULL, 0, AGAIN_MS);
		j->rc = http_call(w->url, "POST", w->call.path, w->body, w->call.patience_ms,
				  &w->answer, j->error);
	} while (worth_another_try(j, asked_ms, start_ms));
}

/* The peers' own numbers, per call, into the record. */
static void keep_answer(struct migration *m, const char *name, struct json_object *answer)
{
	struct json_object *list = json_opt(m->rec.data, name);
	struct json_object *vms = json_opt(answer, "vms");

	if (!list) {
		list = json_object_new_array();
		json_set(m->rec.data, name, list);
	}
	for (size_t i = 0;
	     json_object_is_type(vms, json_type_array) && i < json_object_array_length(vms); i++)
		json_object_array_add(list, json_object_get(json_object_array_get_idx(vms, i)));
}

static void peer_done(struct migration *m, struct job *j, const char *list)
{
	const struct call_work *w = j->work;

	keep_answer(m, list, w->answer);
	m->pending--;
	if (j->rc && !m->pending_rc) {
		m->pending_rc = j->rc;
		snprintf(m->pending_error, sizeof m->pending_error, "host %.60s: %.400s", w->host,
			 j->error);
	}
}

static void suspend_done(struct migration *m, struct job *j)
{
	peer_done(m, j, "peers_suspend");
}

static void resume_done(struct migration *m, struct job *j)
{
	peer_done(m, j, "peers_resume");
}

/* A host that does not answer, or does not know the call, is not waited for: it says so when it is
 * to suspend. */
static void reserve_done(struct migration *m, struct job *j)
{
	const struct call_work *w = j->work;
	const char *busy = json_opt_str(w->answer, "busy", NULL);

	m->pending--;
	if (!busy)
		return;
	m->step.busy = true;
	snprintf(m->rec.trouble, sizeof m->rec.trouble, "%.400s", busy);
}

static void release_done(struct migration *m, struct job *j)
{
	(void)j;
	m->pending--;
}

static bool seen_before(const struct migration *m, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (!strcmp(m->rec.peers[k].url, m->rec.peers[i].url))
			return true;
	return false;
}

static struct json_object *guids_at(const struct migration *m, const char *url)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	for (unsigned i = 0; i < m->rec.peer_count; i++) {
		if (strcmp(m->rec.peers[i].url, url))
			continue;
		ib_guid_format(m->rec.peers[i].guid, text);
		json_object_array_add(list, json_object_new_string(text));
	}
	return list;
}

/* Changes by the move, or by the way back, for path records; borrowed, or NULL. */
static struct json_object *changes(const struct migration *m, bool moved)
{
	return json_opt(m->rec.data, moved ? "move" : "rebound");
}

/* A copy: a worker reads it. */
static void add_move(struct json_object *body, const struct migration *m, bool moved)
{
	struct json_object *move = changes(m, moved), *copy = NULL;

	if (repath_changed(move) &&
	    !json_object_deep_copy(move, &copy, json_c_shallow_copy_default))
		json_set(body, "move", copy);
}

static struct json_object *call_body(struct migration *m, const char *url, bool moved)
{
	struct json_object *body = json_object_new_object();

	json_set_str(body, "migration", m->rec.id);
	json_set(body, "vguids", record_guids(&m->rec));
	json_set(body, "guids", guids_at(m, url));
	json_set_bool(body, "moved", moved);
	json_set_str(body, "url", moved ? m->rec.to.url : m->rec.from.url);
	add_move(body, m, moved);
	return body;
}

static int ask_host(struct migration *m, const struct migrate_peer *p, const struct peer_call *c)
{
	struct call_work w = {.call = *c, .body = call_body(m, p->url, c->moved)};

	memcpy(w.host, p->host, sizeof w.host);
	memcpy(w.url, p->url, sizeof w.url);
	return migrate_order(
		m, (struct job_order){JOB_WORK(w), .clear = call_clear, .run = call_run}, c->done);
}

/* Asks each host once. */
static void ask_all(struct migration *m, struct peer_call c)
{
	for (unsigned i = 0; i < m->rec.peer_count; i++) {
		if (seen_before(m, i))
			continue;
		if (ask_host(m, &m->rec.peers[i], &c) == STEP_WAIT)
			m->pending++;
		else
			m->pending_rc = -ENOMEM;
	}
}

void peers_reserve(struct migration *m)
{
	m->step.busy = false;
	ask_all(m, (struct peer_call){"/v1/peer/reserve", RESERVE_MS, .done = reserve_done});
}

void peers_release(struct migration *m)
{
	ask_all(m, (struct peer_call){"/v1/peer/release", RESERVE_MS, .done = release_done});
}

void peers_suspend(struct migration *m)
{
	ask_all(m, (struct peer_call){"/v1/peer/suspend", PEER_DEADLINE_MS, .done = suspend_done});
}

void peers_resume(struct migration *m, bool moved)
{
	ask_all(m,
		(struct peer_call){"/v1/peer/resume", PEER_DEADLINE_MS, true, moved, resume_done});
}

/* ---- the mover ---- */

struct json_object *mover_resume(const struct migration *m, bool moved)
{
	struct json_object *msg = json_object_new_object(), *list = record_guids(&m->rec);
	struct json_object *paths = repath_of_mover(changes(m, moved), list);

	json_set_str(msg, "op", "resume");
	json_set_str(msg, "migration", m->rec.id);
	json_set_str(msg, "role", "mover");
	json_set(msg, "vguids", list);
	json_set_u64(msg, "deadline_ms", MIGRATE_RESUME_MS - MIGRATE_AGENT_MARGIN_MS);
	json_set_bool(msg, "moved", moved);
	if (paths)
		json_set(msg, "paths", paths);
	return msg;
}

void mover_resumed(struct migration *m, int rc, struct json_object *answer, const char *error)
{
	m->pending--;
	if (!rc) {
		json_set(m->rec.data, "resume", json_object_get(answer));
		return;
	}
	/* Before what peers say: it is the mover that they wait for. */
	m->pending_rc = rc;
	snprintf(m->pending_error, sizeof m->pending_error, "%s", error);
}
