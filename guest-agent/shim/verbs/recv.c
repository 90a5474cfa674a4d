/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The receives of a QP: logged and handed over like the sends in shim/verbs/post.c. */
#include "guest-agent/shim/verbs/post.h"

#include <errno.h>
#include <string.h>

static int log_recv(struct shim_queue *r, const struct ibv_recv_wr *wr)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
	struct shim_recv *e = &r->recv[r->head & r->mask];
	struct ibv_sge *sge = e->sge;

	if (r->head - tail >= r->cap)
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > r->max_sge)
		return EINVAL;
	e->wr_id = wr->wr_id;
	e->num_sge = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		sge[i] = wr->sg_list[i];
	return 0;
}

static int hand_over_recv(struct shim_qp *q, uint64_t number)
{
	struct shim_queue *r = &q->recv;
	const struct shim_recv *e = &r->recv[r->posted & r->mask];
	struct ibv_recv_wr *bad,
		wr = {.wr_id = TAG_RECV | number, .sg_list = r->translated, .num_sge = e->num_sge};

	queue_translate(r, e->sge, e->num_sge);
	return q->real->context->ops.post_recv(q->real, &wr, &bad);
}

void recv_flush(struct shim_qp *q)
{
	struct shim_queue *r = &q->recv;

	queue_leave_direct(r);
	while (q->real && !r->held && r->posted < r->head) {
		int rc = hand_over_recv(q, r->posted);

		if (rc)
			queue_fail_later(
				q, q->recv_cq,
				(struct ibv_wc){.wr_id = r->recv[r->posted & r->mask].wr_id,
						.opcode = IBV_WC_RECV},
				rc);
		r->posted++;
	}
}

static int recv_list(struct shim_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shim_queue *r = &q->recv;
	int rc = 0;

	queue_leave_direct(r);
	for (; wr; wr = wr->next) {
		rc = q->v.srq ? EINVAL : log_recv(r, wr);
		if (!rc && r->held && q->v.state == IBV_QPS_RESET)
			rc = EINVAL;
		if (!rc && !r->held)
			rc = hand_over_recv(q, r->head);
		if (rc)
			break;
		if (!r->held)
			r->posted++;
		r->head++;
	}
	r->direct = q->v.srq ? 0 : queue_direct_until(r, q);
	*bad = wr;
	return rc;
}

/* Gives the lock back. */
static __attribute__((noinline)) int post_recv_any(struct shim_queue *r, struct ibv_recv_wr *wr,
						   struct ibv_recv_wr **bad)
{
	struct ibv_recv_wr *first_bad;
	int rc = recv_list(container_of(r, struct shim_qp, recv), wr, &first_bad);

	lock_give(&r->lock);
	if (rc)
		*bad = first_bad;
	return rc;
}

static __attribute__((noinline)) int post_recv_wait(struct shim_queue *r, struct ibv_recv_wr *wr,
						    struct ibv_recv_wr **bad)
{
	lock_wait(&r->lock);
	return post_recv_any(r, wr, bad);
}

static inline bool is_plain_recv(const struct shim_queue *r, const struct ibv_recv_wr *wr)
{
	return r->head < r->direct && wr && !wr->next && wr->num_sge == 1;
}

/* The short way does what recv_list() does. */
static inline void log_plain_recv(struct shim_queue *r, const struct ibv_recv_wr *wr, uint32_t lkey)
{
	struct shim_recv *log = &r->recv[r->head & r->mask];
	const struct ibv_sge *from = wr->sg_list;
	struct sge_words sge;

	log->wr_id = wr->wr_id;
	log->num_sge = 1;
	memcpy(&sge, from, sizeof(sge));
	memcpy(log->sge, &sge, sizeof(sge));
	memcpy(&r->hw_sge, &sge, sizeof(sge));
	r->hw_sge.lkey = lkey;
	r->hw_recv.wr_id = TAG_RECV | r->head;
}

static inline int hand_over_plain(struct shim_queue *r, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad)
{
	struct shim_qp *q = container_of(r, struct shim_qp, recv);
	int rc;

	r->plain_recv = wr;
	r->plain_bad_recv = bad;
	rc = q->real->context->ops.post_recv(q->real, &r->hw_recv, bad);
	if (unlikely(rc)) {
		*r->plain_bad_recv = r->plain_recv;
		return lock_give_return(&r->lock, rc);
	}
	r->head++;
	return lock_give_return(&r->lock, 0);
}

static __attribute__((noinline)) int post_other_key(struct shim_queue *r, struct ibv_recv_wr *wr,
						    struct ibv_recv_wr **bad)
{
	log_plain_recv(r, wr, local_key(r, wr->sg_list->lkey));
	return hand_over_plain(r, wr, bad);
}

int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shim_queue *r = shortest_base(&to_qp(ibqp)->recv);
	uint64_t key;

	if (unlikely(lock_missed(&r->lock)))
		return post_recv_wait(r, wr, bad);
	if (unlikely(!is_plain_recv(r, wr)))
		return post_recv_any(r, wr, bad);
	key = last_key(r);
	if (unlikely((uint32_t)(key >> 32) != wr->sg_list->lkey))
		return post_other_key(r, wr, bad);
	log_plain_recv(r, wr, (uint32_t)key);
	return hand_over_plain(r, wr, bad);
}
