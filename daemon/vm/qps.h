/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/vms/NAME/qps: what the processes of a VM have, as its agent says. */
#ifndef IBVMIG_DAEMON_VM_QPS_H
#define IBVMIG_DAEMON_VM_QPS_H

struct http_request;

void qps_get(struct http_request *req);

#endif
