/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Key tables of CA ports, and of the switch ports that they hang on, in a batch. They get what
 * the policy says of the GUIDs that the ports show afterwards, in OpenSM's records and on the
 * ports. OpenSM's own partition manager then finds nothing to write. The gate is held in all calls.
 * Indices belong to the GUID: a P_Key stays at the index that it had where the GUID was shown. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_PKEYS_H
#define IBVMIG_SM_HELPER_PLUGIN_PKEYS_H

#include "sm-helper/plugin/main.h"
#include "sm-helper/plugin/partitions/policy.h"

#include <opensm/osm_port.h>

#define PKEYS_PORTS_MAX SM_ASSIGN_MAX

/* A table: that of a CA port, or that of the switch port at the other end of its link. */
struct pkeys_table {
	osm_physp_t *physp; /* borrowed; NULL: there is none, or it enforces nothing */
	unsigned blocks;
	ib_pkey_table_t *before, *after; /* owned; `blocks` of each */
	bool *unknown; /* owned; OpenSM has never heard of this block, and nobody has read it */
};

struct pkeys_port {
	struct pkeys_table own, peer;
};

struct pkeys {
	struct plugin *p; /* borrowed */
	unsigned count;
	unsigned sent; /* Sets */
	uint64_t us;   /* in pkeys_send() */
	bool differ;   /* something is to be written, as OpenSM knows the tables */
	struct pkeys_port port[PKEYS_PORTS_MAX];
};

void pkeys_free(struct pkeys *c);

/* Adds a port that shall have these P_Keys. like: the port whose indices they keep, itself or the
 * one that shows the GUID now. OpenSM's lock held, shared at least. 0, -ENOSPC with reason,
 * -ENOMEM.
 */
int pkeys_add(struct pkeys *c, osm_physp_t *physp, const struct policy_pkeys *keys,
	      const osm_physp_t *like, struct sm_reply_head *h);

/* OpenSM's records; back: as they were before. Where that is unknown, a heavy sweep is asked for,
 * and reads the port. Lock held exclusively. */
void pkeys_apply(struct pkeys *c, bool back);

/* Reads what is unknown, writes what differs to the ports, and reads all of it back. What could not
 * be read is neither written nor taken back. The lock is not held. At most `limit`
 * Sets are sent, and with fewer than are to be sent nothing is read. 0 or -EIO with reason. */
int pkeys_send(struct pkeys *c, bool back, unsigned limit, uint64_t deadline_us,
	       struct sm_reply_head *h);

/* It is not known what the ports hold: the next heavy sweep reads and writes their tables. Lock
 * held exclusively. */
void pkeys_doubt(struct pkeys *c);

#endif
