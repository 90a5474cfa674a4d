/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/port/wire.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#define LNH_MASK     3
#define LNH_BTH      2
#define LNH_GRH      3
#define UD_SEND_ONLY 0x64
#define BTH_MIGRATED 0x40
#define BTH_PAD      0x30
#define CRC_POLY     0xedb88320u /* CRC-32 of Ethernet, bits reversed */

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | get16(p + 1);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | get24(p + 1);
}

static uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)(v >> 16));
	put16(p + 2, (uint16_t)v);
}

static uint32_t crc32(uint32_t crc, const uint8_t *p, size_t n)
{
	for (; n; n--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC_POLY : 0);
	}
	return crc;
}

/* The ICRC of a packet from LRH to payload, where what switches may change counts as ones
 * (IBA 7.8.1). */
static uint32_t icrc(const uint8_t *packet, size_t bytes, bool has_grh)
{
	uint8_t head[WIRE_LRH_BYTES + WIRE_GRH_BYTES + WIRE_BTH_BYTES];
	size_t bth = WIRE_LRH_BYTES + (has_grh ? WIRE_GRH_BYTES : 0);
	size_t head_bytes = bth + WIRE_BTH_BYTES;

	memcpy(head, packet, head_bytes);
	head[0] |= 0xf0; /* VL */
	if (has_grh) {
		uint8_t *grh = head + WIRE_LRH_BYTES;

		grh[0] |= 0x0f; /* traffic class and flow label */
		memset(grh + 1, 0xff, 3);
		grh[7] = 0xff; /* hop limit */
	}
	head[bth + 4] = 0xff; /* FECN, BECN */
	return ~crc32(crc32(~0u, head, head_bytes), packet + head_bytes, bytes - head_bytes);
}

static void put_icrc(uint8_t *p, uint32_t crc)
{
	for (int i = 0; i < WIRE_ICRC_BYTES; i++)
		p[i] = (uint8_t)(crc >> 8 * i);
}

static bool has_icrc(const uint8_t *packet, size_t bytes, bool has_grh)
{
	uint8_t want[WIRE_ICRC_BYTES];

	put_icrc(want, icrc(packet, bytes - WIRE_ICRC_BYTES, has_grh));
	return !memcmp(want, packet + bytes - WIRE_ICRC_BYTES, WIRE_ICRC_BYTES);
}

static bool is_of_type(const uint8_t *frame, size_t bytes, uint16_t type)
{
	return bytes >= ETH_HLEN && get16(frame + 2 * ETH_ALEN) == type;
}

int wire_gsi_read(const uint8_t *frame, size_t bytes, struct wire_gsi *ret_gsi)
{
	const uint8_t *lrh = frame + ETH_HLEN, *bth, *deth;
	size_t packet = WIRE_GSI_BYTES - ETH_HLEN;
	bool has_grh;

	if (!is_of_type(frame, bytes, IBX_ETH_PACKET) || bytes < WIRE_GSI_BYTES)
		return -EBADMSG;
	has_grh = (lrh[1] & LNH_MASK) == LNH_GRH;
	if (!has_grh && (lrh[1] & LNH_MASK) != LNH_BTH)
		return -EBADMSG;
	packet += has_grh ? WIRE_GRH_BYTES : 0;
	/* Ethernet may have padded the frame, so only the LRH tells the length. */
	if (packet > bytes - ETH_HLEN || 4u * get16(lrh + 4) != packet)
		return -EBADMSG;
	bth = lrh + WIRE_LRH_BYTES + (has_grh ? WIRE_GRH_BYTES : 0);
	deth = bth + WIRE_BTH_BYTES;
	if (bth[0] != UD_SEND_ONLY || (bth[1] & BTH_PAD) || !has_icrc(lrh, packet, has_grh))
		return -EBADMSG;
	*ret_gsi = (struct wire_gsi){.slid = get16(lrh + 6),
				     .dlid = get16(lrh + 2),
				     .pkey = get16(bth + 2),
				     .sl = lrh[1] >> 4,
				     .dest_qp = get24(bth + 5),
				     .source_qp = get24(deth + 5),
				     .qkey = get32(deth)};
	memcpy(ret_gsi->mad, deth + WIRE_DETH_BYTES, WIRE_MAD_BYTES);
	return 0;
}

