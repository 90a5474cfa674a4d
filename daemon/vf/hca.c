/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/vf/hca.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <stdarg.h>
#include <string.h>

#define PCI    "bus/pci/devices"
#define VENDOR 0x15b3 /* Mellanox, NVIDIA networking */

static int refuse(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int refuse(char *error, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, HTTP_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

int hca_fail(char *error, int rc, const char *fmt, ...)
{
	bool forbidden = rc == -EPERM || rc == -EACCES || rc == -EROFS;
	char what[HTTP_ERROR_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return refuse(error, rc, "cannot %s: %s%s", what, strerror(-rc),
		      forbidden ? "; ibvmigd must run as root, with /sys writable and "
				  "CAP_NET_ADMIN"
				: "");
}

void hca_driver(const struct hca_host *h, const char *bdf, char name[static SYSFS_NAME_MAX])
{
	if (sysfs_link(&h->sysfs, name, PCI "/%s/driver", bdf))
		name[0] = '\0';
}

static bool is_pf(const struct hca_host *h, const char *bdf)
{
	uint64_t vendor, class;

	return !sysfs_read_u64(&h->sysfs, &vendor, PCI "/%s/vendor", bdf) && vendor == VENDOR &&
	       !sysfs_read_u64(&h->sysfs, &class, PCI "/%s/class", bdf) && class >> 16 == 0x02 &&
	       !sysfs_exists(&h->sysfs, PCI "/%s/physfn", bdf);
}

struct sysfs_list hca_pfs(const struct hca_host *h)
{
	struct sysfs_list l = sysfs_list(&h->sysfs, PCI);
	size_t n = 0;

	for (size_t i = 0; i < l.count; i++) {
		if (is_pf(h, l.names[i]))
			l.names[n++] = l.names[i];
		else
			free(l.names[i]);
	}
	l.count = n;
	return l;
}

/* ---- one PF ---- */

static int find_bdf(const struct hca_host *h, const char *device, struct hca_pf *pf, char *error)
{
	char name[SYSFS_NAME_MAX];

	if (!strpbrk(device, "/") && sysfs_exists(&h->sysfs, PCI "/%s", device))
		snprintf(name, sizeof name, "%s", device);
	else if (strpbrk(device, "/") ||
		 sysfs_link(&h->sysfs, name, "class/infiniband/%s/device", device))
		return refuse(error, -ENODEV,
			      "PF %s: no such PCI address (0000:3b:00.0) and no such RDMA device "
			      "(see /sys/class/infiniband)",
			      device);
	if (!is_pf(h, name) || strlen(name) >= sizeof pf->bdf)
		return refuse(error, -ENODEV, "PF %s: not a physical function of a ConnectX card",
			      device);
	strcpy(pf->bdf, name);
	return 0;
}

static int find_ibdev(const struct hca_host *h, struct hca_pf *pf, char *error)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/infiniband", pf->bdf);
	char driver[SYSFS_NAME_MAX];

	hca_driver(h, pf->bdf, driver);
	pf->mlx4 = !strcmp(driver, "mlx4_core");
	if (!pf->mlx4 && strcmp(driver, "mlx5_core"))
		return refuse(error, -ENODEV,
			      "PF %s is bound to %s, not to mlx5_core or mlx4_core: modprobe "
			      "mlx5_core (ConnectX-3: mlx4_core)",
			      pf->bdf, *driver ? driver : "no driver");
	if (!l.count)
		return refuse(error, -ENODEV, "PF %s has no RDMA device: modprobe %s", pf->bdf,
			      pf->mlx4 ? "mlx4_ib" : "mlx5_ib");
	strcpy(pf->ibdev, l.names[0]);
	return 0;
}

/* In legacy mode the attribute is there, but cannot be read. */
static bool is_switchdev(const struct hca_host *h, const struct hca_pf *pf)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/net", pf->bdf);
	char id[SYSFS_VALUE_MAX];

	for (size_t i = 0; i < l.count; i++)
		if (!sysfs_read(&h->sysfs, id, PCI "/%s/net/%s/phys_switch_id", pf->bdf,
				l.names[i]) &&
		    *id)
			return true;
	return false;
}

static int find_port(const struct hca_host *h, struct hca_pf *pf, char *error)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/infiniband/%s/ports",
						   pf->bdf, pf->ibdev);
	char text[SYSFS_VALUE_MAX];
	struct ib_gid gid;
	uint64_t port;

	if (is_switchdev(h, pf))
		return refuse(error, -ENODEV,
			      "PF %s is in switchdev mode, in which VFs have no InfiniBand GUIDs: "
			      "devlink dev eswitch set pci/%s mode legacy",
			      pf->bdf, pf->bdf);
	for (size_t i = 0; i < l.count && !pf->port; i++)
		if (!sysfs_read(&h->sysfs, text, PCI "/%s/infiniband/%s/ports/%s/link_layer",
				pf->bdf, pf->ibdev, l.names[i]) &&
		    !strcmp(text, "InfiniBand") && !parse_u64(l.names[i], 1, 255, &port))
			pf->port = (unsigned)port;
	if (!pf->port)
		return refuse(error, -ENODEV,
			      "PF %s (%s) has no InfiniBand port: mlxconfig -d %s set "
			      "LINK_TYPE_P1=1, then reset the card",
			      pf->bdf, pf->ibdev, pf->bdf);
	if (sysfs_read(&h->sysfs, text, PCI "/%s/infiniband/%s/ports/%u/gids/0", pf->bdf, pf->ibdev,
		       pf->port) ||
	    ib_gid_parse(text, &gid) || !gid.guid)
		return refuse(error, -ENODEV, "PF %s (%s): port %u shows no GID; is its driver up?",
			      pf->bdf, pf->ibdev, pf->port);
	pf->guid = gid.guid;
	return 0;
}

