/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A VF in the hands of a VFIO driver, and back. Blocks. */
#ifndef IBVMIG_DAEMON_VF_VFIO_H
#define IBVMIG_DAEMON_VF_VFIO_H

#include "daemon/vf/hca.h"

#define VFIO_NODE_MAX 64

/* Checks that a VM can have it now: not in use by this host or a process, alone in its IOMMU group,
 * driver ("vfio-pci", "mlx5_vfio_pci") loaded. 0 or -errno with a line that names who or what is in
 * the way; -EBUSY: it is in use. Changes nothing. */
int vfio_check(const struct hca_host *h, const struct hca_vf *vf, const char *driver,
	       char error[static HTTP_ERROR_MAX]);

/* By driver_override, so that no other device of the same kind follows. 0 also if it is bound so.
 */
int vfio_bind(const struct hca_host *h, const struct hca_vf *vf, const char *driver,
	      char error[static HTTP_ERROR_MAX]);

/* Waits until QEMU has closed it (the unbind would hang in the kernel), then gives it back. It goes
 * to this host's own driver where sriov_drivers_autoprobe is 1, to none where it is 0. */
int vfio_unbind(const struct hca_host *h, const struct hca_vf *vf,
		char error[static HTTP_ERROR_MAX]);

/* The device's own node "vfio/devices/vfioN" below /dev (Linux 6.6, for iommufd); it is there once
 * a VFIO driver has the VF. 0 or -ENOENT. */
int vfio_cdev(const struct hca_host *h, const struct hca_vf *vf, char node[static VFIO_NODE_MAX]);

/* The node "vfio/N" of its IOMMU group below /dev. 0 or -ENOENT. */
int vfio_group(const struct hca_host *h, const struct hca_vf *vf, char node[static VFIO_NODE_MAX]);

#endif
