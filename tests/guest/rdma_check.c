/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checked RDMA traffic: both sides send numbered, checksummed messages over RC (or UC) QPs, until
 * the time is over or SIGTERM, and count exactly what was lost, doubled or changed.
 *
 *   rdma_check [options]          waits for its peer
 *   rdma_check [options] HOST     connects to it over TCP (for numbers and the final count only)
 *
 *   -d DEVICE  -g GID-INDEX (0)  -p TCP-PORT (18700)  -q QPS (1)  -t SECONDS (0: until SIGTERM)
 *   -r MESSAGES/S per QP (500)   -m MAX-BYTES (16384)  -e  sleep on a completion channel
 *   -D MIB,MIB/S  dirty that much memory at that rate   -o FILE  result and live status, JSON
 *   -R RECEIVES (64) posted at a time   -z FILE  sleep as long as FILE exists: with few receives,
 *   the peer's sends then wait for receives (RNR)   -u  over UC, without READs
 *   -x  extended verbs: ibv_create_qp_ex and ibv_wr_*, ibv_create_cq_ex and ibv_start_poll
 *
 * Message n of a QP has a kind and a size that both sides can compute from n. SEND carries header
 * and payload; WRITE_IMM puts them into a ring at the peer; before some SENDs goes a WRITE into the
 * same ring, without a completion at the peer: the SEND says up to which n the ring is filled (RC
 * keeps the order). The receiver clears a slot once it is checked: a WRITE that arrives again
 * later is seen because the slot is not clear any more. READs fetch a region that never changes.
 * How far a side has come is told to its peer by inline WRITEs of one number. */
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_stats.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOTS          64 /* of the ring, and receives posted */
#define SQ_ENTRIES     (3 * SLOTS)
#define WINDOW         (SLOTS / 4) /* messages sent and not yet acknowledged by the peer program */
#define FIXED_BYTES    65536       /* the region for READs */
#define QPS_MAX        256
#define SIGNAL_AT_MOST 7            /* unsignalled sends in a row */
#define CLEAR          0xdd         /* what a checked ring slot is filled with */
#define STATUS_EVERY   100000       /* us */
#define STALL_LOOK     10000        /* us */
#define FINISH_US      20000000     /* for the last acknowledgements */
#define READ_FLAG      (1ull << 63) /* in wr_id: this completion is a READ's */

enum kind { KIND_SEND, KIND_WRITE_IMM, KIND_WRITE_AND_SEND };

struct message {
	uint64_t n;        /* 1, 2, 3 … for each QP and direction */
	uint32_t bytes;    /* of the whole message */
	uint32_t checksum; /* of the whole message, with this field 0 */
	uint8_t payload[];
};

struct side {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx; /* with -x */
	uint8_t *send_ring, *recv_ring, *write_ring, *ring, *fixed, *read_into;
	volatile uint64_t
		*acked; /* highest of my messages that the peer has checked; it writes here */
	struct ibv_mr *mr;
	uint8_t *memory;
	struct conn_qp me, peer;
	uint64_t next_send;         /* mine */
	uint64_t received, told;    /* theirs: checked here, and the number last told */
	uint64_t posted, completed; /* send queue entries */
	unsigned unsignalled;
	uint64_t next_due_us;
	bool read_pending;
};

static struct {
	const char *device, *host, *output, *stall;
	unsigned port, qps, rate, max_bytes, dirty_mib, dirty_rate, receives;
	int gid_index;
	double seconds;
	bool events, uc, extended;
} opt = {.port = 18700, .qps = 1, .rate = 500, .max_bytes = 16384, .receives = SLOTS};

static struct stats stats;
static struct side sides[QPS_MAX];
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cqx; /* with -x, the same */
static struct ibv_comp_channel *channel;
static volatile sig_atomic_t stop_asked;

/* A number that both sides compute from the message's (splitmix64). */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static enum kind kind_of(uint64_t n)
{
	return (enum kind)(mix(n) % 3);
}

static uint32_t bytes_of(uint64_t n)
{
	uint64_t room = opt.max_bytes - sizeof(struct message);

	return (uint32_t)(sizeof(struct message) + 1 + mix(n ^ 0x5151) % room);
}

