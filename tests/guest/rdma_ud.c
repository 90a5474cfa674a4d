/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checked datagrams: a client asks, a server answers whoever the completion names, and both see
 * that the sender's QPN is the one that they were told. A datagram that is lost ends it with an
 * error; most sends are not signalled.
 *
 *   rdma_ud [options]          server
 *   rdma_ud [options] HOST     client; SIGTERM ends both
 *
 *   -p TCP-PORT (18700)
 *   -g GID-INDEX (0)
 *   -L       the client's address handle is of the LID alone, without a GRH (InfiniBand)
 *   -P P_KEY of the QPs, as 0x8001; without it that at index 0
 *   -r RATE  questions a second; without it as fast as they are answered
 *   -i MS    between two writes of FILE (100)
 *   -V SL    of the handles (0)
 *   -o FILE  result and live status, JSON; "corrupt" counts senders that are not the other end,
 *            "writes" what came by multicast, "foreign" what rdma_intruder has sent
 *   -m       the server is in a group, and the client sends to it, too: one pair of a network
 *   -e       sleep on a completion channel */
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_foreign.h"
#include "tests/guest/rdma_stats.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECEIVES     64
#define SENDS        64
#define WINDOW       8  /* questions without an answer */
#define SIGNAL_EVERY 5  /* sends */
#define GROUP_EVERY  8  /* questions also go to the group */
#define NEW_AH_EVERY 16 /* answers */
#define GRH_BYTES    40
#define SLOT_BYTES   256
#define QKEY         FOREIGN_QKEY
#define LOST_US      30000000
#define SLEEP_MS     20 /* at most, without an event */

struct numbers {
	uint8_t gid[16];
	uint32_t qpn, lid; /* 0 on RoCE */
};

/* All-nodes (RFC 4291, 2.7.1): a network device takes its packets without being asked to. */
static const union ibv_gid group = {.raw = {0xff, 0x02, [15] = 1}};

static struct stats stats;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
static struct ibv_qp *qp, *group_qp;
static struct ibv_ah *to_peer, *to_group;
static struct numbers me, peer;
static uint8_t memory[SLOT_BYTES * (2 * RECEIVES + SENDS)];
static uint64_t posted, completed;
static bool server, multicast;
static int gid_index, pkey; /* CONN_BY_LID; 0: that at index 0 */
static unsigned rate;       /* 0: no limit */
static uint64_t next_ask_us, status_us = 100000;
static volatile sig_atomic_t stop_asked;

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {SENDS, RECEIVES, 1, 1, 0},
					.qp_type = IBV_QPT_UD};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.pkey_index = conn_pkey_index(ctx, pkey),
				.qkey = QKEY};
	struct ibv_qp *q = ibv_create_qp(pd, &init);

	if (!q ||
	    ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die("create_qp or INIT: %s", strerror(errno));
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(q, &a, IBV_QP_STATE))
		die("RTR: %s", strerror(errno));
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die("RTS: %s", strerror(errno));
	return q;
}

static uint8_t *slot(uint64_t index)
{
	return memory + index * SLOT_BYTES;
}

static void post_receive(struct ibv_qp *q, uint64_t index)
{
	struct ibv_sge sge = {(uintptr_t)slot(index), SLOT_BYTES, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};

	if (ibv_post_recv(q, &wr, &bad))
		die("post_recv failed");
}

static struct ibv_ah *make_ah(const uint8_t gid[16], uint32_t lid)
{
	struct ibv_ah_attr a = {.port_num = 1, .sl = conn_sl, .dlid = (uint16_t)lid};
	struct ibv_ah *ah;

	if (gid_index != CONN_BY_LID) {
		a.is_global = 1;
		a.grh.hop_limit = 4;
		a.grh.sgid_index = (uint8_t)gid_index;
		memcpy(a.grh.dgid.raw, gid, 16);
	}
	ah = ibv_create_ah(pd, &a);
	if (!ah)
		die("create_ah: %s", strerror(errno));
	return ah;
}

