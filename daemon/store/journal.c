/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/store/journal.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#define CHECKPOINT_PAGES 1000 /* pages of the WAL, about 4 MiB: SQLite's own default */
#define BUSY_MS          2000

/* A record as it is shown, of at most so many bytes: two hundred in a list fit in an answer
 * (HTTP_ANSWER_MAX). A guest's answer in a record of an older version may be as long as it liked.
 */
#define LISTED_BYTES "32768"
#define SHOWN_BYTES  "1048576"
#define RECORD_WITHIN(bytes)                                                                       \
	"CASE WHEN length(record) > " bytes                                                        \
	" THEN json_remove(record, '$.data', '$.peers') ELSE record END"

static const char schema[] =
	"CREATE TABLE IF NOT EXISTS migrations(id TEXT, role TEXT, vm TEXT, state TEXT,"
	" ended INTEGER, updated_ms INTEGER, record TEXT, PRIMARY KEY(id, role));"
	"DROP INDEX IF EXISTS migrations_updated;" /* older versions made it */
	"CREATE INDEX IF NOT EXISTS migrations_ended ON migrations(ended);"
	"CREATE TABLE IF NOT EXISTS transitions(seq INTEGER PRIMARY KEY, id TEXT, role TEXT,"
	" state TEXT, direction TEXT, note TEXT, wall_ms INTEGER, mono_us INTEGER);"
	"CREATE INDEX IF NOT EXISTS transitions_id ON transitions(id);"
	"CREATE TABLE IF NOT EXISTS events(seq INTEGER PRIMARY KEY, vm TEXT, text TEXT,"
	" wall_ms INTEGER);"
	"CREATE TABLE IF NOT EXISTS leases(vf TEXT PRIMARY KEY, vm TEXT, data TEXT);"
	"CREATE TABLE IF NOT EXISTS watches(id TEXT PRIMARY KEY, data TEXT);"
	"CREATE TABLE IF NOT EXISTS drained(one INTEGER PRIMARY KEY, since_ms INTEGER);"
	"CREATE TABLE IF NOT EXISTS drains(number INTEGER PRIMARY KEY, data TEXT);";

enum statement {
	BEGIN,
	COMMIT,
	ROLLBACK,
	MIGRATION_PUT,
	TRANSITION_ADD,
	OLD_TRANSITIONS_DEL,
	OLD_MIGRATION_DEL,
	EVENT_ADD,
	OLD_EVENTS_DEL,
	MIGRATIONS_ALL,
	MIGRATIONS_OPEN,
	MIGRATION_GET,
	TRANSITIONS_GET,
	EVENTS_GET,
	LEASE_PUT,
	LEASE_DEL,
	LEASES,
	WATCH_PUT,
	WATCH_DEL,
	WATCHES,
	DRAINED_PUT,
	DRAINED,
	DRAIN_PUT,
	DRAIN_DEL,
	DRAINS,
	STATEMENTS
};

