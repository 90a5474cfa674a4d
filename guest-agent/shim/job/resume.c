/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The resume, in the helper thread: open the device, build everything anew, connect with the other
 * ends, replay, and let the program go. What is built already is not built again, so the host may
 * ask twice. */
#include "guest-agent/shim/core/batch.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/job/region.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/verbs/channel.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/verbs/keys.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/srq.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define AT_ONCE        256     /* QPs: then the other ends hear of it */
#define UNREACHABLE_US 5000000 /* a daemon on the way may be restarting */
#define ALONE_US       1000000 /* then a QP without a peer need not connect any more */

static struct ibv_device *find_device(struct ibv_device **list, const char *name)
{
	for (size_t i = 0; list && list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

int resume_open_contexts(void)
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

static int build_cq(void *object)
{
	struct shim_cq *cq = object;
	int rc;

	lock_take(&cq->lock);
	rc = cq_create_real(cq);
	lock_give(&cq->lock);
	return rc;
}

static int build_cqs(void)
{
	struct shim_batch batch = {.run = build_cq};
	struct shim_channel *ch;
	struct shim_cq *cq;
	int rc = 0;

	list_for_each (ch, &shim.channels, link) {
		if (ch->ctx->in_job && !ch->real && (rc = channel_open(ch)))
			return rc;
	}
	list_for_each (cq, &shim.cqs, link)
		if (cq->ctx->in_job && !cq->real)
			batch_add(&batch, cq);
	return batch_run(&batch);
}

static int build_regions(void)
{
	struct shim_pd *pd;
	int rc;

	list_for_each (pd, &shim.pds, link) {
		if (!pd->ctx->in_job || pd->real)
			continue;
		pd->real = real_verbs.alloc_pd(pd->ctx->real);
		if (!pd->real)
			return -errno;
	}
	rc = regions_rebuild();
	return rc ? rc : mw_rebuild();
}

/* With their receives, before any QP on them is connected. */
static int build_srqs(void)
{
	struct shim_srq *s;
	int rc = xrc_rebuild();

	if (rc)
		return rc;
	list_for_each (s, &shim.srqs, link)
		if (s->pd->ctx->in_job && !s->real && (rc = srq_rebuild(s)))
			return rc;
	return 0;
}

int resume_build_qp(void *object)
{
	struct shim_qp *q = object;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	int rc;

	if (q->real)
		return 0;
	rc = qp_create_real(q);
	if (rc)
		return rc;
	q->joined = q->start_over = q->local_up = false;
	mw_stop_binding(q);
	q->recv.posted = atomic_load(&q->recv.tail);
	q->psn = qp_random_psn();
	/* From RESET, Linux allows no other state (qp_state_table in ib_core). */
	if (q->v.state != IBV_QPS_RESET)
		rc = qp_to_init(q);
	if (!rc && q->v.state == IBV_QPS_ERR)
		rc = -real_verbs.modify_qp(q->real, &error, IBV_QP_STATE);
	if (!rc && q->ud && q->v.state != IBV_QPS_RESET && q->v.state != IBV_QPS_ERR)
		rc = parts_rebuild_qp(q);
	if (rc)
		qp_destroy_real(q);
	return rc;
}

/* The path records of all ways, each once; they come while QPs are built. */
static void ask_routes(void)
{
	struct shim_route *r;
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || !q->paired || q->said.gone || !q->connected)
			continue;
		r = route_get(q->sgid, q->dgid, q->pkey);
		if (r && r->state != ROUTE_ASKED)
			route_ask(r, true);
	}
}

static void tell_peer(struct shim_qp *q)
{
	if (!q->paired || q->said.gone)
		return;
	if (q->connected)
		peer_tell_keys(q);
	peer_queue_qp(q, PEER_CONNECT, job.migration);
}

/* The next part of the QPs that are not there yet. Who was not paired when QPs were released stays
 * alone: a number that is told after that comes from an end that takes no part. */
static bool build_some(void)
{
	struct shim_batch batch = {.run = resume_build_qp};
	struct shim_qp *q, *part[AT_ONCE];
	unsigned n = 0;
	int rc;

	list_for_each (q, &shim.qps, link) {
		if (!q->in_job || q->phase != QP_RELEASED)
			continue;
		if (n == AT_ONCE)
			break;
		part[n++] = q;
		if (!q->real)
			batch_add(&batch, q);
	}
	rc = batch_run(&batch);
	if (rc) {
		q = batch.failed;
		job_fail(rc, "QP 0x%x cannot be built again: %s", q->v.qp_num, strerror(-rc));
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		part[i]->again_us = 0;
		part[i]->asked_us = now_us();
		part[i]->said.unreachable = false;
		part[i]->phase = QP_CONNECTING;
		tell_peer(part[i]);
	}
	return n == AT_ONCE;
}

