/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of datagrams in a suspend and a resume, in the helper thread.
 *
 * One that comes while its receiver is away is lost. UD allows that, programs often do not bear
 * it. So partners of the process that moves hold their QPs that send there, drain them and say so
 * (PEER_UD_DRAINED); the mover waits for what is still under way, then gives its QPs back. When it
 * has new ones it tells their numbers (PEER_UD_NUMBERS): partners go on, and once they have said
 * that they know them (PEER_UD_HAVE) the mover does. Partners keep their QPs and receives: others
 * send to them all the time. */
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

#define SETTLE_US     20000  /* without a datagram, after all senders have drained */
#define SETTLE_MAX_US 200000 /* others, not held, may send all the time */
#define TELL_AGAIN_US 200000
#define MARKER_QKEY   0x1b7a6d61

static struct {
	bool any;                       /* UD QPs or partners take part */
	bool drained;                   /* our sends have ended, partners know */
	uint64_t drained_us;            /* since when */
	uint64_t receives, receives_us; /* seen by then, and when the last one came */
} ud;

/* Whether partners of ours that a job is about have something to hear from us. */
bool ud_choose(void)
{
	struct shim_context *c;
	struct shim_partner *p;
	struct shim_qp *q;

	memset(&ud, 0, sizeof(ud));
	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link) {
		const uint8_t *moves = job.role == SHIM_ROLE_MOVER ? p->sgid : p->node->gid;

		p->in_job = !p->gone && !p->silent && p->numbers && gid_in_order(moves, &job.order);
		p->told_drained = false;
		p->told_us = 0;
		if (!p->in_job)
			continue;
		ud.any = true;
		c = ud_context(p->sgid);
		if (c)
			c->in_job = true;
	}
	pthread_mutex_unlock(&shim.ctl);
	list_for_each (q, &shim.qps, link)
		ud.any |= q->in_job && q->ud;
	return ud.any;
}

/* Drops what is sent to it: a QP in INIT discards all packets (IBA 1.4, 10.3.1), without the trap
 * that a wrong Q_Key would raise at the subnet manager. */
static struct ibv_qp *make_sink(struct shim_qp *q)
{
	struct ibv_qp_init_attr init = {.send_cq = q->send_cq->real,
					.recv_cq = q->send_cq->real,
					.cap = {1, 1, 1, 1, 0},
					.qp_type = IBV_QPT_UD};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.pkey_index = q->attr.pkey_index,
				.port_num = q->attr.port_num,
				.qkey = MARKER_QKEY};
	struct ibv_qp *sink = real_verbs.create_qp(to_pd(q->v.pd)->real, &init);

	if (sink &&
	    real_verbs.modify_qp(sink, &a,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) {
		real_verbs.destroy_qp(sink);
		sink = NULL;
	}
	return sink;
}

/* To our own port. */
static struct ibv_ah *make_way_home(struct shim_qp *q)
{
	struct verbs_context *v = verbs_get_ctx_op(q->ctx->real, query_port);
	struct ibv_ah_attr a = {.is_global = 1, .port_num = q->attr.port_num};
	struct ibv_port_attr port;

	memset(&port, 0, sizeof(port));
	if (!v || v->query_port(q->ctx->real, a.port_num, &port, sizeof(port)) ||
	    real_verbs.query_gid(q->ctx->real, a.port_num, 0, &a.grh.dgid))
		return NULL;
	a.dlid = port.lid;
	a.grh.hop_limit = 1;
	return real_verbs.create_ah(to_pd(q->v.pd)->real, &a);
}

/* A datagram without data whose completion ends all before it. There is no RDMA WRITE on UD, and
 * no receiver may see it. 0, or errno. */