static const char *const sql[STATEMENTS] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",
	[MIGRATION_PUT] = "INSERT OR REPLACE INTO migrations(id, role, vm, state, ended,"
			  " updated_ms, record) VALUES(?,?,?,?,?,?,?)",
	[TRANSITION_ADD] = "INSERT INTO transitions(id, role, state, direction, note, wall_ms,"
			   " mono_us) VALUES(?,?,?,?,?,?,?)",
	/* A write gives a row a new id (OR REPLACE), so they tell what was written last whatever
	 * the wall clock does. */
	[OLD_TRANSITIONS_DEL] = "DELETE FROM transitions WHERE (id, role) = (SELECT id, role"
				" FROM migrations WHERE ended=1 ORDER BY rowid DESC"
				" LIMIT 1 OFFSET ?)",
	[OLD_MIGRATION_DEL] = "DELETE FROM migrations WHERE rowid = (SELECT rowid"
			      " FROM migrations WHERE ended=1 ORDER BY rowid DESC"
			      " LIMIT 1 OFFSET ?)",
	[EVENT_ADD] = "INSERT INTO events(vm, text, wall_ms) VALUES(?,?,?)",
	[OLD_EVENTS_DEL] = "DELETE FROM events WHERE seq <= (SELECT MAX(seq) FROM events) - ?",
	[MIGRATIONS_ALL] = "SELECT " RECORD_WITHIN(
		LISTED_BYTES) " FROM migrations ORDER BY rowid DESC LIMIT ?",
	[MIGRATIONS_OPEN] = "SELECT record FROM migrations WHERE ended=0"
			    " ORDER BY rowid DESC LIMIT ?",
	[MIGRATION_GET] = "SELECT role, " RECORD_WITHIN(SHOWN_BYTES) " FROM migrations WHERE id=?",
	[TRANSITIONS_GET] = "SELECT state, direction, note, wall_ms, mono_us FROM transitions"
			    " WHERE id=? AND role=? ORDER BY seq",
	[EVENTS_GET] = "SELECT vm, text, wall_ms FROM events ORDER BY seq DESC LIMIT ?",
	[LEASE_PUT] = "INSERT OR REPLACE INTO leases(vf, vm, data) VALUES(?,?,?)",
	[LEASE_DEL] = "DELETE FROM leases WHERE vf=?",
	[LEASES] = "SELECT vf, vm, data FROM leases",
	[WATCH_PUT] = "INSERT OR REPLACE INTO watches(id, data) VALUES(?,?)",
	[WATCH_DEL] = "DELETE FROM watches WHERE id=?",
	[WATCHES] = "SELECT data FROM watches",
	[DRAINED_PUT] = "INSERT OR REPLACE INTO drained(one, since_ms) VALUES(1,?)",
	[DRAINED] = "SELECT since_ms FROM drained",
	[DRAIN_PUT] = "INSERT OR REPLACE INTO drains(number, data) VALUES(?,?)",
	[DRAIN_DEL] = "DELETE FROM drains WHERE number=?",
	[DRAINS] = "SELECT data FROM drains ORDER BY number",
};

struct journal {
	sqlite3 *db;                    /* owned */
	sqlite3_stmt *stmt[STATEMENTS]; /* owned */
	unsigned keep;
	sqlite3 *copier;  /* owned; of journal_sync()'s thread: moves the WAL into db */
	int wal_fd;       /* owned; the same */
	bool sync_failed; /* the same */
	_Atomic uint64_t written;
	_Atomic int wal_pages;
};

/* SQLite's word that a write is in the WAL; with it, nothing but copy_wal() empties that. */
static int on_written(void *arg, sqlite3 *db, const char *name, int wal_pages)
{
	struct journal *j = arg;

	(void)db;
	(void)name;
	j->wal_pages = wal_pages;
	j->written++;
	return SQLITE_OK;
}

static int open_db(const char *path, sqlite3 **ret_db)
{
	int rc = sqlite3_open(path, ret_db);

	if (rc)
		return rc;
	sqlite3_busy_timeout(*ret_db, BUSY_MS);
	return sqlite3_exec(*ret_db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", NULL,
			    NULL, NULL);
}

static int open_files(struct journal *j, const char *path)
{
	char *wal AUTO_FREE = strf("%s-wal", path);
	int rc = open_db(path, &j->db);

	if (!rc)
		rc = sqlite3_exec(j->db, schema, NULL, NULL, NULL);
	if (!rc)
		rc = open_db(path, &j->copier);
	if (rc)
		return rc;
	sqlite3_wal_hook(j->db, on_written, j);
	j->wal_fd = wal ? open(wal, O_RDWR | O_CLOEXEC) : -1;
	return j->wal_fd < 0 ? SQLITE_CANTOPEN : SQLITE_OK;
}

static int delete_old(struct journal *j);

