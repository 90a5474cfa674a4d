/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LFTs from the ports that lead somewhere: one row for each switch. */
#include "vswitch/routing/router.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* Finds where a LID leaves the fabric: the last switch that is not inside an HCA, and its port
 * there (0: the switch itself). */
static bool exit_of(const struct router *r, unsigned lid, uint32_t *ret_to, uint8_t *ret_port,
		    bool *ret_is_switch)
{
	struct fabric_owner o = fabric_find_lid(r->f, lid);
	uint32_t sw = o.end == FABRIC_NONE ? o.sw : r->f->end[o.end].sw;
	uint8_t port = o.end == FABRIC_NONE ? 0 : r->f->end[o.end].sw_port;

	*ret_is_switch = o.end == FABRIC_NONE;
	if (sw == FABRIC_NONE)
		return false;
	if (r->f->sw[sw].inside) {
		const struct fabric_switch *s = &r->f->sw[sw];

		for (unsigned p = 1; p <= s->ports; p++)
			if (s->peer[p].sw != FABRIC_NONE) {
				port = s->peer[p].port;
				sw = s->peer[p].sw;
				break;
			}
	}
	*ret_to = r->core[sw];
	*ret_port = port;
	return true;
}

struct exits {
	uint32_t *to;     /* owned; FABRIC_NONE: nobody has this LID */
	uint8_t *port;    /* owned */
	unsigned *number; /* owned; among the LIDs of CA ports */
	unsigned top;
};

static void exits_free(struct exits *x)
{
	free(x->to);
	free(x->port);
	free(x->number);
}

static int exits_init(struct exits *x, const struct router *r)
{
	unsigned number = 0;

	x->top = fabric_top_lid(r->f);
	x->to = malloc((x->top + 1u) * sizeof *x->to);
	x->port = malloc(x->top + 1u);
	x->number = calloc(x->top + 1u, sizeof *x->number);
	if (!x->to || !x->port || !x->number)
		return -ENOMEM;
	for (unsigned lid = 0; lid <= x->top; lid++) {
		bool is_switch = true;

		if (!lid || !exit_of(r, lid, &x->to[lid], &x->port[lid], &is_switch))
			x->to[lid] = FABRIC_NONE;
		else
			x->number[lid] = is_switch ? number : number++;
	}
	return 0;
}

static void route_core(const struct router *r, const struct exits *x, uint32_t at, uint8_t *row)
{
	uint32_t load[FABRIC_PORTS_MAX + 1] = {0}, to = FABRIC_NONE;
	uint8_t port[FABRIC_PORTS_MAX];
	unsigned count = 0;

	for (unsigned lid = 1; lid <= x->top; lid++) {
		if (x->to[lid] == FABRIC_NONE)
			continue;
		if (x->to[lid] != to) {
			to = x->to[lid];
			count = router_candidates(r, at, to, port);
		}
		row[lid] = to == at ? x->port[lid]
				    : r->rules->choose(r, at, port, count, x->number[lid], load);
	}
}

/* Everything to the uplink, but what hangs here. */
static void route_inside(const struct router *r, const struct exits *x, uint32_t sw, uint8_t *row)
{
	const struct fabric_switch *s = &r->f->sw[sw];
	uint8_t up = VSWITCH_NO_PATH;

	for (unsigned p = 1; p <= s->ports; p++)
		if (s->peer[p].sw != FABRIC_NONE)
			up = (uint8_t)p;
	for (unsigned lid = 1; lid <= x->top; lid++)
		if (x->to[lid] != FABRIC_NONE)
			row[lid] = up;
	for (unsigned i = 0; s->lid && i < 1u << s->lmc; i++)
		row[s->lid + i] = 0;
	for (unsigned p = 1; p <= s->ports; p++) {
		const struct fabric_end *e = s->peer[p].end == FABRIC_NONE
						     ? NULL
						     : &r->f->end[s->peer[p].end];

		for (unsigned i = 0; e && e->lid && i < 1u << e->lmc; i++)
			row[e->lid + i] = (uint8_t)p;
	}
}

static int write_rows(struct router *r, const struct exits *x)
{
	unsigned blocks = x->top / IB_LFT_BLOCK + 1;
	uint8_t *row AUTO_FREE = malloc((size_t)blocks * IB_LFT_BLOCK);
	int rc = row ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < r->f->switches; i++) {
		memset(row, VSWITCH_NO_PATH, (size_t)blocks * IB_LFT_BLOCK);
		if (r->core[i] == FABRIC_NONE)
			route_inside(r, x, i, row);
		else
			route_core(r, x, r->core[i], row);
		for (unsigned b = 0; !rc && b < blocks; b++)
			rc = fabric_set_lft(r->f, i, b, row + (size_t)b * IB_LFT_BLOCK);
	}
	return rc;
}

int router_write(struct router *r)
{
	struct exits x = {0};
	int rc = exits_init(&x, r);

	if (!rc) {
		fabric_forget_lfts(r->f);
		rc = write_rows(r, &x);
	}
	exits_free(&x);
	return rc;
}
