/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/routing/router.h"

#include <errno.h>
#include <stdlib.h>

static void router_free(struct router *r)
{
	free(r->sw);
	free(r->core);
	free(r->rank);
	free(r->level);
	free(r->hop);
	free(r->queue);
	free(r->order);
}

static int router_init(struct router *r, struct fabric *f)
{
	r->f = f;
	r->sw = malloc((f->switches + 1) * sizeof *r->sw);
	r->core = malloc((f->switches + 1) * sizeof *r->core);
	if (!r->sw || !r->core)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->switches; i++) {
		r->core[i] = f->sw[i].inside ? FABRIC_NONE : r->n;
		if (!f->sw[i].inside)
			r->sw[r->n++] = i;
	}
	r->rank = malloc((r->n + 1) * sizeof *r->rank);
	r->level = malloc((r->n + 1) * sizeof *r->level);
	r->hop = malloc(((size_t)r->n * r->n + 1) * sizeof *r->hop);
	r->queue = malloc((r->n + 1) * sizeof *r->queue);
	r->order = malloc((r->n + 1) * sizeof *r->order);
	return r->rank && r->level && r->hop && r->queue && r->order ? 0 : -ENOMEM;
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

int router_run(struct fabric *f, const struct router_rules *rules, struct fabric_error *e)
{
	struct router r = {.rules = rules};
	int rc;

	fabric_fail(e, 0, "no memory");
	rc = router_init(&r, f);
	if (!rc && r.n)
		router_rank(&r);
	for (uint32_t to = 0; !rc && to < r.n; to++)
		rc = router_hops_to(&r, to, e);
	rc = rc ? rc : router_write(&r);
	router_free(&r);
	return rc;
}
