/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The order of a plan's SMPs: a switch is told after the next one on the new way that is told too.
 */
#include "vswitch/moves/moves.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

struct waves {
	const struct fabric *f;
	struct moves_plan *p;
	uint32_t *first; /* owned; per switch its first SMP, FABRIC_NONE: none */
	uint32_t *waits; /* owned; per SMP and move: the SMP that goes before, or FABRIC_NONE */
	uint32_t *left;  /* owned; per SMP how many it still waits for */
};

static void waves_free(struct waves *w)
{
	free(w->first);
	free(w->waits);
	free(w->left);
}

static int by_switch(const void *a, const void *b)
{
	const struct moves_smp *x = a, *y = b;

	return x->sw != y->sw ? (x->sw < y->sw ? -1 : 1) : x->block - y->block;
}

static int by_wave(const void *a, const void *b)
{
	const struct moves_smp *x = a, *y = b;

	return x->wave != y->wave ? x->wave - y->wave : by_switch(a, b);
}

/* A plan without SMPs has no array. */
static void sort(struct moves_plan *p, int (*order)(const void *a, const void *b))
{
	if (p->smps)
		qsort(p->smp, p->smps, sizeof *p->smp, order);
}

static int waves_init(struct waves *w)
{
	size_t smps = w->p->smps + 1u;

	w->first = malloc((w->f->switches + 1u) * sizeof *w->first);
	w->waits = malloc(smps * (w->p->moves + 1u) * sizeof *w->waits);
	w->left = calloc(smps, sizeof *w->left);
	if (!w->first || !w->waits || !w->left)
		return -ENOMEM;
	memset(w->first, 0xff, (w->f->switches + 1u) * sizeof *w->first);
	sort(w->p, by_switch);
	for (unsigned i = w->p->smps; i--;)
		w->first[w->p->smp[i].sw] = i;
	return 0;
}

static uint32_t smp_at(const struct waves *w, uint32_t sw, unsigned block)
{
	for (uint32_t i = w->first[sw]; i < w->p->smps && w->p->smp[i].sw == sw; i++)
		if (w->p->smp[i].block == block)
			return i;
	return FABRIC_NONE;
}

static bool changes(const struct moves_smp *s, uint16_t lid)
{
	return s->before[lid % IB_LFT_BLOCK] != s->after[lid % IB_LFT_BLOCK];
}

/* The next switch on the new way of a LID that is told of it: its SMP, or FABRIC_NONE. */
static uint32_t next_told(const struct waves *w, uint32_t smp, uint16_t lid)
{
	uint32_t at = w->p->smp[smp].sw;
	int port = w->p->smp[smp].after[lid % IB_LFT_BLOCK];

	for (uint32_t hops = 0; hops < w->f->switches; hops++) {
		uint32_t i;

		if (port < 1 || port > w->f->sw[at].ports)
			return FABRIC_NONE;
		at = w->f->sw[at].peer[port].sw;
		if (at == FABRIC_NONE)
			return FABRIC_NONE;
		i = smp_at(w, at, lid / IB_LFT_BLOCK);
		if (i != FABRIC_NONE && changes(&w->p->smp[i], lid))
			return i;
		port = fabric_lft_entry(w->f, at, lid);
	}
	return FABRIC_NONE;
}

static uint32_t *waits_of(const struct waves *w, uint32_t smp)
{
	return w->waits + (size_t)smp * w->p->moves;
}

static void find_waits(struct waves *w)
{
	for (uint32_t i = 0; i < w->p->smps; i++)
		for (unsigned m = 0; m < w->p->moves; m++) {
			const struct move *move = &w->p->move[m];
			uint32_t *before = &waits_of(w, i)[m];

			*before = FABRIC_NONE;
			if (!move->unused && move->lid / IB_LFT_BLOCK == w->p->smp[i].block &&
			    changes(&w->p->smp[i], move->lid))
				*before = next_told(w, i, move->lid);
			w->left[i] += *before != FABRIC_NONE;
		}
}

/* Wave by wave, those that wait for nobody any more. */
static void number_waves(struct waves *w)
{
	struct moves_plan *p = w->p;
	uint32_t done = 0;
	unsigned wave = 0;

	for (; done < p->smps; wave++) {
		uint32_t begin = done;

		for (uint32_t i = 0; i < p->smps; i++)
			if (w->left[i] == 0) {
				w->left[i] = UINT32_MAX; /* in a wave */
				p->smp[i].wave = (uint16_t)wave;
				done++;
			}
		if (begin == done) { /* the rest wait for each other */
			for (uint32_t i = 0; i < p->smps; i++)
				if (w->left[i] != UINT32_MAX)
					p->smp[i].wave = (uint16_t)wave;
			p->unordered = p->smps - done;
			wave++;
			break;
		}
		for (uint32_t i = 0; i < p->smps; i++)
			for (unsigned m = 0; w->left[i] != UINT32_MAX && m < p->moves; m++) {
				uint32_t *before = &waits_of(w, i)[m];

				if (*before != FABRIC_NONE && w->left[*before] == UINT32_MAX) {
					*before = FABRIC_NONE;
					w->left[i]--;
				}
			}
	}
	p->waves = wave;
}

int moves_order(const struct fabric *f, struct moves_plan *plan)
{
	struct waves w = {.f = f, .p = plan};
	int rc = waves_init(&w);

	plan->unordered = 0;
	if (!rc) {
		find_waits(&w);
		number_waves(&w);
		sort(plan, by_wave);
	}
	waves_free(&w);
	return rc;
}
