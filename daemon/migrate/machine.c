/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/machine.h"
#include "common/boot.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/store/durable.h"
#include "daemon/base/events.h"
#include "daemon/store/journal.h"
#include "daemon/store/lease.h"
#include "daemon/migrate/step.h"
#include "daemon/vm/relay.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* About 40 s in all: a host that restarts its daemon, or a network that is cut for a moment. Of
 * tries that take long themselves, or do not end, no more than an OpenSM needs that is started
 * again. */
#define RETRIES_MAX    20
#define RETRIES_MS     90000
#define RETRY_FIRST_MS 200
#define RETRY_LAST_MS  3000
/* Steps take less; pre-copy that is not driven sends 1 MiB/s (docs/migration.md, "Hold"). */
#define LOOK_MS 3000

#define SRC ROLE_SOURCE
#define DST ROLE_DESTINATION

/* Constant once the daemon runs. */
static const struct migrate_row *rows; /* borrowed */
static size_t row_count;
static const struct migrate_watch *watch; /* borrowed */

void migrate_set_table(const struct migrate_row *table, size_t count, const struct migrate_watch *w)
{
	rows = table;
	row_count = count;
	watch = w;
}

/* ---- states ---- */

const struct migrate_row *migrate_row(enum migrate_role role, enum migrate_state state)
{
	for (size_t i = 0; i < row_count; i++)
		if (rows[i].actor == role && rows[i].state == state)
			return &rows[i];
	return NULL;
}

/* SAVED is a detour behind DETACH. */
static const struct migrate_row *row_before(enum migrate_role role, enum migrate_state state)
{
	if (state == M_SAVED)
		return migrate_row(role, M_DETACH);
	for (size_t i = 0; i < row_count; i++) {
		const struct migrate_row *r = &rows[i];

		if (r->actor == role && !migrate_row_is_end(r) && r->next == state &&
		    r->state != state)
			return r;
	}
	return NULL;
}

bool migrate_edge_ok(enum migrate_role role, enum migrate_state from, enum migrate_state to,
		     bool back, bool committed)
{
	const struct migrate_row *row = migrate_row(role, from), *before = row_before(role, from);

	if (!row || !migrate_row(role, to))
		return false;
	if (from == M_DONE || from == M_ABORTED)
		return false;
	if (to == M_PARKED || from == M_PARKED)
		return true;
	if (back) {
		/* The first undo is the failed state's own; from CANCEL, any state's. */
		if (committed)
			return false;
		return to == from || from == M_CANCEL || (before && to == before->state) ||
		       (from == M_PREPARE && to == M_ABORTED);
	}
	return to == row->next || (from == M_DETACH && to == M_SAVED) ||
	       (to == M_CANCEL && !committed) || (from == M_CANCEL && committed);
}

/* ---- the record ---- */

static int write_journal(struct migration *m, const char *note)
{
	struct printbuf *record AUTO_TEXT = printbuf_new();
	int rc;

	record_write(record, &m->rec, migrate_failures(m));
	struct journal_step s = {
		.id = m->rec.id,
		.role = migrate_role_name(m->rec.role),
		.vm = m->rec.vm_uuid,
		.state = migrate_state_name(m->rec.state),
		.direction = m->rec.back ? "back" : "forward",
		.note = note,
		.record = record->buf,
		.ended = m->rec.ended,
		.wall_ms = wall_ms(),
		.mono_us = now_us(),
	};

	rc = journal_step(m->d->journal, &s);
	kept_written(&m->kept, m->d->durable, rc, note);
	return rc;
}

static void write_again(void *arg, const char *note)
{
	write_journal(arg, note);
}

static void publish(struct migration *m, const char *note)
{
	const char *role = migrate_role_name(m->rec.role);
	const char *state = migrate_state_name(m->rec.state);
	struct json_object *e = json_object_new_object();

	json_set_str(e, "type", "migration");
	json_set_str(e, "id", m->rec.id);
	json_set_str(e, "role", role);
	json_set_str(e, "vm", m->rec.vm_name);
	json_set_str(e, "uuid", m->rec.vm_uuid);
	json_set_str(e, "state", state);
	json_set_str(e, "direction", m->rec.back ? "back" : "forward");
	json_set_bool(e, "armed", record_did(&m->rec, DID_ARM));
	json_set_bool(e, "committed", m->rec.committed);
	json_set_str(e, "note", note);
	events_publish(m->d->events, e);
}

