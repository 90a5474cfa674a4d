/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many QPs, each with a little checked traffic: for what a migration costs per QP and per region.
 *
 *   rdma_scale [options] [HOST]   as rdma_check: waits for its peer, or connects to it
 *
 *   -q QPS (64)   -k REGIONS (1)   -c CQS (1 for 1,024 QPs)   -r MESSAGES/S of all QPs together
 * (500) -d DEVICE  -g GID-INDEX (0)  -p TCP-PORT (18700)  -o FILE  result and live status, JSON
 *
 * Message n of a QP is a WRITE of n into a word at the peer, then a SEND that says QP and n. Every
 * second message is unsignalled. The QPs take turns, and a QP has at most two messages under way.
 */
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_stats.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define OBJECTS_MAX  4096
#define RECEIVES     4
#define WINDOW       2 /* SENDs under way */
#define SQ_ENTRIES   (2 * (WINDOW + 1))
#define QPS_PER_CQ   1024 /* rxe's largest CQ (32,767) is enough for so many */
#define PAGE_BYTES   4096u
#define STATUS_EVERY 100000    /* us */
#define PAUSE_US     500       /* with nothing to do */
#define FINISH_US    100000000 /* for the last arrivals */

struct message {
	uint64_t n;
	uint32_t qp, check;
};

/* A QP's part of its region. */
struct slot {
	struct message send[WINDOW], recv[RECEIVES];
	uint64_t write_from[WINDOW], written; /* the peer writes to .written */
};

struct side {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct slot *slot;
	uint64_t sent, acked, received;
	struct conn_qp me, peer;
};

static struct {
	const char *device, *host, *output;
	unsigned port, qps, regions, cqs, rate;
	int gid_index;
} opt = {.port = 18700, .qps = 64, .regions = 1, .rate = 500};

static struct stats stats;
static struct side sides[OBJECTS_MAX];
static struct ibv_cq *cqs[OBJECTS_MAX];
static struct ibv_mr *mrs[OBJECTS_MAX];
static uint16_t *side_of; /* by QPN */
static volatile sig_atomic_t stop_asked;

static uint32_t check_of(uint32_t qp, uint64_t n)
{
	return (uint32_t)((n * 0x9e3779b97f4a7c15ull) >> 32) ^ qp * 2654435761u;
}

