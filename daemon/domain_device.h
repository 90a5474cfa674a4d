/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VF's device on the command line of a QEMU that waits for a migration: strategy native. */
#ifndef IBVMIG_DAEMON_DOMAIN_DEVICE_H
#define IBVMIG_DAEMON_DOMAIN_DEVICE_H

#include "common/http_client.h"

/* The domain's XML without what an earlier call has added and, unless commands is NULL, with the
 * attach commands of a provider (JSON text) as arguments of QEMU, in <qemu:commandline>. *ret_xml:
 * owned by the caller; NULL if nothing had to be changed. 0; -EBADMSG: no domain; -EOPNOTSUPP: a
 * command has no counterpart there; with a line in error. */
int domain_with_device(const char *xml, const char *commands, const char *dev_id, const char *bus,
		       char **ret_xml, char error[static HTTP_ERROR_MAX]);

#endif
