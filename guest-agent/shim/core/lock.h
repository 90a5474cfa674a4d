/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lock of the data path: taken and given back in a few instructions, without a call, where
 * nobody else wants it; the others sleep in the kernel. All zero is a free lock. Not recursive. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_LOCK_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* The pointer p, of which the compiler does not know that it was made from another one. So the
 * compiler keeps one base address in a register and not several, which would have to be saved. */
#define shortest_base(p)                                                                           \
	({                                                                                         \
		__typeof__(p) base_ = (p);                                                         \
		__asm__("" : "+r"(base_));                                                         \
		base_;                                                                             \
	})

/* Bits of the word. WANTED: somebody may sleep, who gives the lock back wakes one. */
enum { LOCK_FREE = 0, LOCK_TAKEN = 1, LOCK_WANTED = 2 };

struct shim_lock {
	_Atomic(uint32_t) word;
};

/* After lock_missed(). */
void lock_wait(struct shim_lock *l);
/* Wakes a sleeper, and returns rc. Not for use outside of this header. */
int lock_wake(struct shim_lock *l, int rc);

/* Takes it, but where somebody has it. Asked this way round, gcc 12 sees that one instruction does
 * all of it (lock bts). */
static inline bool lock_missed(struct shim_lock *l)
{
	return atomic_fetch_or_explicit(&l->word, LOCK_TAKEN, memory_order_acquire) & LOCK_TAKEN;
}

static inline void lock_take(struct shim_lock *l)
{
	if (unlikely(lock_missed(l)))
		lock_wait(l);
}

/* For the end of a function that returns rc, which then needs not be saved from the call. */
static inline int lock_give_return(struct shim_lock *l, int rc)
{
	if (unlikely(atomic_fetch_sub_explicit(&l->word, LOCK_TAKEN, memory_order_release) !=
		     LOCK_TAKEN))
		return lock_wake(l, rc);
	return rc;
}

static inline void lock_give(struct shim_lock *l)
{
	lock_give_return(l, 0);
}

#endif
