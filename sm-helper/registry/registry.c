/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/registry/registry_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* GUIDs are stored as SQLite's signed 64-bit integers, bit by bit. */
static const char schema[] =
	"PRAGMA journal_mode=WAL;"
	"PRAGMA synchronous=FULL;"
	"PRAGMA user_version=1;"
	"CREATE TABLE IF NOT EXISTS vguid ("
	" vguid INTEGER PRIMARY KEY, vm TEXT NOT NULL, name TEXT NOT NULL,"
	" pkey INTEGER NOT NULL, lid INTEGER NOT NULL, since_ms INTEGER NOT NULL,"
	" host TEXT NOT NULL, url TEXT NOT NULL, vf TEXT NOT NULL, parked INTEGER NOT NULL,"
	" parked_node INTEGER NOT NULL, switch INTEGER NOT NULL, port INTEGER NOT NULL,"
	" intent INTEGER NOT NULL,"
	" to_host TEXT NOT NULL, to_url TEXT NOT NULL, to_vf TEXT NOT NULL,"
	" to_parked INTEGER NOT NULL, to_parked_node INTEGER NOT NULL,"
	" to_switch INTEGER NOT NULL, to_port INTEGER NOT NULL) STRICT;"
	"CREATE UNIQUE INDEX IF NOT EXISTS vguid_parked ON vguid (parked);"
	"CREATE TABLE IF NOT EXISTS subscription (host TEXT PRIMARY KEY, url TEXT NOT NULL) "
	"STRICT;"
	"CREATE TABLE IF NOT EXISTS parked_move ("
	" vguid INTEGER PRIMARY KEY, vm TEXT NOT NULL, pkey INTEGER NOT NULL,"
	" host TEXT NOT NULL, url TEXT NOT NULL, vf TEXT NOT NULL, parked INTEGER NOT NULL,"
	" parked_node INTEGER NOT NULL, switch INTEGER NOT NULL, port INTEGER NOT NULL,"
	" to_host TEXT NOT NULL, to_url TEXT NOT NULL, to_vf TEXT NOT NULL,"
	" to_parked INTEGER NOT NULL, to_parked_node INTEGER NOT NULL,"
	" to_switch INTEGER NOT NULL, to_port INTEGER NOT NULL) STRICT;"
	"CREATE TABLE IF NOT EXISTS claim ("
	" vguid INTEGER PRIMARY KEY, vm TEXT NOT NULL, name TEXT NOT NULL,"
	" slot INTEGER NOT NULL, since_ms INTEGER NOT NULL, UNIQUE (vm, slot)) STRICT;"
	"CREATE TABLE IF NOT EXISTS allocated (id INTEGER PRIMARY KEY, vguid INTEGER NOT NULL) "
	"STRICT;"
	"CREATE TABLE IF NOT EXISTS replica (id INTEGER PRIMARY KEY CHECK (id = 1),"
	" seq INTEGER NOT NULL, alone INTEGER NOT NULL) STRICT;"
	"INSERT OR IGNORE INTO replica VALUES (1, 0, 0);"
	"CREATE TABLE IF NOT EXISTS owner (registry INTEGER NOT NULL, epoch INTEGER NOT NULL,"
	" granted INTEGER NOT NULL, wanted INTEGER NOT NULL, probed_ms INTEGER NOT NULL) STRICT;"
	"INSERT INTO owner SELECT 0, 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM owner);"
	"CREATE TRIGGER IF NOT EXISTS bind_of_claimed BEFORE INSERT ON vguid WHEN EXISTS"
	" (SELECT 1 FROM claim WHERE vguid = NEW.vguid AND vm <> NEW.vm)"
	" BEGIN SELECT RAISE(ABORT, 'the vGUID is claimed by another VM'); END;"
	"CREATE TRIGGER IF NOT EXISTS claim_of_bound BEFORE INSERT ON claim WHEN EXISTS"
	" (SELECT 1 FROM vguid WHERE vguid = NEW.vguid AND vm <> NEW.vm)"
	" BEGIN SELECT RAISE(ABORT, 'the vGUID is bound by another VM'); END;";

#define COLUMNS                                                                                    \
	"vguid, vm, name, pkey, lid, since_ms, host, url, vf, parked, parked_node, switch,"        \
	" port, intent, to_host, to_url, to_vf, to_parked, to_parked_node, to_switch, to_port,"    \
	" dynamic, own_lid, to_own_lid, had_lids, member_before"

