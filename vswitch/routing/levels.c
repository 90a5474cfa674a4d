/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How high a switch stands: its level above the hosts, and its rank below the roots. */
#include "vswitch/routing/router.h"

/* Breadth first from what is in the queue, for which depth is set; the others hold ROUTER_TOP_RANK.
 */
static void spread(struct router *r, uint32_t queued, uint16_t *depth)
{
	for (uint32_t head = 0; head < queued; head++) {
		uint32_t at = r->queue[head];

		for (unsigned p = 1; p <= r->f->sw[r->sw[at]].ports; p++) {
			uint32_t x = router_neighbour(r, at, p);

			if (x == FABRIC_NONE || depth[x] != ROUTER_TOP_RANK)
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

/* True if all links join neighbouring levels, with several levels. Then it is a tree with hosts at
 * its foot, and the roots are the switches with nobody above. */
static bool is_tree(const struct router *r)
{
	bool levels = false;

	for (uint32_t i = 0; i < r->n; i++)
		for (unsigned p = 1; p <= r->f->sw[r->sw[i]].ports; p++) {
			uint32_t x = router_neighbour(r, i, p);

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
		uint32_t x = router_neighbour(r, at, p);

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
			r->rank[k] = ROUTER_TOP_RANK;
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

void router_rank(struct router *r)
{
	uint32_t queued = 0, n = 0;
	bool tree;

	for (uint32_t i = 0; i < r->n; i++) {
		r->level[i] = has_hosts(r, i) ? 0 : ROUTER_TOP_RANK;
		if (!r->level[i])
			r->queue[queued++] = i;
	}
	spread(r, queued, r->level);
	tree = is_tree(r);
	queued = 0;
	if (!tree)
		r->queue[queued++] = centre(r);
	for (uint32_t i = 0; i < r->n; i++) {
		r->rank[i] = ROUTER_TOP_RANK;
		if (tree && above_all(r, i))
			r->queue[queued++] = i;
	}
	for (uint32_t i = 0; i < queued; i++)
		r->rank[r->queue[i]] = 0;
	spread(r, queued, r->rank);
	for (unsigned rank = 0; rank < ROUTER_TOP_RANK && n < r->n; rank++)
		for (uint32_t i = 0; i < r->n; i++)
			if (r->rank[i] == rank)
				r->order[n++] = i;
}
