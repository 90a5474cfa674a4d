/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm: ids, from their creation to a resolved route, and their queue pairs. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/refuse.h"

#include <errno.h>
#include <infiniband/sa.h>
#include <string.h>

int cm_error(int error)
{
	errno = error;
	return -1;
}

struct cm_id *cm_id_new(struct cm_channel *ch, void *context)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	list_init(&id->joins);
	id->channel = ch;
	id->v.channel = &ch->v;
	id->v.context = context;
	return id;
}

void cm_id_free(struct cm_id *id)
{
	while (id->joins.next != &id->joins) {
		struct cm_join *j = list_entry(id->joins.next, struct cm_join, link);

		list_del(&j->link);
		free(j);
	}
	free(id->path_rec);
	free(id->qp_init);
	free(id);
}

/* A copy: librdmacm's goes with the id on the old device. */
static void pull_paths(struct cm_id *id)
{
	const struct rdma_route *r = &id->real->route;
	size_t bytes = (size_t)r->num_paths * sizeof(*r->path_rec);
	struct ibv_sa_path_rec *room = id->path_rec;

	if (!r->path_rec || r->num_paths <= 0)
		return;
	if (!room || r->num_paths > id->v.route.num_paths)
		room = realloc(room, bytes);
	if (!room)
		return;
	id->path_rec = room;
	memcpy(id->path_rec, r->path_rec, bytes);
	id->v.route.path_rec = id->path_rec;
	id->v.route.num_paths = r->num_paths;
}

void cm_pull(struct cm_id *id)
{
	const struct rdma_cm_id *r = id->real;

	if (id->detached)
		return;
	id->v.verbs = r->verbs;
	id->v.route.addr = r->route.addr;
	id->v.ps = r->ps;
	id->v.port_num = r->port_num;
	id->v.qp_type = r->qp_type;
	if (!id->v.pd)
		id->v.pd = r->pd;
	pull_paths(id);
}

/* Copies the objects that a call of the program made. At other times nothing is copied, because the
 * program may set these fields by itself. */
static void pull_objects(struct cm_id *id)
{
	const struct rdma_cm_id *r = id->real;

	if (id->detached)
		return;
	id->v.qp = r->qp;
	id->v.pd = r->pd;
	id->v.srq = r->srq;
	id->v.send_cq = r->send_cq;
	id->v.recv_cq = r->recv_cq;
	id->v.send_cq_channel = r->send_cq_channel;
	id->v.recv_cq_channel = r->recv_cq_channel;
}

/* Copies back the fields that programs set by themselves. */
static void put_back(struct cm_id *id)
{
	struct rdma_cm_id *r = id->real;

	if (id->detached)
		return;
	r->qp = id->v.qp;
	r->pd = id->v.pd;
	r->srq = id->v.srq;
	r->send_cq = id->v.send_cq;
	r->recv_cq = id->v.recv_cq;
	r->send_cq_channel = id->v.send_cq_channel;
	r->recv_cq_channel = id->v.recv_cq_channel;
}

static int wait_ready(struct cm_id *id)
{
	int rc = 0;

	cm_lock();
	while (id->redo)
		pthread_cond_wait(&cm.changed, &cm.lock);
	if (id->detached)
		rc = cm_error(EINVAL);
	cm_unlock();
	return rc;
}

static bool enter(struct cm_id *id, bool only_ready)
{
	bool enters;

	ctl_enter();
	cm_lock();
	enters = !only_ready || (!id->redo && !id->detached);
	if (enters) {
		put_back(id);
		id->calls++;
	}
	cm_unlock();
	if (!enters)
		ctl_exit();
	return enters;
}

int cm_enter(struct cm_id *id)
{
	enter(id, false);
	return 0;
}

/* A caller that waits for an id is outside of the control verbs, because the id may be made again
 * only after the end of another migration. */
int cm_enter_ready(struct cm_id *id)
{
	do {
		if (wait_ready(id))
			return -1;
	} while (!enter(id, true));
	return 0;
}

void cm_exit(struct cm_id *id)
{
	cm_lock();
	id->calls--;
	cm_pull(id);
	pull_objects(id);
	cm_unlock();
	ctl_exit();
}

