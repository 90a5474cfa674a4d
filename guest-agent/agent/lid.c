/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that use no GRH name their peers by LID alone, and the host says whose it is. A LID that
 * one port has for itself is asked for once, and the answer is kept as a path record. One that is
 * shared is asked for each time, because any of those ports may come and go. */
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "guest-agent/agent/main.h"
#include "guest-agent/agent/path_cache.h"

#include <errno.h>
#include <string.h>

#define WAITS_MAX 4096 /* of all users; each has its own bound */
#define ANSWER_MS 2000
#define SILENT_MS 10000 /* after a question without an answer, in which nobody is kept waiting */
/* A host takes 64 questions for paths at a time (PATHS_MAX of the daemon); some are for GIDs. */
#define ASKING_MAX 32

struct lid_wait {
	struct lid_wait *next;
	struct agent_shim *shim; /* borrowed; NULL: gone */
	struct agent_user *user; /* of it; counted */
	struct shim_lid_ask ask;
	uint64_t id; /* the request to the host that answers it, and others like it */
	bool leads;  /* the request is this one's */
	bool asked;
	bool stale; /* some path has changed since it was asked for */
	uint64_t deadline_ms;
};

static struct {
	struct lid_wait *waits; /* owned; the newest first */
	size_t count;
	unsigned asking;          /* requests that the host has */
	uint64_t silent_until_ms; /* the host has left one without an answer, and answered none */
	struct loop_timer *timer;
} lids;

static void reply(struct agent_shim *s, const struct shim_lid_ask *ask, struct shim_lid *answer,
		  int status)
{
	answer->head = (struct shim_head){.bytes = sizeof(*answer),
					  .type = SHIM_LID,
					  .cookie = ask->head.cookie,
					  .status = status};
	if (s && ask->head.cookie)
		agent_shim_send(s, answer);
}

static void refuse(struct agent_shim *s, const struct shim_lid_ask *ask, int status)
{
	struct shim_lid none = {0};

	reply(s, ask, &none, status);
}

/* Answers all that wait for that request. */
static void answer_waits(uint64_t id, struct shim_lid *answer, int status)
{
	struct lid_wait **at = &lids.waits;

	while (*at) {
		struct lid_wait *w = *at;

		if (w->id != id) {
			at = &w->next;
			continue;
		}
		reply(w->shim, &w->ask, answer, status);
		lids.asking -= w->leads && w->asked;
		w->user->asking -= w->leads && w->asked;
		agent_user_waited(w->user);
		*at = w->next;
		lids.count--;
		free(w);
	}
}

static void ask_host(struct agent *a, struct lid_wait *w)
{
	struct json_object *msg = agent_path_question(w->id, w->ask.sgid, w->ask.pkey);

	json_set_u64(msg, "dlid", w->ask.lid);
	w->asked = true;
	w->user->asking++;
	lids.asking++;
	agent_host_send(a, msg);
}

/* The host refuses more than some at a time. The others wait here, and the oldest goes first of the
 * user who has the fewest under way. */
static void ask_more(struct agent *a)
{
	while (lids.asking < ASKING_MAX) {
		struct lid_wait *next = NULL;

		for (struct lid_wait *w = lids.waits; w; w = w->next)
			if (w->leads && !w->asked &&
			    (!next || w->user->asking <= next->user->asking))
				next = w;
		if (!next)
			return;
		ask_host(a, next);
	}
}

static void timeout(void *arg)
{
	struct shim_lid none = {.count = 0};

	while (lids.waits) {
		struct lid_wait *w = lids.waits;
		uint64_t now = now_ms();

		while (w->next) /* the oldest is the last */
			w = w->next;
		if (w->deadline_ms > now) {
			loop_timer_arm(lids.timer, w->deadline_ms - now);
			break;
		}
		log_warn("the host has not said in %u ms whose LID %u is", ANSWER_MS, w->ask.lid);
		if (w->asked) /* and not kept back behind too many others */
			lids.silent_until_ms = now + SILENT_MS;
		answer_waits(w->id, &none, -ETIMEDOUT);
	}
	ask_more(arg);
}

/* A single question serves all who want the same. NULL: nobody has asked it yet. */
static const struct lid_wait *asked_already(const struct shim_lid_ask *ask)
{
	for (const struct lid_wait *w = lids.waits; w; w = w->next)
		if (!w->stale && w->ask.lid == ask->lid && w->ask.pkey == ask->pkey &&
		    w->ask.anew >= ask->anew && !memcmp(w->ask.sgid, ask->sgid, 16))
			return w;
	return NULL;
}

