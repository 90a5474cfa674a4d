/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The strategy of a migration is chosen by base/strategy.c; the facts for that are gathered here,
 * at the source. */
#ifndef IBVMIG_DAEMON_MIGRATE_CHOICE_H
#define IBVMIG_DAEMON_MIGRATE_CHOICE_H

#include "daemon/base/strategy.h"

#include <stdbool.h>

struct json_object;
struct migration;
struct vm;

/* The facts of vm here. query: the agent's answer, or NULL without one; the facts borrow from it.
 */
void choice_facts(struct vm *vm, struct json_object *query, struct strategy_facts *ret_facts);
/* The first thing in the agent's answer that keeps QPs from being moved, as one line; "" where
 * nothing does. */
void choice_uncovered(struct json_object *query, char *why, unsigned bytes);
/* PREPARE: sets m->strategy and the record's "choice"; facts.state_there is set from m. 0, or
 * -ENOTSUP with m's reason. */
int choice_make(struct migration *m, struct strategy_facts *facts);
/* QUIESCE, query being the agent's answer of now: 0, or -EBUSY with m's reason, where somebody in
 * the guest's kernel has begun to use the VF since PREPARE. */
int choice_still_fits(struct migration *m, struct json_object *query);
/* HOLD: QEMU may switch to post-copy. 0: the strategy fits that now; or -ENOTSUP with m's
 * reason. */
int choice_for_post_copy(struct migration *m);

#endif
