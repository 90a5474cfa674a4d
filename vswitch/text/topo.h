/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A topology file between its two readers: the lines as they stand (topo_read.c), and the fabric
 * that they make (topo_build.c). */
#ifndef IBVMIG_VSWITCH_TEXT_TOPO_H
#define IBVMIG_VSWITCH_TEXT_TOPO_H

#include "vswitch/text/scan.h"

#include <errno.h>
#include <string.h>

struct node {
	struct span name, desc;
	uint64_t guid;
	unsigned line;
	uint32_t first_wire, wires;
	uint32_t record; /* in the fabric, of a switch */
	uint16_t lid;    /* LID of a switch, and so is the LMC */
	uint8_t lmc;
	uint8_t ports;
	bool is_switch;
	bool left_out; /* with its wires */
};

/* An end of a link, as its node states it. */
struct wire {
	struct span peer;
	uint64_t guid; /* GUID of a CA port; 0: not said */
	unsigned line;
	uint32_t node, peer_node, end;
	uint16_t lid, peer_lid; /* 0: not said */
	uint8_t port, peer_port, lmc;
	bool left_out;
};

struct topo {
	struct scan scan;
	struct node *node; /* owned */
	struct wire *wire; /* owned */
	uint32_t nodes, nodes_room, wires, wires_room;
	uint32_t *name; /* owned; hash of node numbers */
	uint32_t names;
	uint64_t next_ca, next_switch;
	uint64_t second_guid; /* in parentheses behind the last GUID; 0: none */
	bool open;            /* the lines are still those of the last node */
};

static inline int no_memory(struct topo *t)
{
	return fabric_fail(t->scan.e, -ENOMEM, "no memory");
}

static inline bool same_span(struct span a, struct span b)
{
	return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

static inline bool same_wire(const struct wire *a, const struct wire *b)
{
	return a->port == b->port && same_span(a->peer, b->peer) && a->peer_port == b->peer_port &&
	       a->guid == b->guid && a->lid == b->lid && a->lmc == b->lmc &&
	       a->peer_lid == b->peer_lid;
}

/* Checks nodes and links against each other and builds the fabric. 0, or -EINVAL with the line and
 * the name in the error of the scan, -ENOMEM; then *f is damaged and good for fabric_clear() only.
 */
int topo_build(struct topo *t, struct fabric *f);

#endif
