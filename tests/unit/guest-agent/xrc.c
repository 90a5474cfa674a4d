/* SPDX-License-Identifier: GPL-2.0-or-later */
/* XRC: the shim as it is shipped, with its helper thread, on a played device. An initiator sends to
 * two shared receive queues, each with a CQ of its own, by one target; both ends are in this
 * process. What is played twice is played for a mover, whose device is replaced and all of whose
 * numbers change, and for a peer, which keeps its device and its queues. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "guest-agent/proto/peer.h"
#include "tests/fake/verbs/agent.h"
#include "tests/fake/verbs/rig.h"
#include "tests/fake/verbs/verbs.h"

#define WAIT_MS 60000 /* only a fault waits that long */
#define QUEUES  2
#define SLOTS   64
#define SEND_ID 1000 /* wr_ids of sends: SEND_ID + number */

struct queue {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t number;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_xrcd *xrcd;
static struct ibv_cq *send_cq;
static struct ibv_qp *initiator, *target;
static struct queue queues[QUEUES];
static struct {
	uint64_t outbox[SLOTS], inbox[SLOTS], other, written;
} memory;                /* registered as .mr */
static uint64_t numbers; /* messages sent so far */
static uint64_t migration;
static int file = -1;
static bool mover;
static const char *complaint;
static unsigned tests, failed;

static void (*srqns_from)(uint32_t number);
static int (*open_elsewhere)(int fd);
static void (*lose_acks)(bool lose);
static void (*hold_wire)(bool hold);
static void (*slow_xrcd)(unsigned us);

static bool check(bool ok, const char *what)
{
	if (!ok && !complaint)
		complaint = what;
	return ok;
}
#define CHECK(x) check(x, #x)

static bool refused(const void *p, int error)
{
	return !p && errno == error;
}

static bool make_queue(struct queue *s)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = SLOTS, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd};

	init.cq = s->cq = ibv_create_cq(context, 2 * SLOTS, NULL, NULL, 0);
	s->srq = s->cq ? ibv_create_srq_ex(context, &init) : NULL;
	return s->srq && !ibv_get_srq_num(s->srq, &s->number);
}

static void drop_queue(struct queue *s)
{
	CHECK(!ibv_destroy_srq(s->srq));
	CHECK(!ibv_destroy_cq(s->cq));
}

static bool to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	return qp &&
	       !ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

static bool join(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	bool responds = qp->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = peer->qp_num,
				.ah_attr = {.is_global = 1, .port_num = 1}};

	if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) ||
	    ibv_modify_qp(
		    qp, &a,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)))
		return false;
	a.qp_state = IBV_QPS_RTS;
	return !ibv_modify_qp(
		qp, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			(responds ? 0
				  : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_qp *make_initiator(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = send_cq,
		.cap = {.max_send_wr = SLOTS, .max_send_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};

	return ibv_create_qp_ex(context, &init);
}

static struct ibv_qp *make_target(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};

	return ibv_create_qp_ex(context, &init);
}

static bool make_pair(void)
{
	initiator = make_initiator();
	target = make_target();
	return to_init(initiator) && to_init(target) && join(target, initiator) &&
	       join(initiator, target);
}

static void drop_pair(void)
{
	CHECK(!ibv_destroy_qp(initiator));
	CHECK(!ibv_destroy_qp(target));
}

static void post_recvs(struct queue *s, unsigned n)
{
	static uint64_t next;

	for (; n; n--, next++) {
		struct ibv_sge sge = {(uintptr_t)&memory.inbox[next % SLOTS], 8, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = next, .sg_list = &sge, .num_sge = 1};

		CHECK(!ibv_post_srq_recv(s->srq, &wr, &bad));
	}
}

static void send_to(uint32_t srqn, unsigned flags)
{
	uint64_t n = numbers++;
	struct ibv_sge sge = {(uintptr_t)&memory.outbox[n % SLOTS], 8, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = SEND_ID + n,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = flags,
				       .qp_type.xrc.remote_srqn = srqn};

	memory.outbox[n % SLOTS] = n;
	CHECK(!ibv_post_send(initiator, &wr, &bad));
}

static int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t until = now_ms() + WAIT_MS;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && now_ms() < until)
		usleep(100);
	return n;
}

