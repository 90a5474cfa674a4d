/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Look-up tables of 24-bit numbers (QPNs, key indices): two levels, so an entry is found with two
 * loads and no hash. Readers take no lock; writers exclude each other. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_CORE_TABLE_H
#define IBVMIG_GUEST_AGENT_SHIM_CORE_TABLE_H

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

/* The place of the entry, which stays the same until table_free(). NULL: there was no entry so far.
 */
static inline _Atomic(uint64_t) *table_entry(struct shim_table *t, uint32_t index)
{
	_Atomic(uint64_t) *c;

	if (index >= TABLE_MAX)
		return NULL;
	c = atomic_load_explicit(&t->chunk[index >> TABLE_CHUNK_BITS], memory_order_acquire);
	return c ? &c[index & (TABLE_CHUNK - 1)] : NULL;
}

static inline uint64_t table_get(struct shim_table *t, uint32_t index)
{
	_Atomic(uint64_t) *e = table_entry(t, index);

	return e ? atomic_load_explicit(e, memory_order_acquire) : 0;
}

/* 0, -ERANGE, -ENOMEM, or -ENOSPC where the table would need more than max_chunks chunks. */
int table_set(struct shim_table *t, uint32_t index, uint64_t value, unsigned max_chunks);
void table_clear(struct shim_table *t);
void table_free(struct shim_table *t);

/* Memory keys: index << 8 | tag, as HCAs build them, so that a key of a region that is gone does
 * not match the next one at its index. An entry holds the virtual key and the hardware's. */
#define KEY_NONE 0u /* no HCA gives this key out: index 0 is reserved */

static inline uint64_t key_entry(uint32_t vkey, uint32_t key)
{
	return (uint64_t)vkey << 32 | key;
}

/* True if vkey is known; *ret_key is KEY_NONE where it is known to be no key. */
static inline bool key_get(struct shim_table *t, uint32_t vkey, uint32_t *ret_key)
{
	uint64_t e = table_get(t, vkey >> 8);

	if (!e || e >> 32 != vkey)
		return false;
	*ret_key = (uint32_t)e;
	return true;
}

/* A virtual key for the hardware's key: the same number where that is free in t, so that peers
 * without a shim can use it; else another one. The search begins at *start, which moves on. Returns
 * 0 or -errno. */
int key_alloc(struct shim_table *t, uint32_t key, uint32_t *start, uint32_t *ret_vkey);

#endif
