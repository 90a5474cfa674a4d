/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tries automatic path migration between rxe0 and rxe1, whose ports have an LMC of 1: rxe_apm
 * [COMMAND]
 *
 * An RC connection by LID has the ports' second LIDs as its alternate path. Without COMMAND one end
 * asks for the switch; with COMMAND, which must break the primary path, retries make it. Both ends
 * must follow. */
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 100
#define DEADLINE_MS   10000
#define PSN           7
#define TIMEOUT       14 /* 67 ms; rxe takes a retry count of 7 for "for ever" */
#define RETRIES       3
#define SL            3

/* Freed with the process. */
struct end {
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint16_t lid;
	char bytes[MESSAGE_BYTES];
};

static void die(const char *what)
{
	fprintf(stderr, "rxe_apm: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void expect(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "rxe_apm: not so: %s\n", what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static void open_end(struct end *e, const char *name)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1};
	struct ibv_port_attr port;
	struct ibv_pd *pd;

	e->context = open_device(name);
	pd = e->context ? ibv_alloc_pd(e->context) : NULL;
	e->cq = pd ? ibv_create_cq(e->context, 16, NULL, NULL, 0) : NULL;
	e->mr = pd ? ibv_reg_mr(pd, e->bytes, sizeof(e->bytes), IBV_ACCESS_LOCAL_WRITE) : NULL;
	init.send_cq = init.recv_cq = e->cq;
	e->qp = e->cq ? ibv_create_qp(pd, &init) : NULL;
	if (!e->qp || !e->mr || ibv_query_port(e->context, 1, &port) ||
	    fcntl(e->context->async_fd, F_SETFL, O_NONBLOCK))
		die(name);
	expect(port.lmc == 1, "the port has an LMC of 1");
	e->lid = port.lid;
}

static void connect_end(struct end *e, const struct end *other)
{
	struct ibv_ah_attr path = {.dlid = other->lid, .sl = SL, .port_num = 1};
	struct ibv_ah_attr alternate = {
		.dlid = other->lid + 1, .sl = SL, .src_path_bits = 1, .port_num = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int r = ibv_modify_qp(e->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);

	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = other->qp->qp_num,
				    .rq_psn = PSN,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12,
				    .ah_attr = path,
				    .alt_ah_attr = alternate,
				    .alt_port_num = 1,
				    .alt_timeout = TIMEOUT};
	r = r ? r
	      : ibv_modify_qp(e->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = PSN,
				    .timeout = TIMEOUT,
				    .retry_cnt = RETRIES,
				    .rnr_retry = RETRIES,
				    .max_rd_atomic = 1,
				    .path_mig_state = IBV_MIG_REARM};
	r = r ? r
	      : ibv_modify_qp(e->qp, &attr,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
				      IBV_QP_PATH_MIG_STATE);
	errno = r;
	if (r)
		die("modify_qp");
}

static struct ibv_wc await(struct end *e, const char *what)
{
	uint64_t end_ms = now_ms() + DEADLINE_MS;
	struct ibv_wc wc = {.status = IBV_WC_FATAL_ERR};

	while (!ibv_poll_cq(e->cq, 1, &wc))
		expect(now_ms() < end_ms, what);
	expect(wc.status == IBV_WC_SUCCESS, what);
	return wc;
}

/* A message comes from the SLID that the sender's path has. */
static void message(struct end *from, struct end *to, unsigned path_bits)
{
	struct ibv_sge out = {(uintptr_t)from->bytes, MESSAGE_BYTES, from->mr->lkey};
	struct ibv_sge in = {(uintptr_t)to->bytes, MESSAGE_BYTES, to->mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &in, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_wc wc;

	if (ibv_post_recv(to->qp, &receive, &bad_receive) ||
	    ibv_post_send(from->qp, &send, &bad_send))
		die("post");
	await(from, "a message is sent");
	wc = await(to, "a message arrives");
	expect(wc.slid == from->lid + path_bits, "it came from the LID of the path in use");
	expect(wc.sl == SL && !(wc.wc_flags & IBV_WC_GRH), "by its SL, without a GRH");
}

static void expect_state(struct end *e, enum ibv_mig_state state, uint16_t dlid)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(e->qp, &attr, IBV_QP_AV | IBV_QP_PATH_MIG_STATE, &init))
		die("query_qp");
	expect(attr.path_mig_state == state,
	       state == IBV_MIG_ARMED ? "the QP is ARMED" : "the QP has MIGRATED");
	expect(attr.ah_attr.dlid == dlid && !attr.ah_attr.is_global, "the QP has this DLID");
}

static void expect_event(struct end *e)
{
	struct ibv_async_event event;
	bool came = false;

	while (!ibv_get_async_event(e->context, &event)) {
		came |= event.event_type == IBV_EVENT_PATH_MIG;
		ibv_ack_async_event(&event);
	}
	expect(came, "PATH_MIG has come");
}

int main(int argc, char **argv)
{
	static struct end a, b;
	struct ibv_qp_attr migrate = {.path_mig_state = IBV_MIG_MIGRATED};

	open_end(&a, "rxe0");
	open_end(&b, "rxe1");
	connect_end(&a, &b);
	connect_end(&b, &a);
	message(&a, &b, 0);
	message(&b, &a, 0);
	message(&a, &b, 0);
	expect_state(&a, IBV_MIG_ARMED, b.lid);
	expect_state(&b, IBV_MIG_ARMED, a.lid);
	if (argc > 1 ? system(argv[1]) : ibv_modify_qp(a.qp, &migrate, IBV_QP_PATH_MIG_STATE))
		die(argc > 1 ? argv[1] : "modify_qp to MIGRATED");
	message(&a, &b, 1);
	message(&b, &a, 1);
	expect_state(&a, IBV_MIG_MIGRATED, b.lid + 1);
	expect_state(&b, IBV_MIG_MIGRATED, a.lid + 1);
	expect_event(&a);
	expect_event(&b);
	return 0;
}
