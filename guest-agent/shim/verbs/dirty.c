/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The HCA's writes are not seen by the hypervisor's dirty tracking, so the CPU repeats them. Each
 * page that the HCA may have written is written once more, atomically and without a change. That is
 * done when the HCA has let go of the page and before it counts as sent. That is at the end of a
 * suspend, and when the program gives a region back, because a migration may be under way then. The
 * program's threads run meanwhile, and may unmap what is being written: it is the kernel that
 * writes, for which that is an error and no SIGSEGV. */
#include "guest-agent/shim/core/batch.h"
#include "guest-agent/shim/verbs/mr.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES  4096u
#define PIECE_BYTES (4u << 20) /* for one call, and a thread at a time */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Whole pages. */
struct span {
	uintptr_t from, to;
};

struct piece {
	struct span at;
	uint64_t done; /* bytes */
};

/* By the kernel: an atomic OR with 0, in the call that wakes who waits for a futex. Nobody does for
 * the first one, and for this one nobody is woken unless the page begins with 0xfffff800; who waits
 * for a futex has to bear that. */
static bool touch(uintptr_t page)
{
	uint32_t none = 0;

	return syscall(SYS_futex, &none, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0, page,
		       FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x800)) >= 0;
}

/* As far as that goes: the first page that is not written, or the end. */
static uintptr_t touch_all(struct span s)
{
	uintptr_t page = s.from;

	while (page < s.to && touch(page))
		page += PAGE_BYTES;
	return page;
}

/* For a piece that is not simply written. */
struct ways {
	int mem;                /* /proc/self/mem, -1 until it is needed; owned */
	bool asked, old_kernel; /* does not know MADV_POPULATE_WRITE */
};

/* Asked of a page of ours. */
static bool is_old_kernel(struct ways *w)
{
	static char own[2 * PAGE_BYTES];
	uintptr_t page = ((uintptr_t)own + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);

	if (!w->asked)
		w->old_kernel = madvise((void *)page, PAGE_BYTES, MADV_POPULATE_WRITE) != 0;
	w->asked = true;
	return w->old_kernel;
}

/* Memory that the program has made read-only or unreadable since: no thread of it writes there. The
 * memory of devices is refused. */
static bool touch_protected(uintptr_t page, struct ways *w)
{
	char byte;

	if (w->mem < 0)
		w->mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return w->mem >= 0 && pread(w->mem, &byte, 1, (off_t)page) == 1 &&
	       pwrite(w->mem, &byte, 1, (off_t)page) == 1;
}

/* Whatever becomes of each page meanwhile. */
static uint64_t dirty_each(struct span s, struct ways *w)
{
	uint64_t done = 0;

	for (uintptr_t page = s.from; page < s.to; page += PAGE_BYTES)
		if (touch(page) || touch_protected(page, w))
			done += PAGE_BYTES;
	return done;
}

/* The program may have unmapped or protected part of a region that it still has registered. A piece
 * that cannot be made writable as a whole is looked at in ever smaller ones. EINVAL says that it is
 * protected, or of a device, or that the kernel does not know the advice. Bytes that were written.
 */
static uint64_t dirty_in_parts(struct span s, struct ways *w)
{
	size_t pages = (s.to - s.from) / PAGE_BYTES;
	uintptr_t middle = s.from + pages / 2 * PAGE_BYTES;
	int error;

	if (!madvise((void *)s.from, s.to - s.from, MADV_POPULATE_WRITE))
		return dirty_each(s, w);
	error = errno;
	if (error == EINVAL && is_old_kernel(w))
		return dirty_each(s, w);
	if (pages == 1)
		return error == EINVAL && touch_protected(s.from, w) ? PAGE_BYTES : 0;
	return dirty_in_parts((struct span){s.from, middle}, w) +
	       dirty_in_parts((struct span){middle, s.to}, w);
}

static uint64_t dirty_span(struct span s, struct ways *w)
{
	uintptr_t stopped = touch_all(s);
	uint64_t done = stopped - s.from;

	return stopped == s.to ? done : done + dirty_in_parts((struct span){stopped, s.to}, w);
}

