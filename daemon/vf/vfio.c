/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/vfio.h"
#include "common/util.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#define PCI           "bus/pci/devices"
#define CLOSE_MS      3000 /* QEMU closes it behind DEVICE_DELETED, after a grace period of RCU */
#define CLOSE_POLL_MS 20
#define HOLDER_MAX    96
#define NODE_PATH_MAX 512
#define NET_FLAG_UP   1 /* IFF_UP */

static bool is_vfio(const char *driver)
{
	return !strcmp(driver, "vfio-pci") || !strcmp(driver, "mlx5_vfio_pci");
}

static bool is_host_driver(const char *driver)
{
	return !strcmp(driver, "mlx5_core") || !strcmp(driver, "mlx4_core");
}

int vfio_cdev(const struct hca_host *h, const struct hca_vf *vf, char node[static VFIO_NODE_MAX])
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/vfio-dev", vf->bdf);
	int n = l.count ? snprintf(node, VFIO_NODE_MAX, "vfio/devices/%s", l.names[0]) : 0;

	return n > 0 && n < VFIO_NODE_MAX ? 0 : -ENOENT;
}

int vfio_group(const struct hca_host *h, const struct hca_vf *vf, char node[static VFIO_NODE_MAX])
{
	char group[SYSFS_NAME_MAX];
	int n;

	if (sysfs_link(&h->sysfs, group, PCI "/%s/iommu_group", vf->bdf))
		return -ENOENT;
	n = snprintf(node, VFIO_NODE_MAX, "vfio/%s", group);
	return n < VFIO_NODE_MAX ? 0 : -ENOENT;
}

/* ---- who has it open ---- */

/* Compared by device number: inside libvirt's mount namespaces nodes have other paths. The link is
 * read first, because stat() could hang on a file of a dead server. */
static bool is_open_as(const char *fd_link, const struct stat *node)
{
	char target[NODE_PATH_MAX];
	struct stat st;
	ssize_t n = readlink(fd_link, target, sizeof target - 1);

	if (n <= 0)
		return false;
	target[n] = '\0';
	if (!strstr(target, "vfio/") || stat(fd_link, &st))
		return false;
	return S_ISCHR(node->st_mode) ? S_ISCHR(st.st_mode) && st.st_rdev == node->st_rdev
				      : st.st_dev == node->st_dev && st.st_ino == node->st_ino;
}

static bool process_has(const struct sysfs *proc, const char *pid, const struct stat *node)
{
	struct sysfs_list fds AUTO_LIST = sysfs_list(proc, "%s/fd", pid);
	char path[NODE_PATH_MAX];

	for (size_t i = 0; i < fds.count; i++) {
		snprintf(path, sizeof path, "%s/%s/fd/%s", proc->root, pid, fds.names[i]);
		if (is_open_as(path, node))
			return true;
	}
	return false;
}

/* "qemu-system-x86 (pid 4711)" into who. */
static bool node_holder(const struct hca_host *h, const char *node, char who[static HOLDER_MAX])
{
	const struct sysfs proc = {.root = h->proc};
	struct sysfs_list pids AUTO_LIST = {0};
	char path[NODE_PATH_MAX], comm[SYSFS_VALUE_MAX];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", h->dev, node);
	if (stat(path, &st))
		return false;
	pids = sysfs_list(&proc, ".");
	for (size_t i = 0; i < pids.count; i++) {
		const char *pid = pids.names[i];

		if (strspn(pid, "0123456789") != strlen(pid) || !process_has(&proc, pid, &st))
			continue;
		if (sysfs_read(&proc, comm, "%s/comm", pid))
			strcpy(comm, "a process");
		snprintf(who, HOLDER_MAX, "%.40s (pid %.20s)", comm, pid);
		return true;
	}
	return false;
}

static bool holder(const struct hca_host *h, const struct hca_vf *vf, char who[static HOLDER_MAX])
{
	char node[VFIO_NODE_MAX];

	if (!vfio_group(h, vf, node) && node_holder(h, node, who))
		return true;
	return !vfio_cdev(h, vf, node) && node_holder(h, node, who);
}

/* ---- checks ---- */

/* The host uses the VF by its own driver if an interface is up; an RDMA device alone is no use. */
static bool used_by_host(const struct hca_host *h, const struct hca_vf *vf,
			 char name[static SYSFS_NAME_MAX])
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/net", vf->bdf);
	uint64_t flags;

	for (size_t i = 0; i < l.count; i++)
		if (!sysfs_read_u64(&h->sysfs, &flags, PCI "/%s/net/%s/flags", vf->bdf,
				    l.names[i]) &&
		    flags & NET_FLAG_UP) {
			strcpy(name, l.names[i]);
			return true;
		}
	return false;
}

static int check_driver(const struct hca_host *h, const struct hca_vf *vf, char *error)
{
	char driver[SYSFS_NAME_MAX], name[SYSFS_NAME_MAX];

	hca_driver(h, vf->bdf, driver);
	if (*driver && !is_vfio(driver) && !is_host_driver(driver)) {
		snprintf(error, HTTP_ERROR_MAX,
			 "VF %s (%s) is bound to %s: unbind it (echo %s "
			 ">/sys/bus/pci/drivers/%s/unbind) or use another PF for VMs",
			 vf->name, vf->bdf, driver, vf->bdf, driver);
		return -EBUSY;
	}
	if (!used_by_host(h, vf, name))
		return 0;
	snprintf(error, HTTP_ERROR_MAX,
		 "VF %s (%s) is in use by this host: its interface %s is up; ip link set %s down, "
		 "and echo 0 >/sys/bus/pci/devices/%s/sriov_drivers_autoprobe keeps VFs free",
		 vf->name, vf->bdf, name, name, vf->pf->bdf);
	return -EBUSY;
}

