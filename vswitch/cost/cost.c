/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/cost/cost.h"
#include "vswitch/moves/address.h"
#include "vswitch/cost/rank.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>

#define DRAINS 8

struct meter {
	struct fabric *f;
	struct fabric_error *e;
	struct cost *c;
	struct moves_plan plan;
	uint32_t *vf; /* owned; ports that may hold VMs */
	uint32_t vfs;
	uint64_t random;
};

static uint32_t draw(struct meter *m, uint32_t below)
{
	m->random = m->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((m->random >> 33) % below);
}

static void add(struct cost_range *r, unsigned n, unsigned value)
{
	r->least = n && r->least < value ? r->least : value;
	r->most = n && r->most > value ? r->most : value;
	r->mean += (value - r->mean) / (n + 1);
}

static int meter_init(struct meter *m, unsigned pairs)
{
	bool *busy AUTO_FREE = calloc(m->f->ends + 1u, 1),
		   *may AUTO_FREE = calloc(m->f->ends + 1u, 1);

	m->vf = malloc((m->f->ends + 1u) * sizeof *m->vf);
	if (!busy || !may || !m->vf)
		return fabric_fail(m->e, -ENOMEM, "no memory");
	rank_free(m->f, busy, may);
	for (uint32_t i = 0; i < m->f->ends; i++)
		if (may[i] && m->f->end[i].lid)
			m->vf[m->vfs++] = i;
	return m->vfs > 1 || !pairs
		       ? 0
		       : fabric_fail(m->e, -EINVAL, "fewer than two ports with LIDs for VMs");
}

static unsigned outside(const struct moves_plan *p)
{
	return p->smps - p->smps_inside;
}

static int measure_pair(struct meter *m, uint32_t vm, uint32_t to)
{
	struct move move[2], copy;
	unsigned n = m->c->pairs++;
	int rc = moves_swap(m->f, vm, to, move, m->e);

	rc = rc ? rc : moves_plan(m->f, move, 2, MOVES_FEWEST, &m->plan, m->e);
	add(&m->c->fewest, n, outside(&m->plan));
	rc = rc ? rc : moves_copy(m->f, vm, to, &copy, m->e);
	copy.like = m->f->end[address_host(m->f, to)].lid; /* the PF's LID, as with dynamic LIDs */
	rc = rc ? rc : moves_plan(m->f, &copy, 1, MOVES_ALL, &m->plan, m->e);
	add(&m->c->copy, n, outside(&m->plan));
	rc = rc ? rc : moves_plan(m->f, move, 2, MOVES_ALL, &m->plan, m->e);
	add(&m->c->all, n, outside(&m->plan));
	rc = rc ? rc : moves_order(m->f, &m->plan);
	add(&m->c->waves, n, m->plan.waves);
	return rc;
}

static int measure_pairs(struct meter *m, unsigned pairs)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < pairs; i++) {
		uint32_t vm = m->vf[draw(m, m->vfs)], to;

		do {
			to = m->vf[draw(m, m->vfs)];
		} while (to == vm);
		rc = measure_pair(m, vm, to);
	}
	/* the neighbours on one leaf, which chance hardly ever draws */
	for (uint32_t i = 0; pairs && !rc && i + 1 < m->vfs && i < 36; i++)
		if (address_host(m->f, m->vf[i]) != address_host(m->f, m->vf[i + 1]))
			rc = measure_pair(m, m->vf[i], m->vf[i + 1]);
	return rc;
}

/* Measures all moves at once, then one after the other, each on the tables that the one before
 * left; `back` is what undoes the whole. */
static int measure_batch(struct meter *m, const struct move *move, unsigned each, unsigned moves,
			 double *ret_all, double *ret_single)
{
	struct moves_plan back = {0};
	int rc = moves_plan(m->f, move, moves, MOVES_ALL, &back, m->e);

	*ret_all += (double)outside(&back) / DRAINS;
	for (unsigned i = 0; !rc && i < moves; i += each) {
		rc = moves_plan(m->f, move + i, each, MOVES_ALL, &m->plan, m->e);
		*ret_single += (double)outside(&m->plan) / DRAINS;
		for (unsigned k = 0; !rc && k < m->plan.smps; k++)
			rc = moves_send(m->f, &m->plan.smp[k]);
	}
	moves_undo(&back);
	for (unsigned k = 0; k < back.smps; k++)
		moves_send(m->f, &back.smp[k]);
	moves_free(&back);
	return rc;
}

/* How many VFs are on other hosts, whichever host is drained. */
static uint32_t elsewhere(const struct meter *m)
{
	uint32_t *on AUTO_FREE = calloc(m->f->ends + 1u, sizeof *on), most = 0;

	for (uint32_t i = 0; on && i < m->vfs; i++) {
		uint32_t n = ++on[address_host(m->f, m->vf[i])];

		most = n > most ? n : most;
	}
	return on ? m->vfs - most : 0;
}

