/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls verbs with arguments that are NULL, zero, negative, huge or of the wrong state, and says
 * what each returned. A line is "NAME -> RESULT", where RESULT is `ok`, an errno's name or `signal
 * N`. Each case has a process of its own, so that one that crashes ends no other.
 * tests/integration/guest/ex compares the two lists, run bare and under the shim. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 8192

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cqx;
static struct ibv_qp *qp, *fresh, *ud, *with_srq; /* RTS to itself; RESET; UD in RTS; with srq */
static struct ibv_qp_ex *qpx;
static struct ibv_srq *srq;
static char *buffer;

/* Returns a case's result: 0, or an errno, from the two ways in which verbs say it. */
static int number(long rc)
{
	return (int)(rc == -1 ? errno : rc < 0 ? -rc : rc);
}

static int pointer(const void *p)
{
	return p ? 0 : errno ? errno : -1;
}

static struct ibv_qp_init_attr qp_init(void)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq, .recv_cq = cq, .cap = {16, 16, 2, 2, 16}, .qp_type = IBV_QPT_RC};
}

static struct ibv_qp *create_ex(uint32_t mask, uint64_t ops, struct ibv_pd *domain, int type)
{
	struct ibv_qp_init_attr_ex ex = {.send_cq = cq,
					 .recv_cq = cq,
					 .cap = {16, 16, 2, 2, 16},
					 .qp_type = (enum ibv_qp_type)type,
					 .comp_mask = mask,
					 .pd = domain,
					 .send_ops_flags = ops};

	return ibv_create_qp_ex(ctx, &ex);
}

static struct ibv_qp_attr to_init(void)
{
	return (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)

static struct ibv_qp_attr to_rtr(const struct ibv_qp *q)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = q->qp_num,
				.max_dest_rd_atomic = 1,
				.min_rnr_timer = 12,
				.ah_attr = {.is_global = 1, .port_num = 1}};

	a.ah_attr.grh.hop_limit = 1;
	if (ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid))
		exit(2);
	return a;
}

#define RTR_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static struct ibv_qp_attr to_rts(void)
{
	return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
}

#define RTS_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

static int init(struct ibv_qp *q, int mask, void (*change)(struct ibv_qp_attr *))
{
	struct ibv_qp_attr a = to_init();

	if (change)
		change(&a);
	return number(ibv_modify_qp(q, &a, mask));
}

static int rtr(int mask, void (*change)(struct ibv_qp_attr *))
{
	struct ibv_qp_attr a = to_rtr(fresh);
	int rc = init(fresh, INIT_MASK, NULL);

	if (change)
		change(&a);
	return rc ? rc : number(ibv_modify_qp(fresh, &a, mask));
}

static void connect_self(struct ibv_qp *q)
{
	struct ibv_qp_attr a = to_rtr(q), s = to_rts();

	if (init(q, INIT_MASK, NULL) || ibv_modify_qp(q, &a, RTR_MASK) ||
	    ibv_modify_qp(q, &s, RTS_MASK))
		exit(3);
}

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr s = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_cq_init_attr_ex x = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr i;

	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!ctx)
		exit(4);
	buffer = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, buffer, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	channel = ibv_create_comp_channel(ctx);
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	cq = ibv_create_cq(ctx, 64, NULL, channel, 0);
	cqx = ibv_create_cq_ex(ctx, &x);
	srq = ibv_create_srq(pd, &s);
	i = qp_init();
	fresh = ibv_create_qp(pd, &i);
	i = qp_init();
	i.qp_type = IBV_QPT_UD;
	ud = ibv_create_qp(pd, &i);
	i = qp_init();
	i.srq = srq;
	with_srq = ibv_create_qp(pd, &i);
	qp = create_ex(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND,
		       pd, IBV_QPT_RC);
	if (!mr || !cqx || !srq || !fresh || !ud || !with_srq || !qp)
		exit(5);
	qpx = ibv_qp_to_qp_ex(qp);
	connect_self(qp);
	errno = 0;
}

/* Devices and what can be asked of them. */
static int query_port(int port)
{
	struct ibv_port_attr a;

	return number(ibv_query_port(ctx, (uint8_t)port, &a));
}

static int query_gid(int port, int index)
{
	union ibv_gid gid;

	return number(ibv_query_gid(ctx, (uint8_t)port, index, &gid));
}

static int query_gid_ex(uint32_t port, uint32_t index, uint32_t flags)
{
	struct ibv_gid_entry e;

	return number(ibv_query_gid_ex(ctx, port, index, &e, flags));
}

static int query_gid_table(size_t max, uint32_t flags)
{
	struct ibv_gid_entry e[4];
	ssize_t n = ibv_query_gid_table(ctx, e, max, flags);

	return n < 0 ? number(n) : 0;
}

static int query_pkey(int port, int index)
{
	__be16 pkey;

	return number(ibv_query_pkey(ctx, (uint8_t)port, index, &pkey));
}

static int query_device_short(size_t bytes)
{
	struct verbs_context *v = verbs_get_ctx_op(ctx, query_device_ex);
	struct ibv_device_attr_ex *a = malloc(bytes ? bytes : 1);

	return v ? number(v->query_device_ex(ctx, NULL, a, bytes)) : EOPNOTSUPP;
}

/* Memory. */
static int reg(void *addr, size_t length, int access)
{
	return pointer(ibv_reg_mr(pd, addr, length, access));
}

static int rereg(int flags, struct ibv_pd *domain, void *addr, size_t length, int access)
{
	return number(ibv_rereg_mr(mr, flags, domain, addr, length, access));
}

/* CQs. */
static int make_cq(int cqe, int vector)
{
	return pointer(ibv_create_cq(ctx, cqe, NULL, NULL, vector));
}

static int make_cq_ex(uint32_t cqe, uint64_t wc_flags, uint32_t mask, uint32_t flags)
{
	struct ibv_cq_init_attr_ex a = {
		.cqe = cqe, .wc_flags = wc_flags, .comp_mask = mask, .flags = flags};

	return pointer(ibv_create_cq_ex(ctx, &a));
}

static int poll_n(int n)
{
	struct ibv_wc wc[4];

	return number(ibv_poll_cq(cq, n, wc));
}

static int poll_ex(uint32_t mask)
{
	struct ibv_poll_cq_attr a = {.comp_mask = mask};

	return number(ibv_start_poll(cqx, &a));
}

static int event(void)
{
	struct ibv_cq *which;
	void *arg;

	return number(ibv_get_cq_event(channel, &which, &arg));
}

/* QPs. */
static int make_qp(void (*change)(struct ibv_qp_init_attr *))
{
	struct ibv_qp_init_attr i = qp_init();

	change(&i);
	return pointer(ibv_create_qp(pd, &i));
}

#define CHANGE(name, type, code)                                                                   \
	static void name(type *a)                                                                  \
	{                                                                                          \
		code;                                                                              \
	}
CHANGE(type_0, struct ibv_qp_init_attr, a->qp_type = 0)
CHANGE(type_99, struct ibv_qp_init_attr, a->qp_type = 99)
CHANGE(type_xrc, struct ibv_qp_init_attr, a->qp_type = IBV_QPT_XRC_SEND)
CHANGE(no_cqs, struct ibv_qp_init_attr, a->send_cq = a->recv_cq = NULL)
CHANGE(no_recv_cq, struct ibv_qp_init_attr, a->recv_cq = NULL)
CHANGE(no_caps, struct ibv_qp_init_attr, memset(&a->cap, 0, sizeof(a->cap)))
CHANGE(huge_sq, struct ibv_qp_init_attr, a->cap.max_send_wr = INT_MAX)
CHANGE(max_sq, struct ibv_qp_init_attr, a->cap.max_send_wr = UINT32_MAX)
CHANGE(huge_rq, struct ibv_qp_init_attr, a->cap.max_recv_wr = INT_MAX)
CHANGE(huge_send_sge, struct ibv_qp_init_attr, a->cap.max_send_sge = 1000)
CHANGE(huge_recv_sge, struct ibv_qp_init_attr, a->cap.max_recv_sge = UINT32_MAX)
CHANGE(huge_inline, struct ibv_qp_init_attr, a->cap.max_inline_data = 1u << 20)
CHANGE(port_0, struct ibv_qp_attr, a->port_num = 0)
CHANGE(port_9, struct ibv_qp_attr, a->port_num = 9)
CHANGE(pkey_9999, struct ibv_qp_attr, a->pkey_index = 9999)
CHANGE(state_99, struct ibv_qp_attr, a->qp_state = 99)
CHANGE(state_rts, struct ibv_qp_attr, a->qp_state = IBV_QPS_RTS)
CHANGE(dest_25_bits, struct ibv_qp_attr, a->dest_qp_num = 1u << 24)
CHANGE(dest_32_bits, struct ibv_qp_attr, a->dest_qp_num = UINT32_MAX)
CHANGE(mtu_0, struct ibv_qp_attr, a->path_mtu = 0)
CHANGE(mtu_9, struct ibv_qp_attr, a->path_mtu = 9)
CHANGE(gid_255, struct ibv_qp_attr, a->ah_attr.grh.sgid_index = 255)
CHANGE(av_port_0, struct ibv_qp_attr, a->ah_attr.port_num = 0)
CHANGE(av_port_9, struct ibv_qp_attr, a->ah_attr.port_num = 9)
CHANGE(no_gid, struct ibv_qp_attr, memset(&a->ah_attr.grh.dgid, 0, 16))
CHANGE(rd_255, struct ibv_qp_attr, a->max_dest_rd_atomic = 255)
CHANGE(rnr_255, struct ibv_qp_attr, a->min_rnr_timer = 255)
CHANGE(psn_32_bits, struct ibv_qp_attr, a->rq_psn = UINT32_MAX)

static int query(int mask)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;

	return number(ibv_query_qp(qp, &a, mask, &i));
}

static int ece(bool set)
{
	struct ibv_ece e = {.comp_mask = set ? UINT32_MAX : 0};

	return number(set ? ibv_set_ece(fresh, &e) : ibv_query_ece(fresh, &e));
}

/* Posts. */
static int post(struct ibv_qp *q, int opcode, unsigned flags, int num_sge, uint32_t length)
{
	struct ibv_sge sge[4] = {{(uintptr_t)buffer, length, mr->lkey}};
	struct ibv_send_wr *bad,
		wr = {.opcode = (enum ibv_wr_opcode)opcode, .sg_list = sge, .send_flags = flags};

	wr.num_sge = num_sge;
	return number(ibv_post_send(q, &wr, &bad));
}

/* The first that does not fit. */
static int overfill(void)
{
	int rc = 0;

	for (int i = 0; i < 100000 && !rc; i++)
		rc = post(qp, IBV_WR_SEND, 0, 0, 0);
	return rc;
}

static int receive(struct ibv_qp *q, int num_sge)
{
	struct ibv_sge sge[4] = {{(uintptr_t)buffer, 8, mr->lkey}};
	struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = num_sge};

	return number(ibv_post_recv(q, &wr, &bad));
}

static int overfill_recv(void)
{
	int rc = 0;

	for (int i = 0; i < 100000 && !rc; i++)
		rc = receive(qp, 0);
	return rc;
}

static int post_list(bool send)
{
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;

	return number(send ? ibv_post_send(qp, NULL, &bad_send)
			   : ibv_post_recv(qp, NULL, &bad_recv));
}

static int wr(int what)
{
	static const struct ibv_sge many[64];
	static char data[4096];

	ibv_wr_start(qpx);
	if (what != 1)
		ibv_wr_send(qpx);
	if (what == 2)
		ibv_wr_set_sge_list(qpx, 64, many);
	if (what == 3)
		ibv_wr_set_inline_data(qpx, data, sizeof(data));
	for (int i = 0; what == 4 && i < 100000; i++)
		ibv_wr_send(qpx);
	return number(ibv_wr_complete(qpx));
}

/* Shared receive queues, address handles, groups, windows. */
static int make_srq(uint32_t max_wr, uint32_t max_sge, uint32_t limit)
{
	struct ibv_srq_init_attr a = {
		.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit}};

	return pointer(ibv_create_srq(pd, &a));
}

static int make_srq_ex(uint32_t mask, int type)
{
	struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = 4, .max_sge = 1},
					 .comp_mask = mask,
					 .srq_type = (enum ibv_srq_type)type,
					 .pd = pd};

	return pointer(ibv_create_srq_ex(ctx, &a));
}

static int open_xrcd(bool init, uint32_t mask, int fd)
{
	struct ibv_xrcd_init_attr a = {.comp_mask = mask, .fd = fd};

	return pointer(ibv_open_xrcd(ctx, init ? &a : NULL));
}

static int open_qp(void)
{
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM};

	return pointer(ibv_open_qp(ctx, &a));
}

static int make_qp_ex(enum ibv_qp_type type, uint32_t mask)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = type, .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}};

	a.comp_mask = mask;
	a.pd = mask & IBV_QP_INIT_ATTR_PD ? pd : NULL;
	return pointer(ibv_create_qp_ex(ctx, &a));
}

static int limit(uint32_t max_wr, uint32_t at, int mask)
{
	struct ibv_srq_attr a = {.max_wr = max_wr, .srq_limit = at};

	return number(ibv_modify_srq(srq, &a, mask));
}

static int srq_receive(int num_sge)
{
	struct ibv_sge sge[4] = {{(uintptr_t)buffer, 8, mr->lkey}};
	struct ibv_recv_wr *bad, w = {.sg_list = sge, .num_sge = num_sge};

	return number(ibv_post_srq_recv(srq, &w, &bad));
}

static int srq_overfill(void)
{
	int rc = 0;

	for (int i = 0; i < 100000 && !rc; i++)
		rc = srq_receive(0);
	return rc;
}

static int handle(int port, bool global, int index)
{
	struct ibv_ah_attr a = {.port_num = (uint8_t)port, .is_global = global};

	a.grh.dgid = to_rtr(qp).ah_attr.grh.dgid;
	a.grh.sgid_index = (uint8_t)index;
	return pointer(ibv_create_ah(pd, &a));
}

static int mcast(struct ibv_qp *q, uint8_t first, bool leave)
{
	union ibv_gid gid = {.raw = {first, 0x12, [15] = 9}};

	return number(leave ? ibv_detach_mcast(q, &gid, 0xc001)
			    : ibv_attach_mcast(q, &gid, 0xc001));
}

static int window(int type)
{
	return pointer(ibv_alloc_mw(pd, (enum ibv_mw_type)type));
}

/* The attributes are refused. */
static int xrcd(void)
{
	struct ibv_xrcd_init_attr a = {.comp_mask = 3, .fd = -1, .oflags = O_CREAT};

	return pointer(ibv_open_xrcd(ctx, &a));
}

static int dm(void)
{
	struct ibv_alloc_dm_attr a = {.length = 64};

	return pointer(ibv_alloc_dm(ctx, &a));
}

static int flow(void)
{
	struct ibv_flow_attr a = {.size = sizeof(a), .port = 1};

	return pointer(ibv_create_flow(ud, &a));
}

static int counters(void)
{
	struct ibv_counters_init_attr a = {0};

	return pointer(ibv_create_counters(ctx, &a));
}

static int parent(struct ibv_pd *of, uint32_t mask)
{
	struct ibv_parent_domain_init_attr a = {.pd = of, .comp_mask = mask};

	return pointer(ibv_alloc_parent_domain(ctx, &a));
}

#define CASES                                                                                      \
	C(query_port(0))                                                                           \
	C(query_port(2))                                                                           \
	C(query_port(255))                                                                         \
	C(query_gid(0, 0))                                                                         \
	C(query_gid(9, 0))                                                                         \
	C(query_gid(1, -1))                                                                        \
	C(query_gid(1, 100000))                                                                    \
	C(query_gid_ex(0, 0, 0))                                                                   \
	C(query_gid_ex(1, 0, 1))                                                                   \
	C(query_gid_ex(UINT32_MAX, UINT32_MAX, 0))                                                 \
	C(query_gid_table(0, 0))                                                                   \
	C(query_gid_table(4, 1))                                                                   \
	C(query_pkey(0, 0))                                                                        \
	C(query_pkey(1, -1))                                                                       \
	C(query_pkey(1, 9999))                                                                     \
	C(number(ibv_get_pkey_index(ctx, 1, 0x1234)) > 0)                                          \
	C(query_device_short(0))                                                                   \
	C(query_device_short(8))                                                                   \
	C(query_device_short(sizeof(struct ibv_device_attr)))                                      \
	C(reg(buffer, 0, 0))                                                                       \
	C(reg(NULL, 0, 0))                                                                         \
	C(reg(NULL, 4096, 0))                                                                      \
	C(reg(buffer, SIZE_MAX, 0))                                                                \
	C(reg(buffer, SIZE_MAX / 2, 0))                                                            \
	C(reg(buffer, 1ull << 45, IBV_ACCESS_LOCAL_WRITE))                                         \
	C(reg(buffer, 64, IBV_ACCESS_REMOTE_WRITE))                                                \
	C(reg(buffer, 64, IBV_ACCESS_REMOTE_ATOMIC))                                               \
	C(reg(buffer, 64, 1 << 19))                                                                \
	C(reg(buffer, 64, INT_MIN))                                                                \
	C(reg(buffer, 64, IBV_ACCESS_ON_DEMAND))                                                   \
	C(rereg(0, NULL, NULL, 0, 0))                                                              \
	C(rereg(1 << 20, NULL, NULL, 0, 0))                                                        \
	C(rereg(IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0))                                         \
	C(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0))                                \
	C(rereg(IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE))               \
	C(make_cq(0, 0))                                                                           \
	C(make_cq(-1, 0))                                                                          \
	C(make_cq(INT_MIN, 0))                                                                     \
	C(make_cq(INT_MAX, 0))                                                                     \
	C(make_cq(16, -1))                                                                         \
	C(make_cq(16, 9999))                                                                       \
	C(number(ibv_resize_cq(cq, 0)))                                                            \
	C(number(ibv_resize_cq(cq, -1)))                                                           \
	C(number(ibv_resize_cq(cq, INT_MAX)))                                                      \
	C(make_cq_ex(0, 0, 0, 0))                                                                  \
	C(make_cq_ex(UINT32_MAX, 0, 0, 0))                                                         \
	C(make_cq_ex(4, UINT64_MAX, 0, 0))                                                         \
	C(make_cq_ex(4, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0, 0))                                \
	C(make_cq_ex(4, 0, 1u << 31, 0))                                                           \
	C(make_cq_ex(4, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, UINT32_MAX))                               \
	C(make_cq_ex(4, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED))       \
	C(poll_n(0))                                                                               \
	C(poll_n(-1))                                                                              \
	C(poll_n(INT_MIN))                                                                         \
	C(poll_n(4))                                                                               \
	C(poll_ex(0))                                                                              \
	C(poll_ex(1))                                                                              \
	C(number(ibv_req_notify_cq(cq, 7)))                                                        \
	C(number(ibv_req_notify_cq(ibv_cq_ex_to_cq(cqx), 0)))                                      \
	C(event())                                                                                 \
	C((ibv_ack_cq_events(cq, 0), 0))                                                           \
	C(make_qp(type_0))                                                                         \
	C(make_qp(type_99))                                                                        \
	C(make_qp(type_xrc))                                                                       \
	C(make_qp(no_cqs))                                                                         \
	C(make_qp(no_recv_cq))                                                                     \
	C(make_qp(no_caps))                                                                        \
	C(make_qp(huge_sq))                                                                        \
	C(make_qp(max_sq))                                                                         \
	C(make_qp(huge_rq))                                                                        \
	C(make_qp(huge_send_sge))                                                                  \
	C(make_qp(huge_recv_sge))                                                                  \
	C(make_qp(huge_inline))                                                                    \
	C(pointer(create_ex(0, 0, pd, IBV_QPT_RC)))                                                \
	C(pointer(create_ex(1u << 31, 0, pd, IBV_QPT_RC)))                                         \
	C(pointer(create_ex(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,                 \
			    IBV_QP_EX_WITH_RDMA_READ, pd, IBV_QPT_UD)))                            \
	C(pointer(create_ex(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, UINT64_MAX, pd, \
			    IBV_QPT_RC)))                                                          \
	C(pointer(create_ex(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, 0, pd, IBV_QPT_RC)))   \
	C(init(fresh, 0, NULL))                                                                    \
	C(init(fresh, -1, NULL))                                                                   \
	C(init(fresh, IBV_QP_STATE, NULL))                                                         \
	C(init(fresh, INIT_MASK, port_0))                                                          \
	C(init(fresh, INIT_MASK, port_9))                                                          \
	C(init(fresh, INIT_MASK, pkey_9999))                                                       \
	C(init(fresh, INIT_MASK, state_99))                                                        \
	C(init(fresh, INIT_MASK, state_rts))                                                       \
	C(init(fresh, INIT_MASK | IBV_QP_ALT_PATH, NULL))                                          \
	C(rtr(IBV_QP_STATE, NULL))                                                                 \
	C(rtr(RTR_MASK & ~IBV_QP_DEST_QPN, NULL))                                                  \
	C(rtr(RTR_MASK, dest_25_bits))                                                             \
	C(rtr(RTR_MASK, dest_32_bits))                                                             \
	C(rtr(RTR_MASK, mtu_0))                                                                    \
	C(rtr(RTR_MASK, mtu_9))                                                                    \
	C(rtr(RTR_MASK, gid_255))                                                                  \
	C(rtr(RTR_MASK, av_port_0))                                                                \
	C(rtr(RTR_MASK, av_port_9))                                                                \
	C(rtr(RTR_MASK, no_gid))                                                                   \
	C(rtr(RTR_MASK, rd_255))                                                                   \
	C(rtr(RTR_MASK, rnr_255))                                                                  \
	C(rtr(RTR_MASK, psn_32_bits))                                                              \
	C(query(0))                                                                                \
	C(query(-1))                                                                               \
	C(ece(false))                                                                              \
	C(ece(true))                                                                               \
	C(post(fresh, IBV_WR_SEND, 0, 0, 0))                                                       \
	C(post(qp, IBV_WR_SEND, 0, -1, 0))                                                         \
	C(post(qp, IBV_WR_SEND, 0, 1000, 0))                                                       \
	C(post(qp, 99, 0, 1, 8))                                                                   \
	C(post(qp, IBV_WR_SEND, IBV_SEND_INLINE, 1, BYTES))                                        \
	C(post(qp, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 1, 4))                                            \
	C(post_list(true))                                                                         \
	C(overfill())                                                                              \
	C(receive(fresh, 0))                                                                       \
	C(receive(qp, -1))                                                                         \
	C(receive(qp, 1000))                                                                       \
	C(receive(with_srq, 0))                                                                    \
	C(post_list(false))                                                                        \
	C(overfill_recv())                                                                         \
	C(wr(0))                                                                                   \
	C(wr(1))                                                                                   \
	C(wr(2))                                                                                   \
	C(wr(3))                                                                                   \
	C(wr(4))                                                                                   \
	C(make_srq(0, 1, 0))                                                                       \
	C(make_srq(UINT32_MAX, 1, 0))                                                              \
	C(make_srq(4, 1000, 0))                                                                    \
	C(make_srq(4, 0, 0))                                                                       \
	C(make_srq(4, 1, 1000))                                                                    \
	C(make_srq_ex(IBV_SRQ_INIT_ATTR_PD, IBV_SRQT_BASIC))                                       \
	C(make_srq_ex(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC))                \
	C(make_srq_ex(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_TM))                 \
	C(make_srq_ex(1u << 31, IBV_SRQT_BASIC))                                                   \
	C(make_srq_ex(IBV_SRQ_INIT_ATTR_CQ, IBV_SRQT_BASIC))                                       \
	C(make_srq_ex(IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC))                                       \
	C(open_xrcd(false, 0, 0))                                                                  \
	C(open_xrcd(true, 0, -1))                                                                  \
	C(open_xrcd(true, 3, -1))                                                                  \
	C(open_xrcd(true, 3, 0))                                                                   \
	C(open_xrcd(true, UINT32_MAX, -1))                                                         \
	C(open_qp())                                                                               \
	C(make_qp_ex(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD))                                     \
	C(make_qp_ex(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_PD))                                       \
	C(make_qp_ex(IBV_QPT_XRC_SEND, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))     \
	C(limit(0, 1000, IBV_SRQ_LIMIT))                                                           \
	C(limit(0, 0, IBV_SRQ_MAX_WR))                                                             \
	C(limit(0, 0, 0))                                                                          \
	C(limit(0, 0, -1))                                                                         \
	C(srq_receive(-1))                                                                         \
	C(srq_receive(1000))                                                                       \
	C(srq_overfill())                                                                          \
	C(handle(0, true, 0))                                                                      \
	C(handle(9, true, 0))                                                                      \
	C(handle(1, true, 255))                                                                    \
	C(handle(1, false, 0))                                                                     \
	C(mcast(qp, 0xff, false))                                                                  \
	C(mcast(ud, 0xfe, false))                                                                  \
	C(mcast(ud, 0xff, true))                                                                   \
	C(window(0))                                                                               \
	C(window(99))                                                                              \
	C(number(ibv_dealloc_pd(pd)))                                                              \
	C(number(ibv_destroy_cq(cq)))                                                              \
	C(number(ibv_destroy_srq(srq)))                                                            \
	C(number(ibv_destroy_comp_channel(channel)))                                               \
	C(xrcd())                                                                                  \
	C(dm())                                                                                    \
	C(flow())                                                                                  \
	C(counters())                                                                              \
	C(parent(NULL, 0))                                                                         \
	C(parent(pd, 1u << 31))                                                                    \
	C(pointer(ibv_alloc_null_mr(pd)))                                                          \
	C(number(fcntl(ctx->cmd_fd, F_GETFD) < 0))                                                 \
	C(pointer(ibv_import_pd(ctx, 4711)))                                                       \
	C(pointer(ibv_import_mr(pd, 4711)))                                                        \
	C(pointer(ibv_import_dm(ctx, 4711)))                                                       \
	C(pointer(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0)))

#define C(call) {#call, __COUNTER__},
static const struct {
	const char *name;
	int number;
} cases[] = {CASES};
#undef C

static int run(int which)
{
	int n = 0;

#define C(call)                                                                                    \
	if (n++ == which)                                                                          \
		return call;
	CASES
#undef C
	return -1;
}

static void say(const char *name, int result)
{
	printf("%s -> %s\n", name,
	       !result                   ? "ok"
	       : result < 0              ? "unknown"
	       : strerrorname_np(result) ? strerrorname_np(result)
					 : "?");
	fflush(stdout);
}

/* The device is opened in the child: nothing is shared between cases. */
static void one(size_t i)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		set_up();
		say(cases[i].name, run((int)i));
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("%s -> signal %d\n", cases[i].name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		printf("%s -> setup %d\n", cases[i].name, WEXITSTATUS(status));
	fflush(stdout);
}

/* A send to itself arrives. */
static bool loops(void)
{
	struct ibv_wc wc;
	int n = 0, got = 0, rc = receive(qp, 1) || wr(0);

	for (int i = 0; i < 5000 && !rc && n < 1; i++, usleep(1000)) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0 || (got && wc.status))
			return false;
		n += got;
	}
	return n == 1;
}

/* Exit status: the number of the first thing that a child may do with its parent's objects. */
static int child_of_fork(void)
{
	struct ibv_qp_attr e = {.qp_state = IBV_QPS_ERR};

	const bool refused[] = {
		post(qp, IBV_WR_SEND, 0, 0, 0) != 0,
		receive(qp, 0) != 0,
		poll_n(4) != 0,
		ibv_modify_qp(qp, &e, IBV_QP_STATE) != 0,
		ibv_destroy_qp(qp) != 0,
		ibv_dereg_mr(mr) != 0,
		!ibv_reg_mr(pd, buffer, 64, 0),
		!ibv_alloc_pd(ctx),
		make_cq(16, 0) != 0,
		ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)) != 0,
		event() != 0,
		ibv_close_device(ctx) != 0,
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (!refused[i])
			return (int)i + 10;
	set_up();
	return loops() ? 0 : 9;
}

/* -f, under the shim: a child is refused what it has inherited, can use a device that it opens
 * itself, and its parent notices nothing. */
static int fork_main(void)
{
	int status;
	pid_t child;

	if (ibv_fork_init())
		return 1;
	set_up();
	child = fork();
	if (!child)
		_exit(child_of_fork());
	waitpid(child, &status, 0);
	printf("child %d, parent %s\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
	       loops() ? "works" : "is broken");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "-f"))
		return fork_main();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (argc < 2 || strstr(cases[i].name, argv[1]))
			one(i);
	return 0;
}
