/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A vSwitch enforces partitions (IBA 1.4, 18.2.4.2.1): what a guest sends into its tap with a P_Key
 * that the switch's port lacks is dropped there. */
#ifndef IBVMIG_LAB_ENFORCE_H
#define IBVMIG_LAB_ENFORCE_H

#include "tests/lab/datapath/fabric.h"
#include "tests/lab/datapath/fdb.h"

#define ENFORCE_TAPS 64

struct enforce_tap {
	int ifindex;
	uint16_t pkeys[FABRIC_PKEYS_MAX];
};

/* The taps of one host. */
struct enforce {
	struct enforce_tap taps[ENFORCE_TAPS];
	int count;
};

/* Lets these P_Keys through, with the membership that the table has or less, and no control frame:
 * those are for the port agent at the tap alone. Does nothing where they are those of before. */
void enforce_set(struct enforce *e, const struct fdb *b, const struct fdb_port *tap,
		 const uint16_t pkeys[FABRIC_PKEYS_MAX]);

#endif
