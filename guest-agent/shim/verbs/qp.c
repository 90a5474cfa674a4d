/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Queue pairs: what modify_qp sets is remembered, so that the QP can be built again. */
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/core/callers.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/peer/lid.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/srq.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>

#define MARKER_SLOTS    1 /* in the send queue */
#define QP_NUMBER_TRIES 64
#define CALL_MS         30000 /* an agent that is gone is noticed at once */
/* Always on: the peer's marker is an RDMA WRITE of zero bytes. */
#define MARKER_ACCESS IBV_ACCESS_REMOTE_WRITE

/* As the program asked for it. The marker needs RDMA WRITE, whatever the program uses. */
static struct ibv_qp *real_create(const struct shim_qp *q, struct ibv_qp_init_attr *init)
{
	struct ibv_pd *pd = q->v.pd ? to_pd(q->v.pd)->real : NULL;
	struct ibv_qp_init_attr_ex ex = {.comp_mask = q->ex.mask,
					 .pd = pd,
					 .xrcd = q->xrcd ? q->xrcd->real : NULL,
					 .create_flags = q->ex.create_flags,
					 .send_ops_flags = q->ex.send_ops};
	struct ibv_qp *real;

	if (!q->ex.mask)
		return real_verbs.create_qp(pd, init);
	ex.qp_context = init->qp_context;
	ex.send_cq = init->send_cq;
	ex.recv_cq = init->recv_cq;
	ex.srq = init->srq;
	ex.cap = init->cap;
	ex.qp_type = init->qp_type;
	ex.sq_sig_all = init->sq_sig_all;
	if (ex.send_ops_flags && (ex.qp_type == IBV_QPT_RC || ex.qp_type == IBV_QPT_UC ||
				  ex.qp_type == IBV_QPT_XRC_SEND))
		ex.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
	real = ibv_create_qp_ex(q->ctx->real, &ex);
	if (real)
		init->cap = ex.cap;
	return real;
}

/* 0 or -errno; *cap is set to what the hardware gave. */
static int create_once(struct shim_qp *q, struct ibv_qp **ret_real, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr a = q->init;
	struct ibv_qp *real;

	a.qp_context = q;
	a.send_cq = q->send_cq ? q->send_cq->real : NULL;
	a.recv_cq = q->recv_cq ? q->recv_cq->real : NULL;
	a.srq = a.srq ? to_srq(a.srq)->real : NULL;
	if (a.cap.max_send_wr < INT_MAX && !q->xrcd) /* more is for the device to refuse */
		a.cap.max_send_wr += MARKER_SLOTS;
	real = real_create(q, &a);
	if (!real && errno == EINVAL) { /* the device's maximum was asked for */
		a.cap = q->init.cap;
		real = real_create(q, &a);
	}
	if (!real)
		return -errno;
	*cap = a.cap;
	*ret_real = real;
	return 0;
}

/* Around what several threads may write: tables of QPNs, and the contexts' .gid_at. */
static pthread_mutex_t several = PTHREAD_MUTEX_INITIALIZER;

void qp_forget_all(void)
{
	pthread_mutex_init(&several, NULL);
}

static int qp_bind_real(struct shim_qp *q, struct ibv_qp *real)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&several);

	q->real = real;
	return table_set(&q->ctx->qp_by_qpn, real->qp_num, (uintptr_t)q, TABLE_MAX / TABLE_CHUNK);
}

/* The real QP: after each migration. 0 or -errno. */
int qp_create_real(struct shim_qp *q)
{
	struct ibv_qp_cap cap;
	struct ibv_qp *real = NULL;
	int rc = create_once(q, &real, &cap);

	if (!rc && q->ece_set)
		rc = -real_verbs.set_ece(real, &q->ece);
	if (!rc)
		rc = qp_bind_real(q, real);
	else if (real)
		real_verbs.destroy_qp(real);
	return rc;
}

/* Completions of receives from shared queues, into software queues. */
static void harvest_shared(struct shim_qp *q)
{
	if (q->xrcd)
		xrc_harvest(q);
	else if (q->v.srq)
		cq_harvest(q->recv_cq);
}

