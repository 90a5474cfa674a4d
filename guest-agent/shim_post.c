/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data path of a QP: every work request is logged, then handed to the hardware with the
 * hardware's keys; its completion retires it. While a migration runs it is only logged. */
#include "guest-agent/shim.h"

#include <errno.h>
#include <string.h>

static uint32_t round_up(uint32_t n)
{
	uint32_t r = 16;

	while (r < n)
		r *= 2;
	return r;
}

int queue_init(struct shim_queue *q, uint32_t cap, uint32_t max_sge, uint32_t max_inline, bool send)
{
	uint32_t n = round_up(cap);

	q->cap = cap;
	q->mask = n - 1;
	q->max_sge = max_sge ? max_sge : 1;
	q->max_inline = max_inline;
	q->sge = calloc((size_t)n * q->max_sge, sizeof(*q->sge));
	q->translated = calloc(q->max_sge, sizeof(*q->translated));
	q->inline_data = max_inline ? malloc((size_t)n * max_inline) : NULL;
	if (send)
		q->send = calloc(n, sizeof(*q->send));
	else
		q->recv = calloc(n, sizeof(*q->recv));
	return q->sge && q->translated && (send ? (void *)q->send : (void *)q->recv) &&
			       (!max_inline || q->inline_data)
		       ? 0
		       : -ENOMEM;
}

void queue_free(struct shim_queue *q)
{
	free(q->sge);
	free(q->translated);
	free(q->inline_data);
	free(q->send);
}

void queue_reset(struct shim_queue *q)
{
	lock_take(&q->lock);
	q->head = q->posted = 0;
	atomic_store(&q->tail, 0);
	lock_give(&q->lock);
}

static bool consumes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool send_signalled(const struct shim_qp *q, uint64_t number)
{
	return q->init.sq_sig_all ||
	       q->send.send[number & q->send.mask].wr.send_flags & IBV_SEND_SIGNALED;
}

/* The program may use its buffer again at once, so inline data is copied now. */
static int copy_inline(struct shim_queue *s, uint64_t number, const struct ibv_send_wr *wr,
		       struct ibv_sge *ret_sge)
{
	char *to = s->inline_data + (number & s->mask) * s->max_inline;
	size_t n = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		if (n + wr->sg_list[i].length > s->max_inline)
			return EINVAL;
		memcpy(to + n, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		n += wr->sg_list[i].length;
	}
	*ret_sge = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)n};
	return 0;
}

static int log_send(struct shim_qp *q, const struct ibv_send_wr *wr)
{
	struct shim_queue *s = &q->send;
	uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire);
	struct shim_send *e = &s->send[s->head & s->mask];
	struct ibv_sge *sge = s->sge + (s->head & s->mask) * s->max_sge;
	int rc = 0;

	if (s->head - tail >= s->cap)
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > s->max_sge)
		return EINVAL;
	e->wr = *wr;
	e->wr.next = NULL;
	e->wr.sg_list = sge;
	if (wr->send_flags & IBV_SEND_INLINE && wr->num_sge) {
		rc = copy_inline(s, s->head, wr, sge);
		e->wr.num_sge = 1;
	} else {
		for (int i = 0; i < wr->num_sge; i++)
			sge[i] = wr->sg_list[i];
	}
	e->messages = q->messages + consumes_receive(wr->opcode);
	return rc;
}

static void translate_sges(struct shim_queue *s, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		s->translated[i] = sge[i];
		if (!key_get(&shim.keys, sge[i].lkey, &s->translated[i].lkey))
			s->translated[i].lkey = KEY_NONE;
	}
}

/* Where the peer has no shim, its keys are what they are. false: not known yet. */
static bool remote_key(const struct shim_qp *q, uint32_t *key)
{
	return !q->peer || key_get(&q->peer->keys, *key, key);
}

static bool translate_remote(const struct shim_qp *q, struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return remote_key(q, &wr->wr.rdma.rkey);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return remote_key(q, &wr->wr.atomic.rkey);
	case IBV_WR_SEND_WITH_INV:
		return remote_key(q, &wr->invalidate_rkey);
	default:
		return true;
	}
}

static uint32_t wanted_key(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return wr->wr.atomic.rkey;
	case IBV_WR_SEND_WITH_INV:
		return wr->invalidate_rkey;
	default:
		return wr->wr.rdma.rkey;
	}
}

/* 0, EAGAIN while a key of the peer is not known, or the error of the real post. */
static int hand_over_send(struct shim_qp *q, uint64_t number)
{
	struct shim_queue *s = &q->send;
	struct shim_send *e = &s->send[number & s->mask];
	struct ibv_send_wr wr = e->wr, *bad;

	wr.wr_id = TAG_SEND | number;
	if (!translate_remote(q, &wr)) {
		if (q->key_wanted != wanted_key(&e->wr)) {
			q->key_wanted = wanted_key(&e->wr);
			peer_want_key(q, q->key_wanted);
		}
		return EAGAIN;
	}
	if (!(wr.send_flags & IBV_SEND_INLINE)) {
		translate_sges(s, wr.sg_list, wr.num_sge);
		wr.sg_list = s->translated;
	}
	return q->real->context->ops.post_send(q->real, &wr, &bad);
}