/* VMs on the VFs of one host go to VFs of others, all different. */
static int drain_swap(struct meter *m, unsigned drained)
{
	bool *used AUTO_FREE = calloc(m->f->ends + 1u, 1);
	uint32_t host = address_host(m->f, m->vf[draw(m, m->vfs)]);
	struct move move[MOVES_MAX];
	unsigned n = 0;
	int rc = used ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < m->vfs && n < 2 * drained; i++) {
		uint32_t to;

		if (address_host(m->f, m->vf[i]) != host)
			continue;
		do {
			to = m->vf[draw(m, m->vfs)];
		} while (used[to] || address_host(m->f, to) == host);
		used[to] = true;
		rc = moves_swap(m->f, m->vf[i], to, &move[n], m->e);
		n += 2;
	}
	m->c->drained = n / 2 < m->c->drained ? n / 2 : m->c->drained;
	return rc ? rc : measure_batch(m, move, 2, n, &m->c->coalesced, &m->c->one_by_one);
}

/* VMs with dynamic LIDs, which are free ones just above the others, placed on a host first. */
static int drain_copy(struct meter *m, unsigned drained)
{
	uint32_t host = address_host(m->f, m->vf[draw(m, m->vfs)]);
	const struct fabric_end *at = &m->f->end[host];
	struct moves_plan place = {0};
	struct move move[MOVES_MAX];
	uint16_t first = (uint16_t)(fabric_top_lid(m->f) + 1);
	int rc = 0;

	if (first + drained > IB_LID_UCAST_MAX)
		return 0;
	for (unsigned i = 0; !rc && i < drained; i++)
		rc = moves_to_port(m->f, (uint16_t)(first + i), at->sw, at->sw_port, &move[i],
				   m->e);
	rc = rc ? rc : moves_plan(m->f, move, drained, MOVES_ALL, &place, m->e);
	for (unsigned k = 0; !rc && k < place.smps; k++)
		rc = moves_send(m->f, &place.smp[k]);
	for (unsigned i = 0; !rc && i < drained; i++) {
		uint32_t to;

		do {
			to = address_host(m->f, m->vf[draw(m, m->vfs)]);
		} while (to == host);
		rc = moves_to_port(m->f, (uint16_t)(first + i), m->f->end[to].sw,
				   m->f->end[to].sw_port, &move[i], m->e);
	}
	rc = rc ? rc
		: measure_batch(m, move, 1, drained, &m->c->copy_coalesced, &m->c->copy_one_by_one);
	moves_undo(&place);
	for (unsigned k = 0; k < place.smps; k++)
		moves_send(m->f, &place.smp[k]);
	moves_free(&place);
	return rc;
}

static void count_fabric(const struct fabric *f, struct cost *c)
{
	for (uint32_t i = 0; i < f->switches; i++)
		c->switches += !f->sw[i].inside;
	for (uint32_t i = 0; i < f->ends; i++)
		c->hosts += f->end[i].sw != FABRIC_NONE && address_host(f, i) == i;
	for (unsigned lid = 1; lid <= IB_LID_UCAST_MAX; lid++) {
		struct fabric_owner o = fabric_find_lid(f, lid);

		c->lids += o.sw != FABRIC_NONE || o.end != FABRIC_NONE;
	}
	c->blocks = fabric_top_lid(f) / IB_LFT_BLOCK + 1;
	c->full = (unsigned long)c->switches * c->blocks;
	c->bound = 2 * c->switches;
}

int cost_measure(struct fabric *f, unsigned pairs, unsigned drained, uint64_t seed,
		 struct cost *ret_cost, struct fabric_error *e)
{
	struct cost c = {.drained = drained};
	struct meter m = {.f = f, .e = e, .c = &c, .random = seed};
	int rc = drained > MOVES_MAX / 2
			 ? fabric_fail(e, -EINVAL, "at most %d VMs are drained", MOVES_MAX / 2)
			 : meter_init(&m, pairs);

	count_fabric(f, &c);
	if (m.vfs < 4 * drained || elsewhere(&m) < drained) /* too few places for so many */
		c.drained = drained = 0;
	rc = rc ? rc : measure_pairs(&m, pairs);
	for (unsigned i = 0; !rc && drained && i < DRAINS; i++) {
		rc = drain_swap(&m, drained);
		rc = rc ? rc : drain_copy(&m, drained);
	}
	moves_free(&m.plan);
	free(m.vf);
	if (!rc)
		*ret_cost = c;
	return rc;
}
