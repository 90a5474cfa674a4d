/* SPDX-License-Identifier: GPL-2.0-or-later */
/* suspend and resume: one at a time, in steps that every process of the guest takes together.
 *
 *   QUIET     suspend: all sends have ended, and both ends agree.
 *   RELEASE   suspend: QPs, then devices, are given back.
 *   DEVICE    resume: the mover's new device is up.
 *   RESUME    resume: all is rebuilt, connected and replayed.
 *
 * A step that fails in QUIET is undone by ABORT, later ones by a resume on the same device. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define DEADLINE_MIN_MS 10
#define DEADLINE_MAX_MS 600000
#define GRACE_MS        1000 /* the shims keep the deadline, the agent only their death */
#define RECHECK_MS      10   /* a port that turns ACTIVE tells nobody on some drivers */

enum suspend_state { SUSPEND_NONE, SUSPEND_QUIET, SUSPEND_RELEASE, SUSPEND_DEVICE, SUSPEND_RESUME };

static const char *const state_names[] = {"none", "quiet", "release", "device", "resume"};

static struct {
	struct agent *agent;
	enum suspend_state state;
	uint64_t id; /* the host's request; 0: ours, after a failure */
	struct shim_order order;
	char migration[64];
	unsigned pending;
	struct shim_report sum;
	uint64_t start_us, port_active_us;
	struct loop_timer *deadline, *recheck;
	int error;
	char why[256];

	uint64_t failed_id; /* suspend to be refused when everything runs again */
	char failed_why[256];
	struct {
		uint64_t migration; /* 0: nothing is suspended */
		struct shim_order order;
		struct shim_report sum;
	} suspended;
	struct shim_order last_resume;                /* for processes that come late to it */
	char ahead[SHIM_VGUIDS_MAX][SHIM_DEVICE_MAX]; /* the last thing that build_ahead() told */
} suspend;

static void suspend_step(enum suspend_state state, uint16_t order);
static void suspend_device(void *arg);

static uint64_t hash_text(const char *text)
{
	uint64_t h = 14695981039346656037ull; /* FNV-1a */

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 1099511628211ull;
	return h ? h : 1;
}

static void order_all(uint16_t type, bool wait)
{
	struct agent_shim *s;

	suspend.order.head = (struct shim_head){.bytes = sizeof(suspend.order), .type = type};
	suspend.pending = 0;
	agent_for_each_shim(suspend.agent, s)
	{
		s->suspend_pending = wait;
		s->join = JOIN_NONE;
		suspend.pending += wait;
		agent_shim_send(s, &suspend.order);
	}
}

static void send_order(struct agent_shim *s, const struct shim_order *order, uint16_t type)
{
	struct shim_order o = *order;

	o.head = (struct shim_head){.bytes = sizeof(o), .type = type};
	agent_shim_send(s, &o);
}

static void answer_suspend(void)
{
	const struct shim_report *r = &suspend.suspended.sum;
	struct json_object *o = json_object_new_object();

	json_set_u64(o, "qps", r->qps);
	json_set_u64(o, "unacked", r->unacked);
	json_set_u64(o, "markers", r->markers);
	json_set_u64(o, "dirtied_bytes", r->dirtied_bytes);
	json_set_u64(o, "drain_us", r->drain_us);
	json_set_u64(o, "dirty_us", r->dirty_us);
	json_set_u64(o, "close_us", r->close_us);
	agent_answer(suspend.agent, suspend.id, o);
}

static void answer_resume(void)
{
	const struct shim_report *r = &suspend.sum;
	struct json_object *o = json_object_new_object();
	struct json_object *paths = json_object_new_object();

	json_set_u64(o, "qps", r->qps);
	json_set_u64(o, "replayed", r->replayed);
	json_set_u64(o, "port_active_us", suspend.port_active_us);
	json_set_u64(o, "rebuild_us", r->rebuild_us);
	json_set_u64(o, "connect_us", r->connect_us);
	json_set_u64(o, "before_us", r->before_us);
	json_set_u64(o, "work_us", r->work_us);
	agent_path_counters(paths);
	json_set(o, "paths", paths);
	agent_answer(suspend.agent, suspend.id, o);
}

static void suspend_end(void)
{
	suspend.state = SUSPEND_NONE;
	loop_timer_disarm(suspend.deadline);
	loop_timer_disarm(suspend.recheck);
	if (suspend.failed_id) {
		agent_answer_error(suspend.agent, suspend.failed_id, "%s", suspend.failed_why);
		suspend.failed_id = 0;
	}
}

