/* SPDX-License-Identifier: GPL-2.0-or-later */
/* HOLD at the host that the VM leaves: pre-copy is kept from ending until little is left, by QEMU's
 * limits and by memory that the guest keeps dirty. */
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"
#include "daemon/migrate/clocks.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/migrate/src.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

#define NATIVE_POLL_MS   1000
#define BALLAST_HEARD_US 5000000      /* the agent is asked each 3 s */
#define BALLAST_INTERVAL 20           /* ms: less than a link of 400 MB/s needs for the ballast */
#define PRESET_BYTES     (1ull << 20) /* vm_work_attach() sets this */

/* ---- the speed of QEMU's migration: ours, beside the user's ---- */

int speed_read(struct job *j, const char *vm, struct speed *ret_user)
{
	struct speed s = {0};

	j->rc = qmp_get_migrate(j->d->virt, vm, &s.bandwidth, &s.downtime_ms, j->error);
	/* Another value than our preset is the user's --bandwidth. */
	ret_user->bandwidth = s.bandwidth == PRESET_BYTES ? FULL_SPEED : s.bandwidth;
	ret_user->downtime_ms = s.downtime_ms ? s.downtime_ms : DOWNTIME_MS;
	return j->rc;
}

int speed_let_copy(struct job *j, const char *vm, bool *ret_copies)
{
	return j->rc = qmp_unlimit_mirrors(j->d->virt, vm, PRESET_BYTES, ret_copies, j->error);
}

/* ---- the ballast: memory that the agent keeps dirty, so that pre-copy does not end before the VF
 * has left ---- */

static struct json_object *ballast_message(uint64_t bytes)
{
	struct json_object *msg = src_op_message("ballast");

	json_set_u64(msg, "bytes", bytes);
	json_set_u64(msg, "interval_ms", BALLAST_INTERVAL);
	return msg;
}

static void ballast_kept(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct vm *vm = arg;

	if (rc)
		log_debug("VM %s: the ballast is not kept: %s", vm->name, error);
	vm->ballast_bytes = rc ? 0 : json_opt_u64(answer, "bytes", vm->d->settings->ballast_bytes);
	vm->ballast_us = now_us();
}

static void ask_ballast(struct vm *vm)
{
	agent_request(vm->agent, ballast_message(vm->d->settings->ballast_bytes), SRC_QUERY_MS,
		      ballast_kept, vm);
}

void src_begin_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	record_set(&m->rec, DID_BALLAST, m->d->settings->ballast_bytes);
	if (!vm)
		return;
	vm->ballast_bytes = 0;
	if (agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}

void src_end_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	record_undo(&m->rec, DID_BALLAST);
	if (vm && agent_state(vm->agent) == AGENT_UP)
		migrate_ask_agent(m, vm, ballast_message(0), SRC_QUERY_MS, NULL);
}

/* The agent has just said that it keeps all of it. */
static bool has_ballast(struct migration *m)
{
	uint64_t wanted = m->d->settings->ballast_bytes;
	const struct vm *vm = migrate_vm(m);

	return vm && agent_state(vm->agent) == AGENT_UP && wanted && vm->ballast_bytes >= wanted &&
	       now_us() - vm->ballast_us < BALLAST_HEARD_US;
}

void src_keep_ballast(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	/* No step waits for it: HOLD looks at QEMU meanwhile. */
	if (record_did(&m->rec, DID_BALLAST) && !m->rec.back && vm &&
	    agent_state(vm->agent) == AGENT_UP)
		ask_ballast(vm);
}

/* ---- the step ---- */

/* A job of HOLD: of these the worker reads the first half, and writes the other. */
struct hold_work {
	char vm[37];
	bool native, starts_with;
	uint64_t ours;  /* the bandwidth that we have set; 0: none */
	uint64_t limit; /* and the one that is wanted */

	struct speed user, changed;
	struct qmp_throttle throttle;
	bool post_copy, kept;
	struct qmp_migration q;
	uint64_t at_us; /* of q */
};

