/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `query`: asks every process what it has and gathers the answers. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#define QUERIES_MAX 8
#define ANSWER_MS   3000 /* the default, where the host does not say */
#define WAIT_MAX_MS 60000
#define PEERS_MAX   4096
#define PKEYS_MAX   256          /* of a process */
#define TEXT_MAX    (900u << 10) /* text of QPs in one answer, below the limit of a frame */

struct query {
	uint64_t id; /* the host's request; 0: free */
	uint32_t cookie;
	struct agent *agent;
	struct loop_timer *timer;
	unsigned pending;
	bool asked[SHIM_SLOT_MAX + 1];
	size_t text_bytes;
	bool truncated;
	struct json_object *processes, *peers, *uncovered;
	struct json_object *qps_of[SHIM_SLOT_MAX + 1];   /* borrowed from processes */
	struct json_object *pkeys_of[SHIM_SLOT_MAX + 1]; /* likewise */
};

static struct query queries[QUERIES_MAX];
static uint32_t last_cookie;

/* The port of each VF that the host says is ours, as this guest sees it. */
static struct json_object *vf_ports(const struct agent *a)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < a->vf_count; i++) {
		struct json_object *o = json_object_new_object();
		char device[SHIM_DEVICE_MAX];
		int rc = agent_device_find(a->vf[i], device);

		json_set_guid(o, "vguid", a->vf[i]);
		json_set_str(o, "port", !rc ? "active" : rc == -ENODEV ? "none" : "down");
		json_object_array_add(list, o);
	}
	return list;
}

static void query_finish(struct query *q)
{
	struct json_object *answer = json_object_new_object();
	struct json_object *counters = json_object_new_object();
	struct json_object *kernel = json_object_new_array();
	uint64_t id = q->id;

	agent_holders(q->agent, q->uncovered);
	json_set(answer, "processes", q->processes);
	json_set(answer, "peers", q->peers);
	json_set(answer, "uncovered", q->uncovered);
	agent_kernel_users(q->agent, kernel);
	json_set(answer, "kernel", kernel);
	json_set(answer, "vfs", vf_ports(q->agent));
	agent_path_counters(counters);
	json_set(answer, "paths", counters);
	if (q->truncated)
		json_set_bool(answer, "truncated", true);
	loop_timer_disarm(q->timer);
	q->id = 0;
	agent_answer(q->agent, id, answer);
}

static void query_timeout(void *arg)
{
	struct query *q = arg;
	struct agent_shim *s;

	if (!q->id)
		return;
	agent_for_each_shim(q->agent, s)
	{
		if (!q->asked[s->slot])
			continue;
		struct json_object *u = json_object_new_object();
		json_set_u64(u, "pid", (uint64_t)s->pid);
		json_set_str(u, "comm", s->comm);
		json_set_str(u, "why", "the process does not answer the agent");
		json_object_array_add(q->uncovered, u);
	}
	query_finish(q);
}

static struct query *query_new(struct agent *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
		struct query *q = &queries[i];
		struct loop_timer *timer = q->timer;

		if (q->id)
			continue;
		if (!timer && loop_timer_new(a->loop, query_timeout, q, &timer))
			return NULL;
		*q = (struct query){.agent = a, .timer = timer};
		q->processes = json_object_new_array();
		q->peers = json_object_new_array();
		q->uncovered = json_object_new_array();
		q->cookie = ++last_cookie ? last_cookie : ++last_cookie;
		return q;
	}
	return NULL;
}

void agent_query(struct agent *a, uint64_t id, uint64_t deadline_ms)
{
	struct query *q = query_new(a);
	struct agent_shim *s;

	if (!deadline_ms || deadline_ms > WAIT_MAX_MS)
		deadline_ms = deadline_ms ? WAIT_MAX_MS : ANSWER_MS;
	if (!q) {
		agent_answer_error(a, id, "%d queries are running already", QUERIES_MAX);
		return;
	}
	q->id = id;
	struct shim_head ask = {sizeof(ask), SHIM_QUERY, 0, q->cookie, 0};
	agent_for_each_shim(a, s)
	{
		q->asked[s->slot] = true;
		q->pending++;
		agent_shim_send(s, &ask);
	}
	if (q->pending)
		loop_timer_arm(q->timer, deadline_ms);
	else
		query_finish(q);
}

static struct query *query_of(const struct agent_shim *s, uint32_t cookie)
{
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++)
		if (queries[i].id && queries[i].cookie == cookie && queries[i].asked[s->slot])
			return &queries[i];
	return NULL;
}

static void set_text(struct json_object *o, const char *key, const char *text, size_t max)
{
	char copy[SHIM_TEXT_MAX + 1];

	agent_text(copy, sizeof(copy), text, max);
	json_set_str(o, key, copy);
}

