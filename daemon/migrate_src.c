/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of the host that the VM leaves, on the way forward; their undo is in
 * migrate_src_undo.c. */
#include "common/http_server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/clocks.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/locate.h"
#include "daemon/migrate_choice.h"
#include "daemon/migrate_step.h"
#include "daemon/provider.h"
#include "daemon/qmp.h"
#include "daemon/settings.h"
#include "daemon/sm.h"

#include <errno.h>
#include <string.h>

#define MIB                (1ull << 20)
#define PRESET_BYTES       MIB /* what vm_work_attach() sets */
#define FULL_SPEED         (1000 * MIB)
#define DOWNTIME_MS        300
#define HOLD_DOWNTIME_MS   1
#define QUERY_DEADLINE_MS  3000
#define CHECK_DEADLINE_MS  7000
#define SUSPEND_MS         14000
#define BALLAST_INTERVAL   20 /* ms: less than a link of 400 MB/s needs for the ballast */
#define SWITCH_DEADLINE_MS 35000
#define OUTCOME_POLL_MS    1000
#define BEGIN_S            40 /* libvirt starts the destination's QEMU, the VF being away */
#define BEGIN_POLL_MS      2000

static struct json_object *vm_input(struct migration *m)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "vm", m->vm_uuid);
	json_set_str(in, "dev_id", m->dev_id);
	json_set_str(in, "bus", m->bus);
	return in;
}

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

static struct json_object *vguid_list(const struct migration *m)
{
	struct json_object *list = json_object_new_array();
	char text[IB_GUID_TEXT];

	ib_guid_format(m->vguid, text);
	json_object_array_add(list, json_object_new_string(text));
	return list;
}

static struct json_object *op_message(const char *op)
{
	struct json_object *msg = json_object_new_object();

	json_set_str(msg, "op", op);
	return msg;
}

/* ---- peers of the agent's answer to query ---- */

static int add_peer(struct migration *m, uint64_t guid)
{
	struct vm *vm = vm_by_guid(m->d, guid);
	struct migrate_peer *p;

	for (unsigned i = 0; i < m->peer_count; i++)
		if (m->peers[i].guid == guid)
			return 0;
	if (m->peer_count == MIGRATE_PEERS_MAX)
		return -E2BIG;
	p = &m->peers[m->peer_count++];
	*p = (struct migrate_peer){.guid = guid};
	if (!vm)
		return 0;
	snprintf(p->host, sizeof p->host, "%s", m->d->settings->host_name);
	snprintf(p->url, sizeof p->url, "%s", m->d->settings->url);
	return 0;
}

/* 0, or -errno with a reason: who cannot be suspended. */
static int read_query(struct migration *m, struct json_object *answer)
{
	struct json_object *list = json_opt(answer, "peers"), *un = json_opt(answer, "uncovered");

	if (json_object_is_type(un, json_type_array) && json_object_array_length(un)) {
		struct json_object *o = json_object_array_get_idx(un, 0);

		return migrate_error(m, -EBUSY,
				     "process %llu (%.40s) in VM %s uses InfiniBand in a way that "
				     "cannot be moved: %.200s; stop it, or start it under "
				     "ibvmig-run",
				     (unsigned long long)json_opt_u64(o, "pid", 0),
				     json_opt_str(o, "comm", "?"), m->vm_name,
				     json_opt_str(o, "why", "it is not under ibvmig-run"));
	}
	m->peer_count = 0;
	for (size_t i = 0;
	     json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct ib_gid gid;
		const char *text = json_opt_str(json_object_array_get_idx(list, i), "dgid", "");

		if (!ib_gid_parse(text, &gid) && gid.guid != m->vguid && add_peer(m, gid.guid))
			return migrate_error(m, -E2BIG,
					     "VM %s is connected to more than %d others, which is "
					     "the limit",
					     m->vm_name, MIGRATE_PEERS_MAX);
	}
	return 0;
}

