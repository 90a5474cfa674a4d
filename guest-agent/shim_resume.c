/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The resume, in the helper thread: open the device, build everything anew, connect with the other
 * ends, replay, and let the program go. What is built already is not built again, so the host may
 * ask twice. */
#include "guest-agent/shim.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static struct ibv_device *find_device(struct ibv_device **list, const char *name)
{
	for (size_t i = 0; list && list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

static int open_contexts(void)
{
	struct ibv_device **list = real_verbs.get_device_list(NULL), *device;
	struct shim_context *c;
	unsigned index;
	int rc = 0;

	list_for_each (c, &shim.contexts, link) {
		if (!c->in_job || c->real)
			continue;
		if (!context_has_guid(c, &job.order, &index))
			continue;
		device = find_device(list, job.order.device[index]);
		rc = device ? context_open(c, device) : -ENODEV;
		if (rc) {
			snprintf(job.report.why, sizeof(job.report.why),
				 "device \"%.40s\" cannot be opened: %s", job.order.device[index],
				 strerror(-rc));
			break;
		}
		context_query_gids(c);
	}
	if (list)
		real_verbs.free_device_list(list);
	return rc;
}

static int build_cqs(void)
{
	struct shim_channel *ch;
	struct shim_cq *cq;
	int rc = 0;

	list_for_each (ch, &shim.channels, link) {
		if (ch->ctx->in_job && !ch->real && (rc = channel_open(ch)))
			return rc;
	}
	list_for_each (cq, &shim.cqs, link) {
		if (!cq->ctx->in_job || cq->real)
			continue;
		lock_take(&cq->lock);
		rc = cq_create_real(cq);
		lock_give(&cq->lock);
		if (rc)
			return rc;
	}
	return 0;
}

static int build_regions(void)
{
	struct shim_pd *pd;
	struct shim_mr *m;
	int rc = 0;

	list_for_each (pd, &shim.pds, link) {
		if (!pd->ctx->in_job || pd->real)
			continue;
		pd->real = real_verbs.alloc_pd(pd->ctx->real);
		if (!pd->real)
			return -errno;
	}
	list_for_each (m, &shim.mrs, link) {
		if (m->pd->ctx->in_job && !m->real && (rc = mr_register(m)))
			return rc;
	}
	return 0;
}

/* With their receives, before any QP on them is connected. */
static int build_srqs(void)
{
	struct shim_srq *s;
	int rc;

	list_for_each (s, &shim.srqs, link)
		if (s->pd->ctx->in_job && !s->real && (rc = srq_rebuild(s)))
			return rc;
	return 0;
}

static uint32_t random_psn(void)
{
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), 0) < 0)
		psn = (uint32_t)now_us();
	return psn & 0xffffff;
}

static int build_qp(struct shim_qp *q)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	int rc;

	if (!q->real) {
		rc = qp_create_real(q);
		if (rc)
			return rc;
		q->recv.posted = atomic_load(&q->recv.tail);
		/* From RESET, Linux allows no other state (qp_state_table in ib_core). */
		if (q->v.state != IBV_QPS_RESET)
			rc = qp_to_init(q);
		if (!rc && q->v.state == IBV_QPS_ERR)
			rc = -real_verbs.modify_qp(q->real, &error, IBV_QP_STATE);
		if (!rc && q->ud && q->v.state != IBV_QPS_RESET && q->v.state != IBV_QPS_ERR)
			rc = ud_connect(q);
		if (rc)
			return rc;
		q->psn = random_psn();
	}
	/* Who was not paired when QPs were released stays alone: a number that is told after that
	 * comes from an end that takes no part. */
	q->again_us = 0;
	q->phase = QP_CONNECTING;
	return 0;
}

static int build_qps(void)
{
	struct shim_qp *q;
	int rc = 0;

	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || q->phase == QP_LIVE)
			continue;
		rc = build_qp(q);
		if (rc) {
			job_fail(rc, "QP 0x%x cannot be built again: %s", q->v.qp_num,
				 strerror(-rc));
			return rc;
		}
	}
	return 0;
}

/* Numbers and keys to the other ends, and the path records of all ways, each once. */
static void tell_peers(void)
{
	struct shim_peer *p;
	struct shim_route *r;
	struct shim_qp *q;

	list_for_each (p, &shim.peers, link)
		p->keys_told = false;
	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || !q->paired || q->said.gone || q->phase != QP_CONNECTING)
			continue;
		r = q->connected ? route_get(q->sgid, q->dgid, q->pkey) : NULL;
		if (r && r->state != ROUTE_ASKED)
			route_ask(r, true);
		if (!q->peer->keys_told)
			peer_send_keys(q);
		q->peer->keys_told = true;
		peer_queue_qp(q, PEER_CONNECT, job.migration);
	}
}