enum {
	HOLD_RAISE,
	HOLD_LOOK,
	HOLD_PACE,
	HOLD_CLAMP,
	HOLD_NATIVE,
	HOLD_NATIVE_LOOK,
	HOLD_HELD,
	HOLD_OVER,
};

/* To auto-converge the backlog looks like a guest that writes too fast. On all ways back libvirt
 * sets these again as it found them, and the downtime-limit. */
static void throttle_least(struct job *j)
{
	struct hold_work *w = j->work;
	struct qmp_throttle t = {0};

	j->rc = qmp_get_throttle(j->d->virt, w->vm, &t, j->error);
	if (j->rc || !t.initial)
		return;
	w->throttle = t;
	j->rc = qmp_set_throttle(j->d->virt, w->vm, (struct qmp_throttle){1, 1}, j->error);
}

/* QEMU keeps the VM as long as any of its VFs is there, and its passes can be followed. A QEMU that
 * cannot be asked does not. */
static bool is_kept(struct job *j)
{
	const struct hold_work *w = j->work;
	bool compresses = false;
	char error[HTTP_ERROR_MAX];
	bool keeps = !qmp_compresses(j->d->virt, w->vm, &compresses, error) && !compresses;

	for (size_t i = 0; keeps && i < job_vf_count(j); i++) {
		struct json_object *vf = job_vf(j, i);

		if (qmp_keeps_vm(j->d->virt, w->vm, vf_text_of(vf, "attach"),
				 vf_text_of(vf, "dev_id"), !w->starts_with, &keeps, error))
			keeps = false;
	}
	return keeps;
}

static void raise_run(struct job *j)
{
	struct hold_work *w = j->work;

	if (speed_read(j, w->vm, &w->user))
		return;
	j->rc = qmp_can_post_copy(j->d->virt, w->vm, &w->post_copy, j->error);
	if (j->rc)
		return;
	w->ours = hold_limit(w->user.bandwidth, j->d->settings->ballast_bytes, 0);
	if (w->native)
		j->rc = qmp_set_migrate(j->d->virt, w->vm, w->user.bandwidth, 0, j->error);
	else
		/* Slow at first: how much there is to send is not known yet. */
		j->rc = qmp_set_migrate(j->d->virt, w->vm, w->ours, HOLD_DOWNTIME_MS, j->error);
	if (!j->rc && !w->native)
		throttle_least(j);
	w->kept = !j->rc && !w->native && is_kept(j);
}

/* When the user's bandwidth is known, or has changed. */
static void set_bounds(struct migration *m)
{
	m->src.hold.threshold_bytes = hold_threshold(m->d->settings->hold_bytes,
						     m->src.user_bandwidth);
	m->src.hold.enough_bytes = hold_enough(
		m->src.hold.threshold_bytes, m->d->settings->ballast_bytes, m->src.user_bandwidth);
}

static void raised(struct migration *m, struct job *j)
{
	const struct hold_work *w = j->work;

	if (migrate_job_failed(m, j))
		return;
	m->src.user_bandwidth = w->user.bandwidth;
	m->src.user_downtime_ms = w->user.downtime_ms;
	m->src.user_throttle = w->throttle;
	m->src.set_bandwidth = w->ours;
	set_bounds(m);
	m->src.hold.kept = w->kept;
	if (w->post_copy && choice_for_post_copy(m)) {
		migrate_fail(m, -ENOTSUP, "%s", m->rec.reason);
		return;
	}
	if (m->rec.strategy == STRATEGY_NATIVE)
		migrate_enter(m, HOLD_NATIVE);
	else
		migrate_enter(m, m->rec.strategy == STRATEGY_EARLY ? HOLD_HELD : HOLD_LOOK);
}

static void keep_changes(struct migration *m, const struct speed *changed)
{
	if (changed->bandwidth) {
		m->src.user_bandwidth = changed->bandwidth;
		set_bounds(m);
	}
	if (changed->downtime_ms)
		m->src.user_downtime_ms = changed->downtime_ms;
}

