/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data path of a QP: every work request is logged, then handed to the hardware with the
 * hardware's keys; its completion retires it. While a migration runs it is only logged. */
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static _Atomic(uint64_t) no_key; /* an entry of no table */

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
	q->lkey = &no_key;
	if (send)
		q->send = calloc(n, sizeof(*q->send));
	else
		q->recv = calloc(n, sizeof(*q->recv));
	if (!q->sge || !q->translated || (max_inline && !q->inline_data) ||
	    (send ? !q->send : !q->recv))
		return -ENOMEM;
	if (send) {
		q->hw_send.sg_list = &q->hw_sge;
	} else {
		q->hw_recv.sg_list = &q->hw_sge;
		q->hw_recv.num_sge = 1;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (send)
			q->send[i].wr.sg_list = q->sge + (size_t)i * q->max_sge;
		else
			q->recv[i].sge = q->sge + (size_t)i * q->max_sge;
	}
	return 0;
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
	q->head = q->posted = q->direct = 0;
	atomic_store(&q->tail, 0);
	lock_give(&q->lock);
}

void queue_leave_direct(struct shim_queue *q)
{
	if (q->direct)
		q->posted = q->head;
	q->direct = 0;
}

void queue_hold(struct shim_queue *q, bool on)
{
	q->held = on;
	queue_leave_direct(q); /* until the next post finds out */
}

uint64_t queue_direct_until(const struct shim_queue *q, const struct shim_qp *qp)
{
	/* Without a hold there is a real QP, and it stays. */
	if (q->held || q->posted != q->head ||
	    (qp->v.qp_type != IBV_QPT_RC && qp->v.qp_type != IBV_QPT_UC))
		return 0;
	return atomic_load_explicit(&q->tail, memory_order_acquire) + q->cap;
}

static bool consumes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool send_takes_receive(const struct shim_qp *q, uint64_t number)
{
	return consumes_receive(q->send.send[number & q->send.mask].wr.opcode);
}

bool send_signalled(const struct shim_qp *q, uint64_t number)
{
	const struct ibv_send_wr *wr = &q->send.send[number & q->send.mask].wr;

	return wr->opcode != SEND_REFUSED &&
	       (q->init.sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED);
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
	struct ibv_sge *sge = e->wr.sg_list;
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
	return rc;
}

uint32_t queue_other_key(struct shim_queue *q, uint32_t vkey)
{
	uint64_t e;

	q->lkey = table_entry(&shim.keys, vkey >> 8);
	if (!q->lkey)
		q->lkey = &no_key;
	e = atomic_load_explicit(q->lkey, memory_order_acquire);
	return e >> 32 == vkey ? (uint32_t)e : KEY_NONE;
}

void queue_translate(struct shim_queue *s, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		s->translated[i] = sge[i];
		s->translated[i].lkey = local_key(s, sge[i].lkey);
	}
}

/* A peer without a shim has keys that are what they are. KEY_NONE is nobody's, and a post with it
 * has no bytes (UCX ends a flush so), or an error. false: not known yet. */
static bool remote_key(const struct shim_qp *q, uint32_t *key)
{
	return !q->peer || key_get(&q->peer->keys, *key, key) || *key == KEY_NONE;
}

/* The key that a request names, or NULL. */
static uint32_t *key_of(struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return &wr->wr.rdma.rkey;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return &wr->wr.atomic.rkey;
	case IBV_WR_SEND_WITH_INV:
		return &wr->invalidate_rkey;
	default:
		return NULL;
	}
}

/* Every XRC request names a queue of the peer; a request without a receive needs the queue's PD. */
static bool remote_srqn(const struct shim_qp *q, uint32_t *srqn)
{
	struct shim_table *t;
	uint64_t e;

	if (!q->peer || *srqn >= SRQN_NONE)
		return true;
	t = atomic_load_explicit(&q->peer->srqns, memory_order_acquire);
	e = t ? table_get(t, *srqn) : 0;
	if (e)
		*srqn = (uint32_t)e;
	return e != 0;
}

/* false, for translate_remote(). */
static bool wait_for(struct shim_qp *q, uint16_t type, uint32_t number)
{
	if (q->wanted.type == type && q->wanted.number == number)
		return false;
	q->wanted.type = type;
	q->wanted.number = number;
	peer_want(q);
	return false;
}

/* false: a number of the peer is not known yet, and has been asked for. */
static bool translate_remote(struct shim_qp *q, struct ibv_send_wr *wr)
{
	uint32_t *key = key_of(wr), *srqn = &wr->qp_type.xrc.remote_srqn;

	if (key && !remote_key(q, key))
		return wait_for(q, PEER_KEY_GET, *key);
	if (q->v.qp_type == IBV_QPT_XRC_SEND && !remote_srqn(q, srqn))
		return wait_for(q, PEER_SRQ_GET, *srqn);
	return true;
}

