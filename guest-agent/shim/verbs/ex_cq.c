/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Extended CQs: ibv_start_poll takes one completion at a time from shim_poll_cq, which is the only
 * way to the hardware's CQ, and ibv_wc_read_* reads it. What struct ibv_wc does not hold
 * (timestamps, VLAN, tags) cannot be served: a completion may come from before a migration. */
#include "guest-agent/shim/verbs/cq.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define to_cq_ex(p) container_of(p, struct shim_cq, vex)

static int take_one(struct shim_cq *cq)
{
	int n;

	if (shim_inherited(cq->ctx))
		return EBADF;
	n = shim_poll_cq(&cq->v, 1, &cq->now);
	if (n != 1)
		return n ? EIO : ENOENT;
	cq->vex.wr_id = cq->now.wr_id;
	cq->vex.status = cq->now.status;
	return 0;
}

/* Keeps the lock where it finds one, until end_poll. */
static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr)
{
	struct shim_cq *cq = to_cq_ex(x);
	int rc;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->poll_lock);
	rc = take_one(cq);
	if (rc)
		pthread_mutex_unlock(&cq->poll_lock);
	return rc;
}

static int next_poll(struct ibv_cq_ex *x)
{
	return take_one(to_cq_ex(x));
}

static void end_poll(struct ibv_cq_ex *x)
{
	pthread_mutex_unlock(&to_cq_ex(x)->poll_lock);
}

#define READ(type, name, field)                                                                    \
	static type read_##name(struct ibv_cq_ex *x)                                               \
	{                                                                                          \
		return to_cq_ex(x)->now.field;                                                     \
	}
READ(enum ibv_wc_opcode, opcode, opcode)
READ(uint32_t, vendor_err, vendor_err)
READ(uint32_t, byte_len, byte_len)
READ(__be32, imm_data, imm_data)
READ(uint32_t, qp_num, qp_num)
READ(uint32_t, src_qp, src_qp)
READ(unsigned int, wc_flags, wc_flags)
READ(uint32_t, slid, slid)
READ(uint8_t, sl, sl)
READ(uint8_t, dlid_path_bits, dlid_path_bits)
#undef READ

static void set_ops(struct ibv_cq_ex *x)
{
	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = read_vendor_err;
	x->read_byte_len = read_byte_len;
	x->read_imm_data = read_imm_data;
	x->read_qp_num = read_qp_num;
	x->read_src_qp = read_src_qp;
	x->read_wc_flags = read_wc_flags;
	x->read_slid = read_slid;
	x->read_sl = read_sl;
	x->read_dlid_path_bits = read_dlid_path_bits;
}

static int init_error(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *init)
{
	uint32_t flags = init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? init->flags : 0;

	if (init->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS ||
	    init->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return EOPNOTSUPP;
	if (init->cqe > INT_MAX || init->comp_vector > INT_MAX)
		return EINVAL;
	if (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	    (!init->parent_domain || init->parent_domain->context != context))
		return EINVAL;
	return 0;
}

struct ibv_cq_ex *shim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init)
{
	struct ibv_cq *cq;
	int rc = init_error(context, init);

	if (rc) {
		errno = rc;
		return NULL;
	}
	cq = cq_create(context, (int)init->cqe, init->cq_context, init->channel,
		       (int)init->comp_vector);
	if (!cq)
		return NULL;
	pthread_mutex_init(&to_cq(cq)->poll_lock, NULL);
	set_ops(&to_cq(cq)->vex);
	return &to_cq(cq)->vex;
}
