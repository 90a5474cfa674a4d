/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "guest-agent/shim/core/table.h"

#include <errno.h>
#include <stdlib.h>

int table_set(struct shim_table *t, uint32_t index, uint64_t value, unsigned max_chunks)
{
	_Atomic(uint64_t) *c;

	if (index >= TABLE_MAX)
		return -ERANGE;
	c = atomic_load_explicit(&t->chunk[index >> TABLE_CHUNK_BITS], memory_order_acquire);
	if (!c && !value)
		return 0;
	if (!c) {
		if (t->chunks >= max_chunks)
			return -ENOSPC;
		c = calloc(TABLE_CHUNK, sizeof(*c));
		if (!c)
			return -ENOMEM;
		t->chunks++;
		atomic_store_explicit(&t->chunk[index >> TABLE_CHUNK_BITS], c,
				      memory_order_release);
	}
	atomic_store_explicit(&c[index & (TABLE_CHUNK - 1)], value, memory_order_release);
	return 0;
}

void table_clear(struct shim_table *t)
{
	for (size_t i = 0; i < TABLE_MAX / TABLE_CHUNK; i++) {
		_Atomic(uint64_t) *c = atomic_load(&t->chunk[i]);

		for (size_t k = 0; c && k < TABLE_CHUNK; k++)
			atomic_store_explicit(&c[k], 0, memory_order_release);
	}
}

void table_free(struct shim_table *t)
{
	for (size_t i = 0; i < TABLE_MAX / TABLE_CHUNK; i++)
		free((void *)atomic_exchange(&t->chunk[i], NULL));
	t->chunks = 0;
}

int key_alloc(struct shim_table *t, uint32_t key, uint32_t *start, uint32_t *ret_vkey)
{
	uint32_t vkey = key;
	int rc;

	if (!(key >> 8) || table_get(t, key >> 8)) {
		uint32_t index = *start, left = TABLE_MAX;

		do
			index = index + 1 < TABLE_MAX ? index + 1 : 1;
		while (table_get(t, index) && --left);
		if (!left)
			return -ENOSPC;
		*start = index;
		vkey = index << 8 | (key & 0xff);
	}
	rc = table_set(t, vkey >> 8, key_entry(vkey, key), TABLE_MAX / TABLE_CHUNK);
	if (rc)
		return rc;
	*ret_vkey = vkey;
	return 0;
}