/* The next message of s is that one. */
static void comes(struct queue *s, uint64_t number)
{
	struct ibv_wc wc = {0};

	if (!CHECK(poll_one(s->cq, &wc) == 1))
		return;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	CHECK(wc.qp_num == target->qp_num);
	CHECK(wc.src_qp == initiator->qp_num);
	CHECK(memory.inbox[wc.wr_id % SLOTS] == number);
}

static void ended(uint64_t number)
{
	struct ibv_wc wc = {0};

	if (!CHECK(poll_one(send_cq, &wc) == 1))
		return;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(wc.qp_num == initiator->qp_num);
	CHECK(wc.wr_id == SEND_ID + number);
}

static void nothing_more(void)
{
	struct ibv_wc wc;

	CHECK(!ibv_poll_cq(send_cq, 1, &wc));
	for (unsigned i = 0; i < QUEUES; i++)
		CHECK(!ibv_poll_cq(queues[i].cq, 1, &wc));
}

static void message(struct queue *s)
{
	uint64_t n = numbers;

	post_recvs(s, 1);
	send_to(s->number, IBV_SEND_SIGNALED);
	comes(s, n);
	ended(n);
}

static int order(uint16_t type)
{
	struct shim_report r;
	int rc = mover ? fake_agent_order(type, migration, &r)
		       : fake_agent_order_peer(type, migration, FAKE_GUID, &r);

	if (rc)
		printf("# order %u: %s\n", type, r.why);
	return rc;
}

static void suspend(void)
{
	migration++;
	CHECK(!order(SHIM_SUSPEND));
	CHECK(!order(SHIM_RELEASE));
}

/* After it no queue of a mover has the number that it had. */
static void resume(void)
{
	static uint32_t base = 0x100;

	if (mover)
		srqns_from(base += 0x100);
	CHECK(!order(SHIM_RESUME));
}

static void swap(void)
{
	suspend();
	resume();
}

static bool begin(void)
{
	srqns_from(1);
	for (unsigned i = 0; i < QUEUES; i++)
		if (!CHECK(make_queue(&queues[i])))
			return false;
	return CHECK(make_pair());
}

static void end(void)
{
	nothing_more();
	drop_pair();
	for (unsigned i = 0; i < QUEUES; i++)
		drop_queue(&queues[i]);
}

static void messages_find_the_queue_that_they_name(void)
{
	uint64_t n;

	for (unsigned round = 0; round < 3; round++) {
		message(&queues[0]);
		message(&queues[1]);
		swap();
	}
	/* Receives that were posted before, in order; sends that were posted meanwhile. */
	post_recvs(&queues[0], 3);
	post_recvs(&queues[1], 1);
	suspend();
	n = numbers;
	send_to(queues[0].number, 0);
	send_to(queues[1].number, 0);
	send_to(queues[0].number, 0);
	send_to(queues[0].number, IBV_SEND_SIGNALED);
	resume();
	comes(&queues[0], n);
	comes(&queues[1], n + 1);
	comes(&queues[0], n + 2);
	comes(&queues[0], n + 3);
	ended(n + 3);
}

/* The other queue has receives, and the queue whose turn it is has none. */
static void what_no_receive_waits_for_comes_afterwards(void)
{
	uint64_t n = numbers;

	post_recvs(&queues[0], 1);
	post_recvs(&queues[1], 2);
	send_to(queues[0].number, 0);
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	send_to(queues[0].number, IBV_SEND_SIGNALED); /* waits */
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	send_to(queues[0].number, 0); /* waits, too */
	ended(n + 1);
	swap();
	comes(&queues[0], n);
	comes(&queues[1], n + 1);
	nothing_more();
	post_recvs(&queues[0], 2);
	comes(&queues[0], n + 2);
	comes(&queues[1], n + 3);
	comes(&queues[0], n + 4);
	ended(n + 2);
	ended(n + 3);
	message(&queues[1]);
}

