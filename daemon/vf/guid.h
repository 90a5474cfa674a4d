/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GUIDs and link policy of VFs: rtnetlink first, MLNX_OFED's sriov/ folder second; ConnectX-3 has
 * its own place, iov/. Blocks. */
#ifndef IBVMIG_DAEMON_VF_GUID_H
#define IBVMIG_DAEMON_VF_GUID_H

#include "daemon/vf/hca.h"

/* The state that a VF shows now. */
struct vf_now {
	bool known;    /* false: this kernel does not tell */
	uint64_t guid; /* 0: never set */
	bool policy_known;
	uint32_t policy; /* IFLA_VF_LINK_STATE_… */
};

/* now[pf->vf_count]. What cannot be read is not known. mlx5 tells what was set last, not what the
 * firmware has: only 0 says something about the firmware, that it never had any. */
void vf_guid_read(const struct hca_host *h, const struct hca_pf *pf, struct vf_now *now);

/* Node and port GUID, read back where the kernel tells them. A VF that this host's own driver has
 * is bound anew, because that driver read its GUIDs when it was bound. 0 or -errno with a line. */
int vf_guid_set(const struct hca_host *h, const struct hca_vf *vf, uint64_t guid,
		char error[static HTTP_ERROR_MAX]);

/* policy: IFLA_VF_LINK_STATE_AUTO or _ENABLE. ConnectX-3 has none: 0. */
int vf_policy_set(const struct hca_host *h, const struct hca_vf *vf, uint32_t policy,
		  char error[static HTTP_ERROR_MAX]);

/* ConnectX-3 only (others get theirs from the subnet manager): the VM sees pkey at index 0 and the
 * default one at index 1. 0 or -errno with a line. */
int vf_pkey_set(const struct hca_host *h, const struct hca_vf *vf, uint16_t pkey,
		char error[static HTTP_ERROR_MAX]);

#endif
