/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibv_create_qp_ex and the posts of ibv_wr_*: they only build ibv_send_wr structs, and
 * ibv_wr_complete posts these in the one way that there is (shim/verbs/post.c), all or none. */
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"

#include <errno.h>
#include <string.h>

#define MASK_COVERED                                                                               \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |             \
	 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
#define SEND_OPS_COVERED                                                                           \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                 \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                 \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)

static void fail(struct shim_builder *b, int error)
{
	if (!b->error)
		b->error = error;
}

/* The next work request. NULL once something was wrong: ibv_wr_complete says so. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint64_t op)
{
	struct shim_qp *q = to_qp(&qp->qp_base);
	struct shim_builder *b = q->builder;
	struct ibv_send_wr *wr;

	if (!(q->ex.send_ops & op))
		fail(b, EOPNOTSUPP);
	else if (b->count == q->send.cap)
		fail(b, ENOMEM);
	if (b->error)
		return NULL;
	wr = &b->wr[b->count];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = qp->wr_id;
	wr->send_flags = qp->wr_flags & ~(unsigned)IBV_SEND_INLINE;
	wr->opcode = opcode;
	wr->sg_list = b->sge + (size_t)b->count * q->send.max_sge;
	if (b->count++)
		wr[-1].next = wr;
	return wr;
}

/* The request that the setters change; NULL after an error and before the first request. */
static struct ibv_send_wr *current(struct shim_builder *b)
{
	if (!b->count)
		fail(b, EINVAL);
	return b->error ? NULL : &b->wr[b->count - 1];
}

static void wr_rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint64_t op, uint32_t rkey,
		    uint64_t remote_addr, __be32 imm)
{
	struct ibv_send_wr *wr = begin(qp, opcode, op);

	if (!wr)
		return;
	wr->wr.rdma.remote_addr = remote_addr;
	wr->wr.rdma.rkey = rkey;
	wr->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(qp, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(qp, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	wr_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey,
		remote_addr, imm);
}

static void wr_atomic(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint64_t op, uint32_t rkey,
		      uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(qp, opcode, op);

	if (!wr)
		return;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	wr_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey,
		  remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	wr_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey,
		  remote_addr, add, 0);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin(qp, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = current(to_qp(&qp->qp_base)->builder);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t remote_srqn)
{
	struct ibv_send_wr *wr = current(to_qp(&qp->qp_base)->builder);

	if (wr)
		wr->qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list)
{
	struct shim_qp *q = to_qp(&qp->qp_base);
	struct ibv_send_wr *wr = current(q->builder);

	if (!wr)
		return;
	if (n > q->send.max_sge) {
		fail(q->builder, EINVAL);
		return;
	}
	if (n)
		memcpy(wr->sg_list, list, n * sizeof(*list));
	wr->num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	wr_set_sge_list(qp, 1, &(struct ibv_sge){.addr = addr, .length = length, .lkey = lkey});
}

/* Copied now: the program may use its buffers again before ibv_wr_complete. */
static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list)
{
	struct shim_qp *q = to_qp(&qp->qp_base);
	struct shim_builder *b = q->builder;
	struct ibv_send_wr *wr = current(b);
	size_t bytes = 0;
	char *to;

	if (!wr)
		return;
	to = b->inline_data + (size_t)(b->count - 1) * q->send.max_inline;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > q->send.max_inline - bytes) {
			fail(b, EINVAL);
			return;
		}
		if (list[i].length)
			memcpy(to + bytes, list[i].addr, list[i].length);
		bytes += list[i].length;
	}
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)bytes};
	wr->num_sge = bytes > 0;
	wr->send_flags |= bytes ? (unsigned)IBV_SEND_INLINE : 0;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	wr_set_inline_data_list(qp, 1, &(struct ibv_data_buf){.addr = addr, .length = length});
}

static void wr_start(struct ibv_qp_ex *qp)
{
	struct shim_builder *b = to_qp(&qp->qp_base)->builder;

	pthread_mutex_lock(&b->lock);
	b->error = 0;
	b->count = 0;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct shim_qp *q = to_qp(&qp->qp_base);
	struct shim_builder *b = q->builder;
	int rc = b->error;

	if (!rc && b->count)
		rc = send_post_all(q, b->wr, b->count);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	pthread_mutex_unlock(&to_qp(&qp->qp_base)->builder->lock);
}

