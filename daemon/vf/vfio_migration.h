/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Asks whether a VF's VFIO driver can give the device's state away (Linux 5.18, mlx5_vfio_pci). */
#ifndef IBVMIG_DAEMON_VF_VFIO_MIGRATION_H
#define IBVMIG_DAEMON_VF_VFIO_MIGRATION_H

#include "daemon/vf/hca.h"

#include <stdbool.h>

/* The kernel, or a stand-in for it. Both return -1 and errno. */
struct vfio_calls {
	int (*open)(const char *path, int flags);
	int (*ioctl)(int fd, unsigned long request, void *arg);
};

/* The VF must be bound to its VFIO driver and open nowhere; it is opened by its IOMMU group. calls:
 * NULL for the kernel's. 0: *ret_can tells; or -errno with a line. Blocks. */
int vfio_migration_probe(const struct hca_host *h, const struct hca_vf *vf,
			 const struct vfio_calls *calls, bool *ret_can,
			 char error[static HTTP_ERROR_MAX]);

#endif