/* An error that comes after the post has been taken can only be told by a completion. */
static void fail_later(struct shim_qp *q, struct shim_cq *cq, struct ibv_wc wc, int rc)
{
	shim_log(
		"QP 0x%x: a post that was put off during a migration fails: error %d, wr_id 0x%llx",
		q->v.qp_num, rc, (unsigned long long)wc.wr_id);
	wc.qp_num = q->v.qp_num;
	wc.status = IBV_WC_LOC_QP_OP_ERR;
	cq_push(cq, &wc);
}

void send_flush(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	int rc = 0;

	while (q->real && !s->hold && s->posted < s->head && rc != EAGAIN) {
		rc = hand_over_send(q, s->posted);
		if (rc == EAGAIN)
			return;
		if (rc)
			fail_later(q, q->send_cq,
				   (struct ibv_wc){.wr_id = s->send[s->posted & s->mask].wr.wr_id},
				   rc);
		s->posted++;
	}
}

/* Under the queue's lock. *bad is the first that was not taken. */
static int post_list(struct shim_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct shim_queue *s = &q->send;
	int rc = 0;

	for (; wr; wr = wr->next) {
		bool wait = s->hold || s->posted != s->head;

		if (wait && q->v.state < IBV_QPS_RTS)
			rc = EINVAL;
		else
			rc = log_send(q, wr);
		if (rc)
			break;
		if (!wait) {
			rc = hand_over_send(q, s->head);
			if (rc && rc != EAGAIN)
				break;
			s->posted += !rc;
			rc = 0;
		}
		q->messages = s->send[s->head & s->mask].messages;
		s->head++;
	}
	*bad = wr;
	return rc;
}

int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct shim_qp *q = to_qp(ibqp);
	struct ibv_send_wr *first_bad;
	int rc;

	lock_take(&q->send.lock);
	rc = post_list(q, wr, &first_bad);
	lock_give(&q->send.lock);
	if (rc)
		*bad = first_bad;
	return rc;
}

int send_post_all(struct shim_qp *q, struct ibv_send_wr *wr, uint32_t n)
{
	struct shim_queue *s = &q->send;
	struct ibv_send_wr *bad = wr, *failed;
	int rc = ENOMEM;

	lock_take(&s->lock);
	if (s->head - atomic_load_explicit(&s->tail, memory_order_acquire) + n <= s->cap)
		rc = post_list(q, wr, &bad);
	lock_give(&s->lock);
	if (!rc || bad == wr)
		return rc;
	/* Some are with the hardware: the caller cannot be told that none is. */
	for (failed = bad; failed; failed = failed->next)
		fail_later(q, q->send_cq, (struct ibv_wc){.wr_id = failed->wr_id}, rc);
	return 0;
}

/* A zero-byte RDMA WRITE needs no key (IBA 1.4, 9.7.4.2: R_Key is not checked for length 0). */
int send_post_marker(struct shim_qp *q)
{
	struct ibv_send_wr *bad, wr = {.wr_id = TAG_MARKER,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	int rc;

	lock_take(&q->send.lock);
	q->marker_at = q->send.posted;
	q->marker = true;
	rc = q->real->context->ops.post_send(q->real, &wr, &bad);
	if (rc)
		q->marker = false;
	lock_give(&q->send.lock);
	return rc;
}

static int log_recv(struct shim_queue *r, const struct ibv_recv_wr *wr)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
	struct shim_recv *e = &r->recv[r->head & r->mask];
	struct ibv_sge *sge = r->sge + (r->head & r->mask) * r->max_sge;

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
	const struct shim_recv *e = &r->recv[number & r->mask];
	struct ibv_recv_wr *bad,
		wr = {.wr_id = TAG_RECV | number, .sg_list = r->translated, .num_sge = e->num_sge};

	translate_sges(r, r->sge + (number & r->mask) * r->max_sge, e->num_sge);
	return q->real->context->ops.post_recv(q->real, &wr, &bad);
}

void recv_flush(struct shim_qp *q)
{
	struct shim_queue *r = &q->recv;

	while (q->real && !r->hold && r->posted < r->head) {
		int rc = hand_over_recv(q, r->posted);

		if (rc)
			fail_later(q, q->recv_cq,
				   (struct ibv_wc){.wr_id = r->recv[r->posted & r->mask].wr_id,
						   .opcode = IBV_WC_RECV},
				   rc);
		r->posted++;
	}
}

int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shim_qp *q = to_qp(ibqp);
	struct shim_queue *r = &q->recv;
	int rc = 0;

	lock_take(&r->lock);
	for (; wr; wr = wr->next) {
		rc = ibqp->srq ? EINVAL : log_recv(r, wr);
		if (!rc && r->hold && ibqp->state == IBV_QPS_RESET)
			rc = EINVAL;
		if (!rc && !r->hold)
			rc = hand_over_recv(q, r->head);
		if (rc)
			break;
		r->posted += !r->hold;
		r->head++;
	}
	lock_give(&r->lock);
	if (rc)
		*bad = wr;
	return rc;
}