/* Messages before this one have been executed, and nobody has told so. */
static void what_was_executed_is_not_repeated(void)
{
	uint64_t n = numbers;

	post_recvs(&queues[0], 1);
	post_recvs(&queues[1], 2);
	lose_acks(true);
	send_to(queues[0].number, IBV_SEND_SIGNALED);
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	send_to(queues[0].number, IBV_SEND_SIGNALED); /* waits for a receive */
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	comes(&queues[0], n);
	comes(&queues[1], n + 1);
	suspend();
	lose_acks(false);
	resume();
	ended(n);
	ended(n + 1);
	nothing_more();
	post_recvs(&queues[0], 1);
	comes(&queues[0], n + 2);
	comes(&queues[1], n + 3);
	ended(n + 2);
	ended(n + 3);
}

static unsigned asked_before;

/* When the peer has been asked, and again: its answer has been looked at. */
static void *let_go_later(void *arg)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (fake_agent_brought(PEER_FREEZE) < asked_before + 2 && now_ms() < until)
		usleep(100);
	CHECK(fake_agent_brought(PEER_FREEZE) >= asked_before + 2);
	hold_wire(false);
	return arg;
}

/* The first one's queue is empty, but what is behind it is for another one, and comes. */
static void what_is_on_its_way_is_waited_for(void)
{
	uint64_t n = numbers;
	pthread_t thread;

	post_recvs(&queues[0], 1);
	post_recvs(&queues[1], 2);
	lose_acks(true);
	send_to(queues[0].number, 0);
	comes(&queues[0], n);
	hold_wire(true);
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	migration++;
	asked_before = fake_agent_brought(PEER_FREEZE);
	CHECK(!pthread_create(&thread, NULL, let_go_later, NULL));
	CHECK(!order(SHIM_SUSPEND));
	CHECK(!pthread_join(thread, NULL));
	comes(&queues[1], n + 1);
	CHECK(!order(SHIM_RELEASE));
	lose_acks(false);
	resume();
	ended(n + 1);
	nothing_more();
	message(&queues[0]);
	n = numbers;
	send_to(queues[1].number, IBV_SEND_SIGNALED); /* to the receive that is left */
	comes(&queues[1], n);
	ended(n);
}

/* The initiator knows the key of the target from here on: a request does not wait for it. */
static void learn_key(uint32_t srqn)
{
	uint64_t n = numbers++;
	struct ibv_sge sge = {(uintptr_t)&memory.other, 8, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = SEND_ID + n,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {(uintptr_t)&memory.written, mr->rkey},
				       .qp_type.xrc.remote_srqn = srqn};

	CHECK(!ibv_post_send(initiator, &wr, &bad));
	ended(n);
}

/* A request names a queue, the marker's too; the marker ends requests without a completion. */
static void an_unsignalled_tail_is_ended(void)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(initiator);
	uint64_t n;

	if (!CHECK(x))
		return;
	learn_key(queues[0].number);
	n = numbers;
	post_recvs(&queues[1], 1);
	memory.other = 77;
	memory.written = 0;
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = 0;
	ibv_wr_send(x);
	ibv_wr_set_xrc_srqn(x, queues[1].number);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)&memory.outbox[n % SLOTS], 8);
	x->wr_id = 2;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)&memory.written);
	ibv_wr_set_xrc_srqn(x, queues[0].number);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)&memory.other, 8);
	memory.outbox[n % SLOTS] = numbers++;
	CHECK(!ibv_wr_complete(x));
	swap();
	comes(&queues[1], n);
	CHECK(memory.written == 77);
	nothing_more();
	message(&queues[0]);
}

