/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What has to change in the LFTs when LIDs change their places (prepopulated vSwitch: the LIDs of
 * two VFs are swapped). No path is computed: an entry is taken over from the LID whose place the
 * LID moves to.
 *
 * A plan is a list of relabels, all of which read the table as it was before. A swap of A and B is
 * {A from B}, {B from A}; a copy is {A from B} alone; a LID without a place any more is {A from 0}.
 */
#ifndef IBVMIG_VSWITCH_PLAN_H
#define IBVMIG_VSWITCH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#define VSWITCH_RELABEL_MAX 128
#define VSWITCH_NO_PATH     255

struct vswitch_relabel {
	uint16_t lid;
	uint16_t from; /* the LID whose entry it takes; 0: none, VSWITCH_NO_PATH */
};

/* Unicast LIDs, none twice in .lid, at most VSWITCH_RELABEL_MAX. 0 or -EINVAL. */
int vswitch_plan_check(const struct vswitch_relabel *plan, size_t n);

/* Changes one switch's table of `entries` bytes (a multiple of 64), and says which blocks of 64
 * differ afterwards: ret_blocks, ascending, room for n. Returns their number (0: this switch needs
 * no SMP), -ERANGE when a LID of the plan is beyond the table, -EINVAL as vswitch_plan_check();
 * nothing has changed then. */
int vswitch_plan_apply(uint8_t *lft, size_t entries, const struct vswitch_relabel *plan, size_t n,
		       uint16_t *ret_blocks);

/* The same without changing anything: the number of blocks, or -ERANGE. */
int vswitch_plan_count(const uint8_t *lft, size_t entries, const struct vswitch_relabel *plan,
		       size_t n);

#endif
