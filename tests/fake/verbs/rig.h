/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A process with one QP on the played device, with or without the shim between. */
#ifndef IBVMIG_TESTS_FAKE_RIG_H
#define IBVMIG_TESTS_FAKE_RIG_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#define RIG_WRS 256

struct rig {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char buffer[4096];
};

/* Starts this program again with the played libibverbs and, with shim, the built libibvmig.so.
 * Returns only where this has been done already, or -errno. */
int rig_exec(char **argv, bool shim);
/* With the shim above the libibverbs of this machine. */
int rig_exec_real(char **argv);
/* Starts the played agent under the shim and opens everything. 0 or -errno. */
int rig_open(struct rig *r);
/* Destroys everything. 0, or -EBUSY where something refuses. */
int rig_close(struct rig *r);
/* Returns whether the shim is between: its QPs are not the played ones. */
bool rig_has_shim(const struct rig *r);

#endif
