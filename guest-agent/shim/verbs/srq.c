/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared receive queues. Every receive is logged in a slot until its completion comes, which may
 * be out of order: several QPs take from the queue. After a move the queue is created anew and what
 * was not consumed is posted again in the order in which the program posted it.
 *
 * How many receives a QP may still take cannot be said of one QP alone. So a peer that is stuck is
 * only told a count (PEER_FROZEN) when posts are held back and the hardware has none left. Then
 * nothing more can be consumed, and the number that each QP has received is final. */
#include "guest-agent/shim/verbs/srq.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/refuse.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

#define XRC_MASK                                                                                   \
	(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |                  \
	 IBV_SRQ_INIT_ATTR_CQ)

static void srq_free(struct shim_srq *s)
{
	free(s->log);
	free(s->free_slots);
	free(s->sge);
	free(s->translated);
	free(s->order);
	free(s);
}

/* Grows the log to that many slots; those in use stay where they are. 0 or -ENOMEM. */
static int srq_grow(struct shim_srq *s, uint32_t slots)
{
	size_t each = s->max_sge ? s->max_sge : 1;
	void *p;

	if (slots <= s->slots)
		return 0;
#define GROW(member, n)                                                                            \
	p = reallocarray(s->member, (n), sizeof(*s->member));                                      \
	if (!p)                                                                                    \
		return -ENOMEM;                                                                    \
	s->member = p
	GROW(log, slots);
	GROW(free_slots, slots);
	GROW(order, slots);
	GROW(sge, slots * each);
#undef GROW
	/* Taken from the end: low slots first, as long as the caches are cold. */
	for (uint32_t i = slots; i > s->slots; i--) {
		s->log[i - 1] = (struct shim_srq_recv){0};
		s->free_slots[s->free_count++] = i - 1;
	}
	s->slots = slots;
	return 0;
}

static int create_xrc(struct shim_srq *s, struct ibv_srq_init_attr *init)
{
	struct ibv_srq_init_attr_ex ex = {.srq_context = init->srq_context,
					  .attr = init->attr,
					  .comp_mask = XRC_MASK,
					  .srq_type = IBV_SRQT_XRC,
					  .pd = s->pd->real,
					  .xrcd = s->xrcd->real,
					  .cq = s->cq->real};
	int rc;

	s->real = ibv_create_srq_ex(s->pd->ctx->real, &ex);
	if (!s->real)
		return -errno;
	rc = ibv_get_srq_num(s->real, &s->real_srqn);
	if (rc)
		real_verbs.destroy_srq(TAKE(s->real));
	else
		init->attr = ex.attr;
	return -rc;
}

/* The real queue: at the start and after each migration. 0 or -errno. */
static int create_real(struct shim_srq *s, struct ibv_srq_init_attr *init)
{
	if (s->xrcd)
		return create_xrc(s, init);
	s->real = real_verbs.create_srq(s->pd->real, init);
	return s->real ? 0 : -errno;
}

static int srq_set_up(struct shim_srq *s, struct ibv_srq_init_attr *init)
{
	struct ibv_srq_init_attr real = *init;
	int rc;

	real.srq_context = s;
	rc = create_real(s, &real);
	if (rc)
		return rc;
	init->attr = real.attr;
	s->cap = real.attr.max_wr;
	s->max_sge = real.attr.max_sge;
	s->translated = calloc(s->max_sge ? s->max_sge : 1, sizeof(*s->translated));
	rc = s->translated ? srq_grow(s, s->cap) : -ENOMEM;
	if (!rc && s->xrcd)
		rc = xrc_number_srq(s);
	if (rc)
		real_verbs.destroy_srq(TAKE(s->real));
	return rc;
}

