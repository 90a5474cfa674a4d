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
	struct probe *of; /* borrowed: the port's own one, for who gives way; NULL: this is it */
	pthread_mutex_t lock; /* libibmad has one receive queue for a port. Of one that gives way:
				 holds those apart who use it */
	pthread_mutex_t next; /* whoever has it is the next to get the lock */
	char *ca;             /* owned; NULL: any */
	unsigned port;
	struct ibmad_port *mad; /* owned; NULL: not open */
	uint64_t own_guid;
	uint32_t serial; /* transaction IDs of probe_lft_blocks() */
};

/* A turn is one query. Of all who give way only one stands in the line for the port, so another
 * waits for one query of theirs at most. */
struct probe_turn {
	struct probe *port;
	pthread_mutex_t *gives_way; /* NULL: does not */
};

#define AUTO_TURN __attribute__((cleanup(probe_turn_end), unused))

/* Waits; *m becomes the port's own one. */
static inline struct probe_turn probe_take(struct probe **m)
{
	struct probe_turn t = {.port = (*m)->of ? (*m)->of : *m,
			       .gives_way = (*m)->of ? &(*m)->lock : NULL};

	if (t.gives_way)
		pthread_mutex_lock(t.gives_way);
	pthread_mutex_lock(&t.port->next);
	pthread_mutex_lock(&t.port->lock);
	pthread_mutex_unlock(&t.port->next);
	*m = t.port;
	return t;
}

static inline void probe_turn_end(struct probe_turn *t)
{
	pthread_mutex_unlock(&t->port->lock);
	if (t->gives_way)
		pthread_mutex_unlock(t->gives_way);
}

/* Functions like those of probe.h, to be called with the lock held. */
int probe_open(struct probe *m, char *error);
ib_portid_t probe_directed(const struct probe_route *to);
/* True if a query that failed is sent again: nothing came for the whole of timeout_ms since try_ms,
 * so the MAD or its answer may be lost. A time-out that the kernel reports makes libibmad try again
 * by itself, and counts. */
bool probe_is_lost(uint64_t start_ms, uint64_t try_ms, unsigned timeout_ms);

#endif