/* The file's state by an error; REGISTRY_GOOD: nothing is said of it. */
static enum registry_state state_of(int sqlite_rc)
{
	switch (sqlite_rc & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return REGISTRY_CORRUPT;
	case SQLITE_FULL:
		return REGISTRY_FULL;
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return REGISTRY_READ_ONLY;
	case SQLITE_IOERR:
		return REGISTRY_FAILING;
	default:
		return REGISTRY_GOOD;
	}
}

const char *registry_state_name(enum registry_state s)
{
	static const char *const name[] = {"good", "corrupt", "full", "read-only", "failing"};

	return name[s];
}

/* Says it once, not for each call. A corrupt file stays so. */
static void note_state(struct registry *r, enum registry_state s, const char *why)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->judging);

	if (r->health.state == s || r->health.state == REGISTRY_CORRUPT || !r->path)
		return;
	r->health.state = s;
	snprintf(r->health.why, sizeof r->health.why, "%s: %s", r->path, why);
	if (s == REGISTRY_GOOD)
		r->health.why[0] = 0;
	log_at(s == REGISTRY_GOOD ? LOG_NOTICE : LOG_ERROR, "registry %s is %s%s%s", r->path,
	       registry_state_name(s), s == REGISTRY_GOOD ? " again" : ": ",
	       s == REGISTRY_GOOD ? "" : why);
}

int registry_failed(struct registry *r)
{
	enum registry_state s = state_of(sqlite3_errcode(r->db));

	log_error("registry: %s", sqlite3_errmsg(r->db));
	if (s != REGISTRY_GOOD)
		note_state(r, s, sqlite3_errmsg(r->db));
	return -EIO;
}

static void probe(struct registry *r)
{
	char sql[96];
	int rc;

	snprintf(sql, sizeof sql, "UPDATE owner SET probed_ms = %" PRIu64, wall_ms());
	sqlite3_mutex_enter(sqlite3_db_mutex(r->db));
	rc = sqlite3_exec(r->db, sql, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		note_state(r, REGISTRY_GOOD, "");
	else if (state_of(rc) != REGISTRY_GOOD)
		note_state(r, state_of(rc), sqlite3_errmsg(r->db));
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
}

/* True if it is time, and then it is the caller's turn. */
static bool is_due(struct registry *r, unsigned fresh_ms)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->judging);
	bool due = r->health.state != REGISTRY_CORRUPT &&
		   (!r->probed_ms || now_ms() - r->probed_ms >= fresh_ms);

	if (due)
		r->probed_ms = now_ms();
	return due;
}

struct registry_health registry_judge(struct registry *r, unsigned fresh_ms)
{
	if (r->path && is_due(r, fresh_ms))
		probe(r);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->judging);
	return r->health;
}

static int add_column(sqlite3 *db, const char *name, char **ret_why)
{
	sqlite3_stmt *s = NULL;
	char sql[128];
	int rc = sqlite3_prepare_v2(db, "SELECT 1 FROM pragma_table_info('vguid') WHERE name = ?1",
				    -1, &s, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	sqlite3_finalize(s);
	if (rc != SQLITE_DONE)
		return rc == SQLITE_ROW ? SQLITE_OK : rc;
	snprintf(sql, sizeof sql, "ALTER TABLE vguid ADD COLUMN %s INTEGER NOT NULL DEFAULT 0",
		 name);
	return sqlite3_exec(db, sql, NULL, NULL, ret_why);
}

/* Adds columns that files of earlier releases lack. "dynamic" holds an enum address_mode. */
static int add_columns(sqlite3 *db, char **ret_why)
{
	static const char *const name[] = {"dynamic", "own_lid", "to_own_lid", "had_lids",
					   "member_before"};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < ARRAY_SIZE(name); i++)
		rc = add_column(db, name[i], ret_why);
	return rc;
}

/* Makes sure that each page belongs where it is, and each row fits its table. */
static int check(sqlite3 *db, char **ret_why)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);

	if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(s, 0);

		rc = text && !strcmp(text, "ok") ? SQLITE_OK : SQLITE_CORRUPT;
		if (rc != SQLITE_OK)
			*ret_why = sqlite3_mprintf("%s", text);
	}
	sqlite3_finalize(s);
	return rc;
}

