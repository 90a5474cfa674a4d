/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The migration state machine: one driver, one function that writes the state
 * (daemon/migrate/table.c has the table). docs/migration.md shows it; `ibvmigd --dump-states`
 * prints it. */
#ifndef IBVMIG_DAEMON_MIGRATE_MACHINE_H
#define IBVMIG_DAEMON_MIGRATE_MACHINE_H

#include "common/http/client.h"
#include "common/json.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/migrate/hold.h"
#include "daemon/base/daemon.h"
#include "daemon/base/job.h"
#include "daemon/libvirt/virt.h"
#include "daemon/vm/vm.h"
#include "daemon/migrate/record.h"
#include "daemon/store/durable.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MIGRATE_KEPT 32 /* ended ones that stay in memory */

/* QEMU's migration job at the source, as far as it is known. */
enum migrate_job { JOB_NONE, JOB_ACTIVE, JOB_COMPLETED, JOB_FAILED };

/* A phase of a step. Both functions return STEP_DONE: the next phase follows; STEP_WAIT;
 * migrate_enter(): another one does; or -errno, as run() does. */
struct migrate_phase {
	const char *name;                  /* as `ibvmig status` shows it; NULL ends the table */
	int (*begin)(struct migration *m); /* once; NULL: nothing to begin */
	/* On each drive from then on; NULL: who has been asked answers with migrate_next(). */
	int (*again)(struct migration *m);
};

/* Zeroed whenever the state changes. */
struct migrate_step {
	const struct migrate_phase *phases; /* borrowed; of the step that runs, or NULL */
	unsigned phase;                     /* of them */
	bool begun;                         /* the phase has begun */
	bool started, timed_out;
	bool resting;      /* failed, and waits for its next try */
	unsigned failures; /* kept by a retry */
	bool busy;         /* a peer is another migration's */
	bool ask_again;    /* the mover's agent, while its peers still wait */
	unsigned asked_again;
	uint64_t asked_us;
	uint64_t heard_us; /* the other host spoke last */
	unsigned silent;   /* questions to it in vain since then */
	bool silence_told;
	uint64_t entered_us;
};

/* A record of an older life of this host still has to learn these. */
struct recovery {
	bool unprobed; /* no step runs until libvirt has told where the VM is */
	bool probing;  /* libvirt is being asked */
	bool rebooted; /* the kernel is another one: the QEMU of then is gone, whatever runs here
			* now, and what its VFs showed */
	unsigned
		probes; /* questions that found neither the VM here nor a destination that has it */
};

/* Facts that only the host knows that the VM leaves. */
struct src {
	enum migrate_job job;
	bool guest_stopped; /* by QEMU, to send the rest */
	bool stands;        /* the VM was paused when it was looked for last */
	bool peer_ended;    /* the other host has reached its end */
	struct hold hold;
	uint64_t user_bandwidth, user_downtime_ms; /* the user has set these */
	struct qmp_throttle user_throttle;
	uint64_t set_bandwidth; /* we have set this last; 0: nothing */
	uint64_t suspended_us, detach_started_us;
	struct json_object *pkeys; /* owned; that QPs of the guest use: partition_used() */
	bool new_pkeys;            /* the last answer to `query` had some that were not asked for */
};

/* Facts that only the host knows that the VM comes to. */
struct dst {
	bool guest_resumed; /* QEMU's RESUME event */
	char *hook_xml;     /* owned; the domain's, then what libvirt is to take; or NULL */
};

/* The machine of one record. The record is what outlives this process; the rest is what this
 * process knows of it beside. A step writes of the machine its step, pending and the like, of the
 * record what record.h has functions for, and never the state. */
struct migration {
	struct migration *next;
	struct daemon *d; /* borrowed */
	struct record rec;
	struct kept kept; /* the journal's copy of rec */
	struct recovery recovery;
	struct src src; /* zeroed at the destination */
	struct dst dst; /* zeroed at the source */

