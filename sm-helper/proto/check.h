/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bounds of a request, checked before anything is done. Pure: used by the plugin and its tests. */
#ifndef IBVMIG_SM_HELPER_PROTO_CHECK_H
#define IBVMIG_SM_HELPER_PROTO_CHECK_H

#include "sm-helper/proto/plugin.h"

#include <stddef.h>

/* packet: `bytes` bytes as received. Version, length, and for an assign batch also its numbers:
 * no GUID of 0, no place, GUID or LID twice. 0, -EPROTO or -EINVAL with one line in reason. */
int proto_check_request(const void *packet, size_t bytes, char reason[static SM_REASON_MAX]);

#endif
