/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory windows, type 1 (ibv_bind_mw) and type 2 (IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, and the peer's
 * IBV_WR_SEND_WITH_INV). The virtual key has an index of ours and the program's low 8 bits.
 *
 * What a window is bound to is noted when the work request goes to the hardware, because a message
 * that tells the peer of the key may follow at once. A migration may find that such a request has
 * to be done again: then the window is first put back to what it was before it (struct mw_op).
 * After the move windows are allocated anew, and bound again by requests of ours on the QP that
 * they belong to. That is done before the peer hears that the QP takes its packets. */
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/post.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define BIND_WAIT_US 5000 /* a local operation of the HCA: microseconds, where it gets a CPU */

/* A request that changed a window. */
struct mw_op {
	struct list link;
	struct shim_mw *mw;
	struct shim_qp *q;
	uint64_t number;
	struct shim_binding before;
};

/* Windows and their requests. The last lock in the order: bindings change under a queue's lock and
 * a CQ's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list windows = LIST_INIT(windows);
static struct list ops = LIST_INIT(ops); /* in the order in which they were posted */
static bool bound_again;                 /* some window is .untold; helper thread only */

/* Under the lock. The key as a lkey means nothing, but LOCAL_INV finds the hardware's by it. */
static void set_key(const struct shim_mw *w)
{
	table_set(&shim.keys, w->index,
		  key_entry(w->now.rkey, w->now.bound && w->real ? w->real->rkey : KEY_NONE),
		  TABLE_MAX / TABLE_CHUNK);
}

struct ibv_mw *shim_alloc_mw(struct ibv_pd *ibpd, enum ibv_mw_type type)
{
	struct shim_mw *w = calloc(1, sizeof(*w));
	int rc = 0;

	if (!w)
		return NULL;
	w->pd = to_pd(ibpd);
	ctl_enter();
	w->real = w->pd->real->context->ops.alloc_mw
			  ? w->pd->real->context->ops.alloc_mw(w->pd->real, type)
			  : NULL;
	if (!w->real)
		rc = w->pd->real->context->ops.alloc_mw ? -errno : -EOPNOTSUPP;
	if (!rc) {
		w->v = *w->real;
		w->v.context = ibpd->context;
		w->v.pd = ibpd;
		pthread_mutex_lock(&shim.ctl);
		rc = key_alloc(&shim.keys, w->real->rkey, &shim.key_start, &w->v.rkey);
		pthread_mutex_unlock(&shim.ctl);
		if (rc)
			w->real->context->ops.dealloc_mw(w->real);
	}
	if (!rc) {
		w->index = w->v.rkey >> 8;
		w->now.rkey = w->v.rkey;
		w->now.real_rkey = w->real->rkey;
		pthread_mutex_lock(&lock);
		set_key(w);
		list_add(&windows, &w->link);
		pthread_mutex_unlock(&lock);
	}
	ctl_exit();
	if (rc) {
		free(w);
		errno = -rc;
		return NULL;
	}
	return &w->v;
}

static void forget_ops(const struct shim_mw *w, const struct shim_qp *q)
{
	struct list *l = ops.next, *next;

	for (; l != &ops; l = next) {
		struct mw_op *op = list_entry(l, struct mw_op, link);

		next = l->next;
		if (op->mw != w && op->q != q)
			continue;
		list_del(l);
		free(op);
	}
}

int shim_dealloc_mw(struct ibv_mw *ibmw)
{
	struct shim_mw *w = to_mw(ibmw);
	int rc;

	ctl_enter();
	rc = w->real->context->ops.dealloc_mw(w->real);
	if (!rc) {
		pthread_mutex_lock(&lock);
		list_del(&w->link);
		forget_ops(w, NULL);
		pthread_mutex_unlock(&lock);
		pthread_mutex_lock(&shim.ctl);
		table_set(&shim.keys, w->index, 0, TABLE_MAX / TABLE_CHUNK);
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	if (!rc)
		free(w);
	return rc;
}

void mw_leave(const struct shim_context *c)
{
	pthread_mutex_lock(&lock);
	for (struct list *l = windows.next, *next; l != &windows; l = next) {
		struct shim_mw *w = list_entry(l, struct shim_mw, link);

		next = l->next;
		if (w->pd->ctx != c)
			continue;
		list_del(l);
		forget_ops(w, NULL);
		table_set(&shim.keys, w->index, 0, TABLE_MAX / TABLE_CHUNK);
	}
	pthread_mutex_unlock(&lock);
}

/* Posted like all sends, but the real verb is another one. The key changes with the post. */
int shim_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {.wr_id = bind->wr_id,
				       .opcode = IBV_WR_BIND_MW,
				       .send_flags = bind->send_flags & ~(unsigned)IBV_SEND_INLINE,
				       .bind_mw = {.mw = ibmw,
						   .rkey = ibv_inc_rkey(ibmw->rkey),
						   .bind_info = bind->bind_info}};
	int rc;

	if (ibmw->type != IBV_MW_TYPE_1 || ibqp->context != ibmw->context)
		rc = EINVAL;
	else
		rc = shim_post_send(ibqp, &wr, &bad);
	if (rc) {
		errno = rc;
		return rc;
	}
	ibmw->rkey = wr.bind_mw.rkey;
	return 0;
}

