/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sizes and words that structures of several floors have in common. */
#ifndef IBVMIG_DAEMON_BASE_LIMITS_H
#define IBVMIG_DAEMON_BASE_LIMITS_H

#define VF_NAME_MAX    64
#define VM_NAME_MAX    252 /* libvirt makes a file NAME.xml of it, and NAME_MAX is 255 */
#define DOMAIN_VFS_MAX 8   /* VFs that a VM has at most */

#define QMP_DEV_ID  24 /* bytes of a VF's id in QEMU: "ibvf" and a number */
#define QMP_PAIR_ID "failover_pair_id"
/* PCI devices have this property in a QEMU with hooks/qemu/x-late-detach.patch. QEMU then lets a
 * device of any class leave while it migrates. It fails the migration if the device is still there
 * at switchover. */
#define QMP_LATE_DETACH "x-late-detach"

#endif
