/* SPDX-License-Identifier: GPL-2.0-or-later */
/* OpenSM's partition policy in this process. OpenSM reads its file in each heavy sweep, and drops
 * all GUIDs that no port shows just then. So the plugin reads the file with it, and answers for any
 * GUID (sm-helper/plugin/partitions/policy.h).
 *
 * Members that were added through ibvmig-sm are a list in OpenSM's cache directory,
 * "ibvmig-members". While it is not empty, or while ports show GUIDs besides their own, OpenSM is
 * given another file, "ibvmig-partitions.conf" there. That one has the text of its own one, then
 * these members, then what ports are for the GUIDs that they show. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_PARTITIONS_H
#define IBVMIG_SM_HELPER_PLUGIN_PARTITIONS_H

#include "sm-helper/plugin/main.h"
#include "sm-helper/plugin/partitions/policy.h"

#include <opensm/osm_port.h>

int partitions_open(struct plugin *p);
/* OpenSM shall not free what is ours. */
void partitions_close(struct plugin *p);

/* A heavy sweep has found all ports; OpenSM reads its file next. */
void partitions_swept(struct plugin *p);
/* A heavy sweep is over: OpenSM knows the numbers of partitions that have only a name. */
void partitions_up(struct plugin *p);

/* P_Keys of a port that shows this GUID, and the alias GUIDs of `port`, if it is not NULL. Lock
 * held, shared at least. */
void partitions_pkeys(struct plugin *p, ib_net64_t guid, const osm_port_t *port,
		      struct policy_pkeys *ret_keys);

/* OpenSM's own maps of members: this GUID is shown by physp and has these P_Keys; keys NULL: nobody
 * shows it. Lock held exclusively. True: OpenSM had forgotten a partition that has multicast
 * groups, and makes them in its next heavy sweep. */
bool partitions_hand_over(struct plugin *p, ib_net64_t guid, osm_physp_t *physp,
			  const struct policy_pkeys *keys);

/* The port that shows the GUID, as its own or besides. NULL: none does. Lock held, shared at least.
 */
osm_port_t *partitions_find_port(struct plugin *p, ib_net64_t guid);

/* Keeps which alias GUIDs the port shows. After a restart nobody knows, and OpenSM would take their
 * P_Keys from the port. Lock held; partitions_store() writes the file. */
void partitions_note_aliases(struct plugin *p, const osm_port_t *port);

/* Changes the list, and with it the policy. Nothing else is changed. as: NONE takes away. True: it
 * was not so already; false also without memory. */
bool partitions_set_member(struct plugin *p, uint16_t pkey, uint64_t guid, enum sm_member_as as);
/* What is listed for the GUID; NONE: nothing. */
enum sm_member_as partitions_listed(struct plugin *p, uint16_t pkey, uint64_t guid);
/* 0, or -errno with reason where a member cannot be changed so: sm-helper/proto/plugin.h. */
int partitions_check(struct plugin *p, uint16_t pkey, const struct sm_member *m,
		     struct sm_reply_head *h);

/* Writes the files, without OpenSM's lock. 0 or -EIO. */
int partitions_store(struct plugin *p);

#endif