int ud_marker(struct shim_qp *q, struct ibv_send_wr *wr)
{
	struct shim_ud *u = q->ud;

	if (!u->sink)
		u->sink = make_sink(q);
	if (u->sink && !u->home)
		u->home = make_way_home(q);
	if (!u->sink || !u->home)
		return ENOMEM;
	wr->opcode = IBV_WR_SEND;
	wr->wr.ud.ah = u->home;
	wr->wr.ud.remote_qpn = u->sink->qp_num;
	wr->wr.ud.remote_qkey = MARKER_QKEY;
	return 0;
}

void ud_drop_marker(struct shim_qp *q)
{
	if (!q->ud || q->marker) /* under way: they are still needed */
		return;
	if (q->ud->home)
		real_verbs.destroy_ah(TAKE(q->ud->home));
	if (q->ud->sink)
		real_verbs.destroy_qp(TAKE(q->ud->sink));
}

/* An error has stopped the send queue (SQE): no completion comes any more. */
bool ud_broken(const struct shim_qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !real_verbs.query_qp(q->real, &a, IBV_QP_STATE, &init) &&
	       a.qp_state != IBV_QPS_RTS && a.qp_state != IBV_QPS_SQD;
}

static void tell_drained(void)
{
	struct shim_partner *p;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link) {
		if (!p->in_job || p->told_drained)
			continue;
		p->told_drained = true;
		ud_send_head(p, PEER_UD_DRAINED, job.migration);
	}
	pthread_mutex_unlock(&shim.ctl);
}

/* A partner that says nothing must not keep us: what it still sends is lost, as UD allows. */
static bool partners_drained(void)
{
	uint64_t now = now_us(), until = job.start_us + (job.deadline_us - job.start_us) / 2;
	struct shim_partner *p;
	unsigned silent = 0;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link)
		silent += p->in_job && !p->gone && p->said.drained_by != job.migration;
	pthread_mutex_unlock(&shim.ctl);
	if (silent && now > until)
		shim_log("%u processes that send datagrams here do not say that they hold them: "
			 "they may be lost",
			 silent);
	return !silent || now > until;
}

/* The last datagrams are on their way from partners that have drained. */
static bool settled(void)
{
	uint64_t receives = 0, now = now_us();
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->ud)
			receives += atomic_load(&q->recv.tail);
	if (!ud.drained_us)
		ud.drained_us = ud.receives_us = now;
	if (receives != ud.receives)
		ud.receives_us = now;
	ud.receives = receives;
	return now - ud.receives_us > SETTLE_US || now - ud.drained_us > SETTLE_MAX_US;
}

bool ud_quiet(void)
{
	struct shim_qp *q;

	if (!ud.any || ud.drained)
		return true;
	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->ud && !q->drained)
			return false;
	tell_drained();
	if (job.role == SHIM_ROLE_MOVER && !(partners_drained() && settled()))
		return false;
	ud.drained = true;
	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->ud && q->phase == QP_DRAINING)
			q->phase = QP_QUIET;
	return true;
}

/* The suspend has failed: partners must not take our word of it for the next one. */
void ud_abort(void)
{
	struct shim_partner *p;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link)
		if (p->in_job && p->told_drained)
			ud_send_head(p, PEER_UD_ABORT, job.migration);
	pthread_mutex_unlock(&shim.ctl);
}

void ud_release(struct shim_context *c)
{
	struct shim_ah *ah;

	list_for_each (ah, &shim.ahs, link)
		if (ah->pd->ctx == c && ah->real)
			real_verbs.destroy_ah(TAKE(ah->real));
}

static int join_groups(struct shim_qp *q)
{
	int rc = 0;

	for (unsigned i = 0; i < q->ud->group_count && !rc; i++)
		rc = -real_verbs.attach_mcast(q->real, &q->ud->groups[i].gid, q->ud->groups[i].lid);
	return rc;
}

/* The kernel does not destroy a QP that is in a group. */
void ud_leave_groups(struct shim_qp *q)
{
	for (unsigned i = 0; q->ud && i < q->ud->group_count; i++)
		real_verbs.detach_mcast(q->real, &q->ud->groups[i].gid, q->ud->groups[i].lid);
}