int migrate_save(struct migration *m, const char *note)
{
	int rc = write_journal(m, note);

	publish(m, note);
	return rc;
}

static void on_end(struct migration *m)
{
	struct vm *vm = migrate_vm(m);

	if (m->d->ended)
		m->d->ended(m);
	loop_timer_disarm(m->deadline);
	loop_timer_disarm(m->poll);
	if (vm && vm->migration == m)
		vm->migration = NULL;
	migrate_answer_waiting(m, m->rec.state == M_DONE ? 0 : -ECANCELED);
	if (m->rec.role == DST)
		dst_tell_source(m);
	if (m->rec.state == M_ABORTED && !vm && m->rec.file)
		watch->release(m);
	else if (m->rec.state == M_ABORTED && vm && record_did(&m->rec, SAW_VM_END))
		vm_release(vm, false);
	else if (m->rec.state == M_ABORTED && vm && record_devices_gone(&m->rec))
		vm_device_lost(vm);
}

/* Until the step fails for the first time; then its tries have RETRIES_MS. How long pre-copy takes
 * is the user's matter, how long its undo takes is not. 0: no deadline. */
static unsigned deadline_ms(const struct migration *m)
{
	unsigned ms = migrate_row(m->rec.role, m->rec.state)->deadline_ms;

	return !ms && m->rec.back && !m->rec.ended && m->rec.state != M_PARKED ? RETRIES_MS : ms;
}

static void arm_deadline(struct migration *m)
{
	unsigned ms = deadline_ms(m);

	loop_timer_disarm(m->deadline);
	if (ms)
		loop_timer_arm(m->deadline, ms);
}

void migrate_look_later(struct migration *m)
{
	if (m->rec.ended || (m->rec.state == M_PARKED && !migrate_awaits_job(m)))
		loop_timer_disarm(m->look);
	else
		loop_timer_arm(m->look, LOOK_MS);
}

/* The one place where a state is written. */
static int set_state(struct migration *m, enum migrate_state to, bool back, const char *note)
{
	if (!migrate_edge_ok(m->rec.role, m->rec.state, to, back, m->rec.committed)) {
		log_error("migration %s: edge %s to %s (%s) refused: a defect", m->rec.id,
			  migrate_state_name(m->rec.state), migrate_state_name(to),
			  back ? "back" : "forward");
		return -EPROTO;
	}
	m->rec.state = to;
	m->rec.back = back;
	if (!back && to < M_DONE)
		m->rec.reached = to;
	m->rec.ended = to == M_DONE || to == M_ABORTED;
	m->step = (struct migrate_step){.entered_us = now_us()};
	m->serial++;
	m->pending = 0;
	m->pending_rc = 0;
	int rc = write_journal(m, note);
	log_at(to == M_PARKED || to == M_CANCEL ? LOG_WARN : LOG_NOTICE,
	       "VM %s: migration %s (%s): %s%s%s%s", m->rec.vm_name, m->rec.id,
	       migrate_role_name(m->rec.role), back && !m->rec.ended ? "undo of " : "",
	       migrate_state_name(to), note ? ": " : "", note ? note : "");
	publish(m, note);
	if (!m->recovery.unprobed) /* then it is the next probe's */
		loop_timer_disarm(m->poll);
	arm_deadline(m);
	migrate_look_later(m);
	lease_sync(m->d);
	if (m->rec.ended)
		on_end(m);
	return rc;
}

/* ---- failing ---- */

static void park(struct migration *m)
{
	char note[HTTP_ERROR_MAX + 64];

	snprintf(note, sizeof note, "%.500s; when that is mended: ibvmig resolve %s",
		 m->rec.trouble, m->rec.id);
	set_state(m, M_PARKED, m->rec.back, note);
	migrate_answer_waiting(m, -EIO);
}

