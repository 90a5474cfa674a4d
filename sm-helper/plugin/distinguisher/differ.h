/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Looks at all paths of a subnet, and in which of them two looks differ: the path record
 * distinguisher of the signalling paper (algorithms 1 and 2). A path is its ports' own LIDs and
 * links, and a cell for what lies between. Cells stand for pairs of switches where nothing there
 * depends on the port, which keeps a subnet of 11,664 hosts at 648 times 648. Pure. */
#ifndef IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_DIFFER_H
#define IBVMIG_SM_HELPER_PLUGIN_DISTINGUISHER_DIFFER_H

#include "sm-helper/proto/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A look has at most this many cells, of two bytes each; while it is made there are two. */
#define LOOK_CELLS_MAX ((size_t)1 << 25)
/* Changes that are listed by name; all are counted. */
#define DIFF_LIST_MAX ((size_t)1 << 18)

struct look_port {
	uint64_t guid;
	uint32_t sw;       /* index of its switch */
	uint16_t lid;      /* not 0 */
	uint8_t mtu, rate; /* IBA codes, of its own link */
	uint32_t rules;    /* of its partitions: alike or not */
};

/* The kind of things that rows or columns of the cells are. */
enum look_unit { LOOK_NONE, LOOK_SWITCH, LOOK_PORT };

struct look {
	uint64_t rules; /* of what SLs depend on besides the topology: alike or not */
	uint64_t *sw;   /* owned: GUIDs of the switches that have CA ports, ascending */
	unsigned switches;
	struct look_port *port; /* owned, by GUID, ascending */
	unsigned ports;
	enum look_unit rows, columns; /* sources, destinations; LOOK_NONE: all cells are alike */
	uint16_t *cell;               /* owned; column after column; LOOK_CELL() */
	bool whole; /* false: the cells are too many, or there was no memory: they are unknown */
};

/* A path between switches. mtu and rate 0: nothing there limits it more than in all paths. */
#define LOOK_CELL(sl, mtu, rate) ((uint16_t)((sl) << 9 | (mtu) << 6 | (rate)))
#define LOOK_CELL_NONE           0xffff /* no route */
#define LOOK_CELL_SL(cell)       ((uint8_t)((cell) >> 9 & 15))
#define LOOK_CELL_MTU(cell)      ((uint8_t)((cell) >> 6 & 7))
#define LOOK_CELL_RATE(cell)     ((uint8_t)((cell)&63))

struct diff {
	uint64_t pairs;   /* ordered pairs of what rows and columns stand for, in both looks */
	uint64_t changed; /* of them */
	bool all;         /* cells cannot be compared: any path may have changed */
	uint32_t ports_changed, gone, back; /* ports */
	struct sm_change *list;             /* owned */
	size_t listed, room;
};

/* How many rows and columns a look has. */
unsigned look_rows(const struct look *l);
unsigned look_columns(const struct look *l);
size_t look_bytes(const struct look *l);
void look_clear(struct look *l);

/* Compares; *ret_diff is the caller's. Without memory less is listed, and all is still counted. */
void look_differ(const struct look *was, const struct look *is, struct diff *ret_diff);
/* Appends as far as there is room. */
void diff_list(struct diff *d, const struct sm_change *c);
void diff_clear(struct diff *d);
/* True if no path has changed. */
bool diff_quiet(const struct diff *d);

#endif
