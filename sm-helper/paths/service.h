/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records from a cache that is never of another state of the subnet than OpenSM's. A thread
 * watches the plugin's generation, which changes with every sweep and batch. Records that were
 * asked for of late are then read again ahead of the next question. The plugin computes records
 * with the SA's own function; what only the SA can tell (QoS, LMC, foreign prefixes) is asked of
 * it. */
#ifndef IBVMIG_SM_HELPER_PATHS_SERVICE_H
#define IBVMIG_SM_HELPER_PATHS_SERVICE_H

#include "sm-helper/backend/backend.h"
#include "sm-helper/paths/table.h"
#include "sm-helper/fabric/probe.h"

#include <stdatomic.h>

#define PATH_BATCH_MAX 512

struct path_service;

struct path_query {
	struct ib_gid sgid, dgid;
	uint16_t pkey; /* 0: any */
};

struct path_answer {
	int error; /* 0; -ENOENT: no such path; other -errno: cannot be told now */
	struct path_value path;
};

/* Counts since the start. hits + misses: records that were asked for. */
struct path_counts {
	uint64_t hits, misses;
	uint64_t sa_queries; /* misses that went to the SA */
	uint64_t refreshed;  /* read again ahead of a question */
	uint64_t expired;    /* states of the subnet that have passed */
};

/* kind and conf as for backend_new(). probe is borrowed. on false, or a backend that cannot tell
 * changes of the subnet: nothing is kept, each question goes to the SA. 0 or -errno. */
int path_service_new(const struct backend_kind *kind, const struct backend_conf *conf,
		     struct probe *probe, bool on, struct path_service **ret_service);
/* True if records are kept. */
bool path_service_caches(const struct path_service *s);
void path_service_free(struct path_service *s);

/* Looks into the cache only; does not block. Fills ret_answers where known, and says where it is
 * not: error -EAGAIN. Returns how many are not known. */
unsigned path_service_lookup(struct path_service *s, const struct path_query *q, unsigned n,
			     struct path_answer *ret_answers);
/* Answers those that path_service_lookup() left. Blocks. error: the first cause, one line. */
void path_service_fill(struct path_service *s, const struct path_query *q, unsigned n,
		       struct path_answer *answers, char error[static BACKEND_ERROR_MAX]);

/* Prefix of the subnet's GIDs; 0: not known yet. Records of others are of no host (interest.h). */
uint64_t path_service_prefix(struct path_service *s);

/* The subnet has changed just now: what is asked from here on is read anew. */
void path_service_expire(struct path_service *s);
/* Somebody else has seen this state of it, perhaps before our thread: no older one is told. */
void path_service_saw(struct path_service *s, const struct backend_epoch *seen);

struct path_counts path_service_counts(struct path_service *s);

#endif
