/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GUIDs and link policy of a PF's VFs by rtnetlink, through the PF's IPoIB interface. */
#ifndef IBVMIG_DAEMON_VF_NETLINK_H
#define IBVMIG_DAEMON_VF_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whom to talk to: {NETLINK_ROUTE, 0} is the kernel; tests have a process of their own answer. */
struct vf_netlink {
	int protocol;
	uint32_t port;
};

struct vf_link {
	bool present;    /* the kernel named this VF */
	bool guid_known; /* the kernel tells GUIDs: Linux 5.5 and newer. 0: never set */
	uint64_t node_guid, port_guid;
	uint32_t policy; /* IFLA_VF_LINK_STATE_… */
};

/* links[n]: of VF 0 to n - 1. 0 or -errno; -EMSGSIZE: the kernel (before 6.15) reserves too little
 * room for the GUIDs of many VFs, and cannot answer. */
int vf_netlink_get(const struct vf_netlink *t, unsigned ifindex, struct vf_link *links, size_t n);

/* The caller has checked that the VF exists: mlx5 does not, and writes to other memory. 0 or the
 * kernel's -errno: -EPERM, -EOPNOTSUPP (not an IPoIB interface of a driver with InfiniBand VFs),
 * -ENODEV, and what firmware errors become (-EINVAL, -EIO, -EREMOTEIO). -ETIMEDOUT where no answer
 * came. */
int vf_netlink_set_guid(const struct vf_netlink *t, unsigned ifindex, unsigned vf, uint64_t guid);
/* policy: IFLA_VF_LINK_STATE_AUTO (follows the PF's port), _ENABLE, _DISABLE */
int vf_netlink_set_policy(const struct vf_netlink *t, unsigned ifindex, unsigned vf,
			  uint32_t policy);

#endif
