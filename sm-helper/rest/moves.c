/* SPDX-License-Identifier: GPL-2.0-or-later */
/* POST /v1/moves: the moves of a VM, or of several that come at the same time. */
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/notify/notice.h"
#include "sm-helper/rest/rest_int.h"

#include <errno.h>
#include <string.h>

static void read_move(struct json_reader *r, struct move_request *m)
{
	m->vguid = json_need_guid(r, "vguid");
	rest_need_text(r, "vm", m->vm);
	rest_need_vf_at(r, "from", false, &m->from);
	rest_need_vf_at(r, "to", true, &m->to);
	m->pkey = rest_need_pkey(r);
	m->senders_alive = json_opt_bool(r->obj, "senders_alive", false);
	if (r->error || m->from.parked_guid != m->to.parked_guid ||
	    !strcmp(m->from.host, m->to.host))
		return;
	r->error = -EINVAL;
	snprintf(r->message, sizeof r->message,
		 "\"from\" and \"to\" have the same parked_guid on different hosts");
}

/* list: an array of moves, or NULL: the object itself is one. Room for OPS_MOVES_MAX. */
static unsigned read_moves(struct json_reader *r, struct json_object *list, struct move_request *m)
{
	size_t count = list ? json_object_array_length(list) : 1;

	if (!list) {
		read_move(r, m);
		return 1;
	}
	if (count < 1 || count > OPS_MOVES_MAX) {
		r->error = -EINVAL;
		snprintf(r->message, sizeof r->message,
			 "field \"moves\" has %zu entries; allowed is 1 to %d", count,
			 OPS_MOVES_MAX);
		return 0;
	}
	for (size_t i = 0; !r->error && i < count; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		struct json_reader inner;

		json_reader_init(&inner, json_object_is_type(one, json_type_object) ? one : NULL);
		if (inner.obj)
			read_move(&inner, &m[i]);
		else
			inner = (struct json_reader){.error = -EINVAL,
						     .message = "it must be an object"};
		r->error = inner.error;
		if (r->error)
			snprintf(r->message, sizeof r->message, "moves[%zu]: %.200s", i,
				 inner.message);
	}
	return (unsigned)count;
}

static void set_moved(struct json_object *o, const struct move_result *res, const struct moved *m)
{
	struct json_object *paths;

	json_set_u64(o, "lid_before", m->lid_before);
	json_set_u64(o, "lid_after", m->lid_after);
	json_set_u64(o, "paths_changed", m->paths_changed);
	if (m->paths_changed && (paths = notice_paths(res, m)))
		json_set(o, "paths", paths);
}

/* Moves that a call asked for: some of a batch, one after the other. */
struct asked {
	unsigned first, count;
	bool list; /* the answer takes the form of the question: a list, or the one move */
};

static struct json_object *moves_json(const struct move_result *res, const struct asked *asked)
{
	struct json_object *o = json_object_new_object();
	struct json_object *moves = asked->list ? json_object_new_array() : NULL;

	for (unsigned i = asked->first; moves && i < asked->first + asked->count; i++) {
		struct json_object *m = json_object_new_object();

		json_set_guid(m, "vguid", res->move[i].vguid);
		set_moved(m, res, &res->move[i]);
		json_object_array_add(moves, m);
	}
	if (moves)
		json_set(o, "moves", moves);
	else
		set_moved(o, res, &res->move[asked->first]);
	json_set_u64(o, "batch", res->moves);
	json_set_u64(o, "lft_smps", res->lft_smps);
	json_set_u64(o, "port_info_smps", res->port_info_smps);
	json_set_u64(o, "guid_smps", res->guid_smps);
	json_set_u64(o, "pkey_smps", res->pkey_smps);
	json_set_u64(o, "waves", res->waves);
	json_set_u64(o, "switches_updated", res->switches_updated);
	json_set_u64(o, "switches_total", res->switches_total);
	json_set_u64(o, "repath_notices", res->repath_notices);
	json_set_bool(o, "verified", res->verified);
	json_set_str(o, "answers_by", res->verified ? reach_name(res->answers_by) : NULL);
	json_set_u64(o, "walks", res->walks);
	json_set_u64(o, "elapsed_us", res->elapsed_us);
	json_set_u64(o, "sm_us", res->sm_us);
	json_set_u64(o, "pkey_us", res->pkey_us);
	json_set_u64(o, "lock_us", res->lock_us);
	return o;
}

/* Large: on the heap. */
struct moves_call {
	struct move_request m[OPS_MOVES_MAX];
	struct move_result res;
};

/* The moves of a call's body, to m[asked->first]; false: call has its error. Room for
 * OPS_MOVES_MAX.
 */
static bool read_call(struct rest_call *call, struct move_request *m, struct asked *asked)
{
	struct json_object *list = NULL;
	struct json_reader r;

	json_reader_init(&r, call->body);
	asked->list = json_opt(call->body, "moves");
	if (asked->list)
		list = json_need_array(&r, "moves");
	if (!r.error)
		asked->count = read_moves(&r, list, &m[asked->first]);
	if (r.error)
		rest_bad_request(call, r.message);
	return !r.error;
}

static void call_moves(struct rest_call *call, struct moves_call *c)
{
	struct asked asked = {0};

	if (!read_call(call, c->m, &asked) ||
	    action_move(call->rest->ops, c->m, asked.count, rest_deadline_us(call), &c->res,
			&call->error))
		return;
	c->res.repath_notices += notice_moved(call->rest->ops, &c->res);
	call->reply = moves_json(&c->res, &asked);
}

