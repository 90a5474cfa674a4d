/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Completion queues: polling passes through a software queue, which is empty but for the time of
 * a migration, and gives the numbers of completions their virtual values. */
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/srq.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define SOFT_MIN     64
#define EXTRA_CQES   1 /* for the marker; the queue is harvested before it is posted */
#define POLL_AT_ONCE 16
#define QPN_NONE     UINT32_MAX
/* rdma_rxe gives the kernel's flag (Linux 6.1, rxe_resp.c), which means another thing here. */
#define INVALIDATES (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)

/* The completion of our own marker ends all sends before it. */
static bool take_marker(struct shim_qp *q, const struct ibv_wc *wc)
{
	if (wc->wr_id & ~TAG_MASK) { /* no marker: a window that is bound again */
		q->bind_state = wc->status == IBV_WC_SUCCESS ? BIND_DONE : BIND_FAILED;
		return false;
	}
	if (wc->status == IBV_WC_SUCCESS && q->marker)
		atomic_store_explicit(&q->send.tail, q->marker_at, memory_order_release);
	q->marker = false;
	return false;
}

/* A receive of a shared queue: each QP counts its own. */
static bool take_shared(struct shim_qp *q, struct ibv_wc *wc, uint64_t number)
{
	struct shim_srq *s = srq_of(q, number);
	uint32_t slot = (uint32_t)number;

	if (q->v.srq && q->ud && wc->status == IBV_WC_SUCCESS &&
	    atomic_load_explicit(&shim.ud_moved, memory_order_acquire))
		srq_source(s, slot, wc);
	if (wc->status != IBV_WC_SUCCESS)
		q->uncounted = true;
	if (!s || !srq_take(s, slot, q, &wc->wr_id))
		return false;
	if (q->v.qp_type != IBV_QPT_UD)
		wc->src_qp = q->dvqpn;
	if (unlikely(wc->wc_flags & INVALIDATES) && wc->status == IBV_WC_SUCCESS)
		mw_invalidated(q->ctx, wc);
	return true;
}

static __attribute__((noinline)) struct shim_qp *find_qp(struct shim_cq *cq, uint32_t qpn)
{
	struct shim_qp *q = (struct shim_qp *)(uintptr_t)table_get(&cq->ctx->qp_by_qpn, qpn);

	if (q) {
		cq->last_qpn = qpn;
		cq->last_qp = q;
	}
	return q;
}

void cq_forget_qp(struct shim_cq *cq, const struct shim_qp *q)
{
	if (!cq)
		return;
	lock_take(&cq->lock);
	if (cq->last_qp == q) {
		cq->last_qpn = QPN_NONE;
		cq->last_qp = NULL;
	}
	lock_give(&cq->lock);
}

static inline bool under_way(const struct shim_queue *queue, uint64_t number)
{
	return number - atomic_load_explicit(&queue->tail, memory_order_relaxed) <= queue->mask;
}

/* Ends number and all before it: their places in the log are free for posts of other threads. */
static inline void retire(struct shim_queue *queue, uint64_t number)
{
	atomic_store_explicit(&queue->tail, number + 1, memory_order_release);
}

/* Neither a send nor a receive of the QP's own. */
static __attribute__((noinline)) bool translate_other(struct shim_qp *q, struct ibv_wc *wc)
{
	uint64_t number = wc->wr_id & ~TAG_MASK, tag = wc->wr_id & TAG_MASK;

	if (tag == TAG_MARKER)
		return take_marker(q, wc);
	return tag == TAG_SRQ && take_shared(q, wc, number);
}

/* A receive of a UD QP. */
static bool translate_datagram(struct shim_qp *q, struct ibv_wc *wc)
{
	uint64_t number = wc->wr_id - TAG_RECV;
	const struct shim_recv *e = &q->recv.recv[number & q->recv.mask];

	if (!under_way(&q->recv, number))
		return false;
	if (wc->status == IBV_WC_SUCCESS &&
	    atomic_load_explicit(&shim.ud_moved, memory_order_acquire))
		ud_source(wc, e->sge, e->num_sge);
	wc->wr_id = e->wr_id;
	wc->qp_num = q->v.qp_num;
	retire(&q->recv, number);
	return true;
}

/* Handles a request that has failed, or a receive that may have invalidated a window. */
static bool translate_odd(struct shim_qp *q, struct ibv_wc *wc)
{
	uint64_t number = wc->wr_id;

	if (under_way(&q->send, number)) {
		wc->wr_id = q->send.send[number & q->send.mask].wr.wr_id;
		mw_failed(q, number); /* once it is retired it counts as done */
		retire(&q->send, number);
	} else {
		number -= TAG_RECV;
		if (q->ud || !under_way(&q->recv, number))
			return false;
		wc->wr_id = q->recv.recv[number & q->recv.mask].wr_id;
		wc->src_qp = q->dvqpn;
		if (wc->status == IBV_WC_SUCCESS)
			mw_invalidated(q->ctx, wc);
		else
			q->uncounted = true;
		retire(&q->recv, number);
	}
	wc->qp_num = q->v.qp_num;
	return true;
}