/* xrcd and cq: NULL for a basic one. NULL and errno. */
static struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *init,
				  struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct shim_srq *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->pd = to_pd(pd);
	s->xrcd = xrcd ? to_xrcd(xrcd) : NULL;
	s->cq = cq ? to_cq(cq) : NULL;
	ctl_enter();
	rc = srq_set_up(s, init);
	if (!rc) {
		s->v = *s->real;
		s->v.context = pd->context;
		s->v.srq_context = init->srq_context;
		s->v.pd = pd;
		pthread_mutex_init(&s->v.mutex, NULL);
		pthread_cond_init(&s->v.cond, NULL);
		pthread_mutex_lock(&shim.ctl);
		list_add(&shim.srqs, &s->link);
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	if (rc) {
		srq_free(s);
		errno = -rc;
		return NULL;
	}
	return &s->v;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return shim_ours(pd->context) ? srq_create(pd, init, NULL, NULL)
				      : real_verbs.create_srq(pd, init);
}

/* 0 or errno, as libibverbs has it. */
static int init_error(struct ibv_context *context, const struct ibv_srq_init_attr_ex *init,
		      enum ibv_srq_type type)
{
	uint32_t mask = init->comp_mask;

	if (mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
		return refuse_srq_type("ibv_create_srq_ex");
	if (!(mask & IBV_SRQ_INIT_ATTR_PD) || !init->pd || init->pd->context != context)
		return EINVAL;
	if (type == IBV_SRQT_BASIC)
		return 0;
	return (mask & XRC_MASK) == XRC_MASK && init->xrcd && init->xrcd->context == context &&
			       init->cq && init->cq->context == context
		       ? 0
		       : EINVAL;
}

/* Basic ones that name no more than their PD do not come here (verbs.h). */
struct ibv_srq *shim_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init)
{
	enum ibv_srq_type type = init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? init->srq_type
									  : IBV_SRQT_BASIC;
	struct ibv_srq_init_attr plain = {.srq_context = init->srq_context, .attr = init->attr};
	bool xrc = type == IBV_SRQT_XRC;
	struct ibv_srq *srq;
	int rc;

	rc = init_error(context, init, type);
	if (rc) {
		errno = rc;
		return NULL;
	}
	srq = srq_create(init->pd, &plain, xrc ? init->xrcd : NULL, xrc ? init->cq : NULL);
	if (srq)
		init->attr = plain.attr;
	return srq;
}

bool srq_take(struct shim_srq *s, uint32_t slot, struct shim_qp *q, uint64_t *ret_wr_id)
{
	bool taken;

	lock_take(&s->lock);
	taken = slot < s->slots && s->log[slot].number && s->at_hardware;
	if (taken) {
		*ret_wr_id = s->log[slot].wr_id;
		s->log[slot].number = 0;
		s->free_slots[s->free_count++] = slot;
		/* Together: who finds the queue empty must find all counts complete. */
		atomic_fetch_add_explicit(&q->recv.tail, 1, memory_order_release);
		s->at_hardware--;
	}
	lock_give(&s->lock);
	return taken;
}

void srq_source(struct shim_srq *s, uint32_t slot, struct ibv_wc *wc)
{
	size_t each = s->max_sge ? s->max_sge : 1;

	lock_take(&s->lock);
	if (slot < s->slots)
		ud_source(wc, s->sge + slot * each, s->log[slot].num_sge);
	lock_give(&s->lock);
}

static uint32_t in_use(const struct shim_srq *s)
{
	return s->slots - s->free_count;
}

/* 0 or the error of the real post. */
static int hand_over(struct shim_srq *s, uint32_t slot)
{
	const struct shim_srq_recv *e = &s->log[slot];
	const struct ibv_sge *sge = s->sge + (size_t)slot * (s->max_sge ? s->max_sge : 1);
	struct ibv_recv_wr *bad, wr = {.wr_id = TAG_SRQ | (uint64_t)s->srqn << 32 | slot,
				       .sg_list = s->translated,
				       .num_sge = e->num_sge};
	int rc;

	for (int i = 0; i < e->num_sge; i++) {
		s->translated[i] = sge[i];
		if (!key_get(&shim.keys, sge[i].lkey, &s->translated[i].lkey))
			s->translated[i].lkey = KEY_NONE;
	}
	rc = s->real->context->ops.post_srq_recv(s->real, &wr, &bad);
	if (!rc) {
		s->posted = e->number;
		s->at_hardware++;
	}
	return rc;
}

