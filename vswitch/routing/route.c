/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/routing/route.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* How a switch reaches a destination switch: a class and the number of hops. A packet may only
 * go to a switch of the same or a lower class; within a class the hops go down. */
enum { CLASS_DOWN, CLASS_UP, CLASS_STRAY, CLASS_NONE };
#define HOP(class, hops) ((uint16_t)((class) << 12 | (hops)))
#define HOP_CLASS(h)     ((h) >> 12)
#define HOP_NONE         HOP(CLASS_NONE, 0)
#define TOP_RANK         0xffff

struct router {
	struct fabric *f;
	enum route_engine engine;
	uint32_t n;      /* switches that are not inside an HCA */
	uint32_t *sw;    /* owned; their numbers in the fabric */
	uint32_t *core;  /* owned; the way back, FABRIC_NONE for others */
	uint16_t *rank;  /* owned; hops from the nearest root */
	uint16_t *level; /* owned; hops from the nearest switch with hosts */
	uint16_t *hop;   /* owned; n * n: [from * n + to] */
	uint32_t *queue; /* owned; n */
	uint32_t *order; /* owned; by rank, roots first */
};

static const char *const engine_name[ROUTE_ENGINES] = {
	[ROUTE_MINHOP] = "minhop",
	[ROUTE_UPDN] = "updn",
	[ROUTE_DOR] = "dor",
	[ROUTE_FTREE] = "ftree",
};

const char *route_engine_name(enum route_engine r)
{
	return engine_name[r];
}

int route_engine_parse(const char *name, enum route_engine *ret_engine, struct fabric_error *e)
{
	for (unsigned i = 0; i < ROUTE_ENGINES; i++)
		if (str_eq(name, engine_name[i])) {
			*ret_engine = (enum route_engine)i;
			return 0;
		}
	return fabric_fail(e, -EINVAL, "routing \"%s\": must be minhop, updn, dor or ftree", name);
}

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

/* The switch behind a port, FABRIC_NONE for anything else. */
static uint32_t neighbour(const struct router *r, uint32_t at, unsigned port)
{
	uint32_t x = r->f->sw[r->sw[at]].peer[port].sw;

	return x == FABRIC_NONE ? FABRIC_NONE : r->core[x];
}

/* Breadth first from what is in the queue, for which depth is set; the others hold TOP_RANK. */
static void spread(struct router *r, uint32_t queued, uint16_t *depth)
{
	for (uint32_t head = 0; head < queued; head++) {
		uint32_t at = r->queue[head];

		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = neighbour(r, at, p);

			if (x == FABRIC_NONE || depth[x] != TOP_RANK)
				continue;
			depth[x] = depth[at] + 1;
			r->queue[queued++] = x;
		}
	}
}

static bool has_hosts(const struct router *r, uint32_t at)
{
	const struct fabric_switch *s = &r->f->sw[r->sw[at]];

	for (unsigned p = 1; p <= s->ports; p++)
		if (s->peer[p].end != FABRIC_NONE ||
		    (s->peer[p].sw != FABRIC_NONE && r->f->sw[s->peer[p].sw].inside))
			return true;
	return false;
}

/* Whether all links join neighbouring levels, with several levels: then it is a tree with hosts at
 * its foot, and the roots are the switches with nobody above. */
static bool is_tree(const struct router *r)
{
	bool levels = false;

	for (uint32_t i = 0; i < r->n; i++)
		for (unsigned p = 1; p <= r->f->sw[r->sw[i]].ports; p++) {
			uint32_t x = neighbour(r, i, p);

			if (x == FABRIC_NONE)
				continue;
			if (r->level[i] + 1 != r->level[x] && r->level[x] + 1 != r->level[i])
				return false;
			levels = true;
		}
	return levels;
}

static bool above_all(const struct router *r, uint32_t at)
{
	for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
		uint32_t x = neighbour(r, at, p);

		if (x != FABRIC_NONE && r->level[x] > r->level[at])
			return false;
	}
	return true;
}

