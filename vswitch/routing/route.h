/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFTs for a fabric, as a subnet manager would compute them; the vSwitch method itself never does.
 */
#ifndef IBVMIG_VSWITCH_ROUTING_ROUTE_H
#define IBVMIG_VSWITCH_ROUTING_ROUTE_H

#include "vswitch/model/fabric.h"

enum route_engine {
	ROUTE_MINHOP, /* shortest paths, each LID by the port that carries the fewest */
	ROUTE_UPDN,   /* up to a root's side, then down, never up again: no cycle of waiting */
	ROUTE_DOR,    /* shortest paths by the lowest port: dimension order in meshes */
	ROUTE_FTREE,  /* as updn, but a LID's number alone says which way up it takes */
	ROUTE_ENGINES
};

const char *route_engine_name(enum route_engine r);
/* 0 or -EINVAL. */
int route_engine_parse(const char *name, enum route_engine *ret_engine, struct fabric_error *e);

/* Replaces all LFTs. Switches that are `inside` send everything to their uplink but what hangs on
 * them. 0; -ENETUNREACH (the fabric has parts without a link between them), -ENOMEM. */
int route_fabric(struct fabric *f, enum route_engine engine, struct fabric_error *e);

#endif
