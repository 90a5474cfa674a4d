/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Virtual ports and partitions, which UFM has beyond a backend's calls. A function returns 0, or
 * -errno as ufm_http_call() does, with one line in error, UFM_ERROR_MAX bytes at most. deadline_us:
 * as there. */
#ifndef IBVMIG_SM_HELPER_BACKEND_UFM_H
#define IBVMIG_SM_HELPER_BACKEND_UFM_H

#include <stdbool.h>
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
/* Sees to it that the partition lists the GUID, or no longer does. Nothing is done for the default
 * partition, nor without "ufm-pkeys". */
int ufm_join(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us, char *error);
int ufm_leave(struct ufm *u, uint16_t pkey, uint64_t guid, uint64_t deadline_us, char *error);
/* True with "ufm-pkeys". */
bool ufm_joins(const struct ufm *u);

#endif
