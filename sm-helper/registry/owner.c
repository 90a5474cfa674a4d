/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/registry/owner.h"
#include "sm-helper/registry/registry_int.h"
#include "common/util.h"

#include <errno.h>
#include <sys/random.h>

static uint64_t draw(void)
{
	uint64_t n = 0;

	while (!n || n >> 63) /* SQLite's integers are signed, and people read the number */
		if (getrandom(&n, sizeof n, 0) == sizeof n)
			n >>= 1;
	return n;
}

/* A table without a key: the copy at the other ibvmig-sm (registry/replica.c) has its own. */
int registry_load_owner(sqlite3 *db, struct reg_owner *ret_owner)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT registry, epoch, granted, wanted FROM owner", -1,
				    &s, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*ret_owner = (struct reg_owner){
			.registry = (uint64_t)sqlite3_column_int64(s, 0),
			.epoch = (uint64_t)sqlite3_column_int64(s, 1),
			.granted = (uint64_t)sqlite3_column_int64(s, 2),
			.wanted = (uint64_t)sqlite3_column_int64(s, 3),
		};
	sqlite3_finalize(s);
	if (rc == SQLITE_ROW && !ret_owner->registry)
		ret_owner->registry = draw(); /* in the file with the first grant */
	return rc == SQLITE_ROW ? 0 : -EIO;
}

/* Owner lock held. */
static int store(struct registry *r, const struct reg_owner *o)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(
		r->db, "UPDATE owner SET registry = ?1, epoch = ?2, granted = ?3, wanted = ?4", -1,
		&s, NULL);

	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(s, 1, (sqlite3_int64)o->registry);
		sqlite3_bind_int64(s, 2, (sqlite3_int64)o->epoch);
		sqlite3_bind_int64(s, 3, (sqlite3_int64)o->granted);
		sqlite3_bind_int64(s, 4, (sqlite3_int64)o->wanted);
		rc = sqlite3_step(s);
	}
	sqlite3_finalize(s);
	if (rc != SQLITE_DONE)
		return registry_failed(r);
	r->owner = *o;
	return 0;
}

struct reg_owner registry_owner(struct registry *r)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->owning);

	return r->owner;
}

int registry_want_grant(struct registry *r)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->owning);
	struct reg_owner o = r->owner;

	if (o.wanted && o.wanted != o.granted)
		return 0;
	if (r->has_grant)
		return 0;
	o.wanted = draw();
	return store(r, &o);
}

int registry_granted(struct registry *r, uint64_t epoch)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&r->owning);
	struct reg_owner o = r->owner;

	o.granted = o.wanted;
	o.epoch = epoch;
	r->has_grant = true;
	return o.granted == r->owner.granted && o.epoch == r->owner.epoch ? 0 : store(r, &o);
}
