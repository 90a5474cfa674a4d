/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Work that is done before the resume, in the helper thread. An end that keeps its device builds
 * its QPs while the other has none. The mover builds when its device is there and the port not
 * ACTIVE yet: a subnet manager, or a network, may take longer for that than all of the building.
 * Nothing is sent before the resume, so all of it can be given back. */
#include "guest-agent/shim/core/batch.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/verbs/mw.h"

#include <string.h>

/* The other end knows our numbers then, and can connect each QP as soon as it has built it. */
static void tell_prepared(void)
{
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->paired && !q->said.gone && q->real)
			peer_queue_qp(q, PEER_PREPARED, job.migration);
	peer_flush();
}

/* Builds QPs; the resume tries again, and tells, where that fails. */
static void build_qps(bool datagrams)
{
	struct shim_batch batch = {.run = resume_build_qp};
	struct shim_qp *q;

	list_for_each (q, &shim.qps, link)
		if (q->in_job && (datagrams || !q->ud))
			batch_add(&batch, q);
	batch_run(&batch);
}

void ahead_peer(void)
{
	uint64_t start = now_us();

	build_qps(true);
	tell_prepared();
	job.before_us = (uint32_t)(now_us() - start);
}

/* On RoCE the other end must resolve our address to connect, which answers only when our port is
 * ACTIVE; on InfiniBand it has the path record. */
static bool all_infiniband(void)
{
	struct shim_context *c;
	struct verbs_context *v;
	struct ibv_port_attr attr;

	list_for_each (c, &shim.contexts, link) {
		if (!c->in_job)
			continue;
		memset(&attr, 0, sizeof(attr));
		v = verbs_get_ctx_op(c->real, query_port);
		if (!v || v->query_port(c->real, 1, &attr, sizeof(attr)) ||
		    attr.link_layer != IBV_LINK_LAYER_INFINIBAND)
			return false;
	}
	return true;
}

static bool same_devices(const struct shim_order *a, const struct shim_order *b)
{
	if (a->vguid_count != b->vguid_count)
		return false;
	for (unsigned i = 0; i < a->vguid_count && i < SHIM_VGUIDS_MAX; i++)
		if (strncmp(a->device[i], b->device[i], SHIM_DEVICE_MAX))
			return false;
	return true;
}

void ahead_give_back(void)
{
	struct shim_batch qps = {.run = release_qp};
	struct shim_context *c;
	struct shim_qp *q;

	if (!job.ahead)
		return;
	job.ahead = false;
	list_for_each (c, &shim.contexts, link)
		if (c->in_job && c->real)
			context_keep_events(c);
	list_for_each (q, &shim.qps, link)
		if (q->in_job && q->real)
			batch_add(&qps, q);
	batch_run(&qps);
	mw_release(true);
	list_for_each (c, &shim.contexts, link)
		if (c->in_job && c->real)
			release_device(c);
}

/* By a resume that has failed: its QPs may be connected, and nothing can be given back. */
static bool any_open(void)
{
	struct shim_context *c;

	list_for_each (c, &shim.contexts, link)
		if (c->in_job && c->real)
			return true;
	return false;
}

void ahead_mover(const struct shim_order *o)
{
	const char *what;

	if (job.state != JOB_RELEASED || job.role != SHIM_ROLE_MOVER || job.empty ||
	    o->migration != job.migration)
		return;
	if (job.ahead && !same_devices(o, &job.order))
		ahead_give_back();
	if (any_open() || !o->vguid_count || !o->device[0][0])
		return;
	job.order = *o;
	job.ahead = true;
	job.ahead_us[0] = now_us();
	if (!resume_open_contexts() && !resume_build_objects(&what)) {
		build_qps(false);
		if (all_infiniband())
			tell_prepared();
	}
	job.ahead_us[1] = now_us();
	job.before_us += (uint32_t)(job.ahead_us[1] - job.ahead_us[0]);
}

/* Accounts for the time: work that was done when the device was back already is work of the resume.
 */
static void note_late(uint64_t back_us)
{
	uint64_t since = back_us > job.ahead_us[0] ? back_us : job.ahead_us[0];
	uint32_t late = job.ahead_us[1] > since ? (uint32_t)(job.ahead_us[1] - since) : 0;

	job.before_us -= late;
	job.report.work_us += late;
}

void ahead_end(const struct shim_order *o)
{
	if (!job.ahead)
		return;
	note_late(o->sent_us ? o->sent_us : now_us());
	if (!same_devices(o, &job.order))
		ahead_give_back();
	job.ahead = false;
}
