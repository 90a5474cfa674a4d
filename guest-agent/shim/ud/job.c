/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of datagrams in a suspend and a resume, in the helper thread.
 *
 * One that comes while its receiver is away is lost. UD allows that, programs often do not bear it.
 * So partners of the process that moves hold their QPs that send there, drain them and say so
 * (PEER_UD_DRAINED). The mover waits for what is still under way, then gives its QPs back. When it
 * has new ones it tells their numbers (PEER_UD_NUMBERS): partners go on, and once they have said
 * that they know them (PEER_UD_HAVE) the mover does. Partners keep their QPs and receives: others
 * send to them all the time. */
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/ud/ud.h"
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <string.h>

#define SETTLE_US     20000  /* without a datagram, after all senders have drained */
#define SETTLE_MAX_US 200000 /* others, not held, may send all the time */
#define TELL_AGAIN_US 200000

static struct {
	bool any;                       /* UD QPs or partners take part */
	bool drained;                   /* our sends have ended, partners know */
	uint64_t drained_us;            /* since when */
	uint64_t receives, receives_us; /* seen by then, and when the last one came */
} ud;

/* Chooses the partners of ours that a job is about: those that have something to hear from us. */
static bool concerned(void)
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
		list_for_each (c, &shim.contexts, link)
			c->in_job |= ud_shows(c, p->sgid);
	}
	pthread_mutex_unlock(&shim.ctl);
	list_for_each (q, &shim.qps, link)
		ud.any |= q->in_job && q->ud;
	return ud.any;
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

static bool quiet(void)
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
static void abort_job(void)
{
	struct shim_partner *p;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (p, &shim.partners, link)
		if (p->in_job && p->told_drained)
			ud_send_head(p, PEER_UD_ABORT, job.migration);
	pthread_mutex_unlock(&shim.ctl);
}

static void release_ahs(struct shim_context *c)
{
	struct shim_ah *ah;

	list_for_each (ah, &shim.ahs, link)
		if (ah->pd->ctx == c)
			ah_release(ah);
}

static int join_groups(struct shim_qp *q)
{
	int rc = 0;

	for (unsigned i = 0; i < q->ud->group_count && !rc; i++)
		rc = -real_verbs.attach_mcast(q->real, &q->ud->groups[i].gid, q->ud->groups[i].lid);
	return rc;
}

/* The kernel does not destroy a QP that is in a group. */
static void leave_groups(struct shim_qp *q)
{
	for (unsigned i = 0; q->ud && i < q->ud->group_count; i++)
		real_verbs.detach_mcast(q->real, &q->ud->groups[i].gid, q->ud->groups[i].lid);
}

static int rebuild_qp(struct shim_qp *q)
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
		/* Partners that have come meanwhile are told, too: they know a number that is no
		 * more. */
		if (job.role == SHIM_ROLE_MOVER && gid_in_order(p->sgid, &job.order) &&
		    p->said.have_by != job.migration)
			ud_send_numbers(p, job.migration);
		if (job.role == SHIM_ROLE_PEER && p->in_job && p->said.numbers_by != job.migration)
			ud_send_head(p, PEER_UD_ASK, job.migration);
		p->told_us = now;
	}
	pthread_mutex_unlock(&shim.ctl);
}

static void tell(void)
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
	/* A partner that does not answer may not know us, and may take us for somebody else; but
	 * others must not wait. */
	return job.role == SHIM_ROLE_PEER || p->said.have_by == job.migration || now_us() > half;
}

static bool ready(void)
{
	struct shim_partner *p;
	bool all = true;
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
		all &= partner_ready(p);
	pthread_mutex_unlock(&shim.ctl);
	return all;
}

/* Under ctl. */
static void ended(void)
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
}

/* True if q has sent to what moves. */
static bool holds(struct shim_qp *q)
{
	return ud_sends_to(q, &job.order);
}

const struct shim_part ud_part = {.name = "datagrams",
				  .holds = holds,
				  .concerned = concerned,
				  .quiet = quiet,
				  .abort = abort_job,
				  .release_qp = leave_groups,
				  .released_qp = ud_drop_marker,
				  .release_device = release_ahs,
				  .rebuild_qp = rebuild_qp,
				  .tell = tell,
				  .ready = ready,
				  .ended = ended,
				  .answer = ud_answer_deferred,
				  .describe = ud_describe,
				  .step = ud_step,
				  .timeout = ud_timeout,
				  .forget = ud_forget_all};
