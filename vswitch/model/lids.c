/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/model/lids.h"
#include "common/ib.h"

#include <errno.h>
#include <string.h>

int lids_init(struct lids *l, unsigned first, unsigned last, struct fabric_error *e)
{
	if (!ib_lid_is_unicast(first) || !ib_lid_is_unicast(last) || first > last)
		return fabric_fail(e, -EINVAL, "LIDs %u to %u: a range from 1 to %u is needed",
				   first, last, IB_LID_UCAST_MAX);
	memset(l, 0, sizeof *l);
	l->first = (uint16_t)first;
	l->last = (uint16_t)last;
	return 0;
}

bool lids_held(const struct lids *l, unsigned lid)
{
	return l->used[lid / 64] >> lid % 64 & 1;
}

static unsigned held_in(const struct lids *l, unsigned lid, unsigned count)
{
	unsigned n = 0;

	for (unsigned i = lid; i < lid + count; i++)
		n += lids_held(l, i);
	return n;
}

static void set(struct lids *l, unsigned lid, unsigned lmc, bool on)
{
	for (unsigned i = lid; i < lid + (1u << lmc); i++)
		if (on)
			l->used[i / 64] |= 1ull << i % 64;
		else
			l->used[i / 64] &= ~(1ull << i % 64);
}

unsigned lids_free(const struct lids *l)
{
	unsigned count = l->last - l->first + 1u;

	return count - held_in(l, l->first, count);
}

/* The next candidate behind one that is not free; words without a free LID are skipped. */
static unsigned next_candidate(const struct lids *l, unsigned lid, unsigned step)
{
	lid += step;
	while (lid <= l->last && l->used[lid / 64] == UINT64_MAX)
		lid = (lid / 64 + 1) * 64;
	return (lid + step - 1) & ~(step - 1);
}

int lids_take(struct lids *l, unsigned lmc, uint16_t *ret_lid, struct fabric_error *e)
{
	unsigned step = 1u << lmc;

	for (unsigned lid = (l->first + step - 1) & ~(step - 1); lid + step - 1 <= l->last;
	     lid = next_candidate(l, lid, step))
		if (!held_in(l, lid, step)) {
			set(l, lid, lmc, true);
			*ret_lid = (uint16_t)lid;
			return 0;
		}
	return fabric_fail(
		e, -ENOSPC, "no %u free LID%s in a row: %u of the %u from %u to %u are free", step,
		step > 1 ? "s" : "", lids_free(l), l->last - l->first + 1u, l->first, l->last);
}

int lids_hold(struct lids *l, unsigned lid, unsigned lmc, struct fabric_error *e)
{
	unsigned count = 1u << lmc;

	if (lmc > FABRIC_LMC_MAX || !ib_lid_is_unicast(lid) || !ib_lid_is_unicast(lid + count - 1))
		return fabric_fail(e, -EINVAL, "LID %u with LMC %u: not a unicast LID", lid, lmc);
	if (lid % count)
		return fabric_fail(e, -EINVAL, "LID %u with LMC %u: must be a multiple of %u", lid,
				   lmc, count);
	for (unsigned i = lid; i < lid + count; i++)
		if (lids_held(l, i))
			return fabric_fail(e, -EEXIST, "LID %u is taken", i);
	set(l, lid, lmc, true);
	return 0;
}
