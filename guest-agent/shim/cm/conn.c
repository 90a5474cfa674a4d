/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm: connections, from listen and connect to their end. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"

#include <errno.h>
#include <string.h>

static void note_qp(struct cm_id *id, const struct rdma_conn_param *param)
{
	cm_lock();
	id->vqpn = id->v.qp ? id->v.qp->qp_num : param ? param->qp_num : 0;
	cm_unlock();
}

int rdma_listen(struct rdma_cm_id *rid, int backlog)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.listen(rid, backlog);
	id->backlog = backlog;
	return CM_BEGIN(id, cm_enter_ready, CM_LISTENING, real_cm.listen(id->real, backlog));
}

/* While a suspend waits for the connections that are being made, no more are begun with the mover,
 * who might not be there any more to accept. */
static void wait_for_connects(void)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&shim.ctl);
	while (shim.no_connects)
		pthread_cond_wait(&shim.ctl_changed, &shim.ctl);
	pthread_mutex_unlock(&shim.ctl);
	pthread_setcancelstate(cancel, NULL);
}

/* Such a suspend may have begun while the id was waited for. */
static int enter_to_connect(struct cm_id *id)
{
	bool waits;

	do {
		wait_for_connects();
		if (cm_enter_ready(id))
			return -1;
		pthread_mutex_lock(&shim.ctl);
		waits = shim.no_connects;
		pthread_mutex_unlock(&shim.ctl);
		if (waits)
			cm_exit(id);
	} while (waits);
	return 0;
}

int rdma_connect(struct rdma_cm_id *rid, struct rdma_conn_param *param)
{
	struct cm_id *id = to_cm_id(rid);
	int rc;

	if (NOT_OURS)
		return real_cm.connect(rid, param);
	note_qp(id, param);
	rc = CM_BEGIN(id, enter_to_connect, CM_CONNECTING, real_cm.connect(id->real, param));
	return rc ? rc : cm_complete(id);
}

int rdma_accept(struct rdma_cm_id *rid, struct rdma_conn_param *param)
{
	struct cm_id *id = to_cm_id(rid);
	bool datagram;
	int rc;

	if (NOT_OURS)
		return real_cm.accept(rid, param);
	if (!rid->qp && !param)
		return cm_error(EINVAL);
	note_qp(id, param);
	datagram = rid->qp_type == IBV_QPT_UD;
	rc = CM_BEGIN(id, cm_enter_ready, datagram ? CM_CONNECTED : CM_CONNECTING,
		      real_cm.accept(id->real, param));
	if (rc || !datagram)
		return rc ? rc : cm_complete(id);
	if (id->sync && rid->event) {
		cm_ack(rid->event);
		rid->event = NULL;
	}
	return 0;
}

int rdma_establish(struct rdma_cm_id *rid)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.establish(rid)
			: CM_BEGIN(id, cm_enter, CM_CONNECTED, real_cm.establish(id->real));
}

int rdma_reject(struct rdma_cm_id *rid, const void *data, uint8_t bytes)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.reject(rid, data, bytes)
			: CM_BEGIN(id, cm_enter, CM_CLOSED, real_cm.reject(id->real, data, bytes));
}

int rdma_reject_ece(struct rdma_cm_id *rid, const void *data, uint8_t bytes)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.reject_ece(rid, data, bytes)
			: CM_BEGIN(id, cm_enter, CM_CLOSED,
				   real_cm.reject_ece(id->real, data, bytes));
}

int rdma_notify(struct rdma_cm_id *rid, enum ibv_event_type event)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.notify(rid, event);
	/* A detached id has long been connected: packets that came before do not matter. */
	return CM_AROUND(id, cm_enter, id->detached ? 0 : real_cm.notify(id->real, event));
}

void cm_say_disconnect(struct cm_id *id)
{
	struct cm_ends ends;
	bool say;

	cm_lock();
	say = id->detached && id->ends.known && !id->lost &&
	      (id->state == CM_CONNECTED || id->state == CM_DISCONNECTING);
	ends = id->ends;
	id->ends.known = false;
	cm_unlock();
	if (say)
		peer_send_disconnect(&ends, SHIM_SEND);
	if (ends.known)
		peer_send_disconnect(&ends, SHIM_WILL_DROP);
}

/* The kernel tells both ends when each has heard of the other; ours does not wait for the answer,
 * which might never come. */