static void run_moves(struct rest_call *call)
{
	struct moves_call *c = calloc(1, sizeof *c);

	if (c)
		call_moves(call, c);
	else
		call->error = (struct op_error){500, "no-memory", "no memory"};
	free(c);
}

/* ---- moves that come at the same time ---- */

/* VMs of a host that is drained reach SWITCH at about the same time, each asked for by its own
 * destination. Nobody waits for company: a move begins at once while fewer than MOVES_AT_ONCE calls
 * are under way. The second one is carried out when the first one is, whose notices then still go
 * out. Calls that come meanwhile would have to wait anyway; they go together as one batch. */
#define MOVES_AT_ONCE 2
#define GATHERED_MAX  16 /* moves: what goes wrong with one holds the others up */

struct gathered {
	struct rest *rest;
	struct rest_call *calls; /* owned; linked by next */
	struct moves_call call;
};

/* The calls whose moves can be read, into g->call; the others have their error. */
static unsigned read_gathered(struct gathered *g, struct rest_call *ret_call[static GATHERED_MAX],
			      struct asked ret_asked[static GATHERED_MAX])
{
	unsigned n = 0, moves = 0;

	for (struct rest_call *call = g->calls; call; call = call->next) {
		ret_asked[n] = (struct asked){.first = moves};
		if (!read_call(call, g->call.m, &ret_asked[n]))
			continue;
		moves += ret_asked[n].count;
		ret_call[n++] = call;
	}
	return n;
}

/* Time is left to try each alone then; the first has waited longest. */
static uint64_t half_of(uint64_t deadline_us)
{
	uint64_t now = now_us(), give_up = deadline_us - OPS_UNDO_MS * 1000ull;

	return give_up > now ? deadline_us - (give_up - now) / 2 : deadline_us;
}

static void gathered_run(void *arg)
{
	struct gathered *g = arg;
	struct ops *o = g->rest->ops;
	struct rest_call *call[GATHERED_MAX];
	struct asked asked[GATHERED_MAX];
	struct op_error error = {0};
	unsigned n = read_gathered(g, call, asked);
	unsigned moves = n ? asked[n - 1].first + asked[n - 1].count : 0;

	if (n > 1 && !action_move(o, g->call.m, moves, half_of(rest_deadline_us(call[0])),
				  &g->call.res, &error)) {
		g->call.res.repath_notices += notice_moved(o, &g->call.res);
		for (unsigned i = 0; i < n; i++)
			call[i]->reply = moves_json(&g->call.res, &asked[i]);
	} else if (error.status == 503) {
		/* The subnet manager's state: it is the same for each of them. */
		for (unsigned i = 0; i < n; i++)
			call[i]->error = error;
	} else {
		/* A single move is no batch; and of a batch that failed, the others need not fail.
		 */
		if (n > 1)
			log_notice("%u calls' moves failed together, each is tried alone: %s", n,
				   error.detail);
		for (unsigned i = 0; i < n; i++)
			run_moves(call[i]);
	}
	ops_publish(o);
}

static void start_gathered(struct rest *rest);

static void gathered_done(void *arg)
{
	struct gathered *g = arg;
	struct rest *rest = g->rest;

	while (g->calls) {
		struct rest_call *call = g->calls;

		g->calls = call->next;
		rest_call_done(call);
	}
	free(g);
	rest->moving--;
	start_gathered(rest);
}

static void refuse_all(struct rest_call *calls)
{
	while (calls) {
		struct rest_call *call = calls;

		calls = call->next;
		call->error = (struct op_error){500, "no-memory", "no memory"};
		rest_call_done(call);
	}
}

static size_t count_moves(struct rest_call *call)
{
	size_t n = json_count(json_opt(call->body, "moves"));

	return n ? n : 1;
}

/* The first of those that wait: GATHERED_MAX moves, or one call that has more. */
static struct rest_call *take_waiting(struct rest *rest)
{
	struct rest_call *first = rest->waiting, **p = &first->next;

	for (size_t n = count_moves(first); *p && (n += count_moves(*p)) <= GATHERED_MAX;)
		p = &(*p)->next;
	rest->waiting = *p;
	*p = NULL;
	return first;
}

static void start_gathered(struct rest *rest)
{
	struct gathered *g;

	if (!rest->waiting || rest->moving >= MOVES_AT_ONCE)
		return;
	g = calloc(1, sizeof *g);
	if (!g) {
		refuse_all(TAKE(rest->waiting));
		return;
	}
	g->rest = rest;
	g->calls = take_waiting(rest);
	rest->moving++;
	if (work_submit(rest->pool, gathered_run, gathered_done, g)) {
		rest->moving--;
		refuse_all(g->calls);
		free(g);
	}
}

void rest_post_moves(struct http_request *req)
{
	struct rest *rest = req->user;
	struct rest_call *call, **p = &rest->waiting;

	call = rest_call_new(req, run_moves, NULL);
	if (!call)
		return;
	while (*p)
		p = &(*p)->next;
	*p = call;
	start_gathered(rest);
}

static void run_check(struct rest_call *call)
{
	struct moves_call *c AUTO_FREE = calloc(1, sizeof *c);
	struct asked asked = {0};

	if (!c)
		call->error = (struct op_error){500, "no-memory", "no memory"};
	else if (read_call(call, c->m, &asked))
		action_move(call->rest->ops, c->m, asked.count, rest_deadline_us(call), NULL,
			    &call->error);
	call->reply = json_object_new_object();
}

/* Tells if the moves of a body for /v1/moves would begin. */
void rest_post_moves_check(struct http_request *req)
{
	rest_submit_question(req, run_check);
}