int journal_open(const char *state_dir, unsigned keep, struct journal **ret_journal,
		 char **ret_error)
{
	char *path AUTO_FREE = strf("%s/ibvmigd.db", state_dir);
	struct journal *j = calloc(1, sizeof *j);
	int rc;

	if (!j || !path) {
		free(j);
		return -ENOMEM;
	}
	j->wal_fd = -1;
	j->keep = keep;
	mkdir(state_dir, 0700);
	rc = open_files(j, path);
	for (int i = 0; !rc && i < STATEMENTS; i++)
		rc = sqlite3_prepare_v3(j->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &j->stmt[i],
					NULL);
	/* A full disk does not keep ibvmigd from what it has under way: the next end tries again.
	 */
	if (!rc)
		delete_old(j);
	if (rc) {
		*ret_error = strf("cannot open the journal %s: %s", path, sqlite3_errstr(rc));
		journal_close(j);
		return -EIO;
	}
	*ret_journal = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(j->stmt[i]);
	sqlite3_close(j->copier);
	sqlite3_close(j->db);
	if (j->wal_fd >= 0)
		close(j->wal_fd);
	free(j);
}

const _Atomic uint64_t *journal_written(const struct journal *j)
{
	return &j->written;
}

static int copy_wal(struct journal *j, int mode)
{
	return sqlite3_wal_checkpoint_v2(j->copier, NULL, mode, NULL, NULL) ? -EIO : 0;
}

void journal_rest(struct journal *j)
{
	sqlite3_db_release_memory(j->db);
}

int journal_sync(struct journal *j)
{
	int rc;

	/* Pages that the kernel could not write once it takes for written afterwards, in the WAL:
	 * they are written anew, to the database. */
	if (j->sync_failed)
		rc = copy_wal(j, SQLITE_CHECKPOINT_TRUNCATE);
	else
		rc = fdatasync(j->wal_fd) ? -errno : 0;
	j->sync_failed = rc;
	if (rc)
		log_error("journal: cannot be made durable: %s", strerror(-rc));
	else if (j->wal_pages >= CHECKPOINT_PAGES)
		copy_wal(j, SQLITE_CHECKPOINT_PASSIVE);
	return rc;
}

static sqlite3_stmt *start(struct journal *j, enum statement s)
{
	sqlite3_reset(j->stmt[s]);
	sqlite3_clear_bindings(j->stmt[s]);
	return j->stmt[s];
}

static void bind(sqlite3_stmt *st, int n, const char *text)
{
	sqlite3_bind_text(st, n, text, -1, SQLITE_STATIC);
}

static int finish(struct journal *j, sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	if (rc == SQLITE_DONE)
		return 0;
	log_error("journal: %s", sqlite3_errmsg(j->db));
	return -EIO;
}

static int put_migration(struct journal *j, const struct journal_step *s)
{
	sqlite3_stmt *st = start(j, MIGRATION_PUT);

	bind(st, 1, s->id);
	bind(st, 2, s->role);
	bind(st, 3, s->vm);
	bind(st, 4, s->state);
	sqlite3_bind_int(st, 5, s->ended);
	sqlite3_bind_int64(st, 6, (int64_t)s->wall_ms);
	bind(st, 7, s->record);
	return finish(j, st);
}

static int add_transition(struct journal *j, const struct journal_step *s)
{
	sqlite3_stmt *st = start(j, TRANSITION_ADD);

	bind(st, 1, s->id);
	bind(st, 2, s->role);
	bind(st, 3, s->state);
	bind(st, 4, s->direction);
	bind(st, 5, s->note);
	sqlite3_bind_int64(st, 6, (int64_t)s->wall_ms);
	sqlite3_bind_int64(st, 7, (int64_t)s->mono_us);
	return finish(j, st);
}

static int end_transaction(struct journal *j, int rc)
{
	if (!rc)
		rc = finish(j, start(j, COMMIT));
	if (rc)
		finish(j, start(j, ROLLBACK));
	return rc;
}

static int delete_beyond(struct journal *j, enum statement s)
{
	sqlite3_stmt *st = start(j, s);

	sqlite3_bind_int64(st, 1, j->keep);
	return finish(j, st);
}

/* In a transaction. One end leaves one too many; at the start there may be more, of a daemon that
 * kept more. */
