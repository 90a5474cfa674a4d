/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fabric in memory: switches with their LFTs in blocks of 64, CA ports, and the links between
 * them. Pure: somebody else reads it from OpenSM or from the switches. */
#ifndef IBVMIG_VSWITCH_FABRIC_H
#define IBVMIG_VSWITCH_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_DESC_MAX 64
#define FABRIC_HOPS_MAX 63 /* directed routes, IBA 1.4, 14.2.1.2 */
#define FABRIC_NONE     UINT32_MAX

/* What is at the other end of a switch port. */
struct fabric_peer {
	uint32_t sw;  /* index of a switch, or FABRIC_NONE */
	uint32_t end; /* index of a CA port, or FABRIC_NONE */
	uint8_t port; /* of the switch */
};

struct fabric_switch {
	uint64_t guid; /* node GUID */
	uint16_t lid;
	uint8_t ports;
	char desc[FABRIC_DESC_MAX];
	struct fabric_peer *peer; /* owned; index 1 to ports */
	uint8_t *lft;             /* owned; lft_blocks blocks */
	bool *lft_known;          /* owned; per block */
	unsigned lft_blocks;
};

struct fabric_end {
	uint64_t node_guid, port_guid;
	uint16_t lid;
	uint8_t port; /* of the CA */
	uint8_t sw_port;
	uint32_t sw; /* index of its switch, or FABRIC_NONE */
	char desc[FABRIC_DESC_MAX];
};

struct guid_index {
	uint64_t *guid; /* owned; 0: free slot */
	uint32_t *value;
	size_t room, used;
};

struct fabric {
	struct fabric_switch *sw; /* owned */
	uint32_t switches, switches_room;
	struct fabric_end *end; /* owned */
	uint32_t ends, ends_room;
	struct guid_index by_node, by_port; /* switches by node GUID, CA ports by port GUID */
};

/* A zeroed fabric is empty. */
void fabric_clear(struct fabric *f);

/* 0, -EEXIST (GUID twice), -EINVAL (a GUID of 0, a LID above 0xBFFF), -ENOMEM. */
int fabric_add_switch(struct fabric *f, uint64_t guid, uint16_t lid, unsigned ports,
		      const char *desc);
int fabric_add_end(struct fabric *f, const struct fabric_end *end);

/* Between two switches. 0, -ENOENT (unknown switch), -ERANGE (port beyond the switch), -EEXIST
 * (one of the ports is taken). */
int fabric_link(struct fabric *f, uint64_t guid_a, unsigned port_a, uint64_t guid_b,
		unsigned port_b);
/* Between a switch port and the CA port `end`. The same errors. */
int fabric_attach(struct fabric *f, uint32_t end, uint64_t sw_guid, unsigned sw_port);

/* Indices, or FABRIC_NONE. */
uint32_t fabric_find_switch(const struct fabric *f, uint64_t node_guid);
uint32_t fabric_find_end(const struct fabric *f, uint64_t port_guid);
/* The CA port at a switch port. */
uint32_t fabric_end_at(const struct fabric *f, uint64_t sw_guid, unsigned sw_port);

int fabric_set_lft(struct fabric *f, uint32_t sw, unsigned block, const uint8_t data[64]);
/* The output port, VSWITCH_NO_PATH, or -ENODATA while the block is unknown. */
int fabric_lft_entry(const struct fabric *f, uint32_t sw, uint16_t lid);
/* Forgets all LFTs. */
void fabric_forget_lfts(struct fabric *f);

/* The shortest directed route from CA port `from` to switch `sw` (ret_path[1] is the CA's own
 * port, ret_path[n] the port that hop n leaves by) and its number of hops; -ENETUNREACH.
 * To go on to what hangs at a port of sw, append that port. */
int fabric_route(const struct fabric *f, uint32_t from, uint32_t sw,
		 uint8_t ret_path[static FABRIC_HOPS_MAX + 1]);

#endif
