/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records that have changed: ibvmig-sm tells us (we subscribe, and again every half minute, at
 * the daemon's beat), we tell the agents of our VMs. */
#ifndef IBVMIG_DAEMON_VM_REPATH_H
#define IBVMIG_DAEMON_VM_REPATH_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct http_request;
struct repath;
struct vm;

int repath_new(struct daemon *d, struct repath **ret_repath);
void repath_free(struct repath *r);
/* At each beat: renews the subscription if it is time. */
void repath_beat(struct repath *r);

/* POST /v1/peer/repath */
void repath_on_notice(struct http_request *req);
/* The same without HTTP. 0, or -EINVAL with a line in error (HTTP_ERROR_MAX). */
int repath_notice(struct daemon *d, struct json_object *body, char *error);

/* An agent has just come up, perhaps from another host: it hears what it may have missed. */
void repath_agent_up(struct vm *vm);
/* ibvmig-sm's word on caching has changed: all agents hear of it. */
void repath_tell_caching(struct daemon *d);

/* ibvmig-sm's answer about one vGUID of a batch of moves (an answer that is no batch is about the
 * only one); borrowed, NULL: none. */
struct json_object *repath_move_of(struct json_object *answer, uint64_t vguid);
bool repath_changed(struct json_object *answer);
/* Field `paths` of a resume, from the answer of ibvmig-sm's moves (NULL: none): of the mover with
 * vguids ([GUID…]), and of a peer with these GUIDs. Owned by the caller; NULL: no path has changed.
 */
struct json_object *repath_of_mover(struct json_object *answer, struct json_object *vguids);
struct json_object *repath_of_peer(struct json_object *answer, struct json_object *vguids,
				   struct json_object *peers);

#endif