static int by_number(const void *a, const void *b, void *srq)
{
	const struct shim_srq *s = srq;
	uint64_t x = s->log[*(const uint32_t *)a].number, y = s->log[*(const uint32_t *)b].number;

	return x < y ? -1 : x > y;
}

/* Under the lock: all that is only in the log, oldest first. 0 or the error of a real post, with
 * which the rest stays in the log. */
static int flush(struct shim_srq *s)
{
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->slots; i++)
		if (s->log[i].number > s->posted)
			s->order[n++] = i;
	qsort_r(s->order, n, sizeof(*s->order), by_number, s);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = hand_over(s, s->order[i]);
	return rc;
}

static int log_recv(struct shim_srq *s, const struct ibv_recv_wr *wr, uint32_t *ret_slot)
{
	struct ibv_sge *sge;
	uint32_t slot;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > s->max_sge)
		return EINVAL;
	if (in_use(s) >= s->cap || !s->free_count)
		return ENOMEM;
	slot = s->free_slots[--s->free_count];
	sge = s->sge + (size_t)slot * (s->max_sge ? s->max_sge : 1);
	for (int i = 0; i < wr->num_sge; i++)
		sge[i] = wr->sg_list[i];
	s->log[slot] = (struct shim_srq_recv){wr->wr_id, ++s->last, wr->num_sge};
	*ret_slot = slot;
	return 0;
}

static int post_one(struct shim_srq *s, const struct ibv_recv_wr *wr)
{
	bool wait = s->holds || !s->real;
	uint32_t slot;
	int rc = log_recv(s, wr, &slot);

	if (rc || wait)
		return rc;
	/* Receives that an earlier flush had to leave go first. */
	rc = in_use(s) > s->at_hardware + 1 ? flush(s) : hand_over(s, slot);
	if (rc && s->log[slot].number > s->posted) {
		s->log[slot].number = 0;
		s->free_slots[s->free_count++] = slot;
		s->last--;
	}
	return rc;
}

int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shim_srq *s = to_srq(ibsrq);
	int rc = 0;

	lock_take(&s->lock);
	for (; wr; wr = wr->next) {
		rc = post_one(s, wr);
		if (rc)
			break;
	}
	lock_give(&s->lock);
	if (rc)
		*bad = wr;
	return rc;
}

void srq_hold(struct shim_qp *q, struct shim_srq *s)
{
	if (q->holds_srq == s)
		return;
	srq_unhold(q);
	q->holds_srq = s;
	lock_take(&s->lock);
	s->holds++;
	lock_give(&s->lock);
}

void srq_unhold(struct shim_qp *q)
{
	struct shim_srq *s = TAKE(q->holds_srq);
	int rc = 0;

	if (!s)
		return;
	lock_take(&s->lock);
	if (!--s->holds && s->real)
		rc = flush(s);
	lock_give(&s->lock);
	if (rc)
		shim_log("a receive that was put off during a migration waits for the next post to "
			 "its shared queue: error %d",
			 rc);
}

bool srq_is_empty(struct shim_srq *s)
{
	bool empty;

	lock_take(&s->lock);
	empty = !s->at_hardware;
	lock_give(&s->lock);
	return empty;
}

void srq_release(struct shim_srq *s)
{
	struct ibv_srq *real;

	lock_take(&s->lock);
	real = TAKE(s->real);
	s->at_hardware = 0;
	s->posted = 0;
	lock_give(&s->lock);
	if (real)
		real_verbs.destroy_srq(real);
}

