/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

#define FAR UINT16_MAX

static const struct fabric_end *need_lid(const struct fabric *f, uint32_t end,
					 struct fabric_error *e)
{
	const struct fabric_end *x = end < f->ends ? &f->end[end] : NULL;

	if (x && x->lid && x->sw != FABRIC_NONE)
		return x;
	fabric_fail(e, -EINVAL, "%s has no LID or no link", x ? x->desc : "a port that is unknown");
	return NULL;
}

int moves_swap(const struct fabric *f, uint32_t vm, uint32_t to, struct move ret_move[static 2],
	       struct fabric_error *e)
{
	const struct fabric_end *a = need_lid(f, vm, e), *b = need_lid(f, to, e);

	if (!a || !b)
		return -EINVAL;
	if (a == b)
		return fabric_fail(e, -EINVAL, "%s is where it should go", a->desc);
	ret_move[0] = (struct move){a->lid, b->lid, FABRIC_NONE, 0, false, to, vm};
	ret_move[1] = (struct move){b->lid, a->lid, FABRIC_NONE, 0, true, vm, to};
	return 0;
}

/* A LID at this switch whose entries elsewhere lead here: by preference one of the same HCA, which
 * is the CA port of the same link, or the PF of the same vSwitch. */
static uint16_t lid_at(const struct fabric *f, uint32_t sw, unsigned port)
{
	const struct fabric_switch *s = &f->sw[sw];

	if (s->peer[port].end != FABRIC_NONE && f->end[s->peer[port].end].lid)
		return f->end[s->peer[port].end].lid;
	for (unsigned p = 1; s->inside && p <= s->ports; p++)
		if (s->peer[p].end != FABRIC_NONE && f->end[s->peer[p].end].lid)
			return f->end[s->peer[p].end].lid;
	return s->lid;
}

int moves_to_port(const struct fabric *f, uint16_t lid, uint32_t sw, unsigned port,
		  struct move *ret_move, struct fabric_error *e)
{
	uint16_t like;

	if (sw >= f->switches || port < 1 || port > f->sw[sw].ports)
		return fabric_fail(e, -EINVAL, "port %u is beyond the switch", port);
	like = lid_at(f, sw, port);
	if (!like)
		return fabric_fail(e, -ENODATA, "nothing at switch %s has a LID to be like",
				   f->sw[sw].desc);
	*ret_move = (struct move){
		lid,   like == lid ? f->sw[sw].lid : like, sw,         (uint8_t)port,
		false, f->sw[sw].peer[port].end,           FABRIC_NONE};
	return 0;
}

int moves_copy(const struct fabric *f, uint32_t vm, uint32_t to, struct move *ret_move,
	       struct fabric_error *e)
{
	const struct fabric_end *a = need_lid(f, vm, e);
	int rc;

	if (!a || to >= f->ends || f->end[to].sw == FABRIC_NONE)
		return a ? fabric_fail(e, -EINVAL, "the destination has no link") : -EINVAL;
	rc = moves_to_port(f, a->lid, f->end[to].sw, f->end[to].sw_port, ret_move, e);
	ret_move->new_end = to;
	return rc;
}

/* What does not depend on where the tables are. */
static int check_lids(uint32_t switches, const struct move *move, unsigned count,
		      struct fabric_error *e)
{
	if (count > MOVES_MAX)
		return fabric_fail(e, -EINVAL, "%u LIDs in a batch: at most %d", count, MOVES_MAX);
	for (unsigned i = 0; i < count; i++) {
		const struct move *m = &move[i];

		if (!ib_lid_is_unicast(m->lid) || (m->like && !ib_lid_is_unicast(m->like)))
			return fabric_fail(e, -EINVAL, "LID %u like %u: unicast is 1 to %u", m->lid,
					   m->like, IB_LID_UCAST_MAX);
		if (m->at_sw != FABRIC_NONE && m->at_sw >= switches)
			return fabric_fail(e, -EINVAL, "LID %u: a switch that is unknown", m->lid);
		for (unsigned k = 0; k < i; k++)
			if (move[k].lid == m->lid)
				return fabric_fail(e, -EINVAL, "LID %u is twice in the batch",
						   m->lid);
	}
	return 0;
}

static int check_ports(const struct fabric *f, const struct move *move, unsigned count,
		       struct fabric_error *e)
{
	for (unsigned i = 0; i < count; i++)
		if (move[i].at_sw != FABRIC_NONE && move[i].at_port > f->sw[move[i].at_sw].ports)
			return fabric_fail(e, -EINVAL, "LID %u: port %u is beyond the switch",
					   move[i].lid, move[i].at_port);
	return 0;
}

static const uint8_t *fabric_block(const void *arg, uint32_t sw, unsigned block)
{
	return fabric_lft_block(arg, sw, block);
}