/* Finds the hosts of peers that are not here, and asks each peer's agent through its host. */
static int check_peer(struct job *j, struct json_object *o)
{
	struct json_object *body AUTO_JSON = json_object_new_object(), *answer AUTO_JSON = NULL;
	struct json_object *guids = json_object_new_array();
	const char *guid = json_opt_str(o, "guid", "");
	char why[HTTP_ERROR_MAX];
	struct location l = {0};
	uint64_t value = 0;

	ib_guid_parse(guid, &value);
	if (!*json_opt_str(o, "url", "")) {
		if (locate_guid(j->d->settings, value, &l, why))
			return job_fail(j, -ENOENT,
					"the VM is connected to GUID %s, but %.300s; without its "
					"agent the connection would break",
					guid, why);
		json_set_str(o, "url", l.url);
		json_set_str(o, "host", l.host);
	}
	json_object_array_add(guids, json_object_new_string(guid));
	json_set_str(body, "migration", str(j, "migration"));
	json_set_str(body, "vguid", str(j, "vguid"));
	json_set(body, "guids", guids);
	if (http_call(json_opt_str(o, "url", ""), "POST", "/v1/peer/check", body, CHECK_DEADLINE_MS,
		      &answer, why))
		return job_fail(j, -EHOSTUNREACH, "host %.60s: %.400s",
				json_opt_str(o, "host", "?"), why);
	return 0;
}

static void check_run(struct job *j)
{
	struct json_object *peers = json_opt(j->in, "peers");
	bool caching;

	if (json_opt_bool(j->in, "sm", false))
		j->rc = sm_check(j->d->settings, &caching, j->error);
	for (size_t i = 0; !j->rc && i < json_object_array_length(peers); i++)
		check_peer(j, json_object_array_get_idx(peers, i));
	json_set(j->out, "peers", json_object_get(peers));
}

static struct json_object *check_input(struct migration *m, bool sm)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "migration", m->id);
	json_set_guid(in, "vguid", m->vguid);
	json_set(in, "peers", peers_json(m));
	json_set_bool(in, "sm", sm);
	return in;
}

static bool agent_wanted(struct migration *m, struct vm *vm)
{
	if (!vm || !vm->agent)
		return false;
	return m->d->settings->require_agent || agent_state(vm->agent) == AGENT_UP;
}

/* ---- PREPARE ---- */

void src_set_ballast(struct migration *m, uint64_t bytes)
{
	struct vm *vm = migrate_vm(m);
	struct json_object *msg;

	m->ballast = bytes;
	if (!vm || agent_state(vm->agent) != AGENT_UP)
		return;
	msg = op_message("ballast");
	json_set_u64(msg, "bytes", bytes);
	json_set_u64(msg, "interval_ms", BALLAST_INTERVAL);
	migrate_ask_agent(m, vm, msg, QUERY_DEADLINE_MS, NULL);
}

static void prepare_checked(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	peers_load(m, json_opt(j->out, "peers"));
	m->armed = true;
	migrate_measure(m, "prepare_us");
	if (m->strategy == STRATEGY_LATE)
		src_set_ballast(m, m->d->settings->ballast_bytes);
	migrate_save(m, "armed");
	/* QEMU must not begin before an early VF has left. */
	if (m->strategy != STRATEGY_EARLY)
		migrate_answer_waiting(m, 0);
}

/* error: why the agent gave no answer. */
static void prepare_choose(struct migration *m, struct vm *vm, struct json_object *answer,
			   const char *error)
{
	struct strategy_facts facts;
	int rc;

	choice_facts(vm, answer, &facts);
	rc = choice_make(m, &facts);
	if (rc && facts.agent_needed && !facts.agent)
		snprintf(m->reason, sizeof m->reason, "%s", error);
	else if (!rc && answer && m->strategy != STRATEGY_NATIVE)
		rc = read_query(m, answer);
	if (rc)
		migrate_fail(m, rc, "%s", m->reason);
	else if (migrate_job(m, check_input(m, true), check_run, prepare_checked))
		migrate_fail(m, -ENOMEM, "out of memory");
}

