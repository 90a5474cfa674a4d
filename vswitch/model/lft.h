/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A store of LFT blocks in which equal blocks are one. A vSwitch sends all but its own LIDs to its
 * uplink, so of thousands of them most blocks are the same. Blocks are named by a number and
 * counted by their users. */
#ifndef IBVMIG_VSWITCH_MODEL_LFT_H
#define IBVMIG_VSWITCH_MODEL_LFT_H

#include <stddef.h>
#include <stdint.h>

#define LFT_NONE UINT32_MAX

struct lft_block;

struct lft_store {
	struct lft_block **chunk; /* owned */
	uint32_t *bucket;         /* owned; heads of chains */
	uint32_t chunks, chunks_room, buckets;
	uint32_t made;       /* numbers handed out so far */
	uint32_t live;       /* blocks in use */
	uint32_t first_free; /* chain of those that are not */
};

/* A zeroed store is empty. */
void lft_clear(struct lft_store *s);

/* Adds a user of the block with these entries, and gives its number; -ENOMEM. */
int lft_hold(struct lft_store *s, const uint8_t data[64], uint32_t *ret_block);
/* Takes a user away. LFT_NONE is allowed. */
void lft_drop(struct lft_store *s, uint32_t block);
/* The 64 entries of a block in use, borrowed until its last user drops it. */
const uint8_t *lft_data(const struct lft_store *s, uint32_t block);
/* Bytes that the store has allocated. */
size_t lft_bytes(const struct lft_store *s);

#endif
