/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/port/bridge.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define BASE_VERSION 1
#define SA_CLASS     3
#define SA_VERSION   2
#define IS_RESPONSE  0x80
#define GET_TABLE    0x12
#define RMPP_ACTIVE  1
#define RMPP_DATA    1
#define RMPP_WHOLE   (0x1f << 3 | 4 | 2 | RMPP_ACTIVE) /* no response time; first, last, active */
#define RMPP_AT      36                                /* bytes before the payload of a segment */
#define PKEY_OF_GSI  0xffff

static_assert(SA_MAD_BYTES == WIRE_MAD_BYTES, "one MAD is one segment");

/* A SubnAdm MAD (IBA 13.4.3, 13.6.2.1, 15.2.1.1); what is not read here is left out. */
struct sa_header {
	uint8_t base_version, class, class_version, method;
	uint16_t status_be, class_specific_be;
	uint64_t tid_be;
	uint16_t attr_be, reserved_be;
	uint32_t modifier_be;
	uint8_t rmpp_version, rmpp_type, rmpp_flags, rmpp_status;
	uint32_t segment_be, payload_be;
};

static_assert(offsetof(struct sa_header, payload_be) == 32, "as on the wire");

static int may_send(const struct port *port, const struct wire_gsi *gsi)
{
	bool is_own = port_has_lid(port, gsi->slid) && port_sends_pkey(port, gsi->pkey);

	if (gsi->dlid != port->sm_lid)
		return -ENOMSG;
	return is_own && gsi->dest_qp == WIRE_QP1 && gsi->qkey == WIRE_QP1_QKEY ? 0 : -EPERM;
}

static void note_request(struct bridge *b, const struct wire_gsi *gsi, struct sa_header *h)
{
	uint32_t tid = ++b->tid;

	b->requests[tid % BRIDGE_REQUESTS] = (struct bridge_request){tid, gsi->source_qp,
								     h->tid_be};
	h->tid_be = htobe64(tid);
}

int bridge_up(struct bridge *b, const struct port *port, const struct wire_gsi *from_guest,
	      struct sa_mad *ret_mad)
{
	struct sa_header h;
	int r = may_send(port, from_guest);

	if (r)
		return r;
	memcpy(&h, from_guest->mad, sizeof(h));
	if (h.base_version != BASE_VERSION || h.class != SA_CLASS || h.class_version != SA_VERSION)
		return -EPROTONOSUPPORT;
	if ((h.rmpp_flags & RMPP_ACTIVE) && h.rmpp_type != RMPP_DATA)
		return -EALREADY;
	/* The answer to a Report keeps the SM's ID. */
	if (!(h.method & IS_RESPONSE))
		note_request(b, from_guest, &h);
	*ret_mad = (struct sa_mad){.lid = from_guest->dlid, .qp = from_guest->dest_qp};
	memcpy(ret_mad->mad, from_guest->mad, sizeof(ret_mad->mad));
	memcpy(ret_mad->mad, &h, sizeof(h));
	return 0;
}

static const struct bridge_request *find_request(const struct bridge *b, const struct sa_header *h)
{
	uint32_t tid = (uint32_t)be64toh(h->tid_be);
	const struct bridge_request *r = &b->requests[tid % BRIDGE_REQUESTS];

	return tid && r->tid == tid ? r : NULL;
}

/* The stand-in for umad passes one MAD on, with no RMPP header filled in. So an answer ends with
 * the records that are in it. */
static void make_whole(struct sa_header *h, uint32_t bytes)
{
	h->rmpp_version = 1;
	h->rmpp_type = RMPP_DATA;
	h->rmpp_flags = RMPP_WHOLE;
	h->rmpp_status = 0;
	h->segment_be = htobe32(1);
	h->payload_be = htobe32(bytes > RMPP_AT ? bytes - RMPP_AT : 0);
}

int bridge_down(struct bridge *b, const struct port *port, const struct sa_mad *from_sm,
		struct wire_gsi *ret_gsi)
{
	const struct bridge_request *request = NULL;
	struct sa_header h;

	memcpy(&h, from_sm->mad, sizeof(h));
	if (from_sm->status)
		return -ENOENT;
	if (h.method & IS_RESPONSE) {
		request = find_request(b, &h);
		if (!request)
			return -ENOENT;
		h.tid_be = request->guest_tid;
	}
	if (h.method == (GET_TABLE | IS_RESPONSE))
		make_whole(&h, from_sm->bytes);
	*ret_gsi = (struct wire_gsi){.slid = from_sm->lid,
				     .dlid = port->lid,
				     .pkey = PKEY_OF_GSI,
				     .sl = port->sm_sl,
				     .dest_qp = request ? request->qp : WIRE_QP1,
				     .source_qp = WIRE_QP1,
				     .qkey = WIRE_QP1_QKEY};
	memcpy(ret_gsi->mad, from_sm->mad, sizeof(ret_gsi->mad));
	memcpy(ret_gsi->mad, &h, sizeof(h));
	return 0;
}