static void a_suspend_that_is_given_up_leaves_all(void)
{
	uint64_t n = numbers;
	struct shim_report r;

	post_recvs(&queues[1], 1);
	send_to(queues[0].number, IBV_SEND_SIGNALED);
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	migration++;
	CHECK(!order(SHIM_SUSPEND));
	CHECK((mover ? fake_agent_order(SHIM_ABORT, migration, &r)
		     : fake_agent_order_peer(SHIM_ABORT, migration, FAKE_GUID, &r)) == -ECANCELED);
	post_recvs(&queues[0], 1);
	comes(&queues[0], n);
	comes(&queues[1], n + 1);
	ended(n);
	ended(n + 1);
	swap();
	message(&queues[0]);
}

/* A completion that the program has not polled yet outlives its target and its queue. */
static void what_has_come_is_not_lost(void)
{
	struct ibv_wc wc = {0};
	uint64_t n = numbers;
	uint32_t qpn = target->qp_num;

	post_recvs(&queues[0], 2);
	post_recvs(&queues[1], 1);
	send_to(queues[0].number, IBV_SEND_SIGNALED);
	send_to(queues[1].number, IBV_SEND_SIGNALED);
	ended(n);
	ended(n + 1);
	drop_pair();
	CHECK(poll_one(queues[0].cq, &wc) == 1 && wc.qp_num == qpn);
	CHECK(!ibv_destroy_srq(queues[1].srq));
	CHECK(poll_one(queues[1].cq, &wc) == 1 && wc.qp_num == qpn);
	CHECK(!ibv_destroy_cq(queues[1].cq));
	/* and the slot of the first can be used: SLOTS - 1 are free */
	post_recvs(&queues[0], SLOTS - 1);
	CHECK(make_queue(&queues[1]) && make_pair());
	swap();
	message(&queues[1]);
}

/* Numbers of one device that the next has, too: a valid number never leads to another queue. */
static void numbers_do_not_alias(void)
{
	struct queue other, again;
	uint32_t first = queues[0].number;

	mover = true;
	message(&queues[0]);
	swap(); /* the hardware has another number for it now */
	srqns_from(first);
	CHECK(make_queue(&other));
	CHECK(other.number != first);
	message(&queues[0]);
	message(&other);
	swap();
	message(&other);
	message(&queues[0]);
	drop_queue(&other);
	drop_pair();
	drop_queue(&queues[0]);
	/* The peer may still know what first stood for, and this is another queue. */
	srqns_from(first);
	CHECK(make_queue(&again));
	CHECK(again.number != first);
	CHECK(make_queue(&queues[0]) && make_pair());
	message(&again);
	message(&queues[0]);
	drop_queue(&again);
	/* A number that belonged to the same queue all the time is given out again. */
	srqns_from(0x70000);
	CHECK(make_queue(&again) && again.number == 0x70000);
	message(&again);
	drop_queue(&again);
	CHECK(make_queue(&again) && again.number == 0x70000);
	message(&again);
	drop_queue(&again);
}

static void fails_with(uint32_t srqn, enum ibv_wc_status status)
{
	struct ibv_wc wc = {0};

	send_to(srqn, 0);
	CHECK(poll_one(send_cq, &wc) == 1);
	CHECK(wc.status == status && wc.qp_num == initiator->qp_num);
	drop_pair();
	CHECK(make_pair());
}

/* As on bare hardware, also when they have been asked for before. */
static void numbers_of_nobody_fail(void)
{
	struct queue late;

	fails_with(0x4321, IBV_WC_REM_INV_REQ_ERR);
	fails_with(SHIM_QPN_MAX, IBV_WC_REM_INV_REQ_ERR);
	fails_with(UINT32_MAX, IBV_WC_REM_INV_REQ_ERR);
	srqns_from(0x4321);
	CHECK(make_queue(&late) && late.number == 0x4321);
	message(&late);
	drop_queue(&late);
	fails_with(0x4321, IBV_WC_REM_INV_REQ_ERR);
	message(&queues[0]);
}

static struct ibv_xrcd *open_domain(uint32_t mask, int fd, int oflags)
{
	struct ibv_xrcd_init_attr init = {.comp_mask = mask, .fd = fd, .oflags = oflags};

	errno = 0;
	return ibv_open_xrcd(context, &init);
}

#define BOTH (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS)

