/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The duties of a ConnectX card and its kernel to the provider mlx5: the same on real hosts
 * (tests/hw/provider.c) and on played ones (tests/unit/daemon/hw.c). All functions block. */
#ifndef IBVMIG_TESTS_HW_CHECKS_H
#define IBVMIG_TESTS_HW_CHECKS_H

#include "daemon/vf/mlx5.h"

enum hw_verdict { HW_OK, HW_FAILED, HW_SKIPPED };

/* The results go here. */
struct hw_results {
	/* why: of a failure, or of what is skipped */
	void (*tell)(struct hw_results *r, enum hw_verdict v, const char *what, const char *why);
};

/* Numbers of VFs, their links, PCI ids, what the PF's IPoIB interface tells of them, the PKey
 * table. Changes nothing. pf: loaded, ready. */
void hw_check_pf(struct hw_results *r, const struct hca_host *h, const struct hca_pf *pf);

/* The life of a VF that no VM has, from the inventory to the last release. The inventory gives VFs
 * without a GUID their parked ones. Then come policy, binding by driver_override, VFIO's migration
 * feature, a GUID there and back, for VFIO and for the host's own driver. The check changes back
 * what it has changed, as far as the card lets it. vf: "<PF>vf<N>". */
void hw_check_vf(struct hw_results *r, const struct mlx5_config *config, const char *vf);

/* RLIMIT_MEMLOCK of a process is lifted, as that of a QEMU is before it gets a VF. */
void hw_check_memlock(struct hw_results *r);

#endif
