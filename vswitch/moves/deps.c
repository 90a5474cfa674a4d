/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/deps.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

void deps_free(struct deps *d)
{
	free(d->first);
	free(d->next);
	free(d->stamp);
	memset(d, 0, sizeof *d);
}

int deps_init(struct deps *d, const struct fabric *f)
{
	memset(d, 0, sizeof *d);
	d->first = malloc((f->switches + 1u) * sizeof *d->first);
	if (!d->first)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->switches; i++) {
		d->first[i] = d->channels;
		d->channels += f->sw[i].ports + 1u;
	}
	d->next = calloc(d->channels + 1u, sizeof *d->next);
	d->stamp = calloc(f->switches + 1u, sizeof *d->stamp);
	if (d->next && d->stamp)
		return 0;
	deps_free(d);
	return -ENOMEM;
}

static bool is_source(const struct fabric_switch *s)
{
	for (unsigned p = 1; p <= s->ports; p++)
		if (s->peer[p].end != FABRIC_NONE)
			return true;
	return false;
}

/* The port to the next switch on the way to lid; 0: there is none. */
static unsigned out_port(const struct fabric *f, uint32_t sw, uint16_t lid)
{
	int port = fabric_lft_entry(f, sw, lid);

	if (port < 1 || port > f->sw[sw].ports || f->sw[sw].peer[port].sw == FABRIC_NONE)
		return 0;
	return (unsigned)port;
}

static void follow(struct deps *d, const struct fabric *f, uint32_t at, uint16_t lid)
{
	unsigned out = out_port(f, at, lid);

	while (out && d->stamp[at] != d->now) {
		uint32_t x = f->sw[at].peer[out].sw;
		unsigned then = out_port(f, x, lid);

		d->stamp[at] = d->now;
		if (then)
			d->next[d->first[at] + out][then / 64] |= 1ull << then % 64;
		at = x;
		out = then;
	}
}

/* Adds what packets to this LID depend on, from all switches that have CA ports. */
static void add_lid(struct deps *d, const struct fabric *f, uint16_t lid)
{
	d->now++;
	for (uint32_t i = 0; i < f->switches; i++)
		if (d->stamp[i] != d->now && is_source(&f->sw[i]))
			follow(d, f, i, lid);
}

void deps_add_fabric(struct deps *d, const struct fabric *f)
{
	unsigned top = fabric_top_lid(f);

	for (unsigned lid = 1; lid <= top; lid++)
		if (fabric_find_lid(f, lid).end != FABRIC_NONE)
			add_lid(d, f, (uint16_t)lid);
}

struct search {
	const struct deps *d;
	const struct fabric *f;
	uint8_t *colour;  /* owned; 0 not seen, 1 on the way, 2 done */
	uint32_t *stack;  /* owned; channels */
	uint32_t *sw;     /* owned; per channel its switch */
	uint16_t *branch; /* owned; per channel the next port to try */
};

static void search_free(struct search *s)
{
	free(s->colour);
	free(s->stack);
	free(s->sw);
	free(s->branch);
}

static int search_init(struct search *s)
{
	size_t n = s->d->channels + 1u;

	s->colour = calloc(n, 1);
	s->stack = malloc(n * sizeof *s->stack);
	s->sw = malloc(n * sizeof *s->sw);
	s->branch = calloc(n, sizeof *s->branch);
	if (!s->colour || !s->stack || !s->sw || !s->branch)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->f->switches; i++)
		for (unsigned p = 0; p <= s->f->sw[i].ports; p++)
			s->sw[s->d->first[i] + p] = i;
	return 0;
}

static void describe(const struct search *s, uint32_t depth, uint32_t again, char *text,
		     size_t room)
{
	size_t at = 0;
	uint32_t i = depth;

	while (i && s->stack[i - 1] != again)
		i--;
	if (room)
		text[0] = 0;
	for (i -= i > 0; i < depth && at < room; i++) {
		uint32_t c = s->stack[i], sw = s->sw[c];

		at += (size_t)snprintf(text + at, room - at, "%s%s[%u]", at ? " " : "",
				       s->f->sw[sw].desc, c - s->d->first[sw]);
	}
}

/* The next channel that c depends on and that has not been tried, or FABRIC_NONE. */
static uint32_t next_channel(const struct search *s, uint32_t c)
{
	uint32_t sw = s->sw[c];
	uint32_t x = s->f->sw[sw].peer[c - s->d->first[sw]].sw;

	while (x != FABRIC_NONE && s->branch[c] <= s->f->sw[x].ports) {
		unsigned p = s->branch[c]++;

		if (s->d->next[c][p / 64] >> p % 64 & 1)
			return s->d->first[x] + p;
	}
	return FABRIC_NONE;
}

/* Depth first from one channel. */
static bool search_from(struct search *s, uint32_t c, char *text, size_t room)
{
	uint32_t depth = 1;

	s->stack[0] = c;
	s->colour[c] = 1;
	while (depth) {
		uint32_t next = next_channel(s, s->stack[depth - 1]);

		if (next == FABRIC_NONE) {
			s->colour[s->stack[--depth]] = 2;
		} else if (s->colour[next] == 1) {
			describe(s, depth, next, text, room);
			return true;
		} else if (!s->colour[next]) {
			s->colour[next] = 1;
			s->stack[depth++] = next;
		}
	}
	return false;
}

int deps_find_cycle(const struct deps *d, const struct fabric *f, char *ret_text, size_t room)
{
	struct search s = {.d = d, .f = f};
	int rc = search_init(&s);

	for (uint32_t i = 0; !rc && i < f->switches; i++)
		for (unsigned p = 1; !rc && p <= f->sw[i].ports; p++)
			if (!s.colour[d->first[i] + p])
				rc = search_from(&s, d->first[i] + p, ret_text, room);
	search_free(&s);
	return rc;
}

int deps_plan_cycle(const struct deps *d, struct fabric *f, struct moves_plan *plan, char *ret_text,
		    size_t room)
{
	struct deps both;
	int rc = deps_init(&both, f);

	if (rc)
		return rc;
	memcpy(both.next, d->next, d->channels * sizeof *d->next);
	for (unsigned i = 0; !rc && i < plan->smps; i++)
		rc = moves_send(f, &plan->smp[i]);
	for (unsigned i = 0; !rc && i < plan->moves; i++)
		add_lid(&both, f, plan->move[i].lid);
	moves_undo(plan);
	for (unsigned i = 0; i < plan->smps; i++)
		moves_send(f, &plan->smp[i]);
	moves_undo(plan);
	rc = rc ? rc : deps_find_cycle(&both, f, ret_text, room);
	deps_free(&both);
	return rc;
}
