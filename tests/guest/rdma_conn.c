/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/guest/rdma_conn.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TRIES 300
#define CONNECT_PAUSE 100000 /* us */
#define MODIFY_TRIES  20

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("FATAL: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

unsigned option_number(const char *text, unsigned min, unsigned max, char option)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || *end || v < min || v > max)
		die("-%c %s: allowed is %u to %u", option, text, min, max);
	return (unsigned)v;
}

static int try_connect(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && !connect(fd, (const struct sockaddr *)a, sizeof *a))
		return fd;
	close(fd);
	return -1;
}

static int wait_peer(const struct sockaddr_in *a)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), fd;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(s, (const struct sockaddr *)a, sizeof *a) || listen(s, 1))
		die("cannot listen on TCP port %u: %s", ntohs(a->sin_port), strerror(errno));
	if ((fd = accept(s, NULL, NULL)) < 0)
		die("accept: %s", strerror(errno));
	close(s);
	return fd;
}

int conn_tcp(const char *host, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	if (!host)
		return wait_peer(&a);
	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		die("\"%s\" is not an IPv4 address", host);
	for (int i = 0; i < CONNECT_TRIES; i++) {
		int fd = try_connect(&a);

		if (fd >= 0)
			return fd;
		usleep(CONNECT_PAUSE);
	}
	die("no answer from %s:%u", host, port);
}

void conn_swap(int fd, const void *mine, void *theirs, size_t bytes)
{
	size_t got = 0;

	if (send(fd, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		die("TCP peer is gone");
	while (got < bytes) {
		ssize_t n = recv(fd, (char *)theirs + got, bytes - got, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("TCP peer is gone");
		got += (size_t)n;
	}
}

struct ibv_context *conn_open(const char *device)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && i < n && !ctx; i++)
		if (!device || !strcmp(ibv_get_device_name(list[i]), device))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die("no RDMA device%s%s (of %d)", device ? " " : "", device ? device : "", n);
	ibv_free_device_list(list);
	return ctx;
}

uint8_t conn_sl;
uint8_t conn_timeout = 21; /* 9 s: rxe 6.1 mishandles READs and atomics that are sent again, and TCG
			    * guests stall for seconds on a loaded machine */

/* The code of 41 ms. At its end rxe begins anew with all that is not acknowledged. An ACK that
 * comes just then makes rxe send a request under another PSN (rxe_req.c, req_retry, Linux 6.1), and
 * the other end executes it twice, or calls it invalid. So this should happen seldom. */
uint8_t conn_rnr_timer = 24;

/* Linux resolves the other end's address within a second, or not: on a loaded machine, again. */
static void modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, const char *to)
{
	int rc = ETIMEDOUT;

	for (int i = 0; i < MODIFY_TRIES && rc == ETIMEDOUT; i++)
		rc = ibv_modify_qp(qp, a, mask);

	if (rc)
		die("modify QP %u to %s: %s", qp->qp_num, to, strerror(rc));
}

uint16_t conn_pkey_index(struct ibv_context *ctx, int pkey)
{
	int at = pkey ? ibv_get_pkey_index(ctx, 1, htobe16((uint16_t)pkey)) : 0;

	if (at < 0)
		die("port 1 does not have P_Key 0x%04x", (unsigned)pkey);
	return (uint16_t)at;
}

void conn_address(struct ibv_context *ctx, int gid_index, struct conn_qp *ret_me)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	if (ibv_query_port(ctx, 1, &port) ||
	    ibv_query_gid(ctx, 1, gid_index == CONN_BY_LID ? 0 : gid_index, &gid))
		die("query_port or query_gid: %s", strerror(errno));
	memcpy(ret_me->gid, gid.raw, sizeof(ret_me->gid));
	ret_me->lid = port.lid;
}

void conn_up(struct ibv_qp *qp, const struct conn_qp *me, const struct conn_qp *peer, int gid_index)
{
	bool uc = qp->qp_type == IBV_QPT_UC;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = conn_rnr_timer,
		.ah_attr = {.port_num = 1, .dlid = peer->lid, .sl = conn_sl},
	};

	if (gid_index != CONN_BY_LID) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.hop_limit = 4;
		a.ah_attr.grh.sgid_index = (uint8_t)gid_index;
		memcpy(a.ah_attr.grh.dgid.raw, peer->gid, 16);
	}
	modify(qp, &a,
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (uc ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	       "RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = conn_timeout,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .sq_psn = me->psn,
				 .max_rd_atomic = 4};
	modify(qp, &a,
	       IBV_QP_STATE | IBV_QP_SQ_PSN |
		       (uc ? 0
			   : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_MAX_QP_RD_ATOMIC),
	       "RTS");
}
