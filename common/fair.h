/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A queue that many fill, in turn: each key has a lane, and the lane that has had the fewest bytes
 * goes next (start-time fair queueing: Goyal, Vin, Cheng 1996). Order is kept within a lane. A lane
 * that is empty counts for as long as it is ahead of another. */
#ifndef IBVMIG_COMMON_FAIR_H
#define IBVMIG_COMMON_FAIR_H

#include <stddef.h>
#include <stdint.h>

struct fair_lane;

/* The first field of what waits. The queue sets its fields. */
struct fair_item {
	struct fair_item *next;
	size_t bytes;
};

/* Zeroed it is an empty queue. */
struct fair {
	struct fair_lane *lanes; /* owned */
	uint64_t served;         /* what the lane that was last served had had before */
	size_t bytes;            /* of all that waits */
};

/* 0 or -ENOMEM: the item stays the caller's. */
int fair_push(struct fair *f, uint64_t key, struct fair_item *item, size_t bytes);
/* The next one, which stays in the queue; NULL: it is empty. */
const struct fair_item *fair_peek(const struct fair *f);
/* Takes the next one out; NULL: the queue is empty. */
struct fair_item *fair_pop(struct fair *f);
/* Bytes and items of a key that wait. */
size_t fair_bytes(const struct fair *f, uint64_t key);
unsigned fair_count(const struct fair *f, uint64_t key);

#endif