int resume_build_objects(const char **ret_what)
{
	int rc;

	*ret_what = "regions";
	rc = build_regions();
	if (!rc) {
		*ret_what = "completion queues";
		rc = build_cqs();
	}
	if (!rc) {
		*ret_what = "shared receive queues";
		rc = build_srqs();
	}
	return rc;
}

/* Work of a peer, while the mover tells only what it has built ahead, is done before the mover's
 * device is back. */
static void note_work(uint64_t start)
{
	*(job.mover_ahead ? &job.before_us : &job.report.work_us) += (uint32_t)(now_us() - start);
}

void resume_rebuild(void)
{
	uint64_t start = now_us();
	const char *what;
	int rc;

	/* A device that has just come is not complete for libibverbs at once: again, soon. */
	if (resume_open_contexts())
		return;
	if (resume_check_pkeys())
		return;
	job.report.why[0] = '\0';
	rc = resume_build_objects(&what);
	if (rc) {
		job_fail(rc, "%s cannot be built again: %s", what, strerror(-rc));
		return;
	}
	parts_rebuild();
	note_work(start);
	job.state = JOB_CONNECT;
	resume_step();
}

/* Tells the other ends again. Objects that an earlier try has built are there still. */
static void begin_again(void)
{
	struct shim_context *c;
	struct shim_qp *q;

	list_for_each (c, &shim.contexts, link)
		qp_keep_gids(c, true);
	peer_begin_keys();
	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->phase == QP_CONNECTING)
			q->phase = QP_RELEASED;
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
	memset(&job.report, 0, sizeof(job.report));
	ahead_end(o);
	job.order = *o;
	job.error = 0;
	job.start_us = job.step_us = now_us();
	job.deadline_us = job.start_us + o->deadline_ms * 950ull;
	job.state = JOB_REBUILD;
	job.built = false;
	begin_again();
	ask_routes();
	resume_rebuild();
}

static bool route_pending(const struct shim_qp *q)
{
	struct shim_route *r = q->connected ? route_get(q->sgid, q->dgid, q->pkey) : NULL;

	return r && r->state == ROUTE_ASKED;
}

/* The other end's numbers are there: take its packets. In any thread. */
static int connect_qp(void *object)
{
	struct shim_qp *q = object;
	int rc = 0;

	if (q->said.unconnected) {
		/* The program of the other end will come with the PSNs that ours was told. */
		q->said.psn = q->attr.rq_psn;
		q->psn = q->attr.sq_psn;
	}
	if (q->start_over)
		mw_start_over(q);
	if ((q->start_over || q->bind_state == BIND_FAILED) && !(rc = qp_start_over(q))) {
		q->bind_state = BIND_WAITS;
		q->start_over = false;
	}
	if (!rc && !q->joined && q->connected && q->v.state >= IBV_QPS_RTR &&
	    q->v.state != IBV_QPS_ERR)
		rc = qp_to_connected(q);
	q->joined |= !rc;
	q->connect_error = rc;
	q->unbound = NULL;
	return rc;
}

/* No way leads to a peer that has gone, as if the QP had noticed by itself: all that is posted ends
 * with an error. */
static int give_up(struct shim_qp *q)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	mw_stop_binding(q);
	q->v.state = IBV_QPS_ERR;
	return -real_verbs.modify_qp(q->real, &error, IBV_QP_STATE);
}

/* The subnet manager, or the network, gives a port its addresses; until then it may lack one. */
static void say_no_gid(const struct shim_qp *q)
{
	char gid[INET6_ADDRSTRLEN] = "";

	inet_ntop(AF_INET6, q->sgid, gid, sizeof(gid));
	snprintf(job.report.why, sizeof(job.report.why),
		 "%.15s: QP 0x%x is connected from GID %s, which \"%.20s\" port %u does not have",
		 program_invocation_short_name, q->v.qp_num, gid, q->ctx->real->device->name,
		 q->attr.port_num);
}

