/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checked RDMA traffic. Both sides send numbered, checksummed messages over RC (or UC) QPs, until
 * the time is over or SIGTERM. They count exactly what was lost, doubled or changed.
 *
 * The options are in rdma_check_options.h.
 *
 * Message n of a QP has a kind and a size that both sides can compute from n. SEND carries header
 * and payload; WRITE_IMM puts them into a ring at the peer; before some SENDs goes a WRITE into the
 * same ring, without a completion at the peer. The SEND says up to which n the ring is filled (RC
 * keeps the order). The receiver clears a slot once it is checked: a WRITE that arrives again later
 * is seen because the slot is not clear any more. READs fetch a region that never changes. Messages
 * that are too short for the header are a few bytes of their number. Each atomic adds 1 to a
 * counter of the peer's and must return the number of those before it. How far a side has come is
 * told to its peer by inline WRITEs of one number. */
#include "tests/guest/rdma_check_options.h"
#include "tests/guest/rdma_conn.h"
#include "tests/guest/rdma_message.h"
#include "tests/guest/rdma_stats.h"

#include <endian.h>
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

#define SQ_ENTRIES     (3 * SLOTS_MAX)
#define WINDOW         (check_options.slots / 4) /* messages that the peer program has not acknowledged */
#define FIXED_BYTES    65536                     /* least size of the region for READs */
#define SIGNAL_AT_MOST 7                         /* unsignalled sends in a row */
#define CLEAR          0xdd                      /* the byte in a checked ring slot */
#define STALL_LOOK     10000                     /* us */
#define FINISH_US      40000000     /* for the last acknowledgements: a time-out lasts 8.6 s */
#define READ_FLAG      (1ull << 63) /* in wr_id: this completion is a READ's */
#define ATOMIC_FLAG    (1ull << 62)
#define WITHHOLD_US    30000

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
	bool read_pending, atomic_pending;
	uint32_t read_bytes;
	uint64_t *fetched;           /* takes the result of an atomic */
	volatile uint64_t *added_to; /* by the peer's atomics */
	uint64_t atomics;            /* mine that have completed */
};

/* Receives that are not posted again at once; of a QP, or all in the first on a shared queue. */
struct withheld {
	uint64_t id[QPS_MAX * SLOTS_MAX];
	unsigned count;
	uint64_t until_us;
};

static struct stats stats;
static struct side sides[QPS_MAX];
static struct withheld withheld;
static uint64_t receives_done; /* all QPs */
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_cq_ex *cqx; /* with -x, the same */
static struct ibv_comp_channel *channel;
static volatile sig_atomic_t stop_asked;

static uint8_t *slot(uint8_t *ring, uint64_t n)
{
	return ring + (n % check_options.slots) * message_rules.max_bytes;
}

/* A receive's id is its QP's index and its place in that QP's ring, whichever QP it serves. */
static struct side *owner_of(uint64_t id)
{
	return &sides[id / SLOTS_MAX];
}

static void post_receive(uint64_t id)
{
	struct side *s = owner_of(id);
	struct ibv_sge sge = {(uintptr_t)slot(s->recv_ring, id % SLOTS_MAX),
			      message_rules.max_bytes, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	int rc = srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);

	if (rc)
		die("post_recv: %s", strerror(rc));
}

static void repost_withheld(uint64_t now)
{
	if (!withheld.count || now < withheld.until_us)
		return;
	for (unsigned i = 0; i < withheld.count; i++)
		post_receive(withheld.id[i]);
	withheld.count = 0;
}

