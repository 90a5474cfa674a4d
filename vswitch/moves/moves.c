/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/moves/moves.h"
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

/* The index of a port in the list, or count. */
static unsigned index_of(const uint32_t *list, unsigned count, uint32_t end)
{
	unsigned i = 0;

	while (i < count && list[i] != end)
		i++;
	return i;
}

static int check_swap(const struct fabric *f, const uint32_t *vm, const uint32_t *to, unsigned i,
		      struct fabric_error *e)
{
	const struct fabric_end *a = need_lid(f, vm[i], e), *b = need_lid(f, to[i], e);

	if (!a || !b)
		return -EINVAL;
	if (a == b)
		return fabric_fail(e, -EINVAL, "%s is where it should go", a->desc);
	if (index_of(vm, i, vm[i]) < i || index_of(to, i, to[i]) < i)
		return fabric_fail(e, -EINVAL, "%s is twice in the batch",
				   index_of(vm, i, vm[i]) < i ? a->desc : b->desc);
	if (a->lmc != b->lmc)
		return fabric_fail(e, -EINVAL,
				   "%s has LMC %u and %s has %u: they cannot exchange their LIDs",
				   a->desc, a->lmc, b->desc, b->lmc);
	return 0;
}

/* The LIDs of `from` take the place of those of `to`. */
static struct move take_place(const struct fabric *f, uint32_t from, uint32_t to, bool unused)
{
	return (struct move){
		.lid = f->end[from].lid,
		.lmc = f->end[from].lmc,
		.like = f->end[to].lid,
		.like_lmc = f->end[to].lmc,
		.at_sw = FABRIC_NONE,
		.unused = unused,
		.new_end = to,
		.old_end = from,
	};
}

int moves_swaps(const struct fabric *f, const uint32_t *vm, const uint32_t *to, unsigned count,
		struct move *ret_move, unsigned *ret_moves, struct fabric_error *e)
{
	unsigned n = 0;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		rc = check_swap(f, vm, to, i, e);
	for (unsigned i = 0; !rc && i < count; i++) {
		unsigned first = i, before;

		ret_move[n++] = take_place(f, vm[i], to[i], false);
		if (index_of(vm, count, to[i]) < count)
			continue;
		while ((before = index_of(to, count, vm[first])) < count)
			first = before;
		ret_move[n++] = take_place(f, to[i], vm[first], true);
	}
	*ret_moves = n;
	return rc;
}

int moves_swap(const struct fabric *f, uint32_t vm, uint32_t to, struct move ret_move[static 2],
	       struct fabric_error *e)
{
	unsigned n;

	return moves_swaps(f, &vm, &to, 1, ret_move, &n, e);
}

/* LIDs at this switch whose entries elsewhere lead here. Those of the same HCA are preferred: the
 * CA port of the same link, or the PF of the same vSwitch. */
static uint16_t lid_at(const struct fabric *f, uint32_t sw, unsigned port, uint8_t *ret_lmc)
{
	const struct fabric_switch *s = &f->sw[sw];
	uint32_t end = s->peer[port].end;

	for (unsigned p = 1; s->inside && p <= s->ports; p++)
		if (end == FABRIC_NONE || !f->end[end].lid)
			end = s->peer[p].end;
	if (end == FABRIC_NONE || !f->end[end].lid) {
		*ret_lmc = 0;
		return s->lid;
	}
	*ret_lmc = f->end[end].lmc;
	return f->end[end].lid;
}

int moves_to_port(const struct fabric *f, uint16_t lid, uint32_t sw, unsigned port,
		  struct move *ret_move, struct fabric_error *e)
{
	uint16_t like;
	uint8_t like_lmc;

	if (sw >= f->switches || port < 1 || port > f->sw[sw].ports)
		return fabric_fail(e, -EINVAL, "port %u is beyond the switch", port);
	like = lid_at(f, sw, port, &like_lmc);
	if (like == lid) {
		like = f->sw[sw].lid;
		like_lmc = 0;
	}
	if (!like)
		return fabric_fail(e, -ENODATA, "nothing at switch %s has a LID to be like",
				   f->sw[sw].desc);
	*ret_move = (struct move){
		.lid = lid,
		.like = like,
		.like_lmc = like_lmc,
		.at_sw = sw,
		.at_port = (uint8_t)port,
		.new_end = f->sw[sw].peer[port].end,
		.old_end = FABRIC_NONE,
	};
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
	ret_move->lmc = a->lmc;
	return rc;
}

static bool is_run(unsigned lid, unsigned lmc)
{
	return lmc <= FABRIC_LMC_MAX && ib_lid_is_unicast(lid) && lid % (1u << lmc) == 0 &&
	       ib_lid_is_unicast(lid + (1u << lmc) - 1);
}

/* Checks what does not depend on where the tables are. */
static int check_lids(uint32_t switches, const struct move *move, unsigned count,
		      struct fabric_error *e)
{
	uint64_t seen[IB_LID_UCAST_MAX / 64 + 1] = {0}; /* a bit for each LID */
	unsigned lids = 0;

