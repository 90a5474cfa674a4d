/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two ends of a connection within one program, under the shim as it is shipped, with its helper
 * thread and the agent, on a played device. */
#ifndef IBVMIG_TESTS_GUEST_PAIR_H
#define IBVMIG_TESTS_GUEST_PAIR_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"
#include "tests/fake/verbs/verbs.h"

#define WAIT_MS 120000 /* only a fault waits that long */

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char buffer[64];
static enum ibv_qp_type qp_type = IBV_QPT_RC;
static uint16_t pkey_index; /* of ends that are made from now on, */
static uint8_t sgid_index;  /* and of those that are connected */

static bool make_end(struct end *e)
{
	struct ibv_qp_init_attr init = {.qp_type = qp_type, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = pkey_index};

	e->cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	e->qp = e->cq ? ibv_create_qp(pd, &init) : NULL;
	return e->qp &&
	       !ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

/* To the port of this program, at the LID that its other end has told (0: none was). Not global:
 * the QP has no part in migrations. */
static bool connect_end(struct end *e, const struct end *peer, uint16_t lid, bool global)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = peer->qp->qp_num,
				.ah_attr = {.is_global = global,
					    .port_num = 1,
					    .dlid = lid,
					    .grh.sgid_index = sgid_index}};

	if (ibv_query_gid(context, 1, sgid_index, &a.ah_attr.grh.dgid) ||
	    ibv_modify_qp(e->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return false;
	a.qp_state = IBV_QPS_RTS;
	return !ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline bool make_pair(struct end *a, struct end *b, uint16_t lid, bool global)
{
	return make_end(a) && make_end(b) && connect_end(a, b, lid, global) &&
	       connect_end(b, a, lid, global);
}

static bool send_one(const struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED};

	return !ibv_post_send(e->qp, &wr, &bad);
}

/* How the next request of e ends; -1: it does not. */
static int ends_with(const struct end *e)
{
	uint64_t until = now_ms() + WAIT_MS;
	struct ibv_wc wc;

	while (now_ms() < until) {
		if (ibv_poll_cq(e->cq, 1, &wc) == 1)
			return (int)wc.status;
		usleep(1000);
	}
	return -1;
}

static bool message(const struct end *from, const struct end *to)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};

	return !ibv_post_recv(to->qp, &recv, &bad) && send_one(from) &&
	       ends_with(from) == IBV_WC_SUCCESS && ends_with(to) == IBV_WC_SUCCESS;
}

static int said(const struct shim_report *r, uint16_t type, int rc)
{
	if (rc)
		printf("# order %u: %s\n", type, r->why);
	return rc;
}

static bool open_device(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);

	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE) : NULL;
	ibv_free_device_list(list);
	return mr;
}

struct pair_test {
	bool (*run)(void);
	const char *name;
};

/* Runs the program again under the shim, then the tests in it. Never returns from the latter. */
static int run_under_shim(char **argv, const struct pair_test *tests, unsigned count)
{
	unsigned failed = 0;

	setenv(FAKE_WIRE_ENV, "1", 1);
	if (rig_exec(argv, true))
		return 1;
	for (unsigned i = 0; i < count; i++) {
		bool ok = tests[i].run();

		failed += !ok;
		printf("%sok %u - %s\n", ok ? "" : "not ", i + 1, tests[i].name);
		fflush(stdout);
	}
	printf("1..%u\n", count);
	fflush(stdout);
	_exit(failed != 0); /* threads of the shim live on */
}

#endif
