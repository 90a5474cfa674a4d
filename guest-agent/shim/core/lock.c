/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of the lock that is seldom needed: two threads at one queue. */
#include "guest-agent/shim/core/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel looks at the word itself, so a wake-up between our look and the sleep is not lost. */
static void futex(struct shim_lock *l, int op, uint32_t value)
{
	int saved = errno; /* the program's, which may be in the middle of something */

	syscall(SYS_futex, &l->word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
	errno = saved;
}

/* A thread that has slept takes the lock as wanted: others may sleep, too, and one wake-up too many
 * does no harm. */
__attribute__((noinline, cold)) void lock_wait(struct shim_lock *l)
{
	const uint32_t wanted = LOCK_TAKEN | LOCK_WANTED;

	while (atomic_exchange_explicit(&l->word, wanted, memory_order_acquire) & LOCK_TAKEN)
		futex(l, FUTEX_WAIT, wanted);
}

__attribute__((noinline, cold)) int lock_wake(struct shim_lock *l, int rc)
{
	uint32_t wanted = LOCK_WANTED;

	/* The lock is free by now. A thread that has taken it since wakes a sleeper in our place.
	 */
	if (atomic_compare_exchange_strong_explicit(&l->word, &wanted, LOCK_FREE,
						    memory_order_relaxed, memory_order_relaxed))
		futex(l, FUTEX_WAKE, 1);
	return rc;
}
