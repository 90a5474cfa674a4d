/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared receive queues and XRC of the played device. A domain may have the name of a file; who has
 * it elsewhere is played, too. */
#include "tests/fake/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAKE_SRQS  64
#define FAKE_XRCDS 16

struct fake_xrcd {
	struct ibv_xrcd v;
	bool named;
	dev_t device;
	ino_t inode;
	unsigned users; /* QPs and shared receive queues */
};

static struct fake_srq *srqs[FAKE_SRQS];
static struct fake_xrcd *xrcds[FAKE_XRCDS];
static struct stat elsewhere; /* the file of a domain that another process has */
static uint32_t first_srqn = 1;

void fake_srqns_from(uint32_t number)
{
	fake_lock();
	first_srqn = number;
	fake_unlock();
}

int fake_open_elsewhere(int fd)
{
	return fd < 0 ? (elsewhere = (struct stat){0}, 0) : fstat(fd, &elsewhere);
}

static atomic_uint slow_us;

void fake_slow_xrcd(unsigned us)
{
	slow_us = us;
}

struct fake_srq *fake_srq_by_number(uint32_t number)
{
	for (unsigned i = 0; i < FAKE_SRQS; i++)
		if (srqs[i] && srqs[i]->xrcd && srqs[i]->number == number)
			return srqs[i];
	return NULL;
}

void fake_use_xrcd(struct ibv_xrcd *xrcd, int change)
{
	if (xrcd)
		((struct fake_xrcd *)xrcd)->users += (unsigned)change;
}

/* As ib_uverbs_open_xrcd() of Linux. 0 or errno. */
static int xrcd_error(const struct ibv_xrcd_init_attr *init, struct stat *file)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	bool there;

	if (init->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if (init->comp_mask != both)
		return EINVAL;
	if (init->fd == -1)
		return 0;
	if (fstat(init->fd, file))
		return EBADF;
	there = elsewhere.st_ino == file->st_ino && elsewhere.st_dev == file->st_dev;
	for (unsigned i = 0; i < FAKE_XRCDS; i++)
		there |= xrcds[i] && xrcds[i]->named && xrcds[i]->inode == file->st_ino &&
			 xrcds[i]->device == file->st_dev;
	if (!there && !(init->oflags & O_CREAT))
		return EAGAIN;
	return there && init->oflags & O_EXCL ? EINVAL : 0;
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *init)
{
	struct fake_xrcd *x = calloc(1, sizeof(*x));
	struct stat file = {0};
	unsigned i = 0;
	int rc;

	fake_lock();
	rc = x ? xrcd_error(init, &file) : ENOMEM;
	while (i < FAKE_XRCDS && xrcds[i])
		i++;
	if (!rc && i == FAKE_XRCDS)
		rc = ENOMEM;
	if (!rc) {
		x->v.context = c;
		x->named = init->fd != -1;
		x->device = file.st_dev;
		x->inode = file.st_ino;
		xrcds[i] = x;
	}
	fake_unlock();
	usleep(slow_us);
	if (!rc)
		return &x->v;
	free(x);
	errno = rc;
	return NULL;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct fake_xrcd *x = (struct fake_xrcd *)xrcd;
	bool used;

	fake_lock();
	used = x->users;
	for (unsigned i = 0; i < FAKE_XRCDS && !used; i++)
		if (xrcds[i] == x)
			xrcds[i] = NULL;
	fake_unlock();
	if (used)
		return EBUSY;
	usleep(slow_us);
	free(x);
	return 0;
}

static struct ibv_srq *make_srq(struct ibv_pd *pd, void *context, struct ibv_xrcd *xrcd,
				struct ibv_cq *cq)
{
	struct fake_srq *s = calloc(1, sizeof(*s));
	unsigned i = 0;

	if (!s)
		return NULL;
	s->v.context = pd->context;
	s->v.srq_context = context;
	s->v.pd = pd;
	s->xrcd = xrcd;
	s->cq = (struct fake_cq *)cq;
	fake_lock();
	for (s->number = first_srqn; fake_srq_by_number(s->number);)
		s->number++;
	while (i < FAKE_SRQS && srqs[i])
		i++;
	if (i < FAKE_SRQS) {
		srqs[i] = s;
		fake_newest.srq = &s->v;
		fake_use_xrcd(xrcd, 1);
	}
	fake_unlock();
	if (i < FAKE_SRQS)
		return &s->v;
	free(s);
	errno = ENOMEM;
	return NULL;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return make_srq(pd, init->srq_context, NULL, NULL);
}

static struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *init)
{
	(void)c;
	return make_srq(init->pd, init->srq_context, init->xrcd, init->cq);
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	*number = ((struct fake_srq *)srq)->number;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq;
	(void)attr;
	(void)mask;
	return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq;
	*attr = (struct ibv_srq_attr){.max_wr = FAKE_RING, .max_sge = 1};
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct fake_srq *s = (struct fake_srq *)srq;

	fake_lock();
	for (unsigned i = 0; i < FAKE_SRQS; i++)
		if (srqs[i] == s)
			srqs[i] = NULL;
	fake_use_xrcd(s->xrcd, -1);
	fake_unlock();
	free(s);
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_srq *s = (struct fake_srq *)srq;
	int rc = 0;

	fake_lock();
	for (; wr && !rc; wr = rc ? wr : wr->next) {
		if (s->head - s->tail == FAKE_RING || wr->num_sge != 1) {
			*bad = wr;
			rc = EINVAL;
			continue;
		}
		s->recv[s->head++ & (FAKE_RING - 1)] = (struct fake_recv){wr->wr_id,
									  wr->sg_list[0]};
	}
	fake_unlock();
	fake_wire_kick();
	return rc;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp_init_attr plain = {.qp_context = init->qp_context,
					 .send_cq = init->send_cq,
					 .recv_cq = init->recv_cq,
					 .srq = init->srq,
					 .cap = init->cap,
					 .qp_type = init->qp_type,
					 .sq_sig_all = init->sq_sig_all};
	bool target = init->qp_type == IBV_QPT_XRC_RECV;

	if (!(init->comp_mask & (target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD))) {
		errno = EINVAL;
		return NULL;
	}
	return fake_create_qp(c, target ? NULL : init->pd, &plain, target ? init->xrcd : NULL);
}

/* The attributes that Linux' transitions want (qp_state_table of ib_core), and those that they do
 * not take. */
bool fake_xrc_mask_ok(enum ibv_qp_type type, const struct ibv_qp_attr *attr, int mask)
{
	const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	const int responds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int initiates = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	bool target = type == IBV_QPT_XRC_RECV;
	int want = IBV_QP_STATE;

	if (!(mask & IBV_QP_STATE) || (type != IBV_QPT_XRC_SEND && !target))
		return true;
	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		want |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		want |= path | (target ? responds : 0);
		break;
	case IBV_QPS_RTS:
		want |= IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | (target ? 0 : initiates);
		break;
	default:
		break;
	}
	return mask == want;
}

void fake_xrc_set_ops(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
	v->create_srq_ex = create_srq_ex;
	v->get_srq_num = get_srq_num;
	v->create_qp_ex = create_qp_ex;
	v->context.ops.post_srq_recv = post_srq_recv;
}
