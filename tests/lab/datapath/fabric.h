/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The subnet as the data path sees it: switches with their LFTs, MFTs and P_Key tables, and the
 * adapters' GUIDs and LIDs. SMPs along directed routes read them, nothing is taken from the SM. */
#ifndef IBVMIG_LAB_FABRIC_H
#define IBVMIG_LAB_FABRIC_H

#include "common/ib.h"

#include <infiniband/mad.h>
#include <stdbool.h>

#define FABRIC_NODES_MAX 256
#define FABRIC_PORTS_MAX 64
#define FABRIC_LIDS_MAX  1024
#define FABRIC_NAME_MAX  65
#define FABRIC_HOPS_MAX  16
#define FABRIC_MLID_BASE 0xc000
#define FABRIC_MLIDS_MAX 64 /* two blocks of an MFT */
#define FABRIC_PKEYS_MAX 32 /* a block of a P_Key table; the lab's ports have no more */

struct fabric_link {
	int node; /* index, or -1 without a neighbour */
	int port;
};

struct fabric_node {
	char name[FABRIC_NAME_MAX]; /* NodeDescription */
	bool is_switch;
	int ports;
	ib_portid_t route;
	uint64_t node_guid;
	uint64_t port_guid;                         /* GUID of an adapter's port 1 */
	unsigned lid, lmc;                          /* the same */
	struct fabric_link links[FABRIC_PORTS_MAX]; /* by port number */
	uint8_t lft[FABRIC_LIDS_MAX];
	uint64_t mft[FABRIC_MLIDS_MAX]; /* a bit per port, from FABRIC_MLID_BASE on */
};

struct fabric {
	struct ibmad_port *mad;
	struct fabric_node *nodes; /* owned, FABRIC_NODES_MAX */
	int count;
	unsigned lid_top; /* the LFTs are read up to the block with this LID */
};

/* Opens the only umad port there is. 0 or -errno. */
int fabric_open(struct fabric *f);

/* Finds all nodes and links that are up, then their LFTs. 0 or -errno; on an error the old picture
 * stays. */
int fabric_discover(struct fabric *f);

/* A switch says that the state of one of its ports has changed until the SM has noted it
 * (PortStateChange, IBA 14.2.5.4). 0 or -errno; *ret_changed is set then, never cleared. */
int fabric_read_links(struct fabric *f, bool *ret_changed);

/* 0 or -errno; *ret_changed is set where something differs from the last time, never cleared. */
int fabric_read_lfts(struct fabric *f, bool *ret_changed);
int fabric_read_mfts(struct fabric *f, bool *ret_changed);
int fabric_read_ports(struct fabric *f, bool *ret_changed);

/* The P_Keys that a switch enforces at one of its ports, 0 where an entry is free. 0 or -EIO. */
int fabric_read_pkeys(struct fabric *f, int node, int port, uint16_t ret_pkeys[FABRIC_PKEYS_MAX]);

/* The index of the node with this name, or -1. */
int fabric_find(const struct fabric *f, const char *name);

/* Follows the LFTs from a switch to a LID. The index of the adapter at the end, or -1 (no entry, a
 * dead link, a loop). */
int fabric_walk(const struct fabric *f, int from, unsigned lid);

/* Follows the MFTs from a switch, and marks the adapters to which a packet for the MLID comes. */
void fabric_spread(const struct fabric *f, int from, unsigned mlid,
		   bool ret_ends[FABRIC_NODES_MAX]);

#endif