/* FNV-1a over 32-bit words; the tail is covered byte by byte. */
static uint32_t sum(const uint8_t *p, size_t n)
{
	uint32_t h = 2166136261u, w;

	for (; n >= 4; p += 4, n -= 4) {
		memcpy(&w, p, 4);
		h = (h ^ w) * 16777619u;
	}
	while (n--)
		h = (h ^ *p++) * 16777619u;
	return h;
}

static void fill(struct message *m, uint64_t n, uint32_t bytes)
{
	uint32_t word = (uint32_t)mix(n);

	m->n = n;
	m->bytes = bytes;
	m->checksum = 0;
	for (uint32_t i = 0; i < bytes - sizeof *m; i++)
		m->payload[i] = (uint8_t)(word >> (i % 4 * 8)) + (uint8_t)i;
	m->checksum = sum((uint8_t *)m, bytes);
}

static bool intact(struct message *m, uint64_t n)
{
	uint32_t want = m->checksum;

	if (m->n != n || m->bytes != bytes_of(n))
		return false;
	m->checksum = 0;
	return sum((uint8_t *)m, m->bytes) == want;
}

static uint8_t *slot(uint8_t *ring, uint64_t n)
{
	return ring + (n % SLOTS) * opt.max_bytes;
}

static void post_receive(struct side *s, uint64_t index)
{
	struct ibv_sge sge = {(uintptr_t)slot(s->recv_ring, index), opt.max_bytes, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;
	int rc = ibv_post_recv(s->qp, &wr, &bad);

	if (rc)
		die("post_recv: %s", strerror(rc));
}

static int post_extended(struct side *s, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;

	ibv_wr_start(s->qpx);
	s->qpx->wr_id = wr->wr_id;
	s->qpx->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(s->qpx);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(s->qpx, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(s->qpx, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	default:
		ibv_wr_rdma_write_imm(s->qpx, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr,
				      wr->imm_data);
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(s->qpx, (void *)(uintptr_t)sge->addr, sge->length);
	else
		ibv_wr_set_sge(s->qpx, sge->lkey, sge->addr, sge->length);
	return ibv_wr_complete(s->qpx);
}

/* Signals at random, and at least every SIGNAL_AT_MOST-th; READs always. */
static void post(struct side *s, struct ibv_send_wr *wr, uint8_t *from, uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)from, bytes, s->mr->lkey};
	struct ibv_send_wr *bad;
	bool signal = wr->opcode == IBV_WR_RDMA_READ || s->unsignalled >= SIGNAL_AT_MOST ||
		      mix(s->posted ^ 0xabcd) % 5 == 0;
	int rc;

	/* cppcheck-suppress autoVariables ; the verbs provider copies it before post() returns */
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->wr_id |= ++s->posted;
	wr->send_flags |= signal ? IBV_SEND_SIGNALED : 0;
	s->unsignalled = signal ? 0 : s->unsignalled + 1;
	rc = s->qpx ? post_extended(s, wr) : ibv_post_send(s->qp, wr, &bad);
	if (rc)
		die("post_send: %s", strerror(rc));
}

static void post_write(struct side *s, uint64_t n, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	uint8_t *from = slot(s->write_ring, n);
	struct ibv_send_wr wr = {.opcode = opcode, .imm_data = (uint32_t)n};

	fill((struct message *)(void *)from, n, bytes);
	wr.wr.rdma.remote_addr = s->peer.ring_addr + (n % SLOTS) * opt.max_bytes;
	wr.wr.rdma.rkey = s->peer.ring_rkey;
	post(s, &wr, from, bytes);
	stats.writes++;
}

static void post_read(struct side *s)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .wr_id = READ_FLAG};

	memset(s->read_into, CLEAR, FIXED_BYTES / 4);
	wr.wr.rdma.remote_addr = s->peer.fixed_addr;
	wr.wr.rdma.rkey = s->peer.fixed_rkey;
	s->read_pending = true;
	post(s, &wr, s->read_into, FIXED_BYTES / 4);
}

static bool may_send(struct side *s)
{
	return s->next_send - *s->acked <= WINDOW && s->posted - s->completed + 4 < SQ_ENTRIES;
}

