/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory windows, checked. Until SIGTERM both sides bind windows, tell each other the keys, write
 * through them, invalidate them, and begin again with the next key. Then each side writes with a
 * key that was invalidated, which must fail.
 *
 *   rdma_mw -p TCP-PORT -o FILE (result and live status, JSON) [-z BOUND] [-y INVALID] [HOST]
 *
 * As long as the file BOUND exists, it waits while its windows are bound and not yet used; the same
 * with INVALID before the end, when they have been invalidated. */
#include "tests/guest/rdma_conn.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 4096 /* size of a window */
#define QPS   2
#define PAUSE 10000 /* us */
#define MR_FLAGS                                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_MW_BIND)

/* The client's second type of window is on QP 1, the server's on QP 0: each is written to, and
 * fails, on a QP of its own. */
static struct {
	struct ibv_qp *qp[QPS];
	struct conn_qp me[QPS], peer[QPS];
	unsigned own, other; /* QPs: of the own window, and of the peer's */
} conn;

/* The two sides tell each other this in each round. */
struct round {
	uint64_t n, addr1, addr2;
	uint32_t rkey1, rkey2, stop, reserved;
};

static const char *bound_file, *invalid_file, *output;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_mw *mw1, *mw2;
static uint8_t *memory; /* windows 1 and 2, what to write, where messages come */
static volatile sig_atomic_t stop_asked;
static int tcp;

static void status(uint64_t rounds, const char *paused, bool ended)
{
	char temporary[256];
	FILE *f;

	snprintf(temporary, sizeof temporary, "%s.new", output);
	f = fopen(temporary, "w");
	if (!f)
		return;
	fprintf(f, "{\"ended\":%s,\"sent\":%llu,\"paused\":\"%s\"}\n", ended ? "true" : "false",
		(unsigned long long)rounds, paused);
	if (!fclose(f))
		rename(temporary, output);
}

static void pause_while(const char *file, uint64_t round, const char *where)
{
	if (!file || access(file, F_OK))
		return;
	status(round, where, false);
	while (!access(file, F_OK))
		usleep(PAUSE);
}

static struct ibv_wc completion(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		usleep(100);
	if (n < 0)
		die("poll_cq failed");
	return wc;
}

static void expect(enum ibv_wc_opcode opcode, const char *what)
{
	struct ibv_wc wc = completion();

	if (wc.status || wc.opcode != opcode)
		die("%s: status %s, opcode %d", what, ibv_wc_status_str(wc.status), wc.opcode);
}

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->send_flags |= IBV_SEND_SIGNALED;
	rc = ibv_post_send(qp, wr, &bad);
	if (rc)
		die("post_send: %s", strerror(rc));
}

static void bind_both(void)
{
	struct ibv_mw_bind_info info = {mr, (uintptr_t)memory, BYTES, IBV_ACCESS_REMOTE_WRITE};
	struct ibv_mw_bind one = {.send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr two = {.opcode = IBV_WR_BIND_MW};
	int rc = ibv_bind_mw(conn.qp[conn.own], mw1, &one);

	if (rc)
		die("bind_mw: %s", strerror(rc));
	expect(IBV_WC_BIND_MW, "binding a window of type 1");
	info.addr += BYTES;
	two.bind_mw.mw = mw2;
	two.bind_mw.rkey = ibv_inc_rkey(mw2->rkey);
	two.bind_mw.bind_info = info;
	post(conn.qp[conn.own], &two);
	mw2->rkey = two.bind_mw.rkey;
	expect(IBV_WC_BIND_MW, "binding a window of type 2");
}

static struct ibv_send_wr write_wr(struct ibv_sge *sge, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 1};

	*sge = (struct ibv_sge){(uintptr_t)memory + 2 * BYTES, BYTES, mr->lkey};
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return wr;
}

static void write_both(const struct round *peer)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(&sge, peer->addr1, peer->rkey1);

	memset(memory + 2 * BYTES, (int)(peer->n & 0xff), BYTES);
	post(conn.qp[conn.other], &wr);
	expect(IBV_WC_RDMA_WRITE, "a write through a window of type 1");
	wr = write_wr(&sge, peer->addr2, peer->rkey2);
	post(conn.qp[conn.other], &wr);
	expect(IBV_WC_RDMA_WRITE, "a write through a window of type 2");
}

static void check(uint64_t n)
{
	for (size_t i = 0; i < 2 * BYTES; i++)
		if (memory[i] != (n & 0xff))
			die("round %llu: byte %zu of the windows is %u", (unsigned long long)n, i,
			    memory[i]);
}

