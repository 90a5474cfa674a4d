/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm's ids in a migration. Connections that are being made are waited for; those that are
 * made are taken from the kernel; the others are made again when the device is back. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/verbs/context.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define MOVES_US 60000000u /* the removal of a device is told that long after */

static bool on_device_in_job(const struct cm_id *id)
{
	const struct ibv_context *v = id->real->verbs;

	return v && shim_ours(v) && to_context(v)->in_job;
}

/* Before it is chosen which contexts are in the job. */
static bool job_will_concern(const struct cm_id *id)
{
	const struct ibv_context *v = id->real->verbs;

	if (job.role != SHIM_ROLE_MOVER)
		return id->state != CM_RESOLVING &&
		       gid_in_order(id->real->route.addr.addr.ibaddr.dgid.raw, &job.order);
	if (!v) /* an address that is not known yet may become one on the device */
		return id->state == CM_RESOLVING;
	return shim_ours(v) && context_has_guid(to_context(v), &job.order, NULL);
}

static bool joins_a_group(const struct cm_id *id)
{
	const struct cm_join *j;
	bool any = false;

	list_for_each (j, &id->joins, link)
		any |= j->asked;
	return any;
}

static bool being_made(const struct cm_id *id)
{
	return id->state == CM_RESOLVING || id->state == CM_REQUESTED ||
	       id->state == CM_CONNECTING || id->redo || joins_a_group(id);
}

static bool making(char *ret_why, size_t bytes)
{
	unsigned unheard = 0, resolving = 0, asked = 0, connecting = 0, again = 0, joining = 0;
	struct cm_channel *ch;
	struct cm_id *id;

	cm_lock();
	list_for_each (ch, &cm.channels, link) {
		struct pollfd p = {.fd = ch->real->fd, .events = POLLIN};

		unheard += ch->busy || poll(&p, 1, 0) > 0;
	}
	list_for_each (id, &cm.ids, link) {
		if (id->detached || id->dying || !being_made(id) || !job_will_concern(id))
			continue;
		again += id->redo;
		resolving += id->state == CM_RESOLVING;
		asked += id->state == CM_REQUESTED;
		connecting += id->state == CM_CONNECTING;
		joining += joins_a_group(id);
	}
	cm_unlock();
	if (!(unheard + resolving + asked + connecting + again + joining))
		return false;
	snprintf(ret_why, bytes,
		 "a connection of librdmacm is being made; ids: %u resolve, %u asked for, "
		 "%u connect, %u made again, %u join; channels with news: %u",
		 resolving, asked, connecting, again, joining, unheard);
	return true;
}

/* Programs may name a QP that they do not connect themselves (UCX): then the agents find the
 * process by its number. */
static void note_ends(struct cm_id *id, const struct shim_qp *q)
{
	const struct rdma_ib_addr *a = &id->real->route.addr.addr.ibaddr;
	bool connected = q && q->peer;
	struct cm_ends *e = &id->ends;

	e->known = id->vqpn && (connected || id->dvqpn);
	if (!e->known)
		return;
	e->vqpn = id->vqpn;
	e->dvqpn = connected ? q->dvqpn : id->dvqpn;
	memcpy(e->sgid, connected ? q->sgid : a->sgid.raw, 16);
	memcpy(e->dgid, connected ? q->dgid : a->dgid.raw, 16);
	e->slot = connected ? q->peer->slot : 0;
	e->instance = connected ? q->peer->instance : 0;
	if (id->state == CM_CONNECTED)
		peer_send_disconnect(e, SHIM_WILL);
}

/* The kernel's connection is not used any more; librdmacm must not touch the QP for its sake. */
static void detach(struct cm_id *id, const struct shim_qp *q)
{
	struct rdma_cm_id *r = id->real;

	cm_pull(id);
	id->detached = true;
	if (r->qp_type != IBV_QPT_UD)
		note_ends(id, q);
	r->qp = NULL;
	r->srq = NULL;
	r->send_cq = r->recv_cq = NULL;
	r->send_cq_channel = r->recv_cq_channel = NULL;
}

/* True if the other end of a connection moves: the kernel there knows the connection no more. */
static bool moves_away(const struct cm_id *id)
{
	return job.role != SHIM_ROLE_MOVER && id->state == CM_CONNECTED &&
	       id->real->qp_type != IBV_QPT_UD &&
	       gid_in_order(id->real->route.addr.addr.ibaddr.dgid.raw, &job.order);
}

static bool concerned(void)
{
	struct cm_id *id;
	bool any = false;

	cm_lock();
	list_for_each (id, &cm.ids, link)
		any |= !id->detached && moves_away(id);
	cm_unlock();
	return any;
}

/* A request for one more connection shows only when it is here, so every connection with what moves
 * counts. */
