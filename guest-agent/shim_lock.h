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

/* The pointer p, of which the compiler does not know that it was made from another one: so it keeps
 * one base address in a register and not several, which would have to be saved. */
#define shortest_base(p)                                                                           \
	({                                                                                         \
		__typeof__(p) base_ = (p);                                                         \
		__asm__("" : "+r"(base_));                                                         \
		base_;                                                                             \
	})

struct shim_lock {
	_Atomic(uint32_t) word; /* LOCK_FREE, ... */
};

enum { LOCK_FREE, LOCK_TAKEN, LOCK_WANTED };

/* After lock_try() has failed. */
void lock_wait(struct shim_lock *l);
/* Not for use outside of this header. Returns rc. */
int lock_wake(struct shim_lock *l, int rc);

static inline bool lock_try(struct shim_lock *l)
{
	uint32_t free = LOCK_FREE;

	return likely(atomic_compare_exchange_strong_explicit(
		&l->word, &free, LOCK_TAKEN, memory_order_acquire, memory_order_relaxed));
}

static inline void lock_take(struct shim_lock *l)
{
	if (unlikely(!lock_try(l)))
		lock_wait(l);
}

/* For the end of a function that returns rc, which then needs not be saved from the call. */
static inline int lock_give_return(struct shim_lock *l, int rc)
{
	if (unlikely(atomic_fetch_sub_explicit(&l->word, 1, memory_order_release) != LOCK_TAKEN))
		return lock_wake(l, rc);
	return rc;
}

static inline void lock_give(struct shim_lock *l)
{
	lock_give_return(l, 0);
}

#endif