/* VFIO gives a process the whole group, and refuses while others of it have ordinary drivers. */
static int check_group(const struct hca_host *h, const struct hca_vf *vf, char *error)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/iommu_group/devices",
						   vf->bdf);
	char driver[SYSFS_NAME_MAX];

	if (!sysfs_exists(&h->sysfs, PCI "/%s/iommu_group", vf->bdf)) {
		snprintf(error, HTTP_ERROR_MAX,
			 "VF %s (%s) has no IOMMU group: switch the IOMMU on in the BIOS (VT-d, "
			 "AMD-Vi) and by intel_iommu=on on the kernel's command line",
			 vf->name, vf->bdf);
		return -ENODEV;
	}
	for (size_t i = 0; i < l.count; i++) {
		hca_driver(h, l.names[i], driver);
		if (!strcmp(l.names[i], vf->bdf) || !*driver || is_vfio(driver) ||
		    !strcmp(driver, "pcieport"))
			continue;
		snprintf(error, HTTP_ERROR_MAX,
			 "VF %s (%s) shares its IOMMU group with %s (driver %s), which a VM would "
			 "get too: use a slot whose bridge has ACS",
			 vf->name, vf->bdf, l.names[i], driver);
		return -EBUSY;
	}
	return 0;
}

int vfio_check(const struct hca_host *h, const struct hca_vf *vf, const char *driver,
	       char error[static HTTP_ERROR_MAX])
{
	char who[HOLDER_MAX];
	int rc = check_driver(h, vf, error);

	if (!rc)
		rc = check_group(h, vf, error);
	if (rc)
		return rc;
	if (!sysfs_exists(&h->sysfs, "bus/pci/drivers/%s", driver)) {
		snprintf(error, HTTP_ERROR_MAX, "the driver %s is not loaded: modprobe %s", driver,
			 driver);
		return -ENODEV;
	}
	if (!holder(h, vf, who))
		return 0;
	snprintf(error, HTTP_ERROR_MAX, "VF %s (%s) is open in %s: that VM must give it up first",
		 vf->name, vf->bdf, who);
	return -EBUSY;
}

/* ---- binding ---- */

static int set_override(const struct hca_host *h, const char *bdf, const char *driver)
{
	return sysfs_write(&h->sysfs, driver, PCI "/%s/driver_override", bdf);
}

/* Leaves the device to whatever driver_override and sriov_drivers_autoprobe say. */
static int reprobe(const struct hca_host *h, const char *bdf)
{
	char driver[SYSFS_NAME_MAX];
	int rc = 0;

	hca_driver(h, bdf, driver);
	if (*driver)
		rc = sysfs_write(&h->sysfs, bdf, "bus/pci/drivers/%s/unbind", driver);
	return rc ? rc : sysfs_write(&h->sysfs, bdf, "bus/pci/drivers_probe");
}

int vfio_bind(const struct hca_host *h, const struct hca_vf *vf, const char *driver,
	      char error[static HTTP_ERROR_MAX])
{
	char now[SYSFS_NAME_MAX];
	int rc;

	hca_driver(h, vf->bdf, now);
	if (!strcmp(now, driver))
		return 0;
	rc = set_override(h, vf->bdf, driver);
	if (!rc)
		rc = reprobe(h, vf->bdf);
	hca_driver(h, vf->bdf, now);
	if (!rc && strcmp(now, driver))
		rc = -ENXIO;
	if (!rc)
		return 0;
	set_override(h, vf->bdf, "\n");
	return hca_fail(error, rc, "bind VF %s (%s) to %s (dmesg may say more)", vf->name, vf->bdf,
			driver);
}

static int wait_closed(const struct hca_host *h, const struct hca_vf *vf, char *error)
{
	uint64_t deadline_ms = now_ms() + CLOSE_MS;
	char who[HOLDER_MAX];

	while (holder(h, vf, who)) {
		if (now_ms() >= deadline_ms) {
			snprintf(error, HTTP_ERROR_MAX,
				 "VF %s (%s) is still open in %s: stop that VM, or detach the "
				 "device",
				 vf->name, vf->bdf, who);
			return -EBUSY;
		}
		poll(NULL, 0, CLOSE_POLL_MS);
	}
	return 0;
}

int vfio_unbind(const struct hca_host *h, const struct hca_vf *vf,
		char error[static HTTP_ERROR_MAX])
{
	char driver[SYSFS_NAME_MAX];
	int rc;

	hca_driver(h, vf->bdf, driver);
	if (!is_vfio(driver))
		return 0;
	rc = wait_closed(h, vf, error);
	if (rc)
		return rc;
	rc = set_override(h, vf->bdf, "\n");
	if (!rc)
		rc = reprobe(h, vf->bdf);
	return rc ? hca_fail(error, rc, "take VF %s (%s) back from %s", vf->name, vf->bdf, driver)
		  : 0;
}
