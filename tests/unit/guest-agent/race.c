/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The shim's data path with the helper thread at work: threads post and poll on played hardware
 * while a played agent orders one migration after the other. Built with TSan and with ASan; what
 * is lost or comes twice is seen here, what is not synchronised the sanitizer sees.
 *
 * Each pair of QPs (A, B) sends both ways. Two threads post on each QP, two poll each CQ; those of
 * the second pair sleep on a completion channel, without a limit, when there is nothing. A message
 * holds its sender and number; a buffer is used again when a completion says so.
 *
 * guest_race MIGRATIONS */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/util.h"
#include "guest-agent/shim/verbs/context.h"
#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/verbs.h"

#define PAIRS        2
#define ENDS         (2 * PAIRS)
#define POSTERS      2 /* threads of each QP */
#define WINDOW       32
#define RECVS        16 /* fewer than may be sent: senders run into RNR */
#define NUMBERS      (1u << 20)
#define MIN_MESSAGES 200 /* least count of each thread, between two migrations */
#define DEADLINE_MS  100000
#define RECV_ID      (1ull << 40)

struct message {
	uint32_t end, poster;
	uint64_t number;
};

struct poster {
	struct end *end;
	unsigned index;
	atomic_uint posted, ended; /* numbers; all below .ended have completed */
	unsigned errors;
	struct message buffer[WINDOW];
	unsigned char told[NUMBERS / 8]; /* under .lock: completions seen */
	unsigned char arrived[NUMBERS / 8];
	pthread_mutex_t lock;
};

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel; /* NULL: polled all the time */
	struct ibv_mr *mr, *send_mr;
	struct end *peer;
	unsigned index;
	struct message inbox[RECVS];
	struct message window; /* the other end writes here */
	struct poster posters[POSTERS];
};

static struct end ends[ENDS];
static struct ibv_context *context;
static struct ibv_pd *pd;
static atomic_bool stop, stop_polling;
static atomic_uint failures;
static int stopped = -1; /* eventfd: readable when .stop_polling is set */

static void fail(const char *what, unsigned end, unsigned long long number)
{
	if (atomic_fetch_add(&failures, 1) < 10)
		printf("# %s: end %u, number %llu\n", what, end, number);
}

/* Marks number; false: it was marked already. */
static bool mark(struct poster *p, unsigned char *map, uint64_t number)
{
	unsigned char bit = (unsigned char)(1u << (number & 7)),
		      *byte = &map[number / 8 % (NUMBERS / 8)];
	bool fresh;

	pthread_mutex_lock(&p->lock);
	fresh = !(*byte & bit);
	*byte |= bit;
	pthread_mutex_unlock(&p->lock);
	return fresh;
}

static void post_recv(struct end *e, unsigned slot)
{
	struct ibv_sge sge = {(uintptr_t)&e->inbox[slot], sizeof(struct message), e->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = RECV_ID | slot, .sg_list = &sge, .num_sge = 1};
	int rc = ibv_post_recv(e->qp, &wr, &bad);

	if (rc)
		fail("a receive is refused", e->index, (unsigned)rc);
}

static void received(struct end *e, unsigned slot)
{
	struct message m = e->inbox[slot];

	if (m.end != e->peer->index || m.poster >= POSTERS)
		fail("a strange message", e->index, m.number);
	else if (!mark(&e->peer->posters[m.poster], e->peer->posters[m.poster].arrived, m.number))
		fail("a message comes twice", m.end, m.number);
	post_recv(e, slot);
}

static void sent(struct end *e, const struct ibv_wc *wc)
{
	struct poster *p = &e->posters[wc->wr_id >> 32 & (POSTERS - 1)];
	unsigned number = (uint32_t)wc->wr_id, before = atomic_load(&p->ended);

	if (!mark(p, p->told, number))
		fail("a completion comes twice", e->index, number);
	while (before <= number && !atomic_compare_exchange_weak(&p->ended, &before, number + 1))
		;
}

static int poll_some(struct end *e)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(e->cq, 1 + (int)(e->index & 3), wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status || wc[i].qp_num != e->qp->qp_num)
			fail("a bad completion", e->index, wc[i].status);
		else if (wc[i].wr_id & RECV_ID)
			received(e, (unsigned)(wc[i].wr_id & (RECV_ID - 1)));
		else
			sent(e, &wc[i]);
	}
	return n;
}

static void sleep_for_event(struct end *e)
{
	struct pollfd p[] = {{.fd = e->channel->fd, .events = POLLIN},
			     {.fd = stopped, .events = POLLIN}};
	struct ibv_cq *cq;
	void *arg;

	if (poll(p, 2, -1) > 0 && p[0].revents && !ibv_get_cq_event(e->channel, &cq, &arg))
		ibv_ack_cq_events(cq, 1);
}

