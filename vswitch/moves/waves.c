/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The order of a plan's SMPs: a switch is told after the next one on the new way that is told too.
 * Then a packet follows the old way up to the first switch that has been told, and the new one from
 * there. */
#include "vswitch/moves/moves.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* The entry of one LID that an SMP changes. Links are numbers of steps, FABRIC_NONE: none. */
struct step {
	uint32_t smp;
	uint16_t lid;
	bool done;
	uint32_t before; /* goes first */
	uint32_t waiter; /* the first of those that wait for this one */
	uint32_t next;   /* waits for the same */
};

struct waves {
	const struct moves_tables *t;
	struct moves_plan *p;
	uint32_t *first;   /* owned; per switch its first SMP, FABRIC_NONE: none */
	struct step *step; /* owned; by SMP */
	uint32_t *of;      /* owned; per SMP, and one more: its first step */
	uint32_t *left;    /* owned; per SMP how many of its steps wait; FABRIC_NONE: it is sent */
	uint32_t *ready;   /* owned; SMPs of the wave */
	uint32_t *soon;    /* owned; SMPs of the next one */
	unsigned smps;     /* without those that were split off */
	unsigned sent, soons;
};

static void waves_free(struct waves *w)
{
	free(w->first);
	free(w->step);
	free(w->of);
	free(w->left);
	free(w->ready);
	free(w->soon);
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

static bool changes(const struct moves_smp *s, uint16_t lid)
{
	return lid / IB_LFT_BLOCK == s->block &&
	       s->before[lid % IB_LFT_BLOCK] != s->after[lid % IB_LFT_BLOCK];
}

/* How many entries of LIDs in use an SMP changes; they become steps where there is room for them.
 */
static uint32_t list_steps(const struct moves_plan *p, uint32_t smp, struct step *step)
{
	uint32_t n = 0;

	for (unsigned m = 0; m < p->moves; m++) {
		if (p->move[m].unused || !changes(&p->smp[smp], p->move[m].lid))
			continue;
		if (step)
			step[n] = (struct step){smp,         p->move[m].lid, false,
						FABRIC_NONE, FABRIC_NONE,    FABRIC_NONE};
		n++;
	}
	return n;
}

static int make_steps(struct waves *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->smps; i++) {
		w->of[i] = n;
		n += list_steps(w->p, i, NULL);
	}
	w->of[w->smps] = n;
	if (!(w->step = malloc((n + 1) * sizeof *w->step)))
		return -ENOMEM;
	for (uint32_t i = 0; i < w->smps; i++)
		list_steps(w->p, i, w->step + w->of[i]);
	return 0;
}

static int waves_init(struct waves *w)
{
	size_t room = w->smps + 1u;

	w->first = malloc((w->t->switches + 1u) * sizeof *w->first);
	w->of = malloc(room * sizeof *w->of);
	w->left = calloc(room, sizeof *w->left);
	w->ready = malloc(room * sizeof *w->ready);
	w->soon = malloc(room * sizeof *w->soon);
	if (!w->first || !w->of || !w->left || !w->ready || !w->soon)
		return -ENOMEM;
	memset(w->first, 0xff, (w->t->switches + 1u) * sizeof *w->first);
	sort(w->p, by_switch);
	for (unsigned i = w->smps; i--;)
		w->first[w->p->smp[i].sw] = i;
	return make_steps(w);
}

/* The step that changes the LID's entry at a switch, or FABRIC_NONE. */
static uint32_t step_at(const struct waves *w, uint32_t sw, uint16_t lid)
{
	for (uint32_t i = w->first[sw]; i < w->smps && w->p->smp[i].sw == sw; i++)
		for (uint32_t k = w->of[i]; k < w->of[i + 1]; k++)
			if (w->step[k].lid == lid)
				return k;
	return FABRIC_NONE;
}

/* The next switch on the new way of a LID that is told of it: its step, or FABRIC_NONE. */
static uint32_t next_told(const struct waves *w, const struct step *s)
{
	const struct moves_smp *smp = &w->p->smp[s->smp];
	unsigned entry = s->lid % IB_LFT_BLOCK;
	uint32_t at = smp->sw, step;
	const uint8_t *data = smp->after;

	for (uint32_t hops = 0; data && hops < w->t->switches; hops++) {
		at = w->t->behind(w->t->arg, at, data[entry]);
		if (at == FABRIC_NONE)
			return FABRIC_NONE;
		if ((step = step_at(w, at, s->lid)) != FABRIC_NONE)
			return step;
		data = w->t->block(w->t->arg, at, s->lid / IB_LFT_BLOCK);
	}
	return FABRIC_NONE;
}