void qp_destroy_real(struct shim_qp *q)
{
	struct ibv_qp *real;
	uint32_t qpn;

	lock_take(&q->send.lock);
	lock_take(&q->recv.lock);
	real = TAKE(q->real);
	queue_leave_direct(&q->send);
	queue_leave_direct(&q->recv);
	lock_give(&q->recv.lock);
	lock_give(&q->send.lock);
	if (!real)
		return;
	qpn = real->qp_num;
	real_verbs.destroy_qp(real);
	harvest_shared(q); /* a completion that is dropped would cost the queue a slot */
	table_set(&q->ctx->qp_by_qpn, qpn, 0, TABLE_MAX / TABLE_CHUNK);
	cq_forget_qp(q->send_cq, q);
	cq_forget_qp(q->recv_cq, q);
	if (q->xrcd)
		xrc_forget_qp(q);
	q->marker = false;
	srq_unhold(q);
}

/* Claims the number at the agent, which refuses one that another QP of this guest has. 0: any. */
static int claim_number(uint32_t *vqpn)
{
	struct shim_qp_number n = {.head = {.bytes = sizeof(n), .type = SHIM_QP_ADD},
				   .vqpn = *vqpn};
	struct shim_qp_number answer;
	int rc;

	do
		rc = shim_call(&n, &answer, sizeof(answer), CALL_MS);
	while (rc == -ECONNRESET && shim_await_agent(SHIM_AGENT_BACK_MS));
	if (!rc)
		*vqpn = answer.vqpn;
	return rc;
}

static void release_number(uint32_t vqpn)
{
	struct shim_qp_number n = {.head = {.bytes = sizeof(n), .type = SHIM_QP_DEL}, .vqpn = vqpn};

	shim_send(&n);
}

/* The virtual number is the hardware's, so that it also means something to peers without a shim.
 * After a migration another QP may still go by it: then the hardware is asked for the next one. A
 * process that has named many numbers, whatever for, keeps nobody from getting one: the agent's. */
static int create_numbered(struct shim_qp *q, struct ibv_qp **ret_real, struct ibv_qp_cap *cap,
			   uint32_t *ret_vqpn)
{
	struct ibv_qp *taken[QP_NUMBER_TRIES];
	unsigned n = 0;
	int rc;

	while (!(rc = create_once(q, ret_real, cap))) {
		*ret_vqpn = n < QP_NUMBER_TRIES - 1 ? (*ret_real)->qp_num : 0;
		rc = claim_number(ret_vqpn);
		if (!rc)
			break;
		taken[n++] = *ret_real;
		if (rc != -EADDRINUSE || n == QP_NUMBER_TRIES)
			break;
	}
	while (n)
		real_verbs.destroy_qp(taken[--n]);
	return rc;
}

static void qp_free(struct shim_qp *q)
{
	queue_free(&q->send);
	queue_free(&q->recv);
	builder_free(q->builder);
	ud_free(q);
	free(q);
}

