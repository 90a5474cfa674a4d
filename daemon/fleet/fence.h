/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that is off: ibvmig-sm lets go what a VM has there (docs/openstack.md, "Evacuation"). */
#ifndef IBVMIG_DAEMON_FLEET_FENCE_H
#define IBVMIG_DAEMON_FLEET_FENCE_H

#include "common/http/server.h"

/* POST /v1/vms/UUID/fence {"host"}: the VM need not be here. */
void fence_post(struct http_request *req);

#endif
