/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The holders of path records: which host, and with which values it was told. So a fault is told to
 * those alone whose records it changes. A guest's port asks through its host, so a record has one
 * holder at a time. Bounded: what finds no room must not be kept by who asked. Has its own lock. */
#ifndef IBVMIG_SM_HELPER_PATHS_INTEREST_H
#define IBVMIG_SM_HELPER_PATHS_INTEREST_H

#include "sm-helper/paths/table.h"

#define INTEREST_MAX       ((size_t)1 << 18) /* records, 48 bytes each */
#define INTEREST_HOSTS_MAX 65535
#define INTEREST_NAME_MAX  256

struct interest;

/* NULL without memory. */
struct interest *interest_new(void);
void interest_free(struct interest *i);

/* The pass of comparisons that has begun last. */
uint64_t interest_pass(struct interest *i);
/* A pass begins: a record that was looked up before must be noted before, or is refused. */
void interest_begin(struct interest *i);

/* Notes that the host holds this record. False: it must not keep it, for there is no room, or a
 * pass has begun since `pass`, so that the value may be past. */
bool interest_note(struct interest *i, const char *host, uint64_t pass, const struct path_key *k,
		   const struct path_value *v);

/* Keys from *at on, which moves on; of this source only, unless sguid is 0; at most max. 0: the
 * end. */
size_t interest_list(struct interest *i, size_t *at, uint64_t sguid, struct path_key *ret_keys,
		     size_t max);

enum interest_verdict { INTEREST_SAME, INTEREST_CHANGED, INTEREST_NOBODY };

/* Compares a record that is held with what it is now (v NULL: that cannot be told; it is held no
 * more) and keeps that. INTEREST_CHANGED: *ret_host is who holds it, borrowed for good. */
enum interest_verdict interest_compare(struct interest *i, const struct path_key *k,
				       const struct path_value *v, const char **ret_host);

/* Notes what the holder is told outside of the passes; v NULL: as above. False: a pass has begun
 * since `pass`, so that the value may be past. */
bool interest_tell(struct interest *i, uint64_t pass, const struct path_key *k,
		   const struct path_value *v);

/* Drops all records from and to this GUID: they are held no more. */
void interest_drop(struct interest *i, uint64_t guid);
/* Marks them, as told in another way: the next comparison finds them changed. */
void interest_doubt(struct interest *i, uint64_t guid);

/* The host is not reached any more. The next interest_found() says so, once: then it has to be told
 * that it knows nothing for sure. */
void interest_lost(struct interest *i, const char *host);
bool interest_found(struct interest *i, const char *host);

struct interest_counts {
	uint64_t records, refused; /* refused: since the start */
};

struct interest_counts interest_counts(struct interest *i);

#endif
