/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VFs' devices on the command line of a QEMU that waits for a migration: strategy native, and
 * pre-attach. */
#ifndef IBVMIG_DAEMON_LIBVIRT_DOMAIN_DEVICE_H
#define IBVMIG_DAEMON_LIBVIRT_DOMAIN_DEVICE_H

#include "common/http/client.h"

/* A device to be added; all borrowed. */
struct domain_plug {
	const char *commands; /* the provider's attach commands, JSON text */
	const char *dev_id, *bus;
	const char *leaves_by; /* QMP_PAIR_ID or QMP_LATE_DETACH, so that it can be unplugged while
				* QEMU migrates; NULL: not */
};

/* The domain's XML without what an earlier call has added and with these devices (count 0: none) as
 * arguments of QEMU, in <qemu:commandline>. *ret_xml: owned by the caller; NULL if nothing had to
 * be changed. 0; -EBADMSG: no domain; -EOPNOTSUPP: a command has no counterpart there; with a line
 * in error. */
int domain_with_devices(const char *xml, const struct domain_plug *plugs, unsigned count,
			char **ret_xml, char error[static HTTP_ERROR_MAX]);

#endif