static void *poller(void *arg)
{
	struct end *e = arg;
	bool last;
	int n;

	/* A message has arrived when its send has ended: the last look finds it. */
	do {
		last = atomic_load(&stop_polling);
		n = poll_some(e);
		if (n <= 0 && e->channel) {
			if (ibv_req_notify_cq(e->cq, 0))
				fail("a CQ cannot be armed", e->index, 0);
			n = poll_some(e);
			if (n <= 0)
				sleep_for_event(e);
		} else if (n <= 0) {
			sched_yield();
		}
	} while (n > 0 || !last);
	return NULL;
}

/* Seldom signalled, but the last of a window is, or nobody would say that it may go on. */
static int post_one(struct poster *p, unsigned number, unsigned *seed)
{
	struct end *e = p->end;
	struct message *m = &p->buffer[number % WINDOW];
	bool write = rand_r(seed) % 8 == 0;
	struct ibv_sge sge = {(uintptr_t)m, sizeof(*m), e->send_mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)p->index << 32 | number,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND};

	*m = (struct message){e->index, p->index, number};
	if (rand_r(seed) % 4 == 0 || number % (WINDOW / 2) == WINDOW / 2 - 1 || atomic_load(&stop))
		wr.send_flags = IBV_SEND_SIGNALED;
	if (write) {
		wr.wr.rdma.remote_addr = (uintptr_t)&e->peer->window;
		wr.wr.rdma.rkey = e->peer->mr->rkey;
		mark(p, p->arrived, number);
	}
	return ibv_post_send(e->qp, &wr, &bad);
}

static void *poster(void *arg)
{
	struct poster *p = arg;
	unsigned seed = p->end->index * POSTERS + p->index, number = 0;

	while (!atomic_load(&stop) || number % WINDOW) {
		int rc = ENOMEM;

		if (number >= NUMBERS)
			break;
		if (number - atomic_load(&p->ended) < WINDOW)
			rc = post_one(p, number, &seed);
		if (!rc)
			atomic_store(&p->posted, ++number);
		else if (rc == ENOMEM)
			sched_yield();
		else
			fail("a send is refused", p->end->index, (unsigned)rc);
	}
	return NULL;
}

/* Control verbs beside all that: they wait while a job runs. */
static void *churn(void *arg)
{
	static char memory[4096];
	struct ibv_qp_init_attr init = {.send_cq = ends[0].cq,
					.recv_cq = ends[1].cq,
					.qp_type = IBV_QPT_RC,
					.cap = {16, 16, 1, 1, 0}};

	(void)arg;
	while (!atomic_load(&stop)) {
		struct ibv_mr *m = ibv_reg_mr_iova2(pd, memory, sizeof(memory), (uintptr_t)memory,
						    IBV_ACCESS_LOCAL_WRITE);
		struct ibv_qp *q = ibv_create_qp(pd, &init);

		if (!m || !q || ibv_destroy_qp(q) || ibv_dereg_mr(m))
			fail("a control verb fails", 0, (unsigned)errno);
		sched_yield();
	}
	return NULL;
}

static int open_end(struct end *e)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {POSTERS * WINDOW, RECVS, 1, 1, 0}};
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (e->index / 2 % 2) {
		e->channel = ibv_create_comp_channel(context);
		if (!e->channel || fcntl(e->channel->fd, F_SETFL, O_NONBLOCK))
			return -errno;
	}
	e->cq = ibv_create_cq(context, 4 * POSTERS * WINDOW, NULL, e->channel, 0);
	e->mr = ibv_reg_mr_iova2(pd, e->inbox,
				 offsetof(struct end, posters) - offsetof(struct end, inbox),
				 (uintptr_t)e->inbox, access);
	e->send_mr = ibv_reg_mr_iova2(pd, e->posters, sizeof(e->posters), (uintptr_t)e->posters,
				      IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = e->cq ? ibv_create_qp(pd, &init) : NULL;
	for (unsigned i = 0; i < POSTERS; i++) {
		e->posters[i].end = e;
		e->posters[i].index = i;
		pthread_mutex_init(&e->posters[i].lock, NULL);
	}
	return e->qp && e->mr && e->send_mr ? 0 : -errno;
}

static int connect_end(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024};
	int rc = ibv_modify_qp(
		e->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);

	a.qp_state = IBV_QPS_RTR;
	a.dest_qp_num = e->peer->qp->qp_num;
	a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	if (!rc)
		rc = ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid);
	if (!rc)
		rc = ibv_modify_qp(e->qp, &a,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	if (!rc)
		rc = ibv_modify_qp(e->qp, &a,
				   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC);
	for (unsigned i = 0; i < RECVS && !rc; i++)
		post_recv(e, i);
	return rc;
}