/* A request that is posted late names objects that the program may have given back meanwhile. */
static bool bind_is_known(const struct shim_qp *q, const struct ibv_send_wr *wr)
{
	const struct shim_mr *m;
	const struct shim_mw *w;
	bool known = false;

	if (q->phase == QP_LIVE)
		return true;
	list_for_each (w, &windows, link)
		known |= &w->v == wr->bind_mw.mw;
	if (!known || !wr->bind_mw.bind_info.mr)
		return known;
	known = false;
	list_for_each (m, &shim.mrs, link)
		known |= &m->v == wr->bind_mw.bind_info.mr;
	return known;
}

static struct shim_mw *by_index(uint32_t index)
{
	struct shim_mw *w;

	list_for_each (w, &windows, link)
		if (w->index == index)
			return w;
	return NULL;
}

/* The hardware's version of a binding: 0 or the error of the real post. */
static int post_bind(struct shim_qp *q, struct shim_mw *w, const struct shim_binding *b,
		     uint64_t wr_id, unsigned flags)
{
	struct ibv_mw_bind_info info = {.mr = b->mr ? b->mr->real : NULL,
					.addr = b->addr,
					.length = b->length,
					.mw_access_flags = b->access};
	struct ibv_mw_bind one = {.wr_id = wr_id, .send_flags = flags, .bind_info = info};
	struct ibv_send_wr *bad, two = {.wr_id = wr_id,
					.opcode = IBV_WR_BIND_MW,
					.send_flags = flags,
					.bind_mw = {.mw = w->real, .bind_info = info}};
	int rc;

	if (w->v.type == IBV_MW_TYPE_1) /* sets the key in w->real */
		return q->real->context->ops.bind_mw(q->real, w->real, &one);
	two.bind_mw.rkey = (w->real->rkey & ~0xffu) | (b->rkey & 0xff);
	rc = q->real->context->ops.post_send(q->real, &two, &bad);
	if (!rc)
		w->real->rkey = two.bind_mw.rkey;
	return rc;
}

/* The HCA may refuse to bind a window with the low bits that it has (rdma_rxe does). The program
 * keeps clear of its own, but those of a window that was allocated anew are by chance. */
static int avoid_low_bits(struct shim_mw *w, uint32_t rkey)
{
	for (unsigned i = 0; i < 4 && ((w->real->rkey ^ rkey) & 0xff) == 0; i++) {
		struct ibv_mw *other = w->pd->real->context->ops.alloc_mw(w->pd->real, w->v.type);

		if (!other)
			return ENOMEM;
		w->real->context->ops.dealloc_mw(w->real);
		w->real = other;
	}
	return 0;
}

/* Requests that have completed are not done again. */
static void drop_done(const struct shim_qp *q)
{
	uint64_t tail = atomic_load(&q->send.tail);
	struct list *l = ops.next, *next;

	for (; l != &ops; l = next) {
		struct mw_op *op = list_entry(l, struct mw_op, link);

		next = l->next;
		if (op->q != q || op->number >= tail)
			continue;
		list_del(l);
		free(op);
	}
}