static void retry(struct migration *m)
{
	unsigned n = ++m->step.failures;

	if (n > RETRIES_MAX) {
		park(m);
		return;
	}
	if (n == 1)
		loop_timer_arm(m->deadline, RETRIES_MS);
	log_warn("VM %s: migration %s: %s%s failed (try %u of %d): %s", m->rec.vm_name, m->rec.id,
		 m->rec.back ? "undo of " : "", migrate_state_name(m->rec.state), n, RETRIES_MAX,
		 m->rec.trouble);
	if (m->rec.back) /* the caller who asked for the undo does so again */
		migrate_answer_waiting(m, -EIO);
	m->step.started = false;
	migrate_enter(m, 0);
	m->pending = 0;
	m->pending_rc = 0;
	m->serial++;
	m->step.resting = true;
	migrate_poll(m, RETRY_FIRST_MS * n < RETRY_LAST_MS ? RETRY_FIRST_MS * n : RETRY_LAST_MS);
}

static void step_failed(struct migration *m)
{
	if (m->rec.ended || m->rec.state == M_PARKED)
		return;
	if (m->rec.back || m->rec.committed || m->rec.state == M_CANCEL) {
		retry(m);
		return;
	}
	/* QEMU has been released and may be through already, and a guest that runs here needs its
	 * VF here: the source hears of it, and decides. */
	if (m->rec.role == DST && m->rec.state == M_SWITCH) {
		log_warn("VM %s: migration %s: SWITCH failed, the source decides: %s",
			 m->rec.vm_name, m->rec.id, m->rec.trouble);
		record_undo(&m->rec, DID_ORDER);
		m->step.started = true;
		memcpy(m->rec.reason, m->rec.trouble, sizeof m->rec.reason);
		migrate_answer_waiting(m, -EIO);
		return;
	}
	migrate_answer_waiting(m, -EIO);
	if (m->rec.role == SRC)
		set_state(m, M_CANCEL, false, m->rec.reason);
	else
		set_state(m, m->rec.state, true, m->rec.reason);
}

static void set_reason(struct migration *m, const char *fmt, va_list ap)
{
	vsnprintf(m->rec.trouble, sizeof m->rec.trouble, fmt, ap);
	/* The first trouble explains the rest. */
	if (!*m->rec.reason && !m->rec.back && !m->rec.committed && m->rec.state != M_CANCEL)
		memcpy(m->rec.reason, m->rec.trouble, sizeof m->rec.reason);
}

int migrate_error(struct migration *m, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_reason(m, fmt, ap);
	va_end(ap);
	return rc;
}

void migrate_give_up(struct migration *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_reason(m, fmt, ap);
	va_end(ap);
	migrate_answer_waiting(m, -ECANCELED);
	set_state(m, m->rec.state, true, m->rec.reason);
	migrate_drive(m);
}

void migrate_fail(struct migration *m, int rc, const char *fmt, ...)
{
	va_list ap;

	(void)rc;
	va_start(ap, fmt);
	set_reason(m, fmt, ap);
	va_end(ap);
	step_failed(m);
	migrate_drive(m);
}

/* The record is not durable. Before COMMIT it goes no further. QEMU, once released, may be through
 * at any moment, and the destination's SWITCH can be done twice. A VM that is a file is kept: the
 * journal has enough for a restart, which looks for the file. */
static void not_durable(struct migration *m, int rc)
{
	bool released = m->rec.role == DST && m->rec.state == M_ATTACH;

	if (m->rec.back || m->rec.committed || m->rec.ended || m->rec.state == M_CANCEL ||
	    released || record_did(&m->rec, DID_SAVE))
		return;
	migrate_error(m, rc, "the journal cannot be written; is the disk full?");
	step_failed(m);
}

static void saved(void *arg, int rc)
{
	struct migration *m = arg;

	if (rc)
		not_durable(m, rc);
	migrate_drive(m);
}

/* ---- the driver ---- */

