/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/verbs/verbs.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

static struct ibv_device device = {.node_type = IBV_NODE_CA,
				   .transport_type = IBV_TRANSPORT_IB,
				   .name = FAKE_DEVICE,
				   .dev_name = "uverbs-" FAKE_DEVICE};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_qp *qps[FAKE_QPS];
static struct ibv_mr *mrs[FAKE_MRS];
/* Numbers are not given out twice: after a migration all are new. */
static uint32_t last_qpn = 0x100, last_key = 0x100;
static unsigned next_qp, next_mr; /* the search for a free slot begins there, in turn */
static uint64_t guid = FAKE_GUID;
static unsigned call_us;
static bool clean_on_reset;
static struct ibv_context *opened; /* the last */
static struct ibv_async_event next_event;
struct fake_newest fake_newest;

static struct {
	_Atomic(uint64_t) create_qp, modify_qp, query_gid;
} calls;

struct fake_calls fake_calls(void)
{
	return (struct fake_calls){calls.create_qp, calls.modify_qp, calls.query_gid};
}

static unsigned alt_dlid;

unsigned fake_alt_dlid(void)
{
	return alt_dlid;
}

void fake_slow_calls(unsigned us)
{
	call_us = us;
}

static void firmware(void)
{
	if (call_us)
		usleep(call_us);
}

void fake_lock(void)
{
	pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct fake_qp *fake_qp_at(unsigned slot)
{
	return slot < FAKE_QPS ? qps[slot] : NULL;
}

struct fake_qp *fake_qp_by_number(uint32_t qpn)
{
	for (unsigned i = 0; i < FAKE_QPS; i++)
		if (qps[i] && qps[i]->v.qp_num == qpn)
			return qps[i];
	return NULL;
}

struct ibv_mr *fake_mr_by_key(uint32_t key, uint64_t addr, uint64_t length)
{
	for (unsigned i = 0; i < FAKE_MRS; i++) {
		struct ibv_mr *m = mrs[i];

		if (m && m->lkey == key && addr >= (uintptr_t)m->addr &&
		    addr + length <= (uintptr_t)m->addr + m->length)
			return m;
	}
	return NULL;
}

/* Devices */
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (!list)
		return NULL;
	list[0] = &device;
	if (n)
		*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	(void)d;
	return htobe64(guid);
}

/* The LID of its port. */
static _Atomic(uint16_t) port_lid = 1;

unsigned fake_lid(unsigned lid)
{
	if (lid)
		port_lid = (uint16_t)lid;
	return port_lid;
}

static struct ibv_ah_attr last_ah;

struct ibv_ah_attr fake_last_ah(void)
{
	return last_ah;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fake_ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return NULL;
	ah->v.context = pd->context;
	ah->v.pd = pd;
	ah->attr = last_ah = *attr;
	return &ah->v;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	return 0;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
	struct ibv_port_attr a = {.state = IBV_PORT_ACTIVE,
				  .max_mtu = IBV_MTU_4096,
				  .active_mtu = IBV_MTU_4096,
				  .gid_tbl_len = FAKE_GIDS,
				  .pkey_tbl_len = FAKE_PKEYS,
				  .lid = (uint16_t)fake_lid(0),
				  .link_layer = IBV_LINK_LAYER_INFINIBAND};