static int open_file(const char *path, sqlite3 **ret_db, char **ret_why)
{
	int rc = sqlite3_open_v2(path, ret_db,
				 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
				 NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(*ret_db, 2000);
	if (rc == SQLITE_OK)
		rc = check(*ret_db, ret_why);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(*ret_db, schema, NULL, NULL, ret_why);
	return rc == SQLITE_OK ? add_columns(*ret_db, ret_why) : rc;
}

static int error_of(int sqlite_rc)
{
	static const int error[] = {-EIO, -EBADMSG, -ENOSPC, -EROFS, -EIO};

	return error[state_of(sqlite_rc)];
}

int registry_open_db(const char *path, sqlite3 **ret_db, char **ret_error)
{
	sqlite3 *db = NULL;
	char *why = NULL;
	int rc = open_file(path, &db, &why);

	if (rc == SQLITE_OK) {
		*ret_db = db;
		return 0;
	}
	*ret_error = strf("registry %s: %s", path, why ? why : sqlite3_errstr(rc));
	sqlite3_free(why);
	sqlite3_close(db);
	return error_of(rc);
}

/* path: NULL, in memory. */
static struct registry *registry_new(const char *path)
{
	struct registry *r = calloc(1, sizeof *r);

	if (!r || (path && !(r->path = strdup(path)))) {
		free(r);
		return NULL;
	}
	pthread_mutex_init(&r->claims, NULL);
	pthread_mutex_init(&r->owning, NULL);
	pthread_mutex_init(&r->judging, NULL);
	return r;
}

int registry_open(const char *path, struct registry **ret_registry, char **ret_error)
{
	struct registry *r = registry_new(path);
	sqlite3 *db;
	int rc = r ? registry_open_db(path, &db, ret_error) : -ENOMEM;

	if (!rc) {
		r->db = db;
		registry_note_file(r, path);
		rc = registry_load_owner(db, &r->owner);
		rc = rc ? registry_failed(r) : 0;
	}
	if (rc)
		registry_close(r);
	else
		*ret_registry = r;
	return rc;
}

int registry_stand_in(const char *path, int rc, const char *why, struct registry **ret_registry)
{
	struct registry *r;
	char *ignored AUTO_FREE = NULL;
	int failed = registry_open(":memory:", &r, &ignored);

	if (failed)
		return failed;
	free(r->path);
	r->path = NULL;
	r->health.state = rc == -EBADMSG  ? REGISTRY_CORRUPT
			  : rc == -ENOSPC ? REGISTRY_FULL
			  : rc == -EROFS  ? REGISTRY_READ_ONLY
					  : REGISTRY_FAILING;
	snprintf(r->health.why, sizeof r->health.why, "%s", why);
	r->instead_of = strdup(path);
	registry_note_file(r, path);
	*ret_registry = r;
	return 0;
}

unsigned registry_count(struct registry *r)
{
	sqlite3_stmt *s = NULL;
	unsigned n = 0;

	if (sqlite3_prepare_v2(r->db, "SELECT count(*) FROM vguid", -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		n = (unsigned)sqlite3_column_int(s, 0);
	sqlite3_finalize(s);
	return n;
}

void registry_close(struct registry *r)
{
	if (!r)
		return;
	registry_untrack(r);
	sqlite3_close(r->db);
	while (r->olds) /* after the new one: SQLite removes the log by its name */
		sqlite3_close(r->old[--r->olds]);
	free(r->old);
	pthread_mutex_destroy(&r->claims);
	pthread_mutex_destroy(&r->owning);
	pthread_mutex_destroy(&r->judging);
	free(r->path);
	free(r->instead_of);
	free(r);
}

void registry_get_text(sqlite3_stmt *s, int column, char to[static REG_TEXT_MAX])
{
	const char *text = (const char *)sqlite3_column_text(s, column);

	snprintf(to, REG_TEXT_MAX, "%s", text ? text : "");
}

static void get_vf(sqlite3_stmt *s, int column, struct reg_vf *vf)
{
	registry_get_text(s, column, vf->host);
	registry_get_text(s, column + 1, vf->url);
	registry_get_text(s, column + 2, vf->vf);
	vf->parked_guid = (uint64_t)sqlite3_column_int64(s, column + 3);
	vf->parked_node = (uint64_t)sqlite3_column_int64(s, column + 4);
	vf->switch_guid = (uint64_t)sqlite3_column_int64(s, column + 5);
	vf->switch_port = (uint8_t)sqlite3_column_int(s, column + 6);
}

static void get_entry(sqlite3_stmt *s, struct reg_entry *e)
{
	memset(e, 0, sizeof *e);
	e->vguid = (uint64_t)sqlite3_column_int64(s, 0);
	registry_get_text(s, 1, e->vm);
	registry_get_text(s, 2, e->name);
	e->pkey = (uint16_t)sqlite3_column_int(s, 3);
	e->lid = (uint16_t)sqlite3_column_int(s, 4);
	e->since_ms = (uint64_t)sqlite3_column_int64(s, 5);
	get_vf(s, 6, &e->at);
	e->intent = (enum reg_intent)sqlite3_column_int(s, 13);
	get_vf(s, 14, &e->to);
	e->mode = (enum address_mode)sqlite3_column_int(s, 21);
	e->at.lid = (uint16_t)sqlite3_column_int(s, 22);
	e->to.lid = (uint16_t)sqlite3_column_int(s, 23);
	e->had_lids = (uint64_t)sqlite3_column_int64(s, 24);
	e->member_before = (uint8_t)sqlite3_column_int(s, 25);
}

static void bind_vf(sqlite3_stmt *s, int at, const struct reg_vf *vf)
{
	sqlite3_bind_text(s, at, vf->host, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, at + 1, vf->url, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, at + 2, vf->vf, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, at + 3, (sqlite3_int64)vf->parked_guid);
	sqlite3_bind_int64(s, at + 4, (sqlite3_int64)vf->parked_node);
	sqlite3_bind_int64(s, at + 5, (sqlite3_int64)vf->switch_guid);
	sqlite3_bind_int(s, at + 6, vf->switch_port);
}

static int find_one(struct registry *r, const char *sql, uint64_t guid, struct reg_entry *ret_entry)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, sql, -1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)guid);
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			get_entry(s, ret_entry);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : registry_failed(r);
}

