/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Regions in a suspend and a resume, in the helper thread. One that cannot be registered again is
 * found before anything is given back. A program that unmaps memory after that (ibv_dereg_mr waits
 * by then) cannot be told any more: its region is gone, all use of it fails. */
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/core/batch.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/maps.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAPS       "/proc/self/maps"
#define LONG_BYTES (16u << 20) /* to pin them takes longer than to start threads */

/* Before it is chosen which contexts are in the job. */
static bool will_go(const struct shim_mr *m)
{
	return m->real && context_has_guid(m->pd->ctx, &job.order, NULL);
}

static bool any_will_go(void)
{
	struct shim_mr *m;

	list_for_each (m, &shim.mrs, link)
		if (will_go(m))
			return true;
	return false;
}

static struct shim_mr *first_lost(struct shim_maps *maps, enum maps_lost *ret_how,
				  uintptr_t *ret_at)
{
	struct shim_mr *m;

	list_for_each (m, &shim.mrs, link) {
		if (!will_go(m))
			continue;
		*ret_how = maps_lost(maps, m, ret_at);
		if (*ret_how != MAPS_THERE)
			return m;
	}
	return NULL;
}

/* A region that is missing after the wait is the program's fault. */
static int say_lost(const struct shim_mr *m, enum maps_lost how, uintptr_t at)
{
	const char *what = how == MAPS_UNMAPPED ? "mapped" : "writable";

	if (now_us() >= job.lost_until_us) {
		job_fail(-EFAULT,
			 "the region of %zu bytes at %p cannot be registered again: %p is not %s "
			 "any more: deregister it or end the program",
			 m->v.length, m->v.addr, (void *)at, what);
		return -EFAULT;
	}
	if (!job.lost_told)
		shim_log("the region of %zu bytes at %p is to be deregistered: %p is not %s any "
			 "more; the suspend waits for it",
			 m->v.length, m->v.addr, (void *)at, what);
	job.lost_told = true;
	return -EAGAIN;
}

int regions_check(void)
{
	struct shim_maps maps = {0};
	enum maps_lost how;
	struct shim_mr *m;
	uintptr_t at;
	int rc;

	if (job.role != SHIM_ROLE_MOVER || !any_will_go())
		return 0;
	rc = maps_read(&maps, MAPS);
	/* A process without /proc is not refused for it: the resume will tell. */
	if (rc)
		shim_log(MAPS ": %s: regions are not looked at", strerror(-rc));
	m = rc ? NULL : first_lost(&maps, &how, &at);
	maps_free(&maps);
	return m ? say_lost(m, how, at) : 0;
}

static int build_region(void *object)
{
	return mr_register(object);
}

/* Regions that the program has unmapped meanwhile are gone. Every other one must be there, else
 * -errno. A region that is there now may not have been a moment ago, and is tried again. */
static int give_up_lost(int error)
{
	struct shim_mr *m, *first = NULL;
	struct shim_maps maps = {0};
	uintptr_t at;
	unsigned n = 0;
	int rc = maps_read(&maps, MAPS) ? error : 0;

	list_for_each (m, &shim.mrs, link) {
		if (rc || !m->pd->ctx->in_job || m->real || m->gone)
			continue;
		if (maps_lost(&maps, m, &at) == MAPS_THERE) {
			error = mr_register(m);
			if (!error)
				continue;
			job_fail(error, "the region of %zu bytes at %p cannot be registered: %s",
				 m->v.length, m->v.addr, strerror(-error));
			rc = error;
			continue;
		}
		mr_give_up(m);
		first = first ? first : m;
		n++;
	}
	maps_free(&maps);
	if (first)
		shim_log("%u regions (first: %zu bytes at %p) are not registered again, as their "
			 "memory has been unmapped or protected: their use fails",
			 n, first->v.length, first->v.addr);
	return rc;
}

static int by_length(const void *a, const void *b)
{
	const struct shim_mr *const *x = a, *const *y = b;

	return ((*x)->v.length < (*y)->v.length) - ((*x)->v.length > (*y)->v.length);
}

/* The largest first: one that is begun last is waited for when all others are done. */
int regions_rebuild(void)
{
	struct shim_batch batch = {.run = build_region};
	struct shim_mr *m;
	size_t bytes = 0;
	int rc;

	list_for_each (m, &shim.mrs, link) {
		if (!m->pd->ctx->in_job || m->real || m->gone)
			continue;
		batch_add(&batch, m);
		bytes += m->v.length;
	}
	batch.long_calls = bytes >= LONG_BYTES;
	if (batch.count)
		qsort(batch.object, batch.count, sizeof(*batch.object), by_length);
	rc = batch_run(&batch);
	return rc ? give_up_lost(rc) : 0;
}