/* Posted again, if chance does not say that all have to wait a while. */
static void return_receive(uint64_t id)
{
	uint64_t random = chance(CHANCE_WITHHOLD, ++receives_done);

	if (!withheld.count && random % 100 >= check_options.withhold) {
		post_receive(id);
		return;
	}
	if (!withheld.count)
		withheld.until_us = stats_now_us() + (random >> 8) % WITHHOLD_US;
	withheld.id[withheld.count++] = id;
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
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(s->qpx, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(s->qpx, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
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

/* Signals at random, and at least every SIGNAL_AT_MOST-th; READs and atomics always. */
static void post(struct side *s, struct ibv_send_wr *wr, uint8_t *from, uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)from, bytes, s->mr->lkey};
	struct ibv_send_wr *bad;
	bool signal = wr->opcode == IBV_WR_RDMA_READ || s->unsignalled >= SIGNAL_AT_MOST ||
		      wr->wr_id & ATOMIC_FLAG || chance(CHANCE_SIGNAL, s->posted) % 5 == 0;
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

	message_fill((struct message *)(void *)from, n);
	wr.wr.rdma.remote_addr = s->peer.ring_addr +
				 (n % check_options.slots) * message_rules.max_bytes;
	wr.wr.rdma.rkey = s->peer.ring_rkey;
	post(s, &wr, from, bytes);
	stats.writes++;
}

static void post_read(struct side *s)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .wr_id = READ_FLAG};

	s->read_bytes = FIXED_BYTES / 4;
	if (message_rules.log_sizes)
		s->read_bytes = log_size(chance(CHANCE_READ, s->posted), message_rules.max_bytes);
	memset(s->read_into, CLEAR, s->read_bytes);
	wr.wr.rdma.remote_addr = s->peer.fixed_addr;
	wr.wr.rdma.rkey = s->peer.fixed_rkey;
	s->read_pending = true;
	post(s, &wr, s->read_into, s->read_bytes);
}

/* Adds 1 to the peer's counter, in two ways: as it was before, it is known. */
static void post_atomic(struct side *s)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr_id = ATOMIC_FLAG};

	wr.wr.atomic.remote_addr = s->peer.ack_addr + sizeof(uint64_t);
	wr.wr.atomic.rkey = s->peer.fixed_rkey;
	wr.wr.atomic.compare_add = 1;
	if (s->atomics % 2) {
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr.wr.atomic.compare_add = s->atomics;
		wr.wr.atomic.swap = s->atomics + 1;
	}
	s->atomic_pending = true;
	post(s, &wr, (uint8_t *)s->fetched, sizeof *s->fetched);
}

static void on_atomic(struct side *s)
{
	uint64_t before = *s->fetched, want = s->atomics++;

	s->atomic_pending = false;
	if (before == want)
		return;
	stats.duplicated += before > want;
	stats.lost += before < want;
	stats_complain(&stats, "an atomic found %llu where %llu was expected",
		       (unsigned long long)before, (unsigned long long)want);
}

static bool may_send(struct side *s)
{
	return s->next_send - *s->acked <= WINDOW && s->posted - s->completed + 5 < SQ_ENTRIES;
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

	if (n % 16 == 0 && !s->read_pending && !check_options.no_reads)
		post_read(s);
	if (check_options.atomics && n % 4 == 1 && !s->atomic_pending)
		post_atomic(s);
	if (kind_of(n) == KIND_WRITE_IMM) {
		post_write(s, n, IBV_WR_RDMA_WRITE_WITH_IMM, bytes);
	} else {
		if (kind_of(n) == KIND_WRITE_AND_SEND)
			post_write(s, n, IBV_WR_RDMA_WRITE, bytes);
		message_fill(m, n);
		post(s, &wr, (uint8_t *)m, bytes);
	}
	stats.sent++;
	stats.bytes += bytes;
}