/* The error of the suspend is answered when all runs again as before it. */
static void walk_back(void)
{
	suspend.failed_id = suspend.id;
	snprintf(suspend.failed_why, sizeof(suspend.failed_why), "%s", suspend.why);
	suspend.id = 0;
	suspend.error = 0;
	suspend.order.moved = 0;
	suspend.suspended.migration = suspend.order.migration;
	suspend.suspended.order = suspend.order;
	suspend.sum = (struct shim_report){0};
	suspend.start_us = now_us();
	loop_timer_arm(suspend.deadline, suspend.order.deadline_ms);
	suspend.state = SUSPEND_DEVICE;
	suspend_device(NULL);
}

/* Devices that are there, and whose ports are not ACTIVE yet; without names: they have gone. Shims
 * build on them meanwhile. */
static void build_ahead(bool there)
{
	struct shim_order *o = &suspend.order;
	struct agent_shim *s;

	if (!there)
		memset(o->device, 0, sizeof(o->device));
	if (!memcmp(o->device, suspend.ahead, sizeof(suspend.ahead)))
		return;
	memcpy(suspend.ahead, o->device, sizeof(suspend.ahead));
	agent_for_each_shim(suspend.agent, s) send_order(s, o, SHIM_BUILD);
}

static void suspend_failed(void)
{
	if (suspend.state == SUSPEND_DEVICE)
		build_ahead(false);
	if (suspend.state == SUSPEND_RELEASE) {
		walk_back();
		return;
	}
	if (suspend.state == SUSPEND_QUIET)
		order_all(SHIM_ABORT, false);
	if (suspend.id)
		agent_answer_error(suspend.agent, suspend.id, "%s", suspend.why);
	else
		agent_log(suspend.agent, LOG_ERROR, "walking back after a failed suspend: %s",
			  suspend.why);
	suspend_end();
}

static void suspend_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void suspend_fail(int error, const char *fmt, ...)
{
	va_list ap;

	if (suspend.error)
		return;
	suspend.error = error;
	va_start(ap, fmt);
	vsnprintf(suspend.why, sizeof(suspend.why), fmt, ap);
	va_end(ap);
}

static void suspend_next(void)
{
	if (suspend.error) {
		suspend_failed();
		return;
	}
	switch (suspend.state) {
	case SUSPEND_QUIET:
		suspend_step(SUSPEND_RELEASE, SHIM_RELEASE);
		break;
	case SUSPEND_RELEASE:
		suspend.suspended.migration = suspend.order.migration;
		suspend.suspended.order = suspend.order;
		suspend.suspended.sum = suspend.sum;
		log_info("%s: suspended %u QPs in %" PRIu64 " us", suspend.migration,
			 suspend.sum.qps, now_us() - suspend.start_us);
		answer_suspend();
		suspend_end();
		break;
	case SUSPEND_DEVICE:
		suspend.last_resume = suspend.order;
		suspend_step(SUSPEND_RESUME, SHIM_RESUME);
		break;
	case SUSPEND_RESUME:
		suspend.suspended.migration = 0;
		log_info("%s: resumed %u QPs in %" PRIu64 " us", suspend.migration, suspend.sum.qps,
			 now_us() - suspend.start_us);
		if (suspend.id)
			answer_resume();
		suspend_end();
		break;
	case SUSPEND_NONE:
		break;
	}
}

static void suspend_step(enum suspend_state state, uint16_t order)
{
	suspend.state = state;
	order_all(order, true);
	if (!suspend.pending)
		suspend_next();
}

/* Says for each vGUID whose device is not ready what is wrong with it. */
static void name_missing(char *text, size_t bytes)
{
	const struct shim_order *o = &suspend.order;
	size_t n = 0;

	for (unsigned i = 0; i < o->vguid_count && n < bytes; i++) {
		char device[SHIM_DEVICE_MAX] = "", guid[IB_GUID_TEXT];
		int rc = agent_device_find(o->vguid[i], device);

		ib_guid_format(o->vguid[i], guid);
		if (rc == -ENETDOWN)
			n += (size_t)snprintf(text + n, bytes - n,
					      "%sthe port of %s, with vGUID %s, is not ACTIVE",
					      n ? "; " : "", device, guid);
		else if (rc)
			n += (size_t)snprintf(text + n, bytes - n,
					      "%sno RDMA device of this guest shows vGUID %s",
					      n ? "; " : "", guid);
	}
}

