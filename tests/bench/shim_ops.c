/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data path of a program, for counting: shim_ops bare|shim OPERATION N. Under callgrind with
 * --toggle-collect=count_OPERATION only the N calls of that operation are counted. `ns` prints the
 * wall clock of N pairs of a SEND and its completion, and of a receive and its completion. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fake/verbs/rig.h"

#define WARM_UP 64

static struct rig rig;
static struct ibv_sge sge;
static struct ibv_send_wr send_wr;
static struct ibv_recv_wr recv_wr;

/* An operation is a function with a name, so that callgrind can be told to count what it calls. */
static __attribute__((noinline)) int count_post_send(void)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(rig.qp, &send_wr, &bad);
}

static __attribute__((noinline)) int count_post_recv(void)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(rig.qp, &recv_wr, &bad);
}

static __attribute__((noinline)) int count_poll_cq(void)
{
	struct ibv_wc wc;

	return ibv_poll_cq(rig.cq, 1, &wc);
}

static int pairs(int (*post)(void), unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		if (post() || count_poll_cq() != 1)
			return -EIO;
	return 0;
}

static int empty_polls(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		if (count_poll_cq())
			return -EIO;
	return 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int clock_pairs(unsigned long n)
{
	double t[3];
	int rc;

	t[0] = seconds();
	rc = pairs(count_post_send, n);
	t[1] = seconds();
	if (!rc)
		rc = pairs(count_post_recv, n);
	t[2] = seconds();
	printf("{\"send_pair_ns\": %.2f, \"recv_pair_ns\": %.2f}\n",
	       (t[1] - t[0]) * 1e9 / (double)n, (t[2] - t[1]) * 1e9 / (double)n);
	return rc;
}

static int run(const char *what, unsigned long n)
{
	if (!strcmp(what, "inline"))
		send_wr.send_flags |= IBV_SEND_INLINE;
	send_wr.opcode = !strcmp(what, "write") ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
	if (pairs(count_post_send, WARM_UP) || pairs(count_post_recv, WARM_UP))
		return -EIO;
	if (!strcmp(what, "ns"))
		return clock_pairs(n);
	if (!strcmp(what, "empty"))
		return empty_polls(n);
	return pairs(!strcmp(what, "recv") ? count_post_recv : count_post_send, n);
}

int main(int argc, char **argv)
{
	bool shim = argc == 4 && !strcmp(argv[1], "shim");
	int rc;

	if (argc != 4) {
		fprintf(stderr, "usage: shim_ops bare|shim send|recv|write|inline|empty|ns N\n");
		return 2;
	}
	rc = rig_exec(argv, shim);
	if (!rc)
		rc = rig_open(&rig);
	if (rc || rig_has_shim(&rig) != shim) {
		fprintf(stderr, "shim_ops: set-up fails: %d\n", rc);
		return 1;
	}
	sge = (struct ibv_sge){(uintptr_t)rig.buffer, 64, rig.mr->lkey};
	send_wr = (struct ibv_send_wr){
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	recv_wr = (struct ibv_recv_wr){.wr_id = 8, .sg_list = &sge, .num_sge = 1};
	return run(argv[2], strtoul(argv[3], NULL, 10)) ? 1 : 0;
}
