/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/vfio_migration.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <string.h>
#include <sys/ioctl.h>

#define PCI "bus/pci/devices"

static int kernel_open(const char *path, int flags)
{
	return open(path, flags);
}

static int kernel_ioctl(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}

static const struct vfio_calls kernel = {kernel_open, kernel_ioctl};

static int open_node(const struct hca_host *h, const struct vfio_calls *c, const char *name)
{
	char *path AUTO_FREE = strf("%s/vfio/%s", h->dev, name);
	int fd = c->open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* By linux/vfio.h: a device is to be had once its group is in a container with an IOMMU. */
static int open_device(const struct vfio_calls *c, int container, int group, const char *bdf)
{
	char name[SYSFS_NAME_MAX];
	int fd;

	snprintf(name, sizeof name, "%s", bdf);
	if (c->ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) < 0 ||
	    c->ioctl(container, VFIO_SET_IOMMU, (void *)(uintptr_t)VFIO_TYPE1v2_IOMMU) < 0)
		return -errno;
	fd = c->ioctl(group, VFIO_GROUP_GET_DEVICE_FD, name);
	return fd < 0 ? -errno : fd;
}

/* A driver without the feature answers ENOTTY; one without stop-and-copy is of no use to QEMU. */
static int ask_feature(const struct vfio_calls *c, int device, bool *ret_can)
{
	struct {
		struct vfio_device_feature head;
		struct vfio_device_feature_migration migration;
	} ask = {.head = {.argsz = sizeof ask,
			  .flags = VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_MIGRATION}};

	*ret_can = false;
	if (c->ioctl(device, VFIO_DEVICE_FEATURE, &ask) < 0)
		return errno == ENOTTY ? 0 : -errno;
	*ret_can = ask.migration.flags & VFIO_MIGRATION_STOP_COPY;
	return 0;
}

int vfio_migration_probe(const struct hca_host *h, const struct hca_vf *vf,
			 const struct vfio_calls *calls, bool *ret_can,
			 char error[static HTTP_ERROR_MAX])
{
	const struct vfio_calls *c = calls ? calls : &kernel;
	int container AUTO_CLOSE = -1, group AUTO_CLOSE = -1, device AUTO_CLOSE = -1;
	char number[SYSFS_NAME_MAX];
	bool can = false;
	int rc = sysfs_link(&h->sysfs, number, PCI "/%s/iommu_group", vf->bdf);

	if (!rc)
		rc = container = open_node(h, c, "vfio");
	if (rc >= 0)
		rc = group = open_node(h, c, number);
	if (rc >= 0)
		rc = device = open_device(c, container, group, vf->bdf);
	if (rc >= 0)
		rc = ask_feature(c, device, &can);
	if (rc < 0)
		return hca_fail(error, rc, "ask the VFIO driver of VF %s (%s) whether it migrates",
				vf->name, vf->bdf);
	*ret_can = can;
	return 0;
}