/* -EPROTO: the table has no such edge. */
static int advance(struct migration *m)
{
	const struct migrate_row *row = migrate_row(m->rec.role, m->rec.state);
	bool save = m->rec.state == M_DETACH && m->rec.file;
	int rc;

	if (m->rec.state == M_CANCEL)
		return set_state(m, m->rec.reached, !m->rec.committed,
				 m->rec.committed ? "QEMU had finished" : NULL);
	if (m->rec.back) {
		row = row_before(m->rec.role, m->rec.state);
		return set_state(m, row ? row->state : M_ABORTED, true, row ? NULL : m->rec.reason);
	}
	rc = set_state(m, save ? M_SAVED : row->next, false, NULL);
	if (rc && rc != -EPROTO)
		not_durable(m, rc);
	return rc;
}

/* The machine has been told something that does not go with the state: nothing is done on a
 * guess. */
static void lose_way(struct migration *m)
{
	migrate_error(m, -EPROTO, "there is no way on from %s%s%s: a defect of ibvmigd",
		      m->rec.back ? "undo of " : "", migrate_state_name(m->rec.state),
		      m->rec.committed ? ", for the VM is said to run at the destination" : "");
	park(m);
}

static int run_phase(struct migration *m, const struct migrate_phase *p)
{
	if (m->step.begun)
		return p->again ? p->again(m) : STEP_WAIT;
	m->step.begun = true;
	return p->begin ? p->begin(m) : STEP_DONE;
}

int migrate_run_phases(struct migration *m, const struct migrate_phase *phases)
{
	const uint64_t serial = m->serial;

	m->step.phases = phases;
	m->step.started = true;
	while (phases[m->step.phase].name) {
		int rc = run_phase(m, &phases[m->step.phase]);

		if (m->serial != serial)
			return STEP_WAIT; /* the phase has failed the step: what runs next is known
					   */
		if (rc == STEP_DONE)
			migrate_next(m);
		else if (rc != STEP_JUMP)
			return rc;
	}
	return STEP_DONE;
}

static int run_step(struct migration *m)
{
	const struct migrate_row *row = migrate_row(m->rec.role, m->rec.state);

	/* Jobs that were under way when the step failed must be over before it is undone. CANCEL
	 * undoes nothing: a guest that is paused answers only once QEMU's job has ended. */
	if (m->rec.back && !m->step.started && m->inflight)
		return STEP_WAIT;
	if (m->kept.saving || m->step.resting || m->recovery.unprobed)
		return STEP_WAIT;
	if (m->rec.back)
		return row->undo ? row->undo(m) : STEP_DONE;
	if (row->phases)
		return migrate_run_phases(m, row->phases);
	return row->run ? row->run(m) : STEP_WAIT;
}

void migrate_drive(struct migration *m)
{
	if (m->driving) {
		m->again = true;
		return;
	}
	m->driving = true;
	do {
		m->again = false;
		if (m->rec.ended || m->rec.state == M_PARKED)
			break;
		int rc = run_step(m);
		if (rc == STEP_DONE) {
			m->again = true;
			if (advance(m) == -EPROTO)
				lose_way(m);
		} else if (rc < 0) {
			step_failed(m);
			m->again |= !m->step.resting;
		}
	} while (m->again);
	m->driving = false;
}

static void on_deadline(void *arg)
{
	struct migration *m = arg;
	char missing[HTTP_ERROR_MAX / 2];

	/* Libvirtd's absence took so long, and it is not known what there is to fail. */
	if (m->recovery.unprobed) {
		arm_deadline(m);
		return;
	}
	/* The tries before have left their trouble in the record. */
	if (m->step.failures) {
		park(m);
		return;
	}
	m->step.timed_out = true;
	if (m->rec.role == DST && m->rec.state <= M_SWITCH && record_did(&m->rec, DID_ARM) &&
	    !m->rec.back && !m->rec.committed) {
		migrate_drive(m); /* asks the source for a verdict */
		return;
	}
	watch->missing(m, missing, sizeof missing);
	migrate_fail(m, -ETIMEDOUT, "%s%s was not done within %u s%s",
		     m->rec.back ? "undo of " : "", migrate_state_name(m->rec.state),
		     deadline_ms(m) / 1000, missing);
}

