/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the files of probe. */
#ifndef IBVMIG_SM_HELPER_FABRIC_PROBE_INT_H
#define IBVMIG_SM_HELPER_FABRIC_PROBE_INT_H

#include "sm-helper/fabric/probe.h"

#include <infiniband/mad.h>
#include <pthread.h>

#define PROBE_SMP_MS 500
#define PROBE_TRIES  3

struct probe {
	pthread_mutex_t lock; /* libibmad has one receive queue for a port */
	char *ca;             /* owned; NULL: any */
	unsigned port;
	struct ibmad_port *mad; /* owned; NULL: not open */
	uint64_t own_guid;
	uint32_t serial; /* transaction IDs of probe_lft_blocks() */
};

/* Functions like those of probe.h, to be called with the lock held. */
int probe_open(struct probe *m, char *error);
ib_portid_t probe_directed(const struct probe_route *to);
/* True if a query that failed is sent again: nothing came for the whole of timeout_ms since try_ms,
 * so the MAD or its answer may be lost. A time-out that the kernel reports makes libibmad try again
 * by itself, and counts. */
bool probe_is_lost(uint64_t start_ms, uint64_t try_ms, unsigned timeout_ms);

#endif
