/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between a guest's QP1 and the subnet administrator: checks what the guest sends, and gives
 * answers the transaction IDs back that umad changes. */
#ifndef IBVMIG_LAB_PORT_BRIDGE_H
#define IBVMIG_LAB_PORT_BRIDGE_H

#include "tests/lab/port/sa.h"
#include "tests/lab/port/wire.h"

#define BRIDGE_REQUESTS 256 /* so many of the last ones get their answers */

struct bridge_request {
	uint32_t tid; /* lower half on the fabric; the upper one is umad's */
	uint32_t qp;  /* asking QP of the guest */
	uint64_t guest_tid;
};

struct bridge {
	uint32_t tid; /* the last one given */
	struct bridge_request requests[BRIDGE_REQUESTS];
};

/* Makes of what the guest has sent what goes to the SM. 0, or a reason to let it go nowhere.
 * -ENOMSG: it goes to another guest. -EPERM: SLID, QP or keys are not the port's. -EPROTONOSUPPORT:
 * not of class SubnAdm. -EALREADY: acknowledges a segment, for which nobody waits. */
int bridge_up(struct bridge *b, const struct port *port, const struct wire_gsi *from_guest,
	      struct sa_mad *ret_mad);

/* Makes of what came from the SM what goes to the guest. 0, or -ENOENT: an answer that nobody
 * waits for, or a request of the guest that did not arrive. */
int bridge_down(struct bridge *b, const struct port *port, const struct sa_mad *from_sm,
		struct wire_gsi *ret_gsi);

#endif