static bool is_xrc(enum ibv_qp_type type)
{
	return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

/* True if the QP has a receive queue of its own. */
static bool has_receives(const struct shim_qp *q)
{
	return !q->init.srq && !is_xrc(q->init.qp_type);
}

static int qp_set_up(struct shim_qp *q, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_cap cap;
	struct ibv_qp *real;
	uint32_t vqpn;
	int rc = create_numbered(q, &real, &cap, &vqpn);

	if (rc)
		return rc;
	if (cap.max_send_wr > init->cap.max_send_wr)
		cap.max_send_wr -= MARKER_SLOTS;
	rc = queue_init(&q->send, cap.max_send_wr, cap.max_send_sge, cap.max_inline_data, true);
	if (!rc)
		rc = queue_init(&q->recv, has_receives(q) ? cap.max_recv_wr : 0, cap.max_recv_sge,
				0, false);
	if (!rc && q->ex.mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		rc = builder_init(q);
	if (!rc)
		rc = qp_bind_real(q, real);
	if (rc) {
		release_number(vqpn);
		real_verbs.destroy_qp(real);
		return rc;
	}
	q->init.cap = init->cap = cap;
	q->v = *real;
	q->v.qp_num = vqpn;
	pthread_mutex_init(&q->v.mutex, NULL);
	pthread_cond_init(&q->v.cond, NULL);
	return 0;
}

/* Undoes qp_set_up(). */
static void qp_take_down(struct shim_qp *q)
{
	release_number(q->v.qp_num);
	table_set(&q->ctx->qp_by_qpn, q->real->qp_num, 0, TABLE_MAX / TABLE_CHUNK);
	real_verbs.destroy_qp(TAKE(q->real));
}

const char *qp_type_uncovered(const struct ibv_qp_init_attr *init)
{
	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC &&
	    init->qp_type != IBV_QPT_UD && !is_xrc(init->qp_type))
		return "only RC, UC, UD and XRC QPs are covered";
	return NULL;
}

struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_pd *pd,
			 struct ibv_qp_init_attr *init, const struct shim_qp_ex *ex)
{
	struct shim_qp *q;
	int rc;

	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->ctx = to_context(context);
	q->send_cq = init->send_cq ? to_cq(init->send_cq) : NULL;
	q->recv_cq = init->recv_cq ? to_cq(init->recv_cq) : NULL;
	q->init = *init;
	if (is_xrc(init->qp_type))
		q->init.srq = NULL; /* libibverbs does not look at it */
	if (ex)
		q->ex = *ex;
	if (q->ex.xrcd)
		q->xrcd = to_xrcd(q->ex.xrcd);
	q->uncovered = qp_type_uncovered(init);
	list_init(&q->change.link);
	q->v.pd = pd;
	list_init(&q->untold);
	if (ud_init(q)) {
		free(q);
		return NULL;
	}
	ctl_enter();
	rc = qp_set_up(q, init);
	if (!rc) {
		q->v.context = context;
		q->v.qp_context = init->qp_context;
		q->v.pd = pd;
		q->v.send_cq = init->send_cq;
		q->v.recv_cq = init->recv_cq;
		q->v.srq = q->init.srq;
		pthread_mutex_lock(&shim.ctl);
		rc = table_set(&shim.qp_by_vqpn, q->v.qp_num, (uintptr_t)q,
			       TABLE_MAX / TABLE_CHUNK);
		if (!rc)
			list_add(&shim.qps, &q->link);
		pthread_mutex_unlock(&shim.ctl);
		if (rc)
			qp_take_down(q);
	}
	ctl_exit();
	if (rc) {
		qp_free(q);
		errno = -rc;
		return NULL;
	}
	return &q->v;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return shim_ours(pd->context) ? qp_create(pd->context, pd, init, NULL)
				      : real_verbs.create_qp(pd, init);
}

/* A reader of the CQ may just look at the QP: it is done when it lets go of the lock. */
static void cq_purge(struct shim_cq *cq, const struct shim_qp *q)
{
	uint32_t to, from;

	if (!cq)
		return;
	cq_forget_qp(cq, q);
	lock_take(&cq->lock);
	for (to = from = cq->soft_tail; from != cq->soft_head; from++) {
		const struct ibv_wc *wc = &cq->soft[from & (cq->soft_room - 1)];

		if (wc->qp_num != q->v.qp_num)
			cq->soft[to++ & (cq->soft_room - 1)] = *wc;
	}
	cq->soft_head = to;
	lock_give(&cq->lock);
}

/* The slots of receives that have completed come back to the shared queue: before the QP's number
 * may be another one's, and from a QP that completes no more. */
static void leave_srq(struct shim_qp *q)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	if ((q->v.srq || q->xrcd) && !q->ud)
		real_verbs.modify_qp(q->real, &error, IBV_QP_STATE);
	harvest_shared(q);
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct shim_qp *q;
	int rc = 0;

	if (!shim_ours(ibqp->context))
		return real_verbs.destroy_qp(ibqp);
	q = to_qp(ibqp);
	ctl_enter();
	leave_srq(q);
	parts_qp_gone(ibqp);
	table_set(&q->ctx->qp_by_qpn, q->real->qp_num, 0, TABLE_MAX / TABLE_CHUNK);
	rc = real_verbs.destroy_qp(q->real);
	if (rc) {
		qp_bind_real(q, q->real);
		pthread_mutex_lock(&shim.ctl);
		q->change.ended = false; /* its program has it still */
		pthread_mutex_unlock(&shim.ctl);
		ctl_exit();
		return rc;
	}
	pthread_mutex_lock(&shim.ctl);
	if (q->ud)
		ud_bye(q);
	table_set(&shim.qp_by_vqpn, q->v.qp_num, 0, TABLE_MAX / TABLE_CHUNK);
	list_del(&q->link);
	list_del(&q->untold);
	if (q->ud)
		ah_reap();
	context_forget_events(q->ctx, &q->v);
	pthread_mutex_unlock(&shim.ctl);
	srq_unhold(q);
	mw_forget_qp(q);
	release_number(q->v.qp_num);
	cq_purge(q->send_cq, q);
	if (q->recv_cq != q->send_cq)
		cq_purge(q->recv_cq, q);
	if (q->xrcd)
		xrc_forget_qp(q);
	ud_free(q); /* with what it has of the device */
	ctl_exit();
	await_acks(&q->v.mutex, &q->v.cond, &q->async_events, &q->v.events_completed);
	qp_free(q);
	return 0;
}

