/* SPDX-License-Identifier: GPL-2.0-or-later */
/* HOLD at the host that the VM leaves: pre-copy is kept from ending until little is left. */
#include "common/json.h"
#include "common/util.h"
#include "daemon/migrate/clocks.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job_vfs.h"
#include "daemon/migrate/choice.h"
#include "daemon/migrate/src.h"
#include "daemon/libvirt/qmp.h"
#include "daemon/base/settings.h"

#include <errno.h>
#include <string.h>

#define NATIVE_POLL_MS 1000

static const char *str(struct job *j, const char *key)
{
	return json_opt_str(j->in, key, "");
}

enum {
	HOLD_RAISE,
	HOLD_LOOK,
	HOLD_PACE,
	HOLD_CLAMP,
	HOLD_NATIVE,
	HOLD_NATIVE_LOOK,
	HOLD_HELD,
};

/* To auto-converge the backlog looks like a guest that writes too fast. On all ways back libvirt
 * sets these again as it found them, and the downtime-limit. */
static void throttle_least(struct job *j)
{
	struct qmp_throttle t = {0};

	j->rc = qmp_get_throttle(j->d->virt, str(j, "vm"), &t, j->error);
	if (j->rc || !t.initial)
		return;
	json_set_u64(j->out, "throttle_initial", t.initial);
	json_set_u64(j->out, "throttle_increment", t.increment);
	j->rc = qmp_set_throttle(j->d->virt, str(j, "vm"), (struct qmp_throttle){1, 1}, j->error);
}

/* QEMU keeps the VM as long as any of its VFs is there, and its passes can be followed. A QEMU that
 * cannot be asked does not. */
static bool is_kept(struct job *j)
{
	bool starts_with = json_opt_bool(j->in, "starts_with", false), compresses = false;
	char error[HTTP_ERROR_MAX];
	bool keeps = !qmp_compresses(j->d->virt, str(j, "vm"), &compresses, error) && !compresses;

	for (size_t i = 0; keeps && i < job_vf_count(j); i++) {
		struct json_object *vf = job_vf(j, i);

		if (qmp_keeps_vm(j->d->virt, str(j, "vm"), vf_text_of(vf, "attach"),
				 vf_text_of(vf, "dev_id"), !starts_with, &keeps, error))
			keeps = false;
	}
	return keeps;
}

static void raise_run(struct job *j)
{
	bool native = json_opt_bool(j->in, "native", false), post_copy = false;
	uint64_t bandwidth, downtime_ms, slow;

	if (src_read_user_values(j, &bandwidth, &downtime_ms))
		return;
	j->rc = qmp_can_post_copy(j->d->virt, str(j, "vm"), &post_copy, j->error);
	if (j->rc)
		return;
	json_set_bool(j->out, "post_copy", post_copy);
	slow = hold_limit(bandwidth, j->d->settings->ballast_bytes, 0);
	json_set_u64(j->out, "bandwidth", bandwidth);
	json_set_u64(j->out, "downtime_ms", downtime_ms);
	if (native)
		j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), bandwidth, 0, j->error);
	else
		/* Slow at first: how much there is to send is not known yet. */
		j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), slow, HOLD_DOWNTIME_MS, j->error);
	json_set_u64(j->out, "set_bandwidth", slow);
	if (!j->rc && !native)
		throttle_least(j);
	json_set_bool(j->out, "kept", !j->rc && !native && is_kept(j));
}

static void set_bounds(struct migration *m)
{
	m->src.hold.threshold_bytes = hold_threshold(m->d->settings->hold_bytes,
						     m->src.user_bandwidth);
	m->src.hold.enough_bytes = hold_enough(
		m->src.hold.threshold_bytes, m->d->settings->ballast_bytes, m->src.user_bandwidth);
}

static void raised(struct migration *m, struct job *j)
{
	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	m->src.user_bandwidth = json_opt_u64(j->out, "bandwidth", FULL_SPEED);
	m->src.user_downtime_ms = json_opt_u64(j->out, "downtime_ms", DOWNTIME_MS);
	m->src.user_throttle.initial = json_opt_u64(j->out, "throttle_initial", 0);
	m->src.user_throttle.increment = json_opt_u64(j->out, "throttle_increment", 0);
	m->src.set_bandwidth = json_opt_u64(j->out, "set_bandwidth", 0);
	set_bounds(m);
	m->src.hold.kept = json_opt_bool(j->out, "kept", false);
	if (json_opt_bool(j->out, "post_copy", false) && choice_for_post_copy(m)) {
		migrate_fail(m, -ENOTSUP, "%s", m->rec.reason);
		return;
	}
	if (m->rec.strategy == STRATEGY_NATIVE)
		migrate_enter(m, HOLD_NATIVE);
	else
		migrate_enter(m, m->rec.strategy == STRATEGY_EARLY ? HOLD_HELD : HOLD_LOOK);
}

static void keep_changes(struct migration *m, struct job *j)
{
	m->src.user_bandwidth = json_opt_u64(j->out, "bandwidth", m->src.user_bandwidth);
	m->src.user_downtime_ms = json_opt_u64(j->out, "downtime_ms", m->src.user_downtime_ms);
}

/* With a limit of the user's QEMU could stop the guest before its VF has left: it waits for the
 * release. */
static void look_run(struct job *j)
{
	struct qmp_migration q;

	j->rc = qmp_query_migrate(j->d->virt, str(j, "vm"), &q, j->error);
	if (j->rc)
		return;
	json_set_str(j->out, "status", q.status);
	json_set_u64(j->out, "remaining", q.remaining_bytes);
	json_set_u64(j->out, "passes", q.passes);
	json_set_u64(j->out, "sent", q.sent_bytes);
	json_set_u64(j->out, "at_us", now_us());
	if (!json_opt_bool(j->in, "native", false) && !src_read_changes(j) &&
	    json_opt(j->out, "downtime_ms"))
		j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), 0, HOLD_DOWNTIME_MS, j->error);
}

