/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finds the host of a vGUID or a VM: ibvmig-sm's registry knows it, or, without one, the configured
 * peers do. Blocks: from workers only. Only VMs of other hosts are found; the loop knows its own.
 */
#ifndef IBVMIG_DAEMON_BASE_LOCATE_H
#define IBVMIG_DAEMON_BASE_LOCATE_H

#include "daemon/base/limits.h"

#include <stdint.h>

struct settings;

struct location {
	char host[64], url[256], vm[37], name[VM_NAME_MAX];
};

/* 0; -ENOENT and a line in error if nobody knows it; other errors as they come. */
int locate_guid(const struct settings *s, uint64_t guid, struct location *ret, char *error);
/* By asking every configured peer, whether the VM has its VF or not. */
int locate_vm(const struct settings *s, const char *vm, struct location *ret, char *error);

#endif