/* Puts q off. The deadline, which says why, ends the tries. */
static void put_off(struct shim_qp *q)
{
	const char *why = strerror(-q->connect_error);

	if (q->unbound)
		snprintf(job.report.why, sizeof(job.report.why),
			 "memory window 0x%x cannot be bound again on QP 0x%x: %s",
			 q->unbound->now.rkey, q->v.qp_num, why);
	else if (q->connect_error == -EADDRNOTAVAIL)
		say_no_gid(q);
	else
		/* On RoCE the address may not be resolved yet. */
		snprintf(job.report.why, sizeof(job.report.why),
			 "QP 0x%x cannot be connected again: %s", q->v.qp_num, why);
	q->again_us = now_us() + CONNECT_AGAIN_US;
	job.again = true;
	qp_keep_gids(q->ctx, true); /* or the table was not complete */
}

/* Lets q take packets: its windows are bound, and told. */
static void brought_up(struct shim_qp *q)
{
	int rc = q->connect_error;

	if (rc && q->said.gone && rc != -EADDRNOTAVAIL && rc != -ENODEV &&
	    now_us() - job.step_us > ALONE_US)
		rc = q->connect_error = give_up(q);
	if (rc) {
		put_off(q);
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

static bool alone(const struct shim_qp *q)
{
	return !q->paired || q->said.gone;
}

/* Nothing of the other end has come for a while, so it is asked again. An end that cannot be
 * reached for long is given up, as one that is known to have gone. */
static void ask_again(struct shim_qp *q, uint64_t now)
{
	if (!job_lost_peer(q, now, UNREACHABLE_US) && now - q->asked_us > ASK_PEER_US) {
		q->said.unreachable = false;
		q->asked_us = now;
		peer_queue_qp(q, q->local_up ? PEER_READY : PEER_CONNECT, job.migration);
	}
}

/* Asks the silent ends. A QP that was prepared before the resume does not show that its end still
 * lives. */
static void ask_silent(void)
{
	struct shim_qp *q;
	uint64_t now = now_us();

	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->phase == QP_CONNECTING && !q->ud && !alone(q) &&
		    (q->local_up ? q->said.ready_by : q->said.connect_by) != job.migration)
			ask_again(q, now);
}

/* True if q can be connected now. */
static bool may_connect(struct shim_qp *q, uint64_t now)
{
	if (!q->in_job || q->phase != QP_CONNECTING || q->local_up || q->ud)
		return false;
	if (alone(q)) {
		q->said.qpn = q->dqpn; /* nobody is there: errors as before */
		q->said.psn = qp_random_psn();
	}
	return now >= q->again_us && !route_pending(q) &&
	       (alone(q) || q->said.connect_by == job.migration ||
		q->said.prepared_by == job.migration);
}

/* A part of those that can be: their other ends hear of it before the next part is begun. */
static bool connect_some(void)
{
	struct shim_batch batch = {.run = connect_qp};
	struct shim_qp *q, *end = NULL;
	uint64_t now = now_us();
	unsigned n = 0;

	list_for_each (q, &shim.qps, link) {
		q->connecting = n < AT_ONCE && may_connect(q, now);
		if (!q->connecting)
			continue;
		batch_add(&batch, q);
		end = q;
		n++;
	}
	batch_run(&batch);
	/* Before the other ends may use them, and hear of their QPs. */
	mw_bind_again();
	peer_tell_windows();
	list_for_each (q, &shim.qps, link) {
		if (q->connecting)
			brought_up(q);
		if (q == end)
			break;
	}
	peer_flush();
	return n == AT_ONCE;
}

void resume_step(void)
{
	uint64_t start = now_us();
	struct shim_context *c;
	struct shim_qp *q;
	bool all = true, more = build_some(), ready;

	if (job.error)
		return;
	if (!more && !job.built) {
		job.built = true;
		job.report.rebuild_us = (uint32_t)(now_us() - job.step_us);
		job.step_us = now_us();
		parts_tell();
	}
	ask_silent();
	job.more = connect_some() || more;
	if (job.error)
		return;
	ready = job.built && parts_ready();
	list_for_each (q, &shim.qps, link) {
		if (!q->in_job)
			continue;
		if (q->phase == QP_CONNECTING && q->ud && ready) {
			qp_unhold(q);
			job.report.qps++;
		} else if (q->phase == QP_CONNECTING && q->local_up &&
			   (alone(q) || q->said.ready_by == job.migration)) {
			replay(q);
		}
		all &= q->phase == QP_LIVE;
	}
	note_work(start);
	if (!all || job.state != JOB_CONNECT)
		return;
	job.report.connect_us = (uint32_t)(now_us() - job.step_us);
	job.report.before_us = job.before_us;
	list_for_each (c, &shim.contexts, link)
		qp_keep_gids(c, false);
	parts_resumed();
	job_end();
	job_send_report(SHIM_RESUMED);
}
