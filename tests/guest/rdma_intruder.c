/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sends to QPs of another VM with a P_Key that these do not have, by UD, UC and RC, until SIGTERM.
 *
 *   rdma_intruder -P P_KEY [-r PACKETS/S] [-o FILE] LID[,LID...] FIRST-QPN COUNT
 *
 * The QPNs of the other end are guessed: one after the other of COUNT from FIRST-QPN, at each of
 * the LIDs that it may have. All packets have FOREIGN_NUMBER first and, where they have one, the
 * Q_Key of rdma_ud. FILE, JSON: {"sent": N}. Nothing of it must arrive. */
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_foreign.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SENDS        16
#define LIDS_MAX     8
#define REPORT_EVERY 64 /* packets */

static const enum ibv_qp_type types[] = {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RC};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_ah *ahs[LIDS_MAX];
static uint64_t payload[8] = {FOREIGN_NUMBER, FOREIGN_NUMBER};
static uint16_t pkey_index, lids[LIDS_MAX];
static unsigned lid_count;
static volatile sig_atomic_t stop_asked;

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	if (ibv_modify_qp(qp, a, IBV_QP_STATE | mask))
		die("modify_qp to %d: %s", a->qp_state, strerror(errno));
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {SENDS, 1, 1, 1, 0},
					.qp_type = type,
					.sq_sig_all = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		die("create_qp: %s", strerror(errno));
	return qp;
}

/* From any state to RTS, towards that number. */
static void connect_to(struct ibv_qp *qp, unsigned at, uint32_t qpn)
{
	bool ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	modify(qp, &a, 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .pkey_index = pkey_index,
				 .qkey = FOREIGN_QKEY};
	modify(qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = qpn,
				 .max_dest_rd_atomic = 1,
				 .ah_attr = {.port_num = 1, .dlid = lids[at]}};
	modify(qp, &a,
	       (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
		       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 1, .max_rd_atomic = 1};
	modify(qp, &a,
	       IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
				   : 0));
}

/* at: index of the LID. */
static void send_to(struct ibv_qp *qp, unsigned at, uint32_t qpn)
{
	struct ibv_sge sge = {(uintptr_t)payload, sizeof payload, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_wc wc[SENDS];

	if (qp->qp_type != IBV_QPT_UD) {
		connect_to(qp, at, qpn);
	} else {
		wr.wr.ud.ah = ahs[at];
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = FOREIGN_QKEY;
	}
	if (ibv_post_send(qp, &wr, &bad))
		die("post_send failed");
	while (ibv_poll_cq(cq, SENDS, wc) > 0)
		; /* an RC send ends in an error: nobody acknowledges it */
}

static void report(const char *output, uint64_t sent)
{
	char *temporary = NULL;
	FILE *f;

	if (!output || asprintf(&temporary, "%s.new", output) < 0)
		return;
	f = fopen(temporary, "w");
	if (f) {
		fprintf(f, "{\"sent\":%llu}\n", (unsigned long long)sent);
		if (!fclose(f))
			rename(temporary, output);
	}
	free(temporary);
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static void parse_lids(char *text)
{
	for (char *t = strtok(text, ","); t && lid_count < LIDS_MAX; t = strtok(NULL, ","))
		lids[lid_count++] = (uint16_t)option_number(t, 1, 0xbfff, 'L');
	if (!lid_count)
		die("usage: see the head of rdma_intruder.c");
}

static void set_up(int pkey)
{
	ctx = conn_open(NULL);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 4 * SENDS, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, payload, sizeof payload, 0);
	if (!cq || !mr)
		die("create_cq or reg_mr: %s", strerror(errno));
	for (unsigned i = 0; i < lid_count; i++) {
		struct ibv_ah_attr a = {.port_num = 1, .dlid = lids[i]};

		ahs[i] = ibv_create_ah(pd, &a);
		if (!ahs[i])
			die("create_ah: %s", strerror(errno));
	}
	pkey_index = conn_pkey_index(ctx, pkey);
}

int main(int argc, char **argv)
{
	struct ibv_qp *qps[3];
	const char *output = NULL;
	unsigned rate = 100, first, count;
	uint64_t sent = 0;
	int c, pkey = 0;

	while ((c = getopt(argc, argv, "P:r:o:")) != -1) {
		if (c == 'P')
			pkey = (int)strtol(optarg, NULL, 16);
		else if (c == 'r')
			rate = option_number(optarg, 1, 100000, 'r');
		else if (c == 'o')
			output = optarg;
		else
			die("usage: see the head of rdma_intruder.c");
	}
	if (argc - optind != 3 || !pkey)
		die("usage: see the head of rdma_intruder.c");
	parse_lids(argv[optind]);
	first = option_number(argv[optind + 1], 2, 0xffffff, 'F');
	count = option_number(argv[optind + 2], 1, 0xffff, 'C');
	signal(SIGTERM, on_signal);
	set_up(pkey);
	for (unsigned i = 0; i < 3; i++)
		qps[i] = make_qp(types[i]);
	connect_to(qps[0], 0, 0);
	while (!stop_asked) {
		unsigned n = (unsigned)(sent % (3ull * count)),
			 lid = (unsigned)(sent / (3ull * count));

		send_to(qps[n % 3], lid % lid_count, first + n / 3);
		if (++sent % REPORT_EVERY == 0)
			report(output, sent);
		usleep(1000000 / rate);
	}
	report(output, sent);
	printf("sent %llu\n", (unsigned long long)sent);
	return 0;
}
