/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Our own eyes on the fabric: read-only SMPs and SA queries over libibumad. Blocking, from worker
 * threads; one query at a time. Opens the port when it is first needed. */
#ifndef IBVMIG_SM_PROBE_H
#define IBVMIG_SM_PROBE_H

#include "common/ib.h"

#include <stdint.h>

#define PROBE_ERROR_MAX 256

struct probe; /* owned by the caller of probe_new() */

/* ca NULL and port 0: the first port that is active. */
int probe_new(const char *ca, unsigned port, struct probe **ret_probe);
void probe_free(struct probe *m);

/* A directed route as fabric_route() gives it. */
struct probe_route {
	uint8_t path[64];
	int hops;
};

struct probe_path {
	uint16_t dlid, slid, pkey;
	uint8_t sl, mtu, rate; /* mtu, rate: IBA codes */
};

/* All: 0 or -errno with one line in error; -ENODEV when there is no port. */
int probe_own_guid(struct probe *m, uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX]);
int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node_guid,
		    uint64_t *ret_port_guid, char error[static PROBE_ERROR_MAX]);
/* The same to a LID: answers only if the LFTs lead there. */
int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port_guid,
			char error[static PROBE_ERROR_MAX]);
int probe_lft_block(struct probe *m, const struct probe_route *to, unsigned block,
		    uint8_t ret_data[static 64], char error[static PROBE_ERROR_MAX]);
/* PathRecord from the SA at sm_lid (0: the one that our port knows), in a partition (pkey 0: any).
 * -ENOENT: the SA knows no such path; -ETIMEDOUT. */
int probe_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid,
	       const struct ib_gid *dgid, uint16_t pkey, struct probe_path *ret_path,
	       char error[static PROBE_ERROR_MAX]);

#endif
