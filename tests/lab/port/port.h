/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A port of the simulated fabric as its HCA's agent sees it: what the subnet manager has set. */
#ifndef IBVMIG_LAB_PORT_H
#define IBVMIG_LAB_PORT_H

#include "tests/lab/rxe/ib_wire.h"

#include <stdbool.h>
#include <stdint.h>

#define PORT_TEXT 512

struct ibmad_port;

/* Numbers as in PortInfo (IBA 14.2.5.6), PKeyTable and GUIDInfo, in the host's byte order. */
struct port {
	uint8_t state; /* 1 down, 2 init, 3 armed, 4 active */
	uint8_t sm_sl;
	uint8_t lmc;
	uint8_t mtu; /* NeighborMTU, 1 (256 bytes) to 5 (4096) */
	uint16_t lid;
	uint16_t sm_lid;
	bool reregister; /* ClientReregister, which a read gives once */
	uint64_t prefix;
	uint64_t guid[IBX_GUIDS]; /* the port's own first; 0: none */
	uint16_t pkey[IBX_PKEYS]; /* 0: none */
};

/* Opens the program's only port for SMPs, which $SIM_HOST names. 0 or -errno. */
int port_open(struct ibmad_port **ret_mad);

/* Asks the port itself, by directed routes without a hop. 0, -EIO (no answer), -EPROTO (an answer
 * that no port gives). */
int port_read(struct ibmad_port *mad, struct port *ret_port);

/* Makes of the port what a VF is to its guest that has one entry of the port's GUID table (1 to
 * IBX_GUIDS - 1): a port with that GUID. While the entry is empty it is down. */
void port_share(struct port *port, unsigned entry);

/* Says the port's values for a log line. */
void port_text(const struct port *port, char text[static PORT_TEXT]);

/* Whether the LID is one of the port's 2^LMC. */
bool port_has_lid(const struct port *port, uint16_t lid);

/* Whether the port may send with this P_Key: with the membership of its table or less, as the
 * vSwitch lets through. A limited member may, since the other end can be a full one. */
bool port_sends_pkey(const struct port *port, uint16_t pkey);

#endif