/* ---- VFs ---- */

static int create_vfs(const struct hca_host *h, struct hca_pf *pf, unsigned want, uint64_t total,
		      char *error)
{
	char text[16];
	int rc;

	if (pf->mlx4)
		return refuse(error, -ENOTSUP,
			      "PF %s has no VFs, and mlx4_core makes them only while it is loaded: "
			      "options mlx4_core num_vfs=%u probe_vf=0 in /etc/modprobe.d",
			      pf->bdf, want);
	if (want > total)
		return refuse(error, -ERANGE,
			      "PF %s: %u VFs are asked for, its firmware offers %llu: mlxconfig -d "
			      "%s set NUM_OF_VFS=%u",
			      pf->bdf, want, (unsigned long long)total, pf->bdf, want);
	/* Or the host would make an RDMA device of each. Linux before 4.12 does. */
	sysfs_write(&h->sysfs, "0", PCI "/%s/sriov_drivers_autoprobe", pf->bdf);
	snprintf(text, sizeof text, "%u", want);
	rc = sysfs_write(&h->sysfs, text, PCI "/%s/sriov_numvfs", pf->bdf);
	return rc ? hca_fail(error, rc, "create %u VFs on PF %s", want, pf->bdf) : 0;
}

static int count_vfs(const struct hca_host *h, struct hca_pf *pf, unsigned want, char *error)
{
	uint64_t total = 0, n = 0;
	int rc;

	if (sysfs_read_u64(&h->sysfs, &total, PCI "/%s/sriov_totalvfs", pf->bdf) || !total)
		return refuse(error, -ENODEV,
			      "PF %s: its firmware offers no VFs: switch SR-IOV on in the BIOS, "
			      "and mlxconfig -d %s set SRIOV_EN=1 NUM_OF_VFS=16, then reboot",
			      pf->bdf, pf->bdf);
	sysfs_read_u64(&h->sysfs, &n, PCI "/%s/sriov_numvfs", pf->bdf);
	if (!n && want) {
		rc = create_vfs(h, pf, want, total, error);
		if (rc)
			return rc;
		sysfs_read_u64(&h->sysfs, &n, PCI "/%s/sriov_numvfs", pf->bdf);
	}
	if (!n || n > VF_VFS_MAX)
		return refuse(error, -ENODEV,
			      "PF %s has no VFs (sriov_numvfs is 0, its firmware offers %llu): "
			      "\"pf = NAME %s 16\" in ibvmigd.conf, or echo 16 "
			      ">/sys/bus/pci/devices/%s/sriov_numvfs",
			      pf->bdf, (unsigned long long)total, pf->bdf, pf->bdf);
	pf->vf_count = (size_t)n;
	return 0;
}

