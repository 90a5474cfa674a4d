/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lock of the data path: taken and given back in a few instructions, without a call, where
 * nobody else wants it; the others sleep in the kernel. All zero is a free lock. Not recursive. */
#ifndef IBVMIG_SHIM_LOCK_H
#define IBVMIG_SHIM_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct shim_lock {
	_Atomic(uint32_t) word; /* LOCK_FREE, ... */
};

enum { LOCK_FREE, LOCK_TAKEN, LOCK_WANTED };

/* Not for use outside of this header. */
void lock_wait(struct shim_lock *l);
void lock_wake(struct shim_lock *l);

static inline void lock_take(struct shim_lock *l)
{
	uint32_t free = LOCK_FREE;

	if (unlikely(!atomic_compare_exchange_strong_explicit(
		    &l->word, &free, LOCK_TAKEN, memory_order_acquire, memory_order_relaxed)))
		lock_wait(l);
}

static inline void lock_give(struct shim_lock *l)
{
	if (unlikely(atomic_fetch_sub_explicit(&l->word, 1, memory_order_release) != LOCK_TAKEN))
		lock_wake(l);
}

#endif
