/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The path records of a guest, for all its processes: a hash table in one block of memory, by the
 * other end's GID. No I/O, no clock; not locked. */
#ifndef IBVMIG_GUEST_AGENT_AGENT_PATH_CACHE_H
#define IBVMIG_GUEST_AGENT_AGENT_PATH_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A subnet has at most this many unicast LIDs besides our own (IBA 1.4, 4.1.3: 0x0001 to 0xBFFF),
 * and each has one record. */
#define PATH_CACHE_MAX 49150u

/* The key of a path. A path belongs to a partition, since SL and the right to use it may differ.
 * The source counts as well, because the guest may have several ports. */
struct path_key {
	uint8_t dgid[16];
	uint8_t sguid[8]; /* interface id of the source's GID, big-endian */
	uint16_t pkey;    /* without the membership bit; 0: not told */
};

struct path_record {
	struct path_key key;
	uint16_t dlid, slid, pkey; /* pkey: as the subnet manager says, with the membership bit */
	uint16_t mtu;              /* bytes */
	uint8_t sl, rate;          /* rate: IBA code */
	bool sole;                 /* no other port has .dlid: it names this one */
	bool used;                 /* the slot's */
};

/* A notice of a path that has changed; only the fields in mask are new. */
enum path_change_mask { PATH_DLID = 1, PATH_SL = 2, PATH_MTU = 4, PATH_RATE = 8, PATH_SLID = 16 };

struct path_change {
	uint64_t sguid; /* 0: from any port of this guest */
	uint64_t dguid;
	unsigned mask; /* 0: nothing is known but that it is not as it was */
	bool has_pkey; /* false: in whatever partition */
	uint16_t pkey; /* as in struct path_key */
	uint16_t dlid, slid, mtu;
	uint8_t sl, rate;
};

/* An empty cache is all zero. path_cache_free() makes it so again. */
struct path_cache {
	struct path_record *slot; /* owned; a power of two of them */
	uint32_t slots, count, hand;
};

/* Borrowed until the cache changes; NULL: not there. */
const struct path_record *path_cache_find(const struct path_cache *c, const struct path_key *key);
/* The record from that port (key.dgid does not count) whose port has the LID for itself. Borrowed
 * and NULL as above. Looks at all of them. */
const struct path_record *path_cache_at_lid(const struct path_cache *c, const struct path_key *key,
					    uint16_t lid);
/* From that port (key.dgid does not count) nobody is known to have the LID for itself. */
void path_cache_share_lid(struct path_cache *c, const struct path_key *key, uint16_t lid);
/* Adds it or takes the place of the one with its key. A full cache forgets another one. 0, or
 * -ENOMEM: the cache is as before. */
int path_cache_put(struct path_cache *c, const struct path_record *r);
/* Records between these two are brought up to date, or with mask 0 forgotten. How many. One that
 * has become another, or goes, is told, if tell is not NULL. */
unsigned path_cache_change(struct path_cache *c, const struct path_change *change,
			   void (*tell)(void *arg, const struct path_record *r), void *arg);
void path_cache_free(struct path_cache *c);
size_t path_cache_bytes(const struct path_cache *c);

#endif
