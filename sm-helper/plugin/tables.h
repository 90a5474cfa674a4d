/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's tables of ports: which identity (GUIDs, LID) is at which place. All calls with OpenSM's
 * lock held exclusively. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_TABLES_H
#define IBVMIG_SM_HELPER_PLUGIN_TABLES_H

#include "sm-helper/plugin/homes.h"

/* A VF behind its switch port. Nodes and physical ports stay where they are; the port objects,
 * which carry GUID, LID and multicast memberships, change places. */
struct place {
	osm_switch_t *sw;   /* the (v)switch that the VF hangs on */
	osm_node_t *node;   /* the VF's node */
	osm_physp_t *physp; /* the node's only port */
	osm_port_t *port;   /* the identity that is here now */
	struct sm_target before, want;
	osm_port_t *like; /* want.like_guid's; NULL: no copy, or it hangs elsewhere now */
	uint16_t row;     /* the LID whose entries are this place's own routes now */
	uint16_t waited;  /* LID that OpenSM kept for the parked GUID before; 0: none */
	bool had_home;    /* there is a record, home_before */
	struct home home_before, home; /* the record afterwards; at_home: none is needed */
	bool at_home;
};

/* Finds place->want's switch port and fills the rest. 0, or -errno with reason. */
int tables_find(struct plugin *p, struct place *place, struct sm_reply_head *h);

/* Checks if what the places want collides with ports that are not among them: 0, or -EEXIST or
 * -EADDRINUSE with reason. Fills in the homes of the places as well. */
int tables_check(struct plugin *p, struct place *places, unsigned n, struct sm_reply_head *h);

/* Gives each place what it wants, or, with `back`, what it had, and updates every table that knows
 * GUIDs or LIDs. */
void tables_assign(struct plugin *p, struct place *places, unsigned n, bool back);

#endif
