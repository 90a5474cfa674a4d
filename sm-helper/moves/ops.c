/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Needs of all operations: the state of OpenSM, places, what the fabric really does. */
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "sm-helper/fabric/lft_reader.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* A VF may need a moment until it shows a GUID that was set on it. */
#define SHOW_US       500000
#define SHOW_POLL_US  5000
#define SWEEP_POLL_US 2000
#define AGAIN_POLL_US 100000
#define STEP_MIN_MS   1000

int ops_fail(struct op_error *e, int rc, unsigned status, const char *code, const char *fmt, ...)
{
	va_list ap;

	e->status = status;
	snprintf(e->code, sizeof e->code, "%s", code);
	va_start(ap, fmt);
	vsnprintf(e->detail, sizeof e->detail, fmt, ap);
	va_end(ap);
	return rc;
}

int ops_fail_registry(struct op_error *e, int rc)
{
	return ops_fail(e, rc, 500, "registry", "the registry cannot be read or written");
}

int ops_fail_plugin(struct op_error *e, int rc, const char *text)
{
	static const struct {
		int rc;
		unsigned status;
		const char *code;
	} map[] = {
		{-ECONNREFUSED, 503, "sm-unavailable"},
		{-ECONNRESET, 503, "sm-unavailable"},
		{-ETIMEDOUT, 503, "sm-unavailable"},
		{-EHOSTDOWN, 503, "sm-not-master"},
		{-EKEYREJECTED, 503, "registry-fenced"},
		{-EBUSY, 503, "sm-busy"},
		{-ESTALE, 503, "sm-busy"},
		{-EAGAIN, 503, "sm-busy"},
		{-EEXIST, 409, "guid-in-fabric"},
		{-ENOENT, 409, "unknown-vf"},
		{-EADDRINUSE, 409, "no-free-lid"},
		{-ENOSPC, 409, "pkey-table-full"},
		{-EOPNOTSUPP, 409, "not-a-vf"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (map[i].rc == rc)
			return ops_fail(e, rc, map[i].status, map[i].code, "%s", text);
	return ops_fail(e, rc, 500, "sm-failed", "%s", text);
}

int ops_start(struct ops *o, uint64_t deadline_us, struct op_error *e)
{
	uint64_t now = now_us(), until = deadline_us ? deadline_us : now + OPS_ANSWER_MS * 1000ull;

	o->give_up_us = until - OPS_UNDO_MS * 1000ull;
	if (o->give_up_us > now)
		return 0;
	return ops_fail(e, -EBUSY, 503, "sm-busy",
			"other changes have taken the time that was given; nothing was done: call "
			"again");
}

unsigned ops_left_ms(const struct ops *o)
{
	uint64_t now = now_us(), left = o->give_up_us > now ? (o->give_up_us - now) / 1000 : 0;

	return left < STEP_MIN_MS       ? STEP_MIN_MS
	       : left > OPS_DEADLINE_MS ? OPS_DEADLINE_MS
					: (unsigned)left;
}

unsigned ops_judge_vswitches(const struct ops *o, struct fabric *f)
{
	unsigned n = 0;

	if (!o->leaves)
		fabric_find_vswitches(f);
	for (uint32_t i = 0; i < f->switches; i++)
		n += f->sw[i].inside;
	return n;
}

/* A leaf with one uplink looks the same; then its hosts would be taken for one. */
static void say_vswitches(struct ops *o, unsigned count)
{
	uint32_t i = 0;

	if (!count || o->said_vswitches)
		return;
	o->said_vswitches = true;
	while (!o->fabric.sw[i].inside)
		i++;
	log_notice("switch %s has one uplink and is taken for the vSwitch of one host (%u such); "
		   "where they are leaves, set vswitches = no",
		   o->fabric.sw[i].desc, count);
}

int ops_refresh(struct ops *o, struct op_error *e)
{
	struct sm_status_reply s;
	char text[BACKEND_ERROR_MAX];
	int rc = backend_status(o->backend, &s, text);

	if (o->twin)
		twin_sm(o->twin, s.instance, !rc && s.sm_state == SM_STATE_MASTER);
	if (rc)
		return ops_fail_plugin(e, rc, text);
	own_claim(o, &s);
	o->others = s.others;
	o->parked_at_sm = s.parked;
	if (s.sm_state != SM_STATE_MASTER) {
		o->reconciled = false; /* the other one may leave something unfinished */
		return ops_fail_plugin(e, -EHOSTDOWN,
				       "this OpenSM is not the master; ask the one that is");
	}
	if (!s.ready)
		return ops_fail_plugin(e, -EAGAIN,
				       "OpenSM has not finished its first sweep: try again");
	if (s.instance != o->instance) {
		if (o->instance)
			log_notice("OpenSM was restarted");
		o->reconciled = false;
		o->instance = s.instance;
	}
	if (o->epoch.instance == s.instance && o->epoch.generation == s.generation)
		return 0;
	rc = backend_fabric(o->backend, &o->fabric, &o->epoch, text);
	if (rc)
		o->epoch = (struct backend_epoch){0};
	else
		say_vswitches(o, ops_judge_vswitches(o, &o->fabric));
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

bool ops_again(const struct ops *o, int rc, struct op_error *e)
{
	bool passes = rc == -ESTALE || rc == -EAGAIN || rc == -ENOTCONN || rc == -EREMOTEIO ||
		      rc == -EIO;

	if (!passes || now_us() >= o->give_up_us)
		return false;
	usleep(rc == -ESTALE ? SWEEP_POLL_US : AGAIN_POLL_US);
	*e = (struct op_error){0};
	return true;
}

int ops_sweep(struct ops *o, struct op_error *e)
{
	unsigned wait_ms = ops_left_ms(o);
	uint64_t give_up = now_us() + wait_ms * 1000ull;
	struct sm_status_reply s;
	char text[BACKEND_ERROR_MAX];
	int rc = backend_sweep(o->backend, text);

	while (!rc && !(rc = backend_status(o->backend, &s, text)) && s.sweeping) {
		if (now_us() >= give_up)
			return ops_fail(e, -EBUSY, 503, "sm-busy",
					"OpenSM has not finished a heavy sweep within %u ms",
					wait_ms);
		usleep(SWEEP_POLL_US);
	}
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

/* Fills in what o->fabric shows at the place of a target. */
static void expect(const struct ops *o, struct sm_target *t)
{
	uint32_t end = fabric_end_at(&o->fabric, t->switch_guid, t->switch_port);

	if (!o->epoch.instance || end == FABRIC_NONE)
		return;
	t->was_guid = o->fabric.end[end].port_guid;
	t->was_lid = o->fabric.end[end].lid;
}

/* Keeps o->fabric in step with a batch: it is as the plugin says, where nothing else has happened
 * since it was read. Reading a large net again takes longer than the batch. */
static void follow(struct ops *o, const struct sm_target *t, unsigned count,
		   const struct sm_assign_reply *r)
{
	struct fabric_identity to[SM_ASSIGN_MAX];
	bool known = o->epoch.instance && o->epoch.instance == r->instance &&
		     o->epoch.generation == r->generation_before;

	for (unsigned i = 0; known && i < count; i++) {
		to[i] = (struct fabric_identity){
			fabric_end_at(&o->fabric, t[i].switch_guid, t[i].switch_port),
			t[i].node_guid, t[i].port_guid, r->lid[i]};
		known = to[i].end != FABRIC_NONE;
	}
	if (known && !fabric_set_identities(&o->fabric, to, count))
		o->epoch.generation = r->generation;
	else
		o->epoch = (struct backend_epoch){0};
}

/* A batch is known where another OpenSM could have to end it, before it begins. */
static int tell_twin(struct ops *o, const struct sm_target *t, unsigned count, struct op_error *e)
{
	char text[BACKEND_ERROR_MAX];
	int rc = o->twin ? twin_tell(o->twin, t, count, text) : 0;

	if (!rc)
		return 0;
	if (rc == -EPERM)
		return ops_fail(e, -EHOSTDOWN, 503, "sm-not-master", "peer: %.500s", text);
	if (o->others || !o->others_looked)
		return ops_fail(e, -EHOSTDOWN, 503, "standby-not-in-sync",
				"another OpenSM is in the fabric (or not yet looked for) and would "
				"take over, but the ibvmig-sm beside it cannot be told: %.400s",
				text);
	rc = twin_go_alone(o->twin);
	return rc ? ops_fail_registry(e, rc) : 0;
}

int ops_tell_twin(struct ops *o, struct op_error *e)
{
	return tell_twin(o, NULL, 0, e);
}

void ops_publish(struct ops *o)
{
	char text[BACKEND_ERROR_MAX];

	if (o->twin && twin_tell(o->twin, NULL, 0, text))
		twin_go_alone(o->twin);
}

int ops_assign(struct ops *o, const struct sm_target *targets, unsigned count, uint32_t flags,
	       struct sm_assign_reply *r, bool *ret_unknown, struct op_error *e)
{
	struct sm_target t[SM_ASSIGN_MAX];
	char text[BACKEND_ERROR_MAX];
	int rc;

	for (unsigned i = 0; i < count && i < SM_ASSIGN_MAX; i++) {
		t[i] = targets[i];
		t[i].was_guid = t[i].was_lid = 0;
		expect(o, &t[i]);
	}
	*ret_unknown = false;
	if ((rc = tell_twin(o, t, count, e)))
		return rc;
	atomic_fetch_add(&o->batches, 1);
	rc = backend_assign(o->backend, t, count, flags, ops_left_ms(o), r, text);
	atomic_fetch_add(&o->batches, 1);
	*ret_unknown = rc == -ECONNRESET || rc == -ETIMEDOUT;
	if (!rc)
		follow(o, t, count, r);
	else if (rc != -EADDRINUSE) /* a LID was refused: all is as it was, and the next is tried */
		o->epoch = (struct backend_epoch){0};
	path_service_expire(o->paths);
	if (*ret_unknown)
		o->reconciled = false;
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

bool ops_locate(const struct ops *o, uint64_t port_guid, struct reg_vf *ret_vf)
{
	uint32_t end = fabric_find_end(&o->fabric, port_guid);

	if (end == FABRIC_NONE || o->fabric.end[end].sw == FABRIC_NONE)
		return false;
	ret_vf->switch_guid = o->fabric.sw[o->fabric.end[end].sw].guid;
	ret_vf->switch_port = o->fabric.end[end].sw_port;
	return true;
}

bool ops_same_place(const struct reg_vf *a, const struct reg_vf *b)
{
	return a->switch_guid == b->switch_guid && a->switch_port == b->switch_port;
}

uint16_t ops_lid_at(const struct ops *o, const struct reg_vf *at)
{
	uint32_t end = fabric_end_at(&o->fabric, at->switch_guid, at->switch_port);

	return end == FABRIC_NONE ? 0 : o->fabric.end[end].lid;
}

/* The directed route from our own port to a switch, and on through port `on` if it is not 0. */
static int route_to(struct ops *o, uint64_t switch_guid, unsigned on, struct probe_route *ret_route,
		    struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	uint64_t own;
	int rc = probe_own_guid(o->probe, &own, text);

	if (rc)
		return ops_fail(e, rc, 503, "no-umad", "%s", text);
	rc = fabric_route(&o->fabric, fabric_find_end(&o->fabric, own),
			  fabric_find_switch(&o->fabric, switch_guid), ret_route->path);
	if (rc < 0)
		return ops_fail(e, rc, 503, "no-route",
				"OpenSM's topology has no way from our own port 0x%016" PRIx64
				" to switch 0x%016" PRIx64,
				own, switch_guid);
	ret_route->hops = rc;
	if (on)
		ret_route->path[++ret_route->hops] = (uint8_t)on;
	return 0;
}

int ops_check_shows(struct ops *o, const struct reg_vf *vf, uint64_t guid, uint64_t *ret_node_guid,
		    struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	uint64_t shown, give_up = now_us() + SHOW_US;
	struct probe_route route;
	int rc = route_to(o, vf->switch_guid, vf->switch_port, &route, e);

	if (rc)
		return rc;
	do {
		rc = probe_node_info(o->probe, &route, ret_node_guid, &shown, text);
		if (rc)
			return ops_fail(e, -ENOTCONN, 503, "no-answer", "VF %s of %s: %s", vf->vf,
					vf->host, text);
	} while (shown != guid && now_us() < give_up && !usleep(SHOW_POLL_US));
	if (shown != guid)
		return ops_fail(e, -EINVAL, 409, "guid-not-set",
				"VF %s of %s shows port GUID 0x%016" PRIx64 ", not 0x%016" PRIx64
				": set the GUID on the VF before",
				vf->vf, vf->host, shown, guid);
	return 0;
}

void ops_forget(struct ops *o)
{
	fabric_forget_lfts(&o->fabric);
}

int ops_verify(struct ops *o, const struct sm_target *t, uint16_t lid, unsigned *ret_walks,
	       enum reach_by *ret_by, struct op_error *e)
{
	uint32_t end = fabric_end_at(&o->fabric, t->switch_guid, t->switch_port);
	struct lft_reader reader = {.m = o->probe};
	char text[PROBE_ERROR_MAX];
	unsigned lids, walks;
	int rc;

	*ret_walks = 0;
	if (end == FABRIC_NONE)
		return ops_fail(e, -EHOSTUNREACH, 500, "not-verified",
				"OpenSM's topology shows no VF at port %u of switch 0x%016" PRIx64,
				t->switch_port, t->switch_guid);
	rc = probe_own_guid(o->probe, &reader.own_guid, text);
	lids = 1u << o->fabric.end[end].lmc;
	for (unsigned i = 0; !rc && i < lids; i++, *ret_walks += walks)
		rc = walk_verify(&o->fabric, (uint16_t)(lid + i), end, o->verify_sources, lft_fetch,
				 &reader, &walks, text, sizeof text);
	if (rc)
		return ops_fail(e, rc, 500, "not-verified", "%s", text);
	if (reach_lid(&o->reach, o->probe, &o->fabric, end, lid, t->port_guid, ret_by, text))
		return ops_fail(e, -EHOSTUNREACH, 500, "not-verified", "%s", text);
	return 0;
}