/* Gives wc its virtual numbers and retires q's log. false: translate_any() must look at it, it has
 * not changed. Calls nothing, so that shim_poll_cq() needs not save registers. */
static inline bool translate_own(struct shim_qp *q, struct ibv_wc *wc)
{
	uint64_t number = wc->wr_id;

	if (unlikely(wc->status != IBV_WC_SUCCESS))
		return false;
	/* TAG_SEND is 0, and with another tag a number is far out of the log. */
	if (likely(under_way(&q->send, number))) {
		wc->wr_id = q->send.send[number & q->send.mask].wr.wr_id;
		retire(&q->send, number);
	} else {
		number -= TAG_RECV;
		if (unlikely(q->ud != NULL || wc->wc_flags & INVALIDATES) ||
		    !under_way(&q->recv, number))
			return false;
		wc->wr_id = q->recv.recv[number & q->recv.mask].wr_id;
		wc->src_qp = q->dvqpn;
		retire(&q->recv, number);
	}
	wc->qp_num = q->v.qp_num;
	return true;
}

/* false: the program must not see it. */
static __attribute__((noinline)) bool translate_any(struct shim_cq *cq, struct ibv_wc *wc)
{
	struct shim_qp *q = find_qp(cq, wc->qp_num);

	if (!q)
		return false; /* the QP was destroyed */
	if (translate_own(q, wc) || (q->ud && translate_datagram(q, wc)) || translate_odd(q, wc))
		return true;
	wc->qp_num = q->v.qp_num;
	return translate_other(q, wc);
}

static inline bool translate(struct shim_cq *cq, struct ibv_wc *wc)
{
	return likely(wc->qp_num == cq->last_qpn && translate_own(cq->last_qp, wc)) ||
	       translate_any(cq, wc);
}

/* The first got of wc, those that the program may see. */
static __attribute__((noinline)) int translate_all(struct shim_cq *cq, int got, struct ibv_wc *wc)
{
	int kept = 0;

	for (int i = 0; i < got; i++) {
		if (unlikely(!translate(cq, &wc[i])))
			continue;
		if (unlikely(kept != i))
			wc[kept] = wc[i];
		kept++;
	}
	return got < 0 ? got : kept;
}

static int soft_pop(struct shim_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	while (got < n && cq->soft_tail != cq->soft_head)
		wc[got++] = cq->soft[cq->soft_tail++ & (cq->soft_room - 1)];
	return got;
}

static int soft_grow(struct shim_cq *cq)
{
	uint32_t room = cq->soft_room ? cq->soft_room * 2 : SOFT_MIN;
	struct ibv_wc *grown = malloc(room * sizeof(*grown));
	uint32_t n = 0;

	if (!grown)
		return -ENOMEM;
	cq->mark -= cq->soft_tail;
	while (cq->soft_tail != cq->soft_head)
		grown[n++] = cq->soft[cq->soft_tail++ & (cq->soft_room - 1)];
	free(cq->soft);
	cq->soft = grown;
	cq->soft_room = room;
	cq->soft_tail = 0;
	cq->soft_head = n;
	return 0;
}

/* As many as n of the hardware's. Negative: its error. */
static int poll_real(struct shim_cq *cq, int n, struct ibv_wc *wc)
{
	return translate_all(cq, cq->real->context->ops.poll_cq(cq->real, n, wc), wc);
}

/* Gives the lock back. After a migration one event may stand for very many completions, and they
 * may be the last. A program that arms, polls a batch and sleeps, relying on more to come, is told
 * of what it has left behind. That ends when it has polled all once. */
static __attribute__((noinline)) int poll_any(struct shim_cq *cq, int n, struct ibv_wc *wc)
{
	int got = soft_pop(cq, n, wc), more;
	bool left, owed;

	if (got < n && cq->real) {
		more = poll_real(cq, n - got, wc + got);
		got = more >= 0 ? got + more : got ? got : more;
	}
	if (got == n && cq->armed)
		cq_harvest_locked(cq);
	left = cq->soft_tail != cq->soft_head;
	owed = left && cq->armed;
	if (!left && got < n)
		cq->direct = cq->real;
	lock_give(&cq->lock);
	if (owed)
		channel_left(cq->channel, cq);
	else if (!left && atomic_load(&cq->perhaps))
		channel_retract(cq->channel, cq);
	return got;
}

static __attribute__((noinline)) int poll_wait(struct shim_cq *cq, int n, struct ibv_wc *wc)
{
	lock_wait(&cq->lock);
	return poll_any(cq, n, wc);
}

int shim_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct shim_cq *cq = shortest_base(to_cq(ibcq));
	int got;

	if (unlikely(lock_missed(&cq->lock)))
		return poll_wait(cq, n, wc);
	if (unlikely(!cq->direct))
		return poll_any(cq, n, wc);
	cq->polled = wc;
	got = cq->direct->context->ops.poll_cq(cq->direct, n, wc);
	if (got) {
		if (likely(got == 1 && cq->polled->qp_num == cq->last_qpn &&
			   translate_own(cq->last_qp, cq->polled)))
			return lock_give_return(&cq->lock, 1);
		got = translate_all(cq, got, cq->polled);
	}
	return lock_give_return(&cq->lock, got);
}