static int open_all(void)
{
	struct ibv_device **list;
	int rc;

	setenv(FAKE_WIRE_ENV, "1", 1);
	stopped = eventfd(0, EFD_CLOEXEC);
	rc = stopped < 0 ? -errno : fake_agent_start();
	list = rc ? NULL : ibv_get_device_list(NULL);
	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (!pd)
		return -EIO;
	for (unsigned i = 0; i < ENDS && !rc; i++) {
		ends[i].index = i;
		ends[i].peer = &ends[i ^ 1];
		rc = open_end(&ends[i]);
	}
	for (unsigned i = 0; i < ENDS && !rc; i++)
		rc = connect_end(&ends[i]);
	return rc;
}

/* Until each thread has sent that many more, or until all that was sent has ended. */
static bool wait_for(unsigned more, bool all_ended)
{
	uint64_t until = now_ms() + DEADLINE_MS;

	for (unsigned i = 0; i < ENDS * POSTERS; i++) {
		struct poster *p = &ends[i / POSTERS].posters[i % POSTERS];
		unsigned goal = atomic_load(&p->posted) + more;

		while (all_ended ? atomic_load(&p->ended) != atomic_load(&p->posted)
				 : atomic_load(&p->posted) < goal) {
			if (now_ms() > until || atomic_load(&failures))
				return false;
			sched_yield();
		}
	}
	return true;
}

/* Every third is given up when all is quiet. 0 or -errno. */
static int migrate(unsigned n)
{
	struct shim_report r;
	int rc = fake_agent_order(SHIM_SUSPEND, n, &r);

	if (!rc && n % 3 == 2)
		return fake_agent_order(SHIM_ABORT, n, &r) == -ECANCELED ? 0 : -EPROTO;
	if (!rc)
		rc = fake_agent_order(SHIM_RELEASE, n, &r);
	/* The device is built again in one migration of three, and in every second of these it goes
	 * once more. */
	for (unsigned i = 0; !rc && n % 3 == 1 && i < (n % 2 ? 1 : 3); i++)
		fake_agent_build(n, i % 2 == 0);
	if (!rc)
		rc = fake_agent_order(SHIM_RESUME, n, &r);
	if (rc)
		printf("# migration %u: %s\n", n, r.why);
	return rc;
}

/* Every message that was posted has arrived once (a second arrival was seen when it came). */
static void check_all(void)
{
	for (unsigned i = 0; i < ENDS * POSTERS; i++) {
		struct poster *p = &ends[i / POSTERS].posters[i % POSTERS];

		for (unsigned n = 0; n < atomic_load(&p->posted); n++)
			if (!(p->arrived[n / 8] & 1u << (n & 7)))
				fail("a message is lost", i / POSTERS, n);
	}
}

static int run(unsigned migrations)
{
	pthread_t posting[ENDS * POSTERS], polling[2 * ENDS], churning;
	unsigned long long total = 0;
	int rc = 0;

	for (unsigned i = 0; i < 2 * ENDS; i++)
		pthread_create(&polling[i], NULL, poller, &ends[i / 2]);
	for (unsigned i = 0; i < ENDS * POSTERS; i++)
		pthread_create(&posting[i], NULL, poster, &ends[i / POSTERS].posters[i % POSTERS]);
	pthread_create(&churning, NULL, churn, NULL);
	for (unsigned n = 1; n <= migrations && !rc; n++)
		rc = wait_for(MIN_MESSAGES, false) ? migrate(n) : -ETIMEDOUT;
	atomic_store(&stop, true);
	for (unsigned i = 0; i < ENDS * POSTERS; i++)
		pthread_join(posting[i], NULL);
	pthread_join(churning, NULL);
	if (!rc && !wait_for(0, true))
		fail("sends do not end", 0, 0);
	atomic_store(&stop_polling, true);
	eventfd_write(stopped, 1);
	for (unsigned i = 0; i < 2 * ENDS; i++)
		pthread_join(polling[i], NULL);
	check_all();
	for (unsigned i = 0; i < ENDS * POSTERS; i++)
		total += atomic_load(&ends[i / POSTERS].posters[i % POSTERS].posted);
	printf("# %u migrations, %llu messages\n", migrations, total);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = open_all();

	if (rc || !shim_ours(context)) {
		printf("not ok 1 - set-up (%d)\n", rc);
		return 1;
	}
	rc = run(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 10);
	printf("%sok 1 - each message arrives once, each completion is told once (%d)\n",
	       rc || atomic_load(&failures) ? "not " : "", rc);
	fflush(stdout);
	_exit(rc || atomic_load(&failures)); /* threads of the shim and of the device live on */
}