static int dirty_piece(void *object)
{
	struct ways w = {.mem = -1};
	struct piece *p = object;

	p->done = dirty_span(p->at, &w);
	if (w.mem >= 0)
		close(w.mem);
	return 0;
}

/* Empty where the HCA writes nothing. */
static struct span span_of(const struct shim_mr *m)
{
	uintptr_t from = (uintptr_t)m->v.addr & ~(uintptr_t)(PAGE_BYTES - 1);
	uintptr_t to = ((uintptr_t)m->v.addr + m->v.length + PAGE_BYTES - 1) &
		       ~(uintptr_t)(PAGE_BYTES - 1);
	unsigned writing = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;
	/* memory on demand refuses the migration, and may be all that there is */
	bool writes = m->access & writing && !(m->access & IBV_ACCESS_ON_DEMAND);

	return writes && m->v.length && to > from ? (struct span){from, to} : (struct span){0};
}

/* The next of a span that ends at end, from where the last one ended: false where there is none. */
static bool next_piece(struct span *at, uintptr_t end)
{
	at->to = end - at->from < PIECE_BYTES ? end : at->from + PIECE_BYTES;
	return at->from < end;
}

static uint64_t dirty_now(struct span s)
{
	struct piece piece = {.at.from = s.from};
	uint64_t done = 0;

	for (; next_piece(&piece.at, s.to); piece.at.from = piece.at.to) {
		dirty_piece(&piece);
		done += piece.done;
	}
	return done;
}

uint64_t dirty_region(const struct shim_mr *m)
{
	return shim.fault & SHIM_FAULT_NO_DIRTYING ? 0 : dirty_now(span_of(m));
}

static int by_address(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

/* Sorts n spans and joins those that touch or overlap. How many are left. */
static size_t join(struct span *s, size_t n)
{
	size_t last = 0;

	qsort(s, n, sizeof(*s), by_address);
	for (size_t i = 1; i < n; i++) {
		if (s[i].from > s[last].to)
			s[++last] = s[i];
		else if (s[i].to > s[last].to)
			s[last].to = s[i].to;
	}
	return n ? last + 1 : 0;
}

/* By several threads where that is worth it. */
static uint64_t dirty_all(const struct span *s, size_t n)
{
	struct shim_batch batch = {.run = dirty_piece};
	struct piece *pieces AUTO_FREE = NULL;
	size_t count = 0, last = 0;
	uint64_t done = 0;

	for (size_t i = 0; i < n; i++)
		count += (s[i].to - s[i].from + PIECE_BYTES - 1) / PIECE_BYTES;
	pieces = calloc(count, sizeof(*pieces));
	for (size_t i = 0; i < n; i++) {
		struct span at = {.from = s[i].from};

		if (!pieces)
			done += dirty_now(s[i]);
		for (; pieces && next_piece(&at, s[i].to); at.from = at.to) {
			pieces[last].at = at;
			batch_add(&batch, &pieces[last++]);
		}
	}
	batch_run(&batch);
	for (size_t i = 0; i < last; i++)
		done += pieces[i].done;
	return done;
}

uint64_t dirty_job(void)
{
	struct span *spans AUTO_FREE = NULL;
	size_t regions = 0, n = 0;
	uint64_t done = 0;
	struct shim_mr *m;

	if (shim.fault & SHIM_FAULT_NO_DIRTYING)
		return 0;
	list_for_each (m, &shim.mrs, link)
		regions += m->pd->ctx->in_job;
	spans = calloc(regions, sizeof(*spans));
	list_for_each (m, &shim.mrs, link) {
		if (!m->pd->ctx->in_job)
			continue;
		if (!spans) { /* no memory: those that overlap are written more than once */
			done += dirty_region(m);
			continue;
		}
		spans[n] = span_of(m);
		n += spans[n].to != 0;
	}
	return spans ? dirty_all(spans, join(spans, n)) : done;
}
