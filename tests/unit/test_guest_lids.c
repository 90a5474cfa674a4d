/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program whose two ends tell each other their LID and GID, as verbs programs do, and a move
 * after which the port has another LID, as where VFs share the LID of their host: the shim as it is
 * shipped, with its helper thread, on a played device that delivers to the right LID only. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/fake/agent.h"
#include "tests/fake/rig.h"
#include "tests/fake/verbs.h"

#define WAIT_MS 120000 /* only a fault waits that long */

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct end left, right;
static char buffer[64];
static uint64_t migration;
static unsigned (*port_lid)(unsigned lid); /* fake_lid() */

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

/* As told by the other end: its LID, its GID, its QPN. */
static bool connect_end(struct end *e, const struct end *peer, uint16_t lid)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = peer->qp->qp_num,
				.ah_attr = {.is_global = 1, .port_num = 1, .dlid = lid}};

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

static bool make_pair(struct end *a, struct end *b)
{
	struct ibv_port_attr port;

	return !ibv_query_port(context, 1, &port) && port.lid && make_end(a) && make_end(b) &&
	       connect_end(a, b, port.lid) && connect_end(b, a, port.lid);
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

static int order(uint16_t type, struct shim_report *r)
{
	int rc = fake_agent_order(type, migration, r);

	if (rc)
		printf("# order %u: %s\n", type, r->why);
	return rc;
}

/* The VM and its peer are in this process: the LID of both ends is another one afterwards. */
static bool move_to(unsigned lid)
{
	struct shim_report r;

	migration++;
	if (order(SHIM_SUSPEND, &r) || order(SHIM_RELEASE, &r))
		return false;
	port_lid(lid);
	fake_agent_paths(lid);
	return !order(SHIM_RESUME, &r);
}

static bool both_ways(const struct end *a, const struct end *b)
{
	return message(a, b) && message(b, a);
}

static bool open_all(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);

	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE) : NULL;
	ibv_free_device_list(list);
	port_lid = (unsigned (*)(unsigned))dlsym(RTLD_DEFAULT, "fake_lid");
	return mr && port_lid;
}

static bool talk(void)
{
	port_lid(7);
	fake_agent_paths(7);
	return make_pair(&left, &right) && both_ways(&left, &right);
}

static bool go_on(void)
{
	return move_to(10) && both_ways(&left, &right);
}

/* Back to where the LID is as before, and on again: the address is always the present one. */
static bool go_on_again(void)
{
	return move_to(7) && both_ways(&left, &right) && move_to(11) && both_ways(&left, &right);
}

static bool asks_for_it(void)
{
	unsigned before = fake_agent_paths(11);

	return move_to(12) && both_ways(&left, &right) && fake_agent_paths(12) > before;
}

/* The port says the LID that it has, so what is told after a move is right for everybody. */
static bool connect_anew(void)
{
	struct end a, b;

	return make_pair(&a, &b) && both_ways(&a, &b) && move_to(13) && both_ways(&a, &b) &&
	       both_ways(&left, &right);
}

int main(int argc, char **argv)
{
	static const struct {
		bool (*run)(void);
		const char *name;
	} tests[] = {
		{open_all, "the shim opens the played device"},
		{talk, "two ends that have told each other their LIDs"},
		{go_on, "go on after a move that changed the LIDs of both"},
		{go_on_again, "and after more of them"},
		{asks_for_it, "each move asks for the path once more"},
		{connect_anew, "new connections have the new LID, and move as well"},
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