/* The agent's log, which another thread writes. */
static bool hears(const char *text)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (!fake_agent_heard(text) && now_ms() < until)
		usleep(1000);
	return fake_agent_heard(text);
}

static void domains(void)
{
	char name[] = "/tmp/ibvmig-xrc-XXXXXX";
	struct ibv_xrcd *one, *two;
	int fd = mkstemp(name);

	unlink(name);
	CHECK(refused(ibv_open_xrcd(context, NULL), EINVAL));
	CHECK(refused(open_domain(0, -1, O_CREAT), EINVAL));
	CHECK(refused(open_domain(IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT), EINVAL));
	CHECK(refused(open_domain(BOTH | 1u << 7, -1, O_CREAT), EOPNOTSUPP));
	CHECK(refused(open_domain(BOTH, 99999, O_CREAT), EBADF));
	CHECK(refused(open_domain(BOTH, fd, 0), EAGAIN));
	/* In this process once, however often it is opened. */
	one = open_domain(BOTH, fd, O_CREAT);
	two = open_domain(BOTH, dup(fd), 0);
	CHECK(one && one == two);
	CHECK(refused(open_domain(BOTH, fd, O_CREAT | O_EXCL), EINVAL));
	CHECK(!ibv_close_xrcd(two));
	swap();
	CHECK(!ibv_close_xrcd(one));
	CHECK(refused(open_domain(BOTH, fd, 0), EAGAIN));
	/* Another process has it. */
	open_elsewhere(fd);
	CHECK(refused(open_domain(BOTH, fd, O_CREAT | O_EXCL), EINVAL));
	CHECK(refused(open_domain(BOTH, fd, O_CREAT), EOPNOTSUPP));
	CHECK(refused(open_domain(BOTH, fd, 0), EOPNOTSUPP));
	CHECK(hears("ibv_open_xrcd is refused (EOPNOTSUPP): an XRC domain of several"));
	open_elsewhere(-1);
	CHECK(ibv_close_xrcd(xrcd) == EBUSY);
	close(fd);
}

static void *open_and_close(void *fd)
{
	struct ibv_xrcd *x = NULL;
	bool ok = true;

	for (int i = 0; ok && i < 5; i++) {
		x = open_domain(BOTH, *(int *)fd, O_CREAT);
		ok = x && !ibv_close_xrcd(x);
	}
	return ok ? fd : NULL;
}

/* For the kernel a second opening is another's, as long as the first is not known to be ours. */
static void threads_open_the_same(void)
{
	char name[] = "/tmp/ibvmig-xrc-XXXXXX";
	int fd = mkstemp(name);
	pthread_t thread[4];
	void *ok;

	unlink(name);
	slow_xrcd(2000);
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		CHECK(!pthread_create(&thread[i], NULL, open_and_close, &fd));
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		CHECK(!pthread_join(thread[i], &ok) && ok);
	slow_xrcd(0);
	CHECK(refused(open_domain(BOTH, fd, 0), EAGAIN)); /* the domain is closed */
	close(fd);
}

/* With a shared domain its second process opens the target. */
static void arguments(void)
{
	struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_num = target->qp_num,
					.xrcd = xrcd,
					.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex init = {.attr = {4, 1, 0},
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							 IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_XRC,
					    .pd = pd};
	struct ibv_qp_init_attr_ex qp = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_send_wr *bad, send = {.opcode = IBV_WR_SEND};
	struct ibv_recv_wr *bad_recv, recv = {0};
	struct ibv_device_attr attr;
	struct ibv_srq *basic;
	uint32_t n;

	CHECK(!ibv_query_device(context, &attr) && attr.device_cap_flags & IBV_DEVICE_XRC);
	CHECK(refused(ibv_open_qp(context, &open), EOPNOTSUPP));
	CHECK(refused(ibv_create_srq_ex(context, &init), EINVAL));
	init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	CHECK(refused(ibv_create_srq_ex(context, &init), EINVAL));
	init.srq_type = IBV_SRQT_TM;
	CHECK(refused(ibv_create_srq_ex(context, &init), EOPNOTSUPP));
	init.comp_mask = 1u << 31;
	CHECK(refused(ibv_create_srq_ex(context, &init), EOPNOTSUPP));
	init.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ;
	basic = ibv_create_srq_ex(context, &init);
	CHECK(basic && ibv_get_srq_num(basic, &n) == EOPNOTSUPP && !ibv_destroy_srq(basic));
	CHECK(refused(ibv_create_qp_ex(context, &qp), EINVAL));
	qp.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	CHECK(refused(ibv_create_qp_ex(context, &qp), EINVAL));
	CHECK(ibv_post_send(target, &send, &bad) && bad == &send);
	CHECK(ibv_post_recv(target, &recv, &bad_recv) && bad_recv == &recv);
	CHECK(ibv_post_recv(initiator, &recv, &bad_recv) && bad_recv == &recv);
}