/* The ring slot of message n must hold it; a slot checked half a ring ago must still be clear. */
static void check_slot(struct side *s, uint64_t n)
{
	struct message *m = (void *)slot(s->ring, n);
	uint8_t *old = slot(s->ring, n + check_options.slots / 2);

	if (!message_intact(m, n)) {
		stats.corrupt++;
		stats_complain(&stats, "ring slot of message %llu holds number %llu",
			       (unsigned long long)n,
			       (unsigned long long)message_number(m, bytes_of(n), n));
	}
	memset(m, CLEAR, bytes_of(n));
	for (size_t i = 0; i < sizeof *m; i++) {
		if (old[i] == CLEAR)
			continue;
		stats.duplicated++;
		stats_complain(&stats, "a WRITE came again, seen at message %llu",
			       (unsigned long long)n);
		memset(old, CLEAR, message_rules.max_bytes);
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
	uint64_t n = message_number(m, bytes, s->received + 1);

	if (n > s->received + check_options.slots || bytes != bytes_of(n) ||
	    !message_intact(m, n)) {
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
		uint8_t *ring = owner_of(wc->wr_id)->recv_ring;

		on_send_message(s, (void *)slot(ring, wc->wr_id % SLOTS_MAX), wc->byte_len);
	}
	return_receive(wc->wr_id);
}

/* A QP that the other end's requests have brought to ERR tells why by an event only. */
static const char *events_until_now(void)
{
	static char text[256];
	struct ibv_async_event e;

	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	while (!ibv_get_async_event(ctx, &e)) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof text - n, " %s,", ibv_event_type_str(e.event_type));
		ibv_ack_async_event(&e);
	}
	return text;
}