static void find_waits(struct waves *w)
{
	for (uint32_t i = 0; i < w->of[w->smps]; i++) {
		struct step *s = &w->step[i];

		s->before = next_told(w, s);
		if (s->before == FABRIC_NONE)
			continue;
		s->next = w->step[s->before].waiter;
		w->step[s->before].waiter = i;
		w->left[s->smp]++;
	}
}

static bool is_free(const struct waves *w, const struct step *s)
{
	return !s->done && (s->before == FABRIC_NONE || w->step[s->before].done);
}

/* Who waits for this step alone is of the next wave. */
static void end_step(struct waves *w, struct step *s)
{
	s->done = true;
	for (uint32_t i = s->waiter; i != FABRIC_NONE; i = w->step[i].next)
		if (!--w->left[w->step[i].smp])
			w->soon[w->soons++] = w->step[i].smp;
}

static void end_smp(struct waves *w, uint32_t smp)
{
	w->left[smp] = FABRIC_NONE;
	w->sent++;
	for (uint32_t k = w->of[smp]; k < w->of[smp + 1]; k++)
		if (!w->step[k].done)
			end_step(w, &w->step[k]);
}

/* Of the SMPs that wait for each other, the one with the fewest steps that wait, and some that do
 * not. Such a one there is: of the steps of one LID, the last one on the new way waits for none. */
static uint32_t find_split(const struct waves *w)
{
	uint32_t best = FABRIC_NONE;

	for (uint32_t i = 0; i < w->smps; i++) {
		bool some = false;

		if (w->left[i] == FABRIC_NONE ||
		    (best != FABRIC_NONE && w->left[best] <= w->left[i]))
			continue;
		for (uint32_t k = w->of[i]; !some && k < w->of[i + 1]; k++)
			some = is_free(w, &w->step[k]);
		if (some)
			best = i;
	}
	return best;
}

/* Room for one SMP more. */
static int grow(struct moves_plan *p)
{
	struct moves_smp *all = realloc(p->smp, (p->smps + 1u) * sizeof *all);

	if (!all)
		return -ENOMEM;
	p->smp = all;
	p->room = p->smps + 1;
	return 0;
}

/* Sends the entries of an SMP that wait for nobody before the others, in an SMP of their own. */
static int split(struct waves *w, uint32_t at, unsigned wave)
{
	struct moves_smp *s, *rest;

	if (grow(w->p))
		return -ENOMEM;
	rest = &w->p->smp[at];
	s = &w->p->smp[w->p->smps++];
	*s = *rest;
	s->wave = (uint16_t)wave;
	memcpy(s->after, s->before, sizeof s->after);
	for (uint32_t k = w->of[at]; k < w->of[at + 1]; k++) {
		unsigned entry = w->step[k].lid % IB_LFT_BLOCK;

		if (!is_free(w, &w->step[k]))
			continue;
		s->after[entry] = rest->before[entry] = rest->after[entry];
		end_step(w, &w->step[k]);
	}
	rest->part++;
	w->p->split++;
	return 0;
}

/* The rest wait for each other: one of them is split. New ways that are circles themselves have no
 * order. */
static int break_circle(struct waves *w, unsigned wave)
{
	uint32_t at = find_split(w);

	if (at != FABRIC_NONE)
		return split(w, at, wave);
	for (uint32_t i = 0; i < w->smps; i++)
		if (w->left[i] != FABRIC_NONE)
			w->p->smp[i].wave = (uint16_t)wave;
	w->sent = w->smps;
	return 0;
}

/* Numbers wave by wave those that wait for nobody any more. */
static int number_waves(struct waves *w)
{
	unsigned wave = 0;
	int rc = 0;

	for (uint32_t i = 0; i < w->smps; i++)
		if (!w->left[i])
			w->soon[w->soons++] = i;
	for (; !rc && w->sent < w->smps; wave++) {
		uint32_t *ready = w->soon;
		unsigned n = w->soons;

		w->soon = w->ready;
		w->ready = ready;
		w->soons = 0;
		for (unsigned i = 0; i < n; i++) {
			w->p->smp[ready[i]].wave = (uint16_t)wave;
			end_smp(w, ready[i]);
		}
		if (!n)
			rc = break_circle(w, wave);
	}
	w->p->waves = wave;
	return rc;
}

int moves_order_tables(const struct moves_tables *tables, struct moves_plan *plan)
{
	struct waves w = {.t = tables, .p = plan, .smps = plan->smps};
	int rc = waves_init(&w);

	if (!rc) {
		find_waits(&w);
		rc = number_waves(&w);
		sort(plan, by_wave);
	}
	waves_free(&w);
	return rc;
}