static void send_number(struct ibv_ah *ah, uint32_t qpn, uint64_t n)
{
	uint8_t *from = slot(2 * RECEIVES + posted % SENDS);
	struct ibv_sge sge = {(uintptr_t)from, sizeof n, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	memcpy(from, &n, sizeof n);
	wr.wr_id = ++posted;
	wr.send_flags = posted % SIGNAL_EVERY ? 0 : IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	if (ibv_post_send(qp, &wr, &bad))
		die("post_send failed");
}

/* To whom the completion says that it came from. */
static void answer(const struct ibv_wc *wc, uint64_t n)
{
	struct ibv_ah *before = to_peer;

	if (!to_peer || n % NEW_AH_EVERY == 0) {
		to_peer = ibv_create_ah_from_wc(pd, (struct ibv_wc *)wc,
						(struct ibv_grh *)(void *)slot(wc->wr_id), 1);
		if (!to_peer)
			die("create_ah_from_wc: %s", strerror(errno));
		if (before)
			ibv_destroy_ah(before);
	}
	send_number(to_peer, wc->src_qp, n);
	stats.sent++;
}

static void on_receive(const struct ibv_wc *wc)
{
	uint64_t n;

	memcpy(&n, slot(wc->wr_id) + GRH_BYTES, sizeof n);
	if (n == FOREIGN_NUMBER) {
		stats.foreign++;
		stats_complain(&stats, "a datagram of an intruder, QP %u", wc->src_qp);
		post_receive(group_qp && wc->qp_num == group_qp->qp_num ? group_qp : qp, wc->wr_id);
		return;
	}
	if (wc->src_qp != peer.qpn) {
		stats.corrupt++;
		stats_complain(&stats, "datagram %llu is of QP %u, not %u", (unsigned long long)n,
			       wc->src_qp, peer.qpn);
	}
	if (group_qp && wc->qp_num == group_qp->qp_num) {
		stats.writes++;
		post_receive(group_qp, wc->wr_id);
		return;
	}
	stats_arrival(&stats);
	if (n <= stats.received) {
		stats.duplicated++;
		stats_complain(&stats, "datagram %llu came again", (unsigned long long)n);
		post_receive(qp, wc->wr_id);
		return;
	}
	if (n > stats.received + 1) {
		stats.lost += n - stats.received - 1;
		stats_complain(&stats, "datagram %llu came, expected was %llu",
			       (unsigned long long)n, (unsigned long long)stats.received + 1);
	}
	stats.received = stats.received_least = n;
	if (server)
		answer(wc, n);
	post_receive(qp, wc->wr_id);
}

static unsigned poll_all(void)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq, 16, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			die("completion with status %s", ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode & IBV_WC_RECV)
			on_receive(&wc[i]);
		else
			completed = wc[i].wr_id;
	}
	if (n < 0)
		die("poll_cq failed");
	return (unsigned)n;
}

/* A client with a rate sleeps until it is to ask again, a server as long as its client does. */
static int sleep_ms(void)
{
	uint64_t now = stats_now_us();

	if (!rate)
		return SLEEP_MS;
	return server || now >= next_ask_us ? (int)(1000 / rate) + 1
					    : (int)((next_ask_us - now) / 1000) + 1;
}

static void wait_a_little(void)
{
	struct pollfd p = {.events = POLLIN};
	struct ibv_cq *which;
	void *context;

	if (!channel) {
		usleep(200);
		return;
	}
	p.fd = channel->fd;
	if (poll(&p, 1, sleep_ms()) > 0 && !ibv_get_cq_event(channel, &which, &context)) {
		ibv_ack_cq_events(which, 1);
		if (ibv_req_notify_cq(which, 0))
			die("req_notify_cq failed");
	}
}

static void ask(void)
{
	if (stats.sent - stats.received >= WINDOW || posted - completed + 2 > SENDS - SIGNAL_EVERY)
		return;
	if (rate) {
		uint64_t now = stats_now_us();

		if (now < next_ask_us)
			return;
		next_ask_us = now + 1000000 / rate; /* without catching up after an outage */
	}
	send_number(to_peer, peer.qpn, ++stats.sent);
	if (multicast && stats.sent % GROUP_EVERY == 0)
		send_number(to_group, 0xffffff, stats.sent);
}

