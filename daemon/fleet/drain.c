/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The job that moves many VMs: what waits, what is under way, what has become of each. */
#include "daemon/fleet/drain.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain_int.h"
#include "daemon/base/job.h"

#include <errno.h>
#include <string.h>

#define TICK_MS   200
#define BUSY_MS   1000  /* until a VM that is migrating already is tried again */
#define SILENT_MS 60000 /* a source that says nothing for so long: its VM's move has failed */
#define TRIES     2     /* the second one alone: two VMs that talk cannot move at once */
#define CALL_MS   5000

static const char *const state_names[] = {
	[MOVE_WAITS] = "waiting",  [MOVE_RUNS] = "running",  [MOVE_DONE] = "done",
	[MOVE_FAILED] = "failed",  [MOVE_PARKED] = "parked", [MOVE_CANNOT] = "cannot",
	[MOVE_BACK] = "cancelled",
};

size_t drain_count(const struct drain *dr, enum drain_move_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < dr->count; i++)
		n += dr->moves[i].state == state;
	return n;
}

static const char *str(const struct drain_move *m, const char *key)
{
	return json_opt_str(m->show, key, "");
}

/* The one place where a move's state changes. */
static void set_state(struct drain_move *m, enum drain_move_state state, const char *reason)
{
	m->state = state;
	json_set_str(m->show, "state", state_names[state]);
	json_set_str(m->show, "reason", reason);
	if (state == MOVE_RUNS && !json_opt(m->show, "started_ms"))
		json_set_u64(m->show, "started_ms", wall_ms());
	if (state != MOVE_RUNS && state != MOVE_WAITS)
		json_set_u64(m->show, "ended_ms", wall_ms());
	if (state == MOVE_FAILED || state == MOVE_PARKED)
		log_warn("drain: VM %s does not go from %s to %s: %s", str(m, "vm"), str(m, "from"),
			 str(m, "to"), reason);
}

/* ---- calls of the hosts that the VMs are on ---- */

/* True if the VM still runs at its source; without an answer it is taken for there. */
static bool still_there(struct job *j, const char *url)
{
	struct json_object *answer AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];

	return http_call(url, "GET", "/v1/host", NULL, CALL_MS, &answer, error) ||
	       json_find(json_opt(answer, "domains"), "name", json_opt_str(j->in, "vm", ""));
}

/* libvirtd may fail when the VM has gone: the record knows. */
static bool has_failed(struct json_object *job)
{
	const char *state = json_opt_str(json_opt(job, "migration"), "state", "");

	return str_eq(state, "ABORTED") ||
	       (str_eq(json_opt_str(job, "state", ""), "failed") && !str_eq(state, "DONE"));
}

static void call_run(struct job *j)
{
	const char *url = json_opt_str(j->in, "url", ""), *path = json_opt_str(j->in, "path", "");
	struct json_object *body = json_opt(j->in, "body"), *answer = NULL;

	j->rc = http_call(url, body ? "POST" : "GET", path, body, CALL_MS, &answer, j->error);
	/* A daemon that has restarted does not know the job any more, or has another one of that
	 * number. */
	if (!body && !j->rc &&
	    !str_eq(json_opt_str(answer, "vm", ""), json_opt_str(j->in, "vm", "")))
		j->rc = -EREMOTEIO;
	if (!body && (j->rc == -EREMOTEIO || (!j->rc && has_failed(answer))))
		json_set_bool(j->out, "there", still_there(j, url));
	if (answer)
		json_set(j->out, "answer", answer);
}

static void tick(void *arg);

/* false: there is no memory for it, and nothing comes of it. */
static bool call(struct drain *dr, struct drain_move *m, const char *path, struct json_object *body,
		 void (*done)(struct job *j))
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "url", str(m, "url"));
	json_set_str(in, "vm", str(m, "vm"));
	json_set_str(in, "path", path);
	if (body)
		json_set(in, "body", body);
	m->calling = !job_start(dr->d, in, call_run, done, dr, (uint64_t)(m - dr->moves));
	dr->calls += m->calling;
	return m->calling;
}

/* The move that a call was about; what all answers have in common. */
static struct drain_move *called(struct job *j)
{
	struct drain *dr = j->owner;
	struct drain_move *m = &dr->moves[j->serial];

