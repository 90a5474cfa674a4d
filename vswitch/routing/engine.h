/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFTs for a fabric, as a subnet manager would compute them; the vSwitch method itself never does.
 * One engine a file, and engine.c lists them. */
#ifndef IBVMIG_VSWITCH_ROUTING_ENGINE_H
#define IBVMIG_VSWITCH_ROUTING_ENGINE_H

#include "vswitch/model/fabric.h"

struct route_engine {
	const char *name;
	/* Replaces all LFTs. Switches that are `inside` send everything to their uplink but what
	 * hangs on them. 0; -ENETUNREACH (the fabric has parts without a link between them),
	 * -ENOMEM. */
	int (*run)(struct fabric *f, struct fabric_error *e);
};

extern const struct route_engine route_minhop, route_updn, route_dor, route_ftree;

#define ROUTE_ENGINES 4
extern const struct route_engine *const route_engines[ROUTE_ENGINES];

/* 0 or -EINVAL. */
int route_engine_find(const char *name, const struct route_engine **ret_engine,
		      struct fabric_error *e);

#endif
