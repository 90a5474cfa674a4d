/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory regions, what their pages hold, and thread and parent domains. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_MR_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_MR_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
int mr_register(struct shim_mr *m);
/* The region has no memory any more: every use of it fails. */
void mr_give_up(struct shim_mr *m);
/* Under ctl: its device is closed, and it is left behind. */
void mr_leave(struct shim_mr *m);

/* verbs/dirty.c: writes each page that the HCA may have written, without changing it. Bytes.
 * What is no longer mapped is left out. */
uint64_t dirty_region(const struct shim_mr *m);
/* The same for all contexts that take part in the job; pages that are in several regions once. */
uint64_t dirty_job(void);

/* verbs/domain.c */
struct ibv_td *shim_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init);
int shim_dealloc_td(struct ibv_td *td);
struct ibv_pd *shim_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *init);
void parent_domain_free(struct shim_pd *pd);
#pragma GCC visibility pop

#endif