/* With a limit of the user's QEMU could stop the guest before its VF has left: it waits for the
 * release. */
static void look_run(struct job *j)
{
	struct hold_work *w = j->work;
	struct speed now;

	j->rc = qmp_query_migrate(j->d->virt, w->vm, &w->q, j->error);
	if (j->rc)
		return;
	w->at_us = now_us();
	if (w->native)
		return;
	j->rc = qmp_get_migrate(j->d->virt, w->vm, &now.bandwidth, &now.downtime_ms, j->error);
	if (j->rc)
		return;
	w->changed = speed_changes(now, w->ours);
	if (w->changed.downtime_ms)
		j->rc = qmp_set_migrate(j->d->virt, w->vm, 0, HOLD_DOWNTIME_MS, j->error);
}

static void looked(struct migration *m, struct job *j)
{
	const struct hold_work *w = j->work;
	const struct hold_look now = {.remaining_bytes = w->q.remaining_bytes,
				      .syncs = w->q.passes,
				      .sent_bytes = w->q.sent_bytes,
				      .at_us = w->at_us};
	unsigned wait_ms = HOLD_POLL_MAX_MS;

	if (migrate_job_failed(m, j))
		return;
	migrate_enter(m, HOLD_LOOK);
	keep_changes(m, &w->changed);
	/* The user's value is what QEMU has now. */
	if (w->changed.bandwidth)
		m->src.set_bandwidth = m->src.user_bandwidth;
	m->src.hold.patient = m->src.hold.kept && has_ballast(m);
	/* QEMU's job may have ended: then the event says what became of it. */
	if (!strcmp(w->q.status, "active") && hold_reached(&m->src.hold, &now, &wait_ms)) {
		json_set_u64(m->rec.data, "hold_remaining_bytes", now.remaining_bytes);
		json_set_u64(m->rec.data, "hold_passes", now.syncs);
		migrate_enter(m, HOLD_CLAMP);
		return;
	}
	m->src.hold.limit = hold_limit(m->src.user_bandwidth, m->d->settings->ballast_bytes,
				       now.remaining_bytes);
	if (now.syncs && m->src.hold.limit != m->src.set_bandwidth) {
		migrate_enter(m, HOLD_PACE);
		return;
	}
	m->step.resting = true;
	migrate_poll(m, wait_ms);
}

/* QEMU's events tell it sooner, unless libvirt is away when they come. */
static void native_looked(struct migration *m, struct job *j)
{
	const struct hold_work *w = j->work;
	const char *status = w->q.status;

	migrate_enter(m, HOLD_NATIVE);
	if (!strcmp(status, "completed")) {
		m->src.job = JOB_COMPLETED;
	} else if (!strcmp(status, "none") || !strcmp(status, "cancelled") ||
		   !strcmp(status, "failed")) {
		m->src.job = JOB_FAILED;
		migrate_fail(m, -ECANCELED, "QEMU's migration has ended (%s)", status);
	}
}

static void set_limit(struct job *j, uint64_t bandwidth)
{
	struct hold_work *w = j->work;
	struct speed now;

	j->rc = qmp_get_migrate(j->d->virt, w->vm, &now.bandwidth, &now.downtime_ms, j->error);
	if (j->rc)
		return;
	w->changed = speed_changes(now, w->ours);
	j->rc = qmp_set_migrate(j->d->virt, w->vm, bandwidth, HOLD_DOWNTIME_MS, j->error);
}

static void pace_run(struct job *j)
{
	set_limit(j, ((struct hold_work *)j->work)->limit);
}

static void clamp_run(struct job *j)
{
	set_limit(j, HOLD_CLAMP_BYTES_PER_S);
}

static void limit_set(struct migration *m, struct job *j, uint64_t bandwidth, unsigned next)
{
	const struct hold_work *w = j->work;

	keep_changes(m, &w->changed);
	m->src.set_bandwidth = bandwidth;
	if (!migrate_job_failed(m, j))
		migrate_enter(m, next);
}

