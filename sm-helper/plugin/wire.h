/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFT blocks on their way to the switches. OpenSM's own way (a queue, a sender thread, and its lock
 * taken for each answer) costs more than the wire does. So they are sent from our thread, over the
 * same port and within the same window (max_wire_smps), and only collected here when answers come.
 */
#ifndef IBVMIG_SM_HELPER_PLUGIN_WIRE_H
#define IBVMIG_SM_HELPER_PLUGIN_WIRE_H

#include "sm-helper/plugin/main.h"
#include "vswitch/moves/moves.h"

#include <limits.h>

/* The SMPs of a plan; switches are the plan's numbers. All borrowed. */
struct wire_batch {
	osm_switch_t **sw;
	const struct moves_smp *smp;
	unsigned count;
	bool *taken; /* for each SMP: the switch has answered that it holds `after` */
};

#define WIRE_SMPS_MAX   (1u << 22) /* in a batch */
#define WIRE_ROUNDS     (1u << 9)
#define WIRE_NOT_OF_NOW UINT_MAX

/* OpenSM carries a request's context to its answer. set_method is a flag there, TRUE in requests of
 * its own. In ours it is negative: the number of the SMP, and that of the batch. A batch is over
 * when OpenSM has given its SMPs up, and an answer that still comes is none to the next batch. */
static inline boolean_t wire_mark(const struct plugin *p, unsigned smp)
{
	return ~(boolean_t)(p->wire.round % WIRE_ROUNDS * WIRE_SMPS_MAX + smp);
}

/* The number of the SMP that this answers, or WIRE_NOT_OF_NOW. Wire lock held. */
static inline unsigned wire_smp(const struct plugin *p, boolean_t mark)
{
	unsigned told = (unsigned)~mark;

	return told / WIRE_SMPS_MAX == p->wire.round % WIRE_ROUNDS ? told % WIRE_SMPS_MAX
								   : WIRE_NOT_OF_NOW;
}

/* Stands between OpenSM's dispatcher and its handler of LFT answers. At load time. 0 or -EIO. */
int wire_hook(struct plugin *p);

/* Sends `after` of all and waits until each is answered or given up, at most until deadline_us
 * (CLOCK_MONOTONIC); *taken tells which. The gate is held, so the switches stay; OpenSM's lock must
 * not be. 0, -EIO: OpenSM could not send one; -ETIMEDOUT. */
int wire_send(struct plugin *p, const struct wire_batch *b, uint64_t deadline_us);

#endif
