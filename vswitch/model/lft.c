/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/model/lft.h"
#include "common/ib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u

struct lft_block {
	uint8_t port[IB_LFT_BLOCK];
	uint32_t users;
	uint32_t next; /* in its bucket, or of the free ones */
};

static struct lft_block *block_of(const struct lft_store *s, uint32_t i)
{
	return &s->chunk[i / CHUNK][i % CHUNK];
}

const uint8_t *lft_data(const struct lft_store *s, uint32_t block)
{
	return block_of(s, block)->port;
}

static uint32_t hash(const uint8_t *data)
{
	uint64_t word, h = 0;

	for (unsigned i = 0; i < IB_LFT_BLOCK; i += sizeof word) {
		memcpy(&word, data + i, sizeof word);
		h = (h ^ word) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	return (uint32_t)(h >> 32 ^ h);
}

void lft_clear(struct lft_store *s)
{
	for (uint32_t i = 0; i < s->chunks; i++)
		free(s->chunk[i]);
	free(s->chunk);
	free(s->bucket);
	memset(s, 0, sizeof *s);
}

/* Twice the buckets, once there are four blocks for each. */
static int grow_buckets(struct lft_store *s)
{
	uint32_t n = s->buckets ? s->buckets * 2 : 256;
	uint32_t *bucket = malloc(n * sizeof *bucket);

	if (!bucket)
		return -ENOMEM;
	memset(bucket, 0xff, n * sizeof *bucket);
	for (uint32_t b = 0; b < s->buckets; b++)
		for (uint32_t i = s->bucket[b], next; i != LFT_NONE; i = next) {
			uint32_t *head = &bucket[hash(lft_data(s, i)) % n];

			next = block_of(s, i)->next;
			block_of(s, i)->next = *head;
			*head = i;
		}
	free(s->bucket);
	s->bucket = bucket;
	s->buckets = n;
	return 0;
}

static int grow_chunks(struct lft_store *s)
{
	if (s->chunks == s->chunks_room) {
		uint32_t room = s->chunks_room ? s->chunks_room * 2 : 16;
		struct lft_block **chunk = realloc(s->chunk, room * sizeof *chunk);

		if (!chunk)
			return -ENOMEM;
		s->chunk = chunk;
		s->chunks_room = room;
	}
	s->chunk[s->chunks] = malloc(CHUNK * sizeof **s->chunk);
	if (!s->chunk[s->chunks])
		return -ENOMEM;
	s->chunks++;
	return 0;
}

/* A number for a new block. */
static int take_number(struct lft_store *s, uint32_t *ret_block)
{
	if (s->live < s->made) {
		*ret_block = s->first_free;
		s->first_free = block_of(s, s->first_free)->next;
		return 0;
	}
	if (s->made == s->chunks * CHUNK && grow_chunks(s))
		return -ENOMEM;
	*ret_block = s->made++;
	return 0;
}

int lft_hold(struct lft_store *s, const uint8_t data[64], uint32_t *ret_block)
{
	uint32_t h = hash(data), i;

	if (s->live >= 4 * s->buckets && grow_buckets(s))
		return -ENOMEM;
	for (i = s->bucket[h % s->buckets]; i != LFT_NONE; i = block_of(s, i)->next)
		if (!memcmp(lft_data(s, i), data, IB_LFT_BLOCK)) {
			block_of(s, i)->users++;
			*ret_block = i;
			return 0;
		}
	if (take_number(s, &i))
		return -ENOMEM;
	memcpy(block_of(s, i)->port, data, IB_LFT_BLOCK);
	block_of(s, i)->users = 1;
	block_of(s, i)->next = s->bucket[h % s->buckets];
	s->bucket[h % s->buckets] = i;
	s->live++;
	*ret_block = i;
	return 0;
}

void lft_drop(struct lft_store *s, uint32_t block)
{
	uint32_t *link;

	if (block == LFT_NONE || --block_of(s, block)->users)
		return;
	link = &s->bucket[hash(lft_data(s, block)) % s->buckets];
	while (*link != block)
		link = &block_of(s, *link)->next;
	*link = block_of(s, block)->next;
	block_of(s, block)->next = s->first_free;
	s->first_free = block;
	s->live--;
}

size_t lft_bytes(const struct lft_store *s)
{
	return s->chunks * (CHUNK * sizeof **s->chunk) + s->chunks_room * sizeof *s->chunk +
	       s->buckets * sizeof *s->bucket;
}