/* Nothing waits for this number but the peer's window, and it only grows. */
static void tell(struct side *s)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	if (s->told == s->received || s->posted - s->completed + 1 >= SQ_ENTRIES)
		return;
	s->told = s->received;
	wr.send_flags = IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = s->peer.ack_addr;
	wr.wr.rdma.rkey = s->peer.ring_rkey;
	post(s, &wr, (uint8_t *)&s->told, sizeof s->told);
}

static void send_next(struct side *s)
{
	uint64_t n = s->next_send++;
	uint32_t bytes = bytes_of(n);
	struct message *m = (void *)slot(s->send_ring, n);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	if (n % 16 == 0 && !s->read_pending && !opt.uc)
		post_read(s);
	if (kind_of(n) == KIND_WRITE_IMM) {
		post_write(s, n, IBV_WR_RDMA_WRITE_WITH_IMM, bytes);
	} else {
		if (kind_of(n) == KIND_WRITE_AND_SEND)
			post_write(s, n, IBV_WR_RDMA_WRITE, bytes);
		fill(m, n, bytes);
		post(s, &wr, (uint8_t *)m, bytes);
	}
	stats.sent++;
	stats.bytes += bytes;
}

/* The ring slot of message n must hold it; a slot checked half a ring ago must still be clear. */
static void check_slot(struct side *s, uint64_t n)
{
	struct message *m = (void *)slot(s->ring, n);
	uint8_t *old = slot(s->ring, n + SLOTS / 2);

	if (!intact(m, n)) {
		stats.corrupt++;
		stats_complain(&stats, "ring slot of message %llu holds number %llu",
			       (unsigned long long)n, (unsigned long long)m->n);
	}
	memset(m, CLEAR, opt.max_bytes);
	for (size_t i = 0; i < sizeof *m; i++) {
		if (old[i] == CLEAR)
			continue;
		stats.duplicated++;
		stats_complain(&stats, "a WRITE came again, seen at message %llu",
			       (unsigned long long)n);
		memset(old, CLEAR, opt.max_bytes);
		break;
	}
}

/* Number n has arrived, where the next one was expected. False if it is to be ignored. */
static bool in_order(struct side *s, uint64_t n)
{
	uint64_t want = s->received + 1;

	if (n < want) {
		stats.duplicated++;
		stats_complain(&stats, "message %llu came again, expected was %llu",
			       (unsigned long long)n, (unsigned long long)want);
		return false;
	}
	if (n > want) {
		stats.lost += n - want;
		stats_complain(&stats, "message %llu came, expected was %llu",
			       (unsigned long long)n, (unsigned long long)want);
	}
	s->received = n;
	return true;
}

static void on_send_message(struct side *s, struct message *m, uint32_t bytes)
{
	uint64_t n = m->n;

	if (n > s->received + SLOTS || bytes != bytes_of(n) || !intact(m, n)) {
		stats.corrupt++;
		stats_complain(&stats, "message after %llu is not intact",
			       (unsigned long long)s->received);
		s->received++;
		return;
	}
	if (!in_order(s, n))
		return;
	if (kind_of(n) == KIND_WRITE_AND_SEND)
		check_slot(s, n);
}

static void on_receive(struct side *s, const struct ibv_wc *wc)
{
	stats_arrival(&stats);
	stats.received++;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		/* 32 bits of n are known; the rest follows from what is expected */
		uint64_t want = s->received + 1, n = (want & ~0xffffffffull) | wc->imm_data;

		if (in_order(s, n))
			check_slot(s, n);
	} else {
		on_send_message(s, (void *)slot(s->recv_ring, wc->wr_id), wc->byte_len);
	}
	post_receive(s, wc->wr_id);
}

static void on_completion(const struct ibv_wc *wc)
{
	struct side *s = sides;

	while (s < sides + opt.qps && s->qp->qp_num != wc->qp_num)
		s++;
	if (s == sides + opt.qps)
		die("completion of unknown QP %u", wc->qp_num);
	if (wc->status)
		die("completion of %s with status %s (%d)",
		    wc->opcode & IBV_WC_RECV ? "a receive" : "a send",
		    ibv_wc_status_str(wc->status), wc->status);
	if (wc->opcode & IBV_WC_RECV) {
		on_receive(s, wc);
		return;
	}
	s->completed = wc->wr_id & ~READ_FLAG;
	if (wc->wr_id & READ_FLAG) {
		s->read_pending = false;
		stats.reads++;
		if (memcmp(s->read_into, s->fixed, FIXED_BYTES / 4)) {
			stats.corrupt++;
			stats_complain(&stats, "READ returned other bytes than the peer's");
		}
	}
}

