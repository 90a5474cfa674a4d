/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Queue pairs, and how they are built again. */
#ifndef IBVMIG_GUEST_AGENT_SHIM_VERBS_QP_H
#define IBVMIG_GUEST_AGENT_SHIM_VERBS_QP_H

#include "guest-agent/shim/core/objects.h"

#pragma GCC visibility push(hidden)
/* A QP on a shadow; *init is updated. pd: NULL for the target of an XRC connection. ex: NULL for a
 * plain one. NULL and errno. */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_pd *pd,
			 struct ibv_qp_init_attr *init, const struct shim_qp_ex *ex);
void qp_forget_all(void); /* in a child: they are the parent's */
int qp_create_real(struct shim_qp *q);
void qp_destroy_real(struct shim_qp *q);
/* Under ctl: its device is closed, and it is left behind. */
void qp_leave(struct shim_qp *q);
/* Why a migration must be refused while such a QP exists, or NULL. */
const char *qp_type_uncovered(const struct ibv_qp_init_attr *init);
/* The index of that GID at the port, or -errno. */
int gid_index(struct shim_context *c, uint8_t port, const uint8_t gid[16]);
int qp_to_init(struct shim_qp *q);
/* The state alone, with the P_Key's index of now. 0 or -errno. */
int qp_set_init(struct shim_qp *q);
/* The device's GID table may have changed: it is looked at anew; keep: and then once for each GID,
 * as long as a resume takes. */
void qp_keep_gids(struct shim_context *c, bool keep);
int qp_to_connected(struct shim_qp *q);
uint32_t qp_random_psn(void);
/* The path that qp_to_connected() would take. */
struct shim_way qp_way(const struct shim_qp *q);
/* Under ctl: the connection is over, and what was held of it for another path goes on. */
void qp_forget_change(struct shim_qp *q);
/* A request of ours has failed and with it the real QP, which keeps its number: back to INIT, to be
 * connected once more. 0 or -errno. */
int qp_start_over(struct shim_qp *q);
/* verbs/hold.c: posts go to the hardware again, in the order of the log. */
void qp_flush(struct shim_qp *q);
/* The same, and q has no part in a job. */
void qp_unhold(struct shim_qp *q);

/* verbs/ex_qp.c: ibv_create_qp_ex and ibv_wr_* */
struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
/* For a QP that was created with send_ops; its queues exist. 0 or -errno. */
int builder_init(struct shim_qp *q);
void builder_free(struct shim_builder *b);
#pragma GCC visibility pop

#endif
