/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http/server.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/fleet/capacity.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drain.h"
#include "daemon/fleet/drain_int.h"
#include "daemon/store/durable.h"
#include "daemon/base/job.h"
#include "daemon/store/journal.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

struct drains {
	struct drain *list; /* owned; newest first */
	uint64_t last;
};

int drain_new(struct daemon *d, struct drains **ret_drains)
{
	struct json_object *saved AUTO_JSON = journal_drains(d->journal);
	struct drains *ds = calloc(1, sizeof *ds);

	for (size_t i = 0; ds && i < json_count(saved); i++) {
		struct drain *dr = drain_restore(d, json_object_array_get_idx(saved, i));

		if (!dr)
			continue;
		dr->next = ds->list;
		ds->list = dr;
		ds->last = dr->number > ds->last ? dr->number : ds->last;
	}
	*ret_drains = ds;
	return ds ? 0 : -ENOMEM;
}

static void free_one(struct drain *dr)
{
	for (size_t i = 0; i < dr->count; i++)
		json_object_put(dr->moves[i].show);
	free(dr->moves);
	free(dr->rank_error);
	free(dr->asked);
	free(dr->error);
	loop_timer_free(dr->timer);
	free(dr);
}

void drain_free(struct drains *ds)
{
	while (ds && ds->list) {
		struct drain *dr = ds->list;

		ds->list = dr->next;
		if (!dr->calls) /* else a worker still has it; the process ends anyway */
			free_one(dr);
	}
	free(ds);
}

static bool is_over(const struct drain *dr)
{
	return !dr->calls && dr->state != DRAIN_PLANS && dr->state != DRAIN_RUNS;
}

static void collect(struct drains *ds)
{
	unsigned kept = 0;

	for (struct drain **p = &ds->list; *p;) {
		struct drain *dr = *p;

		if (!is_over(dr) || ++kept <= DRAIN_KEPT) {
			p = &dr->next;
			continue;
		}
		*p = dr->next;
		free_one(dr);
	}
}

/* ---- what is told ---- */

static struct json_object *drain_json(const struct drain *dr, bool whole)
{
	static const char *const names[] = {"planning", "planned", "running",
					    "done",     "stopped", "failed"};
	static const struct {
		const char *name;
		enum drain_move_state state;
	} counts[] = {{"waiting", MOVE_WAITS}, {"running", MOVE_RUNS},  {"done", MOVE_DONE},
		      {"failed", MOVE_FAILED}, {"parked", MOVE_PARKED}, {"cannot", MOVE_CANNOT},
		      {"cancelled", MOVE_BACK}};
	struct json_object *o = json_object_new_object(), *n = json_object_new_object(), *list;

	json_set_u64(o, "drain", dr->number);
	json_set_str(o, "host", *dr->host ? dr->host : NULL);
	json_set_str(o, "state", names[dr->state]);
	json_set_u64(o, "parallel", dr->parallel);
	json_set_u64(o, "started_ms", dr->started_ms);
	if (dr->ended_ms)
		json_set_u64(o, "ended_ms", dr->ended_ms);
	json_set_bool(o, "ranked", dr->ranked);
	json_set_str(o, "rank_error", dr->rank_error);
	json_set_str(o, "error", dr->error);
	json_set_bool(o, "taken_up", dr->taken_up);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		json_set_u64(n, counts[i].name, drain_count(dr, counts[i].state));
	json_set(o, "counts", n);
	if (!whole)
		return o;
	list = json_object_new_array();
	for (size_t i = 0; i < dr->count; i++)
		json_object_array_add(list, json_object_get(dr->moves[i].show));
	json_set(o, "moves", list);
	return o;
}

static struct drain *by_number(struct daemon *d, const char *text)
{
	uint64_t n = 0;

	if (parse_u64(text, 1, UINT64_MAX, &n))
		return NULL;
	for (struct drain *dr = d->drains->list; dr; dr = dr->next)
		if (dr->number == n)
			return dr;
	return NULL;
}

static struct drain *find(struct http_request *req)
{
	struct drain *dr = by_number(req->user, req->param);

	if (!dr)
		http_fail(req->exchange, 404, "not-found", "there is no drain %s", req->param);
	return dr;
}

void drain_get(struct http_request *req)
{
	struct drain *dr = find(req);

	if (dr)
		http_reply(req->exchange, 200, drain_json(dr, true));
}

void drain_get_all(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (const struct drain *dr = d->drains->list; dr; dr = dr->next)
		json_object_array_add(list, drain_json(dr, false));
	json_set(o, "drains", list);
	http_reply(req->exchange, 200, o);
}

void drain_post_abort(struct http_request *req)
{
	struct drain *dr = find(req);

	if (!dr)
		return;
	drain_stop(dr, json_opt_bool(req->body, "cancel", false));
	http_reply(req->exchange, 202, drain_json(dr, true));
}

/* ---- what is asked for ---- */