static void suspend_deadline(void *arg)
{
	struct agent_shim *s;

	(void)arg;
	if (suspend.state == SUSPEND_DEVICE) {
		char missing[sizeof(suspend.why) - 32] = "no device was ready";

		name_missing(missing, sizeof(missing));
		suspend_fail(-ETIMEDOUT, "%s after %u ms", missing, suspend.order.deadline_ms);
	} else {
		agent_for_each_shim(suspend.agent, s) if (s->suspend_pending) suspend_fail(
			-ETIMEDOUT, "process %d (%s) has not finished step \"%s\" in %u ms", s->pid,
			s->comm, state_names[suspend.state], suspend.order.deadline_ms);
		suspend_fail(-ETIMEDOUT, "step \"%s\" took too long", state_names[suspend.state]);
	}
	suspend_failed();
}

static const uint16_t step_report[] = {[SUSPEND_QUIET] = SHIM_QUIET,
				       [SUSPEND_RELEASE] = SHIM_RELEASED,
				       [SUSPEND_RESUME] = SHIM_RESUMED};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void add_report(const struct shim_report *r)
{
	struct shim_report *sum = &suspend.sum;

	sum->qps += r->qps;
	sum->unacked += r->unacked;
	sum->markers += r->markers;
	sum->replayed += r->replayed;
	sum->dirtied_bytes += r->dirtied_bytes;
	sum->drain_us = max_u32(sum->drain_us, r->drain_us);
	sum->dirty_us = max_u32(sum->dirty_us, r->dirty_us);
	sum->close_us = max_u32(sum->close_us, r->close_us);
	sum->rebuild_us = max_u32(sum->rebuild_us, r->rebuild_us);
	sum->connect_us = max_u32(sum->connect_us, r->connect_us);
	sum->before_us = max_u32(sum->before_us, r->before_us);
	sum->work_us = max_u32(sum->work_us, r->work_us);
}

static void suspend_one_done(struct agent_shim *s)
{
	s->suspend_pending = false;
	if (!--suspend.pending || (suspend.error && suspend.state == SUSPEND_QUIET))
		suspend_next();
}

/* A process that starts while its guest is suspended takes the same steps, alone: it has no QPs,
 * and the host does not wait for it. */
static void join_report(struct agent_shim *s, const struct shim_report *r, const char *why)
{
	if (s->join == JOIN_QUIET && r->head.type == SHIM_QUIET && !r->head.status) {
		s->join = JOIN_RELEASE;
		send_order(s,
			   suspend.state == SUSPEND_NONE ? &suspend.suspended.order
							 : &suspend.order,
			   SHIM_RELEASE);
		return;
	}
	if (r->head.status)
		log_warn("process %d (%s) has come late to a suspend: %s", s->pid, s->comm, why);
	s->join = JOIN_NONE;
}

void agent_suspend_report(struct agent_shim *s, const struct shim_report *r)
{
	char why[SHIM_TEXT_MAX + 1];

	agent_text(why, sizeof(why), r->why, sizeof(r->why));
	if (r->head.type == SHIM_RESUMED && !r->head.status && r->migration == s->claims)
		s->claims = 0;
	if (s->join != JOIN_NONE) {
		join_report(s, r, why);
		return;
	}
	if (suspend.state == SUSPEND_NONE || suspend.state == SUSPEND_DEVICE ||
	    r->migration != suspend.order.migration)
		return;
	if (r->head.type == SHIM_ABORTED &&
	    (suspend.state == SUSPEND_QUIET || suspend.state == SUSPEND_RELEASE)) {
		suspend_fail(-ECANCELED, "process %d (%s): %s", s->pid, s->comm, why);
		if (suspend.state == SUSPEND_QUIET)
			suspend_next();
		else if (s->suspend_pending)
			suspend_one_done(s);
		return;
	}
	if (!s->suspend_pending || r->head.type != step_report[suspend.state])
		return;
	if (r->head.status)
		suspend_fail(r->head.status, "process %d (%s): %s", s->pid, s->comm, why);
	else
		add_report(r);
	suspend_one_done(s);
}

/* A process that has died needs no further step. */
void agent_suspend_forget_shim(struct agent_shim *s)
{
	if (s->suspend_pending)
		suspend_one_done(s);
}

bool agent_suspend_holds(void)
{
	if (suspend.state == SUSPEND_NONE)
		return suspend.suspended.migration &&
		       suspend.suspended.order.role == SHIM_ROLE_MOVER;
	return suspend.state != SUSPEND_RESUME && suspend.order.role == SHIM_ROLE_MOVER;
}

static void join_step(struct agent_shim *s, uint16_t type)
{
	s->suspend_pending = true;
	suspend.pending++;
	send_order(s, &suspend.order, type);
}