	struct migrate_step step;
	uint64_t serial;   /* the step's: a job of an older one is ignored */
	unsigned inflight; /* jobs and agent requests under way */
	unsigned pending;  /* jobs and requests that the step waits for together */
	int pending_rc;
	char pending_error[HTTP_ERROR_MAX];
	struct loop_timer *deadline, *poll; /* owned */
	struct loop_timer *look;            /* owned; migrate/events.c */
	struct http_exchange *waiting; /* the caller that asked for the step under way, or NULL */
	uint64_t committed_us;
	bool driving, again;
	bool looking; /* a look is under way */
	bool leased;  /* daemon/store/lease.h has a lease of it */
};

/* Tries of the present state, or questions to the other host, that were in vain. */
static inline unsigned migrate_failures(const struct migration *m)
{
	return m->step.failures ? m->step.failures : m->step.silent;
}

/* NULL: this role has no such state. */
const struct migrate_row *migrate_row(enum migrate_role role, enum migrate_state state);
/* The machine knows this edge. */
bool migrate_edge_ok(enum migrate_role role, enum migrate_state from, enum migrate_state to,
		     bool back, bool committed);

/* The machine calls the steps' floor through these only; daemon/migrate/table.c fills them. */
struct migrate_watch {
	/* A state is over its time: what is still missing, "" if nothing can be said. */
	void (*missing)(const struct migration *m, char *text, size_t bytes);
	void (*look)(void *m);              /* the timer of m->look */
	void (*probe)(struct migration *m); /* a record of before a restart is to be asked about */
	bool (*give_up)(struct migration *m); /* an operator's resolve. false: not in that state */
	void (*release)(struct migration *m); /* a saved VM's VFs are given back */
};

/* Before the first record: the table, in the order of the way forward, and the steps' part of it.
 */
void migrate_set_table(const struct migrate_row *table, size_t count,
		       const struct migrate_watch *w);
/* Does that with daemon/migrate/table.c's; again is no harm. */
void migrate_use_table(void);
void migrate_dump_states(FILE *out);

/* id: NULL makes a new one. The record starts in PREPARE, journaled. NULL if it cannot be. */
struct migration *migrate_new(struct daemon *d, enum migrate_role role, const char *id,
			      const char *vm_uuid, const char *vm_name);
void migrate_free_all(struct daemon *d);

/* Borrowed; NULL: this host does not have it, or not any more. */
static inline struct migration *migrate_find(struct daemon *d, const char *id,
					     enum migrate_role role)
{
	for (struct migration *m = d->migrations; m; m = m->next)
		if (m->rec.role == role && !strcmp(m->rec.id, id))
			return m;
	return NULL;
}

/* The one of this VM that has not ended, or NULL. */
static inline struct migration *migrate_open(struct daemon *d, const char *vm_uuid)
{
	for (struct migration *m = d->migrations; m; m = m->next)
		if (!m->rec.ended && !strcmp(m->rec.vm_uuid, vm_uuid))
			return m;
	return NULL;
}

/* Runs the present state's step until it waits. */
void migrate_drive(struct migration *m);
/* For run() and undo(): goes on in these phases, in their order unless one says otherwise. A retry
 * begins with the first one. */
int migrate_run_phases(struct migration *m, const struct migrate_phase *phases);
/* The step is in another phase, which begins on the next drive. Returns STEP_JUMP. */
static inline int migrate_enter(struct migration *m, unsigned phase)
{
	m->step.phase = phase;
	m->step.begun = false;
	return STEP_JUMP;
}

static inline int migrate_next(struct migration *m)
{
	return migrate_enter(m, m->step.phase + 1);
}

/* The phase has begun. */
static inline bool migrate_is_in(const struct migration *m, unsigned phase)
{
	return m->step.begun && m->step.phase == phase;
}

