/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records, asked of the host once for all processes. They stay valid over migrations while the
 * host says that addresses move with the VMs (path_cache in hello). The host tells what a move or a
 * fault changes of them (agent/notice.c). */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "guest-agent/agent/path_cache.h"

#include <errno.h>
#include <string.h>

#define WAITS_MAX     4096 /* of all users; each has its own bound */
#define ASKING_MAX    32   /* a host takes 64 questions at a time; some are for LIDs */
#define PKEY_BASE     0x7fff
#define RATE_MASK     0x3f /* IBA 1.4, 15.2.5.16: six bits */
#define MEET_MS       300
#define MEET_AGAIN_MS 2
#define ANSWER_MS     2000
#define IDS_START     (1ull << 32) /* far from the ids of the host's requests, for readers of logs */

struct path_wait {
	struct path_wait *next;
	struct agent_shim *shim; /* borrowed; NULL: gone */
	struct agent_user *user; /* of it; counted */
	struct shim_path ask;
	uint64_t id; /* the request to the host that answers it, and others like it */
	bool leads;  /* the request is this one's */
	bool asked;
	bool stale; /* the path has changed since it was asked for */
	uint64_t deadline_ms;
};

/* An answer that waits for the neighbour. */
struct path_meet {
	struct path_meet *next;
	struct agent_shim *shim; /* borrowed; NULL: gone */
	struct shim_path answer;
	uint64_t deadline_ms;
};

static struct {
	struct path_meet *meets; /* owned */
	struct loop_timer *meet_timer;
	struct path_cache cache;
	struct path_wait *waits; /* owned */
	size_t wait_count;
	unsigned asking; /* requests that the host has */
	uint64_t last_id;
	struct loop_timer *timer;
	uint64_t queries, saved, failed, reconnect_queries, reconnect_saved, changed, dropped;
} paths = {.last_id = IDS_START};

static struct path_key key_of(const struct shim_path *ask)
{
	struct path_key k = {.pkey = ask->pkey & PKEY_BASE};

	memcpy(k.dgid, ask->dgid, 16);
	memcpy(k.sguid, ask->sgid + 8, 8);
	return k;
}

static bool same_way(const struct shim_path *a, const struct shim_path *b)
{
	struct path_key ka = key_of(a), kb = key_of(b);

	return !memcmp(&ka, &kb, sizeof(ka));
}

/* Without memory it is asked for again next time. */
static void path_store(const struct shim_path *ask, const struct shim_path *record)
{
	struct path_record r = {.key = key_of(ask),
				.dlid = record->dlid,
				.slid = record->slid,
				.pkey = record->pkey,
				.mtu = record->mtu,
				.sl = record->sl,
				.rate = record->rate};

	path_cache_put(&paths.cache, &r);
}

static void meet_again(void *arg);

/* An answer for a reconnect waits until the peer's address is resolved. */
static bool meet_first(struct agent_shim *s, const struct shim_path *answer)
{
	struct path_meet *m;

	if (!answer->reconnect || agent_device_met(answer->sgid, answer->dgid))
		return false;
	if (!paths.meet_timer &&
	    loop_timer_new(s->agent->loop, meet_again, NULL, &paths.meet_timer))
		return false;
	m = calloc(1, sizeof(*m));
	if (!m)
		return false;
	*m = (struct path_meet){paths.meets, s, *answer, now_ms() + MEET_MS};
	paths.meets = m;
	loop_timer_arm(paths.meet_timer, MEET_AGAIN_MS);
	return true;
}

static void meet_again(void *arg)
{
	struct path_meet **at = &paths.meets;
	uint64_t now = now_ms();

	(void)arg;
	while (*at) {
		struct path_meet *m = *at;

		if (now < m->deadline_ms && !agent_device_met(m->answer.sgid, m->answer.dgid)) {
			at = &m->next;
			continue;
		}
		if (m->shim)
			agent_shim_send(m->shim, &m->answer);
		*at = m->next;
		free(m);
	}
	if (paths.meets)
		loop_timer_arm(paths.meet_timer, MEET_AGAIN_MS);
}