static void put_mac(uint8_t *mac, uint16_t lid)
{
	const uint8_t bytes[] = {IBX_MAC_UNICAST, IBX_MAC_1, IBX_MAC_2, 0};

	memcpy(mac, bytes, sizeof(bytes));
	put16(mac + sizeof(bytes), lid);
}

void wire_gsi_write(const struct wire_gsi *gsi, uint8_t frame[static WIRE_GSI_BYTES])
{
	uint8_t *lrh = frame + ETH_HLEN, *bth = lrh + WIRE_LRH_BYTES;
	uint8_t *deth = bth + WIRE_BTH_BYTES;
	const size_t packet = WIRE_GSI_BYTES - ETH_HLEN;

	memset(frame, 0, WIRE_GSI_BYTES);
	put_mac(frame, gsi->dlid);
	put_mac(frame + ETH_ALEN, gsi->slid);
	put16(frame + 2 * ETH_ALEN, IBX_ETH_PACKET);
	lrh[1] = (uint8_t)(gsi->sl << 4 | LNH_BTH);
	put16(lrh + 2, gsi->dlid);
	put16(lrh + 4, (uint16_t)(packet / 4));
	put16(lrh + 6, gsi->slid);
	bth[0] = UD_SEND_ONLY;
	bth[1] = BTH_MIGRATED;
	put16(bth + 2, gsi->pkey);
	put32(bth + 4, gsi->dest_qp);
	put32(deth, gsi->qkey);
	put32(deth + 4, gsi->source_qp);
	memcpy(deth + WIRE_DETH_BYTES, gsi->mad, WIRE_MAD_BYTES);
	put_icrc(lrh + packet - WIRE_ICRC_BYTES, icrc(lrh, packet - WIRE_ICRC_BYTES, false));
}

/* The control part of a frame whose operation is op, or NULL. */
static const uint8_t *control_of(const uint8_t *frame, size_t bytes, enum ibx_op op)
{
	const uint8_t *control = frame + ETH_HLEN;

	if (!is_of_type(frame, bytes, IBX_ETH_CONTROL) || bytes < WIRE_CONTROL_BYTES ||
	    get32(control) != IBX_MAGIC || control[offsetof(struct ibx_control, op)] != op)
		return NULL;
	return control;
}

bool wire_asks(const uint8_t *frame, size_t bytes, uint64_t *ret_guid)
{
	const uint8_t *control = control_of(frame, bytes, IBX_ASK);

	if (!control)
		return false;
	*ret_guid = get64(control + offsetof(struct ibx_control, guid_be));
	return true;
}

bool wire_has(const uint8_t *frame, size_t bytes, const uint8_t told[static WIRE_CONTROL_BYTES],
	      bool *ret_same)
{
	const size_t rest = offsetof(struct ibx_control, op) + 1;
	const uint8_t *control = control_of(frame, bytes, IBX_HAS);

	if (!control)
		return false;
	*ret_same = !memcmp(control + rest, told + ETH_HLEN + rest,
			    sizeof(struct ibx_control) - rest);
	return true;
}

void wire_tell(const struct port *port, uint8_t frame[static WIRE_CONTROL_BYTES])
{
	static const uint8_t to[ETH_ALEN] = {
		IBX_MAC_MULTICAST, IBX_MAC_1, IBX_MAC_2, 0xff, 0xff, 0xff};
	struct ibx_control c = {.magic_be = htonl(IBX_MAGIC),
				.op = IBX_TELL,
				.state = port->state,
				.lid_be = htons(port->lid),
				.sm_lid_be = htons(port->sm_lid),
				.sm_sl = port->sm_sl,
				.lmc = port->lmc,
				.reregister = port->reregister,
				.pkeys = IBX_PKEYS,
				.guids = IBX_GUIDS,
				.mtu = port->mtu,
				.prefix_be = htobe64(port->prefix)};

	for (unsigned i = 0; i < IBX_GUIDS; i++)
		c.guid_be[i] = htobe64(port->guid[i]);
	for (unsigned i = 0; i < IBX_PKEYS; i++)
		c.pkey_be[i] = htons(port->pkey[i]);
	memcpy(frame, to, ETH_ALEN);
	put_mac(frame + ETH_ALEN, 0);
	put16(frame + 2 * ETH_ALEN, IBX_ETH_CONTROL);
	memcpy(frame + ETH_HLEN, &c, sizeof(c));
}