static void on_completion(const struct ibv_wc *wc)
{
	struct side *s = sides;

	while (s < sides + check_options.qps && s->qp->qp_num != wc->qp_num)
		s++;
	if (s == sides + check_options.qps)
		die("completion of unknown QP %u", wc->qp_num);
	if (wc->status)
		die("a completion with status %s (%d); events of the device:%s",
		    ibv_wc_status_str(wc->status), wc->status, events_until_now());
	if (wc->opcode & IBV_WC_RECV) {
		on_receive(s, wc);
		return;
	}
	s->completed = wc->wr_id & ~(READ_FLAG | ATOMIC_FLAG);
	if (wc->wr_id & ATOMIC_FLAG)
		on_atomic(s);
	if (wc->wr_id & READ_FLAG) {
		s->read_pending = false;
		stats.reads++;
		if (memcmp(s->read_into, s->fixed, s->read_bytes)) {
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

	if (!check_options.events) {
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

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr init = {
		.attr = {.max_wr = check_options.qps * SLOTS_MAX, .max_sge = 1}};
	struct ibv_srq *s = ibv_create_srq(pd, &init);

	if (!s)
		die("create_srq: %s", strerror(errno));
	return s;
}

static struct ibv_qp *create_extended(const struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  (check_options.no_reads ? 0 : IBV_QP_EX_WITH_RDMA_READ) |
				  (check_options.atomics ? IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
								   IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
							 : 0),
	};

	return ibv_create_qp_ex(ctx, &ex);
}

static int pkey_of(const struct side *s)
{
	unsigned i = (unsigned)(s - sides);

	return check_options.pkeys[i < PKEYS_MAX ? i : PKEYS_MAX - 1];
}

/* The QPs' memory: rings for sending, receiving, writing from and being written to, and two fixed
 * regions, all in one registration each. */
static void make_side(struct side *s)
{
	size_t fixed = message_rules.max_bytes > FIXED_BYTES ? message_rules.max_bytes
							     : FIXED_BYTES;
	size_t ring = (size_t)check_options.slots * message_rules.max_bytes,
	       bytes = 4 * ring + 2 * fixed + 4096;
	unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  (check_options.atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = {SQ_ENTRIES, SLOTS_MAX, 1, 1, sizeof(uint64_t)},
		.qp_type = check_options.uc ? IBV_QPT_UC : IBV_QPT_RC,
	};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.pkey_index = conn_pkey_index(ctx, pkey_of(s)),
		.qp_access_flags = check_options.uc ? IBV_ACCESS_REMOTE_WRITE : access,
	};

	s->memory = aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	if (!s->memory)
		die("no memory for %zu bytes", bytes);
	memset(s->memory, CLEAR, bytes);
	s->mr = ibv_reg_mr(pd, s->memory, bytes, (int)(IBV_ACCESS_LOCAL_WRITE | access));
	s->qp = check_options.extended ? create_extended(&init) : ibv_create_qp(pd, &init);
	s->qpx = check_options.extended && s->qp ? ibv_qp_to_qp_ex(s->qp) : NULL;
	if (!s->mr || !s->qp || (check_options.extended && !s->qpx))
		die("reg_mr or create_qp: %s", strerror(errno));
	s->send_ring = s->memory;
	s->recv_ring = s->memory + ring;
	s->write_ring = s->memory + 2 * ring;
	s->ring = s->memory + 3 * ring;
	s->fixed = s->memory + 4 * ring;
	s->read_into = s->fixed + fixed;
	s->acked = (uint64_t *)(void *)(s->read_into + fixed);
	s->added_to = s->acked + 1;
	s->fetched = (uint64_t *)(void *)(s->read_into + fixed) + 2;
	*s->acked = *s->added_to = 0;
	for (size_t i = 0; i < fixed; i++)
		s->fixed[i] = (uint8_t)mix(i);
	if (ibv_modify_qp(s->qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("modify_qp: %s", strerror(errno));
	s->me = (struct conn_qp){
		.qpn = s->qp->qp_num,
		.psn = (uint32_t)mix(s->qp->qp_num) & 0xffffff,
		.ring_rkey = s->mr->rkey,
		.fixed_rkey = s->mr->rkey,
		.ring_addr = (uintptr_t)s->ring,
		.ack_addr = (uintptr_t)s->acked,
		.fixed_addr = (uintptr_t)s->fixed,
	};
	conn_address(ctx, check_options.gid_index, &s->me);
	s->next_send = 1;
	for (uint64_t i = 0; i < check_options.receives; i++)
		post_receive((uint64_t)(s - sides) * SLOTS_MAX + i);
}

static void connect_all(int fd)
{
	for (unsigned i = 0; i < check_options.qps; i++) {
		make_side(&sides[i]);
		conn_swap(fd, &sides[i].me, &sides[i].peer, sizeof sides[i].me);
		conn_up(sides[i].qp, &sides[i].me, &sides[i].peer, check_options.gid_index);
	}
	conn_swap(fd, "go", (char[2]){0}, 2);
}

/* Memory whose contents do not compress, complete before the first message is sent. */
static uint64_t *fill_memory(void)
{
	size_t words = ((size_t)check_options.dirty_mib << 20) / sizeof(uint64_t);
	uint64_t *region = malloc(words * sizeof *region);

	if (!region)
		die("no memory for -D %u MiB", check_options.dirty_mib);
	for (size_t i = 0; i < words; i++)
		region[i] = mix(i);
	return region;
}

/* Touches pages of a region round and round, so that a live migration has something to do. */
static void *dirty(void *arg)
{
	size_t pages = (size_t)check_options.dirty_mib << 8, at = 0;
	volatile uint8_t *region = arg;
	uint64_t turn = 1, per_10ms = ((uint64_t)check_options.dirty_rate << 8) / 100;

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

	for (struct side *s = sides; s < sides + check_options.qps; s++) {
		tell(s);
		if (now >= s->next_due_us && may_send(s)) {
			send_next(s);
			s->next_due_us += 1000000u / check_options.rate;
			if (s->next_due_us + 100000 < now) /* do not catch up after an outage */
				s->next_due_us = now;
		}
		if (s->next_due_us < next)
			next = s->next_due_us;
	}
	return next;
}

static void show(bool ended)
{
	stats.qps = check_options.qps < STATS_QPS ? check_options.qps : STATS_QPS;
	for (unsigned i = 0; i < stats.qps; i++)
		stats.by_qp[i] = sides[i].received;
	stats.received_least = sides[0].received;
	for (unsigned i = 1; i < check_options.qps; i++)
		if (sides[i].received < stats.received_least)
			stats.received_least = sides[i].received;
	stats_write(&stats, check_options.output, ended);
}

static void run(int fd)
{
	uint64_t start = stats_now_us(), shown = 0, now, due;

	stats.last_us = start;
	for (struct side *s = sides; s < sides + check_options.qps; s++)
		s->next_due_us = start;
	if (check_options.events && ibv_req_notify_cq(cq, 0))
		die("req_notify_cq failed");
	for (;;) {
		bool idle = poll_all() == 0;

		now = stats_now_us();
		repost_withheld(now);
		due = send_due(now);
		if (now - shown > check_options.status_us) {
			show(false);
			shown = now;
			if (stop_asked || tcp_says_stop(fd) ||
			    (check_options.seconds > 0 &&
			     (double)(now - start) > check_options.seconds * 1e6))
				return;
		}
		while (check_options.stall && !access(check_options.stall, F_OK))
			usleep(STALL_LOOK);
		if (idle)
			wait_a_little(due);
	}
}

/* The peer's QP has completed all its atomics: each was done once. */
static void check_counter(unsigned i, uint64_t done)
{
	uint64_t is = *sides[i].added_to;

	if (is == done)
		return;
	stats.lost += done > is ? done - is : 0;
	stats.duplicated += is > done ? is - done : 0;
	stats_complain(&stats, "QP %u: the peer did %llu atomics, the counter is %llu", i,
		       (unsigned long long)done, (unsigned long long)is);
}

/* Tells the peer how much was sent, lets what is on its way arrive, and counts what did not. */
static void finish(int fd)
{
	uint64_t mine[QPS_MAX] = {0}, theirs[QPS_MAX] = {0}, end;
	bool complete = false;

	for (unsigned i = 0; i < check_options.qps; i++)
		mine[i] = sides[i].next_send - 1;
	conn_swap(fd, mine, theirs, sizeof mine); /* until the other end is here, too */
	end = stats_now_us() + FINISH_US;
	while (!complete && stats_now_us() < end) {
		poll_all();
		repost_withheld(stats_now_us());
		complete = true;
		for (unsigned i = 0; i < check_options.qps; i++)
			complete &= sides[i].received >= theirs[i] && !sides[i].atomic_pending;
		usleep(200);
	}
	for (unsigned i = 0; i < check_options.qps; i++)
		if (sides[i].received < theirs[i]) {
			stats.lost += theirs[i] - sides[i].received;
			stats_complain(&stats, "QP %u: the peer sent %llu, %llu arrived", i,
				       (unsigned long long)theirs[i],
				       (unsigned long long)sides[i].received);
		}
	/* nobody goes before both have all */
	for (unsigned i = 0; i < check_options.qps; i++)
		mine[i] = sides[i].atomics;
	conn_swap(fd, mine, theirs, sizeof mine);
	for (unsigned i = 0; i < check_options.qps; i++)
		check_counter(i, theirs[i]);
}

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static struct ibv_cq *make_cq(uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .channel = channel, .wc_flags = IBV_WC_STANDARD_FLAGS};

	if (!check_options.extended)
		return ibv_create_cq(ctx, (int)cqe, NULL, channel, 0);
	cqx = ibv_create_cq_ex(ctx, &attr);
	return cqx ? ibv_cq_ex_to_cq(cqx) : NULL;
}

int main(int argc, char **argv)
{
	pthread_t dirtier;
	int fd;

	check_options_parse(argc, argv);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	ctx = conn_open(check_options.device);
	pd = ibv_alloc_pd(ctx);
	channel = check_options.events ? ibv_create_comp_channel(ctx) : NULL;
	cq = make_cq(check_options.qps * (SQ_ENTRIES + SLOTS_MAX));
	if (!pd || !cq || (check_options.events && !channel))
		die("alloc_pd, create_comp_channel or create_cq: %s", strerror(errno));
	if (check_options.dirty_mib && pthread_create(&dirtier, NULL, dirty, fill_memory()))
		die("no thread");
	srq = check_options.srq ? make_srq() : NULL;
	fd = conn_tcp(check_options.host, check_options.port);
	connect_all(fd);
	run(fd);
	finish(fd);
	show(true);
	printf("sent %llu received %llu lost %llu duplicated %llu corrupt %llu max gap %.1f "
	       "ms%s%s\n",
	       (unsigned long long)stats.sent, (unsigned long long)stats.received,
	       (unsigned long long)stats.lost, (unsigned long long)stats.duplicated,
	       (unsigned long long)stats.corrupt, (double)stats.max_gap_us / 1e3,
	       stats.first_error[0] ? "; first: " : "", stats.first_error);
	return stats.lost || stats.duplicated || stats.corrupt ? 1 : 0;
}