static int hand_over_bind(struct shim_qp *q, const struct ibv_send_wr *wr, struct shim_mw *w)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct shim_binding b = {.bound = info->length != 0,
				 .q = q,
				 .mr = info->mr ? to_mr(info->mr) : NULL,
				 .addr = info->addr,
				 .length = info->length,
				 .access = info->mw_access_flags,
				 .rkey = wr->bind_mw.rkey};
	int rc;

	if (b.rkey >> 8 != w->index || (b.bound && (!b.mr || !b.mr->real)) || !w->real)
		return EINVAL;
	rc = w->v.type == IBV_MW_TYPE_2 && ((w->now.rkey ^ b.rkey) & 0xff) != 0
		     ? avoid_low_bits(w, b.rkey)
		     : 0;
	if (!rc)
		rc = post_bind(q, w, &b, wr->wr_id, wr->send_flags);
	if (!rc)
		w->now = b;
	return rc;
}

static int hand_over_invalidate(struct shim_qp *q, const struct ibv_send_wr *wr, struct shim_mw *w)
{
	struct ibv_send_wr real = *wr, *bad;
	int rc;

	if (!key_get(&shim.keys, wr->invalidate_rkey, &real.invalidate_rkey))
		real.invalidate_rkey = KEY_NONE;
	rc = q->real->context->ops.post_send(q->real, &real, &bad);
	if (!rc && w && w->now.rkey == wr->invalidate_rkey)
		w->now.bound = false;
	return rc;
}

int mw_hand_over(struct shim_qp *q, uint64_t number, const struct ibv_send_wr *wr)
{
	struct mw_op *op = calloc(1, sizeof(*op));
	struct shim_mw *w = NULL;
	int rc;

	if (!op)
		return ENOMEM;
	pthread_mutex_lock(&lock);
	drop_done(q);
	if (wr->opcode == IBV_WR_LOCAL_INV)
		w = by_index(wr->invalidate_rkey >> 8);
	else if (wr->bind_mw.mw && bind_is_known(q, wr))
		w = to_mw(wr->bind_mw.mw);
	if (w)
		op->before = w->now;
	if (wr->opcode == IBV_WR_LOCAL_INV)
		rc = hand_over_invalidate(q, wr, w);
	else
		rc = w ? hand_over_bind(q, wr, w) : EINVAL;
	if (!rc && w) {
		w->now.real_rkey = w->real->rkey;
		w->placed = true;
		op->mw = w;
		op->q = q;
		op->number = number;
		list_add(&ops, &TAKE(op)->link);
		set_key(w);
	}
	pthread_mutex_unlock(&lock);
	free(op);
	return rc;
}

void mw_invalidated(struct shim_context *ctx, struct ibv_wc *wc)
{
	struct shim_mw *w;

	if (wc->status != IBV_WC_SUCCESS || wc->wc_flags & IBV_WC_WITH_IMM)
		return;
	pthread_mutex_lock(&lock);
	list_for_each (w, &windows, link) {
		if (w->pd->ctx != ctx || !w->real || w->real->rkey != wc->invalidated_rkey)
			continue;
		wc->invalidated_rkey = w->now.rkey;
		w->now.bound = false;
		set_key(w);
		break;
	}
	pthread_mutex_unlock(&lock);
}

/* Newest first: requests from number on have not been done. */
static void undo(const struct shim_qp *q, uint64_t number)
{
	struct list *l = ops.prev, *before;

	for (; l != &ops; l = before) {
		struct mw_op *op = list_entry(l, struct mw_op, link);

		before = l->prev;
		if (op->q != q)
			continue;
		if (op->number >= number) {
			op->mw->now = op->before;
			op->mw->stale = true;
			if (op->mw->real) /* the key that the next request has to name */
				op->mw->real->rkey = op->before.real_rkey;
			set_key(op->mw);
		}
		list_del(l);
		free(op);
	}
}

void mw_failed(struct shim_qp *q, uint64_t number)
{
	pthread_mutex_lock(&lock);
	if (ops.next != &ops)
		undo(q, number);
	pthread_mutex_unlock(&lock);
}

void mw_reset_qp(struct shim_qp *q)
{
	mw_failed(q, atomic_load(&q->send.tail));
}

void mw_forget_mr(struct shim_mr *m)
{
	struct mw_op *op;
	struct shim_mw *w;

	pthread_mutex_lock(&lock);
	list_for_each (op, &ops, link)
		if (op->before.mr == m)
			op->before.bound = false;
	list_for_each (w, &windows, link) {
		if (w->now.mr != m)
			continue;
		w->now.mr = NULL;
		w->now.bound = false;
		set_key(w);
	}
	pthread_mutex_unlock(&lock);
}

