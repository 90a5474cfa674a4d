/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/vms/NAME/qps: what the processes of a VM have, as its agent says. */
#ifndef IBVMIG_DAEMON_VM_QPS_H
#define IBVMIG_DAEMON_VM_QPS_H

#include <json-c/json.h>

struct http_request;

void qps_get(struct http_request *req);

/* The agent's answer to `query`, reduced to what we know, in types and bounds that a reader may
 * rely on: the guest is not trusted. Owned by the caller. */
struct json_object *qps_view(struct json_object *answer);

#endif
