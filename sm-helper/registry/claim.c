/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/registry/claim.h"
#include "common/ib.h"
#include "common/util.h"
#include "sm-helper/registry/registry_int.h"

#include <errno.h>
#include <string.h>

#define COLUMNS "vguid, vm, name, slot, since_ms"

int claim_range_parse(const char *text, struct claim_range *ret_range, const char **ret_why)
{
	const char *dash = strchr(text, '-');
	struct claim_range r = {0};
	char first[IB_GUID_TEXT + 8] = "";
	size_t n;

	*ret_why = "it must be 0x and 16 hex digits, a dash, and the same again";
	if (!dash)
		return -EINVAL;
	for (n = (size_t)(dash - text); n && text[n - 1] == ' '; n--)
		;
	for (dash++; *dash == ' '; dash++)
		;
	if (n >= sizeof first)
		return -EINVAL;
	memcpy(first, text, n);
	if (ib_guid_parse(first, &r.first) || ib_guid_parse(dash, &r.last))
		return -EINVAL;
	*ret_why = "the second GUID must not be below the first";
	if (r.last < r.first)
		return -EINVAL;
	*ret_why = "it may hold 1 to 1048576 vGUIDs, all with the same top bit";
	if (r.last - r.first >= CLAIM_RANGE_MAX || (r.first ^ r.last) >> 63)
		return -EINVAL;
	*ret_range = r;
	return 0;
}

static void get_claim(sqlite3_stmt *s, struct reg_claim *c)
{
	memset(c, 0, sizeof *c);
	c->vguid = (uint64_t)sqlite3_column_int64(s, 0);
	registry_get_text(s, 1, c->vm);
	registry_get_text(s, 2, c->name);
	c->slot = (unsigned)sqlite3_column_int(s, 3);
	c->since_ms = (uint64_t)sqlite3_column_int64(s, 4);
}

/* Reads one row by sql, whose ?1 is a vGUID or, with vm, that VM's UUID and ?2 the slot. */
static int find(struct registry *r, const char *sql, uint64_t vguid, const char *vm, unsigned slot,
		struct reg_claim *ret_claim)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, sql, -1, &s, NULL);

	if (rc == SQLITE_OK) {
		if (vm)
			sqlite3_bind_text(s, 1, vm, -1, SQLITE_STATIC);
		else
			sqlite3_bind_int64(s, 1, (sqlite3_int64)vguid);
		if (vm)
			sqlite3_bind_int(s, 2, (int)slot);
		rc = sqlite3_step(s);
		if (rc == SQLITE_ROW)
			get_claim(s, ret_claim);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : registry_failed(r);
}

int registry_claim_find(struct registry *r, uint64_t vguid, struct reg_claim *ret_claim)
{
	return find(r, "SELECT " COLUMNS " FROM claim WHERE vguid = ?1", vguid, NULL, 0, ret_claim);
}

static int find_slot(struct registry *r, const struct reg_claim *want, struct reg_claim *ret_claim)
{
	return find(r, "SELECT " COLUMNS " FROM claim WHERE vm = ?1 AND slot = ?2", 0, want->vm,
		    want->slot, ret_claim);
}

/* Gives the VM that has the vGUID bound to a VF, in the form of a claim. */
static int find_bound(struct registry *r, uint64_t vguid, struct reg_claim *ret_claim)
{
	return find(r, "SELECT vguid, vm, name, 0, since_ms FROM vguid WHERE vguid = ?1", vguid,
		    NULL, 0, ret_claim);
}

static int insert(struct registry *r, const struct reg_claim *c)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(
		r->db, "INSERT INTO claim (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5)", -1, &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)c->vguid);
		sqlite3_bind_text(s, 2, c->vm, -1, SQLITE_STATIC);
		sqlite3_bind_text(s, 3, c->name, -1, SQLITE_STATIC);
		sqlite3_bind_int(s, 4, (int)c->slot);
		sqlite3_bind_int64(s, 5, (sqlite3_int64)c->since_ms);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

/* Lock held. */
static int claim_locked(struct registry *r, const struct reg_claim *want,
			struct reg_claim *ret_holder)
{
	int rc = registry_claim_find(r, want->vguid, ret_holder);

	if (!rc)
		return strcmp(ret_holder->vm, want->vm) ? -EEXIST
		       : ret_holder->slot != want->slot ? -EBUSY
							: 0;
	if (rc != -ENOENT)
		return rc;
	if (!(rc = find_bound(r, want->vguid, ret_holder)) && strcmp(ret_holder->vm, want->vm))
		return -EEXIST;
	if (rc && rc != -ENOENT)
		return rc;
	if ((rc = find_slot(r, want, ret_holder)) != -ENOENT)
		return rc ? rc : -EBUSY;
	*ret_holder = *want;
	ret_holder->since_ms = wall_ms();
	return insert(r, ret_holder);
}

