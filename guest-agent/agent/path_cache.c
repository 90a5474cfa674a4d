/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Open addressing with linear probing; what is removed is closed up, so there are no tombstones and
 * a look-up ends at the first free slot. */
#include "guest-agent/agent/path_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 64u
#define GUID_AT   8 /* the interface id in a GID */

/* Only the interface id of the destination: notices name nothing else. */
static uint32_t home_of(const struct path_cache *c, const uint8_t dguid[8])
{
	uint64_t x;

	memcpy(&x, dguid, sizeof(x));
	/* The finalizer of MurmurHash3: vGUIDs differ in a few bits only. */
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
	return (uint32_t)(x ^ x >> 33) & (c->slots - 1);
}

static bool same_key(const struct path_key *a, const struct path_key *b)
{
	return !memcmp(a->dgid, b->dgid, 16) && !memcmp(a->sguid, b->sguid, 8) &&
	       a->pkey == b->pkey;
}

/* The slot of the key, or the free one where it belongs. There is always a free one. */
static struct path_record *slot_of(const struct path_cache *c, const struct path_key *key)
{
	uint32_t i = home_of(c, key->dgid + GUID_AT);

	while (c->slot[i].used && !same_key(&c->slot[i].key, key))
		i = (i + 1) & (c->slots - 1);
	return &c->slot[i];
}

const struct path_record *path_cache_find(const struct path_cache *c, const struct path_key *key)
{
	const struct path_record *r = c->slots ? slot_of(c, key) : NULL;

	return r && r->used ? r : NULL;
}

const struct path_record *path_cache_at_lid(const struct path_cache *c, const struct path_key *key,
					    uint16_t lid)
{
	for (uint32_t i = 0; i < c->slots; i++) {
		const struct path_record *r = &c->slot[i];

		if (r->used && r->sole && r->dlid == lid && r->key.pkey == key->pkey &&
		    !memcmp(r->key.sguid, key->sguid, sizeof(key->sguid)))
			return r;
	}
	return NULL;
}

/* Closes the gap: a later record moves up unless that would put it before its home. */
static void slot_remove(struct path_cache *c, uint32_t gap)
{
	uint32_t mask = c->slots - 1, i = gap;

	c->count--;
	for (;;) {
		c->slot[gap].used = false;
		do {
			i = (i + 1) & mask;
			if (!c->slot[i].used)
				return;
		} while (((i - home_of(c, c->slot[i].key.dgid + GUID_AT)) & mask) <
			 ((i - gap) & mask));
		c->slot[gap] = c->slot[i];
		gap = i;
	}
}

/* At most three quarters are used, which keeps probes short and PATH_CACHE_MAX within 65,536. */
static bool is_crowded(const struct path_cache *c)
{
	return c->count + 1 > c->slots / 4 * 3;
}

static int grow(struct path_cache *c)
{
	struct path_cache bigger = {.slots = c->slots ? c->slots * 2 : SLOTS_MIN,
				    .count = c->count};

	bigger.slot = calloc(bigger.slots, sizeof(*bigger.slot));
	if (!bigger.slot)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->slot[i].used)
			*slot_of(&bigger, &c->slot[i].key) = c->slot[i];
	free(c->slot);
	*c = bigger;
	return 0;
}

/* Any other one: who needs it asks again. */
static void forget_one(struct path_cache *c)
{
	while (!c->slot[c->hand & (c->slots - 1)].used)
		c->hand++;
	slot_remove(c, c->hand++ & (c->slots - 1));
}

void path_cache_share_lid(struct path_cache *c, const struct path_key *key, uint16_t lid)
{
	for (uint32_t i = 0; i < c->slots; i++) {
		struct path_record *r = &c->slot[i];

		if (r->used && r->dlid == lid && r->key.pkey == key->pkey &&
		    !memcmp(r->key.sguid, key->sguid, sizeof(key->sguid)))
			r->sole = false;
	}
}

int path_cache_put(struct path_cache *c, const struct path_record *r)
{
	struct path_record *slot;

	if (!path_cache_find(c, &r->key)) {
		if (c->count >= PATH_CACHE_MAX)
			forget_one(c);
		else if (is_crowded(c) && grow(c))
			return -ENOMEM;
		c->count++;
	}
	slot = slot_of(c, &r->key);
	*slot = *r;
	slot->used = true;
	return 0;
}

static void to_bytes(uint64_t guid, uint8_t bytes[8])
{
	for (int i = 7; i >= 0; i--, guid >>= 8)
		bytes[i] = (uint8_t)guid;
}

/* True if that makes it another record. */
static bool apply(struct path_record *r, const struct path_change *n)
{
	const struct path_record before = *r;

	if (n->mask & PATH_DLID)
		r->dlid = n->dlid;
	if (n->mask & PATH_SLID)
		r->slid = n->slid;
	if (n->mask & PATH_SL)
		r->sl = n->sl;
	if (n->mask & PATH_MTU)
		r->mtu = n->mtu;
	if (n->mask & PATH_RATE)
		r->rate = n->rate;
	return r->dlid != before.dlid || r->slid != before.slid || r->sl != before.sl ||
	       r->mtu != before.mtu || r->rate != before.rate;
}

unsigned path_cache_change(struct path_cache *c, const struct path_change *change,
			   void (*tell)(void *arg, const struct path_record *r), void *arg)
{
	uint8_t sguid[8], dguid[8];
	unsigned n = 0;

	if (!c->slots)
		return 0;
	to_bytes(change->sguid, sguid);
	to_bytes(change->dguid, dguid);
	for (uint32_t i = home_of(c, dguid); c->slot[i].used;) {
		struct path_record *r = &c->slot[i];
		bool hit = !memcmp(r->key.dgid + GUID_AT, dguid, 8) &&
			   (!change->sguid || !memcmp(r->key.sguid, sguid, 8)) &&
			   (!change->has_pkey || r->key.pkey == change->pkey);

		n += hit;
		if (hit && !change->mask) {
			if (tell)
				tell(arg, r);
			slot_remove(c, i); /* the next one may stand here now */
			continue;
		}
		if (hit && apply(r, change) && tell)
			tell(arg, r);
		i = (i + 1) & (c->slots - 1);
	}
	return n;
}

void path_cache_free(struct path_cache *c)
{
	free(c->slot);
	*c = (struct path_cache){0};
}

size_t path_cache_bytes(const struct path_cache *c)
{
	return c->slots * sizeof(*c->slot);
}