void mw_forget_qp(struct shim_qp *q)
{
	struct mw_op *op;
	struct shim_mw *w;

	pthread_mutex_lock(&lock);
	forget_ops(NULL, q);
	list_for_each (op, &ops, link) {
		if (op->before.q != q)
			continue;
		op->before.q = NULL;
		op->before.bound &= op->mw->v.type == IBV_MW_TYPE_1;
	}
	list_for_each (w, &windows, link) {
		w->on = w->on == q ? NULL : w->on;
		if (w->now.q != q)
			continue;
		w->now.q = NULL;
		w->now.bound &= w->v.type == IBV_MW_TYPE_1;
		set_key(w);
	}
	pthread_mutex_unlock(&lock);
}

void mw_forget_all(void)
{
	pthread_mutex_init(&lock, NULL);
	list_init(&windows);
	list_init(&ops);
	bound_again = false;
}

const char *mw_uncovered(const struct shim_context *ctx)
{
	const char *why = NULL;
	struct shim_mw *w;
	struct shim_qp *q;

	pthread_mutex_lock(&lock);
	list_for_each (w, &windows, link) {
		bool found = false;

		if (w->pd->ctx != ctx || w->v.type != IBV_MW_TYPE_1 || !w->now.bound)
			continue;
		list_for_each (q, &shim.qps, link)
			found |= to_pd(q->v.pd) == w->pd && q->v.state == IBV_QPS_RTS;
		if (!found)
			why = "a memory window is bound and no QP is left that could bind it again";
	}
	pthread_mutex_unlock(&lock);
	return why;
}

void mw_release(bool device)
{
	struct shim_mw *w;
	struct shim_qp *q;

	pthread_mutex_lock(&lock);
	list_for_each (q, &shim.qps, link)
		if (q->in_job)
			undo(q, atomic_load(&q->send.tail));
	list_for_each (w, &windows, link) {
		bool with_qp = w->v.type == IBV_MW_TYPE_2 && w->now.bound && w->now.q &&
			       w->now.q->in_job;

		if (!w->real || !w->pd->ctx->in_job || (!device && !with_qp && !w->stale))
			continue;
		w->real->context->ops.dealloc_mw(TAKE(w->real));
		w->placed = w->stale = false;
	}
	pthread_mutex_unlock(&lock);
}