enum cm_state cm_set(struct cm_id *id, enum cm_state state)
{
	enum cm_state before;

	cm_lock();
	before = id->state;
	id->state = state;
	cm_unlock();
	return before;
}

enum cm_state cm_get(struct cm_id *id)
{
	enum cm_state state;

	cm_lock();
	state = id->state;
	cm_unlock();
	return state;
}

/* The errno of an event that says that something failed, as librdmacm has it. */
static int event_errno(const struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return e->status < 0 ? -e->status : e->status;
}

int cm_complete(struct cm_id *id)
{
	int rc;

	if (!id->sync)
		return 0;
	if (id->v.event)
		cm_ack(id->v.event);
	id->v.event = NULL;
	rc = cm_next_event(id->channel, &id->v.event);
	if (!rc && id->v.event->status)
		rc = cm_error(event_errno(id->v.event));
	return rc;
}

int cm_ack(struct rdma_cm_event *e)
{
	if (!e)
		return cm_error(EINVAL);
	cm_event_ack(container_of(e, struct cm_event, v), true);
	return 0;
}

int cm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *context,
		 enum rdma_port_space ps)
{
	struct cm_channel *ch;
	struct cm_id *id;
	int rc = 0;

	ch = channel ? cm_channel_find(channel) : NULL;
	if (channel && !ch)
		return cm_error(EINVAL);
	if (!ch)
		rc = cm_channel_new(&ch);
	if (rc)
		return cm_error(-rc);
	id = cm_id_new(ch, context);
	if (id) {
		id->sync = !channel;
		ctl_enter();
		rc = real_cm.create_id(ch->real, &id->real, id, ps) ? -errno : 0;
		ctl_exit();
	}
	if (!id || rc) {
		if (!channel)
			cm_channel_free(ch);
		free(id);
		return cm_error(id ? -rc : ENOMEM);
	}
	cm_lock();
	cm_pull(id);
	list_add(&cm.ids, &id->link);
	cm_unlock();
	*ret_id = &id->v;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *context,
		   enum rdma_port_space ps)
{
	return NOT_OURS ? real_cm.create_id(channel, ret_id, context, ps)
			: cm_create_id(channel, ret_id, context, ps);
}

/* Events that the program will not get. A request among them is a connection that nobody takes. */
static void drop_events(struct cm_id *id)
{
	struct list events;

	list_init(&events);
	cm_lock();
	cm_take_events(id, &events);
	cm_unlock();
	while (events.next != &events) {
		struct cm_event *e = list_entry(events.next, struct cm_event, link);
		struct rdma_cm_id *child = e->v.id;
		bool request = e->v.listen_id == &id->v;

		list_del(&e->link);
		cm_event_ack(e, false);
		if (request)
			cm_destroy(to_cm_id(child));
	}
}

int cm_destroy(struct cm_id *id)
{
	cm_lock();
	id->dying = true;
	cm_unlock();
	if (id->v.event)
		cm_ack(id->v.event);
	drop_events(id);
	cm_lock();
	while (id->told != id->acked)
		pthread_cond_wait(&cm.changed, &cm.lock);
	cm_unlock();
	ctl_enter();
	cm_say_disconnect(id);
	pthread_mutex_lock(&cm.service);
	if (id->first)
		real_cm.destroy_id(id->first);
	real_cm.destroy_id(id->real);
	cm_lock();
	list_del(&id->link);
	cm_unlock();
	pthread_mutex_unlock(&cm.service);
	ctl_exit();
	drop_events(id); /* the thread may just have taken one more */
	if (id->sync)
		cm_channel_free(id->channel);
	cm_id_free(id);
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	return NOT_OURS ? real_cm.destroy_id(id) : cm_destroy(to_cm_id(id));
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return NOT_OURS ? real_cm.bind_addr(id, addr)
			: CM_CALL(to_cm_id(id), bind_addr(to_cm_id(id)->real, addr));
}

int cm_resolve_addr(struct cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	int rc;

	id->timeout_ms = timeout_ms;
	rc = CM_BEGIN(id, cm_enter_ready, CM_RESOLVING,
		      real_cm.resolve_addr(id->real, src, dst, timeout_ms));
	return rc ? rc : cm_complete(id);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	return NOT_OURS ? real_cm.resolve_addr(id, src, dst, timeout_ms)
			: cm_resolve_addr(to_cm_id(id), src, dst, timeout_ms);
}