static void reply(struct agent_shim *s, const struct shim_path *ask, const struct shim_path *record,
		  int status)
{
	struct shim_path answer = record ? *record : *ask;

	/* The question comes back with it: who asked knows it again by that. */
	answer.head = ask->head;
	answer.head.status = status;
	answer.reconnect = ask->reconnect;
	memcpy(answer.sgid, ask->sgid, 16);
	answer.pkey = ask->pkey;
	if (s && ask->head.cookie && !meet_first(s, &answer))
		agent_shim_send(s, &answer);
}

static void answer_waits(uint64_t id, const struct shim_path *record, int status)
{
	struct path_wait **at = &paths.waits;

	while (*at) {
		struct path_wait *w = *at;

		if (w->id != id) {
			at = &w->next;
			continue;
		}
		reply(w->shim, &w->ask, record, status);
		paths.asking -= w->asked;
		w->user->asking -= w->asked;
		agent_user_waited(w->user);
		*at = w->next;
		paths.wait_count--;
		free(w);
	}
}

static void ask_more(struct agent *a);

static void path_timeout(void *arg)
{
	while (paths.waits) {
		struct path_wait *w = paths.waits;
		uint64_t now = now_ms();

		/* New ones go in front, so the oldest is the last. */
		while (w->next)
			w = w->next;
		if (w->deadline_ms > now) {
			loop_timer_arm(paths.timer, w->deadline_ms - now);
			break;
		}
		log_warn("the host has not answered a path query in %u ms", ANSWER_MS);
		paths.failed++;
		answer_waits(w->id, NULL, -ETIMEDOUT);
	}
	ask_more(arg);
}

uint64_t agent_path_new_id(void)
{
	return ++paths.last_id;
}

struct json_object *agent_path_question(uint64_t id, const uint8_t sgid[16], uint16_t pkey)
{
	struct json_object *msg = json_object_new_object();
	char text[IB_GID_TEXT];
	struct ib_gid gid;

	json_set_str(msg, "op", "path");
	json_set_u64(msg, "id", id);
	ib_gid_from_bytes(sgid, &gid);
	ib_gid_format(&gid, text);
	json_set_str(msg, "sgid", text);
	if (pkey & PKEY_BASE) {
		snprintf(text, sizeof(text), "0x%04x", pkey);
		json_set_str(msg, "pkey", text);
	}
	paths.queries++;
	return msg;
}

static void path_query_host(struct agent *a, const struct shim_path *ask, uint64_t id)
{
	struct json_object *msg = agent_path_question(id, ask->sgid, ask->pkey);
	char text[IB_GID_TEXT];
	struct ib_gid gid;

	ib_gid_from_bytes(ask->dgid, &gid);
	ib_gid_format(&gid, text);
	json_set_str(msg, "dgid", text);
	if (ask->reconnect)
		paths.reconnect_queries++;
	agent_host_send(a, msg);
}

static bool cache_used(const struct agent *a)
{
	return a->path_cache && !(a->fault & SHIM_FAULT_CACHE_OFF);
}

static void answer_from_cache(struct agent_shim *s, const struct shim_path *ask,
			      const struct path_record *r)
{
	struct shim_path known = *ask;

	known.dlid = r->dlid;
	known.slid = r->slid;
	known.mtu = r->mtu;
	known.sl = r->sl;
	known.rate = r->rate;
	paths.saved++;
	if (ask->reconnect)
		paths.reconnect_saved++;
	reply(s, ask, &known, 0);
}

/* A single question serves all who want the same record. 0: nobody has asked it yet. */
static uint64_t asked_already(const struct shim_path *ask)
{
	for (struct path_wait *o = paths.waits; o; o = o->next)
		if (!o->stale && same_way(&o->ask, ask))
			return o->id;
	return 0;
}

/* The oldest of the user who has the fewest under way goes next. */
static void ask_more(struct agent *a)
{
	while (paths.asking < ASKING_MAX) {
		struct path_wait *next = NULL;

		for (struct path_wait *w = paths.waits; w; w = w->next)
			if (w->leads && !w->asked &&
			    (!next || w->user->asking <= next->user->asking))
				next = w;
		if (!next)
			return;
		next->asked = true;
		next->user->asking++;
		paths.asking++;
		path_query_host(a, &next->ask, next->id);
	}
}

/* NULL: the host is not there, or the user asks too much at once. */
static struct path_wait *wait_new(struct agent_shim *s, const struct shim_path *ask)
{
	uint64_t like = cache_used(s->agent) ? asked_already(ask) : 0;
	struct path_wait *w = NULL;