static void prepare_queried(struct migration *m, int rc, struct json_object *answer,
			    const char *error)
{
	struct vm *vm = migrate_vm(m);

	if (vm)
		prepare_choose(m, vm, rc ? NULL : answer, error);
	else
		migrate_fail(m, -ENOENT, "the VM has ended");
}

int src_prepare(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	char why[HTTP_ERROR_MAX];

	if (m->armed)
		return m->job == JOB_ACTIVE || m->strategy == STRATEGY_EARLY ? STEP_DONE
									     : STEP_WAIT;
	if (m->step.started)
		return STEP_WAIT;
	m->step.started = true;
	if (agent_wanted(m, vm)) {
		migrate_ask_agent(m, vm, op_message("query"), QUERY_DEADLINE_MS, prepare_queried);
		return STEP_WAIT;
	}
	if (!vm)
		return migrate_error(m, -ENOENT, "the VM has ended");
	snprintf(why, sizeof why,
		 "VM %s has no channel %s: add it to the domain and start ibvmig-agent in the "
		 "guest",
		 m->vm_name, DOMAIN_CHANNEL);
	prepare_choose(m, vm, NULL, why);
	return STEP_WAIT;
}

/* ---- HOLD ---- */

enum {
	HOLD_RAISE,
	HOLD_RAISING,
	HOLD_LOOK,
	HOLD_LOOKING,
	HOLD_PACE,
	HOLD_PACING,
	HOLD_CLAMP,
	HOLD_CLAMPING,
	HOLD_NATIVE, /* until QEMU stops the guest */
	HOLD_HELD
};

/* What the migration under way would run with, without us. */
static int read_user_values(struct job *j, uint64_t *ret_bandwidth, uint64_t *ret_downtime_ms)
{
	uint64_t bandwidth = 0, downtime_ms = 0;

	j->rc = qmp_get_migrate(j->d->virt, str(j, "vm"), &bandwidth, &downtime_ms, j->error);
	/* Another value than our preset is the user's --bandwidth. */
	*ret_bandwidth = bandwidth == PRESET_BYTES ? FULL_SPEED : bandwidth;
	*ret_downtime_ms = downtime_ms ? downtime_ms : DOWNTIME_MS;
	return j->rc;
}

static void raise_run(struct job *j)
{
	uint64_t bandwidth, downtime_ms, slow;
	bool post_copy = false;

	if (read_user_values(j, &bandwidth, &downtime_ms))
		return;
	j->rc = qmp_can_post_copy(j->d->virt, str(j, "vm"), &post_copy, j->error);
	if (j->rc)
		return;
	json_set_bool(j->out, "post_copy", post_copy);
	slow = hold_approach(bandwidth, j->d->settings->ballast_bytes);
	json_set_u64(j->out, "bandwidth", bandwidth);
	json_set_u64(j->out, "downtime_ms", downtime_ms);
	if (json_opt_bool(j->in, "native", false))
		j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), bandwidth, 0, j->error);
	else
		/* Slow at first: how much there is to send is not known yet. */
		j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), slow, HOLD_DOWNTIME_MS, j->error);
	json_set_u64(j->out, "set_bandwidth", slow);
}

static void raised(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	m->user_bandwidth = json_opt_u64(j->out, "bandwidth", FULL_SPEED);
	m->user_downtime_ms = json_opt_u64(j->out, "downtime_ms", DOWNTIME_MS);
	m->set_bandwidth = json_opt_u64(j->out, "set_bandwidth", 0);
	m->hold.threshold_bytes = hold_threshold(m->d->settings->hold_bytes, m->user_bandwidth);
	if (json_opt_bool(j->out, "post_copy", false) && choice_for_post_copy(m)) {
		migrate_fail(m, -ENOTSUP, "%s", m->reason);
		return;
	}
	if (m->strategy == STRATEGY_NATIVE)
		m->step.phase = HOLD_NATIVE;
	else
		m->step.phase = m->strategy == STRATEGY_EARLY ? HOLD_HELD : HOLD_LOOK;
}