	dr->calls--;
	m->calling = false;
	if (!j->rc || j->rc == -EREMOTEIO)
		m->heard_ms = now_ms();
	else if (now_ms() - m->heard_ms > SILENT_MS)
		set_state(m, MOVE_FAILED, j->error);
	if (dr->state == DRAIN_RUNS)
		loop_timer_arm(dr->timer, 0);
	return m;
}

/* ---- what becomes of a move ---- */

static void fail_or_again(struct drain *dr, struct drain_move *m, const char *reason)
{
	if (dr->cancel) {
		set_state(m, MOVE_BACK, reason);
	} else if (m->tries < TRIES && (m->crowded || !reason)) {
		m->alone = true;
		set_state(m, MOVE_WAITS, reason);
	} else {
		set_state(m, MOVE_FAILED, reason ? reason : "its ibvmigd has restarted");
	}
}

/* The source does not know the job, or it has failed. */
static void ended_badly(struct drain *dr, struct drain_move *m, struct job *j, const char *reason)
{
	if (!json_opt_bool(j->out, "there", true))
		set_state(m, MOVE_DONE, NULL);
	else
		fail_or_again(dr, m, reason);
}

static void show_progress(struct drain_move *m, struct json_object *job)
{
	struct json_object *record = json_opt(job, "migration");

	json_set_str(m->show, "migration", json_opt_str(record, "id", NULL));
	json_set_str(m->show, "phase", json_opt_str(record, "state", NULL));
	json_set(m->show, "progress", json_object_get(json_opt(job, "progress")));
}

static void polled(struct job *j)
{
	struct drain *dr = j->owner;
	struct drain_move *m = called(j);
	struct json_object *job = json_opt(j->out, "answer"), *record = json_opt(job, "migration");
	const char *phase = json_opt_str(record, "state", ""), *reason;

	if (m->state != MOVE_RUNS)
		return;
	if (j->rc) {
		if (j->rc == -EREMOTEIO)
			ended_badly(dr, m, j, NULL);
		return;
	}
	show_progress(m, job);
	if (str_eq(phase, "PARKED")) {
		reason = json_opt_str(record, "trouble", "an operator must look");
		set_state(m, MOVE_PARKED, reason);
		return;
	}
	if (str_eq(json_opt_str(job, "state", ""), "running") ||
	    (record && strcmp(phase, "DONE") && strcmp(phase, "ABORTED"))) {
		m->cancel_sent = false; /* the cancel may have come before there was a job */
		return;
	}
	reason = json_opt_str(record, "reason", NULL);
	if (!has_failed(job))
		set_state(m, MOVE_DONE, NULL);
	else
		ended_badly(dr, m, j, json_opt_str(job, "error", reason ? reason : "walked back"));
}

/* A try that was none. */
static void rest(struct drain_move *m, const char *reason)
{
	m->tries--;
	m->rest_until_ms = now_ms() + BUSY_MS;
	set_state(m, MOVE_WAITS, reason);
}

static void started(struct job *j)
{
	struct drain_move *m = called(j);
	struct json_object *answer = json_opt(j->out, "answer");
	const char *busy = json_opt_str(answer, "busy", NULL);

	if (m->state != MOVE_RUNS)
		return;
	if (!j->rc && busy) {
		char text[128];

		snprintf(text, sizeof text, "it is migrating to %.80s already", busy);
		rest(m, text);
	} else if (!j->rc) {
		m->job = json_opt_u64(answer, "job", 0);
		json_set_u64(m->show, "job", m->job);
	} else if (j->rc == -EREMOTEIO) {
		set_state(m, MOVE_FAILED, j->error);
	} else {
		/* The host's daemon may be restarting. If the request has arrived, a second one
		 * finds the VM busy. */
		rest(m, j->error);
	}
}

static void cancelled(struct job *j)
{
	called(j);
}

/* ---- the driver ---- */

static void start(struct drain *dr, struct drain_move *m)
{
	struct json_object *body = json_object_new_object();

	json_set_str(body, "vm", str(m, "vm"));
	json_set_str(body, "to", str(m, "to"));
	json_set_bool(body, "persistent", dr->persistent);
	m->job = 0;
	m->tries++;
	if (!m->heard_ms)
		m->heard_ms = now_ms();
	set_state(m, MOVE_RUNS, NULL);
	if (!call(dr, m, "/v1/peer/migrate", body, started))
		rest(m, "out of memory on the host that drains");
}