static void on_poll(void *arg)
{
	struct migration *m = arg;

	m->step.resting = false;
	if (m->recovery.unprobed)
		watch->probe(m);
	else
		migrate_drive(m);
}

void migrate_deadline_again(struct migration *m)
{
	loop_timer_arm(m->deadline, migrate_row(m->rec.role, m->rec.state)->deadline_ms);
}

/* ---- jobs of steps ---- */

static void step_job_done(struct job *j)
{
	struct migration *m = j->owner;

	m->inflight--;
	if (m->serial == j->serial)
		j->then(m, j);
	migrate_drive(m);
}

int migrate_order(struct migration *m, struct job_order o,
		  void (*done)(struct migration *m, struct job *j))
{
	o.done = step_job_done;
	o.then = done;
	o.owner = m;
	o.serial = m->serial;
	if (job_order(m->d, &o))
		return migrate_error(m, -ENOMEM, "out of memory");
	m->inflight++;
	return STEP_WAIT;
}

int migrate_job(struct migration *m, struct json_object *in, void (*run)(struct job *j),
		void (*done)(struct migration *m, struct job *j))
{
	return migrate_order(m, (struct job_order){.in = in, .run = run}, done);
}

void migrate_job_next(struct migration *m, struct job *j)
{
	if (!migrate_job_failed(m, j))
		migrate_next(m);
}

struct step_request {
	struct migration *m;
	uint64_t serial;
	void (*done)(struct migration *m, int rc, struct json_object *answer, const char *error);
};

static void step_request_done(void *arg, int rc, struct json_object *answer, const char *error)
{
	struct step_request *s = arg;
	struct migration *m = s->m;

	m->inflight--;
	/* A daemon that is stopped has no answer; the next one takes the record up. */
	if (!m->d->stopping) {
		if (m->serial == s->serial && s->done)
			s->done(m, rc, answer, error);
		migrate_drive(m);
	}
	free(s);
}

void migrate_ask_agent(struct migration *m, struct vm *vm, struct json_object *msg,
		       unsigned deadline_ms,
		       void (*done)(struct migration *m, int rc, struct json_object *answer,
				    const char *error))
{
	struct step_request *s = malloc(sizeof *s);

	if (!s)
		abort(); /* some bytes: the kernel's overcommit ends the process elsewhere */
	*s = (struct step_request){.m = m, .serial = m->serial, .done = done};
	m->inflight++;
	agent_request(vm->agent, msg, deadline_ms, step_request_done, s);
}

/* ---- birth and death ---- */

static void migration_free(struct migration *m)
{
	loop_timer_free(m->deadline);
	loop_timer_free(m->poll);
	loop_timer_free(m->look);
	kept_clear(&m->kept);
	record_clear(&m->rec);
	free(m->dst.hook_xml);
	json_object_put(m->src.pkeys);
	free(m);
}

/* Old ends leave memory; the journal keeps them. */
static void collect(struct daemon *d)
{
	unsigned kept = 0;

	for (struct migration **p = &d->migrations; *p;) {
		struct migration *m = *p;

		if (++kept <= MIGRATE_KEPT || !m->rec.ended || m->inflight || m->looking ||
		    m->kept.saving || m->kept.behind || m->driving) {
			p = &m->next;
			continue;
		}
		*p = m->next;
		migration_free(m);
	}
}

static void new_id(char id[static 37])
{
	char *text AUTO_FREE = NULL;

	snprintf(id, 37, "%016llx-0000-0000-0000", (unsigned long long)now_us());
	if (!read_file("/proc/sys/kernel/random/uuid", 64, &text, NULL))
		snprintf(id, 37, "%.36s", text);
}