static void look_run(struct job *j)
{
	struct qmp_migration q;

	j->rc = qmp_query_migrate(j->d->virt, str(j, "vm"), &q, j->error);
	if (j->rc)
		return;
	json_set_str(j->out, "status", q.status);
	json_set_u64(j->out, "remaining", q.remaining_bytes);
	json_set_u64(j->out, "passes", q.passes);
	json_set_u64(j->out, "at_us", now_us());
}

static void looked(struct migration *m, struct job *j)
{
	uint64_t remaining = json_opt_u64(j->out, "remaining", 0);
	unsigned wait_ms = HOLD_POLL_MAX_MS;

	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	m->step.phase = HOLD_LOOK;
	/* Not active any more: the event says what became of it. */
	if (str_eq(json_opt_str(j->out, "status", ""), "active") &&
	    hold_reached(&m->hold, remaining, json_opt_u64(j->out, "passes", 0),
			 json_opt_u64(j->out, "at_us", 0), &wait_ms)) {
		json_set_u64(m->data, "hold_remaining_bytes", remaining);
		json_set_u64(m->data, "hold_passes", json_opt_u64(j->out, "passes", 0));
		m->step.phase = HOLD_CLAMP;
		return;
	}
	if (json_opt_u64(j->out, "passes", 0) &&
	    hold_is_near(remaining, m->user_bandwidth) == m->hold.fast) {
		m->hold.fast = !m->hold.fast;
		m->step.phase = HOLD_PACE;
		return;
	}
	m->step.phase = HOLD_LOOKING;
	m->step.resting = true;
	migrate_poll(m, wait_ms);
}

/* What the user has set since we set ours: migrate-setspeed, migrate-setmaxdowntime. */
static int read_changes(struct job *j)
{
	uint64_t bandwidth = 0, downtime_ms = 0;

	j->rc = qmp_get_migrate(j->d->virt, str(j, "vm"), &bandwidth, &downtime_ms, j->error);
	if (!j->rc && bandwidth && bandwidth != json_opt_u64(j->in, "set_bandwidth", bandwidth))
		json_set_u64(j->out, "bandwidth", bandwidth);
	if (!j->rc && downtime_ms && downtime_ms != HOLD_DOWNTIME_MS)
		json_set_u64(j->out, "downtime_ms", downtime_ms);
	return j->rc;
}

static void keep_changes(struct migration *m, struct job *j)
{
	m->user_bandwidth = json_opt_u64(j->out, "bandwidth", m->user_bandwidth);
	m->user_downtime_ms = json_opt_u64(j->out, "downtime_ms", m->user_downtime_ms);
}

static void pace_run(struct job *j)
{
	if (read_changes(j))
		return;
	j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), json_opt_u64(j->in, "bandwidth", 0), 0,
				j->error);
}

static void paced(struct migration *m, struct job *j)
{
	keep_changes(m, j);
	m->set_bandwidth = json_opt_u64(j->in, "bandwidth", 0);
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	else
		m->step.phase = HOLD_LOOK;
}

static void clamp_run(struct job *j)
{
	if (read_changes(j))
		return;
	j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), HOLD_CLAMP_BYTES_PER_S, 0, j->error);
}

static void clamped(struct migration *m, struct job *j)
{
	keep_changes(m, j);
	m->set_bandwidth = HOLD_CLAMP_BYTES_PER_S;
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	else
		m->step.phase = HOLD_HELD;
}

static int hold_job(struct migration *m, unsigned phase, void (*run)(struct job *j),
		    void (*done)(struct migration *m, struct job *j))
{
	struct json_object *in = vm_input(m);

	m->step.phase = phase;
	json_set_bool(in, "native", m->strategy == STRATEGY_NATIVE);
	if (m->set_bandwidth)
		json_set_u64(in, "set_bandwidth", m->set_bandwidth);
	json_set_u64(in, "bandwidth",
		     m->hold.fast
			     ? m->user_bandwidth
			     : hold_approach(m->user_bandwidth, m->d->settings->ballast_bytes));
	return migrate_job(m, in, run, done) ? -ENOMEM : STEP_WAIT;
}