	if (!paths.timer && loop_timer_new(s->agent->loop, path_timeout, s->agent, &paths.timer))
		return NULL;
	if (agent_host_connected(s->agent) && paths.wait_count < WAITS_MAX &&
	    agent_user_may(s->user, s->user->waits, AGENT_USER_WAITS_MAX))
		w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	agent_user_wait(s->user);
	*w = (struct path_wait){.next = paths.waits,
				.shim = s,
				.user = s->user,
				.ask = *ask,
				.id = like ? like : agent_path_new_id(),
				.leads = !like,
				.deadline_ms = now_ms() + ANSWER_MS};
	paths.waits = w;
	if (++paths.wait_count == 1)
		loop_timer_arm(paths.timer, ANSWER_MS);
	return w;
}

void agent_path_ask(struct agent_shim *s, const struct shim_path *ask)
{
	struct agent *a = s->agent;
	struct path_key key = key_of(ask);
	const struct path_record *r = cache_used(a) ? path_cache_find(&paths.cache, &key) : NULL;
	const struct path_wait *w;

	if (r) {
		answer_from_cache(s, ask, r);
		return;
	}
	w = wait_new(s, ask);
	if (!w)
		reply(s, ask, NULL, -ENOTCONN);
	else if (w->leads)
		ask_more(a);
	else
		paths.saved++;
}

int agent_path_parse(struct json_object *answer, struct shim_path *ret_record)
{
	struct json_reader r;
	struct shim_path p = *ret_record;

	json_reader_init(&r, answer);
	p.dlid = (uint16_t)json_need_u64(&r, "dlid", 0, 0xffff);
	p.slid = (uint16_t)json_need_u64(&r, "slid", 0, 0xffff);
	p.sl = (uint8_t)json_need_u64(&r, "sl", 0, 15);
	p.mtu = (uint16_t)json_need_u64(&r, "mtu", 256, 4096);
	p.rate = (uint8_t)(json_opt_u64(answer, "rate", 0) & RATE_MASK);
	ib_pkey_parse(json_opt_str(answer, "pkey", "0xffff"), &p.pkey);
	if (r.error) {
		log_warn("the host's path record: %s", r.message);
		return r.error;
	}
	*ret_record = p;
	return 0;
}

void agent_path_answer(struct agent *a, uint64_t id, struct json_object *answer)
{
	struct path_wait *w = paths.waits;
	struct shim_path record;

	while (w && w->id != id)
		w = w->next;
	if (!w)
		return;
	record = w->ask;
	if (!json_opt_bool(answer, "ok", false) || agent_path_parse(answer, &record)) {
		log_info("no path record: %s", json_opt_str(answer, "error", "no reason given"));
		paths.failed++;
		answer_waits(id, NULL, -EHOSTUNREACH);
		ask_more(a);
		return;
	}
	if (cache_used(a) && !w->stale && json_opt_bool(answer, "cacheable", false))
		path_store(&w->ask, &record);
	answer_waits(id, &record, 0);
	ask_more(a);
}

void agent_path_forget_shim(struct agent_shim *s)
{
	for (struct path_wait *w = paths.waits; w; w = w->next)
		if (w->shim == s)
			w->shim = NULL;
	for (struct path_meet *m = paths.meets; m; m = m->next)
		if (m->shim == s)
			m->shim = NULL;
}

bool agent_path_at_lid(const struct agent *a, const struct shim_lid_ask *ask,
		       struct shim_end *ret_end)
{
	struct path_key key = {.pkey = ask->pkey & PKEY_BASE};
	const struct path_record *r;

	memcpy(key.sguid, ask->sgid + 8, sizeof(key.sguid));
	r = cache_used(a) ? path_cache_at_lid(&paths.cache, &key, ask->lid) : NULL;
	if (!r)
		return false;
	*ret_end = (struct shim_end){
		.dlid = r->dlid, .slid = r->slid, .mtu = r->mtu, .sl = r->sl, .rate = r->rate};
	memcpy(ret_end->dgid, r->key.dgid, sizeof(ret_end->dgid));
	paths.saved++;
	return true;
}