static void post_receive(struct side *s, unsigned i)
{
	struct ibv_sge sge = {(uintptr_t)&s->slot->recv[i], sizeof s->slot->recv[i], s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
	int rc = ibv_post_recv(s->qp, &wr, &bad);

	if (rc)
		die("post_recv: %s", strerror(rc));
}

static void send_next(struct side *s)
{
	uint64_t n = ++s->sent;
	unsigned at = n % WINDOW;
	uint32_t index = (uint32_t)(s - sides);
	struct ibv_sge sge[2] = {
		{(uintptr_t)&s->slot->write_from[at], sizeof(uint64_t), s->mr->lkey},
		{(uintptr_t)&s->slot->send[at], sizeof(struct message), s->mr->lkey},
	};
	struct ibv_send_wr send = {.wr_id = n,
				   .sg_list = &sge[1],
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = n % 2 ? 0 : IBV_SEND_SIGNALED};
	struct ibv_send_wr write = {.next = &send,
				    .sg_list = &sge[0],
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .wr.rdma = {s->peer.ring_addr, s->peer.ring_rkey}};
	struct ibv_send_wr *bad;
	int rc;

	s->slot->write_from[at] = n;
	s->slot->send[at] = (struct message){n, index, check_of(index, n)};
	rc = ibv_post_send(s->qp, &write, &bad);
	if (rc)
		die("post_send: %s", strerror(rc));
	stats.sent++;
	stats.writes++;
	stats.bytes += sizeof(struct message);
}

/* An unsignalled message is known to be done when the one after it is; so the window never ends
 * with one. */
static bool may_send(const struct side *s)
{
	return s->sent % 2 || s->sent - s->acked < WINDOW;
}

static void on_message(struct side *s, const struct message *m)
{
	uint64_t want = s->received + 1, written = s->slot->written;

	stats_arrival(&stats);
	stats.received++;
	if (m->qp != (uint32_t)(s - sides) || m->check != check_of(m->qp, m->n)) {
		stats.corrupt++;
		stats_complain(&stats, "QP %td: message after %llu is not intact", s - sides,
			       (unsigned long long)s->received);
	}
	if (m->n < want) {
		stats.duplicated++;
		stats_complain(&stats, "QP %td: message %llu came again", s - sides,
			       (unsigned long long)m->n);
		return;
	}
	stats.lost += m->n - want;
	s->received = m->n;
	/* RC keeps the order: the WRITE of n is there, of a later one perhaps. */
	if (written < m->n || written > m->n + RECEIVES + WINDOW) {
		stats.corrupt++;
		stats_complain(&stats, "QP %td: message %llu, but the word written is %llu",
			       s - sides, (unsigned long long)m->n, (unsigned long long)written);
	}
}

static void on_completion(const struct ibv_wc *wc)
{
	struct side *s = &sides[side_of[wc->qp_num]];

	if (wc->status)
		die("QP %td: completion of %s with status %s (%d)", s - sides,
		    wc->opcode & IBV_WC_RECV ? "a receive" : "a send",
		    ibv_wc_status_str(wc->status), wc->status);
	if (!(wc->opcode & IBV_WC_RECV)) {
		s->acked = wc->wr_id;
		return;
	}
	on_message(s, &s->slot->recv[wc->wr_id]);
	post_receive(s, (unsigned)wc->wr_id);
}

static unsigned poll_all(void)
{
	struct ibv_wc wc[32];
	unsigned total = 0;
	int n;

	for (unsigned c = 0; c < opt.cqs; c++) {
		while ((n = ibv_poll_cq(cqs[c], 32, wc)) > 0) {
			for (int i = 0; i < n; i++)
				on_completion(&wc[i]);
			total += (unsigned)n;
		}
		if (n < 0)
			die("poll_cq failed");
	}
	return total;
}

static void make_regions(struct ibv_pd *pd)
{
	unsigned each = (opt.qps + opt.regions - 1) / opt.regions;
	size_t bytes = (each * sizeof(struct slot) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	char *memory = mmap(NULL, bytes * opt.regions, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory for %u regions of %zu bytes", opt.regions, bytes);
	for (unsigned k = 0; k < opt.regions; k++) {
		mrs[k] = ibv_reg_mr(pd, memory + k * bytes, bytes,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		if (!mrs[k])
			die("reg_mr %u: %s", k, strerror(errno));
	}
}

static void make_side(struct side *s, struct ibv_pd *pd)
{
	unsigned i = (unsigned)(s - sides);
	struct ibv_cq *cq = cqs[i % opt.cqs];
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {SQ_ENTRIES, RECEIVES, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	s->mr = mrs[i % opt.regions];
	s->slot = (struct slot *)s->mr->addr + i / opt.regions;
	s->qp = ibv_create_qp(pd, &init);
	if (!s->qp ||
	    ibv_modify_qp(s->qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("QP %u, %s: %s", i, s->qp ? "INIT" : "create", strerror(errno));
	side_of[s->qp->qp_num & 0xffffff] = (uint16_t)i;
	s->me = (struct conn_qp){.qpn = s->qp->qp_num,
				 .psn = s->qp->qp_num * 77 & 0xffffff,
				 .ring_rkey = s->mr->rkey,
				 .ring_addr = (uintptr_t)&s->slot->written};
	conn_address(pd->context, opt.gid_index, &s->me);
	for (unsigned k = 0; k < RECEIVES; k++)
		post_receive(s, k);
}

static void make_all(int fd)
{
	struct ibv_context *ctx = conn_open(opt.device);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	unsigned each = (opt.qps + opt.cqs - 1) / opt.cqs;

	side_of = calloc(1u << 24, sizeof *side_of);
	if (!pd || !side_of)
		die("alloc_pd: %s", strerror(errno));
	make_regions(pd);
	for (unsigned c = 0; c < opt.cqs; c++) {
		cqs[c] = ibv_create_cq(ctx, (int)(each * (SQ_ENTRIES + RECEIVES)), NULL, NULL, 0);
		if (!cqs[c])
			die("create_cq %u: %s", c, strerror(errno));
	}
	for (struct side *s = sides; s < sides + opt.qps; s++) {
		make_side(s, pd);
		conn_swap(fd, &s->me, &s->peer, sizeof s->me);
		conn_up(s->qp, &s->me, &s->peer, opt.gid_index);
	}
	conn_swap(fd, "go", (char[2]){0}, 2);
}

static bool tcp_says_stop(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
}

static void run(int fd)
{
	uint64_t start = stats_now_us(), shown = 0, base = 0, now;
	unsigned turn = 0;

	stats.last_us = start;
	for (;;) {
		bool idle = poll_all() == 0;

		now = stats_now_us();
		/* After an outage, no burst of all that was not sent in it. */
		if (stats.sent - base + opt.rate < (now - start) * opt.rate / 1000000) {
			base = stats.sent;
			start = now;
		}
		for (unsigned i = 0; i < opt.qps; i++, turn = (turn + 1) % opt.qps) {
			if (stats.sent - base >= (now - start) * opt.rate / 1000000)
				break;
			if (may_send(&sides[turn]))
				send_next(&sides[turn]);
		}
		if (now - shown > STATUS_EVERY) {
			stats_write(&stats, opt.output, false);
			shown = now;
			if (stop_asked || tcp_says_stop(fd))
				return;
		}
		if (idle)
			usleep(PAUSE_US);
	}
}

static void finish(int fd)
{
	static uint64_t mine[OBJECTS_MAX], theirs[OBJECTS_MAX];
	bool complete = false;
	uint64_t end;

	for (unsigned i = 0; i < opt.qps; i++)
		mine[i] = sides[i].sent;
	/* until the other end is here, too */
	conn_swap(fd, mine, theirs, sizeof mine[0] * opt.qps);
	end = stats_now_us() + FINISH_US;
	while (!complete && stats_now_us() < end) {
		complete = poll_all() == 0;
		for (unsigned i = 0; i < opt.qps; i++)
			complete &= sides[i].received >= theirs[i];
		usleep(PAUSE_US);
	}
	for (unsigned i = 0; i < opt.qps; i++) {
		if (sides[i].received >= theirs[i])
			continue;
		stats.lost += theirs[i] - sides[i].received;
		stats_complain(&stats, "QP %u: the peer sent %llu, %llu arrived", i,
			       (unsigned long long)theirs[i],
			       (unsigned long long)sides[i].received);
	}
	conn_swap(fd, mine, theirs, sizeof mine[0] * opt.qps); /* both go together */
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "d:g:p:q:k:c:r:o:")) != -1) {
		switch (c) {
		case 'd':
			opt.device = optarg;
			break;
		case 'g':
			opt.gid_index = (int)option_number(optarg, 0, 255, 'g');
			break;
		case 'p':
			opt.port = option_number(optarg, 1, 65535, 'p');
			break;
		case 'q':
			opt.qps = option_number(optarg, 1, OBJECTS_MAX, 'q');
			break;
		case 'k':
			opt.regions = option_number(optarg, 1, OBJECTS_MAX, 'k');
			break;
		case 'c':
			opt.cqs = option_number(optarg, 1, OBJECTS_MAX, 'c');
			break;
		case 'r':
			opt.rate = option_number(optarg, 1, 1000000, 'r');
			break;
		case 'o':
			opt.output = optarg;
			break;
		default:
			die("usage: see the head of rdma_scale.c");
		}
	}
	opt.host = argv[optind];
	if (!opt.cqs)
		opt.cqs = (opt.qps + QPS_PER_CQ - 1) / QPS_PER_CQ;
}

int main(int argc, char **argv)
{
	int fd;

	parse(argc, argv);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	fd = conn_tcp(opt.host, opt.port);
	make_all(fd);
	run(fd);
	finish(fd);
	stats_write(&stats, opt.output, true);
	printf("sent %llu received %llu lost %llu duplicated %llu corrupt %llu%s%s\n",
	       (unsigned long long)stats.sent, (unsigned long long)stats.received,
	       (unsigned long long)stats.lost, (unsigned long long)stats.duplicated,
	       (unsigned long long)stats.corrupt, stats.first_error[0] ? "; first: " : "",
	       stats.first_error);
	return stats.lost || stats.duplicated || stats.corrupt ? 1 : 0;
}