int src_hold(struct migration *m)
{
	/* QEMU has not begun. */
	if (m->strategy == STRATEGY_EARLY && m->job == JOB_NONE)
		return STEP_DONE;
	m->step.started = true;
	switch (m->step.phase) {
	case HOLD_RAISE:
		m->raised = true;
		m->hold = (struct hold){0};
		clocks_measure(m);
		return hold_job(m, HOLD_RAISING, raise_run, raised);
	case HOLD_LOOKING:
		/* Driven by the end of the job, or by the timer after it. */
		if (m->inflight)
			return STEP_WAIT;
		/* fall through */
	case HOLD_LOOK:
		return hold_job(m, HOLD_LOOKING, look_run, looked);
	case HOLD_PACE:
		return hold_job(m, HOLD_PACING, pace_run, paced);
	case HOLD_CLAMP:
		return hold_job(m, HOLD_CLAMPING, clamp_run, clamped);
	case HOLD_NATIVE:
		if (!m->guest_stopped && m->job != JOB_COMPLETED)
			return STEP_WAIT;
		/* fall through */
	case HOLD_HELD:
		migrate_measure(m, "hold_us");
		return STEP_DONE;
	default:
		return STEP_WAIT;
	}
}

void src_look_now(struct migration *m)
{
	if (m->step.failures)
		return;
	m->step.resting = false;
	migrate_drive(m);
}

/* ---- QUIESCE ---- */

enum { QUIESCE_QUERY, QUIESCE_LOCATE, QUIESCE_SUSPEND, QUIESCE_WAIT };

static void suspended(struct migration *m, int rc, struct json_object *answer, const char *error)
{
	m->pending--;
	if (!rc)
		json_set(m->data, "suspend", json_object_get(answer));
	else if (!m->pending_rc) {
		m->pending_rc = rc;
		snprintf(m->pending_error, sizeof m->pending_error, "%s", error);
	}
}

static void suspend_all(struct migration *m, struct vm *vm)
{
	struct json_object *msg = op_message("suspend");

	m->suspended = true;
	m->suspended_us = now_us();
	migrate_measure(m, "suspend_asked_us");
	m->step.phase = QUIESCE_WAIT;
	json_set_str(msg, "migration", m->id);
	json_set_str(msg, "role", "mover");
	json_set(msg, "vguids", vguid_list(m));
	json_set_u64(msg, "deadline_ms", SUSPEND_MS - 1000);
	m->pending++;
	migrate_ask_agent(m, vm, msg, SUSPEND_MS, suspended);
	peers_suspend(m);
}

static void located(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	peers_load(m, json_opt(j->out, "peers"));
	m->step.phase = QUIESCE_SUSPEND;
}

/* Since PREPARE, the guest may have made new connections. */
static void queried_again(struct migration *m, int rc, struct json_object *answer,
			  const char *error)
{
	bool known = true;

	if (!rc)
		rc = read_query(m, answer);
	else
		migrate_error(m, rc, "%s", error);
	if (rc) {
		migrate_fail(m, rc, "%s", m->reason);
		return;
	}
	for (unsigned i = 0; i < m->peer_count; i++)
		known = known && *m->peers[i].url;
	m->step.phase = QUIESCE_SUSPEND;
	if (known)
		return;
	m->step.phase = QUIESCE_LOCATE;
	if (migrate_job(m, check_input(m, false), check_run, located))
		migrate_fail(m, -ENOMEM, "out of memory");
}

int src_quiesce(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	/* The QPs move with the device. */
	if (m->strategy == STRATEGY_NATIVE)
		return STEP_DONE;
	if (!agent_wanted(m, vm))
		return m->d->settings->require_agent ? migrate_error(m, -ENOENT, "no agent")
						     : STEP_DONE;
	if (!m->step.started) {
		m->step.started = true;
		migrate_ask_agent(m, vm, op_message("query"), QUERY_DEADLINE_MS, queried_again);
	}
	if (m->step.phase == QUIESCE_SUSPEND)
		suspend_all(m, vm);
	if (m->step.phase != QUIESCE_WAIT || m->pending)
		return STEP_WAIT;
	if (m->pending_rc)
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	migrate_measure(m, "quiesce_us");
	return STEP_DONE;
}