static bool may_be_asked(void)
{
	struct cm_id *id;
	bool any = false;

	cm_lock();
	list_for_each (id, &cm.ids, link)
		any |= !id->detached ? moves_away(id)
				     : id->state == CM_CONNECTED && id->ends.known &&
					       gid_in_order(id->ends.dgid, &job.order);
	cm_unlock();
	return any;
}

static void release_one(struct cm_id *id)
{
	struct shim_qp *q = id->vqpn ? qp_by_vqpn(id->vqpn) : NULL;
	bool mover = job.role == SHIM_ROLE_MOVER && on_device_in_job(id);
	bool connection = id->state == CM_CONNECTED || id->state == CM_DISCONNECTING ||
			  id->state == CM_CLOSED;

	if (id->detached || (!mover && !moves_away(id)))
		return;
	if (connection && id->joins.next == &id->joins) {
		detach(id, q);
		return;
	}
	id->moves = true;
	id->moves_until_us = now_us() + MOVES_US;
}

static void release(void)
{
	struct cm_id *id;

	pthread_mutex_lock(&shim.ctl);
	cm_lock();
	list_for_each (id, &cm.ids, link)
		release_one(id);
	cm_unlock();
	pthread_mutex_unlock(&shim.ctl);
}

/* Nobody else is inside a control verb: the list stays as it is. What does not work yet (the
 * address may not be there at once) is tried again by the thread. */
static void rebuild(void)
{
	struct cm_id *id;

	pthread_mutex_lock(&cm.service);
	list_for_each (id, &cm.ids, link) {
		if (!id->moves || id->redo || cm_alive(id))
			continue;
		if (!cm_redo(id))
			continue;
		id->redo = true;
		atomic_store(&cm.pending, true);
	}
	pthread_mutex_unlock(&cm.service);
}

