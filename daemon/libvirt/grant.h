/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Device nodes for a running QEMU of libvirt's. libvirt opens its own namespaces and cgroups for
 * devices of the domain XML only; one that is added over the monitor, and opened by QEMU itself,
 * needs the same. Blocks. */
#ifndef IBVMIG_DAEMON_LIBVIRT_GRANT_H
#define IBVMIG_DAEMON_LIBVIRT_GRANT_H

#include <sys/types.h>

/* Lets process pid open node, a character device of this host, to read and write. Where the process
 * has a mount namespace of its own, a node there is made that its user owns. Where a device cgroup
 * confines it, that allows the node. Version 1: devices.allow. Version 2: the map of the program
 * that libvirt attaches (5.10 and newer, src/util/vircgroupv2devices.c); other programs are left
 * alone. 0 or -errno with a line. */
int grant_node(pid_t pid, const char *node, char *error);
/* The way back. 0 also where nothing is left of the process; -errno with a line. */
int grant_take_back(pid_t pid, const char *node, char *error);

#endif