static int load_vfs(const struct hca_host *h, struct hca_pf *pf, char *error)
{
	char link[SYSFS_NAME_MAX];

	pf->vfs = calloc(pf->vf_count, sizeof *pf->vfs);
	if (!pf->vfs)
		return refuse(error, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < pf->vf_count; i++) {
		struct hca_vf *vf = &pf->vfs[i];
		int n = snprintf(vf->name, sizeof vf->name, "%.*svf%u", (int)sizeof vf->name - 12,
				 pf->name, i);

		if (n < 0 || sysfs_link(&h->sysfs, link, PCI "/%s/virtfn%u", pf->bdf, i) ||
		    strlen(link) >= sizeof vf->bdf)
			return refuse(error, -ENODEV,
				      "PF %s: sriov_numvfs is %zu, but virtfn%u is "
				      "not there",
				      pf->bdf, pf->vf_count, i);
		strcpy(vf->bdf, link);
		vf->pf = pf;
		vf->index = i;
		vf->parked_guid = hca_parked_guid(pf->guid, i);
	}
	return 0;
}

uint64_t hca_parked_guid(uint64_t pf_guid, unsigned vf)
{
	return (pf_guid & 0xffffff0000ffffffull) | 0x0200000000000000ull |
	       (uint64_t)((vf + 1) & 0xffff) << 24;
}

int hca_pf_load(const struct hca_host *h, const char *device, const char *name, unsigned want_vfs,
		struct hca_pf *pf, char error[static HTTP_ERROR_MAX])
{
	int rc;

	*pf = (struct hca_pf){0};
	rc = find_bdf(h, device, pf, error);
	if (!rc)
		rc = find_ibdev(h, pf, error);
	if (!rc)
		rc = find_port(h, pf, error);
	if (!rc)
		rc = count_vfs(h, pf, want_vfs, error);
	if (rc)
		return rc;
	snprintf(pf->name, sizeof pf->name, "%s", name ? name : pf->ibdev);
	return load_vfs(h, pf, error);
}

void hca_pf_clear(struct hca_pf *pf)
{
	free(pf->vfs);
	*pf = (struct hca_pf){0};
}

/* The kernel numbers the ports of one function by dev_port (since 3.15), and by dev_id before. */
static bool is_of_port(const struct hca_host *h, const struct hca_pf *pf, const char *netdev)
{
	uint64_t n = 0, old = 0;

	sysfs_read_u64(&h->sysfs, &n, PCI "/%s/net/%s/dev_port", pf->bdf, netdev);
	sysfs_read_u64(&h->sysfs, &old, PCI "/%s/net/%s/dev_id", pf->bdf, netdev);
	return (n ? n : old) == pf->port - 1;
}

unsigned hca_ipoib(const struct hca_host *h, const struct hca_pf *pf)
{
	struct sysfs_list l AUTO_LIST = sysfs_list(&h->sysfs, PCI "/%s/net", pf->bdf);
	uint64_t type, ifindex;

	for (size_t i = 0; i < l.count; i++) {
		const char *name = l.names[i];

		/* A child of another PKey has "parent"; it does not know the VFs. */
		if (!sysfs_read_u64(&h->sysfs, &type, PCI "/%s/net/%s/type", pf->bdf, name) &&
		    type == ARPHRD_INFINIBAND &&
		    !sysfs_exists(&h->sysfs, PCI "/%s/net/%s/parent", pf->bdf, name) &&
		    is_of_port(h, pf, name) &&
		    !sysfs_read_u64(&h->sysfs, &ifindex, PCI "/%s/net/%s/ifindex", pf->bdf, name))
			return (unsigned)ifindex;
	}
	return 0;
}
