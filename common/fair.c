/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/fair.h"

#include <errno.h>
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

/* None of them is empty. */
static struct fair_lane *next_lane(const struct fair *f)
{
	struct fair_lane *least = f->lanes;

	for (struct fair_lane *l = least; l; l = l->next)
		if (l->served < least->served)
			least = l;
	return least;
}

const struct fair_item *fair_peek(const struct fair *f)
{
	const struct fair_lane *l = next_lane(f);

	return l ? l->head : NULL;
}

static void lane_free(struct fair *f, struct fair_lane *lane)
{
	struct fair_lane **at = &f->lanes;

	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	free(lane);
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
	l->head = item->next;
	item->next = NULL;
	if (!l->head)
		lane_free(f, l);
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