void qp_leave(struct shim_qp *q)
{
	if (q->ud)
		ud_bye(q);
	table_set(&shim.qp_by_vqpn, q->v.qp_num, 0, TABLE_MAX / TABLE_CHUNK);
	list_del(&q->untold);
	list_del(&q->change.link);
	release_number(q->v.qp_num);
}

static void remember(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
#define KEEP(bit, field)                                                                           \
	if (mask & (bit))                                                                          \
	to->field = a->field
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_QKEY, qkey);
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_ALT_PATH, alt_ah_attr);
	KEEP(IBV_QP_ALT_PATH, alt_pkey_index);
#undef KEEP
}

static struct shim_way way_of(const struct ibv_qp_attr *a)
{
	return (struct shim_way){.dlid = a->ah_attr.dlid,
				 .sl = a->ah_attr.sl,
				 .static_rate = a->ah_attr.static_rate,
				 .mtu = a->path_mtu};
}

/* The attributes for RTR, with the path record of now. */
static struct ibv_qp_attr routed(const struct shim_qp *q)
{
	struct ibv_qp_attr a = q->attr;

	route_apply(route_get(q->sgid, q->dgid, q->pkey), &a);
	if (q->change.mtu)
		a.path_mtu = q->change.mtu;
	return a;
}

uint32_t qp_random_psn(void)
{
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), 0) < 0)
		psn = (uint32_t)now_us();
	return psn & 0xffffff;
}

struct shim_way qp_way(const struct shim_qp *q)
{
	const struct ibv_qp_attr a = routed(q);

	return way_of(&a);
}

void qp_forget_change(struct shim_qp *q)
{
	struct shim_change *c = &q->change;

	if (c->state >= CHANGE_HELD)
		qp_flush(q);
	list_del(&c->link);
	*c = (struct shim_change){.link = LIST_INIT(c->link)};
}

/* RESET forgets the connection and all that is queued. Completions that the hardware leaves in the
 * CQs (rdma_rxe does) come first: they are for numbers of the log, which begin anew. */
static void qp_forget(struct shim_qp *q)
{
	if (q->send_cq)
		cq_harvest(q->send_cq);
	if (q->recv_cq)
		cq_harvest(q->recv_cq);
	mw_reset_qp(q);
	q->marker = false;
	queue_reset(&q->send);
	queue_reset(&q->recv);
	q->others = q->recv_lost = 0;
	q->uncounted = false;
	pthread_mutex_lock(&shim.ctl);
	qp_forget_change(q);
	q->connected = q->resolved = false;
	q->peer = NULL;
	list_del(&q->untold);
	q->dvqpn = q->dqpn = 0;
	q->wanted.type = 0;
	if (q->phase == QP_WAIT_PEER) /* for the word of an end that is none any more */
		qp_unhold(q);
	pthread_mutex_unlock(&shim.ctl);
	q->uncovered = qp_type_uncovered(&q->init);
	ud_reset(q);
}

/* The device's index of the program's. 0 or errno. */
static int to_device_pkey(const struct shim_qp *q, uint8_t port, uint16_t *index)
{
	int at = pkey_index(q->ctx, port, *index);

	if (at < 0)
		return -at;
	*index = (uint16_t)at;
	return 0;
}

static int to_device_gid(const struct shim_qp *q, struct ibv_ah_attr *ah)
{
	int at = 0;

	if (ah->is_global)
		at = gid_index_at_device(q->ctx, ah->port_num ? ah->port_num : q->attr.port_num,
					 ah->grh.sgid_index);
	if (at < 0)
		return -at;
	if (ah->is_global)
		ah->grh.sgid_index = (uint8_t)at;
	return 0;
}

/* The same for all that the mask names. */
static int to_device(const struct shim_qp *q, struct ibv_qp_attr *a, int mask)
{
	uint8_t port = mask & IBV_QP_PORT ? a->port_num : q->attr.port_num;
	int rc = mask & IBV_QP_PKEY_INDEX ? to_device_pkey(q, port, &a->pkey_index) : 0;

	if (!rc && mask & IBV_QP_AV)
		rc = to_device_gid(q, &a->ah_attr);
	if (!rc && mask & IBV_QP_ALT_PATH)
		rc = to_device_pkey(q, a->alt_port_num, &a->alt_pkey_index);
	if (!rc && mask & IBV_QP_ALT_PATH)
		rc = to_device_gid(q, &a->alt_ah_attr);
	return rc;
}

