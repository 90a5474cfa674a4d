/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Common ground of the engines: which ports of a switch lead to another one (levels.c, hops.c), and
 * the LFTs made from that (rows.c). */
#ifndef IBVMIG_VSWITCH_ROUTING_ROUTER_H
#define IBVMIG_VSWITCH_ROUTING_ROUTER_H

#include "vswitch/model/fabric.h"

struct router;

/* Differences between one engine and another. */
struct router_rules {
	bool ranked; /* up to a root's side, then down, never up again; else any shortest path */
	/* Chooses one of `count` ports of switch `at` for the LID that is the `number`th of its
	 * kind. load: how many LIDs each port of the switch carries so far; the rule counts them.
	 */
	uint8_t (*choose)(const struct router *r, uint32_t at, const uint8_t *port, unsigned count,
			  unsigned number, uint32_t *load);
};

struct router {
	struct fabric *f; /* borrowed, as the next one */
	const struct router_rules *rules;
	uint32_t n;      /* switches that are not inside an HCA */
	uint32_t *sw;    /* owned; their numbers in the fabric */
	uint32_t *core;  /* owned; the way back, FABRIC_NONE for others */
	uint16_t *rank;  /* owned; hops from the nearest root */
	uint16_t *level; /* owned; hops from the nearest switch with hosts */
	uint16_t *hop;   /* owned; n * n: [from * n + to] */
	uint32_t *queue; /* owned; n */
	uint32_t *order; /* owned; by rank, roots first */
};

#define ROUTER_TOP_RANK 0xffff /* no rank, or no level */

/* An engine's run: ranks, hops to every switch, then the LFTs. */
int router_run(struct fabric *f, const struct router_rules *rules, struct fabric_error *e);

/* The port that carries the fewest LIDs, the lowest of them; it gets one more. */
uint8_t router_least_loaded(const struct router *r, uint32_t at, const uint8_t *port,
			    unsigned count, unsigned number, uint32_t *load);

/* The switch behind a port, FABRIC_NONE for anything else. */
static inline uint32_t router_neighbour(const struct router *r, uint32_t at, unsigned port)
{
	uint32_t x = r->f->sw[r->sw[at]].peer[port].sw;

	return x == FABRIC_NONE ? FABRIC_NONE : r->core[x];
}

/* A total order of the switches, so that "up" never leads back. */
static inline bool router_is_above(const struct router *r, uint32_t a, uint32_t b)
{
	return r->rank[a] != r->rank[b] ? r->rank[a] < r->rank[b] : a < b;
}

/* Fills level, rank and order. */
void router_rank(struct router *r);
/* Fills the hops to one switch. 0 or -ENETUNREACH. */
int router_hops_to(struct router *r, uint32_t to, struct fabric_error *e);
/* The ports of `at` by which `to` may be reached, ascending; returns how many. */
unsigned router_candidates(const struct router *r, uint32_t at, uint32_t to, uint8_t *ret_port);
/* Replaces the fabric's LFTs. 0 or -ENOMEM. */
int router_write(struct router *r);

#endif
