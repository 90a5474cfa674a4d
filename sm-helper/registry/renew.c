/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A corrupt file is laid aside, and a new one begun at its place. */
#include "sm-helper/registry/registry_int.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define ASIDE_TRIES 100

/* The file, and what SQLite keeps beside it. */
static const char *const ends[] = {"", "-wal", "-shm"};

void registry_note_file(struct registry *r, const char *path)
{
	struct stat st;
	bool there = !stat(path, &st);

	r->dev = there ? st.st_dev : 0;
	r->ino = there ? st.st_ino : 0;
}

/* Renames what is there of the first n; nothing is replaced. */
static int rename_ends(const char *from, const char *to, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *a AUTO_FREE = strf("%s%s", from, ends[i]);
		char *b AUTO_FREE = strf("%s%s", to, ends[i]);
		int rc = !a || !b ? -ENOMEM : 0;

		if (!rc && renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE) && errno != ENOENT)
			rc = -errno;
		if (!rc)
			continue;
		rename_ends(to, from, i);
		return rc;
	}
	return 0;
}

/* Takes a name that nothing has: the clock may have said the same before. */
static int lay_aside(const char *path, char **ret_aside)
{
	uint64_t at_ms = wall_ms();
	int rc = -EEXIST;

	for (unsigned n = 0; rc == -EEXIST && n < ASIDE_TRIES; n++) {
		char *aside AUTO_FREE = strf("%s.corrupt-%" PRIu64, path, at_ms + n);

		rc = aside ? rename_ends(path, aside, ARRAY_SIZE(ends)) : -ENOMEM;
		if (!rc)
			*ret_aside = TAKE(aside);
	}
	return rc;
}

/* The begun one makes room for the one that was there. */
static void put_back(const char *path, const char *aside)
{
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		char *begun AUTO_FREE = strf("%s%s", path, ends[i]);

		if (begun)
			unlink(begun);
	}
	rename_ends(aside, path, ARRAY_SIZE(ends));
}

/* Another process that has the same directory may have begun a new file already. */
static int check_file(const struct registry *r, const char *path, char **ret_error)
{
	struct stat st;

	if (r->ino && !stat(path, &st) && (st.st_ino != r->ino || st.st_dev != r->dev)) {
		*ret_error = strf("registry %s: another file stands there since this ibvmig-sm "
				  "has opened it: is there another one? Start this one again",
				  path);
		return -ESTALE;
	}
	return 0;
}

static int open_new(const char *path, sqlite3 **ret_db, struct reg_owner *ret_owner,
		    char **ret_error)
{
	int rc = registry_open_db(path, ret_db, ret_error);

	if (rc || !(rc = registry_load_owner(*ret_db, ret_owner)))
		return rc;
	*ret_error = strf("registry %s: %s", path, sqlite3_errmsg(*ret_db));
	sqlite3_close(*ret_db);
	return rc;
}

/* The old database stays open: other threads may be in the middle of a call. */
static void take_over(struct registry *r, char *path, sqlite3 *db, const struct reg_owner *owner)
{
	pthread_mutex_t *o AUTO_UNLOCK = mutex_lock(&r->owning);
	pthread_mutex_t *j AUTO_UNLOCK = mutex_lock(&r->judging);

	registry_untrack(r);
	r->old[r->olds++] = r->db;
	r->db = db;
	r->path = path;
	r->instead_of = NULL;
	r->health = (struct registry_health){0};
	r->probed_ms = 0;
	r->owner = *owner;
	r->has_grant = false;
	registry_note_file(r, path);
}

static int make_room_for_old(struct registry *r)
{
	sqlite3 **grown = realloc(r->old, (r->olds + 1) * sizeof(sqlite3 *));

	if (!grown)
		return -ENOMEM;
	r->old = grown;
	return 0;
}

/* Directory locked. */
static int renew(struct registry *r, char *path, int dir, char **ret_aside, char **ret_error)
{
	char *aside AUTO_FREE = NULL;
	struct reg_owner owner;
	sqlite3 *db;
	int rc = make_room_for_old(r);

	rc = rc ? rc : check_file(r, path, ret_error);
	if (rc || (rc = lay_aside(path, &aside)))
		return rc;
	if ((rc = open_new(path, &db, &owner, ret_error))) {
		put_back(path, aside);
		return rc;
	}
	fsync(dir);
	take_over(r, path, db, &owner);
	*ret_aside = TAKE(aside);
	return 0;
}

int registry_renew(struct registry *r, char **ret_aside, char **ret_error)
{
	char *path = r->path ? r->path : r->instead_of;
	char *copy AUTO_FREE = path ? strdup(path) : NULL;
	int dir AUTO_CLOSE = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (dir < 0)
		return copy ? -errno : -ENOMEM;
	if (flock(dir, LOCK_EX | LOCK_NB))
		return -errno;
	return renew(r, path, dir, ret_aside, ret_error);
}
