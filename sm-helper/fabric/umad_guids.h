/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entries of ports' GUID tables, written through the subnet manager's SA: SubnAdmSet and
 * SubnAdmDelete of GUIDInfoRecord (IBA 1.4, 15.2.5.18). Any port that shares a partition with the
 * other one may ask for that. */
#ifndef IBVMIG_SM_HELPER_FABRIC_UMAD_GUIDS_H
#define IBVMIG_SM_HELPER_FABRIC_UMAD_GUIDS_H

#include "sm-helper/proto/plugin.h"
#include "sm-helper/fabric/probe.h"

/* The whole of SM_OP_GUIDS (sm-helper/proto/plugin.h): first the entries that another GUID or none
 * shall be in, and when their ports have answered, the others. What port and SA agree on already is
 * not written. Fills before, lid and guid_smps (here: requests to the SA) of *ret_reply. 0 or
 * -errno with one line in error, PROBE_ERROR_MAX bytes at most: as SM_OP_GUIDS, and those of
 * probe.h. */
int umad_guids_write(struct probe *m, const struct sm_slot *slots, unsigned count,
		     unsigned deadline_ms, struct sm_guids_reply *ret_reply, char *error);

#endif