static unsigned poll_extended(void)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned total = 0;
	int rc = ibv_start_poll(cqx, &attr);

	while (!rc) {
		struct ibv_wc wc = {.wr_id = cqx->wr_id,
				    .status = cqx->status,
				    .opcode = ibv_wc_read_opcode(cqx),
				    .byte_len = ibv_wc_read_byte_len(cqx),
				    .imm_data = ibv_wc_read_imm_data(cqx),
				    .qp_num = ibv_wc_read_qp_num(cqx)};

		on_completion(&wc);
		total++;
		rc = ibv_next_poll(cqx);
	}
	if (total)
		ibv_end_poll(cqx);
	if (rc != ENOENT)
		die("ibv_start_poll or ibv_next_poll: %s", strerror(rc));
	return total;
}

static unsigned poll_all(void)
{
	struct ibv_wc wc[16];
	unsigned total = 0;
	int n;

	if (cqx)
		return poll_extended();
	while ((n = ibv_poll_cq(cq, 16, wc)) > 0) {
		for (int i = 0; i < n; i++)
			on_completion(&wc[i]);
		total += (unsigned)n;
	}
	if (n < 0)
		die("poll_cq failed");
	return total;
}

static void wait_a_little(uint64_t until_us)
{
	uint64_t now = stats_now_us();
	int ms = until_us > now ? (int)((until_us - now) / 1000) : 0;
	struct pollfd p = {.events = POLLIN};
	struct ibv_cq *which;
	void *context;

	if (!opt.events) {
		usleep(200);
		return;
	}
	p.fd = channel->fd;
	if (poll(&p, 1, ms < 1 ? 1 : ms) > 0 && !ibv_get_cq_event(channel, &which, &context)) {
		ibv_ack_cq_events(which, 1);
		if (ibv_req_notify_cq(which, 0))
			die("req_notify_cq failed");
	}
}

static struct ibv_qp *create_extended(const struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  (opt.uc ? 0 : IBV_QP_EX_WITH_RDMA_READ),
	};

	return ibv_create_qp_ex(ctx, &ex);
}

/* All QPs' memory: rings for sending, receiving, writing from and being written to, and two
 * fixed regions, all in one registration each. */
