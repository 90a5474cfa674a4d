/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records by (source GUID, destination GUID, partition). The table has a fixed size: a new
 * record takes the place of the one that was asked for the longest ago. Records bear the serial of
 * the subnet's state that they are of; with another serial all are past at once. Not locked. */
#ifndef IBVMIG_SM_HELPER_PATHS_TABLE_H
#define IBVMIG_SM_HELPER_PATHS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATH_TABLE_WAYS 4

struct path_key {
	uint64_t sguid, dguid; /* not 0 */
	uint16_t pkey;         /* 0: any */
};

struct path_value {
	bool none; /* there is no such path */
	uint16_t dlid, slid, pkey;
	uint8_t sl, mtu, rate; /* IBA codes */
};

struct path_table;

/* room: number of records, rounded up to a power of 2, at most 2^24. NULL without memory. */
struct path_table *path_table_new(size_t room);
void path_table_free(struct path_table *t);

/* serial: of the state now, not 0. now_s: any clock in seconds. False: not known. */
bool path_table_get(struct path_table *t, const struct path_key *k, uint32_t serial, uint32_t now_s,
		    struct path_value *ret_value);
void path_table_put(struct path_table *t, const struct path_key *k, uint32_t serial, uint32_t now_s,
		    const struct path_value *v);

/* Keys of records of another serial that were asked for since since_s, from slot *at on, which
 * moves on; at most max. 0: the end. */
size_t path_table_past(const struct path_table *t, uint32_t serial, uint32_t since_s, size_t *at,
		       struct path_key *ret_keys, size_t max);
/* Records of this serial. Walks the whole table. */
size_t path_table_count(const struct path_table *t, uint32_t serial);

#endif