static unsigned fabric_blocks(const void *arg, uint32_t sw)
{
	const struct fabric *f = arg;

	return f->sw[sw].lft_blocks;
}

static const char *fabric_name(const void *arg, uint32_t sw)
{
	const struct fabric *f = arg;

	return f->sw[sw].desc;
}

static struct moves_tables tables_of(const struct fabric *f)
{
	return (struct moves_tables){f->switches, fabric_block, fabric_blocks, fabric_name, f};
}

static int entry(const struct moves_tables *t, uint32_t sw, uint16_t lid)
{
	const uint8_t *data = t->block(t->arg, sw, lid / IB_LFT_BLOCK);

	return data ? data[lid % IB_LFT_BLOCK] : -ENODATA;
}

/* What a move wants at a switch; -ENODATA. */
static int wanted(const struct moves_tables *t, const struct move *m, uint32_t sw)
{
	if (sw == m->at_sw)
		return m->at_port;
	return m->like ? entry(t, sw, m->like) : VSWITCH_NO_PATH;
}

/* The switch behind an entry, FABRIC_NONE where there is none. */
static uint32_t behind(const struct fabric *f, uint32_t sw, int port)
{
	return port < 1 || port > f->sw[sw].ports ? FABRIC_NONE : f->sw[sw].peer[port].sw;
}

/* hops[s]: how far the new place is from s if all entries of `like` are taken. */
static int count_hops(const struct fabric *f, const struct moves_tables *t, const struct move *m,
		      uint16_t *hops)
{
	uint32_t *stack AUTO_FREE = malloc((f->switches + 1u) * sizeof *stack);

	if (!stack)
		return -ENOMEM;
	memset(hops, 0, f->switches * sizeof *hops); /* 0: not seen */
	for (uint32_t i = 0; i < f->switches; i++) {
		uint32_t depth = 0, at = i;
		unsigned h = 0;

		while (at != FABRIC_NONE && !hops[at]) {
			int port = wanted(t, m, at);

			hops[at] = FAR; /* met again: a loop */
			stack[depth++] = at;
			at = behind(f, at, port);
			if (port == VSWITCH_NO_PATH || port < 0)
				h = FAR;
		}
		if (at != FABRIC_NONE)
			h = hops[at];
		while (depth) {
			h += h != FAR;
			hops[stack[--depth]] = (uint16_t)h;
		}
	}
	return 0;
}

static struct moves_smp *add_smp(struct moves_plan *p, uint32_t sw, uint16_t block,
				 const uint8_t *data)
{
	struct moves_smp *smp;

	for (unsigned i = p->smps; i && p->smp[i - 1].sw == sw; i--)
		if (p->smp[i - 1].block == block)
			return &p->smp[i - 1];
	if (p->smps == p->room) {
		unsigned room = p->room ? p->room * 2 : 64;
		struct moves_smp *grown = realloc(p->smp, room * sizeof *grown);

		if (!grown)
			return NULL;
		p->smp = grown;
		p->room = room;
	}
	smp = &p->smp[p->smps++];
	smp->sw = sw;
	smp->block = block;
	smp->wave = 0;
	memcpy(smp->before, data, IB_LFT_BLOCK);
	memcpy(smp->after, data, IB_LFT_BLOCK);
	return smp;
}

/* A block behind the end of a table that may get longer: nothing in it has a path yet. */
static bool is_behind_end(const struct moves_tables *t, uint32_t sw, unsigned block)
{
	unsigned blocks = t->blocks ? t->blocks(t->arg, sw) : 0;

	return blocks && block >= blocks;
}

static struct moves_smp *add_new_block(const struct moves_tables *t, struct moves_plan *p,
				       uint32_t sw, uint16_t block)
{
	uint8_t empty[IB_LFT_BLOCK];

	memset(empty, VSWITCH_NO_PATH, sizeof empty);
	p->grown += !p->smps || p->smp[p->smps - 1].sw != sw ||
		    p->smp[p->smps - 1].block < t->blocks(t->arg, sw);
	return add_smp(p, sw, block, empty);
}

/* One LID at one switch. With a fabric, whose hops are given, an old entry that leads to a switch
 * which is nearer stays. */
static int plan_entry(const struct moves_tables *t, const struct move *m, uint32_t sw,
		      const struct fabric *f, const uint16_t *hops, struct moves_plan *p,
		      struct fabric_error *e)
{
	uint16_t block = m->lid / IB_LFT_BLOCK;
	const uint8_t *data = t->block(t->arg, sw, block);
	int want = wanted(t, m, sw), have = data ? data[m->lid % IB_LFT_BLOCK] : -ENODATA;
	struct moves_smp *smp;