static uint8_t port_of(const struct ibv_qp_attr *a)
{
	return a->ah_attr.port_num ? a->ah_attr.port_num : a->port_num;
}

/* The port at the end of the alternate path: the other end's, if its LID may be that of several. */
static struct shim_route *alternate_route(const struct shim_qp *q, const struct ibv_qp_attr *attr)
{
	const struct ibv_ah_attr *ah = &attr->alt_ah_attr;
	uint16_t pkey = pkey_value(q->ctx, attr->alt_port_num, attr->alt_pkey_index);
	struct ibv_ah_attr at = *ah;
	struct shim_route *r = NULL;
	struct lid_ends ends;
	union ibv_gid gid;
	unsigned i = 0;

	if (ah->is_global) {
		if (!to_device_gid(q, &at) &&
		    !real_verbs.query_gid(q->ctx->real, attr->alt_port_num, at.grh.sgid_index,
					  &gid))
			r = route_get(gid.raw, ah->grh.dgid.raw, pkey);
		if (r)
			route_renew(r);
		return r;
	}
	if (lid_find_ends(q->ctx, attr->alt_port_num, ah->dlid, pkey, false, &ends))
		return NULL;
	while (i + 1 < ends.count && memcmp(ends.dgid[i], q->dgid, 16))
		i++;
	return route_get(ends.sgid, ends.dgid[i], pkey);
}

/* Asks for the other end: a becomes what leads there. What the program wants is remembered for as
 * long. 0 or errno. */
static int find_end(struct shim_qp *q, const struct ibv_qp_attr *attr, int mask, bool by_cm,
		    struct ibv_qp_attr *a)
{
	int rc;

	remember(&q->attr, attr, mask);
	q->pkey = pkey_value(q->ctx, port_of(&q->attr), q->attr.pkey_index);
	rc = to_device_gid(q, &a->ah_attr);
	if (!rc)
		rc = peer_connect(q, a->ah_attr.grh.sgid_index, by_cm);
	a->ah_attr = attr->ah_attr;
	if (rc)
		return rc;
	a->dest_qp_num = q->dqpn;
	if (q->resolved && !by_cm)
		lid_translate(q->ctx, route_get(q->sgid, q->dgid, q->pkey), &a->ah_attr);
	return 0;
}

/* A QP that the hardware has not connected is connected to nobody. */
static void disconnect(struct shim_qp *q)
{
	pthread_mutex_lock(&shim.ctl);
	q->connected = q->resolved = false;
	q->peer = NULL;
	list_del(&q->untold);
	pthread_mutex_unlock(&shim.ctl);
	q->uncovered = qp_type_uncovered(&q->init);
}

/* As the hardware has it: 0 or errno. a: attr, with the device's indices and numbers. */
static int modify_real(struct shim_qp *q, const struct ibv_qp_attr *attr, int mask,
		       struct ibv_qp_attr *a)
{
	int rc;

	if (mask & IBV_QP_ALT_PATH)
		lid_translate(q->ctx, alternate_route(q, attr), &a->alt_ah_attr);
	rc = to_device(q, a, mask); /* a move may have come while others were asked */
	if (rc)
		return rc;
	if (mask & IBV_QP_SQ_PSN && q->psn_override)
		a->sq_psn = q->psn;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET)
		harvest_shared(q);
	return real_verbs.modify_qp(q->real, a, mask);
}

