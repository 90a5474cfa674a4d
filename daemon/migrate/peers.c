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

/* A resume ("again") must get through. A daemon that is just restarting, or an agent that is still
 * at the call of one that was, refuses at once, and is asked again. */
static bool worth_another_try(struct job *j, uint64_t asked_ms, uint64_t start_ms)
{
	uint64_t now = now_ms();

	return j->rc && j->rc != -ETIMEDOUT && json_opt_bool(j->in, "again", false) &&
	       now - asked_ms < AT_ONCE_MS && now - start_ms < AGENT_DEADLINE_MS;
}

static void peer_run(struct job *j)
{
	struct json_object *answer = NULL;
	uint64_t start_ms = now_ms(), asked_ms;

	do {
		asked_ms = now_ms();
		if (j->rc)
			poll(NULL, 0, AGAIN_MS);
		j->rc = http_call(json_opt_str(j->in, "url", ""), "POST",
				  json_opt_str(j->in, "path", ""), json_opt(j->in, "body"),
				  (unsigned)json_opt_u64(j->in, "patience_ms", 0), &answer,
				  j->error);
	} while (worth_another_try(j, asked_ms, start_ms));
	json_set(j->out, "answer", answer);
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
	keep_answer(m, list, json_opt(j->out, "answer"));
	m->pending--;
	if (j->rc && !m->pending_rc) {
		m->pending_rc = j->rc;
		snprintf(m->pending_error, sizeof m->pending_error, "host %.60s: %.400s",
			 json_opt_str(j->in, "host", "?"), j->error);
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
	const char *busy = json_opt_str(json_opt(j->out, "answer"), "busy", NULL);

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

struct peer_call {
	const char *path;
	unsigned patience_ms;
	bool again, moved;
	void (*done)(struct migration *m, struct job *j);
};

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

/* Asks each host once. */
static void ask_all(struct migration *m, const struct peer_call *c)
{
	for (unsigned i = 0; i < m->rec.peer_count; i++) {
		struct json_object *in;

		if (seen_before(m, i))
			continue;
		in = json_object_new_object();
		json_set_str(in, "url", m->rec.peers[i].url);
		json_set_str(in, "host", m->rec.peers[i].host);
		json_set_str(in, "path", c->path);
		json_set_u64(in, "patience_ms", c->patience_ms);
		json_set_bool(in, "again", c->again);
		json_set(in, "body", call_body(m, m->rec.peers[i].url, c->moved));
		if (!migrate_job(m, in, peer_run, c->done))
			m->pending++;
		else
			m->pending_rc = -ENOMEM;
	}
}

void peers_reserve(struct migration *m)
{
	static const struct peer_call call = {"/v1/peer/reserve", RESERVE_MS, false, false,
					      reserve_done};

	m->step.busy = false;
	ask_all(m, &call);
}

void peers_release(struct migration *m)
{
	static const struct peer_call call = {"/v1/peer/release", RESERVE_MS, false, false,
					      release_done};

	ask_all(m, &call);
}

void peers_suspend(struct migration *m)
{
	static const struct peer_call call = {"/v1/peer/suspend", PEER_DEADLINE_MS, false, false,
					      suspend_done};

	ask_all(m, &call);
}

void peers_resume(struct migration *m, bool moved)
{
	const struct peer_call call = {"/v1/peer/resume", PEER_DEADLINE_MS, true, moved,
				       resume_done};

	ask_all(m, &call);
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