/* ---- how far the destination is ---- */

static void ask_outcome_run(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL, *dst;
	char *path AUTO_FREE = strf("/v1/migrations/%s", str(j, "migration"));

	j->rc = http_call(str(j, "url"), "GET", path, NULL, CHECK_DEADLINE_MS, &answer, j->error);
	dst = json_opt(answer, "destination");
	json_set_bool(j->out, "committed", !j->rc && json_opt_bool(dst, "committed", false));
	json_set_bool(j->out, "attached", !j->rc && json_opt_bool(dst, "attached", false));
	json_set_bool(j->out, "ended", !j->rc && str_eq(json_opt_str(dst, "state", ""), "DONE"));
	json_set_bool(j->out, "gone", !j->rc && str_eq(json_opt_str(dst, "state", ""), "ABORTED"));
}

static struct json_object *outcome_input(const struct migration *m)
{
	struct json_object *in = json_object_new_object();

	json_set_str(in, "migration", m->id);
	json_set_str(in, "url", m->to.url);
	return in;
}

/* ---- DETACH ---- */

enum { DETACH_LEAVES, DETACH_CLEANS, DETACH_CLEANED, DETACH_ANSWERED };

static void device_del_run(struct job *j)
{
	j->rc = qmp_device_del(j->d->virt, str(j, "vm"), str(j, "dev_id"), j->error);
}

/* -ENODEV: it went, and the event was lost. */
static void device_del_done(struct migration *m, struct job *j)
{
	if (j->rc == -ENODEV)
		m->device_gone = true;
	else if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
}

static void cleanup_run(struct job *j)
{
	j->rc = qmp_cleanup(j->d->virt, str(j, "vm"), str(j, "detach"), j->error);
}

static void cleaned(struct migration *m, struct job *j)
{
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	else
		m->step.phase = DETACH_CLEANED;
}

/* ---- DETACH of an early VF: QEMU has not begun ---- */

static void begin_asked(struct migration *m, struct job *j)
{
	if (json_opt_bool(j->out, "gone", false)) {
		migrate_fail(m, -ECANCELED, "the destination has given the migration up");
		return;
	}
	m->step.resting = true;
	migrate_poll(m, BEGIN_POLL_MS);
}

/* The VF has left, so QEMU may begin: the hook gets its answer now. Meanwhile the guest has no
 * InfiniBand, so that the destination's giving up is asked for, should its word be lost. */
static int await_begin(struct migration *m)
{
	if (m->job != JOB_NONE || m->strategy != STRATEGY_EARLY)
		return STEP_DONE;
	if (m->step.phase == DETACH_CLEANED) {
		m->step.phase = DETACH_ANSWERED;
		loop_timer_disarm(m->deadline); /* DETACH is done */
		m->step.asked_us = now_us();
		migrate_answer_waiting(m, 0);
		m->step.resting = true;
		migrate_poll(m, BEGIN_POLL_MS);
		return STEP_WAIT;
	}
	if (m->inflight)
		return STEP_WAIT;
	if (now_us() - m->step.asked_us > BEGIN_S * 1000000ull)
		return migrate_error(m, -ETIMEDOUT,
				     "the VF has left, but QEMU has not begun to migrate within "
				     "%d s",
				     BEGIN_S);
	return migrate_job(m, outcome_input(m), ask_outcome_run, begin_asked) ? -ENOMEM : STEP_WAIT;
}

bool src_awaits_begin(const struct migration *m)
{
	return m->armed && m->job == JOB_NONE && !m->back && !m->waiting &&
	       (m->state == M_PREPARE ||
		(m->state == M_DETACH && m->step.phase == DETACH_ANSWERED));
}