/* 0, EAGAIN while a number of the peer is not known, or the error of the real post. */
static int hand_over_send(struct shim_qp *q, uint64_t number)
{
	struct shim_queue *s = &q->send;
	struct shim_send *e = &s->send[number & s->mask];
	struct ibv_send_wr wr = e->wr, *bad;

	wr.wr_id = TAG_SEND | number;
	if (unlikely(wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV))
		return mw_hand_over(q, number, &wr);
	if (unlikely(wr.opcode == SEND_REFUSED))
		return 0;
	if (q->ud && !ud_translate(q, &wr))
		return EAGAIN;
	if (!translate_remote(q, &wr))
		return EAGAIN;
	if (!(wr.send_flags & IBV_SEND_INLINE)) {
		queue_translate(s, wr.sg_list, wr.num_sge);
		wr.sg_list = s->translated;
	}
	return q->real->context->ops.post_send(q->real, &wr, &bad);
}

void queue_fail_later(struct shim_qp *q, struct shim_cq *cq, struct ibv_wc wc, int rc)
{
	shim_log(
		"QP 0x%x: a post that was put off during a migration fails: error %d, wr_id 0x%llx",
		q->v.qp_num, rc, (unsigned long long)wc.wr_id);
	wc.qp_num = q->v.qp_num;
	wc.status = IBV_WC_LOC_QP_OP_ERR;
	cq_push(cq, &wc);
}

/* A post that was put off is refused. Its place is free when all before it has ended, at the latest
 * by a marker. */
static void refused(struct shim_qp *q, uint64_t number, int rc)
{
	struct shim_queue *s = &q->send;
	struct ibv_send_wr *wr = &s->send[number & s->mask].wr;

	queue_fail_later(q, q->send_cq, (struct ibv_wc){.wr_id = wr->wr_id}, rc);
	q->others += consumes_receive(wr->opcode);
	wr->opcode = SEND_REFUSED;
	lock_take(&q->send_cq->lock);
	if (atomic_load(&s->tail) == number)
		atomic_store(&s->tail, number + 1);
	lock_give(&q->send_cq->lock);
}

void send_flush(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	int rc = 0;

	queue_leave_direct(s);
	while (q->real && !s->held && s->posted < s->head && rc != EAGAIN) {
		rc = hand_over_send(q, s->posted);
		if (rc == EAGAIN)
			return;
		if (rc)
			refused(q, s->posted, rc);
		s->posted++;
	}
}

/* Under the queue's lock. *bad is the first that was not taken. */
static int post_list(struct shim_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct shim_queue *s = &q->send;
	int rc = 0;

	queue_leave_direct(s);
	for (; wr; wr = wr->next) {
		bool wait = s->held || s->posted != s->head;

		if (wait && q->v.state < IBV_QPS_RTS)
			rc = EINVAL;
		else
			rc = log_send(q, wr);
		if (rc)
			break;
		if (!wait) {
			rc = hand_over_send(q, s->head);
			if (rc == EAGAIN && q->v.state < IBV_QPS_RTS)
				rc = EINVAL; /* as the hardware, which has not been asked */
			if (rc && rc != EAGAIN)
				break;
			s->posted += !rc;
			rc = 0;
		}
		q->others += !consumes_receive(wr->opcode);
		s->head++;
	}
	s->direct = queue_direct_until(s, q);
	*bad = wr;
	return rc;
}

/* Gives the lock back. */
static __attribute__((noinline)) int post_send_any(struct shim_queue *s, struct ibv_send_wr *wr,
						   struct ibv_send_wr **bad)
{
	struct ibv_send_wr *first_bad;
	int rc = post_list(container_of(s, struct shim_qp, send), wr, &first_bad);

	lock_give(&s->lock);
	if (rc)
		*bad = first_bad;
	return rc;
}

static __attribute__((noinline)) int post_send_wait(struct shim_queue *s, struct ibv_send_wr *wr,
						    struct ibv_send_wr **bad)
{
	lock_wait(&s->lock);
	return post_send_any(s, wr, bad);
}

/* The fields of a WR that each opcode has, from num_sge to imm_data. */
#define WR_FIELDS offsetof(struct ibv_send_wr, num_sge)
struct wr_fields {
	uint64_t word[2];
};
_Static_assert(offsetof(struct ibv_send_wr, wr) - WR_FIELDS == sizeof(struct wr_fields), "layout");

/* The short way for the post of most programs: one WR of one entry, which is not inline. */
static inline bool is_plain_send(const struct shim_queue *s, const struct ibv_send_wr *wr)
{
	return s->head < s->direct && wr && !wr->next && wr->num_sge == 1 &&
	       !(wr->send_flags & IBV_SEND_INLINE);
}

/* The short way does what post_list() does, with only those fields that a SEND has. */
static inline struct ibv_send_wr *log_plain_send(struct shim_queue *s, const struct ibv_send_wr *wr,
						 uint32_t lkey)
{
	struct ibv_send_wr *log = &s->send[s->head & s->mask].wr;
	const struct ibv_sge *from = wr->sg_list;
	struct wr_fields fields;
	struct sge_words sge;

	memcpy(&fields, (const char *)wr + WR_FIELDS, sizeof(fields));
	memcpy((char *)log + WR_FIELDS, &fields, sizeof(fields));
	memcpy((char *)&s->hw_send + WR_FIELDS, &fields, sizeof(fields));
	log->wr_id = wr->wr_id;
	memcpy(&sge, from, sizeof(sge));
	memcpy(log->sg_list, &sge, sizeof(sge));
	memcpy(&s->hw_sge, &sge, sizeof(sge));
	s->hw_sge.lkey = lkey;
	s->hw_send.wr_id = TAG_SEND | s->head;
	return log;
}