/* The switch from which the farthest is nearest, for nets that are not trees. */
static uint32_t centre(struct router *r)
{
	uint32_t best = 0, best_far = UINT32_MAX;

	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t far = 0;

		for (uint32_t k = 0; k < r->n; k++)
			r->rank[k] = TOP_RANK;
		r->rank[i] = 0;
		r->queue[0] = i;
		spread(r, 1, r->rank);
		for (uint32_t k = 0; k < r->n; k++)
			far = r->rank[k] > far ? r->rank[k] : far;
		if (far < best_far) {
			best_far = far;
			best = i;
		}
	}
	return best;
}

static void rank_switches(struct router *r)
{
	uint32_t queued = 0, n = 0;
	bool tree;

	for (uint32_t i = 0; i < r->n; i++) {
		r->level[i] = has_hosts(r, i) ? 0 : TOP_RANK;
		if (!r->level[i])
			r->queue[queued++] = i;
	}
	spread(r, queued, r->level);
	tree = is_tree(r);
	queued = 0;
	if (!tree)
		r->queue[queued++] = centre(r);
	for (uint32_t i = 0; i < r->n; i++) {
		r->rank[i] = TOP_RANK;
		if (tree && above_all(r, i))
			r->queue[queued++] = i;
	}
	for (uint32_t i = 0; i < queued; i++)
		r->rank[r->queue[i]] = 0;
	spread(r, queued, r->rank);
	for (unsigned rank = 0; rank < TOP_RANK && n < r->n; rank++)
		for (uint32_t i = 0; i < r->n; i++)
			if (r->rank[i] == rank)
				r->order[n++] = i;
}

/* A total order of the switches, so that "up" never leads back. */
static bool is_above(const struct router *r, uint32_t a, uint32_t b)
{
	return r->rank[a] != r->rank[b] ? r->rank[a] < r->rank[b] : a < b;
}

/* Hops of one class to switch `to`: breadth first from those that are in the queue, over links
 * that may be used (any for minhop, only climbing away from `to` for what is above it). */
static void hops_by(struct router *r, uint32_t to, uint32_t queued, unsigned class, bool climb)
{
	for (uint32_t head = 0; head < queued; head++) {
		uint32_t at = r->queue[head];
		uint16_t h = r->hop[(size_t)at * r->n + to];
		unsigned hops = HOP_CLASS(h) == class ? (h & 0xfffu) : 0;

		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = neighbour(r, at, p);
			uint16_t *hx = x == FABRIC_NONE ? NULL : &r->hop[(size_t)x * r->n + to];

			if (!hx || *hx != HOP_NONE || (climb && !is_above(r, x, at)))
				continue;
			*hx = HOP(class, hops + 1);
			r->queue[queued++] = x;
		}
	}
}

/* Those that cannot go down to `to` go up, to a neighbour that needs the fewest hops. */
static void hops_up(struct router *r, uint32_t to)
{
	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t at = r->order[i];
		uint16_t *h = &r->hop[(size_t)at * r->n + to];
		unsigned least = 0xfff;

		if (*h != HOP_NONE)
			continue;
		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = neighbour(r, at, p);
			uint16_t hx;

			if (x == FABRIC_NONE || !is_above(r, x, at))
				continue;
			hx = r->hop[(size_t)x * r->n + to];
			if (hx != HOP_NONE && (hx & 0xfffu) < least)
				least = hx & 0xfff;
		}
		if (least < 0xfff)
			*h = HOP(CLASS_UP, least + 1);
	}
}

static bool ranked(const struct router *r)
{
	return r->engine == ROUTE_UPDN || r->engine == ROUTE_FTREE;
}

