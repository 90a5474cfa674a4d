/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Durable state: SQLite in WAL mode. What a function has returned 0 for survives kill -9, and a
 * power cut once journal_sync() has returned 0 after it (daemon/store/durable.h calls it). One
 * thread writes and reads; another one syncs. */
#ifndef IBVMIG_DAEMON_STORE_JOURNAL_H
#define IBVMIG_DAEMON_STORE_JOURNAL_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct journal;

/* A state change of a migration; all texts are borrowed. */
struct journal_step {
	const char *id, *role, *vm, *state;
	const char *direction; /* "forward" or "back" */
	const char *note;      /* or NULL */
	const char *record;    /* JSON of the whole record, to re-enter it */
	bool ended;
	uint64_t wall_ms, mono_us;
};

/* Records of migrations that have ended, and events of VMs, are kept up to keep of each, the newest
 * by when they were written. Records that have not ended (PARKED ones too) are never deleted. The
 * room of those that go is used again, so the file stays at its size. 0, or -errno and a line in
 * *ret_error (owned by the caller). */
int journal_open(const char *state_dir, unsigned keep, struct journal **ret_journal,
		 char **ret_error);
void journal_close(struct journal *j);
/* Gives up what is cached of it: nobody will ask for a while. */
void journal_rest(struct journal *j);

/* How many writes there have been: any thread may read it. Borrowed. */
const _Atomic uint64_t *journal_written(const struct journal *j);
/* Blocks until all that was written before the call is on the disk: fdatasync() of the WAL, which
 * SQLite leaves out with synchronous=NORMAL. One thread at a time, not necessarily the writer. 0 or
 * -errno: nothing that was written since the last 0 can be relied on. */
int journal_sync(struct journal *j);

int journal_step(struct journal *j, const struct journal_step *s);
/* Keeps an event of a VM, outside of migrations. */
int journal_event(struct journal *j, const char *vm, const char *text);

/* Records that have not ended, newest first, at most limit. Owned by the caller. */
struct json_object *journal_open_migrations(struct journal *j, unsigned limit);
/* Returns the records, newest first, at most limit, to be sent on: an array of texts that nobody
 * has parsed, so no field of it can be read. One above 32 KiB comes without its data and peers.
 * Owned by the caller. */
struct json_object *journal_latest_migrations(struct journal *j, unsigned limit);
/* {…record, "transitions":[…]} for each role of this id, or NULL. A record above 1 MiB comes
 * without its data and peers. */
struct json_object *journal_migration(struct journal *j, const char *id);
struct json_object *journal_events(struct journal *j, unsigned limit);

/* Leases: one row per VF in use. data: JSON text. */
int journal_lease_put(struct journal *j, const char *vf, const char *vm, const char *data);
int journal_lease_del(struct journal *j, const char *vf);
/* [{"vf","vm",…data}] */
struct json_object *journal_leases(struct journal *j);

/* Since when (wall clock) this host takes no VMs; 0: it takes them. */
uint64_t journal_drained(struct journal *j);
int journal_set_drained(struct journal *j, uint64_t since_ms);

/* Drains that this daemon runs. data: JSON text. */
int journal_drain_put(struct journal *j, uint64_t number, const char *data);
int journal_drain_del(struct journal *j, uint64_t number);
/* [data]; owned by the caller. */
struct json_object *journal_drains(struct journal *j);

/* Migrations of others that VMs of this host are suspended for. data: JSON text. */
int journal_watch_put(struct journal *j, const char *id, const char *data);
int journal_watch_del(struct journal *j, const char *id);
/* [data]; owned by the caller. */
struct json_object *journal_watches(struct journal *j);

#endif
