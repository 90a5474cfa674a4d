/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A preview tells what a migration would do if it were asked for now. Hosts, ibvmig-sm and agents
 * are only asked: nothing is leased, prepared or journaled. */
#ifndef IBVMIG_DAEMON_FLEET_PREVIEW_H
#define IBVMIG_DAEMON_FLEET_PREVIEW_H

struct http_request;

/* POST /v1/vms/NAME/migrate with "dry_run": {"to"[,"strategy"]} → 200 {"vm","from","to","possible",
 * "blocked":[why it would be refused],"notes":[…],"memory_bytes","cost","rank_error"}. A VM with a
 * VF adds "choice" (as in a migration's record), "vf", "pf", "vguid", "lid", "pkey", "addresses"
 * and "peers":[{"guid","host","vm","problem"}]. */
void preview_post(struct http_request *req);

#endif
