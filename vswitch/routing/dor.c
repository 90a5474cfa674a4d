/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shortest paths by the lowest port: dimension order in meshes. */
#include "vswitch/routing/engine.h"
#include "vswitch/routing/router.h"

static uint8_t lowest(const struct router *r, uint32_t at, const uint8_t *port, unsigned count,
		      unsigned number, uint32_t *load)
{
	(void)r;
	(void)at;
	(void)count;
	(void)number;
	(void)load;
	return port[0];
}

static const struct router_rules rules = {
	.choose = lowest,
};

static int run(struct fabric *f, struct fabric_error *e)
{
	return router_run(f, &rules, e);
}

const struct route_engine route_dor = {"dor", run};