/* For run() and undo(): sets the reason and returns rc. */
int migrate_error(struct migration *m, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The step failed, seen from a callback; what follows depends on COMMIT. */
void migrate_fail(struct migration *m, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A worker sequence for the present step; owner, serial and done of o follow from the rest. done()
 * is called only if the step is still the same, but m->inflight is always lowered. A run() that
 * waits until the other host's pool has done something names the pool d->callers. STEP_WAIT, or
 * -ENOMEM with m's reason. */
int migrate_order(struct migration *m, struct job_order o,
		  void (*done)(struct migration *m, struct job *j));
/* The same without typed work. */
int migrate_job(struct migration *m, struct json_object *in, void (*run)(struct job *j),
		void (*done)(struct migration *m, struct job *j));
/* For done(): the job has failed, so the step has. */
static inline bool migrate_job_failed(struct migration *m, const struct job *j)
{
	if (j->rc)
		migrate_fail(m, j->rc, "%s", j->error);
	return j->rc;
}

/* A done() of its own: the next phase follows, unless the job has failed. */
void migrate_job_next(struct migration *m, struct job *j);
/* The same as migrate_order() for a request to the VM's agent. */
void migrate_ask_agent(struct migration *m, struct vm *vm, struct json_object *msg,
		       unsigned deadline_ms,
		       void (*done)(struct migration *m, int rc, struct json_object *answer,
				    const char *error));
/* The destination walks back, because the VM does not come: the source's word, or the VM's end. */
void migrate_give_up(struct migration *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Writes the record without a change of state; no step runs until it is durable. 0 or -errno: it
 * cannot be written. */
int migrate_save(struct migration *m, const char *note);
/* The state's deadline runs from now on. */
void migrate_deadline_again(struct migration *m);
/* Runs the step again after a while. */
static inline void migrate_poll(struct migration *m, unsigned after_ms)
{
	loop_timer_arm(m->poll, after_ms);
}
void migrate_set_committed(struct migration *m);
static inline struct vm *migrate_vm(const struct migration *m)
{
	return vm_find(m->d, m->rec.vm_uuid);
}

/* VMs tell migrations by these. */
extern const struct vm_watcher migrate_vm_watcher;

/* At the start, before any other call: sets the table up, and reads the journal's open migrations.
 * These are taken up again once libvirt's vms VMs
 * are inspected, of which migrate_recover() counts one. */
void migrate_load_open(struct daemon *d);
void migrate_recover_after(struct daemon *d, size_t vms);
void migrate_recover(struct daemon *d);
/* An operator says that a parked migration may go on. -ENOENT, -EINVAL if it is not parked. */
int migrate_resolve(struct daemon *d, const char *id);
/* m: PARKED. It goes on, or back; where QEMU's job had not ended, to CANCEL again. */
void migrate_unpark(struct migration *m, const char *note);
/* PARKED by CANCEL: QEMU's job may still end, either way, and the record then goes on by itself.
 * migrate/events.c asks for that. */
bool migrate_awaits_job(const struct migration *m);
/* The VM has left this host by a migration that has not ended here. */
bool migrate_has_left(struct daemon *d, const char *vm_uuid);

/* "STATE/phase", or NULL where the state has no phases. */
#define MIGRATE_PHASE_TEXT 48
const char *migrate_phase(const struct migration *m, char text[static MIGRATE_PHASE_TEXT]);
/* The record as an answer, or part of one. */
struct json_object *migrate_record(const struct migration *m);
/* A VM's status says this of the migration: how far it is and why, without the fields that only
 * steps need. */
void migrate_write_account(struct printbuf *text, const char *key, const struct migration *m);
int migrate_load(struct migration *m, struct json_object *record);
/* The same after a restart: the state's deadline runs from now on. */
int migrate_reload(struct migration *m, struct json_object *record);
/* The VM has stopped, and not by migrating: a parked record goes on without it. */
void migrate_vm_died(struct migration *m);

/* A time in us since the step began goes into the record as name. */
static inline void migrate_measure(struct migration *m, const char *name)
{
	json_set_u64(m->rec.data, name, now_us() - m->step.entered_us);
}

#endif
