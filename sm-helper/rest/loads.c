/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/loads: how full the hosts' links are, and which VM fills them, from the switches' port
 * counters, looked at twice. Changes nothing: the counters are not reset. */
#include "common/util.h"
#include "sm-helper/fabric/rates.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/rest/rest_int.h"
#include "sm-helper/watch/verify.h"

#include <errno.h>
#include <time.h>

#define INTERVAL_MS     1000
#define INTERVAL_MAX_MS 5000

/* A port of a switch, and what went through it. */
struct load {
	uint32_t sw;
	unsigned port, mbps;
	uint64_t port_guid; /* GUID of the CA port behind it; 0: the link to a vSwitch */
	uint32_t vswitch;   /* vSwitch that this link leads to, or that the port is of */
	struct probe_counters first, last;
};

struct loads {
	struct verify v;
	struct load *load; /* owned; a vSwitch's link, then its ports */
	unsigned count, room;
};

static int add(struct loads *g, struct load one)
{
	if (g->count == g->room) {
		unsigned room = g->room ? 2 * g->room : 64;
		struct load *grown = realloc(g->load, room * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		g->load = grown;
		g->room = room;
	}
	g->load[g->count++] = one;
	return 0;
}

/* Per vSwitch: its link, seen from the leaf, and the ports with VFs. */
static int add_vswitch(struct loads *g, uint32_t at)
{
	const struct fabric_switch *s = &g->v.f.sw[at];
	int rc = 0;

	for (unsigned p = 1; !rc && p <= s->ports; p++)
		if (s->peer[p].sw != FABRIC_NONE)
			rc = add(g, (struct load){.sw = s->peer[p].sw,
						  .port = s->peer[p].port,
						  .vswitch = at});
	for (unsigned p = 1; !rc && p <= s->ports; p++)
		if (s->peer[p].end != FABRIC_NONE)
			rc = add(g, (struct load){.sw = at,
						  .port = p,
						  .port_guid = g->v.f.end[s->peer[p].end].port_guid,
						  .vswitch = at});
	return rc;
}

static int collect(struct loads *g, const struct ops *o, struct op_error *e)
{
	ops_judge_vswitches(o, &g->v.f);
	for (uint32_t i = 0; i < g->v.f.switches; i++)
		if (g->v.f.sw[i].inside && add_vswitch(g, i))
			return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	return 0;
}

static int sample(struct loads *g, bool last, struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	int rc = 0;

	for (unsigned i = 0; !rc && i < g->count; i++) {
		struct load *x = &g->load[i];
		uint16_t lid = g->v.f.sw[x->sw].lid;

		rc = probe_counters(g->v.m, lid, x->port, last ? &x->last : &x->first, text);
		if (!rc && !last && !x->port_guid)
			rc = probe_link_mbps(g->v.m, lid, x->port, &x->mbps, text);
	}
	return rc ? ops_fail(e, rc, 503, "no-counters", "%s", text) : 0;
}

static void set_rate(struct json_object *o, const char *key, uint64_t rate)
{
	if (rate == RATE_UNKNOWN)
		json_set(o, key, NULL);
	else
		json_set_u64(o, key, rate);
}

/* Rates as the host sees them: out is what it sends. The switch's port sends what the host
 * receives. */
static void set_rates(struct json_object *o, const struct port_rates *r)
{
	set_rate(o, "in_mbps", r->out_mbps);
	set_rate(o, "out_mbps", r->in_mbps);
}

static struct json_object *port_json(const struct load *x)
{
	struct port_rates r = rates_between(&x->first, &x->last);
	struct json_object *o = json_object_new_object();

	json_set_guid(o, "guid", x->port_guid);
	set_rates(o, &r);
	return o;
}

static struct json_object *link_json(const struct loads *g, unsigned *i)
{
	const struct load *x = &g->load[(*i)++];
	struct json_object *o = json_object_new_object(), *ports = json_object_new_array();
	struct port_rates r = rates_between(&x->first, &x->last);

	json_set_str(o, "switch", g->v.f.sw[x->sw].desc);
	json_set_u64(o, "port", x->port);
	json_set_str(o, "to", g->v.f.sw[x->vswitch].desc);
	json_set_u64(o, "mbps", x->mbps);
	set_rates(o, &r);
	set_rate(o, "wait_per_s", r.wait_per_s);
	json_set_bool(o, "wait_stuck", r.wait_stuck);
	for (; *i < g->count && g->load[*i].port_guid; (*i)++)
		json_object_array_add(ports, port_json(&g->load[*i]));
	json_set(o, "ports", ports);
	return o;
}

static int look(struct loads *g, struct ops *o, uint64_t ms, struct op_error *e)
{
	const struct timespec rest = {.tv_sec = (time_t)(ms / 1000),
				      .tv_nsec = (long)(ms % 1000) * 1000000};
	char text[PROBE_ERROR_MAX];
	int rc;

	if (action_sm_moves(o))
		return ops_fail(e, -EOPNOTSUPP, 503, "no-umad", "backend %s sees no switches",
				backend_kind(o->backend)->name);
	rc = verify_begin(&g->v, o->eyes, NULL, 0, text);
	if (rc)
		return ops_fail(e, rc, 503, "no-umad", "%s", text);
	if ((rc = collect(g, o, e)) || (rc = sample(g, false, e)))
		return rc;
	nanosleep(&rest, NULL);
	return sample(g, true, e);
}

static void run_loads(struct rest_call *call)
{
	struct json_object *list = json_object_new_array();
	struct loads g = {0};
	uint64_t ms = INTERVAL_MS;

	call->reply = json_object_new_object();
	json_set(call->reply, "links", list);
	if (*call->arg[0] && parse_u64(call->arg[0], 100, INTERVAL_MAX_MS, &ms)) {
		rest_bad_request(call, "interval_ms must be 100 to 5000");
		return;
	}
	if (!look(&g, call->rest->ops, ms, &call->error))
		for (unsigned i = 0; i < g.count;)
			json_object_array_add(list, link_json(&g, &i));
	json_set_u64(call->reply, "interval_ms", ms);
	verify_end(&g.v);
	free(g.load);
}

void rest_get_loads(struct http_request *req)
{
	const char *arg[REST_ARGS_MAX] = {http_query(req->exchange, "interval_ms")};

	rest_submit_read(req, run_loads, arg);
}
