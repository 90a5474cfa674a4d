/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host tells what it has, and what it could take: GET /v1/host. Plans of moves are made from
 * that. */
#ifndef IBVMIG_DAEMON_FLEET_CAPACITY_H
#define IBVMIG_DAEMON_FLEET_CAPACITY_H

#include <json-c/json.h>

struct http_request;
struct settings;

/* {"host","memory_bytes","memory_available_bytes","pfs","vfs","domains":[{"uuid","name",
 * "memory_bytes"[,vm_set_vfs()]}]}: the domains that run, with or without VFs. 503 without
 * libvirtd. */
void capacity_get(struct http_request *req);

/* {"host","url"}: a host that can be asked. Owned by the caller. */
struct json_object *capacity_host(const char *name, const char *url);
/* A worker: asks each of hosts ([capacity_host()]) for that, several at once: the silent ones must
 * not add up. → [their answers, in this order; {"host","error"} of one that has none], owned by the
 * caller. */
struct json_object *capacity_ask(struct json_object *hosts);
/* A worker: asks ibvmig-sm what the vGUIDs of these hosts' domains have a right to (those that are
 * named in wanted; NULL: all). The answer of partition_ask() becomes "partitions" of each target.
 */
void capacity_ask_partitions(const struct settings *s, struct json_object *hosts,
			     struct json_object *wanted, struct json_object *targets);

#endif