	if (count > MOVES_MAX)
		return fabric_fail(e, -EINVAL, "%u moves in a batch: at most %d", count, MOVES_MAX);
	for (unsigned i = 0; i < count; i++) {
		const struct move *m = &move[i];

		if (!is_run(m->lid, m->lmc) || (m->like && !is_run(m->like, m->like_lmc)))
			return fabric_fail(e, -EINVAL,
					   "LID %u (LMC %u) like %u (LMC %u): unicast is 1 to %u, "
					   "and a multiple of 2^LMC",
					   m->lid, m->lmc, m->like, m->like_lmc, IB_LID_UCAST_MAX);
		if (m->at_sw != FABRIC_NONE && m->at_sw >= switches)
			return fabric_fail(e, -EINVAL, "LID %u: a switch that is unknown", m->lid);
		for (unsigned lid = m->lid; lid < m->lid + (1u << m->lmc); lid++) {
			if (seen[lid / 64] >> lid % 64 & 1)
				return fabric_fail(e, -EINVAL, "LID %u is twice in the batch", lid);
			seen[lid / 64] |= 1ull << lid % 64;
			lids++;
		}
	}
	if (lids > MOVES_LIDS_MAX)
		return fabric_fail(e, -EINVAL, "%u LIDs in a batch, with LMCs: at most %d", lids,
				   MOVES_LIDS_MAX);
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

/* The switch behind an entry, FABRIC_NONE where there is none. */
static uint32_t behind(const struct fabric *f, uint32_t sw, int port)
{
	return port < 1 || port > f->sw[sw].ports ? FABRIC_NONE : f->sw[sw].peer[port].sw;
}

static uint32_t fabric_behind(const void *arg, uint32_t sw, unsigned port)
{
	return behind(arg, sw, (int)port);
}

static struct moves_tables tables_of(const struct fabric *f)
{
	return (struct moves_tables){f->switches, fabric_block,  fabric_blocks,
				     fabric_name, fabric_behind, f};
}

static int entry(const struct moves_tables *t, uint32_t sw, uint16_t lid)
{
	const uint8_t *data = t->block(t->arg, sw, lid / IB_LFT_BLOCK);

	return data ? data[lid % IB_LFT_BLOCK] : -ENODATA;
}

/* The entry that a move wants at a switch; -ENODATA. */
static int wanted(const struct moves_tables *t, const struct move *m, uint32_t sw)
{
	if (sw == m->at_sw)
		return m->at_port;
	return m->like ? entry(t, sw, m->like) : VSWITCH_NO_PATH;
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
	smp->wave = smp->part = 0;
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

/* Plans one LID at one switch. With a fabric, whose hops are given, an old entry that leads to a
 * switch which is nearer stays. */
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

/* Makes one move for each LID. 0 or -ENOMEM. */
static int spread(const struct move *move, unsigned count, struct moves_plan *p)
{
	struct move *lids;
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++)
		n += 1u << move[i].lmc;
	if (!(lids = realloc(p->move, (n + 1) * sizeof *lids)))
		return -ENOMEM;
	p->move = lids;
	p->moves = n;
	for (unsigned i = 0; i < count; i++)
		for (unsigned k = 0; k < 1u << move[i].lmc; k++, lids++) {
			*lids = move[i];
			lids->lid = (uint16_t)(move[i].lid + k);
			if (move[i].like)
				lids->like = (uint16_t)(move[i].like +
							k % (1u << move[i].like_lmc));
			lids->lmc = lids->like_lmc = 0;
			lids->old_end = FABRIC_NONE;
			if (k)
				lids->new_end = FABRIC_NONE;
		}
	return 0;
}

/* hops: of each of p->move at each switch of f, or NULL. */
static int make_plan(const struct moves_tables *t, const struct fabric *f, const uint16_t *hops,
		     struct moves_plan *p, struct fabric_error *e)
{
	int rc;

	p->smps = p->switches = p->smps_inside = p->switches_inside = 0;
	p->split = p->grown = 0;
	for (uint32_t s = 0; s < t->switches; s++) {
		unsigned before = p->smps;

		for (unsigned i = 0; i < p->moves; i++) {
			rc = plan_entry(t, &p->move[i], s, f,
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

	if (rc)
		return rc;
	if (spread(move, count, p))
		return fabric_fail(e, -ENOMEM, "no memory");
	return make_plan(tables, NULL, NULL, p, e);
}

static void find_ends(const struct fabric *f, const struct move *move, unsigned count,
		      struct moves_plan *p)
{
	struct move *first = p->move;

	for (unsigned i = 0; i < count; first += 1u << move[i++].lmc)
		first->old_end = fabric_find_lid(f, first->lid).end;
}

int moves_plan(const struct fabric *f, const struct move *move, unsigned count,
	       enum moves_rule rule, struct moves_plan *p, struct fabric_error *e)
{
	const struct moves_tables t = tables_of(f);
	uint16_t *hops AUTO_FREE = NULL;
	int rc = check_lids(f->switches, move, count, e);

	if (rc || (rc = check_ports(f, move, count, e)))
		return rc;
	if (spread(move, count, p))
		return fabric_fail(e, -ENOMEM, "no memory");
	find_ends(f, move, count, p);
	if (rule == MOVES_FEWEST) {
		hops = malloc(((size_t)p->moves * f->switches + 1) * sizeof *hops);
		for (unsigned i = 0; i < p->moves; i++)
			if (!hops || count_hops(f, &t, &p->move[i], hops + (size_t)i * f->switches))
				return fabric_fail(e, -ENOMEM, "no memory");
	}
	rc = make_plan(&t, f, hops, p, e);
	if (!rc)
		count_inside(f, p);
	return rc;
}

int moves_order(const struct fabric *f, struct moves_plan *plan)
{
	const struct moves_tables t = tables_of(f);

	return moves_order_tables(&t, plan);
}

void moves_free(struct moves_plan *p)
{
	free(p->smp);
	free(p->move);
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
