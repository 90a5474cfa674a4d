/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/routing/router.h"

uint32_t router_neighbour(const struct router *r, uint32_t at, unsigned port)
{
	uint32_t x = r->f->sw[r->sw[at]].peer[port].sw;

	return x == FABRIC_NONE ? FABRIC_NONE : r->core[x];
}

uint8_t router_least_loaded(const struct router *r, uint32_t at, const uint8_t *port,
			    unsigned count, unsigned number, uint32_t *load)
{
	uint8_t best = port[0];

	(void)r;
	(void)at;
	(void)number;
	for (unsigned i = 1; i < count; i++)
		if (load[port[i]] < load[best])
			best = port[i];
	load[best]++;
	return best;
}

bool router_is_above(const struct router *r, uint32_t a, uint32_t b)
{
	return r->rank[a] != r->rank[b] ? r->rank[a] < r->rank[b] : a < b;
}