static int disconnect_detached(struct cm_id *id)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	int rc = id->v.qp ? ibv_modify_qp(id->v.qp, &error, IBV_QP_STATE) : 0;
	bool first;

	if (rc)
		return cm_error(rc);
	cm_say_disconnect(id);
	cm_lock();
	first = id->state == CM_CONNECTED;
	if (first)
		cm_push(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	if (!id->timewait_told)
		cm_push(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	id->timewait_told = true;
	id->state = CM_CLOSED;
	cm_unlock();
	return first ? cm_complete(id) : 0;
}

int rdma_disconnect(struct rdma_cm_id *rid)
{
	struct cm_id *id = to_cm_id(rid);
	bool detached;
	int rc;

	if (NOT_OURS)
		return real_cm.disconnect(rid);
	ctl_enter(); /* a migration that is under way ends first */
	detached = id->detached;
	rc = detached ? 0
	     : cm_get(id) == CM_CONNECTED
		     ? CM_BEGIN(id, cm_enter, CM_DISCONNECTING, real_cm.disconnect(id->real))
		     : CM_CALL(id, disconnect(id->real));
	ctl_exit();
	if (detached)
		return disconnect_detached(id);
	return rc ? rc : cm_complete(id);
}

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **ret_id)
{
	struct cm_id *id = to_cm_id(listener);
	struct rdma_cm_event *e;
	int rc;

	if (NOT_OURS)
		return real_cm.get_request(listener, ret_id);
	if (!id->sync)
		return cm_error(EINVAL);
	if (listener->event)
		cm_ack(listener->event);
	listener->event = NULL;
	rc = cm_next_event(id->channel, &e);
	if (rc)
		return rc;
	if (e->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		rc = cm_error(e->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED
			      : e->status                        ? -e->status
								 : EINVAL);
	if (!rc)
		rc = cm_migrate(to_cm_id(e->id), NULL);
	if (!rc && id->qp_init) {
		struct ibv_qp_init_attr init = *id->qp_init;

		rc = cm_create_qp(to_cm_id(e->id), listener->pd, &init);
	}
	if (rc) {
		listener->event = e;
		return rc;
	}
	e->id->event = e;
	*ret_id = e->id;
	return 0;
}

/* Under cm.lock. Events that wait go along. */
static void take_along(struct cm_id *id, struct cm_channel *to)
{
	struct list events;

	list_init(&events);
	cm_take_events(id, &events);
	id->channel = to;
	id->v.channel = &to->v;
	cm_requeue(to, &events);
}

/* The id of the first connection that a listener is asked for and whose event waits. NULL: none. */
static struct cm_id *waiting_request(const struct cm_id *listener)
{
	struct cm_id *found = NULL;
	struct cm_event *e;

	cm_lock();
	list_for_each (e, &listener->channel->events, link)
		if (!found && e->v.listen_id == &listener->v)
			found = to_cm_id(e->v.id);
	cm_unlock();
	return found;
}

/* In librdmacm the ids of requests come to be on the channel that their events are taken from, so
 * they go first. The kernel refuses what is ending; its events come from the new channel, too.
 * Under cm.service nothing is on its way to the old one, and no id is freed. */
static int move_to(struct cm_id *id, struct cm_channel *to)
{
	struct cm_id *child;
	int rc = 0;

	if (id->channel == to)
		return 0;
	ctl_enter();
	pthread_mutex_lock(&cm.service);
	if (!id->detached && real_cm.migrate_id(id->real, to->real))
		rc = -errno;
	while (!rc && (child = waiting_request(id))) {
		real_cm.migrate_id(child->real, to->real);
		cm_lock();
		take_along(child, to);
		cm_unlock();
	}
	if (!rc) {
		cm_lock();
		take_along(id, to);
		cm_unlock();
	}
	pthread_mutex_unlock(&cm.service);
	ctl_exit();
	return rc;
}

int cm_migrate(struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = id->channel, *own = NULL;
	int rc = to ? 0 : cm_channel_new(&own);

	if (rc)
		return cm_error(-rc);
	if (id->sync && id->v.event) {
		cm_ack(id->v.event);
		id->v.event = NULL;
	}
	rc = move_to(id, to ? to : own);
	if (rc) {
		if (own)
			cm_channel_free(own);
		return cm_error(-rc);
	}
	if (id->sync)
		cm_channel_free(from);
	id->sync = own != NULL;
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *rid, struct rdma_event_channel *channel)
{
	struct cm_id *id = to_cm_id(rid);
	struct cm_channel *to;

	if (NOT_OURS)
		return real_cm.migrate_id(rid, channel);
	to = channel ? cm_channel_find(channel) : NULL;
	if (channel ? !to : id->sync)
		return cm_error(EINVAL);
	cm_lock();
	/* Events of the old channel must have been acknowledged, as in librdmacm. */
	while (id->told - id->acked > (id->sync && rid->event))
		pthread_cond_wait(&cm.changed, &cm.lock);
	cm_unlock();
	return cm_migrate(id, to);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event)
{
	struct cm_channel *ch;

	if (NOT_OURS)
		return real_cm.get_cm_event(channel, ret_event);
	ch = ret_event ? cm_channel_find(channel) : NULL;
	return ch ? cm_next_event(ch, ret_event) : cm_error(EINVAL);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	return NOT_OURS ? real_cm.ack_cm_event(event) : cm_ack(event);
}