int srq_rebuild(struct shim_srq *s)
{
	struct ibv_srq_init_attr init = {.srq_context = s,
					 .attr = {.max_wr = s->cap, .max_sge = s->max_sge}};
	struct ibv_srq_attr limit = {.srq_limit = s->limit};
	int rc;

	lock_take(&s->lock);
	rc = create_real(s, &init);
	if (!rc) {
		rc = -flush(s);
		/* After the posts: a limit above what is there would be reached at once. */
		if (!rc && s->limit)
			rc = -real_verbs.modify_srq(s->real, &limit, IBV_SRQ_LIMIT);
		if (rc) {
			real_verbs.destroy_srq(TAKE(s->real));
			s->at_hardware = 0;
			s->posted = 0;
		}
	}
	lock_give(&s->lock);
	return rc;
}

static int resize(struct shim_srq *s, const struct ibv_srq_attr *attr)
{
	struct ibv_srq_attr now;
	int rc;

	/* Posts go on meanwhile: the log is large enough before the hardware is. */
	lock_take(&s->lock);
	rc = -srq_grow(s, attr->max_wr);
	lock_give(&s->lock);
	if (rc)
		return rc;
	now = *attr;
	rc = real_verbs.modify_srq(s->real, &now, IBV_SRQ_MAX_WR);
	if (rc)
		return rc;
	if (real_verbs.query_srq(s->real, &now))
		now = *attr;
	lock_take(&s->lock);
	if (srq_grow(s, now.max_wr)) /* rounded up, and no memory for that: what was asked for */
		now.max_wr = attr->max_wr;
	s->cap = now.max_wr;
	lock_give(&s->lock);
	return 0;
}

/* The event may come, and be taken by another thread, before modify_srq() returns. */
static int arm_limit(struct shim_srq *s, struct ibv_srq_attr *attr)
{
	uint32_t before;
	int rc;

	pthread_mutex_lock(&shim.ctl);
	before = s->limit;
	s->limit = attr->srq_limit;
	pthread_mutex_unlock(&shim.ctl);
	rc = real_verbs.modify_srq(s->real, attr, IBV_SRQ_LIMIT);
	if (rc) {
		pthread_mutex_lock(&shim.ctl);
		s->limit = before;
		pthread_mutex_unlock(&shim.ctl);
	}
	return rc;
}

int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct shim_srq *s;
	int rc = 0;

	if (!shim_ours(ibsrq->context))
		return real_verbs.modify_srq(ibsrq, attr, mask);
	s = to_srq(ibsrq);
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	ctl_enter();
	if (mask & IBV_SRQ_MAX_WR)
		rc = resize(s, attr);
	if (!rc && mask & IBV_SRQ_LIMIT)
		rc = arm_limit(s, attr);
	ctl_exit();
	return rc;
}

int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	int rc;

	if (!shim_ours(ibsrq->context))
		return real_verbs.query_srq(ibsrq, attr);
	ctl_enter();
	rc = real_verbs.query_srq(to_srq(ibsrq)->real, attr);
	ctl_exit();
	return rc;
}

int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct shim_srq *s;
	int rc;

	if (!shim_ours(ibsrq->context))
		return real_verbs.destroy_srq(ibsrq);
	s = to_srq(ibsrq);
	ctl_enter();
	if (s->xrcd) /* receives so far are the program's: later nobody would know that */
		cq_harvest(s->cq);
	rc = real_verbs.destroy_srq(s->real);
	if (!rc) {
		pthread_mutex_lock(&shim.ctl);
		list_del(&s->link);
		if (s->xrcd)
			xrc_forget_srq(s);
		context_forget_events(s->pd->ctx, &s->v);
		pthread_mutex_unlock(&shim.ctl);
	}
	ctl_exit();
	if (rc)
		return rc;
	await_acks(&s->v.mutex, &s->v.cond, &s->async_events, &s->v.events_completed);
	srq_free(s);
	return 0;
}