/* soft has room. */
static void soft_push(struct shim_cq *cq, const struct ibv_wc *wc)
{
	cq->direct = NULL;
	cq->soft[cq->soft_head++ & (cq->soft_room - 1)] = *wc;
}

void cq_harvest_locked(struct shim_cq *cq)
{
	struct ibv_wc wc[POLL_AT_ONCE];
	int n;

	/* Room first: a completion taken from the hardware must not be lost. */
	while (cq->real && (cq->soft_room - (cq->soft_head - cq->soft_tail) >= POLL_AT_ONCE ||
			    !soft_grow(cq))) {
		n = cq->real->context->ops.poll_cq(cq->real, POLL_AT_ONCE, wc);
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++)
			if (translate_any(cq, &wc[i]))
				soft_push(cq, &wc[i]);
	}
}

void cq_harvest(struct shim_cq *cq)
{
	lock_take(&cq->lock);
	cq_harvest_locked(cq);
	lock_give(&cq->lock);
}

bool cq_add(struct shim_cq *cq, const struct ibv_wc *wc)
{
	if (cq->soft_head - cq->soft_tail >= cq->soft_room && soft_grow(cq))
		return false;
	soft_push(cq, wc);
	return true;
}

/* A size out of range is for the device to refuse. */
static int with_extra(int cqe)
{
	return cqe > 0 && cqe < INT_MAX ? cqe + EXTRA_CQES : cqe;
}

int cq_create_real(struct shim_cq *cq)
{
	struct ibv_comp_channel *channel = cq->channel ? cq->channel->real : cq->ctx->own_channel;

	cq->real = real_verbs.create_cq(cq->ctx->real, with_extra(cq->cqe), cq, channel,
					cq->vector);
	if (!cq->real) /* the device's maximum was asked for */
		cq->real = real_verbs.create_cq(cq->ctx->real, cq->cqe, cq, channel, cq->vector);
	cq->asked = cq->stray = false;
	atomic_store(&cq->awaited, false);
	return cq->real ? 0 : -errno;
}

struct ibv_cq *cq_take_real(struct shim_cq *cq)
{
	cq->direct = NULL;
	return TAKE(cq->real);
}

/* The CQ tells the size that was asked for: a device may round it up, and the next device may not.
 */
struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int vector)
{
	struct shim_cq *cq;
	int rc;

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->ctx = to_context(context);
	cq->channel = channel ? to_channel(channel) : NULL;
	cq->last_qpn = QPN_NONE;
	cq->cqe = cqe;
	cq->vector = vector;
	list_init(&cq->event);
	ctl_enter();
	rc = cqe > 0 ? cq_create_real(cq) : -EINVAL;
	if (!rc) {
		cq->direct = cq->real; /* nothing is left behind in it */
		cq->v = (struct ibv_cq){.context = context,
					.channel = channel,
					.cq_context = cq_context,
					.handle = cq->real->handle,
					.cqe = cqe};
		pthread_mutex_init(&cq->v.mutex, NULL);
		pthread_cond_init(&cq->v.cond, NULL);
		pthread_mutex_lock(&shim.ctl);
		list_add(&shim.cqs, &cq->link);
		if (channel)
			channel->refcnt++;
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	if (rc) {
		free(cq);
		errno = -rc;
		return NULL;
	}
	return &cq->v;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	if (!shim_ours(context))
		return real_verbs.create_cq(context, cqe, cq_context, channel, vector);
	return cq_create(context, cqe, cq_context, channel, vector);
}

int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct shim_cq *cq;
	int rc;

	if (!shim_ours(ibcq->context))
		return real_verbs.resize_cq(ibcq, cqe);
	cq = to_cq(ibcq);
	ctl_enter();
	rc = real_verbs.resize_cq(cq->real, with_extra(cqe));
	if (rc == EINVAL) /* the device's maximum was asked for */
		rc = real_verbs.resize_cq(cq->real, cqe);
	if (!rc)
		cq->cqe = cq->v.cqe = cqe;
	ctl_exit();
	return rc;
}

int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq;
	int rc;

	if (!shim_ours(ibcq->context))
		return real_verbs.destroy_cq(ibcq);
	cq = to_cq(ibcq);
	ctl_enter();
	rc = real_verbs.destroy_cq(cq->real);
	if (!rc) {
		pthread_mutex_lock(&shim.ctl);
		list_del(&cq->link);
		context_forget_events(cq->ctx, &cq->v);
		if (cq->channel)
			cq->channel->v.refcnt--;
		pthread_mutex_unlock(&shim.ctl);
		if (cq->channel)
			channel_forget(cq->channel, cq);
	}
	ctl_exit();
	if (rc)
		return rc;
	await_acks(&cq->v.mutex, &cq->v.cond, &cq->events, &cq->v.comp_events_completed);
	await_acks(&cq->v.mutex, &cq->v.cond, &cq->async_events, &cq->v.async_events_completed);
	free(cq->soft);
	free(cq);
	return 0;
}