/* librdmacm looks at the device before it asks the kernel. */
static int ask_route(struct cm_id *id, int timeout_ms)
{
	return id->real->verbs ? real_cm.resolve_route(id->real, timeout_ms) : cm_error(EINVAL);
}

int cm_resolve_route(struct cm_id *id, int timeout_ms)
{
	struct ibv_path_data path;
	int rc;

	/* The kernel takes the path and tells of it by the same event. */
	if (timeout_ms > 0 && cm_get(id) == CM_RESOLVED &&
	    !cm_cached_path(id, &path, (unsigned)timeout_ms) &&
	    !cm_set_path(id, &path, sizeof(path)))
		return 0;
	rc = CM_BEGIN(id, cm_enter_ready, CM_RESOLVING, ask_route(id, timeout_ms));
	return rc ? rc : cm_complete(id);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	return NOT_OURS ? real_cm.resolve_route(id, timeout_ms)
			: cm_resolve_route(to_cm_id(id), timeout_ms);
}

int cm_set_path(struct cm_id *id, void *paths, size_t bytes)
{
	int rc = CM_BEGIN(
		id, cm_enter_ready, CM_RESOLVING,
		real_cm.set_option(id->real, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths, bytes));

	return rc ? rc : cm_complete(id);
}

int rdma_resolve_addrinfo(struct rdma_cm_id *rid, const char *node, const char *service,
			  const struct rdma_addrinfo *hints)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.resolve_addrinfo(rid, node, service, hints)
			: CM_CALL(id, resolve_addrinfo(id->real, node, service, hints));
}

int rdma_query_addrinfo(struct rdma_cm_id *rid, struct rdma_addrinfo **info)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.query_addrinfo(rid, info)
			: CM_CALL(id, query_addrinfo(id->real, info));
}

int rdma_write_cm_event(struct rdma_cm_id *rid, enum rdma_cm_event_type event, int status,
			uint64_t arg)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.write_cm_event(rid, event, status, arg)
			: CM_CALL(id, write_cm_event(id->real, event, status, arg));
}

/* For the id that takes this one's place on a new device. */
static void keep_option(struct cm_id *id, int level, int name, const void *value, size_t bytes)
{
	struct cm_option *o = id->option, *end = o + id->option_count;

	if (bytes > CM_OPTION_BYTES_MAX || level == RDMA_OPTION_IB)
		return; /* a path record: of the old device */
	while (o < end && (o->level != level || o->name != name))
		o++;
	if (o == end && id->option_count++ == CM_OPTIONS_MAX) {
		id->option_count--;
		return;
	}
	*o = (struct cm_option){.level = level, .name = name, .bytes = bytes};
	memcpy(o->value, value, bytes);
}

static int set_option(struct cm_id *id, int level, int name, void *value, size_t bytes)
{
	int rc = real_cm.set_option(id->real, level, name, value, bytes);

	if (rc)
		return rc;
	cm_lock();
	keep_option(id, level, name, value, bytes);
	cm_unlock();
	return 0;
}

int rdma_set_option(struct rdma_cm_id *rid, int level, int name, void *value, size_t bytes)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.set_option(rid, level, name, value, bytes);
	if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
		return cm_set_path(id, value, bytes);
	return CM_AROUND(id, cm_enter_ready, set_option(id, level, name, value, bytes));
}

/* The kernel tells the device's indices; the program hands them to ibv_modify_qp(). */
static int init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct ibv_context *verbs = id->real->verbs;
	int rc = real_cm.init_qp_attr(id->real, attr, mask);
	uint8_t port = id->real->port_num;

	if (!rc && *mask & IBV_QP_PKEY_INDEX && shim_ours(verbs))
		attr->pkey_index = (uint16_t)pkey_index_of_device(
			to_context(verbs), attr->port_num ? attr->port_num : port,
			attr->pkey_index);
	if (!rc && *mask & IBV_QP_AV && shim_ours(verbs) && attr->ah_attr.is_global)
		attr->ah_attr.grh.sgid_index = (uint8_t)gid_index_of_device(
			to_context(verbs), attr->ah_attr.port_num ? attr->ah_attr.port_num : port,
			attr->ah_attr.grh.sgid_index);
	return rc;
}