static void row(const char *name, void (*run)(void), bool as_mover)
{
	mover = as_mover;
	complaint = NULL;
	if (begin()) {
		run();
		end();
	}
	failed += complaint != NULL;
	printf("%sok %u - %s%s%s%s\n", complaint ? "not " : "", ++tests, name,
	       as_mover ? ", mover" : ", peer", complaint ? ": " : "", complaint ? complaint : "");
	fflush(stdout);
}

static bool open_all(void)
{
	struct ibv_device **list = fake_agent_start() ? NULL : ibv_get_device_list(NULL);
	char name[] = "/tmp/ibvmig-xrc-XXXXXX";

	*(void **)&srqns_from = dlsym(RTLD_DEFAULT, "fake_srqns_from");
	*(void **)&open_elsewhere = dlsym(RTLD_DEFAULT, "fake_open_elsewhere");
	*(void **)&slow_xrcd = dlsym(RTLD_DEFAULT, "fake_slow_xrcd");
	*(void **)&hold_wire = dlsym(RTLD_DEFAULT, "fake_hold_wire");
	*(void **)&lose_acks = dlsym(RTLD_DEFAULT, "fake_lose_acks");
	file = mkstemp(name);
	unlink(name);
	context = list ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, &memory, sizeof(memory),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
		: NULL;
	send_cq = mr ? ibv_create_cq(context, 4 * SLOTS, NULL, NULL, 0) : NULL;
	if (list)
		ibv_free_device_list(list);
	xrcd = send_cq ? open_domain(BOTH, file, O_CREAT) : NULL;
	return xrcd && srqns_from && open_elsewhere && lose_acks && hold_wire && slow_xrcd;
}

int main(int argc, char **argv)
{
	static const struct {
		void (*run)(void);
		const char *name;
		bool once;
	} rows[] = {
		{messages_find_the_queue_that_they_name, "messages find their queue", false},
		{what_no_receive_waits_for_comes_afterwards, "a queue without receives", false},
		{what_was_executed_is_not_repeated, "acknowledgements are lost", false},
		{what_is_on_its_way_is_waited_for, "a message on its way", false},
		{an_unsignalled_tail_is_ended, "ibv_wr_*, an unsignalled tail", false},
		{a_suspend_that_is_given_up_leaves_all, "a suspend is given up", false},
		{what_has_come_is_not_lost, "completions outlive target and queue", false},
		{numbers_do_not_alias, "numbers do not alias", true},
		{numbers_of_nobody_fail, "numbers of nobody fail", true},
		{domains, "domains, alone and shared", true},
		{threads_open_the_same, "domains, in several threads", true},
		{arguments, "arguments", true},
	};

	(void)argc;
	setenv(FAKE_WIRE_ENV, "1", 1);
	if (rig_exec(argv, true))
		return 1;
	if (!open_all()) {
		printf("not ok 1 - the shim opens the played device\n1..1\n");
		return 1;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		row(rows[i].name, rows[i].run, true);
		if (!rows[i].once)
			row(rows[i].name, rows[i].run, false);
	}
	printf("1..%u\n", tests);
	fflush(stdout);
	_exit(failed != 0); /* threads of the shim live on */
}
