/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/registry/replica.h"
#include "sm-helper/registry/registry_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <limits.h>

static const char *const tables[] = {"vguid",        "parked_move", "claim",
				     "subscription", "allocated",   "replica"};

static int run(struct registry *r, const char *sql)
{
	return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : registry_failed(r);
}

int registry_mark(struct registry *r, struct replica_mark *ret_mark)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "SELECT seq, alone FROM replica", -1, &s, NULL);

	if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
		*ret_mark = (struct replica_mark){
			.seq = (uint64_t)sqlite3_column_int64(s, 0),
			.alone = sqlite3_column_int(s, 1),
		};
	sqlite3_finalize(s);
	return rc == SQLITE_ROW ? 0 : registry_failed(r);
}

int registry_set_alone(struct registry *r, bool alone)
{
	return run(r, alone ? "UPDATE replica SET alone = 1, seq = seq + 1 WHERE NOT alone"
			    : "UPDATE replica SET alone = 0, seq = seq + 1 WHERE alone");
}

static int new_session(struct registry *r, sqlite3_session **ret_session)
{
	sqlite3_session *s = NULL;

	if (sqlite3session_create(r->db, "main", &s) == SQLITE_OK &&
	    sqlite3session_attach(s, NULL) == SQLITE_OK) {
		*ret_session = s;
		return 0;
	}
	if (s)
		sqlite3session_delete(s);
	return registry_failed(r);
}

void registry_untrack(struct registry *r)
{
	if (r->session)
		sqlite3session_delete(r->session);
	r->session = NULL;
}

int registry_track(struct registry *r)
{
	int rc;

	sqlite3_mutex_enter(sqlite3_db_mutex(r->db));
	registry_untrack(r);
	rc = new_session(r, &r->session);
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
	return rc;
}

static int take(struct registry *r, struct replica_blob *b)
{
	if (!r->session || sqlite3session_isempty(r->session))
		return 0;
	if (run(r, "UPDATE replica SET seq = seq + 1"))
		return -EIO;
	if (sqlite3session_changeset(r->session, &b->bytes, &b->data) != SQLITE_OK)
		return registry_failed(r);
	return registry_track(r);
}

int registry_take(struct registry *r, struct replica_blob *ret_blob)
{
	struct replica_blob b = {0};
	int rc;

	sqlite3_mutex_enter(
		sqlite3_db_mutex(r->db)); /* nothing between changeset and new session */
	rc = take(r, &b);
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
	if (rc)
		registry_blob_free(&b);
	else
		*ret_blob = b;
	return rc;
}

/* Whatever does not fit: the copies are not the same, and the whole is asked for. */
static int on_conflict(void *arg, int kind, sqlite3_changeset_iter *i)
{
	(void)arg;
	(void)kind;
	(void)i;
	return SQLITE_CHANGESET_ABORT;
}

static int apply(struct registry *r, const void *data, size_t bytes)
{
	int rc;

	if (bytes > INT_MAX)
		return -ESTALE;
	rc = sqlite3changeset_apply(r->db, (int)bytes, (void *)data, NULL, on_conflict, NULL);
	return rc == SQLITE_OK ? 0 : -ESTALE;
}

static int empty_tables(struct registry *r)
{
	char sql[64];
	int rc = 0;

	for (size_t i = 0; !rc && i < ARRAY_SIZE(tables); i++) {
		snprintf(sql, sizeof sql, "DELETE FROM %s", tables[i]);
		rc = run(r, sql);
	}
	return rc;
}

static int in_transaction(struct registry *r, bool empty, const void *data, size_t bytes)
{
	int rc;

	if (run(r, "BEGIN IMMEDIATE"))
		return -EIO;
	rc = empty ? empty_tables(r) : 0;
	rc = rc ? rc : apply(r, data, bytes);
	if (!rc && sqlite3_exec(r->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	rc = rc ? rc : registry_failed(r);
	sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

static int change(struct registry *r, bool empty, const void *data, size_t bytes)
{
	int rc;

	sqlite3_mutex_enter(sqlite3_db_mutex(r->db));
	rc = in_transaction(r, empty, data, bytes);
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
	return rc;
}

int registry_apply(struct registry *r, const void *data, size_t bytes)
{
	return change(r, false, data, bytes);
}

int registry_import(struct registry *r, const void *data, size_t bytes)
{
	return change(r, true, data, bytes);
}

/* Tables as ours without rows, to make the difference from. */
static int make_blank(struct registry *r)
{
	int rc = run(r, "ATTACH ':memory:' AS blank");

	for (size_t i = 0; !rc && i < ARRAY_SIZE(tables); i++) {
		sqlite3_stmt *s = NULL;
		char *sql = NULL;

		rc = -EIO;
		if (sqlite3_prepare_v2(r->db,
				       "SELECT 'CREATE TABLE blank.' || substr(sql, 14) FROM"
				       " main.sqlite_schema WHERE type = 'table' AND name = ?1",
				       -1, &s, NULL) == SQLITE_OK) {
			sqlite3_bind_text(s, 1, tables[i], -1, SQLITE_STATIC);
			if (sqlite3_step(s) == SQLITE_ROW)
				sql = strf("%s", (const char *)sqlite3_column_text(s, 0));
		}
		sqlite3_finalize(s);
		rc = sql ? run(r, sql) : registry_failed(r);
		free(sql);
	}
	return rc;
}

static int diff(struct registry *r, struct replica_blob *b)
{
	sqlite3_session *s = NULL;
	int rc = make_blank(r);

	rc = rc ? rc : new_session(r, &s);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(tables); i++)
		if (sqlite3session_diff(s, "blank", tables[i], NULL) != SQLITE_OK)
			rc = registry_failed(r);
	if (!rc && sqlite3session_changeset(s, &b->bytes, &b->data) != SQLITE_OK)
		rc = registry_failed(r);
	if (s)
		sqlite3session_delete(s);
	sqlite3_exec(r->db, "DETACH blank", NULL, NULL, NULL);
	return rc;
}

int registry_export(struct registry *r, struct replica_blob *ret_blob)
{
	struct replica_blob b = {0};
	int rc;

	sqlite3_mutex_enter(sqlite3_db_mutex(r->db));
	rc = diff(r, &b);
	sqlite3_mutex_leave(sqlite3_db_mutex(r->db));
	if (rc)
		registry_blob_free(&b);
	else
		*ret_blob = b;
	return rc;
}

void registry_blob_free(struct replica_blob *b)
{
	sqlite3_free(b->data);
	*b = (struct replica_blob){0};
}