	if (have < 0 && is_behind_end(t, sw, block))
		have = VSWITCH_NO_PATH;
	if (have < 0 || want < 0)
		return fabric_fail(e, -ENODATA, "switch %s: the LFT entry of LID %u is not known",
				   t->name(t->arg, sw), have < 0 ? m->lid : m->like);
	if (have == want)
		return 0;
	if (hops) {
		uint32_t next = behind(f, sw, have);

		if (next != FABRIC_NONE && hops[next] < hops[sw])
			return 0;
	}
	smp = data ? add_smp(p, sw, block, data) : add_new_block(t, p, sw, block);
	if (!smp)
		return fabric_fail(e, -ENOMEM, "no memory");
	smp->after[m->lid % IB_LFT_BLOCK] = (uint8_t)want;
	return 0;
}

/* hops: of each move at each switch of f, or NULL. */
static int make_plan(const struct moves_tables *t, const struct move *move, unsigned count,
		     const struct fabric *f, const uint16_t *hops, struct moves_plan *p,
		     struct fabric_error *e)
{
	int rc;

	memcpy(p->move, move, count * sizeof *move);
	for (unsigned i = 0; i < count; i++)
		p->move[i].old_end = f ? fabric_find_lid(f, move[i].lid).end : FABRIC_NONE;
	p->moves = count;
	p->smps = p->switches = p->smps_inside = p->switches_inside = 0;
	p->unordered = p->grown = 0;
	for (uint32_t s = 0; s < t->switches; s++) {
		unsigned before = p->smps;

		for (unsigned i = 0; i < count; i++) {
			rc = plan_entry(t, &move[i], s, f,
					hops ? hops + (size_t)i * t->switches : NULL, p, e);
			if (rc)
				return rc;
		}
		p->switches += p->smps > before;
	}
	p->waves = p->smps > 0;
	return 0;
}

static void count_inside(const struct fabric *f, struct moves_plan *p)
{
	for (unsigned i = 0; i < p->smps; i++) {
		bool inside = f->sw[p->smp[i].sw].inside;

		p->smps_inside += inside;
		p->switches_inside += inside && (!i || p->smp[i - 1].sw != p->smp[i].sw);
	}
}

int moves_plan_tables(const struct moves_tables *tables, const struct move *move, unsigned count,
		      struct moves_plan *p, struct fabric_error *e)
{
	int rc = check_lids(tables->switches, move, count, e);

	return rc ? rc : make_plan(tables, move, count, NULL, NULL, p, e);
}

int moves_plan(const struct fabric *f, const struct move *move, unsigned count,
	       enum moves_rule rule, struct moves_plan *p, struct fabric_error *e)
{
	const struct moves_tables t = tables_of(f);
	uint16_t *hops AUTO_FREE = NULL;
	int rc = check_lids(f->switches, move, count, e);

	if (rc || (rc = check_ports(f, move, count, e)))
		return rc;
	if (rule == MOVES_FEWEST) {
		hops = malloc(((size_t)count * f->switches + 1) * sizeof *hops);
		for (unsigned i = 0; i < count; i++)
			if (!hops || count_hops(f, &t, &move[i], hops + (size_t)i * f->switches))
				return fabric_fail(e, -ENOMEM, "no memory");
	}
	rc = make_plan(&t, move, count, f, hops, p, e);
	if (!rc)
		count_inside(f, p);
	return rc;
}

void moves_free(struct moves_plan *p)
{
	free(p->smp);
	memset(p, 0, sizeof *p);
}

void moves_undo(struct moves_plan *p)
{
	for (unsigned i = 0; i < p->smps; i++) {
		struct moves_smp *s = &p->smp[i];
		uint8_t data[IB_LFT_BLOCK];

		memcpy(data, s->before, sizeof data);
		memcpy(s->before, s->after, sizeof data);
		memcpy(s->after, data, sizeof data);
		s->wave = (uint16_t)(p->waves - 1 - s->wave);
	}
	for (unsigned i = 0; i < p->smps / 2; i++) {
		struct moves_smp s = p->smp[i];

		p->smp[i] = p->smp[p->smps - 1 - i];
		p->smp[p->smps - 1 - i] = s;
	}
	for (unsigned i = 0; i < p->moves; i++) {
		uint32_t end = p->move[i].old_end;

		p->move[i].old_end = p->move[i].new_end;
		p->move[i].new_end = end;
	}
}

int moves_send(struct fabric *f, const struct moves_smp *smp)
{
	return fabric_set_lft(f, smp->sw, smp->block, smp->after);
}

int moves_apply(struct fabric *f, const struct moves_plan *p)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < p->smps; i++)
		rc = moves_send(f, &p->smp[i]);
	for (unsigned i = 0; !rc && i < p->moves; i++)
		if (p->move[i].old_end != FABRIC_NONE)
			rc = fabric_set_lid(f, p->move[i].old_end, 0);
	for (unsigned i = 0; !rc && i < p->moves; i++)
		if (p->move[i].new_end != FABRIC_NONE)
			rc = fabric_set_lid(f, p->move[i].new_end, p->move[i].lid);
	return rc;
}