/* The process has released its QPs on the order of an agent before us, and is told what has come
 * since. */
static void rejoin(struct agent_shim *s, uint64_t suspended)
{
	static const uint16_t orders[] = {[SUSPEND_QUIET] = SHIM_SUSPEND,
					  [SUSPEND_RELEASE] = SHIM_RELEASE,
					  [SUSPEND_RESUME] = SHIM_RESUME};

	s->claims = suspended;
	if (suspend.state != SUSPEND_NONE && suspend.order.migration == suspended) {
		if (suspend.state != SUSPEND_DEVICE) /* else the next step is for it, too */
			join_step(s, orders[suspend.state]);
	} else if (suspend.last_resume.migration == suspended) {
		log_notice("process %d (%s) comes late to a resume", s->pid, s->comm);
		send_order(s, &suspend.last_resume, SHIM_RESUME);
	}
}

void agent_suspend_new_shim(struct agent_shim *s, uint64_t suspended)
{
	if (suspended) {
		rejoin(s, suspended);
	} else if (suspend.state == SUSPEND_QUIET) {
		join_step(s, SHIM_SUSPEND);
	} else if (agent_suspend_holds()) {
		s->join = JOIN_QUIET;
		send_order(s,
			   suspend.state == SUSPEND_NONE ? &suspend.suspended.order
							 : &suspend.order,
			   SHIM_SUSPEND);
	}
}

static int parse_vguids(struct json_object *msg, struct shim_order *o, struct json_reader *r)
{
	struct json_object *a = json_need_array(r, "vguids");
	size_t n = a ? json_object_array_length(a) : 0;

	if (!r->error && (n < 1 || n > SHIM_VGUIDS_MAX)) {
		snprintf(r->message, sizeof(r->message),
			 "field \"vguids\" has %zu entries; allowed is 1 to %d", n,
			 SHIM_VGUIDS_MAX);
		r->error = -EINVAL;
	}
	(void)msg;
	for (size_t i = 0; !r->error && i < n; i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(a, i));

		if (ib_guid_parse(text ? text : "", &o->vguid[i])) {
			snprintf(r->message, sizeof(r->message),
				 "vguids[%zu] is \"%.40s\"; a GUID is 0x and 16 hex digits", i,
				 text);
			r->error = -EINVAL;
		}
	}
	o->vguid_count = (uint32_t)n;
	return r->error;
}

/* 0, or an error that has been answered. The name is borrowed from msg. */
static int suspend_parse(struct agent *a, uint64_t id, struct json_object *msg,
			 struct shim_order *ret_order, const char **ret_name)
{
	struct json_reader r;
	struct shim_order o = {0};

	json_reader_init(&r, msg);
	const char *migration = json_need_str(&r, "migration");
	const char *role = json_need_str(&r, "role");
	o.deadline_ms = (uint32_t)json_need_u64(&r, "deadline_ms", DEADLINE_MIN_MS,
						DEADLINE_MAX_MS);
	parse_vguids(msg, &o, &r);
	if (!r.error && strcmp(role, "mover") && strcmp(role, "peer")) {
		snprintf(r.message, sizeof(r.message),
			 "field \"role\" is \"%.20s\"; allowed are mover and peer", role);
		r.error = -EINVAL;
	}
	if (r.error) {
		agent_answer_error(a, id, "%s", r.message);
		return r.error;
	}
	o.role = str_eq(role, "mover") ? SHIM_ROLE_MOVER : SHIM_ROLE_PEER;
	o.migration = hash_text(migration);
	o.moved = json_opt_bool(msg, "moved", false);
	*ret_order = o;
	*ret_name = migration;
	return 0;
}

static void watch_changed(struct agent *a)
{
	(void)a;
	if (suspend.state == SUSPEND_DEVICE)
		suspend_device(NULL);
}

static int suspend_start(struct agent *a, uint64_t id, const struct shim_order *order,
			 const char *name, unsigned grace_ms)
{
	int rc = 0;

	suspend.agent = a;
	if (!suspend.deadline)
		rc = loop_timer_new(a->loop, suspend_deadline, NULL, &suspend.deadline);
	if (!rc && !suspend.recheck)
		rc = loop_timer_new(a->loop, suspend_device, NULL, &suspend.recheck);
	if (!rc)
		rc = agent_device_watch(a, watch_changed);
	if (rc) {
		agent_answer_error(a, id, "cannot start: %s", strerror(-rc));
		return rc;
	}
	snprintf(suspend.migration, sizeof(suspend.migration), "%s", name);
	suspend.id = id;
	suspend.order = *order;
	suspend.error = 0;
	suspend.sum = (struct shim_report){0};
	suspend.start_us = now_us();
	suspend.port_active_us = 0;
	memset(suspend.ahead, 0, sizeof(suspend.ahead));
	loop_timer_arm(suspend.deadline, order->deadline_ms + grace_ms);
	return 0;
}

