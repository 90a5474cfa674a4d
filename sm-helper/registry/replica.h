/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The registry's copy at the other ibvmig-sm: what has changed, as a changeset of SQLite's session
 * extension, and the whole of it as the changeset from nothing. */
#ifndef IBVMIG_SM_HELPER_REGISTRY_REPLICA_H
#define IBVMIG_SM_HELPER_REGISTRY_REPLICA_H

#include "sm-helper/registry/registry.h"

#include <stdbool.h>
#include <stddef.h>

struct replica_mark {
	uint64_t seq; /* counts the changesets; the larger one is the newer copy */
	bool alone;   /* changed while the other copy could not be: that one is older */
};

struct replica_blob {
	void *data; /* owned: registry_blob_free(); NULL: empty */
	int bytes;
};

/* Every call returns 0 or -EIO (logged), and as said. */
int registry_mark(struct registry *r, struct replica_mark *ret_mark);
int registry_set_alone(struct registry *r, bool alone);

/* Keeps changes from now on for registry_take(); what was kept before is forgotten. */
int registry_track(struct registry *r);
/* Takes what has changed since the last call, as one changeset that counts seq up; empty: nothing.
 */
int registry_take(struct registry *r, struct replica_blob *ret_blob);
/* Applies changes at the other copy. -ESTALE: not made from the state that is here, and nothing has
 * changed. */
int registry_apply(struct registry *r, const void *data, size_t bytes);

int registry_export(struct registry *r, struct replica_blob *ret_blob);
/* Replaces everything. -ESTALE: damaged, and nothing has changed. */
int registry_import(struct registry *r, const void *data, size_t bytes);

void registry_blob_free(struct replica_blob *b);

#endif
