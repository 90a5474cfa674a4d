/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Virtual ports and partitions, which UFM has beyond a backend's calls. A function returns 0, or
 * -errno as ufm_http_call() does, with one line in error, UFM_ERROR_MAX bytes at most. deadline_us:
 * as there. */
#ifndef IBVMIG_SM_HELPER_BACKEND_UFM_H
#define IBVMIG_SM_HELPER_BACKEND_UFM_H

#include "sm-helper/proto/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ufm; /* backend_self() of a backend of kind backend_ufm */

/* A virtual port as UFM lists it. */
struct ufm_vport {
	uint64_t guid, port_guid; /* port_guid: of the physical port that it is on */
	uint16_t lid;
	uint8_t port;
	bool active;
};

/* *ret_found: how many vports show this GUID; *ret_vport is the last of them, untouched for none.
 */
int ufm_find_vport(struct ufm *u, uint64_t guid, uint64_t deadline_us, struct ufm_vport *ret_vport,
		   unsigned *ret_found, char *error);
/* Lists all vports that are well formed; *ret_list is owned by the caller. */
int ufm_list_vports(struct ufm *u, struct ufm_vport **ret_list, size_t *ret_n, char *error);

/* A partition's word on a GUID. */
struct ufm_member {
	enum sm_member_as as; /* NONE: it is no member */
	bool index0;          /* the P_Key is at index 0 of the port's table */
};

/* Sees to it that the partition lists the GUID. *ret_before: what it said before; *ret_changed: it
 * says something else now, or may after an error. Nothing is done for the default partition, nor
 * without "ufm-pkeys". */
int ufm_join(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us,
	     struct ufm_member *ret_before, bool *ret_changed, char *error);
/* The end of what a join has made: the partition says of the GUID what it did before. */
int ufm_leave(struct ufm *u, uint16_t pkey, uint64_t guid, enum sm_member_as before,
	      uint64_t deadline_us, char *error);
/* True with "ufm-pkeys". */
bool ufm_joins(const struct ufm *u);

#endif