static void paced(struct migration *m, struct job *j)
{
	limit_set(m, j, ((struct hold_work *)j->work)->limit, HOLD_LOOK);
}

static void clamped(struct migration *m, struct job *j)
{
	limit_set(m, j, HOLD_CLAMP_BYTES_PER_S, HOLD_HELD);
}

static bool is_native(const struct migration *m)
{
	return m->rec.strategy == STRATEGY_NATIVE;
}

/* in: the VFs, for raise_run(); or NULL. */
static int hold_job(struct migration *m, struct json_object *in, void (*run)(struct job *j),
		    void (*done)(struct migration *m, struct job *j))
{
	struct hold_work w = {
		.native = is_native(m),
		.ours = m->src.set_bandwidth,
		.limit = m->src.hold.limit,
		.starts_with = m->src.hold.starts_with,
	};

	memcpy(w.vm, m->rec.vm_uuid, sizeof w.vm);
	return migrate_order(m, (struct job_order){JOB_WORK(w), .in = in, .run = run}, done);
}

static int raise_limits(struct migration *m)
{
	/* QEMU has not begun. */
	if (record_vf_first(&m->rec) && m->src.job == JOB_NONE)
		return migrate_enter(m, HOLD_OVER);
	if (is_native(m) && m->rec.committed)
		return migrate_enter(m, HOLD_HELD);
	record_do(&m->rec, DID_RAISE);
	m->src.hold = (struct hold){.starts_with = m->src.hold.starts_with};
	clocks_measure(m);
	return hold_job(m, migrate_input(m), raise_run, raised);
}

/* The guest may go with its VF while the worker asks. */
static int raising(struct migration *m)
{
	return is_native(m) && m->rec.committed ? migrate_enter(m, HOLD_HELD) : STEP_WAIT;
}

static int look(struct migration *m)
{
	return hold_job(m, NULL, look_run, looked);
}

static int pace(struct migration *m)
{
	return hold_job(m, NULL, pace_run, paced);
}

static int clamp(struct migration *m)
{
	return hold_job(m, NULL, clamp_run, clamped);
}

/* QEMU has stopped the guest, or the guest has gone with its VF while nobody looked. */
static bool native_is_over(const struct migration *m)
{
	return m->rec.committed || m->src.guest_stopped || m->src.job == JOB_COMPLETED;
}

static int native_wait(struct migration *m)
{
	if (native_is_over(m))
		return migrate_enter(m, HOLD_HELD);
	migrate_poll(m, NATIVE_POLL_MS);
	return STEP_WAIT;
}

static int native_waited(struct migration *m)
{
	return migrate_enter(m, native_is_over(m) ? HOLD_HELD : HOLD_NATIVE_LOOK);
}

static int native_look(struct migration *m)
{
	return hold_job(m, NULL, look_run, native_looked);
}

static int native_looking(struct migration *m)
{
	return native_is_over(m) ? migrate_enter(m, HOLD_HELD) : STEP_WAIT;
}

static int held(struct migration *m)
{
	migrate_measure(m, "hold_us");
	return STEP_DONE;
}

const struct migrate_phase src_hold[] = {
	[HOLD_RAISE] = {"raise", raise_limits, raising},
	[HOLD_LOOK] = {"look", look, NULL},
	[HOLD_PACE] = {"pace", pace, NULL},
	[HOLD_CLAMP] = {"clamp", clamp, NULL},
	[HOLD_NATIVE] = {"native", native_wait, native_waited},
	[HOLD_NATIVE_LOOK] = {"native-look", native_look, native_looking},
	[HOLD_HELD] = {"held", held, NULL},
	[HOLD_OVER] = {0},
};

void src_look_now(struct migration *m)
{
	if (m->step.failures)
		return;
	m->step.resting = false;
	migrate_drive(m);
}
