/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/ib.h"
#include "common/util.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

int ib_guid_parse(const char *text, uint64_t *ret_guid)
{
	uint64_t v = 0;
	int digits = 0;
	bool colons = text && strchr(text, ':');

	if (!text)
		return -EINVAL;
	if (!colons && (text[0] != '0' || (text[1] | 32) != 'x'))
		return -EINVAL;
	for (const char *p = colons ? text : text + 2; *p; p++) {
		if (colons && *p == ':') {
			if (digits % 2 || !digits || digits == 16 || p[-1] == ':')
				return -EINVAL;
			continue;
		}
		if (!isxdigit((unsigned char)*p) || ++digits > 16)
			return -EINVAL;
		if (colons && digits > 1 && digits % 2 && p[-1] != ':')
			return -EINVAL;
		v = v << 4 |
		    (uint64_t)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 32) - 'a' + 10);
	}
	if (digits != 16 || v == 0 || v == UINT64_MAX)
		return -EINVAL;
	*ret_guid = v;
	return 0;
}

void ib_guid_format(uint64_t guid, char text[static IB_GUID_TEXT])
{
	snprintf(text, IB_GUID_TEXT, "0x%016" PRIx64, guid);
}

void ib_gid_to_bytes(const struct ib_gid *gid, uint8_t bytes[static 16])
{
	for (int i = 0; i < 8; i++) {
		bytes[i] = (uint8_t)(gid->prefix >> (56 - 8 * i));
		bytes[8 + i] = (uint8_t)(gid->guid >> (56 - 8 * i));
	}
}

void ib_gid_from_bytes(const uint8_t bytes[static 16], struct ib_gid *ret_gid)
{
	struct ib_gid gid = {0};

	for (int i = 0; i < 8; i++) {
		gid.prefix = gid.prefix << 8 | bytes[i];
		gid.guid = gid.guid << 8 | bytes[8 + i];
	}
	*ret_gid = gid;
}

int ib_gid_parse(const char *text, struct ib_gid *ret_gid)
{
	struct in6_addr a;

	if (!text || inet_pton(AF_INET6, text, &a) != 1)
		return -EINVAL;
	ib_gid_from_bytes(a.s6_addr, ret_gid);
	return 0;
}

void ib_gid_format(const struct ib_gid *gid, char text[static IB_GID_TEXT])
{
	uint8_t b[16];
	char *p = text;

	ib_gid_to_bytes(gid, b);
	for (int i = 0; i < 16; i += 2)
		p += sprintf(p, "%s%02x%02x", i ? ":" : "", b[i], b[i + 1]);
}

int ib_pkey_parse(const char *text, uint16_t *ret_pkey)
{
	uint64_t v;

	if (!text || text[0] != '0' || (text[1] | 32) != 'x' || parse_u64(text, 1, 0xffff, &v) ||
	    !(v & 0x7fff))
		return -EINVAL;
	*ret_pkey = (uint16_t)v;
	return 0;
}

int ib_guid_to_mac(uint64_t guid, char mac[static IB_MAC_TEXT])
{
	uint8_t b[8];

	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(guid >> (56 - 8 * i));
	b[0] ^= 2;
	if (b[3] != 0xff || b[4] != 0xfe || (b[0] & 1))
		return -EINVAL;
	snprintf(mac, IB_MAC_TEXT, "%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[5], b[6],
		 b[7]);
	return 0;
}