struct migration *migrate_new(struct daemon *d, enum migrate_role role, const char *id,
			      const char *vm_uuid, const char *vm_name)
{
	struct migration *m = calloc(1, sizeof *m);

	if (!m || loop_timer_new(d->loop, on_deadline, m, &m->deadline) ||
	    loop_timer_new(d->loop, on_poll, m, &m->poll) ||
	    loop_timer_new(d->loop, watch->look, m, &m->look) ||
	    kept_init(&m->kept, d->loop, write_again, saved, m)) {
		if (m)
			migration_free(m);
		return NULL;
	}
	m->d = d;
	m->rec.role = role;
	m->rec.state = m->rec.reached = M_PREPARE;
	m->step.entered_us = now_us();
	m->serial = 1;
	m->rec.data = json_object_new_object();
	if (id)
		snprintf(m->rec.id, sizeof m->rec.id, "%s", id);
	else
		new_id(m->rec.id);
	snprintf(m->rec.vm_uuid, sizeof m->rec.vm_uuid, "%s", vm_uuid);
	snprintf(m->rec.vm_name, sizeof m->rec.vm_name, "%s", vm_name);
	boot_id(m->rec.boot);
	m->next = d->migrations;
	d->migrations = m;
	collect(d);
	arm_deadline(m);
	migrate_look_later(m);
	lease_sync(d);
	return m;
}

int migrate_load(struct migration *m, struct json_object *record)
{
	char now[sizeof m->rec.boot];
	int rc;

	memcpy(now, m->rec.boot, sizeof now);
	rc = record_load(&m->rec, record);
	m->recovery.rebooted = !str_eq(m->rec.boot, now);
	return rc;
}

int migrate_reload(struct migration *m, struct json_object *record)
{
	int rc = migrate_load(m, record);

	arm_deadline(m);
	migrate_look_later(m);
	return rc;
}

bool migrate_has_left(struct daemon *d, const char *vm_uuid)
{
	const struct migration *m = migrate_open(d, vm_uuid);

	return m && m->rec.role == SRC &&
	       (m->rec.committed || (m->recovery.rebooted && !record_is_file(&m->rec)));
}

void migrate_free_all(struct daemon *d)
{
	while (d->migrations) {
		struct migration *m = d->migrations;

		d->migrations = m->next;
		migration_free(m);
	}
}

void migrate_set_committed(struct migration *m)
{
	const bool parked = migrate_awaits_job(m);
	struct vm *vm = migrate_vm(m);

	if (m->rec.committed)
		return;
	m->rec.committed = true;
	m->committed_us = now_us();
	m->step.resting = false;
	/* The VM's QEMU may linger: messages to the VM go to its new host from now on. */
	if (vm && m->rec.role == SRC) {
		vm->state = VM_LEAVING;
		for (unsigned i = 0; i < m->rec.vf_count; i++)
			relay_set_route(m->d->relay, m->rec.vfs[i].vguid, m->rec.to.url);
	}
	migrate_save(m, "COMMIT");
	if (parked)
		migrate_unpark(m, "QEMU had finished");
}

bool migrate_awaits_job(const struct migration *m)
{
	return m->rec.state == M_PARKED && m->rec.role == SRC && !m->rec.back && !m->rec.committed;
}

void migrate_unpark(struct migration *m, const char *note)
{
	if (migrate_awaits_job(m))
		set_state(m, M_CANCEL, false, note);
	else
		set_state(m, m->rec.reached, !m->rec.committed, note);
	migrate_drive(m);
}

void migrate_vm_died(struct migration *m)
{
	record_do(&m->rec, SAW_VM_END);
	if (m->rec.state == M_PARKED)
		migrate_unpark(m, "the VM has ended");
}

int migrate_resolve(struct daemon *d, const char *id)
{
	int rc = -ENOENT;

	for (struct migration *m = d->migrations; m; m = m->next) {
		if (strcmp(m->rec.id, id))
			continue;
		if (watch->give_up(m)) {
			rc = 0;
			continue;
		}
		if (m->rec.state != M_PARKED) {
			rc = rc == -ENOENT ? -EINVAL : rc;
			continue;
		}
		migrate_unpark(m, "resolved by the operator");
		rc = 0;
	}
	return rc;
}
