/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves away from hosts whose link to the fabric is full: proposals only (daemon/fleet/drain.h
 * carries them out). */
#ifndef IBVMIG_DAEMON_FLEET_BALANCE_H
#define IBVMIG_DAEMON_FLEET_BALANCE_H

#include <json-c/json.h>

#define BALANCE_FULL_PERCENT 80     /* share of the link's rate, in either direction */
#define BALANCE_WAIT_PER_S   100000 /* PortXmitWait of the switch port that faces the host */

struct http_request;

/* Pure. links: of ibvmig-sm's GET /v1/loads; hosts: of GET /v1/host, from which what the proposals
 * take is taken out. → {"links":[{"host","pf","mbps","in_mbps","out_mbps","wait_per_s","full":bool,
 * "in_after","out_after"}],"moves":[{"vm","from","to","in_mbps","out_mbps"}]}, owned by the caller.
 * A VM takes the traffic of all its VFs along, to the links of the same PFs, none of which may be
 * full. A move is proposed if afterwards the source's link, and the fullest of those, are less full
 * than the source's is. The best move comes first, until no link is full or nothing helps. */
struct json_object *balance_moves(struct json_object *links, struct json_object *hosts);

/* GET /v1/balance. */
void balance_get(struct http_request *req);

#endif