static int delete_old_migrations(struct journal *j)
{
	int rc;

	do {
		rc = delete_beyond(j, OLD_TRANSITIONS_DEL);
		if (!rc)
			rc = delete_beyond(j, OLD_MIGRATION_DEL);
	} while (!rc && sqlite3_changes(j->db));
	return rc;
}

static int delete_old(struct journal *j)
{
	int rc = finish(j, start(j, BEGIN));

	if (rc)
		return rc;
	rc = delete_old_migrations(j);
	if (!rc)
		rc = delete_beyond(j, OLD_EVENTS_DEL);
	return end_transaction(j, rc);
}

int journal_step(struct journal *j, const struct journal_step *s)
{
	int rc = finish(j, start(j, BEGIN));

	if (rc)
		return rc;
	rc = put_migration(j, s);
	if (!rc)
		rc = add_transition(j, s);
	if (!rc && s->ended)
		rc = delete_old_migrations(j);
	return end_transaction(j, rc);
}

int journal_event(struct journal *j, const char *vm, const char *text)
{
	sqlite3_stmt *st = start(j, EVENT_ADD);

	int rc;

	bind(st, 1, vm);
	bind(st, 2, text);
	sqlite3_bind_int64(st, 3, (int64_t)wall_ms());
	rc = finish(j, st);
	return rc ? rc : delete_beyond(j, OLD_EVENTS_DEL);
}

static const char *column(sqlite3_stmt *st, int col)
{
	return (const char *)sqlite3_column_text(st, col);
}

/* Older versions wrote what guests had said as it was. Owned by the caller; NULL: it is UTF-8, as
 * nearly always. */
static char *mended(const char *text)
{
	return text && !utf8_is_valid(text, strlen(text)) ? utf8_mend(text) : NULL;
}

static struct json_object *column_json(sqlite3_stmt *st, int col)
{
	const char *text = column(st, col);
	char *copy AUTO_FREE = mended(text);
	struct json_object *o = NULL;

	if (copy)
		text = copy;
	if (!text || json_parse(text, strlen(text), &o))
		return json_object_new_object();
	return o;
}

struct json_object *journal_open_migrations(struct journal *j, unsigned limit)
{
	sqlite3_stmt *st = start(j, MIGRATIONS_OPEN);
	struct json_object *list = json_object_new_array();

	sqlite3_bind_int(st, 1, (int)limit);
	while (sqlite3_step(st) == SQLITE_ROW)
		json_object_array_add(list, column_json(st, 0));
	sqlite3_reset(st);
	return list;
}

struct json_object *journal_latest_migrations(struct journal *j, unsigned limit)
{
	sqlite3_stmt *st = start(j, MIGRATIONS_ALL);
	struct printbuf *list = printbuf_new();

	sqlite3_bind_int(st, 1, (int)limit);
	json_write_open(list, NULL, '[');
	while (sqlite3_step(st) == SQLITE_ROW) {
		char *copy AUTO_FREE = mended(column(st, 0));

		json_write_raw(list, NULL, copy ? copy : column(st, 0));
	}
	json_write_close(list, ']');
	sqlite3_reset(st);
	return json_written(list);
}

static struct json_object *transitions(struct journal *j, const char *id, const char *role)
{
	sqlite3_stmt *st = start(j, TRANSITIONS_GET);
	struct json_object *list = json_object_new_array();

	bind(st, 1, id);
	bind(st, 2, role);
	while (sqlite3_step(st) == SQLITE_ROW) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "state", column(st, 0));
		json_set_str(o, "direction", column(st, 1));
		if (column(st, 2))
			json_set_str(o, "note", column(st, 2));
		json_set_u64(o, "wall_ms", (uint64_t)sqlite3_column_int64(st, 3));
		json_set_u64(o, "mono_us", (uint64_t)sqlite3_column_int64(st, 4));
		json_object_array_add(list, o);
	}
	sqlite3_reset(st);
	return list;
}

struct json_object *journal_migration(struct journal *j, const char *id)
{
	sqlite3_stmt *st = start(j, MIGRATION_GET);
	struct json_object *roles = NULL;