void reg_set_lid(struct reg_entry *e, uint16_t lid)
{
	uint64_t had = e->lid;
	unsigned bits = 16;

	for (uint64_t old = e->had_lids; old && bits < 64; old >>= 16) {
		uint16_t one = (uint16_t)old;

		if (one == lid || one == e->lid)
			continue;
		had |= (uint64_t)one << bits;
		bits += 16;
	}
	if (e->mode == ADDRESS_SHARED_PORT && e->lid && e->lid != lid)
		e->had_lids = had;
	e->lid = lid;
}

int registry_find(struct registry *r, uint64_t vguid, struct reg_entry *ret_entry)
{
	return find_one(r, "SELECT " COLUMNS " FROM vguid WHERE vguid = ?1", vguid, ret_entry);
}

int registry_find_vf(struct registry *r, uint64_t parked_guid, struct reg_entry *ret_entry)
{
	return find_one(r,
			"SELECT " COLUMNS " FROM vguid WHERE parked = ?1"
			" OR (to_parked = ?1 AND intent <> 0) LIMIT 1",
			parked_guid, ret_entry);
}

int registry_put(struct registry *r, const struct reg_entry *e)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(
		r->db,
		"INSERT INTO vguid (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5,"
		" ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
		" ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26) ON CONFLICT (vguid) DO UPDATE SET vm = "
		"?2,"
		" name = ?3, pkey = ?4, lid = ?5, since_ms = ?6, host = ?7,"
		" url = ?8, vf = ?9, parked = ?10, parked_node = ?11,"
		" switch = ?12, port = ?13, intent = ?14, to_host = ?15,"
		" to_url = ?16, to_vf = ?17, to_parked = ?18,"
		" to_parked_node = ?19, to_switch = ?20, to_port = ?21,"
		" dynamic = ?22, own_lid = ?23, to_own_lid = ?24, had_lids = ?25,"
		" member_before = ?26",
		-1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)e->vguid);
		sqlite3_bind_text(s, 2, e->vm, -1, SQLITE_STATIC);
		sqlite3_bind_text(s, 3, e->name, -1, SQLITE_STATIC);
		sqlite3_bind_int(s, 4, e->pkey);
		sqlite3_bind_int(s, 5, e->lid);
		sqlite3_bind_int64(s, 6, (sqlite3_int64)e->since_ms);
		bind_vf(s, 7, &e->at);
		sqlite3_bind_int(s, 14, e->intent);
		bind_vf(s, 15, &e->to);
		sqlite3_bind_int(s, 22, (int)e->mode);
		sqlite3_bind_int(s, 23, e->at.lid);
		sqlite3_bind_int(s, 24, e->to.lid);
		sqlite3_bind_int64(s, 25, (sqlite3_int64)e->had_lids);
		sqlite3_bind_int(s, 26, e->member_before);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

