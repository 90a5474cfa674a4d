/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocking calls (libvirt, HTTP clients, provider programs) leave the event loop through here:
 * run() executes in a worker thread, done() afterwards in the loop's thread. State that the loop
 * owns is touched in done() only. */
#ifndef IBVMIG_COMMON_WORK_H
#define IBVMIG_COMMON_WORK_H

#include <stddef.h>
#include <systemd/sd-event.h>

struct work_pool;

/* threads: 1 to 64; they start on demand. 0 or -errno. */
int work_pool_new(sd_event *loop, unsigned threads, struct work_pool **ret_pool);

/* The workers end what they run; done() of work that has not run is not called. */
void work_pool_free(struct work_pool *p);

/* Both functions get arg, which belongs to the work from here on and is done()'s to free.
 * 0, or -ENOMEM, or -EAGAIN where not even the first thread can be started (nothing is called
 * then). */
int work_submit(struct work_pool *p, void (*run)(void *arg), void (*done)(void *arg), void *arg);

#define WORK_EACH_MAX 16

/* In a worker: calls each(arg, 0) to each(arg, n - 1), n at most WORK_EACH_MAX, and waits for them.
 * The calls run at once in threads of their own, or one after the other where there can be none. */
void work_each(size_t n, void (*each)(void *arg, size_t i), void *arg);

#endif
