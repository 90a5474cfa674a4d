/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records that a fault, or another rerouting, has changed: ibvmig-sm tells which of our
 * guests' records are others now, or bids us ask; we tell the agents. */
#ifndef IBVMIG_DAEMON_VM_REROUTE_H
#define IBVMIG_DAEMON_VM_REROUTE_H

#include <json-c/json.h>
#include <stdbool.h>

struct daemon;
struct vm;

/* True if a notice of ibvmig-sm's is one of these ("records", "all"). */
bool reroute_is_notice(struct json_object *body);
/* Takes it. 0, or -EINVAL with a line in error (HTTP_ERROR_MAX): nothing was told. */
int reroute_notice(struct daemon *d, struct json_object *body, char *error);

/* An agent has come up, perhaps from another host and late: asks ibvmig-sm for what it holds. */
void reroute_agent_up(struct vm *vm);

#endif
