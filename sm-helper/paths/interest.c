/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/paths/interest.h"
#include "common/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS ((size_t)1 << 16)
#define NONE    UINT32_MAX

struct record {
	struct path_key key;
	struct path_value value;
	uint32_t next; /* of its bucket, or of the free ones */
	uint16_t host;
	bool used, doubted;
};

struct host {
	char *name; /* owned */
	bool lost;
};

struct interest {
	pthread_mutex_t lock;  /* guards all below */
	struct record *record; /* owned */
	size_t room;
	uint32_t free; /* first free record, or NONE */
	uint32_t bucket[BUCKETS];
	struct host *host; /* owned */
	size_t hosts;
	uint64_t pass;
	struct interest_counts count;
};

struct interest *interest_new(void)
{
	struct interest *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	pthread_mutex_init(&i->lock, NULL);
	i->free = NONE;
	memset(i->bucket, 0xff, sizeof i->bucket);
	return i;
}

void interest_free(struct interest *i)
{
	if (!i)
		return;
	for (size_t k = 0; k < i->hosts; k++)
		free(i->host[k].name);
	free(i->host);
	free(i->record);
	pthread_mutex_destroy(&i->lock);
	free(i);
}

static uint32_t *bucket_of(struct interest *i, const struct path_key *k)
{
	uint64_t h = (k->sguid ^ k->sguid >> 32) * 0x9e3779b97f4a7c15ull;

	h = (h ^ h >> 29) + k->dguid * 0xff51afd7ed558ccdull + k->pkey;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
	return &i->bucket[h >> 40 & (BUCKETS - 1)];
}

static bool same(const struct path_key *a, const struct path_key *b)
{
	return a->sguid == b->sguid && a->dguid == b->dguid && a->pkey == b->pkey;
}

static struct record *find(struct interest *i, const struct path_key *k)
{
	for (uint32_t at = *bucket_of(i, k); at != NONE; at = i->record[at].next)
		if (same(&i->record[at].key, k))
			return &i->record[at];
	return NULL;
}

static int grow(struct interest *i)
{
	size_t room = i->room ? 2 * i->room : 1024;
	struct record *grown = i->room < INTEREST_MAX ? realloc(i->record, room * sizeof *grown)
						      : NULL;

	if (!grown)
		return -ENOMEM;
	i->record = grown;
	memset(grown + i->room, 0, (room - i->room) * sizeof *grown);
	for (size_t k = i->room; k < room; k++)
		grown[k].next = k + 1 < room ? (uint32_t)k + 1 : NONE;
	i->free = (uint32_t)i->room;
	i->room = room;
	return 0;
}

static struct record *add(struct interest *i, const struct path_key *k)
{
	uint32_t *first = bucket_of(i, k), at;

	if (i->free == NONE && grow(i))
		return NULL;
	at = i->free;
	i->free = i->record[at].next;
	i->record[at] = (struct record){.key = *k, .next = *first, .used = true};
	*first = at;
	i->count.records++;
	return &i->record[at];
}

static void drop(struct interest *i, uint32_t at)
{
	uint32_t *link = bucket_of(i, &i->record[at].key);

	while (*link != at)
		link = &i->record[*link].next;
	*link = i->record[at].next;
	i->record[at] = (struct record){.next = i->free};
	i->free = at;
	i->count.records--;
}

/* -1: there is no room for another one. */
static int host_of(struct interest *i, const char *name, bool make)
{
	struct host *grown;

	for (size_t k = 0; k < i->hosts; k++)
		if (!strcmp(i->host[k].name, name))
			return (int)k;
	if (!make || i->hosts >= INTEREST_HOSTS_MAX || strlen(name) >= INTEREST_NAME_MAX ||
	    !(grown = realloc(i->host, (i->hosts + 1) * sizeof *grown)))
		return -1;
	i->host = grown;
	grown[i->hosts] = (struct host){.name = strdup(name)};
	return grown[i->hosts].name ? (int)i->hosts++ : -1;
}

uint64_t interest_pass(struct interest *i)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);

	return i->pass;
}

void interest_begin(struct interest *i)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);

	i->pass++;
}

bool interest_note(struct interest *i, const char *host, uint64_t pass, const struct path_key *k,
		   const struct path_value *v)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);
	int who = pass == i->pass ? host_of(i, host, true) : -1;
	struct record *r = who >= 0 ? find(i, k) : NULL;

	if (who >= 0 && !r)
		r = add(i, k);
	if (!r) {
		i->count.refused++;
		return false;
	}
	r->value = *v;
	r->host = (uint16_t)who;
	r->doubted = false;
	return true;
}

size_t interest_list(struct interest *i, size_t *at, uint64_t sguid, struct path_key *ret_keys,
		     size_t max)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);
	size_t n = 0;

	for (; *at < i->room && n < max; ++*at) {
		const struct record *r = &i->record[*at];

		if (r->used && (!sguid || r->key.sguid == sguid))
			ret_keys[n++] = r->key;
	}
	return n;
}

static bool same_value(const struct path_value *a, const struct path_value *b)
{
	if (a->none || b->none)
		return a->none == b->none;
	return a->dlid == b->dlid && a->slid == b->slid && a->pkey == b->pkey && a->sl == b->sl &&
	       a->mtu == b->mtu && a->rate == b->rate;
}

static enum interest_verdict compare(struct interest *i, const struct path_key *k,
				     const struct path_value *v, const char **ret_host)
{
	struct record *r = find(i, k);

	if (!r)
		return INTEREST_NOBODY;
	if (v && !r->doubted && same_value(&r->value, v))
		return INTEREST_SAME;
	*ret_host = i->host[r->host].name;
	if (!v) {
		drop(i, (uint32_t)(r - i->record));
		return INTEREST_CHANGED;
	}
	r->value = *v;
	r->doubted = false;
	return INTEREST_CHANGED;
}

enum interest_verdict interest_compare(struct interest *i, const struct path_key *k,
				       const struct path_value *v, const char **ret_host)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);

	return compare(i, k, v, ret_host);
}

bool interest_tell(struct interest *i, uint64_t pass, const struct path_key *k,
		   const struct path_value *v)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);
	const char *ignored;

	if (v && pass != i->pass)
		return false;
	compare(i, k, v, &ignored);
	return true;
}

static void each_of(struct interest *i, uint64_t guid, bool doubt)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);

	for (size_t k = 0; k < i->room; k++) {
		struct record *r = &i->record[k];

		if (!r->used || (r->key.sguid != guid && r->key.dguid != guid))
			continue;
		if (doubt)
			r->doubted = true;
		else
			drop(i, (uint32_t)k);
	}
}

void interest_drop(struct interest *i, uint64_t guid)
{
	each_of(i, guid, false);
}

void interest_doubt(struct interest *i, uint64_t guid)
{
	each_of(i, guid, true);
}

void interest_lost(struct interest *i, const char *host)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);
	int who = host_of(i, host, true);

	if (who >= 0)
		i->host[who].lost = true;
}

bool interest_found(struct interest *i, const char *host)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);
	int who = host_of(i, host, false);
	bool lost = who >= 0 && i->host[who].lost;

	if (lost)
		i->host[who].lost = false;
	return lost;
}

struct interest_counts interest_counts(struct interest *i)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&i->lock);

	return i->count;
}
