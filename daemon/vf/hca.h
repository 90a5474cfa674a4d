/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ConnectX PFs of this host and their VFs, as sysfs shows them. */
#ifndef IBVMIG_DAEMON_VF_HCA_H
#define IBVMIG_DAEMON_VF_HCA_H

#include "common/http/client.h"
#include "daemon/vf/sysfs.h"
#include "daemon/vf/table.h"
#include "daemon/vf/netlink.h"

#define HCA_BDF_MAX 16

/* The host's interfaces: tests have a tree and a peer of their own. */
struct hca_host {
	struct sysfs sysfs;
	struct vf_netlink netlink;
	const char *dev;  /* "/dev" */
	const char *proc; /* "/proc" */
};

struct hca_vf {
	const struct hca_pf *pf; /* borrowed */
	char name[VF_NAME_MAX];  /* "<PF>vf<index>" */
	char bdf[HCA_BDF_MAX];
	unsigned index; /* the kernel's, from 0 */
	uint64_t parked_guid;
};

struct hca_pf {
	char name[VF_NAME_MAX]; /* as VMs' metadata call it */
	char bdf[HCA_BDF_MAX];
	char ibdev[SYSFS_NAME_MAX];
	bool mlx4;          /* ConnectX-3: GUIDs and PKeys below iov/, one LID for all functions */
	unsigned port;      /* the first one that is InfiniBand */
	uint64_t guid;      /* GUID of that port */
	struct hca_vf *vfs; /* owned */
	size_t vf_count;
};

/* The PCI addresses of all ConnectX PFs, whatever state they are in. */
struct sysfs_list hca_pfs(const struct hca_host *h);

/* device: a PCI address or an RDMA device's name. want_vfs: VFs to create where there are none yet,
 * 0: none; a number that is already there is never changed. pf->name: name, or the RDMA device's
 * where that is NULL. 0, or -errno with a line that says what is wrong with this PF and the way
 * out; hca_pf_clear() in both cases. */
int hca_pf_load(const struct hca_host *h, const char *device, const char *name, unsigned want_vfs,
		struct hca_pf *pf, char error[static HTTP_ERROR_MAX]);
void hca_pf_clear(struct hca_pf *pf);

/* The GUID of a VF while no VM has it: the PF's, as a locally administered one with the VF's number
 * in the place that is 0x0300 in ConnectX GUIDs. Needs no memory and differs between all PFs. */
uint64_t hca_parked_guid(uint64_t pf_guid, unsigned vf);

/* The PF's own IPoIB interface, or 0: ib_ipoib is not loaded. */
unsigned hca_ipoib(const struct hca_host *h, const struct hca_pf *pf);

/* "vfio-pci", "mlx5_core"; "" where there is none. */
void hca_driver(const struct hca_host *h, const char *bdf, char name[static SYSFS_NAME_MAX]);

/* Words for a failed write: "cannot WHAT: REASON", and the way out where there is one. Returns rc.
 */
int hca_fail(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
