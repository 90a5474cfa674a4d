/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mark of a host that is drained: no VM with a VF migrates to it, starts or is restored there,
 * until an operator ends that. It is in the journal, so it outlives the daemon. */
#ifndef IBVMIG_DAEMON_FLEET_DRAINED_H
#define IBVMIG_DAEMON_FLEET_DRAINED_H

#include <json-c/json.h>
#include <stdbool.h>

struct daemon;
struct http_request;
struct job;

/* Reads the mark of the journal. */
void drained_load(struct daemon *d);
/* "drained" and, if it is, "drained_since_ms". */
void drained_tell(const struct daemon *d, struct json_object *o);
/* A worker: sets or ends the mark of the host at url. 0, or j's -errno and error. */
int drained_set(struct job *j, const char *host, const char *url, bool drained);

/* Routes. POST /v1/peer/drained {"drained"} → {}: who drains → the host. POST
 * /v1/hosts/NAME/undrain → {}: ends the mark of that host, this one or a peer. */
void drained_on_set(struct http_request *req);
void drained_post_undrain(struct http_request *req);

#endif
