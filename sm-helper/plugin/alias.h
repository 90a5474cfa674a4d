/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's tables of alias GUIDs: which GUIDs a port shows besides its own. Its SA answers for them
 * as for the port's. All calls with OpenSM's lock held exclusively, but alias_is_known() and
 * alias_entry(): shared will do. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_ALIAS_H
#define IBVMIG_SM_HELPER_PLUGIN_ALIAS_H

#include "sm-helper/plugin/main.h"

#include <opensm/osm_port.h>

#define ALIAS_BLOCKS_MAX 32 /* GuidCap is a byte */

/* An entry of a port's table, and a change of it. GUIDs in network order as in OpenSM; 0: none. */
struct alias_entry {
	osm_port_t *port; /* borrowed */
	uint8_t index;
	ib_net64_t before, between, after; /* between: until the GUIDs that move have left */
};

/* True if OpenSM has the port's table; after a start, and after a port was away, it has not. */
bool alias_is_known(const osm_port_t *port);
unsigned alias_blocks(const osm_port_t *port);
ib_net64_t alias_entry(const osm_port_t *port, uint8_t index);

/* Knowledge of an entry of a port before its table is read. */
enum alias_say {
	ALIAS_ASK,   /* nothing: the first port that is seen with a GUID has it */
	ALIAS_OURS,  /* the GUID may stay */
	ALIAS_WRONG, /* another port shall show this GUID */
};

/* The port's table, as it holds it. An entry with a GUID that another port has is left out, and its
 * block marked in ret_wrong: the port must not show it. say: of each entry. 0 or -ENOMEM. */
int alias_learn(struct plugin *p, osm_port_t *port, const ib_guid_info_t info[],
		const enum alias_say say[], bool ret_wrong[static ALIAS_BLOCKS_MAX]);

/* Puts in doubt what the port holds: alias_is_known() is false from now on. */
void alias_unlearn(osm_port_t *port);

/* The entry's place in the table, not who has the GUID. */
void alias_set_entry(const struct alias_entry *e, ib_net64_t guid);

/* Brings the SA up to date. A GUID of `before` that is in no `after` is gone, with its multicast
 * memberships. A GUID that is in another entry belongs to that one's port and takes them along. */
void alias_hand_over(struct plugin *p, const struct alias_entry *e, unsigned count);

#endif