/* Answers that are under way may have been given before the change: they are not kept. */
static void answers_stale(uint64_t dguid)
{
	struct ib_gid gid;

	agent_lid_stale();
	for (struct path_wait *w = paths.waits; w; w = w->next) {
		ib_gid_from_bytes(w->ask.dgid, &gid);
		w->stale |= !dguid || gid.guid == dguid;
	}
}

/* Processes look for QPs of their own on that path. The prefix of the source is that of the
 * destination: both are in one subnet. */
static void tell_shims(struct agent *a, const struct path_record *r, int status)
{
	struct shim_path p = {.head = {.bytes = sizeof(p), .type = SHIM_REPATH, .status = status},
			      .dlid = r->dlid,
			      .slid = r->slid,
			      .pkey = r->key.pkey,
			      .mtu = r->mtu,
			      .sl = r->sl,
			      .rate = r->rate};
	struct agent_shim *s;

	memcpy(p.dgid, r->key.dgid, 16);
	memcpy(p.sgid, p.dgid, 8);
	memcpy(p.sgid + 8, r->key.sguid, 8);
	agent_for_each_shim(a, s)
	{
		agent_shim_send(s, &p);
	}
}

static bool same_path(const struct path_record *a, const struct path_record *b)
{
	return a->dlid == b->dlid && a->slid == b->slid && a->sl == b->sl && a->mtu == b->mtu &&
	       a->rate == b->rate;
}

void agent_path_learn(struct agent *a, const struct shim_lid_ask *ask, const struct shim_end *end,
		      bool sole)
{
	struct path_record r = {.key = {.pkey = ask->pkey & PKEY_BASE},
				.dlid = end->dlid,
				.slid = end->slid,
				.pkey = ask->pkey,
				.mtu = end->mtu,
				.sl = end->sl,
				.rate = end->rate,
				.sole = sole};
	const struct path_record *known;
	bool other;

	memcpy(r.key.dgid, end->dgid, sizeof(r.key.dgid));
	memcpy(r.key.sguid, ask->sgid + 8, sizeof(r.key.sguid));
	if (!cache_used(a))
		return;
	known = path_cache_find(&paths.cache, &r.key);
	other = known && !same_path(known, &r);
	path_cache_share_lid(&paths.cache, &r.key, ask->lid); /* who had it before has it no more */
	path_cache_put(&paths.cache, &r);
	if (other) /* the host's notice comes later, and finds nothing to change */
		tell_shims(a, &r, 0);
}

static void tell_changed(void *arg, const struct path_record *r)
{
	tell_shims(arg, r, 0);
}

static void tell_dropped(void *arg, const struct path_record *r)
{
	tell_shims(arg, r, -ESTALE);
}

void agent_path_change(struct agent *a, const struct path_change *change)
{
	unsigned n = path_cache_change(&paths.cache, change,
				       change->mask ? tell_changed : tell_dropped, a);

	answers_stale(change->dguid);
	if (change->mask)
		paths.changed += n;
	else
		paths.dropped += n;
}

void agent_path_use(struct agent *a, bool on)
{
	if (a->path_cache != on)
		log_info("path records are %s", on ? "kept" : "not kept any more");
	a->path_cache = on;
	if (!on)
		agent_path_flush(a);
}

/* Processes ask again for what they use, and so are told of it again. */
void agent_path_flush(struct agent *a)
{
	struct shim_path none = {
		.head = {.bytes = sizeof(none), .type = SHIM_REPATH, .status = -ESTALE}};
	struct agent_shim *s;

	agent_for_each_shim(a, s)
	{
		if (a->path_cache)
			agent_shim_send(s, &none);
	}
	paths.dropped += paths.cache.count;
	path_cache_free(&paths.cache);
	answers_stale(0);
}

void agent_path_counters(struct json_object *ret_obj)
{
	json_set_u64(ret_obj, "queries", paths.queries);
	json_set_u64(ret_obj, "saved", paths.saved);
	json_set_u64(ret_obj, "failed", paths.failed);
	json_set_u64(ret_obj, "reconnect_queries", paths.reconnect_queries);
	json_set_u64(ret_obj, "reconnect_saved", paths.reconnect_saved);
	json_set_u64(ret_obj, "changed", paths.changed);
	json_set_u64(ret_obj, "dropped", paths.dropped);
	json_set_u64(ret_obj, "entries", paths.cache.count);
	json_set_u64(ret_obj, "bytes", path_cache_bytes(&paths.cache));
}
