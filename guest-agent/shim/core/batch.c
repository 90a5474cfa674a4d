/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The same call for many objects, several at a time. Verbs that set up hardware mostly wait for its
 * firmware, and the kernel lets calls for different objects run side by side. The threads live as
 * long as there is work and no longer. */
#include "guest-agent/shim/core/batch.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/util.h"

#define THREADS_MAX 4    /* with the caller's own */
#define TRIAL       8    /* calls that show what the others will take, */
#define TRIAL_US    200  /* or fewer, where they take so long */
#define WORTH_US    1000 /* for each thread: with less work, starting it costs too much */
#define ROOM_MIN    64

static void run_one(struct shim_batch *b, void *object)
{
	int rc = b->run(object), none = 0;

	if (rc && atomic_compare_exchange_strong(&b->error, &none, rc))
		b->failed = object;
}

/* Without memory there is no list, and the call is made now. */
void batch_add(struct shim_batch *b, void *object)
{
	size_t room = b->room ? b->room * 2 : ROOM_MIN;
	void **grown;

	if (b->count == b->room) {
		grown = realloc(b->object, room * sizeof(*grown));
		if (!grown) {
			run_one(b, object);
			return;
		}
		b->object = grown;
		b->room = room;
	}
	b->object[b->count++] = object;
}

static void *work(void *arg)
{
	struct shim_batch *b = arg;
	size_t i;

	while ((i = atomic_fetch_add(&b->next, 1)) < b->count)
		run_one(b, b->object[i]);
	return NULL;
}

/* How many threads the rest is worth, after some calls in this one. */
static uint64_t threads_for(struct shim_batch *b)
{
	uint64_t start = now_us(), spent = 0;
	size_t n = 0;

	if (b->long_calls)
		return b->count;
	while (n < b->count && n < TRIAL && spent < TRIAL_US) {
		run_one(b, b->object[n++]);
		spent = now_us() - start;
	}
	atomic_store(&b->next, n);
	return n ? spent * (b->count - n) / n / WORTH_US : 0;
}

/* The threads inherit the helper's mask: the program's signals do not get there. */
int batch_run(struct shim_batch *b)
{
	uint64_t wanted = threads_for(b);
	pthread_t thread[THREADS_MAX - 1];
	unsigned n = 0;

	while (n < ARRAY_SIZE(thread) && n + 1 < wanted &&
	       !pthread_create(&thread[n], NULL, work, b))
		n++;
	work(b);
	while (n)
		pthread_join(thread[--n], NULL);
	free(TAKE(b->object));
	b->count = b->room = 0;
	return atomic_load(&b->error);
}