static inline int hand_over_plain(struct shim_queue *s, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad, unsigned others)
{
	struct shim_qp *q = container_of(s, struct shim_qp, send);
	int rc;

	s->plain_send = wr;
	s->plain_bad_send = bad;
	rc = q->real->context->ops.post_send(q->real, &s->hw_send, bad);
	if (unlikely(rc)) {
		*s->plain_bad_send = s->plain_send;
		return lock_give_return(&s->lock, rc);
	}
	q->others += others;
	s->head++;
	return lock_give_return(&s->lock, 0);
}

/* The same for RDMA, and for another key than the last one; gives the lock back. */
static __attribute__((noinline)) int post_plain_other(struct shim_queue *s, struct ibv_send_wr *wr,
						      struct ibv_send_wr **bad)
{
	const struct shim_qp *q = container_of(s, struct shim_qp, send);
	bool rdma = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ;
	uint32_t key = wr->wr.rdma.rkey;
	struct ibv_send_wr *log;

	if (rdma ? !remote_key(q, &key) : wr->opcode != IBV_WR_SEND)
		return post_send_any(s, wr, bad);
	log = log_plain_send(s, wr, local_key(s, wr->sg_list->lkey));
	if (rdma) {
		log->wr.rdma.remote_addr = s->hw_send.wr.rdma.remote_addr = wr->wr.rdma.remote_addr;
		log->wr.rdma.rkey = wr->wr.rdma.rkey;
		s->hw_send.wr.rdma.rkey = key;
	}
	return hand_over_plain(s, wr, bad, rdma);
}

int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct shim_queue *s = shortest_base(&to_qp(ibqp)->send);
	uint64_t key;

	if (unlikely(lock_missed(&s->lock)))
		return post_send_wait(s, wr, bad);
	if (unlikely(!is_plain_send(s, wr)))
		return post_send_any(s, wr, bad);
	key = last_key(s);
	if (unlikely(wr->opcode != IBV_WR_SEND || (uint32_t)(key >> 32) != wr->sg_list->lkey))
		return post_plain_other(s, wr, bad);
	log_plain_send(s, wr, (uint32_t)key);
	return hand_over_plain(s, wr, bad, 0);
}

int send_post_all(struct shim_qp *q, struct ibv_send_wr *wr, uint32_t n)
{
	struct shim_queue *s = &q->send;
	struct ibv_send_wr *bad = wr, *failed;
	int rc = ENOMEM;

	if (shim_inherited(q->ctx))
		return EBADF;
	lock_take(&s->lock);
	if (s->head - atomic_load_explicit(&s->tail, memory_order_acquire) + n <= s->cap)
		rc = post_list(q, wr, &bad);
	lock_give(&s->lock);
	if (!rc || bad == wr)
		return rc;
	/* Some are with the hardware: the caller cannot be told that none is. */
	for (failed = bad; failed; failed = failed->next)
		queue_fail_later(q, q->send_cq, (struct ibv_wc){.wr_id = failed->wr_id}, rc);
	return 0;
}

void send_hold(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;

	lock_take(&s->lock);
	queue_hold(s, true);
	q->sent_all = s->head - q->others; /* a send that was never handed over does not count */
	for (uint64_t i = s->posted; i < s->head; i++)
		q->sent_all -= send_takes_receive(q, i);
	lock_give(&s->lock);
}

bool send_ends_silent(struct shim_qp *q)
{
	struct shim_queue *s = &q->send;
	bool silent;

	lock_take(&s->lock); /* the program may log over what has ended meanwhile */
	silent = s->posted != atomic_load(&s->tail) && !send_signalled(q, s->posted - 1);
	lock_give(&s->lock);
	return silent;
}

/* A zero-byte RDMA WRITE needs no key (IBA 1.4, 9.7.4.2: R_Key is not checked for length 0). */
int send_post_marker(struct shim_qp *q)
{
	struct ibv_send_wr *bad, wr = {.wr_id = TAG_MARKER,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	struct shim_queue *s = &q->send;
	int rc = q->ud ? ud_marker(q, &wr) : 0;

	if (rc)
		return rc;
	lock_take(&s->lock);
	queue_leave_direct(s);
	if (q->v.qp_type == IBV_QPT_XRC_SEND) { /* the number of the send that it is behind */
		wr.qp_type = s->send[(s->posted - 1) & s->mask].wr.qp_type;
		remote_srqn(q, &wr.qp_type.xrc.remote_srqn);
	}
	q->marker_at = s->posted;
	q->marker = true;
	rc = q->real->context->ops.post_send(q->real, &wr, &bad);
	if (rc)
		q->marker = false;
	lock_give(&s->lock);
	return rc;
}
