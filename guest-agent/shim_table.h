/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Look-up tables of 24-bit numbers (QPNs, key indices): two levels, so an entry is found with two
 * loads and no hash. Readers take no lock; writers exclude each other. */
#ifndef IBVMIG_SHIM_TABLE_H
#define IBVMIG_SHIM_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_CHUNK_BITS 12
#define TABLE_CHUNK      (1u << TABLE_CHUNK_BITS)
#define TABLE_MAX        (1u << 24)

/* Entries are 64-bit words; 0 means that there is none. */
struct shim_table {
	_Atomic(_Atomic(uint64_t) *) chunk[TABLE_MAX / TABLE_CHUNK];
	unsigned chunks;
};

static inline uint64_t table_get(struct shim_table *t, uint32_t index)
{
	_Atomic(uint64_t) *c;

	if (index >= TABLE_MAX)
		return 0;
	c = atomic_load_explicit(&t->chunk[index >> TABLE_CHUNK_BITS], memory_order_acquire);
	return c ? atomic_load_explicit(&c[index & (TABLE_CHUNK - 1)], memory_order_acquire) : 0;
}

/* 0, -ERANGE, -ENOMEM, or -ENOSPC where the table would need more than max_chunks chunks. */
int table_set(struct shim_table *t, uint32_t index, uint64_t value, unsigned max_chunks);
void table_clear(struct shim_table *t);
void table_free(struct shim_table *t);

/* Memory keys: index << 8 | tag, as HCAs build them, so that a key of a region that is gone does
 * not match the next one at its index. An entry holds tag and the hardware's key. */
#define KEY_NONE 0u /* no HCA gives this key out: index 0 is reserved */

static inline uint64_t key_entry(uint32_t vkey, uint32_t key)
{
	return 1ull << 40 | (uint64_t)(vkey & 0xff) << 32 | key;
}

/* Whether vkey is known; *ret_key is KEY_NONE where it is known to be no key. */
static inline bool key_get(struct shim_table *t, uint32_t vkey, uint32_t *ret_key)
{
	uint64_t e = table_get(t, vkey >> 8);

	if (e >> 32 != (0x100u | (vkey & 0xff)))
		return false;
	*ret_key = (uint32_t)e;
	return true;
}

/* A virtual key for the hardware's key: the same number where that is free in t, so that peers
 * without a shim can use it; else another one. start: where to look, moved on. 0 or -errno. */
int key_alloc(struct shim_table *t, uint32_t key, uint32_t *start, uint32_t *ret_vkey);

#endif