void resume_rebuild(void)
{
	int rc;

	/* A device that has just come is not complete for libibverbs at once: again, soon. */
	if (open_contexts())
		return;
	job.report.why[0] = '\0';
	rc = build_regions();
	if (!rc)
		rc = build_cqs();
	if (!rc)
		rc = build_srqs();
	if (rc) {
		job_fail(rc, "regions or queues cannot be built again: %s", strerror(-rc));
		return;
	}
	cm_rebuild();
	if (build_qps())
		return;
	job.report.rebuild_us = (uint32_t)(now_us() - job.step_us);
	job.step_us = now_us();
	job.state = JOB_CONNECT;
	tell_peers();
	ud_tell_partners();
	resume_step();
}

void resume_start(const struct shim_order *o)
{
	struct shim_report none = {.head = {sizeof(none), SHIM_RESUMED, 0, 0, 0},
				   .migration = o->migration};

	if (job.state < JOB_RELEASED) {
		if (job.state != JOB_IDLE)
			job_fail(-ECANCELED, "the host asked for a resume instead");
		shim_send(&none);
		return;
	}
	if (o->migration != job.migration) {
		none.head.status = -ESTALE;
		snprintf(none.why, sizeof(none.why), "suspended by another migration");
		shim_send(&none);
		return;
	}
	if (job.empty) {
		job_end_empty();
		shim_send(&none);
		return;
	}
	job.order = *o;
	job.error = 0;
	memset(&job.report, 0, sizeof(job.report));
	job.start_us = job.step_us = now_us();
	job.deadline_us = job.start_us + o->deadline_ms * 950ull;
	job.state = JOB_REBUILD;
	resume_rebuild();
}

static bool route_pending(const struct shim_qp *q)
{
	struct shim_route *r = q->connected ? route_get(q->sgid, q->dgid, q->pkey) : NULL;

	return r && r->state == ROUTE_ASKED;
}

/* The other end's numbers are there: take its packets. */
static void bring_up(struct shim_qp *q)
{
	int rc = 0;

	if (q->said.unconnected) {
		/* Its program will come with the PSNs that ours was told. */
		q->said.psn = q->attr.rq_psn;
		q->psn = q->attr.sq_psn;
	}
	if (q->connected && q->v.state >= IBV_QPS_RTR && q->v.state != IBV_QPS_ERR)
		rc = qp_to_connected(q);
	if (rc) {
		/* On RoCE the address may not be resolved yet: again, until the deadline. */
		snprintf(job.report.why, sizeof(job.report.why),
			 "QP 0x%x cannot be connected again: %s", q->v.qp_num, strerror(-rc));
		q->again_us = now_us() + CONNECT_AGAIN_US;
		job.again = true;
		return;
	}
	q->again_us = 0;
	q->psn_override = q->v.state == IBV_QPS_RTR && !q->said.unconnected;
	q->dqpn = q->said.qpn;
	q->dqpn_old = false;
	q->local_up = true;
	lock_take(&q->recv.lock);
	queue_hold(&q->recv, false);
	recv_flush(q);
	lock_give(&q->recv.lock);
	if (q->paired && !q->said.gone)
		peer_queue_qp(q, PEER_READY, job.migration);
}

static void replay(struct shim_qp *q)
{
	uint64_t tail = atomic_load(&q->send.tail);

	lock_take(&q->send.lock);
	job.report.replayed += (uint32_t)(q->send.posted - tail);
	q->send.posted = tail;
	lock_give(&q->send.lock);
	qp_unhold(q);
	job.report.qps++;
}

static void advance(struct shim_qp *q)
{
	bool alone = !q->paired || q->said.gone;

	if (!q->local_up && alone) {
		q->said.qpn = q->dqpn; /* nobody is there: errors as before */
		q->said.psn = random_psn();
	}
	if (!q->local_up && now_us() >= q->again_us && !route_pending(q) &&
	    (alone || q->said.connect_by == job.migration))
		bring_up(q);
	if (job.error)
		return;
	if (q->local_up && (alone || q->said.ready_by == job.migration))
		replay(q);
}

void resume_step(void)
{
	bool all = true, ud = ud_ready();
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (!q->in_job)
			continue;
		if (q->phase == QP_CONNECTING && !q->ud) {
			advance(q);
		} else if (q->phase == QP_CONNECTING && ud) {
			qp_unhold(q);
			job.report.qps++;
		}
		if (job.error)
			return;
		all &= q->phase == QP_LIVE;
	}
	if (!all || job.state != JOB_CONNECT)
		return;
	job.report.connect_us = (uint32_t)(now_us() - job.step_us);
	cm_resumed();
	job_end();
	job_send_report(SHIM_RESUMED);
}
