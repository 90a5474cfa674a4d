/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by registry.c and registry/claim.c. */
#ifndef IBVMIG_SM_HELPER_REGISTRY_REGISTRY_INT_H
#define IBVMIG_SM_HELPER_REGISTRY_REGISTRY_INT_H

#include "sm-helper/registry/registry.h"

#include <pthread.h>
#define SQLITE_ENABLE_SESSION /* declares what Debian's and Fedora's library has */
#define SQLITE_ENABLE_PREUPDATE_HOOK
#include <sqlite3.h>

struct registry {
	sqlite3 *db;              /* owned; opened in serialized mode */
	pthread_mutex_t claims;   /* holds changes of claims apart */
	sqlite3_session *session; /* registry/replica.c; NULL: changes are not kept */
};

void registry_untrack(struct registry *r);

/* Logs what SQLite says; -EIO. */
int registry_failed(struct registry *r);
void registry_get_text(sqlite3_stmt *s, int column, char to[static REG_TEXT_MAX]);

#endif
