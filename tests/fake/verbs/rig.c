/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/verbs/rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "tests/fake/verbs/agent.h"

#define DONE_ENV "IBVMIG_RIG" /* as in rig_exec.c */

bool rig_has_shim(const struct rig *r)
{
	Dl_info at;

	return dladdr((void *)r->context->ops.poll_cq, &at) && strstr(at.dli_fname, "libibvmig");
}

static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.port_num = 1, .path_mtu = IBV_MTU_1024};

	a.qp_state = IBV_QPS_INIT;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX))
		return -EIO;
	a.qp_state = IBV_QPS_RTR; /* a path without a GRH: nobody is asked for */
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN))
		return -EIO;
	a.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) ? -EIO : 0;
}

int rig_open(struct rig *r)
{
	struct ibv_device **list;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = RIG_WRS,
						.max_recv_wr = RIG_WRS,
						.max_send_sge = 1,
						.max_recv_sge = 1,
						.max_inline_data = 64}};

	if (!str_eq(getenv(DONE_ENV), "0") && fake_agent_start())
		return -errno;
	list = ibv_get_device_list(NULL);
	r->context = list ? ibv_open_device(list[0]) : NULL;
	if (!r->context)
		return -errno;
	ibv_free_device_list(list);
	r->pd = ibv_alloc_pd(r->context);
	r->mr = ibv_reg_mr(r->pd, r->buffer, sizeof(r->buffer), IBV_ACCESS_LOCAL_WRITE);
	r->cq = ibv_create_cq(r->context, 2 * RIG_WRS, NULL, NULL, 0);
	if (!r->pd || !r->mr || !r->cq)
		return -errno;
	init.send_cq = init.recv_cq = r->cq;
	r->qp = ibv_create_qp(r->pd, &init);
	return r->qp ? to_rts(r->qp) : -errno;
}

int rig_close(struct rig *r)
{
	bool bad = ibv_destroy_qp(r->qp);

	bad |= ibv_destroy_cq(r->cq) | ibv_dereg_mr(r->mr);
	bad |= ibv_dealloc_pd(r->pd);
	return bad | ibv_close_device(r->context) ? -EBUSY : 0;
}