static void looked(struct migration *m, struct job *j)
{
	const struct hold_look now = {.remaining_bytes = json_opt_u64(j->out, "remaining", 0),
				      .syncs = json_opt_u64(j->out, "passes", 0),
				      .sent_bytes = json_opt_u64(j->out, "sent", 0),
				      .at_us = json_opt_u64(j->out, "at_us", 0)};
	unsigned wait_ms = HOLD_POLL_MAX_MS;

	if (j->rc) {
		migrate_fail(m, j->rc, "%s", j->error);
		return;
	}
	migrate_enter(m, HOLD_LOOK);
	keep_changes(m, j);
	/* The user's value is what QEMU has now. */
	if (json_opt(j->out, "bandwidth"))
		m->src.set_bandwidth = m->src.user_bandwidth;
	set_bounds(m);
	m->src.hold.patient = m->src.hold.kept && src_has_ballast(m);
	/* QEMU's job may have ended: then the event says what became of it. */
	if (str_eq(json_opt_str(j->out, "status", ""), "active") &&
	    hold_reached(&m->src.hold, &now, &wait_ms)) {
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
	const char *status = json_opt_str(j->out, "status", "");

	migrate_enter(m, HOLD_NATIVE);
	if (!strcmp(status, "completed")) {
		m->src.job = JOB_COMPLETED;
	} else if (!strcmp(status, "none") || !strcmp(status, "cancelled") ||
		   !strcmp(status, "failed")) {
		m->src.job = JOB_FAILED;
		migrate_fail(m, -ECANCELED, "QEMU's migration has ended (%s)", status);
	}
}

static void pace_run(struct job *j)
{
	if (src_read_changes(j))
		return;
	j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), json_opt_u64(j->in, "bandwidth", 0),
				HOLD_DOWNTIME_MS, j->error);
}

static void paced(struct migration *m, struct job *j)
{
	keep_changes(m, j);
	m->src.set_bandwidth = json_opt_u64(j->in, "bandwidth", 0);
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	else
		migrate_enter(m, HOLD_LOOK);
}

static void clamp_run(struct job *j)
{
	if (src_read_changes(j))
		return;
	j->rc = qmp_set_migrate(j->d->virt, str(j, "vm"), HOLD_CLAMP_BYTES_PER_S, HOLD_DOWNTIME_MS,
				j->error);
}

static void clamped(struct migration *m, struct job *j)
{
	keep_changes(m, j);
	m->src.set_bandwidth = HOLD_CLAMP_BYTES_PER_S;
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	else
		migrate_enter(m, HOLD_HELD);
}

static int hold_job(struct migration *m, void (*run)(struct job *j),
		    void (*done)(struct migration *m, struct job *j))
{
	struct json_object *in = migrate_input(m);

	json_set_bool(in, "native", m->rec.strategy == STRATEGY_NATIVE);
	if (m->src.set_bandwidth)
		json_set_u64(in, "set_bandwidth", m->src.set_bandwidth);
	json_set_u64(in, "bandwidth", m->src.hold.limit);
	json_set_bool(in, "starts_with", m->src.hold.starts_with);
	return migrate_job(m, in, run, done) ? -ENOMEM : STEP_WAIT;
}

static int raise_limits(struct migration *m)
{
	record_do(&m->rec, DID_RAISE);
	m->src.hold = (struct hold){.starts_with = m->src.hold.starts_with};
	clocks_measure(m);
	return hold_job(m, raise_run, raised);
}

static int look(struct migration *m)
{
	return hold_job(m, look_run, looked);
}

static int pace(struct migration *m)
{
	return hold_job(m, pace_run, paced);
}

static int clamp(struct migration *m)
{
	return hold_job(m, clamp_run, clamped);
}

static int native_wait(struct migration *m)
{
	migrate_poll(m, NATIVE_POLL_MS);
	return STEP_WAIT;
}

static int native_waited(struct migration *m)
{
	return migrate_enter(m, HOLD_NATIVE_LOOK);
}

static int native_look(struct migration *m)
{
	return hold_job(m, look_run, native_looked);
}

static int held(struct migration *m)
{
	migrate_measure(m, "hold_us");
	return STEP_DONE;
}

static const struct migrate_phase hold[] = {
	[HOLD_RAISE] = {"raise", raise_limits, NULL},
	[HOLD_LOOK] = {"look", look, NULL},
	[HOLD_PACE] = {"pace", pace, NULL},
	[HOLD_CLAMP] = {"clamp", clamp, NULL},
	[HOLD_NATIVE] = {"native", native_wait, native_waited},
	[HOLD_NATIVE_LOOK] = {"native-look", native_look, NULL},
	[HOLD_HELD] = {"held", held, NULL},
	{0},
};

/* QEMU has stopped the guest, or the guest has gone with its VF while nobody looked. */
static bool native_is_over(const struct migration *m)
{
	if (m->rec.strategy != STRATEGY_NATIVE)
		return false;
	return m->rec.committed || (m->step.phase >= HOLD_NATIVE &&
				    (m->src.guest_stopped || m->src.job == JOB_COMPLETED));
}

int src_hold(struct migration *m)
{
	/* QEMU has not begun. */
	if (record_vf_first(&m->rec) && m->src.job == JOB_NONE)
		return STEP_DONE;
	if (native_is_over(m))
		migrate_enter(m, HOLD_HELD);
	return migrate_run_phases(m, hold);
}

void src_look_now(struct migration *m)
{
	if (m->step.failures)
		return;
	m->step.resting = false;
	migrate_drive(m);
}