int src_detach(struct migration *m)
{
	struct vm *vm = migrate_vm(m);
	struct json_object *in;

	if (m->strategy == STRATEGY_NATIVE)
		return STEP_DONE;
	if (!m->step.started) {
		m->step.started = m->device_del_sent = true;
		m->detach_started_us = now_us();
		if (!m->device_gone)
			return migrate_job(m, vm_input(m), device_del_run, device_del_done)
				       ? -ENOMEM
				       : STEP_WAIT;
	}
	if (!m->device_gone)
		return STEP_WAIT;
	if (m->step.phase == DETACH_LEAVES) {
		m->step.phase = DETACH_CLEANS;
		migrate_measure(m, "detach_us");
		in = vm_input(m);
		json_set_str(in, "detach", vm && vm->vf && vm->vf->detach ? vm->vf->detach : "[]");
		return migrate_job(m, in, cleanup_run, cleaned) ? -ENOMEM : STEP_WAIT;
	}
	return m->step.phase >= DETACH_CLEANED ? await_begin(m) : STEP_WAIT;
}

/* ---- SWITCH ---- */

static void release_run(struct job *j)
{
	uint64_t bandwidth = json_opt_u64(j->in, "bandwidth", 0);
	uint64_t downtime_ms = json_opt_u64(j->in, "downtime_ms", 0);

	/* There was no HOLD to read them. */
	if (!bandwidth ? read_user_values(j, &bandwidth, &downtime_ms) : read_changes(j))
		return;
	bandwidth = json_opt_u64(j->out, "bandwidth", bandwidth);
	downtime_ms = json_opt_u64(j->out, "downtime_ms", downtime_ms);
	j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), bandwidth, downtime_ms, j->error);
}

/* An ended record of a destination that was restarted since lives in its journal only. */
static bool has_moved(struct job *j)
{
	struct json_object *answer AUTO_JSON = NULL;
	char *path AUTO_FREE = strf("/v1/migrations/%s", str(j, "migration"));
	char why[HTTP_ERROR_MAX];

	return !http_call(str(j, "url"), "GET", path, NULL, CHECK_DEADLINE_MS, &answer, why) &&
	       str_eq(json_opt_str(json_opt(answer, "destination"), "state", ""), "DONE");
}

/* First the source's VF drops the vGUID, then the destination's shows it: never both. */
static void switch_run(struct job *j)
{
	struct json_object *answer = NULL;
	uint64_t parked = 0;

	ib_guid_parse(str(j, "parked_guid"), &parked);
	j->rc = provider_set_guid(j->d->provider, str(j, "vf"), parked, j->error);
	if (!j->rc)
		j->rc = http_call(str(j, "url"), "POST", "/v1/peer/switch", json_opt(j->in, "body"),
				  SWITCH_DEADLINE_MS, &answer, j->error);
	if (j->rc == -EREMOTEIO && has_moved(j))
		j->rc = 0;
	json_set(j->out, "answer", answer);
}

static void part_done(struct migration *m, struct job *j)
{
	m->pending--;
	if (j->rc && !m->pending_rc) {
		m->pending_rc = j->rc;
		snprintf(m->pending_error, sizeof m->pending_error, "%s", j->error);
	}
}

static void switched(struct migration *m, struct job *j)
{
	struct json_object *move = json_opt(json_opt(j->out, "answer"), "move");

	part_done(m, j);
	if (j->rc)
		return;
	m->moved = true;
	migrate_measure(m, "move_us");
	if (move)
		json_set(m->data, "move", json_object_get(move));
}

static struct json_object *switch_input(struct migration *m)
{
	struct json_object *in = json_object_new_object(), *body = json_object_new_object();

	json_set_str(in, "vf", m->from.vf);
	json_set_guid(in, "parked_guid", m->from.parked_guid);
	json_set_str(in, "migration", m->id);
	json_set_str(in, "url", m->to.url);
	json_set_str(body, "migration", m->id);
	json_set(body, "peers", peers_json(m));
	json_set_bool(body, "suspended", m->suspended);
	json_set(in, "body", body);
	return in;
}

