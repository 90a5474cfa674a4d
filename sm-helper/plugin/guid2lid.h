/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's guid2lid: the LIDs that ports get by their GUID, in memory (OpenSM writes the file), and
 * with it the table of LIDs that are given to nobody else. All calls with OpenSM's lock held,
 * changes exclusively. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_GUID2LID_H
#define IBVMIG_SM_HELPER_PLUGIN_GUID2LID_H

#include "sm-helper/plugin/main.h"

struct known_lid {
	uint64_t guid;
	uint16_t lid, lids; /* the first, and how many follow it with the LMC, at least 1 */
};

/* The first LID of a GUID; 0: it has none. */
uint16_t guid2lid_get(const struct plugin *p, uint64_t guid);

/* Lists the LIDs of all GUIDs; *ret_all is owned by the caller. Returns how many; without memory 0
 * and NULL. */
unsigned guid2lid_all(const struct plugin *p, struct known_lid **ret_all);

void guid2lid_set(struct plugin *p, uint64_t guid, uint16_t lid, unsigned lids);
void guid2lid_drop(struct plugin *p, uint64_t guid);

/* Keeps this run of LIDs from ports that have none, or no longer does. */
void guid2lid_keep(struct plugin *p, uint16_t lid, unsigned lids, bool keep);

#endif
