/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/fair.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct fair_lane {
	struct fair_lane *next;
	uint64_t key;
	struct fair_item *head, **tail;
	uint64_t served; /* bytes; a new lane begins where the others are */
	size_t bytes;
	unsigned count;
};

static struct fair_lane *lane_find(const struct fair *f, uint64_t key)
{
	struct fair_lane *l = f->lanes;

	while (l && l->key != key)
		l = l->next;
	return l;
}

static struct fair_lane *lane_of(struct fair *f, uint64_t key)
{
	struct fair_lane *l = lane_find(f, key);

	if (l || !(l = calloc(1, sizeof *l)))
		return l;
	l->key = key;
	l->tail = &l->head;
	l->served = f->served;
	l->next = f->lanes;
	f->lanes = l;
	return l;
}

int fair_push(struct fair *f, uint64_t key, struct fair_item *item, size_t bytes)
{
	struct fair_lane *l = lane_of(f, key);

	if (!l)
		return -ENOMEM;
	*item = (struct fair_item){.bytes = bytes};
	*l->tail = item;
	l->tail = &item->next;
	l->bytes += bytes;
	l->count++;
	f->bytes += bytes;
	return 0;
}

/* NULL: all are empty. */
static struct fair_lane *next_lane(const struct fair *f)
{
	struct fair_lane *least = NULL;

	for (struct fair_lane *l = f->lanes; l; l = l->next)
		if (l->head && (!least || l->served < least->served))
			least = l;
	return least;
}

const struct fair_item *fair_peek(const struct fair *f)
{
	const struct fair_lane *l = next_lane(f);

	return l ? l->head : NULL;
}

/* An empty lane is remembered until the others have had as much: whoever has one item at a time
 * waiting would be new, and the next, each time. */
static void forget_lanes(struct fair *f)
{
	bool idle = !next_lane(f);

	for (struct fair_lane **at = &f->lanes; *at;) {
		struct fair_lane *l = *at;

		if (l->head || (!idle && l->served > f->served)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l);
	}
}

struct fair_item *fair_pop(struct fair *f)
{
	struct fair_lane *l = next_lane(f);
	struct fair_item *item = l ? l->head : NULL;

	if (!item)
		return NULL;
	f->served = l->served;
	f->bytes -= item->bytes;
	l->served += item->bytes;
	l->bytes -= item->bytes;
	l->count--;
	if (!(l->head = item->next))
		l->tail = &l->head;
	item->next = NULL;
	forget_lanes(f);
	return item;
}

size_t fair_bytes(const struct fair *f, uint64_t key)
{
	const struct fair_lane *l = lane_find(f, key);

	return l ? l->bytes : 0;
}

unsigned fair_count(const struct fair *f, uint64_t key)
{
	const struct fair_lane *l = lane_find(f, key);

	return l ? l->count : 0;
}