	(void)c;
	if (port != 1)
		return EINVAL;
	memset(attr, 0, bytes);
	memcpy(attr, &a, bytes < sizeof(a) ? bytes : sizeof(a));
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(c, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static uint64_t alias_guids[FAKE_GIDS]; /* from index 1 on */

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	calls.query_gid++;
	if (port != 1 || index < 0 || index >= FAKE_GIDS) {
		errno = EINVAL;
		return -1;
	}
	gid->global.subnet_prefix = htobe64(0xfe80000000000000ull);
	gid->global.interface_id = htobe64(index ? alias_guids[index] : guid);
	return 0;
}

void fake_write_grh(uint8_t grh[FAKE_GRH], struct ibv_wc *wc)
{
	union ibv_gid gid;

	ibv_query_gid(NULL, 1, 0, &gid);
	memset(grh, 0, FAKE_GRH);
	grh[0] = 0x60; /* IBA 1.4, 8.3: version 6 */
	memcpy(grh + 8, gid.raw, 16);
	memcpy(grh + 24, gid.raw, 16);
	wc->wc_flags |= IBV_WC_GRH;
}

void fake_aliases(const uint64_t guids[FAKE_GIDS])
{
	fake_lock();
	memcpy(alias_guids, guids, sizeof(alias_guids));
	fake_unlock();
}

unsigned fake_qps_from(uint64_t from)
{
	unsigned n = 0;

	fake_lock();
	for (unsigned i = 0; i < FAKE_QPS; i++)
		n += qps[i] && qps[i]->from == from;
	fake_unlock();
	return n;
}

static bool is_connected(const struct fake_qp *q)
{
	return q && (q->v.state == IBV_QPS_RTR || q->v.state == IBV_QPS_RTS);
}

unsigned fake_qps_on(unsigned sl)
{
	unsigned n = 0;

	fake_lock();
	for (unsigned i = 0; i < FAKE_QPS; i++)
		n += is_connected(qps[i]) && qps[i]->sl == sl;
	fake_unlock();
	return n;
}

unsigned fake_qps_at_mtu(enum ibv_mtu mtu)
{
	unsigned n = 0;

	fake_lock();
	for (unsigned i = 0; i < FAKE_QPS; i++)
		n += is_connected(qps[i]) && qps[i]->mtu == mtu;
	fake_unlock();
	return n;
}

/* The P_Key table of its port. */
static uint16_t pkeys[FAKE_PKEYS] = {0xffff};

void fake_pkeys(const uint16_t table[FAKE_PKEYS])
{
	fake_lock();
	memcpy(pkeys, table, sizeof(pkeys));
	fake_unlock();
}

unsigned fake_qps_in(uint16_t pkey)
{
	unsigned n = 0;

	fake_lock();
	for (unsigned i = 0; i < FAKE_QPS; i++)
		n += qps[i] && qps[i]->pkey == pkey;
	fake_unlock();
	return n;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	(void)c;
	if (port != 1 || index < 0 || index >= FAKE_PKEYS) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(pkeys[index]);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 pkey)
{
	__be16 at;

	for (int i = 0;; i++) {
		if (ibv_query_pkey(c, port, i, &at))
			return -1;
		if (at == pkey)
			return i;
	}
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	*attr = (struct ibv_device_attr){.max_qp = FAKE_QPS,
					 .max_qp_wr = FAKE_RING,
					 .max_sge = 1,
					 .max_cqe = FAKE_RING,
					 .max_mr = FAKE_MRS,
					 .device_cap_flags = IBV_DEVICE_XRC,
					 .phys_port_cnt = 1};
	return 0;
}

/* The data path that completes at once. */
static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_cq *cq = (struct fake_cq *)ibqp->send_cq;

	(void)bad;
	for (; wr; wr = wr->next) {
		struct ibv_wc *wc = &cq->ring[cq->head++ & (FAKE_RING - 1)];

		wc->wr_id = wr->wr_id;
		wc->qp_num = ibqp->qp_num;
	}
	return 0;
}

static int post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_cq *cq = (struct fake_cq *)ibqp->recv_cq;

	(void)bad;
	for (; wr; wr = wr->next) {
		struct ibv_wc *wc = &cq->ring[cq->head++ & (FAKE_RING - 1)];

		wc->wr_id = wr->wr_id;
		wc->qp_num = ibqp->qp_num;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int got = 0;

	while (got < n && cq->tail != cq->head) {
		const struct ibv_wc *from = &cq->ring[cq->tail++ & (FAKE_RING - 1)];

		wc[got].wr_id = from->wr_id;
		wc[got].status = IBV_WC_SUCCESS;
		wc[got].opcode = IBV_WC_SEND;
		wc[got].qp_num = from->qp_num;
		got++;
	}
	return got;
}

static int req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;

	fake_lock();
	cq->solicited_only = solicited_only && (cq->solicited_only || !cq->armed);
	cq->armed = true;
	fake_unlock();
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct verbs_context *v = calloc(1, sizeof(*v));
	struct ibv_context *c = &v->context;
	bool wire = getenv(FAKE_WIRE_ENV) != NULL;

	if (!v)
		return NULL;
	if (getenv(FAKE_GUID_ENV))
		guid = strtoull(getenv(FAKE_GUID_ENV), NULL, 16);
	if (getenv(FAKE_CALL_ENV))
		call_us = (unsigned)atoi(getenv(FAKE_CALL_ENV));
	c->device = d;
	c->cmd_fd = -1;
	c->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->num_comp_vectors = 1;
	c->ops.post_send = wire ? fake_wire_post_send : post_send;
	c->ops.post_recv = wire ? fake_wire_post_recv : post_recv;
	c->ops.poll_cq = wire ? fake_wire_poll_cq : poll_cq;
	c->ops.req_notify_cq = req_notify_cq;
	pthread_mutex_init(&c->mutex, NULL);
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->query_port = query_port;
	fake_xrc_set_ops(v);
	v->sz = sizeof(*v);
	if (wire)
		fake_wire_start();
	fake_lock();
	opened = c;
	fake_unlock();
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	fake_lock();
	if (opened == c)
		opened = NULL;
	fake_unlock();
	close(c->async_fd);
	free(verbs_get_ctx(c));
	return 0;
}