	bind(st, 1, id);
	while (sqlite3_step(st) == SQLITE_ROW) {
		struct json_object *record = column_json(st, 1);

		json_set(record, "transitions", transitions(j, id, column(st, 0)));
		if (!roles)
			roles = json_object_new_object();
		json_set(roles, column(st, 0), record);
	}
	sqlite3_reset(st);
	return roles;
}

struct json_object *journal_events(struct journal *j, unsigned limit)
{
	sqlite3_stmt *st = start(j, EVENTS_GET);
	struct json_object *list = json_object_new_array();

	sqlite3_bind_int(st, 1, (int)limit);
	while (sqlite3_step(st) == SQLITE_ROW) {
		struct json_object *o = json_object_new_object();

		json_set_str(o, "vm", column(st, 0));
		json_set_str(o, "text", column(st, 1));
		json_set_u64(o, "wall_ms", (uint64_t)sqlite3_column_int64(st, 2));
		json_object_array_add(list, o);
	}
	sqlite3_reset(st);
	return list;
}

int journal_lease_put(struct journal *j, const char *vf, const char *vm, const char *data)
{
	sqlite3_stmt *st = start(j, LEASE_PUT);

	bind(st, 1, vf);
	bind(st, 2, vm);
	bind(st, 3, data);
	return finish(j, st);
}

int journal_lease_del(struct journal *j, const char *vf)
{
	sqlite3_stmt *st = start(j, LEASE_DEL);

	bind(st, 1, vf);
	return finish(j, st);
}

struct json_object *journal_leases(struct journal *j)
{
	sqlite3_stmt *st = start(j, LEASES);
	struct json_object *list = json_object_new_array();

	while (sqlite3_step(st) == SQLITE_ROW) {
		struct json_object *o = column_json(st, 2);

		json_set_str(o, "vf", column(st, 0));
		json_set_str(o, "vm", column(st, 1));
		json_object_array_add(list, o);
	}
	sqlite3_reset(st);
	return list;
}

int journal_watch_put(struct journal *j, const char *id, const char *data)
{
	sqlite3_stmt *st = start(j, WATCH_PUT);

	bind(st, 1, id);
	bind(st, 2, data);
	return finish(j, st);
}

int journal_watch_del(struct journal *j, const char *id)
{
	sqlite3_stmt *st = start(j, WATCH_DEL);

	bind(st, 1, id);
	return finish(j, st);
}

/* Returns all rows of a statement that yields one column of JSON. */
static struct json_object *all_data(struct journal *j, enum statement s)
{
	sqlite3_stmt *st = start(j, s);
	struct json_object *list = json_object_new_array();

	while (sqlite3_step(st) == SQLITE_ROW)
		json_object_array_add(list, column_json(st, 0));
	sqlite3_reset(st);
	return list;
}

struct json_object *journal_watches(struct journal *j)
{
	return all_data(j, WATCHES);
}

int journal_drain_put(struct journal *j, uint64_t number, const char *data)
{
	sqlite3_stmt *st = start(j, DRAIN_PUT);

	sqlite3_bind_int64(st, 1, (int64_t)number);
	bind(st, 2, data);
	return finish(j, st);
}

int journal_drain_del(struct journal *j, uint64_t number)
{
	sqlite3_stmt *st = start(j, DRAIN_DEL);

	sqlite3_bind_int64(st, 1, (int64_t)number);
	return finish(j, st);
}

struct json_object *journal_drains(struct journal *j)
{
	return all_data(j, DRAINS);
}

int journal_set_drained(struct journal *j, uint64_t since_ms)
{
	sqlite3_stmt *st = start(j, DRAINED_PUT);

	sqlite3_bind_int64(st, 1, (int64_t)since_ms);
	return finish(j, st);
}

uint64_t journal_drained(struct journal *j)
{
	sqlite3_stmt *st = start(j, DRAINED);
	uint64_t since_ms = 0;

	if (sqlite3_step(st) == SQLITE_ROW)
		since_ms = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	return since_ms;
}