/* In turns by ourselves and by the peer's message. */
static void invalidate(uint64_t n, const struct round *peer)
{
	struct ibv_sge sge = {(uintptr_t)memory + 3 * BYTES, BYTES, mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw2->rkey};
	char go = 0;

	if (n % 2) {
		post(conn.qp[conn.own], &wr);
		expect(IBV_WC_LOCAL_INV, "invalidating a window");
		return;
	}
	if (ibv_post_recv(conn.qp[conn.own], &recv, &bad_recv))
		die("post_recv failed");
	conn_swap(tcp, &go, &go, 1);
	wr = (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = peer->rkey2};
	post(conn.qp[conn.other], &wr);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();

		if (wc.status)
			die("sending with invalidate: %s", ibv_wc_status_str(wc.status));
		if (wc.opcode & IBV_WC_RECV &&
		    (wc.wc_flags & IBV_WC_WITH_IMM || wc.invalidated_rkey != mw2->rkey))
			die("the peer has invalidated 0x%x, the window's key is 0x%x",
			    wc.invalidated_rkey, mw2->rkey);
	}
}

/* The window was invalidated: the peer refuses the write. One side at a time. */
static void use_stale(const struct round *peer)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(&sge, peer->addr2, peer->rkey2);
	struct ibv_wc wc;

	memset(memory + 2 * BYTES, 0xee, BYTES);
	post(conn.qp[conn.other], &wr);
	do /* the other QP is flushed when its peer did the same */
		wc = completion();
	while (wc.qp_num != conn.qp[conn.other]->qp_num);
	if (wc.status != IBV_WC_REM_ACCESS_ERR)
		die("a write with an invalidated key: %s", ibv_wc_status_str(wc.status));
}

static void connect_all(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	for (unsigned i = 0; i < QPS; i++) {
		conn.qp[i] = ibv_create_qp(pd, &init);
		if (!conn.qp[i] || ibv_modify_qp(conn.qp[i], &a,
						 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							 IBV_QP_ACCESS_FLAGS))
			die("create_qp or modify_qp: %s", strerror(errno));
		conn.me[i].qpn = conn.qp[i]->qp_num;
		conn.me[i].psn = 100 + i;
		conn_address(ctx, 0, &conn.me[i]);
		conn_swap(tcp, &conn.me[i], &conn.peer[i], sizeof conn.me[i]);
		conn_up(conn.qp[i], &conn.me[i], &conn.peer[i], 0);
	}
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static void rounds(struct round *ret_peer)
{
	for (uint64_t n = 1;; n++) {
		struct round mine = {.n = n, .stop = stop_asked != 0};

		bind_both();
		mine.addr1 = (uintptr_t)memory;
		mine.addr2 = (uintptr_t)memory + BYTES;
		mine.rkey1 = mw1->rkey;
		mine.rkey2 = mw2->rkey;
		conn_swap(tcp, &mine, ret_peer, sizeof mine);
		pause_while(bound_file, n, "bound");
		write_both(ret_peer);
		conn_swap(tcp, &mine, ret_peer, sizeof mine);
		check(n);
		invalidate(n, ret_peer);
		conn_swap(tcp, &mine, ret_peer, sizeof mine);
		status(n, "", false);
		if (mine.stop || ret_peer->stop)
			return;
	}
}

int main(int argc, char **argv)
{
	struct round peer;
	unsigned port = 18700;
	char go = 0;
	int c;

	while ((c = getopt(argc, argv, "p:o:z:y:")) != -1) {
		if (c == 'p')
			port = (unsigned)atoi(optarg);
		else if (c == 'o')
			output = optarg;
		else if (c == 'z')
			bound_file = optarg;
		else if (c == 'y')
			invalid_file = optarg;
		else
			die("usage: see the head of rdma_mw.c");
	}
	if (!output)
		die("-o FILE is needed");
	signal(SIGTERM, on_signal);
	ctx = conn_open(NULL);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 32, NULL, NULL, 0);
	memory = aligned_alloc(4096, 4 * BYTES);
	if (!pd || !cq || !memory)
		die("alloc_pd, create_cq or no memory");
	memset(memory, 0, 4 * BYTES);
	mr = ibv_reg_mr(pd, memory, 4 * BYTES, MR_FLAGS);
	mw1 = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	mw2 = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!mr || !mw1 || !mw2)
		die("reg_mr or alloc_mw: %s", strerror(errno));
	tcp = conn_tcp(argv[optind], port);
	conn.own = argv[optind] ? 1 : 0;
	conn.other = 1 - conn.own;
	connect_all();
	rounds(&peer);
	pause_while(invalid_file, peer.n, "invalid");
	conn_swap(tcp, &go, &go, 1);
	if (argv[optind])
		use_stale(&peer);
	conn_swap(tcp, &go, &go, 1);
	if (!argv[optind])
		use_stale(&peer);
	conn_swap(tcp, &go, &go, 1);
	check(peer.n);
	for (unsigned i = 0; i < QPS; i++)
		if (ibv_destroy_qp(conn.qp[i]))
			die("destroy_qp failed");
	if (ibv_dealloc_mw(mw1) || ibv_dealloc_mw(mw2) || ibv_dereg_mr(mr))
		die("dealloc_mw or dereg_mr failed");
	status(peer.n, "", true);
	printf("%llu rounds\n", (unsigned long long)peer.n);
	return 0;
}