void agent_query_process(struct agent_shim *s, const struct shim_process *p)
{
	struct query *q = query_of(s, p->head.cookie);

	if (!q || q->qps_of[s->slot])
		return;
	struct json_object *o = json_object_new_object();
	json_set_u64(o, "pid", (uint64_t)s->pid);
	json_set_str(o, "comm", s->comm);
	json_set_u64(o, "slot", s->slot);
	json_set_u64(o, "mr_bytes", p->mr_bytes);
	q->qps_of[s->slot] = json_object_new_array();
	json_set(o, "qps", q->qps_of[s->slot]);
	q->pkeys_of[s->slot] = json_object_new_array();
	json_set(o, "pkeys", q->pkeys_of[s->slot]);
	json_object_array_add(q->processes, o);
	if (!p->uncovered)
		return;
	struct json_object *u = json_object_new_object();
	json_set_u64(u, "pid", (uint64_t)s->pid);
	json_set_str(u, "comm", s->comm);
	set_text(u, "why", p->why, sizeof(p->why));
	json_object_array_add(q->uncovered, u);
}

static const char *qp_type_name(unsigned type)
{
	switch (type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_RAW_PACKET:
		return "RAW";
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return "XRC";
	default:
		return "other";
	}
}

static const char *qp_state_name(unsigned state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

static void add_peer(struct query *q, const char *sgid, const char *dgid)
{
	size_t n = json_object_array_length(q->peers);

	for (size_t i = 0; i < n; i++) {
		struct json_object *p = json_object_array_get_idx(q->peers, i);

		if (str_eq(json_opt_str(p, "sgid", ""), sgid) &&
		    str_eq(json_opt_str(p, "dgid", ""), dgid))
			return;
	}
	if (n == PEERS_MAX) {
		q->truncated = true;
		return;
	}
	struct json_object *p = json_object_new_object();
	json_set_str(p, "sgid", sgid);
	json_set_str(p, "dgid", dgid);
	json_object_array_add(q->peers, p);
}

/* P_Keys of a process and vGUID, each once: the list is whole where that of the QPs is cut. */
static void add_pkey(struct json_object *list, uint64_t vguid, const char *pkey)
{
	char guid[IB_GUID_TEXT];
	size_t n = json_object_array_length(list);
	struct json_object *p;

	ib_guid_format(vguid, guid);
	for (size_t i = 0; i < n; i++) {
		p = json_object_array_get_idx(list, i);
		if (str_eq(json_opt_str(p, "vguid", ""), guid) &&
		    str_eq(json_opt_str(p, "pkey", ""), pkey))
			return;
	}
	if (n == PKEYS_MAX)
		return;
	p = json_object_new_object();
	json_set_str(p, "vguid", guid);
	json_set_str(p, "pkey", pkey);
	json_object_array_add(list, p);
}

void agent_query_qp(struct agent_shim *s, const struct shim_qp_info *i)
{
	struct query *q = query_of(s, i->head.cookie);
	char sgid[IB_GID_TEXT], dgid[IB_GID_TEXT], pkey[8];
	struct ib_gid gid;

	if (!q || !q->qps_of[s->slot])
		return;
	struct json_object *o = json_object_new_object();
	json_set_u64(o, "vqpn", i->vqpn);
	json_set_u64(o, "qpn", i->qpn);
	json_set_str(o, "type", qp_type_name(i->type));
	json_set_str(o, "state", qp_state_name(i->state));
	json_set_guid(o, "vguid", i->vguid);
	json_set_u64(o, "unacked", i->unacked);
	json_set_u64(o, "unacked_bytes", i->unacked_bytes);
	if (i->pkey) {
		snprintf(pkey, sizeof(pkey), "0x%04x", i->pkey);
		json_set_str(o, "pkey", pkey);
		add_pkey(q->pkeys_of[s->slot], i->vguid, pkey);
	}
	if (i->uncovered)
		json_set_bool(o, "uncovered", true);
	if (i->connected) {
		ib_gid_from_bytes(i->sgid, &gid);
		ib_gid_format(&gid, sgid);
		ib_gid_from_bytes(i->dgid, &gid);
		ib_gid_format(&gid, dgid);
		json_set_str(o, "dgid", dgid);
		json_set_u64(o, "dvqpn", i->dvqpn);
		json_set_u64(o, "dqpn", i->dqpn);
		add_peer(q, sgid, dgid);
	}
	q->text_bytes += strlen(json_text(o));
	if (q->text_bytes > TEXT_MAX) {
		q->truncated = true;
		json_object_put(o);
		return;
	}
	json_object_array_add(q->qps_of[s->slot], o);
}

void agent_query_peer(struct agent_shim *s, const struct shim_peer_info *p)
{
	struct query *q = query_of(s, p->head.cookie);
	char sgid[IB_GID_TEXT], dgid[IB_GID_TEXT];
	struct ib_gid gid;

	if (!q)
		return;
	ib_gid_from_bytes(p->sgid, &gid);
	ib_gid_format(&gid, sgid);
	ib_gid_from_bytes(p->dgid, &gid);
	ib_gid_format(&gid, dgid);
	add_peer(q, sgid, dgid);
}

static void query_one_done(struct query *q, const struct agent_shim *s)
{
	q->asked[s->slot] = false;
	if (!--q->pending)
		query_finish(q);
}

void agent_query_end(struct agent_shim *s, uint32_t cookie)
{
	struct query *q = query_of(s, cookie);

	if (q)
		query_one_done(q, s);
}

void agent_query_forget_shim(struct agent_shim *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++)
		if (queries[i].id && queries[i].asked[s->slot])
			query_one_done(&queries[i], s);
}