/* The end of what had ended, as far as the program has not been told. */
static void push_end(struct cm_id *id)
{
	if (id->real->qp_type == IBV_QPT_UD)
		return;
	if (id->state == CM_DISCONNECTING || (id->state == CM_CONNECTED && id->lost)) {
		id->state = CM_CLOSED;
		if (id->ends.known)
			peer_send_disconnect(&id->ends, SHIM_WILL_DROP);
		id->ends.known = false;
		cm_push(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		if (id->lost) /* the time-wait begins with the program's answer */
			return;
	}
	if (id->state == CM_CLOSED && id->vqpn && !id->timewait_told) {
		id->timewait_told = true;
		cm_push(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	}
}

static void resumed(void)
{
	struct shim_qp *q;
	struct cm_id *id;
	bool wake = false;

	pthread_mutex_lock(&shim.ctl);
	cm_lock();
	list_for_each (id, &cm.ids, link) {
		wake |= id->redo;
		if (!id->detached || id->parted)
			continue;
		q = id->vqpn ? qp_by_vqpn(id->vqpn) : NULL;
		id->lost |= q && q->connected && (!q->paired || q->said.gone);
		id->parted = id->kernel_ends = wake = true;
		push_end(id);
	}
	cm_unlock();
	pthread_mutex_unlock(&shim.ctl);
	if (wake)
		cm_wake();
}

/* The program's own join, or one of the same context. */
static void join_answered(struct cm_id *id, const struct rdma_cm_event *e)
{
	struct cm_join *j;
	bool found = false;

	list_for_each (j, &id->joins, link) {
		if (found || !j->asked || j->context != e->param.ud.private_data)
			continue;
		j->asked = false;
		found = true;
	}
}

/* Hides the event of an id that has joined again after a migration. */
static bool hidden_join(struct cm_id *id, const struct rdma_cm_event *e)
{
	struct cm_join *j;

	list_for_each (j, &id->joins, link) {
		if (!j->again || j->context != e->param.ud.private_data)
			continue;
		j->again = false;
		id->real->qp = id->v.qp; /* later joins and leaves are attached, too */
		return true;
	}
	join_answered(id, e);
	return false;
}

/* An address or route that cannot be resolved again. */
static void from_the_start(struct cm_id *id)
{
	id->resolving = false;
	id->moves = true;
	atomic_store(&cm.pending, true);
}

/* Hides the events of an address or route that is resolved again. */
static bool hidden_answer(struct cm_id *id, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		id->redo_route = id->routed;
		id->redo = id->resolving = id->routed;
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		id->redo = id->resolving = false;
		return true;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		from_the_start(id);
		return true;
	default:
		return false;
	}
}

bool cm_hidden(struct cm_id *id, const struct rdma_cm_event *e)
{
	if (e->id != id->real || id->detached)
		return true;
	if (id->resolving)
		return hidden_answer(id, e);
	if (e->event == RDMA_CM_EVENT_MULTICAST_JOIN)
		return hidden_join(id, e);
	if (e->event == RDMA_CM_EVENT_MULTICAST_ERROR)
		join_answered(id, e);
	if (e->event != RDMA_CM_EVENT_DEVICE_REMOVAL || !id->moves || now_us() > id->moves_until_us)
		return false;
	id->redo = true;
	atomic_store(&cm.pending, true);
	return true;
}

/* The device may never come back with that address: then the program is told. */
static void redo_or_give_up(struct cm_id *id)
{
	if (now_us() <= id->moves_until_us) {
		if (cm_redo(id))
			atomic_store(&cm.pending, true);
		return;
	}
	cm_lock();
	id->redo = id->moves = false;
	cm_push(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	pthread_cond_broadcast(&cm.changed);
	cm_unlock();
	shim_log("an rdma_cm_id could not be made again on the new device");
}

struct work {
	struct cm_id *id; /* NULL: no more. It stays while cm.service is held */
	bool ends, route, redo;
};

/* Finds the next id with work; no id comes twice in a round. */
static struct work next_work(unsigned round)
{
	struct work w = {.id = NULL};
	struct cm_id *id;

	cm_lock();
	list_for_each (id, &cm.ids, link) {
		if (w.id || id->dying || id->round == round)
			continue;
		w.ends = id->kernel_ends;
		w.route = id->redo_route;
		w.redo = id->redo && !id->resolving;
		id->kernel_ends = id->redo_route = false;
		id->round = round;
		if (w.ends || w.route || w.redo)
			w.id = id;
	}
	cm_unlock();
	return w;
}

void cm_background(void)
{
	static unsigned round;
	struct work w;

	pthread_mutex_lock(&cm.service);
	atomic_store(&cm.pending, false);
	round++;
	while ((w = next_work(round)).id) {
		if (w.ends)
			real_cm.disconnect(w.id->real);
		if (w.route && real_cm.resolve_route(w.id->real, w.id->timeout_ms)) {
			cm_lock();
			from_the_start(w.id);
			cm_unlock();
		}
		if (w.redo)
			redo_or_give_up(w.id);
	}
	pthread_mutex_unlock(&cm.service);
}

static void tell_agent(void)
{
	struct cm_id *id;

	cm_lock();
	list_for_each (id, &cm.ids, link)
		if (id->detached && id->ends.known && id->state == CM_CONNECTED)
			peer_send_disconnect(&id->ends, SHIM_WILL);
	cm_unlock();
}

static bool ends_match(const struct cm_ends *k, const struct peer_head *h, const struct peer_qp *e)
{
	return k->known && k->vqpn == e->dst_vqpn && k->dvqpn == e->src_vqpn &&
	       (!k->slot || (k->slot == h->src_slot && k->instance == h->src_instance)) &&
	       !memcmp(k->dgid, h->sgid, 16);
}

/* Before our own end is taken from the kernel: it ends then. */
static void note_early_end(struct cm_id *id, const struct peer_head *h, const struct peer_qp *e)
{
	const struct shim_qp *q = qp_by_vqpn(e->dst_vqpn);

	if (q && id->vqpn == e->dst_vqpn && q->in_job && q->peer && q->dvqpn == e->src_vqpn &&
	    q->peer->slot == h->src_slot && q->peer->instance == h->src_instance &&
	    !memcmp(q->dgid, h->sgid, 16))
		id->lost = true;
}

void cm_peer_disconnected(const struct peer_head *h, const struct peer_qp *e)
{
	struct cm_id *id;

	cm_lock();
	list_for_each (id, &cm.ids, link) {
		if (id->state != CM_CONNECTED)
			continue;
		if (!id->detached)
			note_early_end(id, h, e);
		if (!id->detached || !ends_match(&id->ends, h, e))
			continue;
		peer_send_disconnect(&id->ends, SHIM_WILL_DROP);
		id->ends.known = false;
		id->state = CM_CLOSED;
		cm_push(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
	cm_unlock();
}

/* On InfiniBand, paths of the CM within a subnet have no GRH: the id knows the GIDs. */
static bool find_gids(const struct shim_qp *q, uint32_t dqpn, uint8_t ret_sgid[16],
		      uint8_t ret_dgid[16])
{
	struct cm_id *id;
	bool found = false;

	cm_lock();
	list_for_each (id, &cm.ids, link) {
		const struct rdma_ib_addr *a = &id->real->route.addr.addr.ibaddr;

		if (found || id->detached || id->real->verbs != q->v.context ||
		    (id->vqpn != q->v.qp_num && id->dvqpn != dqpn))
			continue;
		found = true;
		memcpy(ret_sgid, a->sgid.raw, 16);
		memcpy(ret_dgid, a->dgid.raw, 16);
	}
	cm_unlock();
	return found;
}

const struct shim_part cm_part = {.name = "librdmacm",
				  .making = making,
				  .may_be_asked = may_be_asked,
				  .concerned = concerned,
				  .release = release,
				  .rebuild = rebuild,
				  .resumed = resumed,
				  .agent_again = tell_agent,
				  .qp_gone = cm_forget_qp,
				  .find_gids = find_gids,
				  .forget = cm_forget_all};
