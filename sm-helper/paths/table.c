/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/paths/table.h"

#include <stdlib.h>

#define ROOM_MAX ((size_t)1 << 24)

struct slot {
	struct path_key key;
	struct path_value value;
	uint32_t serial; /* 0: empty */
	uint32_t used_s; /* asked for or filled last */
};

struct path_table {
	struct slot *slot; /* owned; sets of PATH_TABLE_WAYS */
	size_t slots;      /* power of 2 */
};

struct path_table *path_table_new(size_t room)
{
	struct path_table *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	for (t->slots = PATH_TABLE_WAYS; t->slots < room && t->slots < ROOM_MAX;)
		t->slots *= 2;
	t->slot = calloc(t->slots, sizeof *t->slot);
	if (t->slot)
		return t;
	free(t);
	return NULL;
}

void path_table_free(struct path_table *t)
{
	if (t)
		free(t->slot);
	free(t);
}

static bool same_key(const struct path_key *a, const struct path_key *b)
{
	return a->sguid == b->sguid && a->dguid == b->dguid && a->pkey == b->pkey;
}

/* GUIDs of one maker differ in few bits: two rounds of multiply and fold spread them. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

static struct slot *find_set(const struct path_table *t, const struct path_key *k)
{
	uint64_t h = mix(mix(mix(k->sguid) + k->dguid) + k->pkey);

	return t->slot + (h & (t->slots - 1) & ~(size_t)(PATH_TABLE_WAYS - 1));
}

bool path_table_get(struct path_table *t, const struct path_key *k, uint32_t serial, uint32_t now_s,
		    struct path_value *ret_value)
{
	struct slot *s = find_set(t, k);

	for (unsigned i = 0; i < PATH_TABLE_WAYS; i++)
		if (s[i].serial && same_key(&s[i].key, k)) {
			s[i].used_s = now_s; /* also if it is past: it will be asked for again */
			if (s[i].serial != serial)
				return false;
			*ret_value = s[i].value;
			return true;
		}
	return false;
}

/* The key's own slot, an empty one, or that of the record that was used the longest ago. */
static struct slot *find_slot(struct path_table *t, const struct path_key *k)
{
	struct slot *s = find_set(t, k), *best = s;

	for (unsigned i = 0; i < PATH_TABLE_WAYS; i++)
		if (s[i].serial && same_key(&s[i].key, k))
			return &s[i];
	for (unsigned i = 0; i < PATH_TABLE_WAYS; i++) {
		if (!s[i].serial)
			return &s[i];
		if (s[i].used_s < best->used_s)
			best = &s[i];
	}
	return best;
}

void path_table_put(struct path_table *t, const struct path_key *k, uint32_t serial, uint32_t now_s,
		    const struct path_value *v)
{
	struct slot *s = find_slot(t, k);
	bool known = s->serial && same_key(&s->key, k);

	*s = (struct slot){*k, *v, serial, known ? s->used_s : now_s};
}

size_t path_table_past(const struct path_table *t, uint32_t serial, uint32_t since_s, size_t *at,
		       struct path_key *ret_keys, size_t max)
{
	size_t n = 0;

	for (; *at < t->slots && n < max; ++*at) {
		const struct slot *s = &t->slot[*at];

		if (s->serial && s->serial != serial && s->used_s >= since_s)
			ret_keys[n++] = s->key;
	}
	return n;
}

size_t path_table_count(const struct path_table *t, uint32_t serial)
{
	size_t n = 0;

	for (size_t i = 0; i < t->slots; i++)
		n += t->slot[i].serial == serial;
	return n;
}