int fake_event(enum ibv_event_type type)
{
	struct ibv_async_event event = {.event_type = type};
	uint64_t one = 1;
	int rc;

	fake_lock();
	if (type == IBV_EVENT_CQ_ERR)
		event.element.cq = fake_newest.cq;
	else if (type == IBV_EVENT_SRQ_ERR)
		event.element.srq = fake_newest.srq;
	else if (type == IBV_EVENT_QP_FATAL)
		event.element.qp = fake_newest.qp;
	else
		event.element.port_num = 1;
	next_event = event;
	rc = opened && write(opened->async_fd, &one, sizeof(one)) == sizeof(one) ? 0 : -ENODEV;
	fake_unlock();
	return rc;
}

/* Several events that are there are all the last. */
int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	uint64_t one;

	if (read(c->async_fd, &one, sizeof(one)) < 0)
		return -1;
	fake_lock();
	*event = next_event;
	fake_unlock();
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* Protection domains and regions */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (pd)
		pd->context = c;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct ibv_mr *m = calloc(1, sizeof(*m));
	unsigned i = 0;

	(void)iova;
	if (!m)
		return NULL;
	m->context = pd->context;
	m->pd = pd;
	m->addr = addr;
	m->length = length;
	firmware();
	fake_lock();
	while (i < FAKE_MRS && mrs[(next_mr + i) % FAKE_MRS])
		i++;
	next_mr = (next_mr + i) % FAKE_MRS;
	if (i < FAKE_MRS)
		mrs[next_mr] = m;
	last_key++;
	m->lkey = last_key << 8 | (last_key * 7 & 0xff);
	m->rkey = access & ~(unsigned)IBV_ACCESS_LOCAL_WRITE ? m->lkey : 0;
	fake_unlock();
	if (i == FAKE_MRS) {
		free(m);
		errno = ENOMEM;
		return NULL;
	}
	return m;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *m)
{
	firmware();
	fake_lock();
	for (unsigned i = 0; i < FAKE_MRS; i++)
		if (mrs[i] == m)
			mrs[i] = NULL;
	fake_unlock();
	free(m);
	return 0;
}

/* Completion channels and queues */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fake_channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return NULL;
	ch->v.context = c;
	ch->v.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return &ch->v;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	close(ch->fd);
	free(ch);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **arg)
{
	struct fake_channel *ch = (struct fake_channel *)channel;
	uint64_t one;

	if (read(channel->fd, &one, sizeof(one)) < 0)
		return -1;
	fake_lock();
	*cq = ch->event[ch->tail++ & (FAKE_RING - 1)];
	*arg = (*cq)->cq_context;
	fake_unlock();
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}

void fake_complete(struct fake_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	struct fake_channel *ch = (struct fake_channel *)cq->v.channel;
	uint64_t one = 1;

	cq->ring[cq->head++ & (FAKE_RING - 1)] = *wc;
	if (!cq->armed || !ch || (cq->solicited_only && !solicited && !wc->status))
		return;
	cq->armed = false;
	ch->event[ch->head++ & (FAKE_RING - 1)] = &cq->v;
	if (write(ch->v.fd, &one, sizeof(one)) < 0)
		abort();
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq = cqe < FAKE_RING ? calloc(1, sizeof(*cq)) : NULL;

	(void)vector;
	if (!cq)
		return NULL;
	cq->v.context = c;
	cq->v.channel = channel;
	cq->v.cq_context = arg;
	cq->v.cqe = cqe;
	fake_lock();
	fake_newest.cq = &cq->v;
	fake_unlock();
	return &cq->v;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_channel *ch = (struct fake_channel *)cq->channel;
	uint32_t to;
	uint64_t one;

	fake_lock();
	to = ch ? ch->tail : 0;
	for (uint32_t i = to; ch && i != ch->head; i++) {
		if (ch->event[i & (FAKE_RING - 1)] != cq)
			ch->event[to++ & (FAKE_RING - 1)] = ch->event[i & (FAKE_RING - 1)];
		else if (read(ch->v.fd, &one, sizeof(one)) < 0)
			abort();
	}
	if (ch)
		ch->head = to;
	fake_unlock();
	free(cq);
	return 0;
}