static void ask(struct drain *dr, struct drain_move *m)
{
	if (dr->cancel && !m->cancel_sent) {
		struct json_object *body = json_object_new_object();

		json_set_str(body, "vm", str(m, "vm"));
		m->cancel_sent = call(dr, m, "/v1/peer/cancel", body, cancelled);
	} else {
		char path[40];

		snprintf(path, sizeof path, "/v1/jobs/%llu", (unsigned long long)m->job);
		call(dr, m, path, NULL, polled);
	}
}

static bool may_start(const struct drain *dr, const struct drain_move *m, size_t active)
{
	return m->state == MOVE_WAITS && !m->calling && now_ms() >= m->rest_until_ms &&
	       active < (m->alone ? 1 : dr->parallel);
}

/* A VM that is to go alone goes when all others have gone, and nobody starts beside it. */
static size_t start_some(struct drain *dr, size_t active)
{
	bool lone = false;

	for (size_t i = 0; i < dr->count; i++)
		lone |= dr->moves[i].state == MOVE_RUNS && dr->moves[i].alone;
	for (int alone = 0; !lone && alone <= 1; alone++)
		for (size_t i = 0; i < dr->count; i++)
			if (dr->moves[i].alone == alone && may_start(dr, &dr->moves[i], active)) {
				start(dr, &dr->moves[i]);
				active++;
			}
	return active;
}

static void end(struct drain *dr)
{
	for (size_t i = 0; i < dr->count; i++)
		if (dr->moves[i].state == MOVE_WAITS)
			set_state(&dr->moves[i], MOVE_BACK, "the drain was ended before its turn");
	dr->state = dr->stop ? DRAIN_STOPPED : DRAIN_ENDED;
	dr->ended_ms = wall_ms();
	drain_forget(dr);
	log_notice("drain %llu: %zu VMs have gone, %zu have not", (unsigned long long)dr->number,
		   drain_count(dr, MOVE_DONE), dr->count - drain_count(dr, MOVE_DONE));
}

static void tick(void *arg)
{
	struct drain *dr = arg;
	size_t active = drain_count(dr, MOVE_RUNS);

	if (dr->state != DRAIN_RUNS)
		return;
	if (!dr->stop)
		active = start_some(dr, active);
	for (size_t i = 0; i < dr->count; i++) {
		struct drain_move *m = &dr->moves[i];

		m->crowded = m->state == MOVE_RUNS && (m->crowded || active > 1);
		if (m->state == MOVE_RUNS && m->job && !m->calling && now_ms() >= m->look_ms) {
			m->look_ms = now_ms() + TICK_MS;
			ask(dr, m);
		}
	}
	if (!active && (dr->stop || !drain_count(dr, MOVE_WAITS)))
		end(dr);
	else
		loop_timer_arm(dr->timer, TICK_MS);
}

int drain_begin(struct drain *dr)
{
	int rc = loop_timer_new(dr->d->loop, tick, dr, &dr->timer);

	if (rc || (rc = drain_save(dr)))
		return rc;
	dr->state = DRAIN_RUNS;
	log_notice("drain %llu: %zu VMs, %u at once", (unsigned long long)dr->number, dr->count,
		   dr->parallel);
	tick(dr);
	return 0;
}

void drain_stop(struct drain *dr, bool cancel)
{
	dr->stop = true;
	dr->cancel |= cancel;
	drain_forget(dr);
	if (dr->state == DRAIN_RUNS)
		loop_timer_arm(dr->timer, 0);
}

int drain_take_moves(struct drain *dr, struct json_object *list)
{
	dr->count = json_count(list);
	dr->moves = calloc(dr->count + 1, sizeof *dr->moves);
	if (!dr->moves)
		return -ENOMEM;
	for (size_t i = 0; i < dr->count; i++) {
		struct drain_move *m = &dr->moves[i];

		m->show = json_object_get(json_object_array_get_idx(list, i));
		set_state(m, *str(m, "to") ? MOVE_WAITS : MOVE_CANNOT,
			  json_opt_str(m->show, "reason", NULL));
	}
	return 0;
}
