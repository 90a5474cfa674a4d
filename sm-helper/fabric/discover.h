/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The topology as the nodes themselves tell it: NodeInfo and PortInfo by directed route, breadth
 * first from our own port. Asks no subnet manager, changes nothing. */
#ifndef IBVMIG_SM_HELPER_FABRIC_DISCOVER_H
#define IBVMIG_SM_HELPER_FABRIC_DISCOVER_H

#include "sm-helper/fabric/probe.h"
#include "vswitch/model/fabric.h"

/* Replaces *f (zeroed or filled): switches, CA ports and routers that are up, their LIDs and links,
 * no LFTs. A neighbour that does not answer is left out, up to DISCOVER_SILENT_MAX of them.
 * *ret_silent: how many. 0 or -errno with one line in error. -ENODEV: no port of our own; -EIO: too
 * many are silent; -EPROTO: what a node says cannot be; -EEXIST: two show one GUID. */
#define DISCOVER_SILENT_MAX 8
int discover_fabric(struct probe *m, struct fabric *f, unsigned *ret_silent,
		    char error[static PROBE_ERROR_MAX]);

#endif
