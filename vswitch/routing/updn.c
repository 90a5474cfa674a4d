/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Up to a root's side, then down, never up again: no cycle of packets that wait for each other. */
#include "vswitch/routing/engine.h"
#include "vswitch/routing/router.h"

static const struct router_rules rules = {
	.ranked = true,
	.choose = router_least_loaded,
};

static int run(struct fabric *f, struct fabric_error *e)
{
	return router_run(f, &rules, e);
}

const struct route_engine route_updn = {"updn", run};