/* Queue pairs */
struct ibv_qp *fake_create_qp(struct ibv_context *c, struct ibv_pd *pd,
			      struct ibv_qp_init_attr *init, struct ibv_xrcd *xrcd)
{
	bool known = init->qp_type != IBV_QPT_XRC_RECV || xrcd;
	struct fake_qp *q = known ? calloc(1, sizeof(*q)) : NULL;
	unsigned i = 0;

	if (!known)
		errno = EINVAL;
	if (!q)
		return NULL;
	q->v.context = c;
	q->xrcd = xrcd;
	q->v.srq = init->srq;
	q->v.qp_context = init->qp_context;
	q->v.pd = pd;
	q->v.send_cq = init->send_cq;
	q->v.recv_cq = init->recv_cq;
	q->v.qp_type = init->qp_type;
	q->sig_all = init->sq_sig_all;
	calls.create_qp++;
	firmware();
	fake_lock();
	while (i < FAKE_QPS && qps[(next_qp + i) % FAKE_QPS])
		i++;
	next_qp = (next_qp + i) % FAKE_QPS;
	if (i < FAKE_QPS)
		qps[next_qp] = q;
	fake_use_xrcd(i < FAKE_QPS ? xrcd : NULL, 1);
	q->slot = next_qp;
	q->v.qp_num = ++last_qpn;
	fake_newest.qp = &q->v;
	fake_unlock();
	if (i == FAKE_QPS) {
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	return &q->v;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return fake_create_qp(pd->context, pd, init, NULL);
}

/* Nobody calls it below the shim. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL;
}

void fake_clean_on_reset(bool clean)
{
	fake_lock();
	clean_on_reset = clean;
	fake_unlock();
}

static void clean_cq(struct ibv_cq *ibcq, uint32_t qpn)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	uint32_t to = cq->tail;

	for (uint32_t i = to; i != cq->head; i++)
		if (cq->ring[i & (FAKE_RING - 1)].qp_num != qpn)
			cq->ring[to++ & (FAKE_RING - 1)] = cq->ring[i & (FAKE_RING - 1)];
	cq->head = to;
}

/* Forgets all that was posted. */
static void reset_qp(struct fake_qp *q)
{
	q->send_tail = q->acked = q->send_head;
	q->recv_tail = q->recv_head;
	if (!clean_on_reset)
		return;
	clean_cq(q->v.send_cq, q->v.qp_num);
	clean_cq(q->v.recv_cq, q->v.qp_num);
}

int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *q = (struct fake_qp *)ibqp;

	if (!fake_xrc_mask_ok(ibqp->qp_type, attr, mask) ||
	    (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) || /* has 5 bits */
	    (mask & IBV_QP_PKEY_INDEX && attr->pkey_index >= FAKE_PKEYS))
		return EINVAL;
	calls.modify_qp++;
	q->inside++;
	firmware();
	fake_lock();
	if (mask & IBV_QP_DEST_QPN)
		q->dest = attr->dest_qp_num;
	if (mask & IBV_QP_PKEY_INDEX) {
		q->pkey_index = attr->pkey_index;
		q->pkey = pkeys[attr->pkey_index];
	}
	if (mask & IBV_QP_ALT_PATH)
		alt_dlid = attr->alt_ah_attr.dlid;
	if (mask & IBV_QP_AV) {
		q->dlid = attr->ah_attr.dlid;
		q->sl = attr->ah_attr.sl;
		q->sgid_index = attr->ah_attr.grh.sgid_index % FAKE_GIDS;
		q->from = q->sgid_index ? alias_guids[q->sgid_index] : guid;
	}
	if (mask & IBV_QP_PATH_MTU)
		q->mtu = attr->path_mtu;
	if (mask & IBV_QP_STATE)
		q->v.state = attr->qp_state;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET && q->v.send_cq)
		reset_qp(q);
	fake_unlock();
	q->inside--;
	fake_wire_kick();
	return 0;
}

int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	(void)mask;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	attr->qp_state = ibqp->state;
	attr->pkey_index = ((struct fake_qp *)ibqp)->pkey_index;
	attr->ah_attr.is_global = 1;
	attr->ah_attr.grh.sgid_index = ((struct fake_qp *)ibqp)->sgid_index;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	if (((struct fake_qp *)ibqp)->inside) {
		fprintf(stderr, "QP 0x%x is destroyed under a call\n", ibqp->qp_num);
		abort();
	}
	firmware();
	fake_lock();
	qps[((struct fake_qp *)ibqp)->slot] = NULL;
	fake_use_xrcd(((struct fake_qp *)ibqp)->xrcd, -1);
	fake_unlock();
	free(ibqp);
	fake_wire_kick(); /* a sender to it may notice */
	return 0;
}
