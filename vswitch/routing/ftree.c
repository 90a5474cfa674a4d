/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Up and down as updn, but a LID's number alone says which way up it takes. */
#include "vswitch/routing/engine.h"
#include "vswitch/routing/router.h"

static uint8_t by_number(const struct router *r, uint32_t at, const uint8_t *port, unsigned count,
			 unsigned number, uint32_t *load)
{
	(void)load;
	for (unsigned l = 0; l < r->level[at]; l++)
		number /= count;
	return port[number % count];
}

static const struct router_rules rules = {
	.ranked = true,
	.choose = by_number,
};

static int run(struct fabric *f, struct fabric_error *e)
{
	return router_run(f, &rules, e);
}

const struct route_engine route_ftree = {"ftree", run};