/* by_cm: the kernel has looked the path up just now. */
static int modify(struct shim_qp *q, struct ibv_qp_attr *attr, int mask, bool by_cm)
{
	const bool connects = mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR &&
			      mask & IBV_QP_DEST_QPN && q->v.qp_type != IBV_QPT_UD;
	const struct ibv_qp_attr before = q->attr;
	const uint16_t pkey = q->pkey;
	struct ibv_qp_attr a = *attr;
	int rc = connects ? find_end(q, attr, mask, by_cm, &a) : 0;

	if (mask & IBV_QP_ACCESS_FLAGS)
		a.qp_access_flags |= MARKER_ACCESS;
	if (!rc)
		rc = modify_real(q, attr, mask, &a);
	if (rc && connects) {
		q->attr = before;
		q->pkey = pkey;
		disconnect(q);
	}
	if (rc)
		return rc;
	if (mask & IBV_QP_SQ_PSN)
		q->psn_override = false;
	if (mask & IBV_QP_PKEY_INDEX)
		q->pkey_at = a.pkey_index;
	if (connects)
		q->way = way_of(&a);
	remember(&q->attr, attr, mask);
	q->attr_mask |= mask;
	if (mask & IBV_QP_ALT_PATH)
		q->uncovered = "it has an alternate path (APM)";
	if (mask & IBV_QP_STATE) {
		q->v.state = attr->qp_state;
		if (attr->qp_state == IBV_QPS_RESET)
			qp_forget(q);
	}
	return 0;
}

/* The kernel tells librdmacm the device's indices. */
static int modify_by_cm(struct shim_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr a = *attr;

	if (mask & IBV_QP_PKEY_INDEX)
		a.pkey_index = (uint16_t)pkey_index_of_device(
			q->ctx, mask & IBV_QP_PORT ? a.port_num : q->attr.port_num, a.pkey_index);
	if (mask & IBV_QP_AV && a.ah_attr.is_global)
		a.ah_attr.grh.sgid_index = (uint8_t)gid_index_of_device(q->ctx, port_of(&a),
									a.ah_attr.grh.sgid_index);
	return modify(q, &a, mask, true);
}

int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	bool by_cm = cm_opens_device(__builtin_return_address(0));
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.modify_qp(ibqp, attr, mask);
	ctl_enter();
	rc = by_cm ? modify_by_cm(to_qp(ibqp), attr, mask) : modify(to_qp(ibqp), attr, mask, false);
	ctl_exit();
	return rc;
}

/* A QP on its way to another path, which takes several tries, is where its program has it. */
static void hide_turn(const struct shim_qp *q, struct ibv_qp_attr *attr)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&shim.ctl);

	if (q->change.state == CHANGE_DRAINED && attr->qp_state < IBV_QPS_RTR)
		attr->qp_state = q->v.state;
}

int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct shim_qp *q;
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.query_qp(ibqp, attr, mask, init);
	q = to_qp(ibqp);
	ctl_enter();
	rc = real_verbs.query_qp(q->real, attr, mask, init);
	if (!rc) {
		hide_turn(q, attr);
		*init = q->init;
		init->qp_context = ibqp->qp_context;
		attr->cap = q->init.cap;
		attr->dest_qp_num = q->attr.dest_qp_num;
		if (q->attr_mask & IBV_QP_ACCESS_FLAGS)
			attr->qp_access_flags = q->attr.qp_access_flags;
		if (q->attr_mask & IBV_QP_PKEY_INDEX)
			attr->pkey_index = q->attr.pkey_index;
		if (q->attr_mask & IBV_QP_AV && attr->ah_attr.is_global)
			attr->ah_attr.grh.sgid_index = q->attr.ah_attr.grh.sgid_index;
		if (q->attr_mask & IBV_QP_AV)
			attr->ah_attr.dlid = q->attr.ah_attr.dlid;
		if (q->attr_mask & IBV_QP_ALT_PATH) {
			attr->alt_ah_attr = q->attr.alt_ah_attr;
			attr->alt_pkey_index = q->attr.alt_pkey_index;
		}
		q->v.state = attr->qp_state;
	}
	ctl_exit();
	return rc;
}

/* From RESET or INIT. A device whose port is not ACTIVE may have no P_Keys yet. No resume connects
 * a QP before they are there (job/pkeys.c). */
int qp_set_init(struct shim_qp *q)
{
	struct ibv_qp_attr a = q->attr;
	int rc = to_device_pkey(q, a.port_num, &a.pkey_index);

	q->pkey_at = rc ? PKEY_NOWHERE : a.pkey_index;
	a.qp_state = IBV_QPS_INIT;
	a.qp_access_flags |= MARKER_ACCESS;
	return -real_verbs.modify_qp(q->real, &a,
				     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     (q->ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

/* INIT as the program had it, with all receives that have not been consumed. 0 or -errno. */
int qp_to_init(struct shim_qp *q)
{
	int rc = qp_set_init(q);

	if (rc)
		return rc;
	lock_take(&q->recv.lock);
	queue_hold(&q->recv, false);
	q->recv.posted = atomic_load(&q->recv.tail);
	recv_flush(q);
	queue_hold(&q->recv, true);
	lock_give(&q->recv.lock);
	return 0;
}

void qp_keep_gids(struct shim_context *c, bool keep)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&several);

	c->gids_at = 0;
	c->gids_kept = keep;
}

/* -ENOENT: not looked up yet. */
static int known_gid(struct shim_context *c, uint8_t port, const uint8_t gid[16])
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&several);

	for (unsigned i = 0; i < c->gids_at; i++)
		if (c->gid_at[i].port == port && !memcmp(c->gid_at[i].gid, gid, 16))
			return c->gid_at[i].index;
	return -ENOENT;
}

