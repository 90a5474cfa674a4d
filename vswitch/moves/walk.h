/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The way of a packet to a LID, by the LFTs. */
#ifndef IBVMIG_VSWITCH_MOVES_WALK_H
#define IBVMIG_VSWITCH_MOVES_WALK_H

#include "vswitch/model/fabric.h"

enum walk_verdict {
	WALK_ARRIVED,   /* at a CA port: .end */
	WALK_AT_SWITCH, /* the LID is that of the switch itself */
	WALK_NO_ENTRY,  /* the LFT has no path */
	WALK_NO_LINK,   /* the entry names a port without a link */
	WALK_LOOP,
	WALK_UNKNOWN, /* an LFT block could not be had */
};

struct walk {
	enum walk_verdict verdict;
	uint32_t end;  /* WALK_ARRIVED */
	uint32_t sw;   /* the last switch */
	unsigned hops; /* switches passed */
};

struct walk_block {
	uint32_t sw;
	unsigned block;
};

/* Called for blocks that are unknown, each once: must fabric_set_lft() those that it can get. */
typedef void walk_fetch(void *arg, struct fabric *f, const struct walk_block *want, unsigned count);

/* Walks from switch `sw` on. fetch may be NULL. */
struct walk walk_lid(struct fabric *f, uint32_t sw, uint16_t lid, walk_fetch *fetch, void *arg);

/* Walks from up to `sources` CA ports (spread evenly over all) to lid; all must arrive at CA port
 * `end`. All go on side by side, so that fetch is called once for each switch on the longest way.
 * 0, -ENOMEM, or -EHOSTUNREACH with one line in ret_text that names source, last switch and what is
 * wrong. *ret_walks: how many were made. */
int walk_verify(struct fabric *f, uint16_t lid, uint32_t end, unsigned sources, walk_fetch *fetch,
		void *arg, unsigned *ret_walks, char *ret_text, size_t room);

const char *walk_verdict_text(enum walk_verdict v);

#endif