static int put_in_one(struct registry *r, const struct reg_entry *e, unsigned count)
{
	int rc = 0;

	if (sqlite3_exec(r->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return registry_failed(r);
	/* VMs may take each other's VFs, of which no two may ever have one. */
	for (unsigned i = 0; !rc && i < count; i++)
		rc = registry_delete(r, e[i].vguid);
	for (unsigned i = 0; !rc && i < count; i++)
		rc = registry_put(r, &e[i]);
	if (!rc && sqlite3_exec(r->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	rc = rc ? rc : registry_failed(r);
	sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

/* A transaction is of the connection: what other threads write meanwhile would be part of it. */
int registry_put_all(struct registry *r, const struct reg_entry *e, unsigned count)
{
	int rc;

	sqlite3_mutex_enter(sqlite3_db_mutex(r->db)); /* SQLite's own, recursive */
	rc = put_in_one(r, e, count);
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
	return rc;
}

static int delete_one(struct registry *r, const char *sql, uint64_t vguid)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, sql, -1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)vguid);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_delete(struct registry *r, uint64_t vguid)
{
	return delete_one(r, "DELETE FROM vguid WHERE vguid = ?1", vguid);
}

int registry_each(struct registry *r, void (*fn)(void *arg, const struct reg_entry *e), void *arg)
{
	sqlite3_stmt *s = NULL;
	struct reg_entry e;
	int rc = sqlite3_prepare_v2(r->db, "SELECT " COLUMNS " FROM vguid ORDER BY vguid", -1, &s,
				    NULL);

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = sqlite3_step(s);
		if (rc != SQLITE_ROW)
			break;
		get_entry(s, &e);
		fn(arg, &e);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_put_move(struct registry *r, const struct move_request *m)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db,
				    "INSERT OR REPLACE INTO parked_move VALUES (?1, ?2, ?3, ?4, ?5,"
				    " ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
				    -1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)m->vguid);
		sqlite3_bind_text(s, 2, m->vm, -1, SQLITE_STATIC);
		sqlite3_bind_int(s, 3, m->pkey);
		bind_vf(s, 4, &m->from);
		bind_vf(s, 11, &m->to);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_delete_move(struct registry *r, uint64_t vguid)
{
	return delete_one(r, "DELETE FROM parked_move WHERE vguid = ?1", vguid);
}

int registry_each_move(struct registry *r, void (*fn)(void *arg, const struct move_request *m),
		       void *arg)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "SELECT * FROM parked_move ORDER BY vguid", -1, &s,
				    NULL);

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		struct move_request m = {0};

		if ((rc = sqlite3_step(s)) != SQLITE_ROW)
			break;
		m.vguid = (uint64_t)sqlite3_column_int64(s, 0);
		registry_get_text(s, 1, m.vm);
		m.pkey = (uint16_t)sqlite3_column_int(s, 2);
		get_vf(s, 3, &m.from);
		get_vf(s, 10, &m.to);
		m.senders_alive = true; /* nobody waits for this one */
		fn(arg, &m);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_subscribe(struct registry *r, const char *host, const char *url)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db,
				    "INSERT INTO subscription (host, url) VALUES (?1, ?2)"
				    " ON CONFLICT (host) DO UPDATE SET url = excluded.url"
				    " WHERE url <> excluded.url",
				    -1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_text(s, 1, host, -1, SQLITE_STATIC);
		sqlite3_bind_text(s, 2, url, -1, SQLITE_STATIC);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_unsubscribe(struct registry *r, const char *host)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "DELETE FROM subscription WHERE host = ?1", -1, &s,
				    NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_text(s, 1, host, -1, SQLITE_STATIC);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_each_subscription(struct registry *r,
			       void (*fn)(void *arg, const struct reg_subscription *s), void *arg)
{
	sqlite3_stmt *s = NULL;
	struct reg_subscription sub;
	int rc = sqlite3_prepare_v2(r->db, "SELECT host, url FROM subscription ORDER BY host", -1,
				    &s, NULL);

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = sqlite3_step(s);
		if (rc != SQLITE_ROW)
			break;
		registry_get_text(s, 0, sub.host);
		registry_get_text(s, 1, sub.url);
		fn(arg, &sub);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}