static void note_gid(struct shim_context *c, uint8_t port, const uint8_t gid[16], int index)
{
	pthread_mutex_t *locked AUTO_UNLOCK = mutex_lock(&several);

	if (!c->gids_kept || c->gids_at == SHIM_GIDS_MAX)
		return;
	memcpy(c->gid_at[c->gids_at].gid, gid, 16);
	c->gid_at[c->gids_at].port = port;
	c->gid_at[c->gids_at++].index = index;
}

int gid_index(struct shim_context *c, uint8_t port, const uint8_t gid[16])
{
	int index = known_gid(c, port, gid);

	if (index != -ENOENT)
		return index;
	index = gid_find(c, port, gid);
	if (index >= 0)
		note_gid(c, port, gid, index);
	return index;
}

/* The path may be another one now. */
static int remap_path(const struct shim_qp *q, struct ibv_qp_attr *ret_attr)
{
	int index = gid_index(q->ctx, q->attr.port_num, q->sgid);

	if (index < 0)
		return index;
	*ret_attr = routed(q);
	ret_attr->ah_attr.grh.sgid_index = (uint8_t)index;
	return 0;
}

int qp_start_over(struct shim_qp *q)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	int rc = real_verbs.modify_qp(q->real, &a, IBV_QP_STATE);

	q->joined = false;
	return rc ? -rc : qp_to_init(q);
}

/* RTR and, if the program had got that far, RTS; with fresh PSNs. 0 or -errno. */
int qp_to_connected(struct shim_qp *q)
{
	/* A responder and an initiator of RC need attributes for which UC has no use; an XRC QP is
	 * one of the two. See IBA 1.4, 10.2.4.2 (modify QP), and qp_state_table of ib_core in
	 * Linux. */
	const enum ibv_qp_type type = q->v.qp_type;
	const bool responds = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
	const bool initiates = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	const int rtr = responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	const int rts = (responds || initiates ? IBV_QP_TIMEOUT : 0) |
			(initiates ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
				   : 0);
	struct ibv_qp_attr a;
	int rc = remap_path(q, &a);

	if (rc)
		return rc;
	a.qp_state = IBV_QPS_RTR;
	a.dest_qp_num = q->said.qpn;
	a.rq_psn = q->said.psn;
	rc = real_verbs.modify_qp(q->real, &a,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | rtr);
	if (!rc)
		q->way = way_of(&a);
	if (rc || q->v.state < IBV_QPS_RTS)
		return -rc;
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = q->psn;
	return -real_verbs.modify_qp(q->real, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | rts);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibqp)
{
	if (!shim_ours(ibqp->context))
		return real_verbs.qp_to_qp_ex(ibqp);
	return to_qp(ibqp)->builder ? &to_qp(ibqp)->vex : NULL;
}

int ibv_query_qp_data_in_order(struct ibv_qp *ibqp, enum ibv_wr_opcode op, uint32_t flags)
{
	/* Replays write again: no order is promised. */
	return shim_ours(ibqp->context) ? 0 : real_verbs.query_qp_data_in_order(ibqp, op, flags);
}

/* The device answers; many have no ECE. */
int ibv_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.query_ece(ibqp, ece);
	ctl_enter();
	rc = real_verbs.query_ece(to_qp(ibqp)->real, ece);
	ctl_exit();
	return rc;
}

int ibv_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct shim_qp *q;
	int rc;

	if (!shim_ours(ibqp->context))
		return real_verbs.set_ece(ibqp, ece);
	q = to_qp(ibqp);
	ctl_enter();
	rc = real_verbs.set_ece(q->real, ece);
	if (!rc) { /* set again on each QP that takes its place */
		q->ece = *ece;
		q->ece_set = true;
	}
	ctl_exit();
	return rc;
}
