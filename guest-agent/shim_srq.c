/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared receive queues, address handles, multicast: they work, with keys translated, but do not
 * survive a migration yet; a process that uses them says so in `query`. */
#include "guest-agent/shim.h"

#include <errno.h>
#include <string.h>

static void srq_free(struct shim_srq *s)
{
	free(s->wr_id);
	free(s->free_slots);
	free(s->translated);
	free(s);
}

static int srq_set_up(struct shim_srq *s, struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	s->real = real_verbs.create_srq(to_pd(pd)->real, init);
	if (!s->real)
		return -errno;
	s->cap = init->attr.max_wr;
	s->max_sge = init->attr.max_sge;
	s->wr_id = calloc(s->cap, sizeof(*s->wr_id));
	s->free_slots = calloc(s->cap, sizeof(*s->free_slots));
	s->translated = calloc(s->max_sge ? s->max_sge : 1, sizeof(*s->translated));
	if (!s->wr_id || !s->free_slots || !s->translated) {
		real_verbs.destroy_srq(s->real);
		return -ENOMEM;
	}
	while (s->free_count < s->cap) {
		s->free_slots[s->free_count] = s->free_count;
		s->free_count++;
	}
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct shim_srq *s;
	int rc;

	if (!shim_ours(pd->context))
		return real_verbs.create_srq(pd, init);
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	ctl_enter();
	rc = srq_set_up(s, pd, init);
	ctl_exit();
	if (rc) {
		srq_free(s);
		errno = -rc;
		return NULL;
	}
	s->v = *s->real;
	s->v.context = pd->context;
	s->v.srq_context = init->srq_context;
	s->v.pd = pd;
	pthread_mutex_init(&s->v.mutex, NULL);
	pthread_cond_init(&s->v.cond, NULL);
	shim_set_uncovered("it uses a shared receive queue");
	return &s->v;
}

uint64_t srq_take(struct shim_srq *s, uint32_t slot)
{
	uint64_t wr_id = 0;

	pthread_mutex_lock(&s->lock);
	if (slot < s->cap && s->free_count < s->cap) {
		wr_id = s->wr_id[slot];
		s->free_slots[s->free_count++] = slot;
	}
	pthread_mutex_unlock(&s->lock);
	return wr_id;
}

static int post_one(struct shim_srq *s, const struct ibv_recv_wr *wr)
{
	struct ibv_sge *sge = s->translated;
	struct ibv_recv_wr *bad, real = {.sg_list = sge, .num_sge = wr->num_sge};
	uint32_t slot;
	int rc;

	if (!s->free_count)
		return ENOMEM;
	slot = s->free_slots[s->free_count - 1];
	for (int i = 0; i < wr->num_sge; i++) {
		sge[i] = wr->sg_list[i];
		if (!key_get(&shim.keys, sge[i].lkey, &sge[i].lkey))
			sge[i].lkey = KEY_NONE;
	}
	real.wr_id = TAG_SRQ | slot;
	s->wr_id[slot] = wr->wr_id;
	rc = s->real->context->ops.post_srq_recv(s->real, &real, &bad);
	if (!rc)
		s->free_count--;
	return rc;
}

int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shim_srq *s = to_srq(ibsrq);
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	for (; wr && !rc; wr = rc ? wr : wr->next) {
		rc = wr->num_sge < 0 || (uint32_t)wr->num_sge > s->max_sge ? EINVAL
									   : post_one(s, wr);
		if (rc)
			*bad = wr;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* The object's place is taken by the real one. */
#define FORWARD(ours, call)                                                                        \
	do {                                                                                       \
		int ret_;                                                                          \
		if (!shim_ours((ours)->context))                                                   \
			return real_verbs.call;                                                    \
		ctl_enter();                                                                       \
		ret_ = ({                                                                          \
			FORWARD_TO_REAL;                                                           \
			real_verbs.call;                                                           \
		});                                                                                \
		ctl_exit();                                                                        \
		return ret_;                                                                       \
	} while (0)

#define FORWARD_TO_REAL srq = to_srq(srq)->real
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	FORWARD(srq, modify_srq(srq, attr, mask));
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	FORWARD(srq, query_srq(srq, attr));
}
#undef FORWARD_TO_REAL

int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	int rc;

	if (!shim_ours(ibsrq->context))
		return real_verbs.destroy_srq(ibsrq);
	ctl_enter();
	rc = real_verbs.destroy_srq(to_srq(ibsrq)->real);
	ctl_exit();
	if (rc)
		return rc;
	srq_free(to_srq(ibsrq));
	pthread_mutex_lock(&shim.ctl);
	shim.uncovered_objects--;
	pthread_mutex_unlock(&shim.ctl);
	return 0;
}

#define FORWARD_TO_REAL qp = to_qp(qp)->real
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	FORWARD(qp, attach_mcast(qp, gid, lid));
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	FORWARD(qp, detach_mcast(qp, gid, lid));
}
#undef FORWARD_TO_REAL

/* Address handles are the real ones: only UD QPs use them, and these are not covered. */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah;

	if (!shim_ours(pd->context))
		return real_verbs.create_ah(pd, attr);
	ctl_enter();
	ah = real_verbs.create_ah(to_pd(pd)->real, attr);
	ctl_exit();
	return ah;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	struct ibv_ah *ah;

	if (!shim_ours(pd->context))
		return real_verbs.create_ah_from_wc(pd, wc, grh, port);
	ctl_enter();
	ah = real_verbs.create_ah_from_wc(to_pd(pd)->real, wc, grh, port);
	ctl_exit();
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return real_verbs.destroy_ah(ah);
}