static int unknown_host(struct http_exchange *x, const char *key, const char *host)
{
	http_fail(x, 400, "unknown-host",
		  "%s: \"%.60s\" is neither this host nor a peer of ibvmigd.conf", key, host);
	return -ENOENT;
}

/* The VMs may go to the hosts that are named, or to all but the one that is drained. */
static int read_targets(struct http_request *req, const char *from, struct json_object *list)
{
	const struct settings *s = ((struct daemon *)req->user)->settings;
	struct json_object *to = json_opt(req->body, "to");

	for (size_t i = 0; i < json_count(to); i++) {
		const char *host = json_object_get_string(json_object_array_get_idx(to, i));
		const char *url = host ? settings_host_url(s, host) : NULL;

		if (!url)
			return unknown_host(req->exchange, "to", host ? host : "");
		if (str_eq(host, from)) {
			http_fail(req->exchange, 400, "bad-field",
				  "to: %s is the host that the VMs are to leave", host);
			return -EINVAL;
		}
		/* A host that is named twice does not have twice as much to give. */
		if (!json_find(list, "host", host))
			json_object_array_add(list, capacity_host(host, url));
	}
	if (to)
		return 0;
	if (!str_eq(from, s->host_name))
		json_object_array_add(list, capacity_host(s->host_name, s->url));
	for (size_t i = 0; i < s->peer_count; i++)
		if (!str_eq(s->peers[i].name, from) && !str_eq(s->peers[i].name, s->host_name))
			json_object_array_add(list,
					      capacity_host(s->peers[i].name, s->peers[i].url));
	return 0;
}

/* As text: the object is a worker's, or goes on changing. key: NULL: o is all. */
static void note_asked(struct drain *dr, const char *key, struct json_object *o)
{
	struct json_object *top AUTO_JSON = key ? json_object_new_object() : json_object_get(o);

	if (key)
		json_set(top, key, json_object_get(o));
	str_set(&dr->asked, json_text(top));
}

/* {"vm","from","to"}… of a caller that has planned by itself, completed by "url". */
static int read_moves(struct http_request *req, struct drain *dr, struct json_object *moves)
{
	struct json_object *list AUTO_JSON = json_object_new_array();

	for (size_t i = 0; i < json_count(moves); i++) {
		struct json_object *m = json_object_array_get_idx(moves, i), *o;
		const char *from = json_opt_str(m, "from", ""), *to = json_opt_str(m, "to", "");
		const char *url = settings_host_url(dr->d->settings, from);

		if (!url)
			return unknown_host(req->exchange, "moves: from", from);
		if (!settings_host_url(dr->d->settings, to))
			return unknown_host(req->exchange, "moves: to", to);
		o = capacity_host(from, url);
		json_object_object_del(o, "host");
		json_set_str(o, "vm", json_opt_str(m, "vm", ""));
		json_set_str(o, "from", from);
		json_set_str(o, "to", to);
		json_object_array_add(list, o);
	}
	note_asked(dr, "moves", list);
	if (!drain_take_moves(dr, list))
		return 0;
	http_fail(req->exchange, 503, "no-memory", "out of memory");
	return -ENOMEM;
}

static void reply_and_begin(struct drain *dr)
{
	int rc = 0;

	if (dr->dry_run)
		dr->state = DRAIN_PLANNED;
	else
		rc = drain_begin(dr);
	if (rc) {
		dr->state = DRAIN_FAILED;
		http_fail(TAKE(dr->asker), 503, "not-begun", "the drain cannot be begun: %s",
			  strerror(-rc));
		return;
	}
	durable_reply(dr->d->durable, TAKE(dr->asker), dr->dry_run ? 200 : 202,
		      drain_json(dr, true));
}

static void planned(struct job *j)
{
	struct drain *dr = j->owner;

	dr->calls--;
	if (!j->rc && drain_take_moves(dr, json_opt(j->out, "moves")))
		job_fail(j, -ENOMEM, "out of memory");
	if (j->rc) {
		dr->state = DRAIN_FAILED;
		http_fail(TAKE(dr->asker), j->rc == -ENOENT ? 404 : 503, "no-plan", "%s", j->error);
		return;
	}
	dr->ranked = json_opt_bool(j->out, "ranked", false);
	str_set(&dr->rank_error, json_opt_str(j->out, "rank_error", NULL));
	reply_and_begin(dr);
}

/* Reads what the plan is made from, owned by the caller; an error is answered here. */
static int read_plan(struct http_request *req, struct drain *dr, struct json_object **ret_in)
{
	struct json_object *in = json_object_new_object(), *targets = json_object_new_array();
	const char *url = settings_host_url(dr->d->settings, dr->host);
	struct json_object *vms = json_opt(req->body, "vms");
	int rc = url ? 0 : unknown_host(req->exchange, "host", dr->host);

	json_set(in, "targets", targets);
	if (rc || (rc = read_targets(req, dr->host, targets))) {
		json_object_put(in);
		return rc;
	}
	json_set(in, "from", capacity_host(dr->host, url));
	if (vms)
		json_set(in, "vms", json_object_get(vms));
	/* From before the plan on: nothing may come while the VMs leave. */
	json_set_bool(in, "mark", !vms && !dr->dry_run);
	note_asked(dr, NULL, in);
	*ret_in = in;
	return 0;
}

