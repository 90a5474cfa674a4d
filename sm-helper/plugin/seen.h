/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The subnet as routing engines see it: each place with a record (sm-helper/plugin/homes.h) shows
 * its home instead of what it has. All calls with OpenSM's lock held exclusively, and it is not
 * released in between: nobody else ever sees that. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_SEEN_H
#define IBVMIG_SM_HELPER_PLUGIN_SEEN_H

#include "sm-helper/plugin/main.h"

struct shown;

/* LID `to` takes the entries of `from` (0: none), and at switch `sw`, if it is not NULL, `port`. */
struct seen_row {
	uint16_t to, from;
	osm_switch_t *sw; /* borrowed from OpenSM */
	uint8_t port;
};

struct seen {
	struct shown *place; /* owned */
	unsigned count;
	struct seen_row *row; /* owned; made from what is, with LIDs of what is shown in .from */
	unsigned rows;
	uint8_t *lft; /* owned: entries that are replaced while homes are shown */
};

/* Shows homes until seen_hide(). Without memory all stays as it is. */
void seen_show(struct plugin *p, struct seen *s);
/* An engine has filled new_lft for what is shown: makes of it the tables for what is. */
void seen_route(struct plugin *p, const struct seen *s);
void seen_hide(struct plugin *p, struct seen *s);

#endif
