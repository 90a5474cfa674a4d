/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames of the lab's InfiniBand link (docs/lab.md) between a guest's port and its agent. */
#ifndef IBVMIG_LAB_PORT_WIRE_H
#define IBVMIG_LAB_PORT_WIRE_H

#include "tests/lab/port/port.h"

#include <net/ethernet.h>
#include <stddef.h>

#define WIRE_MAD_BYTES  256
#define WIRE_LRH_BYTES  8
#define WIRE_GRH_BYTES  40
#define WIRE_BTH_BYTES  12
#define WIRE_DETH_BYTES 8
#define WIRE_ICRC_BYTES 4

/* A GSI packet without a GRH, with its Ethernet header. */
#define WIRE_GSI_BYTES                                                                             \
	(ETH_HLEN + WIRE_LRH_BYTES + WIRE_BTH_BYTES + WIRE_DETH_BYTES + WIRE_MAD_BYTES +           \
	 WIRE_ICRC_BYTES)
/* A control frame. */
#define WIRE_CONTROL_BYTES (ETH_HLEN + sizeof(struct ibx_control))
/* No frame that the agent reads is longer than this. */
#define WIRE_MAX (WIRE_GSI_BYTES + WIRE_GRH_BYTES)

#define WIRE_QP1      1
#define WIRE_QP1_QKEY 0x80010000u

/* A MAD and how it is addressed (IBA 7.7, 9.2, 9.3); numbers in the host's byte order. */
struct wire_gsi {
	uint16_t slid;
	uint16_t dlid;
	uint16_t pkey;
	uint8_t sl;
	uint32_t dest_qp;
	uint32_t source_qp;
	uint32_t qkey;
	uint8_t mad[WIRE_MAD_BYTES];
};

/* Takes a frame apart that a guest has sent; nothing in it is trusted. 0, or -EBADMSG: no UD
 * packet with one whole MAD, or its length or ICRC is wrong. A GRH is passed over. */
int wire_gsi_read(const uint8_t *frame, size_t bytes, struct wire_gsi *ret_gsi);

/* The frame of a packet without a GRH. */
void wire_gsi_write(const struct wire_gsi *gsi, uint8_t frame[static WIRE_GSI_BYTES]);

/* Whether it is a control frame in which a port asks; *ret_guid is the GUID that it shows. */
bool wire_asks(const uint8_t *frame, size_t bytes, uint64_t *ret_guid);

/* True for a control frame in which a port says what it has; *ret_same: it is what this other frame
 * has told. */
bool wire_has(const uint8_t *frame, size_t bytes, const uint8_t told[static WIRE_CONTROL_BYTES],
	      bool *ret_same);

/* The frame that tells a port what it is. */
void wire_tell(const struct port *port, uint8_t frame[static WIRE_CONTROL_BYTES]);

#endif
