/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/check.h"
#include "vswitch/moves/walk.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* Per switch, for the LID at hand: hops to its place, or one of these. */
enum { HOPS_UNSEEN = 0, HOPS_BAD = 0xfffe, HOPS_ON_WAY = 0xffff };

static bool is_source(const struct fabric_switch *s)
{
	for (unsigned p = 1; p <= s->ports; p++)
		if (s->peer[p].end != FABRIC_NONE)
			return true;
	return false;
}

/* The next switch, or FABRIC_NONE where the packet leaves the switches; *ret_there: at the place
 * (sw, port) where it belongs. */
static uint32_t next_switch(const struct fabric *f, uint32_t at, uint16_t lid, uint32_t sw,
			    uint8_t port, bool *ret_there)
{
	int out = fabric_lft_entry(f, at, lid);

	*ret_there = at == sw && out == port;
	if (*ret_there || out < 1 || out > f->sw[at].ports)
		return FABRIC_NONE;
	return f->sw[at].peer[out].sw;
}

/* Follows a LID from a switch until something known is met, then notes the hops of all that were
 * passed. */
static void follow(const struct fabric *f, uint32_t from, uint16_t lid, uint32_t sw, uint8_t port,
		   uint16_t *hops, uint32_t *stack)
{
	uint32_t depth = 0, at = from;
	unsigned h = HOPS_BAD;
	bool there = false;

	while (at != FABRIC_NONE && hops[at] == HOPS_UNSEEN) {
		hops[at] = HOPS_ON_WAY;
		stack[depth++] = at;
		at = next_switch(f, at, lid, sw, port, &there);
	}
	if (there)
		h = 0;
	else if (at != FABRIC_NONE && hops[at] != HOPS_ON_WAY)
		h = hops[at];
	while (depth) {
		h += h != HOPS_BAD;
		hops[stack[--depth]] = (uint16_t)h;
	}
}

struct checker {
	const struct fabric *f;
	bool *source;    /* owned */
	uint16_t *hops;  /* owned */
	uint32_t *stack; /* owned */
};

static void checker_free(struct checker *c)
{
	free(c->source);
	free(c->hops);
	free(c->stack);
}

static int checker_init(struct checker *c, const struct fabric *f)
{
	c->f = f;
	c->source = malloc(f->switches + 1u);
	c->hops = malloc((f->switches + 1u) * sizeof *c->hops);
	c->stack = malloc((f->switches + 1u) * sizeof *c->stack);
	if (!c->source || !c->hops || !c->stack)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->switches; i++)
		c->source[i] = is_source(&f->sw[i]);
	return 0;
}

static int describe(const struct fabric *f, uint32_t from, uint16_t lid, uint32_t end,
		    struct fabric_error *e)
{
	struct walk w = walk_lid((struct fabric *)f, from, lid, NULL, NULL);

	return fabric_fail(e, -EHOSTUNREACH, "from switch %s, LID %u (%s) %s at switch %s%s%s",
			   f->sw[from].desc, lid, f->end[end].desc, walk_verdict_text(w.verdict),
			   f->sw[w.sw].desc, w.verdict == WALK_ARRIVED ? ", at " : "",
			   w.verdict == WALK_ARRIVED ? f->end[w.end].desc : "");
}

static void check_one(struct checker *c, uint16_t lid, uint32_t end, struct check_result *r,
		      struct fabric_error *e)
{
	const struct fabric_end *to = &c->f->end[end];

	memset(c->hops, 0, c->f->switches * sizeof *c->hops);
	for (uint32_t i = 0; i < c->f->switches; i++) {
		if (!c->source[i])
			continue;
		follow(c->f, i, lid, to->sw, to->sw_port, c->hops, c->stack);
		r->pairs++;
		if (c->hops[i] == HOPS_BAD) {
			if (!r->broken++)
				describe(c->f, i, lid, end, e);
		} else if (c->hops[i] > r->max_hops)
			r->max_hops = c->hops[i];
	}
}

int check_lid(const struct fabric *f, uint16_t lid, uint32_t end, struct check_result *ret_result,
	      struct fabric_error *e)
{
	struct checker c = {0};
	int rc = checker_init(&c, f);

	memset(ret_result, 0, sizeof *ret_result);
	if (!rc)
		check_one(&c, lid, end, ret_result, e);
	checker_free(&c);
	return rc ? rc : ret_result->broken ? -EHOSTUNREACH : 0;
}

int check_fabric(const struct fabric *f, unsigned lid_step, struct check_result *ret_result,
		 struct fabric_error *e)
{
	unsigned top = fabric_top_lid(f), n = 0;
	struct checker c = {0};
	int rc = checker_init(&c, f);

	memset(ret_result, 0, sizeof *ret_result);
	for (unsigned lid = 1; !rc && lid <= top; lid++) {
		uint32_t end = fabric_find_lid(f, lid).end;

		if (end == FABRIC_NONE || f->end[end].sw == FABRIC_NONE || n++ % lid_step)
			continue;
		check_one(&c, (uint16_t)lid, end, ret_result, e);
	}
	checker_free(&c);
	return rc ? rc : ret_result->broken ? -EHOSTUNREACH : 0;
}
