/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by registry.c and registry/claim.c. */
#ifndef IBVMIG_SM_HELPER_REGISTRY_REGISTRY_INT_H
#define IBVMIG_SM_HELPER_REGISTRY_REGISTRY_INT_H

#include "sm-helper/registry/owner.h"
#include "sm-helper/registry/registry.h"

#include <pthread.h>
#include <sys/types.h>
#define SQLITE_ENABLE_SESSION /* declares what Debian's and Fedora's library has */
#define SQLITE_ENABLE_PREUPDATE_HOOK
#include <sqlite3.h>

struct registry {
	sqlite3 *_Atomic db; /* owned; opened in serialized mode */
	sqlite3 **old;       /* owned, and they; what db was before each registry_renew() */
	size_t olds;
	dev_t dev; /* the next too: the file when it was opened; 0: none was there */
	ino_t ino;
	char *path;               /* owned; NULL: in memory only */
	char *instead_of;         /* owned; the file for which it stands in, or NULL */
	pthread_mutex_t claims;   /* holds changes of claims apart */
	sqlite3_session *session; /* registry/replica.c; NULL: changes are not kept */
	pthread_mutex_t owning;   /* guards the next two; holds changes of them apart */
	struct reg_owner owner;
	bool has_grant;          /* owner.wanted was given to this process */
	pthread_mutex_t judging; /* guards the next two */
	struct registry_health health;
	uint64_t probed_ms;
};

/* registry/registry.c: as registry_open(). */
int registry_open_db(const char *path, sqlite3 **ret_db, char **ret_error);
/* registry/owner.c: at open. 0 or -EIO. */
int registry_load_owner(sqlite3 *db, struct reg_owner *ret_owner);
/* registry/renew.c: which file stands at the path now. */
void registry_note_file(struct registry *r, const char *path);

void registry_untrack(struct registry *r);

/* Logs what SQLite says, and remembers what it says of the file; -EIO. */
int registry_failed(struct registry *r);
void registry_get_text(sqlite3_stmt *s, int column, char to[static REG_TEXT_MAX]);

#endif
