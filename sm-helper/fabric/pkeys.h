/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Partitions that a port is a member of. Pure. */
#ifndef IBVMIG_SM_HELPER_FABRIC_PKEYS_H
#define IBVMIG_SM_HELPER_FABRIC_PKEYS_H

#include <stdbool.h>
#include <stdint.h>

#define PKEYS_MAX 1024
#define PKEY_FULL 0x8000 /* without it: a limited member */
#define PKEY_BASE 0x7fff

/* The P_Keys in a port's table, 0 left out. */
struct pkeys {
	uint16_t key[PKEYS_MAX];
	unsigned count;
};

/* True if the two ports have a partition in common of which one is a full member. Limited members
 * of it have no path to each other, as it must be. */
bool pkeys_meet(const struct pkeys *a, const struct pkeys *b);

#endif
