/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rdma_resolve_route() on InfiniBand, from the agent's path records: each spares the SA a query. On
 * RoCE there are no path records: the kernel builds the route from the address. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/peer/route.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <string.h>

#define EXACTLY           2  /* selector of MTU, rate and lifetime (IBA 1.4, 15.2.5.16) */
#define PACKET_LIFE_TIME  18 /* about 1 s: what OpenSM gives */
#define REVERSIBLE        0x80
#define ONE_PATH          1
#define SELECTED(s, code) ((uint8_t)((s) << 6 | (code)))

static bool on_infiniband(struct ibv_context *context, uint8_t port)
{
	struct ibv_port_attr attr;

	memset(&attr, 0, sizeof(attr));
	return !ibv_query_port(context, port, &attr) &&
	       attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
}

static struct ibv_path_data path_data(const struct rdma_ib_addr *addr, const struct shim_path *p)
{
	return (struct ibv_path_data){
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {.dgid = addr->dgid,
			 .sgid = addr->sgid,
			 .dlid = htobe16(p->dlid),
			 .slid = htobe16(p->slid),
			 .reversible_numpath = REVERSIBLE | ONE_PATH,
			 .pkey = addr->pkey,
			 .qosclass_sl = htobe16(p->sl),
			 .mtu = SELECTED(EXACTLY, route_mtu(p->mtu)),
			 .rate = SELECTED(EXACTLY, p->rate),
			 .packetlifetime = SELECTED(EXACTLY, PACKET_LIFE_TIME)}};
}

int cm_cached_path(struct cm_id *id, struct ibv_path_data *ret_path, unsigned timeout_ms)
{
	struct shim_path ask = {.head = {.bytes = sizeof(ask), .type = SHIM_PATH}},
			 p = {.head = {.bytes = 0}};
	struct ibv_context *verbs;
	struct rdma_ib_addr addr;
	uint8_t port;
	int rc;

	if (cm_enter_ready(id))
		return -errno;
	verbs = id->real->verbs;
	port = id->real->port_num;
	addr = id->real->route.addr.addr.ibaddr;
	cm_exit(id);
	if (!verbs || !on_infiniband(verbs, port))
		return -EOPNOTSUPP;
	ask.pkey = be16toh(addr.pkey);
	memcpy(ask.sgid, addr.sgid.raw, 16);
	memcpy(ask.dgid, addr.dgid.raw, 16);
	rc = shim_call(&ask, &p, sizeof(p), timeout_ms);
	if (rc)
		return rc;
	/* Half a record is none: without a rate, the SA is asked. */
	if (p.head.bytes != sizeof(p) || !p.dlid || !p.slid || !p.mtu || !p.rate || p.sl > 15)
		return -ENODATA;
	*ret_path = path_data(&addr, &p);
	return 0;
}
