/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages between agents, by GID, over the daemons of their hosts. Order between two GIDs is
 * kept: one call at a time is under way to a host, and what waits goes with the next one. Limits
 * are each VM's own, and who waits is served in turn, so a guest that floods delays nobody else. */
#ifndef IBVMIG_DAEMON_VM_RELAY_H
#define IBVMIG_DAEMON_VM_RELAY_H

#include <json-c/json.h>
#include <stdint.h>

#define RELAY_BODY_MAX     (256u << 10) /* bytes, decoded */
#define RELAY_QUEUE_MAX    1024         /* messages of one VM that wait, wherever they go */
#define RELAY_QUEUE_BYTES  (4u << 20)   /* of these */
#define RELAY_ROUTES_MAX   4096         /* then the one that has not been used for longest goes */
#define RELAY_LOOKUPS_MAX  16           /* GIDs that are being looked up */
#define RELAY_LOOKUPS_EACH 4            /* of these, for messages of one VM */
#define RELAY_ASKED_MAX    256          /* for one VM, with those that are to be looked up */
#define RELAY_BATCH_BYTES  (640u << 10) /* text in one call; below HTTP_BODY_MAX */

struct daemon;
struct relay;
struct vm;
struct http_request;

int relay_new(struct daemon *d, struct relay **ret_relay);
void relay_free(struct relay *r);

/* A guest's message: checked, then sent on its way. */
void relay_from_guest(struct relay *r, struct vm *vm, struct json_object *msg);
/* POST /v1/peer/relay */
void relay_receive(struct http_request *req);
/* The VM with this vGUID is on the host at url now. */
void relay_set_route(struct relay *r, uint64_t guid, const char *url);

#endif
