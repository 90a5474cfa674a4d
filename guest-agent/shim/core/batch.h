/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The same call for many objects, several at a time. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_BATCH_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)
struct shim_batch {
	int (*run)(void *object); /* in any thread; 0 or -errno */
	bool long_calls;          /* worth threads, without a trial */
	void **object;            /* owned */
	size_t count, room;
	_Atomic(size_t) next;
	_Atomic(int) error; /* the first, and whose it was */
	void *failed;
};
void batch_add(struct shim_batch *b, void *object);
/* Runs the call for every object that was added; the batch is empty after it. 0 or the first
 * error. */
int batch_run(struct shim_batch *b);
#pragma GCC visibility pop

#endif