static void make_side(struct side *s)
{
	size_t ring = (size_t)SLOTS * opt.max_bytes, bytes = 4 * ring + 2 * FIXED_BYTES + 4096;
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {SQ_ENTRIES, SLOTS, 1, 1, sizeof(uint64_t)},
		.qp_type = opt.uc ? IBV_QPT_UC : IBV_QPT_RC,
	};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (opt.uc ? 0 : IBV_ACCESS_REMOTE_READ),
	};
	union ibv_gid gid;

	s->memory = aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	if (!s->memory)
		die("no memory for %zu bytes", bytes);
	memset(s->memory, CLEAR, bytes);
	s->mr = ibv_reg_mr(pd, s->memory, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	s->qp = opt.extended ? create_extended(&init) : ibv_create_qp(pd, &init);
	s->qpx = opt.extended && s->qp ? ibv_qp_to_qp_ex(s->qp) : NULL;
	if (!s->mr || !s->qp || (opt.extended && !s->qpx))
		die("reg_mr or create_qp: %s", strerror(errno));
	s->send_ring = s->memory;
	s->recv_ring = s->memory + ring;
	s->write_ring = s->memory + 2 * ring;
	s->ring = s->memory + 3 * ring;
	s->fixed = s->memory + 4 * ring;
	s->read_into = s->fixed + FIXED_BYTES;
	s->acked = (uint64_t *)(void *)(s->read_into + FIXED_BYTES);
	*s->acked = 0;
	for (size_t i = 0; i < FIXED_BYTES; i++)
		s->fixed[i] = (uint8_t)mix(i);
	if (ibv_query_gid(ctx, 1, opt.gid_index, &gid) ||
	    ibv_modify_qp(s->qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("query_gid or modify_qp: %s", strerror(errno));
	s->me = (struct conn_qp){
		.qpn = s->qp->qp_num,
		.psn = (uint32_t)mix(s->qp->qp_num) & 0xffffff,
		.ring_rkey = s->mr->rkey,
		.fixed_rkey = s->mr->rkey,
		.ring_addr = (uintptr_t)s->ring,
		.ack_addr = (uintptr_t)s->acked,
		.fixed_addr = (uintptr_t)s->fixed,
	};
	memcpy(s->me.gid, gid.raw, 16);
	s->next_send = 1;
	for (uint64_t i = 0; i < opt.receives; i++)
		post_receive(s, i);
}

static void connect_all(int fd)
{
	for (unsigned i = 0; i < opt.qps; i++) {
		make_side(&sides[i]);
		conn_swap(fd, &sides[i].me, &sides[i].peer, sizeof sides[i].me);
		conn_up(sides[i].qp, &sides[i].me, &sides[i].peer, opt.gid_index);
	}
	conn_swap(fd, "go", (char[2]){0}, 2);
}

/* Memory whose contents do not compress, complete before the first message is sent. */
static uint64_t *fill_memory(void)
{
	size_t words = ((size_t)opt.dirty_mib << 20) / sizeof(uint64_t);
	uint64_t *region = malloc(words * sizeof *region);

	if (!region)
		die("no memory for -D %u MiB", opt.dirty_mib);
	for (size_t i = 0; i < words; i++)
		region[i] = mix(i);
	return region;
}

/* Touches pages of a region round and round, so that a live migration has something to do. */
static void *dirty(void *arg)
{
	size_t pages = (size_t)opt.dirty_mib << 8, at = 0;
	volatile uint8_t *region = arg;
	uint64_t turn = 1, per_10ms = ((uint64_t)opt.dirty_rate << 8) / 100;

	for (;; usleep(10000))
		for (uint64_t i = 0; i < per_10ms; i++, at = (at + 1) % pages)
			*(volatile uint64_t *)(region + at * 4096) = ++turn;
	return NULL;
}

static bool tcp_says_stop(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
}

/* Sends what is due on each QP, and returns when the next is. */
static uint64_t send_due(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct side *s = sides; s < sides + opt.qps; s++) {
		tell(s);
		if (now >= s->next_due_us && may_send(s)) {
			send_next(s);
			s->next_due_us += 1000000u / opt.rate;
			if (s->next_due_us + 100000 < now) /* do not catch up after an outage */
				s->next_due_us = now;
		}
		if (s->next_due_us < next)
			next = s->next_due_us;
	}
	return next;
}

static void run(int fd)
{
	uint64_t start = stats_now_us(), shown = 0, now, due;

	stats.last_us = start;
	for (struct side *s = sides; s < sides + opt.qps; s++)
		s->next_due_us = start;
	if (opt.events && ibv_req_notify_cq(cq, 0))
		die("req_notify_cq failed");
	for (;;) {
		bool idle = poll_all() == 0;

		now = stats_now_us();
		due = send_due(now);
		if (now - shown > STATUS_EVERY) {
			stats_write(&stats, opt.output, false);
			shown = now;
			if (stop_asked || tcp_says_stop(fd) ||
			    (opt.seconds > 0 && (double)(now - start) > opt.seconds * 1e6))
				return;
		}
		while (opt.stall && !access(opt.stall, F_OK))
			usleep(STALL_LOOK);
		if (idle)
			wait_a_little(due);
	}
}

/* Tells the peer how much was sent, lets what is on its way arrive, and counts what did not. */
static void finish(int fd)
{
	uint64_t mine[QPS_MAX] = {0}, theirs[QPS_MAX] = {0}, end = stats_now_us() + FINISH_US;
	bool complete = false;

	for (unsigned i = 0; i < opt.qps; i++)
		mine[i] = sides[i].next_send - 1;
	conn_swap(fd, mine, theirs, sizeof mine);
	while (!complete && stats_now_us() < end) {
		poll_all();
		complete = true;
		for (unsigned i = 0; i < opt.qps; i++)
			complete &= sides[i].received >= theirs[i];
		usleep(200);
	}
	for (unsigned i = 0; i < opt.qps; i++)
		if (sides[i].received < theirs[i]) {
			stats.lost += theirs[i] - sides[i].received;
			stats_complain(&stats, "QP %u: the peer sent %llu, %llu arrived", i,
				       (unsigned long long)theirs[i],
				       (unsigned long long)sides[i].received);
		}
	/* nobody goes before both have all */
	conn_swap(fd, mine, theirs, sizeof mine);
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static unsigned number(const char *text, unsigned min, unsigned max, char option)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || (*end && *end != ',') || v < min || v > max)
		die("-%c %s: allowed is %u to %u", option, text, min, max);
	return (unsigned)v;
}

