/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance queries, LID-routed to the switch that has the port: they tell what has gone through.
 * They also tell if a node is there. */
#include "sm-helper/fabric/probe_int.h"
#include "common/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PERF_MS    500
#define GMP_MS     300
#define WORD_BYTES 4 /* data counters are in words: IBA 1.4, 16.1.3.5 */

static int no_answer(char *error, unsigned lid, unsigned port)
{
	snprintf(error, PROBE_ERROR_MAX, "no answer to a performance query to LID %u, port %u", lid,
		 port);
	return -EIO;
}

/* attr: of performance management, or PortInfo. Sent again where it may be lost, as all queries. */
static bool ask(struct probe *m, ib_portid_t *to, unsigned port, unsigned attr, uint8_t *data)
{
	uint64_t start = now_ms(), try;

	do {
		try = now_ms();
		errno = 0;
		if (attr == IB_ATTR_PORT_INFO
			    ? smp_query_via(data, to, attr, port, PERF_MS, m->mad)
			    : pma_query_via(data, to, (int)port, PERF_MS, attr, m->mad))
			return true;
	} while (probe_is_lost(start, try, PERF_MS));
	return false;
}

int probe_counters(struct probe *m, uint16_t lid, unsigned port, struct probe_counters *ret,
		   char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_MAD_SIZE] = {0};
	ib_portid_t to = {.lid = lid, .qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};
	int rc = probe_open(m, error);

	if (rc)
		return rc;
	if (!ask(m, &to, port, IB_GSI_PORT_COUNTERS_EXT, data))
		return no_answer(error, lid, port);
	ret->out_bytes = mad_get_field64(data, 0, IB_PC_EXT_XMT_BYTES_F) * WORD_BYTES;
	ret->in_bytes = mad_get_field64(data, 0, IB_PC_EXT_RCV_BYTES_F) * WORD_BYTES;
	memset(data, 0, sizeof data);
	if (!ask(m, &to, port, IB_GSI_PORT_COUNTERS, data))
		return no_answer(error, lid, port);
	ret->wait_ticks = mad_get_field(data, 0, IB_PC_XMT_WAIT_F);
	ret->read_us = now_us();
	return 0;
}

int probe_gmp_lid(struct probe *m, uint16_t lid, char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_MAD_SIZE] = {0};
	ib_portid_t to = {.lid = lid, .qp = 1, .qkey = IB_DEFAULT_QP1_QKEY};
	int rc = probe_open(m, error);

	if (rc || pma_query_via(data, &to, 0, GMP_MS, CLASS_PORT_INFO, m->mad))
		return rc;
	snprintf(error, PROBE_ERROR_MAX, "no answer to a GMP to LID %u", lid);
	return -EIO;
}

/* Mb/s of one lane, data rate after line coding, by LinkSpeedActive and LinkSpeedExtActive. */
static unsigned lane_mbps(unsigned speed, unsigned extended)
{
	static const unsigned ext[] = {0, 13636, 25000, 0, 50000, 0, 0, 0, 100000};

	if (extended && extended < ARRAY_SIZE(ext) && ext[extended])
		return ext[extended];
	return speed == 4 ? 8000 : speed == 2 ? 4000 : 2000;
}

int probe_link_mbps(struct probe *m, uint16_t lid, unsigned port, unsigned *ret_mbps,
		    char error[static PROBE_ERROR_MAX])
{
	struct probe_turn t AUTO_TURN = probe_take(&m);
	uint8_t data[IB_SMP_DATA_SIZE] = {0};
	ib_portid_t to = {.lid = lid};
	unsigned width;
	int rc = probe_open(m, error);

	if (rc)
		return rc;
	if (!ask(m, &to, port, IB_ATTR_PORT_INFO, data))
		return no_answer(error, lid, port);
	width = mad_get_field(data, 0, IB_PORT_LINK_WIDTH_ACTIVE_F);
	width = width == 16 ? 2 : width == 8 ? 12 : width == 4 ? 8 : width == 2 ? 4 : 1;
	*ret_mbps = width * lane_mbps(mad_get_field(data, 0, IB_PORT_LINK_SPEED_ACTIVE_F),
				      mad_get_field(data, 0, IB_PORT_LINK_SPEED_EXT_ACTIVE_F));
	return 0;
}
