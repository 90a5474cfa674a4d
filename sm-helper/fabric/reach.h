/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whether a port answers at a LID, in fabrics that lose SMPs routed by LID too (XDR). Walks of the
 * LFTs have found the way before; this is the packet that goes it. */
#ifndef IBVMIG_SM_HELPER_FABRIC_REACH_H
#define IBVMIG_SM_HELPER_FABRIC_REACH_H

#include "sm-helper/fabric/probe.h"
#include "vswitch/model/fabric.h"

/* The best comes first. */
enum reach_by {
	REACH_SMP,  /* an SMP to the LID, and its answer names the port */
	REACH_GMP,  /* a GMP to the LID; the port at the place has that GUID and that LID */
	REACH_WALK, /* nothing to the LID: the place has that GUID and that LID, and the walks stand
		     */
	REACH_UNSEEN, /* nobody was asked: the subnet manager's word is taken */
};

/* The way that was found to be the best in this fabric. A zeroed one knows nothing. */
struct reach {
	enum reach_by by;
	uint64_t since_ms; /* and is looked for again after REACH_KEEP_MS, unless it is the first */
};
#define REACH_KEEP_MS 600000

/* The CA port `end` of f answers at `lid` as port_guid. Without answers to SMPs and GMPs there, the
 * switch next to our own port is asked by its LID. Only where it too is silent is the walk enough:
 * SMPs by LID get lost, and no port is to blame. 0, or -errno with one line in error. */
int reach_lid(struct reach *r, struct probe *m, struct fabric *f, uint32_t end, uint16_t lid,
	      uint64_t port_guid, enum reach_by *ret_by, char error[static PROBE_ERROR_MAX]);

/* The directed route from our own port to a CA port of f. 0, -ENETUNREACH: the topology has none;
 * or as probe_own_guid(). */
int reach_route(struct probe *m, struct fabric *f, uint32_t end, struct probe_route *ret_route,
		char error[static PROBE_ERROR_MAX]);

/* "smp", "gmp", "walk"; NULL for the last. */
const char *reach_name(enum reach_by by);

#endif