int rdma_init_qp_attr(struct rdma_cm_id *rid, struct ibv_qp_attr *attr, int *mask)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.init_qp_attr(rid, attr, mask)
			: CM_AROUND(id, cm_enter_ready, init_qp_attr(id, attr, mask));
}

int rdma_get_remote_ece(struct rdma_cm_id *rid, struct ibv_ece *ece)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.get_remote_ece(rid, ece)
			: CM_CALL(id, get_remote_ece(id->real, ece));
}

int rdma_set_local_ece(struct rdma_cm_id *rid, struct ibv_ece *ece)
{
	struct cm_id *id = to_cm_id(rid);

	return NOT_OURS ? real_cm.set_local_ece(rid, ece)
			: CM_CALL(id, set_local_ece(id->real, ece));
}

int cm_create_qp(struct cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return CM_READY(id, create_qp(id->real, pd, attr));
}

int rdma_create_qp(struct rdma_cm_id *rid, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return NOT_OURS ? real_cm.create_qp(rid, pd, attr) : cm_create_qp(to_cm_id(rid), pd, attr);
}

int rdma_create_qp_ex(struct rdma_cm_id *rid, struct ibv_qp_init_attr_ex *attr)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.create_qp_ex(rid, attr);
	if (attr->qp_type == IBV_QPT_XRC_SEND || attr->qp_type == IBV_QPT_XRC_RECV)
		return refuse_cm_xrc("rdma_create_qp_ex"), -1;
	return CM_READY(id, create_qp_ex(id->real, attr));
}

int rdma_create_srq(struct rdma_cm_id *rid, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.create_srq(rid, pd, attr);
	return CM_READY(id, create_srq(id->real, pd, attr));
}

int rdma_create_srq_ex(struct rdma_cm_id *rid, struct ibv_srq_init_attr_ex *attr)
{
	struct cm_id *id = to_cm_id(rid);

	if (NOT_OURS)
		return real_cm.create_srq_ex(rid, attr);
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC)
		return refuse_cm_xrc("rdma_create_srq_ex"), -1;
	return CM_READY(id, create_srq_ex(id->real, attr));
}

/* librdmacm made them for the program, with the QP or SRQ. */
static void destroy_cqs(struct rdma_cm_id *v)
{
	if (v->recv_cq)
		ibv_destroy_cq(v->recv_cq);
	if (v->send_cq && v->send_cq != v->recv_cq)
		ibv_destroy_cq(v->send_cq);
	if (v->recv_cq_channel)
		ibv_destroy_comp_channel(v->recv_cq_channel);
	if (v->send_cq_channel && v->send_cq_channel != v->recv_cq_channel)
		ibv_destroy_comp_channel(v->send_cq_channel);
	v->recv_cq = v->send_cq = NULL;
	v->recv_cq_channel = v->send_cq_channel = NULL;
}

/* By ourselves: a detached id is not librdmacm's any more. */
void cm_destroy_qp(struct cm_id *id)
{
	ibv_destroy_qp(id->v.qp);
	id->v.qp = NULL;
	destroy_cqs(&id->v);
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (NOT_OURS)
		real_cm.destroy_qp(id);
	else
		cm_destroy_qp(to_cm_id(id));
}

void cm_destroy_srq(struct cm_id *id)
{
	ibv_destroy_srq(id->v.srq);
	id->v.srq = NULL;
	destroy_cqs(&id->v);
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (NOT_OURS)
		real_cm.destroy_srq(id);
	else
		cm_destroy_srq(to_cm_id(id));
}

void cm_forget_qp(const struct ibv_qp *qp)
{
	struct cm_id *id;

	/* The thread may just be handing it to modify_qp(). */
	pthread_mutex_lock(&cm.service);
	cm_lock();
	list_for_each (id, &cm.ids, link)
		if (id->real->qp == qp)
			id->real->qp = NULL;
	cm_unlock();
	pthread_mutex_unlock(&cm.service);
}
