/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Leftovers of batches that failed and whose undo failed as well: each entry and LID that they were
 * to change, until OpenSM's sweeps have an answer for all of them. All calls come in our thread. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_PARKED_H
#define IBVMIG_SM_HELPER_PLUGIN_PARKED_H

#include "sm-helper/plugin/lfts.h"
#include "sm-helper/plugin/tables.h"

/* The plan has been turned round, so its `after` is what stood before the batch. With `back` it is
 * what an earlier batch had made that this one was to take back. why: one line. Without memory it
 * is logged and not kept. */
void parked_keep(struct plugin *p, const struct lfts *l, const struct place *places, unsigned count,
		 bool back, const char *why);
/* How many there are, at most UINT16_MAX. OpenSM's lock must not be held. */
uint16_t parked_count(struct plugin *p);
void parked_free(struct plugin *p);

#endif