static void run(int fd, const char *output)
{
	uint64_t shown = 0, now;
	char c;

	stats.last_us = stats_now_us();
	if (channel && ibv_req_notify_cq(cq, 0))
		die("req_notify_cq failed");
	for (;;) {
		unsigned n = poll_all();

		now = stats_now_us();
		if (!server && !stop_asked)
			ask();
		if (now - shown > status_us) {
			stats_write(&stats, output, false);
			shown = now;
		}
		if (!server && stop_asked && stats.received == stats.sent)
			return;
		if (server && !n && recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) >= 0)
			return;
		if (!server && now - stats.last_us > LOST_US)
			die("%llu sent, %llu answered", (unsigned long long)stats.sent,
			    (unsigned long long)stats.received);
		if (!n)
			wait_a_little();
	}
}

static void set_up(bool events)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	ctx = conn_open(NULL);
	pd = ibv_alloc_pd(ctx);
	channel = events ? ibv_create_comp_channel(ctx) : NULL;
	cq = ibv_create_cq(ctx, 2 * (SENDS + RECEIVES), NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	if (!cq || !mr || ibv_query_port(ctx, 1, &port) ||
	    ibv_query_gid(ctx, 1, gid_index == CONN_BY_LID ? 0 : gid_index, &gid))
		die("create_cq, reg_mr, query_gid or query_port: %s", strerror(errno));
	qp = make_qp();
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(qp, i);
	memcpy(me.gid, gid.raw, 16);
	me.qpn = qp->qp_num;
	me.lid = port.lid;
	if (!multicast)
		return;
	if (!server) {
		to_group = make_ah(group.raw, 0);
		return;
	}
	group_qp = make_qp();
	if (ibv_attach_mcast(group_qp, &group, 0))
		die("attach_mcast: %s", strerror(errno));
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(group_qp, RECEIVES + i);
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static void parse(int argc, char **argv, unsigned *port, const char **output, bool *events)
{
	int c;

	while ((c = getopt(argc, argv, "p:g:LP:V:r:i:o:em")) != -1) {
		if (c == 'p')
			*port = option_number(optarg, 1, 65535, 'p');
		else if (c == 'g')
			gid_index = (int)option_number(optarg, 0, 255, 'g');
		else if (c == 'L')
			gid_index = CONN_BY_LID;
		else if (c == 'P')
			pkey = (int)strtol(optarg, NULL, 16);
		else if (c == 'r')
			rate = option_number(optarg, 1, 1000000, 'r');
		else if (c == 'i')
			status_us = 1000ull * option_number(optarg, 1, 60000, 'i');
		else if (c == 'V')
			conn_sl = (uint8_t)option_number(optarg, 0, 15, 'V');
		else if (c == 'o')
			*output = optarg;
		else if (c == 'e')
			*events = true;
		else if (c == 'm')
			multicast = true;
		else
			die("usage: see the head of rdma_ud.c");
	}
	server = !argv[optind];
}

int main(int argc, char **argv)
{
	unsigned port = 18700;
	const char *output = NULL;
	bool events = false;
	uint64_t total = 0;
	int fd;

	parse(argc, argv, &port, &output, &events);
	signal(SIGTERM, on_signal);
	set_up(events);
	fd = conn_tcp(argv[optind], port);
	conn_swap(fd, &me, &peer, sizeof me);
	if (!server)
		to_peer = make_ah(peer.gid, peer.lid);
	run(fd, output);
	conn_swap(fd, &stats.sent, &total, sizeof total);
	if (total != stats.received)
		stats.lost++;
	stats_write(&stats, output, true);
	printf("sent %llu received %llu lost %llu duplicated %llu corrupt %llu multicast "
	       "%llu%s%s\n",
	       (unsigned long long)stats.sent, (unsigned long long)stats.received,
	       (unsigned long long)stats.lost, (unsigned long long)stats.duplicated,
	       (unsigned long long)stats.corrupt, (unsigned long long)stats.writes,
	       stats.first_error[0] ? "; first: " : "", stats.first_error);
	return stats.lost || stats.duplicated || stats.corrupt || stats.foreign ? 1 : 0;
}