/* Takes in. */
static void plan(struct drain *dr, struct json_object *in)
{
	dr->calls++;
	if (!job_start(dr->d, in, drain_plan_run, planned, dr, 0))
		return;
	dr->calls--;
	dr->state = DRAIN_FAILED;
	http_fail(TAKE(dr->asker), 503, "no-memory", "out of memory");
}

/* Checked before anything is made of it; an error is answered here. */
static int check(struct http_request *req, uint64_t parallel)
{
	const char *host = json_opt_str(req->body, "host", NULL);
	struct json_object *moves = json_opt(req->body, "moves");
	static const char *const lists[] = {"to", "vms", "moves"};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct json_object *list = json_opt(req->body, lists[i]);

		if (list && (!json_object_is_type(list, json_type_array) || !json_count(list) ||
			     json_count(list) > DRAIN_MOVES_MAX)) {
			http_fail(req->exchange, 400, "bad-field",
				  "%s must be a list of 1 to %d entries", lists[i],
				  DRAIN_MOVES_MAX);
			return -EINVAL;
		}
	}
	if ((host && moves) || !(host || moves || json_opt(req->body, "vms")))
		http_fail(
			req->exchange, 400, "bad-field",
			"host, which is to be emptied, or vms of it, or else moves must be given");
	else if (host && strlen(host) >= sizeof((struct drain *)0)->host)
		unknown_host(req->exchange, "host", host);
	else if (parallel < 1 || parallel > DRAIN_PARALLEL_MAX)
		http_fail(req->exchange, 400, "bad-field", "parallel is %llu; it must be 1 to %d",
			  (unsigned long long)parallel, DRAIN_PARALLEL_MAX);
	else
		return 0;
	return -EINVAL;
}

/* True if all VMs of the drain's host are to go. */
static bool empties(const struct drain *dr)
{
	struct json_object *asked AUTO_JSON = NULL;

	return !json_parse(dr->asked, strlen(dr->asked), &asked) &&
	       json_opt_bool(asked, "mark", false);
}

/* The same host is not emptied twice at once, and the same moves are not made twice: who asks again
 * sees what is under way. */
static struct drain *same_one(struct daemon *d, const struct drain *asked)
{
	for (struct drain *dr = d->drains->list; dr; dr = dr->next)
		if ((dr->state == DRAIN_RUNS || dr->state == DRAIN_PLANS) && !dr->dry_run &&
		    (str_eq(dr->asked, asked->asked) ||
		     (empties(dr) && empties(asked) && str_eq(dr->host, asked->host))))
			return dr;
	return NULL;
}

static struct drain *make(struct http_request *req, uint64_t parallel)
{
	struct daemon *d = req->user;
	struct drain *dr = calloc(1, sizeof *dr);

	if (!dr) {
		http_fail(req->exchange, 503, "no-memory", "out of memory");
		return NULL;
	}
	dr->d = d;
	dr->parallel = (unsigned)parallel;
	dr->persistent = json_opt_bool(req->body, "persistent", false);
	dr->dry_run = json_opt_bool(req->body, "dry_run", false);
	dr->started_ms = wall_ms();
	dr->asker = req->exchange;
	if (!json_opt(req->body, "moves"))
		snprintf(dr->host, sizeof dr->host, "%s",
			 json_opt_str(req->body, "host", d->settings->host_name));
	return dr;
}

void drain_post(struct http_request *req)
{
	struct daemon *d = req->user;
	static const char *const flags[] = {"dry_run", "persistent", NULL};
	static const char *const texts[] = {"host", NULL};
	uint64_t parallel = json_opt(req->body, "parallel") ? json_opt_u64(req->body, "parallel", 0)
							    : DRAIN_PARALLEL;
	struct json_object *moves = json_opt(req->body, "moves"), *in = NULL;
	struct drain *dr, *other;
	int rc;

	if (!http_flags_fit(req, flags) || !http_texts_fit(req, texts) || check(req, parallel))
		return;
	dr = make(req, parallel);
	if (!dr)
		return;
	rc = moves ? read_moves(req, dr, moves) : read_plan(req, dr, &in);
	other = rc || dr->dry_run ? NULL : same_one(d, dr);
	if (other)
		http_reply(req->exchange, 200, drain_json(other, true));
	if (rc || other) {
		json_object_put(in);
		free_one(dr);
		return;
	}
	dr->number = ++d->drains->last;
	dr->next = d->drains->list;
	d->drains->list = dr;
	collect(d->drains);
	if (moves)
		reply_and_begin(dr);
	else
		plan(dr, in);
}
