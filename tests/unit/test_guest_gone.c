/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A mover that dies in a migration, seen by a peer: the shim as it is shipped, with its helper
 * thread, on a played device. Its QPs to the dead VM are given up after a while, and then fail as
 * with any dead peer; its others work meanwhile, and it takes part in the next migration. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/fake/agent.h"
#include "tests/fake/rig.h"
#include "tests/fake/verbs.h"

#define WAIT_MS 120000 /* only a fault waits that long */
#define ANOTHER (FAKE_GUID + 1)

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct end lost, mover; /* ours, and the one that the VM takes with it */
static struct end near, far;   /* of which the shim knows no VM */
static char buffer[64];
static uint64_t migration;

static bool make_end(struct end *e)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	e->cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	e->qp = e->cq ? ibv_create_qp(pd, &init) : NULL;
	return e->qp &&
	       !ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

/* By GID, or by LID: then it has no part in migrations. */
static bool connect_end(struct end *e, const struct end *peer, bool global)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = peer->qp->qp_num,
				.ah_attr = {.is_global = global, .port_num = 1}};

	if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) ||
	    ibv_modify_qp(e->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return false;
	a.qp_state = IBV_QPS_RTS;
	return !ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static bool make_pair(struct end *a, struct end *b, bool global)
{
	return make_end(a) && make_end(b) && connect_end(a, b, global) && connect_end(b, a, global);
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

static int order(uint16_t type, uint64_t vguid, struct shim_report *r)
{
	int rc = fake_agent_order_peer(type, migration, vguid, r);

	if (rc)
		printf("# order %u: %s\n", type, r->why);
	return rc;
}

static bool takes_part_in_the_next(void)
{
	struct shim_report r;

	migration++;
	return !order(SHIM_SUSPEND, ANOTHER, &r) && !order(SHIM_RELEASE, ANOTHER, &r) &&
	       !order(SHIM_RESUME, ANOTHER, &r) && message(&near, &far);
}

static bool begin(void)
{
	struct shim_report r;

	fake_agent_lose_ways(false);
	migration++;
	return make_pair(&lost, &mover, true) && message(&lost, &mover) &&
	       !order(SHIM_SUSPEND, FAKE_GUID, &r) && r.qps == 2;
}

/* When the peers have been suspended; then they are told that the migration has ended. */
static bool dies_in_the_switch(void)
{
	struct shim_report r;

	if (!begin() || order(SHIM_RELEASE, FAKE_GUID, &r))
		return false;
	fake_agent_lose_ways(true);
	if (!send_one(&lost) || !message(&near, &far) || order(SHIM_RESUME, FAKE_GUID, &r) ||
	    ibv_destroy_qp(mover.qp))
		return false;
	return ends_with(&lost) == IBV_WC_RETRY_EXC_ERR && !ibv_destroy_qp(lost.qp) &&
	       takes_part_in_the_next();
}

/* Before they have: the suspend is given up, and whether the other end has kept its QP is asked. */
static bool dies_in_the_suspend(void)
{
	struct shim_report r;

	if (!begin())
		return false;
	fake_agent_lose_ways(true);
	if (!send_one(&lost) || order(SHIM_ABORT, FAKE_GUID, &r) != -ECANCELED ||
	    ibv_destroy_qp(mover.qp))
		return false;
	return message(&near, &far) && takes_part_in_the_next() &&
	       ends_with(&lost) == IBV_WC_RETRY_EXC_ERR && takes_part_in_the_next();
}

static bool open_all(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);
	void (*end_retries)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "fake_end_retries");

	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!mr || !end_retries)
		return false;
	ibv_free_device_list(list);
	end_retries();
	return make_pair(&near, &far, false) && message(&near, &far);
}

int main(int argc, char **argv)
{
	static const struct {
		bool (*run)(void);
		const char *name;
	} tests[] = {
		{open_all, "the shim opens the played device"},
		{dies_in_the_switch, "a mover that dies after the suspend is given up"},
		{dies_in_the_suspend, "and one that dies before it was through"},
	};
	unsigned failed = 0;

	(void)argc;
	setenv(FAKE_WIRE_ENV, "1", 1);
	if (rig_exec(argv, true))
		return 1;
	for (unsigned i = 0; i < ARRAY_SIZE(tests); i++) {
		bool ok = tests[i].run();

		failed += !ok;
		printf("%sok %u - %s\n", ok ? "" : "not ", i + 1, tests[i].name);
		fflush(stdout);
	}
	printf("1..%zu\n", ARRAY_SIZE(tests));
	fflush(stdout);
	_exit(failed != 0); /* threads of the shim live on */
}
