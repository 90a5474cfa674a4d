/* SPDX-License-Identifier: GPL-2.0-or-later */
/* vGUIDs that belong to a VM for good, whether it runs or not: taken by name or allocated from a
 * range, until they are released. What is bound to a VF (sm-helper/registry/registry.h) is never
 * claimed by another VM, and what is claimed is never bound by another one; the database itself
 * sees to that.
 */
#ifndef IBVMIG_SM_HELPER_REGISTRY_CLAIM_H
#define IBVMIG_SM_HELPER_REGISTRY_CLAIM_H

#include "sm-helper/registry/registry.h"

#include <stdbool.h>

#define CLAIM_SLOT_MAX  15         /* a VM has at most 16 ports */
#define CLAIM_RANGE_MAX (1u << 20) /* vGUIDs in a range */

struct reg_claim {
	uint64_t vguid;
	char vm[REG_TEXT_MAX], name[REG_TEXT_MAX];
	unsigned slot;     /* number of the VM's port */
	uint64_t since_ms; /* wall clock */
};

struct claim_range {
	uint64_t first, last; /* 0, 0: none is configured */
};

/* "0x… - 0x…", as vguid-range in the configuration. 0, or -EINVAL and *ret_why (static) says what
 * is wrong. */
int claim_range_parse(const char *text, struct claim_range *ret_range, const char **ret_why);

/* Errors other than -ENOENT and -EIO are as said below. A call again, for what is so already,
 * returns 0. *ret_holder is who has it now, in all cases but -EIO. */

/* -EEXIST: another VM has this vGUID, or it is bound to its VF; -EBUSY: this port of the VM has
 * another one (ret_holder->vguid). */
int registry_claim(struct registry *r, const struct reg_claim *want, struct reg_claim *ret_holder);
/* The VM's port gets the next free one after that which was allocated last: one that was released
 * is not given again at once. taken(arg, guid) may rule more out. -ENOSPC: none is free. */
int registry_allocate(struct registry *r, const struct reg_claim *want,
		      const struct claim_range *range, bool (*taken)(void *arg, uint64_t guid),
		      void *arg, struct reg_claim *ret_holder);
/* -ENOENT: nobody's; -EPERM: another VM's; -EBUSY: bound to a VF. */
int registry_release(struct registry *r, uint64_t vguid, const char *vm,
		     struct reg_claim *ret_holder);

/* 0, -ENOENT, -EIO. */
int registry_claim_find(struct registry *r, uint64_t vguid, struct reg_claim *ret_claim);
int registry_each_claim(struct registry *r, void (*fn)(void *arg, const struct reg_claim *c),
			void *arg);

#endif
