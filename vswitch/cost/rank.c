/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/cost/rank.h"
#include "vswitch/moves/address.h"
#include "common/util.h"

#include <errno.h>

struct channels {
	const struct fabric *f;
	uint32_t *first;  /* owned; per switch the number of its channel 0 */
	uint32_t *load;   /* owned; per channel */
	uint32_t *source; /* owned; switches with CA ports */
	uint32_t sources;
};

static void channels_free(struct channels *l)
{
	free(l->first);
	free(l->load);
	free(l->source);
}

static int channels_init(struct channels *l, const struct fabric *f)
{
	uint32_t channels = 0;

	l->f = f;
	l->first = malloc((f->switches + 1u) * sizeof *l->first);
	l->source = malloc((f->switches + 1u) * sizeof *l->source);
	if (!l->first || !l->source)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->switches; i++) {
		bool ends = false;

		for (unsigned p = 1; p <= f->sw[i].ports; p++)
			ends |= f->sw[i].peer[p].end != FABRIC_NONE;
		if (ends)
			l->source[l->sources++] = i;
		l->first[i] = channels;
		channels += f->sw[i].ports + 1u;
	}
	l->load = calloc(channels + 1u, sizeof *l->load);
	return l->load ? 0 : -ENOMEM;
}

/* Adds `add` to each link on the way from each switch with CA ports to the LID; returns the most
 * that is on one of these links then. */
static uint32_t visit(struct channels *l, uint16_t lid, uint32_t add)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < l->sources; i++) {
		uint32_t at = l->source[i];

		for (uint32_t hops = 0; hops < l->f->switches; hops++) {
			int port = fabric_lft_entry(l->f, at, lid);
			uint32_t next, *load;

			if (port < 1 || port > l->f->sw[at].ports)
				break;
			next = l->f->sw[at].peer[port].sw;
			if (next == FABRIC_NONE)
				break;
			load = &l->load[l->first[at] + (unsigned)port];
			*load += add;
			if (!l->f->sw[at].inside && !l->f->sw[next].inside && *load > most)
				most = *load;
			at = next;
		}
	}
	return most;
}

/* The switch of the fabric that a port hangs on, with or without a vSwitch between. */
static uint32_t leaf_of(const struct fabric *f, uint32_t end)
{
	uint32_t sw = f->end[end].sw;

	for (unsigned p = 1; f->sw[sw].inside && p <= f->sw[sw].ports; p++)
		if (f->sw[sw].peer[p].sw != FABRIC_NONE)
			return f->sw[sw].peer[p].sw;
	return sw;
}

void rank_free(const struct fabric *f, const bool *busy, bool *ret_free)
{
	for (uint32_t i = 0; i < f->ends; i++)
		ret_free[i] = !busy[i] && f->end[i].sw != FABRIC_NONE;
	for (uint32_t i = 0; i < f->ends; i++) {
		uint32_t host = f->end[i].sw == FABRIC_NONE ? i : address_host(f, i);

		if (host != i)
			ret_free[host] = false;
	}
}

static int compare(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;

	if (x->switches != y->switches)
		return x->switches < y->switches ? -1 : 1;
	if (x->smps != y->smps)
		return x->smps < y->smps ? -1 : 1;
	if (x->load != y->load)
		return x->load < y->load ? -1 : 1;
	return x->end < y->end ? -1 : 1;
}

struct ranking {
	const struct fabric *f;
	uint32_t vm;
	bool copy;
	enum moves_rule rule;
	struct channels loads;
	struct moves_plan plan;
	struct fabric_error *e;
};

static int rank_one(struct ranking *g, uint32_t end, struct rank *ret_rank)
{
	const struct fabric *f = g->f;
	struct move m[2];
	unsigned moves = g->copy ? 1 : 2;
	uint32_t load;
	uint16_t like;
	int rc = g->copy ? moves_copy(f, g->vm, end, m, g->e) : moves_swap(f, g->vm, end, m, g->e);

	rc = rc ? rc : moves_plan(f, m, moves, g->rule, &g->plan, g->e);
	if (rc)
		return rc;
	like = m[0].like;
	load = visit(&g->loads, like, 1);
	visit(&g->loads, like, (uint32_t)-1);
	*ret_rank = (struct rank){
		.end = end,
		.switches = g->plan.switches - g->plan.switches_inside,
		.smps = g->plan.smps - g->plan.smps_inside,
		.smps_inside = g->plan.smps_inside,
		.load = load,
		.same_leaf = leaf_of(f, end) == leaf_of(f, g->vm),
	};
	return 0;
}

/* The candidates of one host follow each other, or not: best[] keeps the best of each. */
static int rank_all(struct ranking *g, const bool *free_vf, struct rank *best, uint32_t *slot,
		    unsigned *ret_count)
{
	uint32_t own = address_host(g->f, g->vm);

	*ret_count = 0;
	for (uint32_t i = 0; i < g->f->ends; i++) {
		uint32_t host;
		struct rank r;
		int rc;

		if (!free_vf[i] || i == g->vm || (host = address_host(g->f, i)) == own)
			continue;
		if ((rc = rank_one(g, i, &r)))
			return rc;
		if (slot[host] == FABRIC_NONE) {
			slot[host] = (*ret_count)++;
			best[slot[host]] = r;
		} else if (compare(&r, &best[slot[host]]) < 0)
			best[slot[host]] = r;
	}
	return 0;
}

int rank_hosts(const struct fabric *f, uint32_t vm, const bool *busy, const bool *free_vf,
	       bool copy, enum moves_rule rule, struct rank **ret_rank, unsigned *ret_count,
	       struct fabric_error *e)
{
	struct ranking g = {.f = f, .vm = vm, .copy = copy, .rule = rule, .e = e};
	struct rank *best AUTO_FREE = malloc((f->ends + 1u) * sizeof *best);
	uint32_t *slot AUTO_FREE = malloc((f->ends + 1u) * sizeof *slot);
	int rc = best && slot ? channels_init(&g.loads, f) : -ENOMEM;

	if (rc)
		fabric_fail(e, rc, "no memory");
	for (uint32_t i = 0; !rc && i < f->ends; i++) {
		slot[i] = FABRIC_NONE;
		if (busy[i] && i != vm && f->end[i].lid)
			visit(&g.loads, f->end[i].lid, 1);
	}
	rc = rc ? rc : rank_all(&g, free_vf, best, slot, ret_count);
	if (!rc) {
		qsort(best, *ret_count, sizeof *best, compare);
		*ret_rank = TAKE(best);
	}
	moves_free(&g.plan);
	channels_free(&g.loads);
	return rc;
}