static void parse(int argc, char **argv)
{
	const char *comma;
	int c;

	while ((c = getopt(argc, argv, "d:g:p:q:t:r:m:D:o:eR:z:ux")) != -1) {
		switch (c) {
		case 'd':
			opt.device = optarg;
			break;
		case 'g':
			opt.gid_index = (int)number(optarg, 0, 255, 'g');
			break;
		case 'p':
			opt.port = number(optarg, 1, 65535, 'p');
			break;
		case 'q':
			opt.qps = number(optarg, 1, QPS_MAX, 'q');
			break;
		case 't':
			opt.seconds = atof(optarg);
			break;
		case 'r':
			opt.rate = number(optarg, 1, 1000000, 'r');
			break;
		case 'm':
			opt.max_bytes = number(optarg, 256, 1 << 20, 'm') & ~7u;
			break;
		case 'o':
			opt.output = optarg;
			break;
		case 'R':
			opt.receives = number(optarg, 1, SLOTS, 'R');
			break;
		case 'z':
			opt.stall = optarg;
			break;
		case 'u':
			opt.uc = true;
			break;
		case 'e':
			opt.events = true;
			break;
		case 'x':
			opt.extended = true;
			break;
		case 'D':
			comma = strchr(optarg, ',');
			opt.dirty_mib = number(optarg, 1, 65536, 'D');
			opt.dirty_rate = comma ? number(comma + 1, 0, 100000, 'D') : 0;
			break;
		default:
			die("usage: see the head of rdma_check.c");
		}
	}
	opt.host = argv[optind];
}

static struct ibv_cq *make_cq(uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .channel = channel, .wc_flags = IBV_WC_STANDARD_FLAGS};

	if (!opt.extended)
		return ibv_create_cq(ctx, (int)cqe, NULL, channel, 0);
	cqx = ibv_create_cq_ex(ctx, &attr);
	return cqx ? ibv_cq_ex_to_cq(cqx) : NULL;
}

int main(int argc, char **argv)
{
	pthread_t dirtier;
	int fd;

	parse(argc, argv);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	ctx = conn_open(opt.device);
	pd = ibv_alloc_pd(ctx);
	channel = opt.events ? ibv_create_comp_channel(ctx) : NULL;
	cq = make_cq(opt.qps * (SQ_ENTRIES + SLOTS));
	if (!pd || !cq || (opt.events && !channel))
		die("alloc_pd, create_comp_channel or create_cq: %s", strerror(errno));
	if (opt.dirty_mib && pthread_create(&dirtier, NULL, dirty, fill_memory()))
		die("no thread");
	fd = conn_tcp(opt.host, opt.port);
	connect_all(fd);
	run(fd);
	finish(fd);
	stats_write(&stats, opt.output, true);
	printf("sent %llu received %llu lost %llu duplicated %llu corrupt %llu max gap %.1f "
	       "ms%s%s\n",
	       (unsigned long long)stats.sent, (unsigned long long)stats.received,
	       (unsigned long long)stats.lost, (unsigned long long)stats.duplicated,
	       (unsigned long long)stats.corrupt, (double)stats.max_gap_us / 1e3,
	       stats.first_error[0] ? "; first: " : "", stats.first_error);
	return stats.lost || stats.duplicated || stats.corrupt ? 1 : 0;
}