static struct lid_wait *wait_new(struct agent_shim *s, const struct shim_lid_ask *ask)
{
	const struct lid_wait *like = asked_already(ask);
	struct lid_wait *w = NULL;

	if (!lids.timer && loop_timer_new(s->agent->loop, timeout, s->agent, &lids.timer))
		return NULL;
	if (agent_host_connected(s->agent) && lids.count < WAITS_MAX &&
	    agent_user_may(s->user, s->user->waits, AGENT_USER_WAITS_MAX))
		w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	agent_user_wait(s->user);
	*w = (struct lid_wait){.next = lids.waits,
			       .shim = s,
			       .user = s->user,
			       .ask = *ask,
			       .id = like ? like->id : agent_path_new_id(),
			       .leads = !like,
			       .deadline_ms = now_ms() + ANSWER_MS};
	lids.waits = w;
	if (++lids.count == 1)
		loop_timer_arm(lids.timer, ANSWER_MS);
	return w;
}

/* A program that makes many connections must not wait for a silent host with each of them. One
 * question at a time goes on, for nobody, and shows when the host is back. */
static void ask_in_silence(struct agent_shim *s, const struct shim_lid_ask *ask)
{
	struct shim_lid_ask probe = *ask;

	probe.head.cookie = 0;
	if (!lids.waits && wait_new(s, &probe))
		ask_more(s->agent);
	refuse(s, ask, -ETIMEDOUT);
}

void agent_lid_ask(struct agent_shim *s, const struct shim_lid_ask *ask)
{
	struct shim_lid known = {.count = 1};

	if (ask->lid < IB_LID_UCAST_MIN || ask->lid > IB_LID_UCAST_MAX) {
		refuse(s, ask, -EINVAL);
		return;
	}
	if (!ask->anew && agent_path_at_lid(s->agent, ask, &known.end[0])) {
		reply(s, ask, &known, 0);
		return;
	}
	if (now_ms() < lids.silent_until_ms)
		ask_in_silence(s, ask);
	else if (wait_new(s, ask))
		ask_more(s->agent);
	else
		refuse(s, ask, -ENOTCONN);
}

/* 0 or -errno: one that cannot be understood. */
static int parse_end(struct json_object *o, struct shim_end *ret_end)
{
	struct shim_path p = {.mtu = 0};
	struct ib_gid gid;
	int rc = agent_path_parse(o, &p);

	if (!rc)
		rc = ib_gid_parse(json_opt_str(o, "dgid", ""), &gid);
	if (rc)
		return rc;
	*ret_end = (struct shim_end){
		.dlid = p.dlid, .slid = p.slid, .mtu = p.mtu, .sl = p.sl, .rate = p.rate};
	ib_gid_to_bytes(&gid, ret_end->dgid);
	return 0;
}

/* A list that is too long, or has something else in it, is none: the port that is meant may be
 * left out. */
static int parse_ends(struct json_object *list, struct shim_lid *ret_answer)
{
	size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
	int rc = n && n <= SHIM_ENDS_MAX ? 0 : -EINVAL;

	for (size_t i = 0; !rc && i < n; i++)
		rc = parse_end(json_object_array_get_idx(list, i), &ret_answer->end[i]);
	if (rc)
		log_warn("the host's answer to whose LID that is cannot be understood");
	ret_answer->count = rc ? 0 : (uint32_t)n;
	return rc ? -EBADMSG : 0;
}

void agent_lid_answer(struct agent *a, uint64_t id, struct json_object *answer)
{
	struct lid_wait *w = lids.waits;
	struct shim_lid ends = {.count = 0};
	int rc = 0;

	while (w && w->id != id)
		w = w->next;
	if (!w)
		return;
	lids.silent_until_ms = 0;
	if (!json_opt_bool(answer, "ok", false)) {
		log_info("LID %u: %s", w->ask.lid, json_opt_str(answer, "error", "nobody's"));
		rc = -EHOSTUNREACH;
	}
	if (!rc)
		rc = parse_ends(json_opt(answer, "paths"), &ends);
	ends.shared = json_opt_bool(answer, "shared", true);
	if (!rc && !w->stale && json_opt_bool(answer, "cacheable", false))
		for (uint32_t i = 0; i < ends.count; i++)
			agent_path_learn(a, &w->ask, &ends.end[i], !ends.shared);
	answer_waits(id, &ends, rc);
	ask_more(a);
}

void agent_lid_stale(void)
{
	for (struct lid_wait *w = lids.waits; w; w = w->next)
		w->stale = true;
}

void agent_lid_forget_shim(struct agent_shim *s)
{
	for (struct lid_wait *w = lids.waits; w; w = w->next)
		if (w->shim == s)
			w->shim = NULL;
}
