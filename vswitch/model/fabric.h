/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fabric in memory: switches with their LFTs in blocks of 64, CA ports, and the links between
 * them. Pure: somebody else reads it from OpenSM, from the switches or from files. */
#ifndef IBVMIG_VSWITCH_MODEL_FABRIC_H
#define IBVMIG_VSWITCH_MODEL_FABRIC_H

#include "vswitch/model/lft.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_DESC_MAX  64
#define FABRIC_HOPS_MAX  63 /* directed routes, IBA 1.4, 14.2.1.2 */
#define FABRIC_PORTS_MAX 254
#define FABRIC_LMC_MAX   7
#define FABRIC_NONE      UINT32_MAX
#define VSWITCH_NO_PATH  255 /* the entry of a LID that leads nowhere */

/* Why a call failed, in one line that names what was wrong. */
struct fabric_error {
	char text[256];
};

/* Fills *e (which may be NULL) and returns rc. */
int fabric_fail(struct fabric_error *e, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Other end of a switch port's link. */
struct fabric_peer {
	uint32_t sw;  /* index of a switch, or FABRIC_NONE */
	uint32_t end; /* index of a CA port, or FABRIC_NONE */
	uint8_t port; /* port of the switch or CA */
};

struct fabric_switch {
	uint64_t guid; /* node GUID */
	uint16_t lid;  /* the first of 2^lmc */
	uint8_t lmc;   /* LMC of an enhanced port 0 */
	uint8_t ports;
	bool inside; /* a vSwitch inside an HCA: its SMPs do not cross the fabric's switches */
	char desc[FABRIC_DESC_MAX];
	struct fabric_peer *peer; /* owned; index 1 to ports */
	uint32_t *lft;            /* owned; per block its number in the store, or LFT_NONE */
	unsigned lft_blocks;
};

struct fabric_end {
	uint64_t node_guid, port_guid;
	uint16_t lid; /* the first of 2^lmc */
	uint8_t lmc;
	uint8_t port; /* port of the CA */
	uint8_t sw_port;
	uint32_t sw; /* index of its switch, or FABRIC_NONE */
	uint32_t pf; /* a VF without a vSwitch of its own: the CA port whose link it shares; else
			FABRIC_NONE */
	char desc[FABRIC_DESC_MAX];
};

/* Step on the way to a switch: the one before it, FABRIC_NONE at the beginning, and by which port.
 */
struct fabric_hop {
	uint32_t before;
	bool seen;
	uint8_t port;
};

struct guid_index {
	uint32_t *slot; /* owned; FABRIC_NONE: free */
	uint32_t room, used;
};

struct fabric {
	struct fabric_switch *sw; /* owned */
	uint32_t switches, switches_room;
	struct fabric_end *end; /* owned */
	uint32_t ends, ends_room;
	struct guid_index by_node, by_port; /* switches by node GUID, CA ports by port GUID */
	uint32_t *by_lid;                   /* owned; NULL until a LID is known */
	struct lft_store store;
	struct fabric_hop *hop; /* owned; of fabric_route(): the last way to each switch from
				   hop_from; NULL: none are known */
	uint32_t hop_from;
};

/* A zeroed fabric is empty. */
void fabric_clear(struct fabric *f);

/* 0, -EEXIST (GUID twice), -EINVAL (a GUID of 0, a LID above 0xBFFF), -ENOMEM. Of two that show
 * one LID, fabric_find_lid() knows the first. */
int fabric_add_switch(struct fabric *f, uint64_t guid, uint16_t lid, unsigned ports,
		      const char *desc);
/* The LMC of a switch with an enhanced port 0. 0, -EINVAL. */
int fabric_set_switch_lmc(struct fabric *f, uint32_t sw, unsigned lmc);
/* Adds a CA port that is not attached to anything yet, whatever *end says. */
int fabric_add_end(struct fabric *f, const struct fabric_end *end);

/* Between two switches. 0, -ENOENT (unknown switch), -ERANGE (port beyond the switch), -EEXIST
 * (one of the ports is taken). */
int fabric_link(struct fabric *f, uint64_t guid_a, unsigned port_a, uint64_t guid_b,
		unsigned port_b);
/* Between a switch port and the CA port `end`. The same errors. */
int fabric_attach(struct fabric *f, uint32_t end, uint64_t sw_guid, unsigned sw_port);
/* The VF `end` behind the link of the attached CA port `pf`. 0, -ENOENT. */
int fabric_attach_vf(struct fabric *f, uint32_t end, uint32_t pf);

/* Marks as `inside` each switch that has CA ports and one link to a switch, which has links to more
 * switches. In a fabric of files, nothing else tells a vSwitch from a leaf with one uplink. */
void fabric_find_vswitches(struct fabric *f);

/* Indices, or FABRIC_NONE. */
uint32_t fabric_find_switch(const struct fabric *f, uint64_t node_guid);
uint32_t fabric_find_end(const struct fabric *f, uint64_t port_guid);
/* The CA port at a switch port. */
uint32_t fabric_end_at(const struct fabric *f, uint64_t sw_guid, unsigned sw_port);

/* Owner of a LID; both FABRIC_NONE: nobody. LIDs of an LMC are all found. */
struct fabric_owner {
	uint32_t sw, end;
};
struct fabric_owner fabric_find_lid(const struct fabric *f, unsigned lid);
/* Gives CA port `end` another LID (0: none). 0, -EEXIST (another port has it), -EINVAL. */
int fabric_set_lid(struct fabric *f, uint32_t end, uint16_t lid);
/* Identity of a CA port now. */
struct fabric_identity {
	uint32_t end;
	uint64_t node_guid, port_guid;
	uint16_t lid;
};
/* Gives CA ports new GUIDs and LIDs, all at once, so that they may exchange them. 0, -EEXIST (a
 * port not among them has one of them), -EINVAL (a GUID of 0, a LID that cannot be). On an error
 * the fabric is damaged and good for fabric_clear() only. */
int fabric_set_identities(struct fabric *f, const struct fabric_identity *to, unsigned count);
/* The highest LID that anybody has; 0: none. */
unsigned fabric_top_lid(const struct fabric *f);

int fabric_set_lft(struct fabric *f, uint32_t sw, unsigned block, const uint8_t data[64]);
/* The 64 entries, borrowed until the block is set anew; NULL while it is unknown. */
const uint8_t *fabric_lft_block(const struct fabric *f, uint32_t sw, unsigned block);
/* The output port, VSWITCH_NO_PATH, or -ENODATA while the block is unknown. */
int fabric_lft_entry(const struct fabric *f, uint32_t sw, uint16_t lid);
/* Forgets all LFTs. */
void fabric_forget_lfts(struct fabric *f);

/* The shortest directed route from CA port `from` to switch `sw`, and its number of hops;
 * -ENETUNREACH. ret_path[1] is the CA's own port, ret_path[n] the port that hop n leaves by. To go
 * on to what hangs at a port of sw, append that port. The ways from one switch are computed once
 * and kept until a link or a switch is added. */
int fabric_route(struct fabric *f, uint32_t from, uint32_t sw,
		 uint8_t ret_path[static FABRIC_HOPS_MAX + 1]);

/* Bytes that the model has allocated. */
size_t fabric_bytes(const struct fabric *f);

#endif
