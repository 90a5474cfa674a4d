/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Frames of the lab's InfiniBand link, for the driver and for programs beside it (docs/lab.md). */
#ifndef IB_WIRE_H
#define IB_WIRE_H

#include <linux/types.h>

#define IBX_ETH_PACKET  0x88b5 /* LRH [GRH] BTH ... ICRC */
#define IBX_ETH_CONTROL 0x88b6 /* struct ibx_control */

/* MAC of a LID: 02:49:42:00:HI:LO; of a multicast LID: 03:... */
#define IBX_MAC_UNICAST   0x02
#define IBX_MAC_MULTICAST 0x03
#define IBX_MAC_1         0x49
#define IBX_MAC_2         0x42

#define IBX_PKEYS 16
#define IBX_GUIDS 8
#define IBX_MAGIC 0x49425831

enum ibx_op {
	IBX_ASK = 1,  /* the port asks, with its GUID in guid[0] */
	IBX_TELL = 2, /* the fabric says what the port is */
	IBX_HAS = 3,  /* the port has it: the frame that told it, with this op */
};

/* Numbers as in PortInfo, PKeyTable and GUIDInfo. GUIDs and P_Keys that are not told are 0. */
struct ibx_control {
	__be32 magic_be;
	__u8 op;
	__u8 state; /* 0 (no change) is refused; 1 down, 2 init, 3 armed, 4 active */
	__be16 lid_be;
	__be16 sm_lid_be;
	__u8 sm_sl;
	__u8 lmc;
	__u8 reregister; /* not 0: the SM asks clients to register again */
	__u8 pkeys;
	__u8 guids; /* 0: the GUIDs stay as they are */
	__u8 mtu;   /* 1 to 5; 0: as large as the NIC allows */
	__be64 prefix_be;
	__be64 guid_be[IBX_GUIDS];
	__be16 pkey_be[IBX_PKEYS];
} __attribute__((packed));

#endif
