/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/states.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* Constant once the daemon runs. */
static const struct migrate_row *rows; /* borrowed */
static size_t row_count;

void migrate_set_rows(const struct migrate_row *table, size_t count)
{
	rows = table;
	row_count = count;
}

const struct migrate_row *migrate_row(enum migrate_role role, enum migrate_state state)
{
	for (size_t i = 0; i < row_count; i++)
		if (rows[i].actor == role && rows[i].state == state)
			return &rows[i];
	return NULL;
}

const char *migrate_state_name(enum migrate_state s)
{
	static const char *const names[] = {
		[M_PREPARE] = "PREPARE", [M_HOLD] = "HOLD",       [M_QUIESCE] = "QUIESCE",
		[M_DETACH] = "DETACH",   [M_SAVED] = "SAVED",     [M_SWITCH] = "SWITCH",
		[M_ATTACH] = "ATTACH",   [M_RESUME] = "RESUME",   [M_DONE] = "DONE",
		[M_CANCEL] = "CANCEL",   [M_ABORTED] = "ABORTED", [M_PARKED] = "PARKED",
	};

	return s < ARRAY_SIZE(names) ? names[s] : "?";
}

int migrate_state_parse(const char *name, enum migrate_state *ret_state)
{
	for (int s = M_PREPARE; s <= M_PARKED; s++) {
		if (!strcmp(migrate_state_name((enum migrate_state)s), name)) {
			*ret_state = (enum migrate_state)s;
			return 0;
		}
	}
	return -EINVAL;
}

const char *migrate_role_name(enum migrate_role role)
{
	return role == ROLE_SOURCE ? "source" : "destination";
}

/* SAVED is a detour behind DETACH. */
const struct migrate_row *migrate_row_before(enum migrate_role role, enum migrate_state state)
{
	if (state == M_SAVED)
		return migrate_row(role, M_DETACH);
	for (size_t i = 0; i < row_count; i++) {
		const struct migrate_row *r = &rows[i];

		if (r->actor == role && r->run && r->next == state && r->state != state)
			return r;
	}
	return NULL;
}

bool migrate_edge_ok(enum migrate_role role, enum migrate_state from, enum migrate_state to,
		     bool back, bool committed)
{
	const struct migrate_row *row = migrate_row(role, from),
				 *before = migrate_row_before(role, from);

	if (!row || !migrate_row(role, to))
		return false;
	if (from == M_DONE || from == M_ABORTED)
		return false;
	if (to == M_PARKED || from == M_PARKED)
		return true;
	if (back) {
		/* The first undo is the failed state's own; from CANCEL, any state's. */
		if (committed)
			return false;
		return to == from || from == M_CANCEL || (before && to == before->state) ||
		       (from == M_PREPARE && to == M_ABORTED);
	}
	return to == row->next || (from == M_DETACH && to == M_SAVED) ||
	       (to == M_CANCEL && !committed) || (from == M_CANCEL && committed);
}