void builder_free(struct shim_builder *b)
{
	if (!b)
		return;
	free(b->wr);
	free(b->sge);
	free(b->inline_data);
	free(b);
}

int builder_init(struct shim_qp *q)
{
	const struct shim_queue *s = &q->send;
	struct shim_builder *b = calloc(1, sizeof(*b));
	size_t n = s->cap ? s->cap : 1;

	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	b->wr = calloc(n, sizeof(*b->wr));
	b->sge = calloc(n * s->max_sge, sizeof(*b->sge));
	b->inline_data = malloc(n * s->max_inline + 1);
	if (!b->wr || !b->sge || !b->inline_data) {
		builder_free(b);
		return -ENOMEM;
	}
	q->builder = b;
	return 0;
}

static void set_ops(struct ibv_qp_ex *x)
{
	x->comp_mask = 0;
	x->wr_start = wr_start;
	x->wr_complete = wr_complete;
	x->wr_abort = wr_abort;
	x->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	x->wr_atomic_fetch_add = wr_atomic_fetch_add;
	x->wr_bind_mw = wr_bind_mw;
	x->wr_local_inv = wr_local_inv;
	x->wr_rdma_read = wr_rdma_read;
	x->wr_rdma_write = wr_rdma_write;
	x->wr_rdma_write_imm = wr_rdma_write_imm;
	x->wr_send = wr_send;
	x->wr_send_imm = wr_send_imm;
	x->wr_send_inv = wr_send_inv;
	x->wr_set_ud_addr = wr_set_ud_addr;
	x->wr_set_xrc_srqn = wr_set_xrc_srqn;
	x->wr_set_inline_data = wr_set_inline_data;
	x->wr_set_inline_data_list = wr_set_inline_data_list;
	x->wr_set_sge = wr_set_sge;
	x->wr_set_sge_list = wr_set_sge_list;
}

/* Notes the wishes beyond those of ibv_create_qp(). The target of an XRC connection belongs to a
 * domain, every other QP to a PD; libibverbs does not look at anything more that is named. 0 or
 * errno. */
static int read_init(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *init,
		     struct shim_qp_ex *ex)
{
	const uint32_t pd = IBV_QP_INIT_ATTR_PD, xrcd = IBV_QP_INIT_ATTR_XRCD;
	uint32_t mask = init->comp_mask;
	bool target = init->qp_type == IBV_QPT_XRC_RECV;

	*ex = (struct shim_qp_ex){
		.mask = mask & ~(target ? pd : xrcd),
		.create_flags = mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? init->create_flags : 0,
		.send_ops = mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? init->send_ops_flags : 0,
		.xrcd = target && mask & xrcd ? init->xrcd : NULL};
	if (mask & ~(uint32_t)MASK_COVERED || ex->send_ops & ~(uint64_t)SEND_OPS_COVERED)
		return EOPNOTSUPP;
	if (target)
		return ex->xrcd && ex->xrcd->context == context ? 0 : EINVAL;
	return mask & pd && init->pd && init->pd->context == context ? 0 : EINVAL;
}

struct ibv_qp *shim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp_init_attr plain = {.qp_context = init->qp_context,
					 .send_cq = init->send_cq,
					 .recv_cq = init->recv_cq,
					 .srq = init->srq,
					 .cap = init->cap,
					 .qp_type = init->qp_type,
					 .sq_sig_all = init->sq_sig_all};
	struct shim_qp_ex ex;
	struct ibv_qp *qp;
	int rc = read_init(context, init, &ex);

	if (rc) {
		errno = rc;
		return NULL;
	}
	if (ex.xrcd)
		plain.send_cq = plain.recv_cq = NULL;
	qp = qp_create(context, ex.xrcd ? NULL : init->pd, &plain, &ex);
	if (!qp)
		return NULL;
	init->cap = plain.cap;
	if (to_qp(qp)->builder)
		set_ops(&to_qp(qp)->vex);
	return qp;
}
