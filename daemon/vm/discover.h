/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VMs of this host that ask for a VF: how they are found, and what libvirt tells of them. */
#ifndef IBVMIG_DAEMON_VM_DISCOVER_H
#define IBVMIG_DAEMON_VM_DISCOVER_H

#include "daemon/libvirt/virt.h"

#include <stdbool.h>

struct daemon;

extern const struct virt_ops vm_virt_ops;

/* At each beat. VMs that have ended unheard are missing in libvirt's list, for an event may be lost
 * with a connection. What libvirt has refused to tell is asked again. */
void vm_beat(struct daemon *d);

/* True while libvirt has not told what that running VM has. */
bool vm_is_unseen(const struct daemon *d, const char *uuid);

/* Looks at a running domain, and gives it its VFs if it asks for any; incoming: its QEMU waits for
 * a migration. */
void vm_discover(struct daemon *d, const char *uuid, const char *name, bool incoming);

#endif