int ud_connect(struct shim_qp *q)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	int rc = join_groups(q);

	if (!rc && q->v.state >= IBV_QPS_RTR)
		rc = -real_verbs.modify_qp(q->real, &a, IBV_QP_STATE);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = q->attr.sq_psn};
	if (!rc && q->v.state >= IBV_QPS_RTS)
		rc = -real_verbs.modify_qp(q->real, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return rc;
}

static bool ah_in_job(const struct shim_ah *ah)
{
	return job.role == SHIM_ROLE_MOVER ? ah->pd->ctx->in_job
					   : ah->node && gid_in_order(ah->node->gid, &job.order);
}

static void tell_partners(void)
{
	uint64_t now = now_us();
	struct shim_partner *p;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link) {
		if (p->gone || now - p->told_us < TELL_AGAIN_US)
			continue;
		/* Those that have come meanwhile, too: they know a number that is no more. */
		if (job.role == SHIM_ROLE_MOVER && gid_in_order(p->sgid, &job.order) &&
		    p->said.have_by != job.migration)
			ud_send_numbers(p, job.migration);
		if (job.role == SHIM_ROLE_PEER && p->in_job && p->said.numbers_by != job.migration)
			ud_send_head(p, PEER_UD_ASK, job.migration);
		p->told_us = now;
	}
	pthread_mutex_unlock(&shim.ctl);
}

void ud_tell_partners(void)
{
	struct shim_partner *p;
	struct shim_route *r;
	struct shim_ah *ah;

	if (!ud.any)
		return;
	list_for_each (ah, &shim.ahs, link) {
		r = ah->node && ah_in_job(ah) ? route_get(ah->sgid, ah->node->gid, ah->pkey) : NULL;
		if (r && r->state != ROUTE_ASKED)
			route_ask(r, true);
	}
	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link)
		p->told_us = 0;
	pthread_mutex_unlock(&shim.ctl);
	tell_partners();
}

static bool routes_pending(void)
{
	struct shim_route *r;
	struct shim_ah *ah;

	list_for_each (ah, &shim.ahs, link) {
		r = ah->node && ah_in_job(ah) ? route_get(ah->sgid, ah->node->gid, ah->pkey) : NULL;
		if (r && r->state == ROUTE_ASKED)
			return true;
	}
	return false;
}

/* 0, or -errno: on RoCE the address may not be resolved yet. */
static int build_ahs(void)
{
	struct shim_ah *ah;
	int rc = 0;

	list_for_each (ah, &shim.ahs, link)
		if (ah_in_job(ah) && (rc = ah_build(ah)))
			return rc;
	return 0;
}

static bool partner_ready(const struct shim_partner *p)
{
	uint64_t half = job.start_us + (job.deadline_us - job.start_us) / 2;

	if (!p->in_job || p->gone)
		return true;
	if (gid_in_order(p->node->gid, &job.order) && p->said.numbers_by != job.migration)
		return false;
	/* It does not know us: it may take us for somebody else, but others must not wait. */
	return job.role == SHIM_ROLE_PEER || p->said.have_by == job.migration || now_us() > half;
}

bool ud_ready(void)
{
	struct shim_partner *p;
	bool ready = true;
	int rc;

	if (!ud.any)
		return true;
	job.again = true;
	if (routes_pending())
		return false;
	rc = build_ahs();
	if (rc) {
		snprintf(job.report.why, sizeof(job.report.why),
			 "an address handle cannot be made again: %s", strerror(-rc));
		return false;
	}
	tell_partners();
	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link)
		ready &= partner_ready(p);
	pthread_mutex_unlock(&shim.ctl);
	return ready;
}

/* Under ctl. */
void ud_job_end(void)
{
	struct shim_partner *p;
	struct shim_qp *q;

	list_for_each (p, &shim.partners, link)
		p->in_job = false;
	partners_reap();
	ah_reap();
	list_for_each (q, &shim.qps, link)
		ud_drop_marker(q);
	ud.any = false;
	ud_answer_deferred();
}
