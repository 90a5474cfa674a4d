/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Verbs that do not survive a migration are not given out in the first place. They fail with
 * EOPNOTSUPP, and are named once per process and kind in the agent's log, which adds the program
 * and its pid. */
#include "guest-agent/shim/verbs/refuse.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/context.h"

#include <errno.h>

enum refusal {
	REFUSE_IMPORT,
	REFUSE_DM,
	REFUSE_DMABUF,
	REFUSE_FLOW,
	REFUSE_COUNTERS,
	REFUSE_WQ,
	REFUSE_SHARED_XRC,
	REFUSE_CM_XRC,
	REFUSE_SRQ,
	REFUSE_NULL_MR,
	REFUSE_RATE,
	REFUSE_ADVISE,
	REFUSE_DEVX,
};

static const char *const reasons[] = {
	[REFUSE_IMPORT] = "imported objects are other processes'",
	[REFUSE_DM] = "device memory does not migrate",
	[REFUSE_DMABUF] = "the memory of other devices (DMA-BUF) does not migrate",
	[REFUSE_FLOW] = "flow steering is not covered",
	[REFUSE_COUNTERS] = "the device's counters do not migrate",
	[REFUSE_WQ] = "work queues and RSS are not covered",
	[REFUSE_SHARED_XRC] = "an XRC domain of several processes is not covered",
	[REFUSE_CM_XRC] = "XRC by librdmacm is not covered",
	[REFUSE_SRQ] = "of shared receive queues only the basic type and XRC are covered",
	[REFUSE_NULL_MR] = "null regions are not covered",
	[REFUSE_RATE] = "packet pacing is not covered",
	[REFUSE_ADVISE] = "on-demand paging is not covered",
	[REFUSE_DEVX] = "commands to the device (DEVX) are not covered",
};

_Static_assert(ARRAY_SIZE(reasons) <= 32, "one bit for each");

static int refuse(enum refusal kind, const char *verb)
{
	static _Atomic(uint32_t) named;

	if (!(atomic_fetch_or(&named, 1u << kind) & 1u << kind))
		shim_log("%s is refused (EOPNOTSUPP): %s", verb, reasons[kind]);
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

#define INT_OP(kind, verb, ...)                                                                    \
	static int no_##verb(__VA_ARGS__)                                                          \
	{                                                                                          \
		return refuse(kind, "ibv_" #verb);                                                 \
	}
#define POINTER_OP(kind, type, verb, ...)                                                          \
	static type *no_##verb(__VA_ARGS__)                                                        \
	{                                                                                          \
		refuse(kind, "ibv_" #verb);                                                        \
		return NULL;                                                                       \
	}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
POINTER_OP(REFUSE_DM, struct ibv_dm, alloc_dm, struct ibv_context *c, struct ibv_alloc_dm_attr *a)
INT_OP(REFUSE_DM, free_dm, struct ibv_dm *dm)
POINTER_OP(REFUSE_DM, struct ibv_mr, reg_dm_mr, struct ibv_pd *pd, struct ibv_dm *dm, uint64_t at,
	   size_t length, unsigned int access)
POINTER_OP(REFUSE_FLOW, struct ibv_flow, create_flow, struct ibv_qp *q, struct ibv_flow_attr *a)
INT_OP(REFUSE_FLOW, destroy_flow, struct ibv_flow *flow)
POINTER_OP(REFUSE_FLOW, struct ibv_flow_action, create_flow_action_esp, struct ibv_context *c,
	   struct ibv_flow_action_esp_attr *a)
POINTER_OP(REFUSE_COUNTERS, struct ibv_counters, create_counters, struct ibv_context *c,
	   struct ibv_counters_init_attr *a)
POINTER_OP(REFUSE_WQ, struct ibv_wq, create_wq, struct ibv_context *c, struct ibv_wq_init_attr *a)
POINTER_OP(REFUSE_WQ, struct ibv_rwq_ind_table, create_rwq_ind_table, struct ibv_context *c,
	   struct ibv_rwq_ind_table_init_attr *a)
POINTER_OP(REFUSE_SHARED_XRC, struct ibv_qp, open_qp, struct ibv_context *c,
	   struct ibv_qp_open_attr *a)
INT_OP(REFUSE_SRQ, post_srq_ops, struct ibv_srq *srq, struct ibv_ops_wr *op,
       struct ibv_ops_wr **bad)
POINTER_OP(REFUSE_NULL_MR, struct ibv_mr, alloc_null_mr, struct ibv_pd *pd)
INT_OP(REFUSE_RATE, modify_qp_rate_limit, struct ibv_qp *q, struct ibv_qp_rate_limit_attr *a)
INT_OP(REFUSE_ADVISE, advise_mr, struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
       uint32_t flags, struct ibv_sge *list, uint32_t n)
#pragma GCC diagnostic pop

void refuse_set_ops(struct verbs_context *v)
{
	v->alloc_dm = no_alloc_dm;
	v->free_dm = no_free_dm;
	v->reg_dm_mr = no_reg_dm_mr;
	v->ibv_create_flow = no_create_flow;
	v->ibv_destroy_flow = no_destroy_flow;
	v->create_flow_action_esp = no_create_flow_action_esp;
	v->create_counters = no_create_counters;
	v->create_wq = no_create_wq;
	v->create_rwq_ind_table = no_create_rwq_ind_table;
	v->open_qp = no_open_qp;
	v->post_srq_ops = no_post_srq_ops;
	v->alloc_null_mr = no_alloc_null_mr;
	v->modify_qp_rate_limit = no_modify_qp_rate_limit;
	v->advise_mr = no_advise_mr;
}

int refuse_devx(const char *verb)
{
	return refuse(REFUSE_DEVX, verb);
}

int refuse_shared_xrc(const char *verb)
{
	return refuse(REFUSE_SHARED_XRC, verb);
}

int refuse_cm_xrc(const char *verb)
{
	return refuse(REFUSE_CM_XRC, verb);
}

int refuse_srq_type(const char *verb)
{
	return refuse(REFUSE_SRQ, verb);
}

/* The device of a descriptor that another process has opened: under the shim there is none. */
struct ibv_context *ibv_import_device(int fd)
{
	if (!shim_start())
		return real_verbs.import_device(fd);
	refuse(REFUSE_IMPORT, "ibv_import_device");
	return NULL;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	if (!shim_ours(context))
		return real_verbs.import_pd(context, handle);
	refuse(REFUSE_IMPORT, "ibv_import_pd");
	return NULL;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	if (!shim_ours(pd->context))
		return real_verbs.import_mr(pd, handle);
	refuse(REFUSE_IMPORT, "ibv_import_mr");
	return NULL;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	if (!shim_ours(context))
		return real_verbs.import_dm(context, handle);
	refuse(REFUSE_IMPORT, "ibv_import_dm");
	return NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	if (!shim_ours(pd->context))
		return real_verbs.reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	refuse(REFUSE_DMABUF, "ibv_reg_dmabuf_mr");
	return NULL;
}
