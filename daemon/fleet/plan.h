/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A plan tells which VM goes where: by what hosts can take, then by what the fabric says that a
 * move costs. Pure. */
#ifndef IBVMIG_DAEMON_FLEET_PLAN_H
#define IBVMIG_DAEMON_FLEET_PLAN_H

#include <json-c/json.h>
#include <stdbool.h>

/* Left to each host beside its VMs. */
#define PLAN_RESERVE_BYTES (256ull << 20)

/* Why this host cannot take the domain, into why ("" if it can). target, domain: of GET /v1/host;
 * a target with "error" has not answered, one with "partitions" has partition_ask()'s answer about
 * the domain's vGUIDs. */
bool plan_fits(struct json_object *target, struct json_object *domain, char *why, size_t bytes);

/* Takes what the domain needs out of target. */
void plan_give(struct json_object *target, struct json_object *domain);

/* Gives each domain of `source` whose name is in `wanted` (an array; NULL: all) the cheapest host
 * of `targets` that still can take it. The result is [{"vm","uuid","memory_bytes","vguids","to",
 * "cost"}], or "to" null and "reason". The biggest VM chooses first. What is given away is taken
 * out of `targets`. ranks: {vguid: {host: {pf: {"switches","smps","load","same_leaf"}}}}; "cost"
 * is that of all VFs of a domain: switches and SMPs summed, the load of the fullest link. A host
 * that has no rank for one of them comes last. Where `wanted` is given, "candidates" has all hosts:
 * {"host","reason","cost"}. Of hosts that cost the same, the one with the fewest VMs of this plan,
 * then that with the most memory. Owned by the caller. */
struct json_object *plan_moves(struct json_object *source, struct json_object *targets,
			       struct json_object *ranks, struct json_object *wanted);

#endif