int mw_rebuild(void)
{
	struct shim_mw *w;
	int rc = 0;

	pthread_mutex_lock(&lock);
	list_for_each (w, &windows, link) {
		if (!w->pd->ctx->in_job || w->real)
			continue;
		w->real = w->pd->real->context->ops.alloc_mw(w->pd->real, w->v.type);
		if (!w->real) {
			rc = errno ? -errno : -ENOMEM;
			break;
		}
		if (w->v.type == IBV_MW_TYPE_2 && w->now.bound)
			rc = -avoid_low_bits(w, w->now.rkey);
		w->now.real_rkey = w->real->rkey;
		set_key(w);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The HCA has failed a request: what it made of the window is not known. */
static void renew(struct shim_mw *w)
{
	struct ibv_mw *other = w->pd->real->context->ops.alloc_mw(w->pd->real, w->v.type);

	if (!other)
		return;
	w->real->context->ops.dealloc_mw(w->real);
	w->real = other;
	if (w->v.type == IBV_MW_TYPE_2)
		avoid_low_bits(w, w->now.rkey);
}

/* Binds one window at a time, so that one entry of the CQ is enough. 0, -EINPROGRESS while it is
 * under way, else -errno: it may be tried again. BIND_FAILED: that was the end of the real QP, too.
 */
static int bind_and_wait(struct shim_qp *q, struct shim_mw *w)
{
	uint64_t end = q->binding ? 0 : now_us() + BIND_WAIT_US;
	int rc;

	if (q->binding && q->binding != w)
		return -EINPROGRESS;
	if (!q->binding) {
		q->bind_state = BIND_WAITS;
		rc = post_bind(q, w, &w->now, TAG_MARKER | 1, IBV_SEND_SIGNALED);
		if (rc)
			return -rc;
		q->binding = w;
		w->on = q;
	}
	do {
		cq_harvest(q->send_cq);
		sched_yield();
	} while (q->bind_state == BIND_WAITS && now_us() < end);
	if (q->bind_state == BIND_WAITS)
		return -EINPROGRESS;
	q->binding = NULL;
	w->on = NULL;
	if (q->bind_state == BIND_DONE)
		return 0;
	renew(w);
	return -EIO;
}

static bool can_bind(const struct shim_qp *q)
{
	return q->connecting && !q->connect_error && q->v.state == IBV_QPS_RTS;
}

/* The one that is at it. Type 2: its own. Type 1: any of its PD, the same for many; none: what has
 * none in this part. */
static struct shim_qp *binder(const struct shim_mw *w, struct shim_qp **any,
			      const struct shim_pd **none)
{
	struct shim_qp *q = w->on ? w->on : w->now.q;

	if (w->on || w->v.type == IBV_MW_TYPE_2)
		return q && can_bind(q) ? q : NULL;
	if (*none == w->pd)
		return NULL;
	if (*any && to_pd((*any)->v.pd) == w->pd && can_bind(*any))
		return *any;
	list_for_each (q, &shim.qps, link) {
		if (to_pd(q->v.pd) != w->pd || !can_bind(q))
			continue;
		*any = q;
		return q;
	}
	*none = w->pd;
	return NULL;
}

void mw_bind_again(void)
{
	const struct shim_pd *none = NULL;
	struct shim_qp *q, *any = NULL;
	struct shim_mw *w;

	/* Without the lock, which a completion may need: no verb changes the list in a job. */
	list_for_each (w, &windows, link) {
		if (!w->real || !w->now.bound || w->placed || !w->pd->ctx->in_job)
			continue;
		q = binder(w, &any, &none);
		if (!q)
			continue;
		q->connect_error = bind_and_wait(q, w);
		if (q->connect_error) {
			q->unbound = w;
			continue;
		}
		pthread_mutex_lock(&lock);
		w->placed = w->untold = bound_again = true;
		w->now.real_rkey = w->real->rkey;
		set_key(w);
		pthread_mutex_unlock(&lock);
	}
}

void mw_stop_binding(struct shim_qp *q)
{
	if (q->binding)
		q->binding->on = NULL;
	q->binding = NULL;
	q->bind_state = BIND_WAITS;
}

void mw_start_over(struct shim_qp *q)
{
	struct shim_mw *w;

	pthread_mutex_lock(&lock);
	mw_stop_binding(q);
	list_for_each (w, &windows, link) {
		if (!w->placed || w->v.type != IBV_MW_TYPE_2 || w->now.q != q)
			continue;
		renew(w);
		w->placed = false;
	}
	pthread_mutex_unlock(&lock);
}

bool mw_on(const struct shim_qp *q)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&lock);
	const struct mw_op *op;
	const struct shim_mw *w;
	bool any = q->binding;

	list_for_each (w, &windows, link)
		any |= w->v.type == IBV_MW_TYPE_2 && w->now.bound && w->now.q == q;
	list_for_each (op, &ops, link)
		any |= op->q == q;
	return any;
}

bool mw_bound_again(void)
{
	return bound_again;
}

void mw_told(void)
{
	struct shim_mw *w;

	list_for_each (w, &windows, link)
		w->untold = false;
	bound_again = false;
}

/* A window of type 2 can be used by the other end of its QP only. */
static bool is_for(const struct shim_mw *w, const struct shim_qp *q)
{
	return qp_shows(q, w->pd) &&
	       (w->v.type == IBV_MW_TYPE_1 || (w->now.q && w->now.q->peer == q->peer));
}

unsigned mw_keys(const struct shim_qp *q, bool again, struct peer_key *keys, unsigned room,
		 unsigned *skip)
{
	struct shim_mw *w;
	unsigned n = 0, at = 0;

	pthread_mutex_lock(&lock);
	list_for_each (w, &windows, link) {
		if (!w->real || !w->now.bound || !w->placed || !is_for(w, q) ||
		    (again && !w->untold))
			continue;
		if (at++ >= *skip && n < room)
			keys[n++] = (struct peer_key){w->now.rkey, w->real->rkey};
	}
	pthread_mutex_unlock(&lock);
	*skip += n;
	return n;
}

bool mw_key(const struct shim_qp *q, uint32_t rkey, uint32_t *ret_key)
{
	struct shim_mw *w;
	bool known = true;

	pthread_mutex_lock(&lock);
	list_for_each (w, &windows, link) {
		if (w->now.rkey != rkey || !w->now.bound || !is_for(w, q))
			continue;
		known = w->real && w->placed;
		if (known)
			*ret_key = w->real->rkey;
	}
	pthread_mutex_unlock(&lock);
	return known;
}
