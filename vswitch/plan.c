/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/plan.h"
#include "common/ib.h"

#include <errno.h>
#include <stdbool.h>

int vswitch_plan_check(const struct vswitch_relabel *plan, size_t n)
{
	if (n > VSWITCH_RELABEL_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (!ib_lid_is_unicast(plan[i].lid) ||
		    (plan[i].from && !ib_lid_is_unicast(plan[i].from)))
			return -EINVAL;
		for (size_t k = 0; k < i; k++)
			if (plan[k].lid == plan[i].lid)
				return -EINVAL;
	}
	return 0;
}

static int in_range(size_t entries, const struct vswitch_relabel *plan, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (plan[i].lid >= entries || plan[i].from >= entries)
			return -ERANGE;
	return 0;
}

static uint8_t entry_after(const uint8_t *lft, const struct vswitch_relabel *r)
{
	return r->from ? lft[r->from] : VSWITCH_NO_PATH;
}

/* Puts block into the ascending list, once. */
static size_t add_block(uint16_t *blocks, size_t count, uint16_t block)
{
	size_t at = count;

	while (at && blocks[at - 1] >= block)
		at--;
	if (at < count && blocks[at] == block)
		return count;
	for (size_t i = count; i > at; i--)
		blocks[i] = blocks[i - 1];
	blocks[at] = block;
	return count + 1;
}

static size_t changed_blocks(const uint8_t *lft, const struct vswitch_relabel *plan, size_t n,
			     uint16_t *blocks)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		if (entry_after(lft, &plan[i]) != lft[plan[i].lid])
			count = add_block(blocks, count, plan[i].lid / IB_LFT_BLOCK);
	return count;
}

int vswitch_plan_apply(uint8_t *lft, size_t entries, const struct vswitch_relabel *plan, size_t n,
		       uint16_t *ret_blocks)
{
	uint8_t after[VSWITCH_RELABEL_MAX];
	size_t count;

	if (vswitch_plan_check(plan, n))
		return -EINVAL;
	if (in_range(entries, plan, n))
		return -ERANGE;
	count = changed_blocks(lft, plan, n, ret_blocks);
	for (size_t i = 0; i < n; i++)
		after[i] = entry_after(lft, &plan[i]);
	for (size_t i = 0; i < n; i++)
		lft[plan[i].lid] = after[i];
	return (int)count;
}

int vswitch_plan_count(const uint8_t *lft, size_t entries, const struct vswitch_relabel *plan,
		       size_t n)
{
	uint16_t blocks[VSWITCH_RELABEL_MAX];

	if (vswitch_plan_check(plan, n))
		return -EINVAL;
	return in_range(entries, plan, n) ? -ERANGE : (int)changed_blocks(lft, plan, n, blocks);
}
