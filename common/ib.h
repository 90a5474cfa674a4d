/* SPDX-License-Identifier: GPL-2.0-or-later */
/* InfiniBand addresses: GUIDs, GIDs, LIDs, PKeys and the MAC of a lab VF. Host byte order. */
#ifndef IBVMIG_COMMON_IB_H
#define IBVMIG_COMMON_IB_H

#include <stdbool.h>
#include <stdint.h>

/* IBA 1.4, 4.1.3: unicast LIDs are 0x0001 to 0xBFFF. */
#define IB_LID_UCAST_MIN 0x0001
#define IB_LID_UCAST_MAX 0xBFFF
#define IB_LFT_BLOCK     64
#define IB_GID_PREFIX_LL 0xfe80000000000000ull

#define IB_GUID_TEXT 19 /* "0x" + 16 digits + NUL */
#define IB_GID_TEXT  40 /* 8 groups of 4 digits + NUL */
#define IB_MAC_TEXT  18

struct ib_gid {
	uint64_t prefix;
	uint64_t guid; /* interface id: the (v)GUID of the port */
};

static inline bool ib_lid_is_unicast(unsigned lid)
{
	return lid >= IB_LID_UCAST_MIN && lid <= IB_LID_UCAST_MAX;
}

/* "0x" and exactly 16 hex digits, or 8 pairs with colons; neither 0 nor all ones.
 * 0 or -EINVAL. */
int ib_guid_parse(const char *text, uint64_t *ret_guid);
void ib_guid_format(uint64_t guid, char text[static IB_GUID_TEXT]);

/* The full form of 8 groups ("fe80:0000:...") or any form that inet_pton takes. 0 or -EINVAL. */
int ib_gid_parse(const char *text, struct ib_gid *ret_gid);
void ib_gid_format(const struct ib_gid *gid, char text[static IB_GID_TEXT]);
void ib_gid_to_bytes(const struct ib_gid *gid, uint8_t bytes[static 16]);
void ib_gid_from_bytes(const uint8_t bytes[static 16], struct ib_gid *ret_gid);

/* "0x0001" to "0xffff"; base 0 (low 15 bits zero) is invalid (IBA 1.4, 10.9.2). 0 or -EINVAL. */
int ib_pkey_parse(const char *text, uint16_t *ret_pkey);

/* The MAC whose modified EUI-64 (RFC 4291, appendix A) is guid, so that a RoCE port with this MAC
 * shows the GID fe80::guid. 0, or -EINVAL where the middle of guid is not ff:fe or the MAC would be
 * multicast. */
int ib_guid_to_mac(uint64_t guid, char mac[static IB_MAC_TEXT]);

#endif
