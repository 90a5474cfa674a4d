/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Our own eyes on the fabric: SMPs and SA queries over libibumad. Blocking, from worker threads;
 * one query at a time. Opens the port when it is first needed. Only probe_set_lid() and
 * probe_write_guids() write. */
#ifndef IBVMIG_SM_HELPER_FABRIC_PROBE_H
#define IBVMIG_SM_HELPER_FABRIC_PROBE_H

#include "common/ib.h"
#include "sm-helper/fabric/pkeys.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_ERROR_MAX 256
#define PROBE_DESC_MAX  64

#define PROBE_GUID_BLOCK 8 /* entries of a GUID table in a GUIDInfo */

struct probe; /* owned by the caller of probe_new() */

/* ca NULL and port 0: the first port that is active. */
int probe_new(const char *ca, unsigned port, struct probe **ret_probe);
/* The same port for those who only look: each query waits until nobody else wants the port. of:
 * borrowed, and freed later. 0 or -ENOMEM. */
int probe_giving_way(struct probe *of, struct probe **ret_probe);
void probe_free(struct probe *m);

/* A directed route as fabric_route() gives it. */
struct probe_route {
	uint8_t path[64];
	int hops;
};

struct probe_path {
	uint16_t dlid, slid, pkey;
	uint8_t sl, mtu, rate; /* mtu, rate: IBA codes */
};

/* NodeInfo as a node answers it, and the port that the route has come in by. */
struct probe_node {
	uint64_t node_guid, port_guid;
	bool is_switch;      /* else a CA or a router */
	uint8_t ports, port; /* number of ports; that port, 0 for a switch's own */
};

struct probe_port {
	uint16_t lid; /* 0: none */
	uint8_t lmc;
	uint8_t state; /* IBA PortState: 1 down, 4 active */
};

struct probe_sm {
	uint64_t guid;
	uint16_t lid;
	uint8_t state;     /* IBA SMInfo: 3 master */
	uint32_t activity; /* grows with each SMP that OpenSM sends */
};

/* Every call: 0 or -errno with one line in error; -ENODEV when there is no port, -EIO when there is
 * no answer, -EPROTO when the answer cannot be. */
int probe_own_guid(struct probe *m, uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX]);
int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node_guid,
		    uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX]);
int probe_node(struct probe *m, const struct probe_route *to, struct probe_node *ret_node,
	       char error[static PROBE_ERROR_MAX]);
int probe_node_desc(struct probe *m, const struct probe_route *to,
		    char ret_desc[static PROBE_DESC_MAX], char error[static PROBE_ERROR_MAX]);
int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX]);
/* PortInfo with another LID; nothing else of the port changes. */
int probe_set_lid(struct probe *m, const struct probe_route *to, unsigned port, uint16_t lid,
		  char error[static PROBE_ERROR_MAX]);
/* The P_Keys of a CA port. */
int probe_pkeys(struct probe *m, const struct probe_route *to, struct pkeys *ret_keys,
		char error[static PROBE_ERROR_MAX]);
/* The subnet manager that our port knows. -ENODEV: none. */
int probe_sm(struct probe *m, struct probe_sm *ret_sm, char error[static PROBE_ERROR_MAX]);
/* Asks it for a heavy sweep, by trap 144 (capability mask) of our own port: the one notice that a
 * CA may send of itself and that OpenSM answers so. It ignores more than ten in ten seconds. 0: the
 * trap is on its way; it may get lost. */
int probe_ask_sweep(struct probe *m, char error[static PROBE_ERROR_MAX]);
/* The same as probe_node_info() to a LID: answers only if the LFTs lead there. */
int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port_guid,
			char error[static PROBE_ERROR_MAX]);
/* Asks if a node answers a GMP at the LID, a question to its performance agent. Asked once, and it
 * may drop it: our port and that one need a P_Key in common. -EIO: no answer. */
int probe_gmp_lid(struct probe *m, uint16_t lid, char error[static PROBE_ERROR_MAX]);
/* Reads an entry of the GUID table of the port with this GUID (GUIDInfo); 0: the entry is empty.
 * -EPROTO: another port answers at the LID. */
int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX]);
/* The whole block that the entries from block * PROBE_GUID_BLOCK on are in. */
int probe_guid_block(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned block,
		     uint64_t ret_guid[static PROBE_GUID_BLOCK],
		     char error[static PROBE_ERROR_MAX]);
/* SubnAdmSet (or, not set, SubnAdmDelete) of a GUIDInfoRecord: of the port at this LID, those
 * entries of a block that have a bit in mask, the first the lowest. guid: what they shall be, and
 * what the SA then says that they are. An entry that it has refused, as another port has that GUID,
 * is not what was asked for. The port is written to by the SM, later. -EACCES: the SA has refused
 * all; -ETIMEDOUT. */
int probe_write_guids(struct probe *m, uint16_t lid, unsigned block, bool set, uint8_t mask,
		      uint64_t guid[static PROBE_GUID_BLOCK], char error[static PROBE_ERROR_MAX]);
/* Counters of a port as it sees itself, since some reset that nobody knows: only differences tell
 * something. */
struct probe_counters {
	uint64_t out_bytes, in_bytes;
	uint32_t wait_ticks; /* PortXmitWait; stays at the top when it gets there */
	uint64_t read_us;    /* now_us() */
};
/* Counters of a switch's port. */
int probe_counters(struct probe *m, uint16_t lid, unsigned port, struct probe_counters *ret,
		   char error[static PROBE_ERROR_MAX]);
/* The data rate of its link. */
int probe_link_mbps(struct probe *m, uint16_t lid, unsigned port, unsigned *ret_mbps,
		    char error[static PROBE_ERROR_MAX]);
/* LFT blocks, in a pipeline. -EIO: some are not read, `read` tells which. */
struct probe_block {
	struct probe_route to;
	unsigned block;
	bool read;
	uint8_t data[IB_LFT_BLOCK];
};
int probe_lft_blocks(struct probe *m, struct probe_block *b, unsigned count,
		     char error[static PROBE_ERROR_MAX]);
/* PathRecord from the SA at sm_lid (0: the one that our port knows), in a partition (pkey 0: any).
 * -ENOENT: the SA knows no such path; -ETIMEDOUT. */
int probe_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid,
	       const struct ib_gid *dgid, uint16_t pkey, struct probe_path *ret_path,
	       char error[static PROBE_ERROR_MAX]);
/* The same to a LID, from the SA that our port knows; *ret_dgid: the port that has it. */
int probe_path_to_lid(struct probe *m, const struct ib_gid *sgid, uint16_t dlid, uint16_t pkey,
		      struct probe_path *ret_path, struct ib_gid *ret_dgid,
		      char error[static PROBE_ERROR_MAX]);

#endif
