/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shortest paths, each LID by the port that carries the fewest. */
#include "vswitch/routing/engine.h"
#include "vswitch/routing/router.h"

static const struct router_rules rules = {
	.choose = router_least_loaded,
};

static int run(struct fabric *f, struct fabric_error *e)
{
	return router_run(f, &rules, e);
}

const struct route_engine route_minhop = {"minhop", run};