int registry_claim(struct registry *r, const struct reg_claim *want, struct reg_claim *ret_holder)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->claims);

	return claim_locked(r, want, ret_holder);
}

/* The vGUID that was allocated last; 0: none yet. */
static int last_allocated(struct registry *r, uint64_t *ret_vguid)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "SELECT vguid FROM allocated", -1, &s, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	*ret_vguid = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
	sqlite3_finalize(s);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : registry_failed(r);
}

static int set_last_allocated(struct registry *r, uint64_t vguid)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "REPLACE INTO allocated (id, vguid) VALUES (0, ?1)", -1,
				    &s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)vguid);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

/* The first vGUID of first to last that nobody has; -ENOSPC. What is in use comes in order, so the
 * first gap is what is wanted. */
static int first_free(struct registry *r, uint64_t first, uint64_t last,
		      bool (*taken)(void *arg, uint64_t guid), void *arg, uint64_t *ret_vguid)
{
	uint64_t at = first, used = 0;
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db,
				    "SELECT vguid AS g FROM claim WHERE g BETWEEN ?1 AND ?2 UNION"
				    " SELECT vguid AS g FROM vguid WHERE g BETWEEN ?1 AND ?2 UNION"
				    " SELECT parked AS g FROM vguid WHERE g BETWEEN ?1 AND ?2"
				    " ORDER BY g",
				    -1, &s, NULL);
	bool more = rc == SQLITE_OK;

	if (more) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)first);
		sqlite3_bind_int64(s, 2, (sqlite3_int64)last);
	}
	while (rc == SQLITE_OK && first <= last) {
		while (more && (!used || used < at)) {
			int step = sqlite3_step(s);

			more = step == SQLITE_ROW;
			used = more ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
			if (!more && step != SQLITE_DONE)
				rc = step;
		}
		if (rc != SQLITE_OK || at > last || !((more && used == at) || taken(arg, at)))
			break;
		if (at++ == last)
			break;
	}
	sqlite3_finalize(s);
	if (rc != SQLITE_OK)
		return registry_failed(r);
	if (first > last || at > last)
		return -ENOSPC;
	*ret_vguid = at;
	return 0;
}

int registry_allocate(struct registry *r, const struct reg_claim *want,
		      const struct claim_range *range, bool (*taken)(void *arg, uint64_t guid),
		      void *arg, struct reg_claim *ret_holder)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->claims);
	struct reg_claim c = *want;
	uint64_t cursor;
	int rc = find_slot(r, want, ret_holder);

	if (rc != -ENOENT)
		return rc;
	if ((rc = last_allocated(r, &cursor)))
		return rc;
	if (cursor < range->first || cursor >= range->last)
		cursor = range->first - 1;
	rc = first_free(r, cursor + 1, range->last, taken, arg, &c.vguid);
	if (rc == -ENOSPC)
		rc = first_free(r, range->first, cursor, taken, arg, &c.vguid);
	if (rc || (rc = set_last_allocated(r, c.vguid)))
		return rc;
	return claim_locked(r, &c, ret_holder);
}

int registry_release(struct registry *r, uint64_t vguid, const char *vm,
		     struct reg_claim *ret_holder)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->claims);
	struct reg_claim bound;
	sqlite3_stmt *s = NULL;
	int rc = registry_claim_find(r, vguid, ret_holder);

	if (rc)
		return rc;
	if (strcmp(ret_holder->vm, vm))
		return -EPERM;
	rc = find_bound(r, vguid, &bound);
	if (rc != -ENOENT)
		return rc ? rc : -EBUSY;
	rc = sqlite3_prepare_v2(r->db, "DELETE FROM claim WHERE vguid = ?1", -1, &s, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)vguid);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}

int registry_each_claim(struct registry *r, void (*fn)(void *arg, const struct reg_claim *c),
			void *arg)
{
	sqlite3_stmt *s = NULL;
	struct reg_claim c;
	int rc = sqlite3_prepare_v2(r->db, "SELECT " COLUMNS " FROM claim ORDER BY vguid", -1, &s,
				    NULL);

	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = sqlite3_step(s);
		if (rc != SQLITE_ROW)
			break;
		get_claim(s, &c);
		fn(arg, &c);
	}
	sqlite3_finalize(s);
	return rc == SQLITE_DONE ? 0 : registry_failed(r);
}