static bool refuse_busy(struct agent *a, uint64_t id)
{
	if (suspend.state == SUSPEND_NONE)
		return false;
	agent_answer_error(a, id, "step \"%s\" of another suspend or resume is running",
			   state_names[suspend.state]);
	return true;
}

/* The word of one process says nothing about the guest, and ends with it. */
static bool refuse_claim(struct agent *a, uint64_t id, uint64_t migration)
{
	struct agent_shim *s, *found = NULL;

	agent_for_each_shim(a, s) if (s->claims && s->claims != migration) found = s;
	if (found)
		agent_answer_error(
			a, id,
			"process %d (%s) says that it is suspended by another migration: "
			"resume that first, or end the process",
			found->pid, found->comm);
	return found;
}

void agent_suspend(struct agent *a, uint64_t id, struct json_object *msg)
{
	struct shim_order order;
	const char *name;

	if (agent_settle(a, id, msg, agent_suspend) || suspend_parse(a, id, msg, &order, &name))
		return;
	if ((suspend.state == SUSPEND_QUIET || suspend.state == SUSPEND_RELEASE) &&
	    order.migration == suspend.order.migration) {
		suspend.id = id; /* a host that was started again asks again */
		return;
	}
	if (refuse_busy(a, id))
		return;
	if (suspend.suspended.migration == order.migration) {
		suspend.id = id;
		answer_suspend();
		return;
	}
	if (suspend.suspended.migration) {
		agent_answer_error(a, id,
				   "already suspended by another migration: resume that first");
		return;
	}
	if (refuse_claim(a, id, order.migration) || suspend_start(a, id, &order, name, GRACE_MS))
		return;
	suspend_step(SUSPEND_QUIET, SHIM_SUSPEND);
}

/* Waits for the mover's devices; a peer keeps its own. */
static void suspend_device(void *arg)
{
	struct shim_order *o = &suspend.order;
	bool there = true, active = true;

	(void)arg;
	if (suspend.state != SUSPEND_DEVICE)
		return;
	memset(o->device, 0, sizeof(o->device));
	for (unsigned i = 0; o->role == SHIM_ROLE_MOVER && i < o->vguid_count; i++) {
		int rc = agent_device_find(o->vguid[i], o->device[i]);

		there &= !rc || rc == -ENETDOWN;
		active &= !rc;
	}
	if (!active) {
		build_ahead(there);
		loop_timer_arm(suspend.recheck, RECHECK_MS);
		return;
	}
	o->sent_us = now_us();
	loop_timer_disarm(suspend.recheck);
	for (unsigned i = 0; o->role == SHIM_ROLE_MOVER && i < o->vguid_count; i++)
		agent_device_hurry(o->device[i]);
	suspend.port_active_us = now_us() - suspend.start_us;
	/* The shims get what is left of the time. */
	o->deadline_ms -= (uint32_t)(suspend.port_active_us / 1000 <
						     o->deadline_ms - DEADLINE_MIN_MS
					     ? suspend.port_active_us / 1000
					     : o->deadline_ms - DEADLINE_MIN_MS);
	loop_timer_arm(suspend.deadline, o->deadline_ms + GRACE_MS);
	suspend_next();
}

void agent_resume(struct agent *a, uint64_t id, struct json_object *msg)
{
	struct shim_order order;
	const char *name;

	if (agent_settle(a, id, msg, agent_resume) || suspend_parse(a, id, msg, &order, &name))
		return;
	if (suspend.state == SUSPEND_QUIET) {
		suspend_fail(-ECANCELED,
			     "the host asked for a resume before the suspend was through");
		suspend_failed();
	}
	if ((suspend.state == SUSPEND_DEVICE || suspend.state == SUSPEND_RESUME) &&
	    order.migration == suspend.order.migration) {
		suspend.id = id;
		return;
	}
	if (refuse_busy(a, id) || suspend_start(a, id, &order, name, 0))
		return;
	agent_notice_moved(a, msg);
	if (json_opt_bool(msg, "rescan", false))
		agent_device_rescan();
	suspend.state = SUSPEND_DEVICE;
	suspend_device(NULL);
}
