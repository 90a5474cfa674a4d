/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Backend "none": a fabric whose subnet manager we have no access to. Nothing is bound or moved;
 * the registry can be read, and path queries go to the SA. */
#include "sm-helper/backend/backend.h"

#include <errno.h>
#include <stdio.h>

static int none_status(void *self, struct sm_status_reply *ret_status, char *error)
{
	(void)self;
	(void)ret_status;
	snprintf(error, BACKEND_ERROR_MAX,
		 "backend none: no access to the subnet manager, so no address can be bound or "
		 "moved; set \"backend\" in ibvmig-sm's configuration");
	return -ECONNREFUSED;
}

const struct backend_kind backend_none = {
	.name = "none",
	.status = none_status,
};