static int hops_to(struct router *r, uint32_t to, struct fabric_error *e)
{
	uint32_t queued = 0;

	for (uint32_t i = 0; i < r->n; i++)
		r->hop[(size_t)i * r->n + to] = HOP_NONE;
	r->hop[(size_t)to * r->n + to] = HOP(CLASS_DOWN, 0);
	r->queue[0] = to;
	hops_by(r, to, 1, CLASS_DOWN, ranked(r));
	if (ranked(r)) {
		hops_up(r, to);
		/* from one root to a switch below another there is no way up and down: only
		 * management packets to switches go there, so they may go as they like */
		for (uint32_t i = 0; i < r->n; i++)
			if (r->hop[(size_t)i * r->n + to] != HOP_NONE)
				r->queue[queued++] = i;
		hops_by(r, to, queued, CLASS_STRAY, false);
	}
	for (uint32_t i = 0; i < r->n; i++)
		if (r->hop[(size_t)i * r->n + to] == HOP_NONE)
			return fabric_fail(e, -ENETUNREACH, "no links lead from switch %s to %s",
					   r->f->sw[r->sw[i]].desc, r->f->sw[r->sw[to]].desc);
	return 0;
}

/* Whether a packet to `to` may go from `at` to its neighbour x. */
static bool leads(const struct router *r, uint32_t at, uint32_t x, uint32_t to)
{
	uint16_t h = r->hop[(size_t)at * r->n + to], hx = r->hop[(size_t)x * r->n + to];
	bool nearer = (hx & 0xfff) + 1 == (h & 0xfff);

	if (HOP_CLASS(h) == CLASS_STRAY)
		return HOP_CLASS(hx) == CLASS_STRAY ? nearer : (h & 0xfff) == 1;
	if (!nearer || HOP_CLASS(hx) > HOP_CLASS(h))
		return false;
	return !ranked(r) || is_above(r, x, at) == (HOP_CLASS(h) == CLASS_UP);
}

/* The ports of `at` by which `to` may be reached, ascending. */
static unsigned candidates(const struct router *r, uint32_t at, uint32_t to, uint8_t *ret_port)
{
	unsigned count = 0;

	for (unsigned p = 1; at != to && p <= r->f->sw[r->sw[at]].ports; p++) {
		uint32_t x = neighbour(r, at, p);

		if (x != FABRIC_NONE && leads(r, at, x, to))
			ret_port[count++] = (uint8_t)p;
	}
	return count;
}

/* One of the candidates for the LID that is the `number`th of its kind. */
static uint8_t choose(const struct router *r, uint32_t at, const uint8_t *port, unsigned count,
		      unsigned number, uint32_t *load)
{
	uint8_t best = port[0];

	if (r->engine == ROUTE_DOR)
		return best;
	if (r->engine == ROUTE_FTREE) {
		for (unsigned l = 0; l < r->level[at]; l++)
			number /= count;
		return port[number % count];
	}
	for (unsigned i = 1; i < count; i++)
		if (load[port[i]] < load[best])
			best = port[i];
	load[best]++;
	return best;
}

/* Where a LID leaves the fabric: the last switch that is not inside an HCA, and its port there (0:
 * the switch itself). */
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
			count = candidates(r, at, to, port);
		}
		row[lid] = to == at ? x->port[lid]
				    : choose(r, at, port, count, x->number[lid], load);
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

int route_fabric(struct fabric *f, enum route_engine engine, struct fabric_error *e)
{
	struct router r = {.engine = engine};
	struct exits x = {0};
	int rc;

	fabric_fail(e, 0, "no memory");
	rc = router_init(&r, f);
	if (!rc && r.n)
		rank_switches(&r);
	for (uint32_t to = 0; !rc && to < r.n; to++)
		rc = hops_to(&r, to, e);
	rc = rc ? rc : exits_init(&x, &r);
	if (!rc) {
		fabric_forget_lfts(f);
		rc = write_rows(&r, &x);
	}
	exits_free(&x);
	router_free(&r);
	return rc;
}