int src_switch(struct migration *m)
{
	struct json_object *in;

	if (!m->step.started) {
		m->step.started = m->parked = true;
		src_set_ballast(m, 0);
		in = vm_input(m);
		json_set_u64(in, "bandwidth", m->user_bandwidth);
		json_set_u64(in, "downtime_ms", m->user_downtime_ms);
		if (m->set_bandwidth)
			json_set_u64(in, "set_bandwidth", m->set_bandwidth);
		m->pending = 2;
		m->raised = true;
		/* After COMMIT there is no QEMU here to be released; a native one was not held. */
		if (m->committed || m->strategy == STRATEGY_NATIVE)
			m->pending--, json_object_put(in);
		else if (migrate_job(m, in, release_run, part_done))
			return -ENOMEM;
		if (migrate_job(m, switch_input(m), switch_run, switched))
			return -ENOMEM;
	}
	if (m->pending)
		return STEP_WAIT;
	/* QEMU may have finished before it was released: that is no failure. */
	if (m->pending_rc && !(m->moved && (m->committed || m->job == JOB_COMPLETED)))
		return migrate_error(m, m->pending_rc, "%s", m->pending_error);
	migrate_measure(m, "switch_us");
	return STEP_DONE;
}

/* ---- after the switch: the destination acts ---- */

static void outcome_asked(struct migration *m, struct job *j)
{
	if (json_opt_bool(j->out, "committed", false))
		migrate_set_committed(m);
	m->attached = m->attached || json_opt_bool(j->out, "attached", false);
	m->peer_ended = m->peer_ended || json_opt_bool(j->out, "ended", false);
	/* It is paused here, if libvirt has not resumed it. */
	if (m->state == M_CANCEL && json_opt_bool(j->out, "gone", false))
		m->job = JOB_FAILED;
	if (m->state == M_ATTACH && !m->committed && json_opt_bool(j->out, "gone", false)) {
		migrate_fail(m, -ECANCELED, "the destination has given the migration up");
		return;
	}
	m->step.phase = 0;
	m->step.resting = true;
	migrate_poll(m, m->peer_ended ? 0 : OUTCOME_POLL_MS);
}

int src_await_outcome(struct migration *m)
{
	if (!m->step.started) {
		m->step.started = true;
		m->step.resting = true;
		migrate_poll(m, OUTCOME_POLL_MS * 5);
	} else if (!m->step.phase && !m->inflight) {
		m->step.phase = 1;
		return migrate_job(m, outcome_input(m), ask_outcome_run, outcome_asked) ? -ENOMEM
											: STEP_WAIT;
	}
	return STEP_WAIT;
}

int src_attach(struct migration *m)
{
	if (m->committed && (m->attached || m->peer_ended))
		return STEP_DONE;
	return src_await_outcome(m);
}

static void give_back_run(struct job *j)
{
	j->rc = provider_release(j->d->provider, str(j, "vf"), j->error);
}

static void given_back(struct migration *m, struct job *j)
{
	struct vm *vm = migrate_vm(m);
	struct vf *vf = vf_by_name(&m->d->vfs, m->from.vf);

	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	if (vf && vf->leased && !strcmp(vf->vm, m->vm_uuid))
		vf_free_lease(&m->d->vfs, vf);
	if (vm)
		vm_forget(vm);
	m->step.phase = 3;
}

int src_resume(struct migration *m)
{
	struct json_object *in;

	if (m->step.phase == 3)
		return STEP_DONE;
	if (m->peer_ended && !m->step.phase) {
		m->step.phase = 2;
		migrate_measure(m, "resume_us");
		if (m->suspended_us)
			json_set_u64(m->data, "outage_us", now_us() - m->suspended_us);
		in = json_object_new_object();
		json_set_str(in, "vf", m->from.vf);
		return migrate_job(m, in, give_back_run, given_back) ? -ENOMEM : STEP_WAIT;
	}
	return src_await_outcome(m);
}
