/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that there is not, with ConnectX cards: a tree as sysfs lays it out, and the kernel's
 * reactions to writes in it. A thread answers rtnetlink as the mlx5 driver makes the kernel do. The
 * sources are drivers/pci, drivers/net/ethernet/mellanox, drivers/infiniband/hw/mlx{4,5} and
 * net/core/rtnetlink.c. The result is compared with what others have recorded of their cards
 * (docs/hosts.md, "What the played hosts are made from"); no card of ours has confirmed it. */
#ifndef IBVMIG_TESTS_FAKE_HCA_H
#define IBVMIG_TESTS_FAKE_HCA_H

#include "daemon/vf/hca.h"

#define FAKE_VFS_MAX 16
#define FAKE_LOG_MAX 64

struct fake_card {
	const char *bdf, *ibdev, *netdev; /* netdev NULL: ib_ipoib is not loaded */
	const char *device, *vf_device;   /* PCI ids */
	uint64_t guid;                    /* GUID of port 1; port 2 has the next one */
	unsigned ifindex, total_vfs, vfs;
	unsigned ports;         /* 2: ConnectX-3 */
	const char *link_layer; /* NULL: InfiniBand */
	bool mlx4, ofed, switchdev;
	bool old_kernel; /* before 4.12: no sriov_drivers_autoprobe; no device nodes of VFIO */
	bool autoprobe;  /* VFs go to the host's driver by themselves */
};

struct fake_netlink {
	/* As mlx5 keeps them: what was set, 0 before. */
	uint64_t node_guid[FAKE_VFS_MAX], port_guid[FAKE_VFS_MAX];
	uint32_t policy[FAKE_VFS_MAX]; /* IFLA_VF_LINK_STATE_…; DISABLE at first */
	unsigned ifindex, vfs;
	/* Faults of the host: */
	int set_rc, get_rc; /* errno of the kernel's answer, negative */
	bool no_guids;      /* before 5.5 */
	bool forgets;       /* says yes to a GUID, and keeps what it had */
	bool forgets_policy;
	unsigned sets; /* requests that were obeyed */
};

struct fake_host {
	struct hca_host host; /* for the code under test */
	struct fake_netlink netlink;
	char root[64], dev[80], sys[80];
	char ofed[64];                /* folder of the PF with MLNX_OFED's sriov/, or "" */
	bool no_driver;               /* binding finds no driver that wants the VF */
	bool keeps_override;          /* driver_override is not emptied */
	bool no_reread;               /* mlx5_core shows what a VF had when it was first bound */
	uint64_t shown[FAKE_VFS_MAX]; /* by mlx5_core */
	const char *fail_path;        /* a write to a path that contains this fails … */
	int fail_rc;                  /* … with this */
	char log[FAKE_LOG_MAX][128];  /* writes, "PATH=TEXT" */
	unsigned logged;
	struct fake_netlink_thread *thread; /* owned */
};

/* An empty host with mlx5_core, mlx4_core and vfio-pci loaded. */
void fake_host_init(struct fake_host *h);
void fake_host_add(struct fake_host *h, const struct fake_card *card);
void fake_host_end(struct fake_host *h);

/* A file below the tree's /sys, made or overwritten. */
void fake_put(struct fake_host *h, const char *text, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "" where there is none */
const char *fake_get(struct fake_host *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A link below the tree's /sys, made or led elsewhere. to: relative to the root of that /sys. */
void fake_put_link(struct fake_host *h, const char *to, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *fake_driver(struct fake_host *h, const char *bdf);
/* Returns whether such a write was made. */
bool fake_wrote(const struct fake_host *h, const char *line);

/* MLNX_OFED's files of a VF show what rtnetlink has set, for both are the driver's. */
void fake_show_ofed(struct fake_host *h, unsigned vf);

/* The netlink part (tests/fake/host/hca_netlink.c). */
void fake_netlink_start(struct fake_host *h);
void fake_netlink_end(struct fake_host *h);

#endif
