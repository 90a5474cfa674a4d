/* SPDX-License-Identifier: GPL-2.0-or-later */
/* librdmacm: what is put together of the rest (endpoints), channels, multicast, devices. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"

#include <errno.h>
#include <rdma/rsocket.h>
#include <string.h>

#define EP_TIMEOUT_MS 2000 /* librdmacm's */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *ch;
	int rc;

	if (NOT_OURS)
		return real_cm.create_event_channel();
	rc = cm_channel_new(&ch);
	if (rc) {
		errno = -rc;
		return NULL;
	}
	return &ch->v;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *ch;

	if (NOT_OURS) {
		real_cm.destroy_event_channel(channel);
		return;
	}
	ch = cm_channel_find(channel);
	if (ch)
		cm_channel_free(ch);
}

/* Only to be inside a control verb: the contexts are ours, ibv_open_device() made them. */
struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list;

	if (NOT_OURS)
		return real_cm.get_devices(count);
	ctl_enter_device();
	list = real_cm.get_devices(count);
	ctl_exit();
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	if (NOT_OURS) {
		real_cm.free_devices(list);
		return;
	}
	ctl_enter();
	real_cm.free_devices(list);
	ctl_exit();
}

static int passive_ep(struct rdma_cm_id *v, struct rdma_addrinfo *res, struct ibv_pd *pd,
		      const struct ibv_qp_init_attr *init)
{
	struct cm_id *id = to_cm_id(v);
	int rc = CM_CALL(id, bind_addr(id->real, res->ai_src_addr));

	if (rc)
		return rc;
	if (pd)
		v->pd = pd;
	if (!init)
		return 0;
	id->qp_init = malloc(sizeof(*init));
	if (!id->qp_init)
		return cm_error(ENOMEM);
	*id->qp_init = *init;
	id->qp_init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int active_ep(struct rdma_cm_id *v, struct rdma_addrinfo *res, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *init)
{
	struct cm_id *id = to_cm_id(v);
	int rc = cm_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, EP_TIMEOUT_MS);

	if (!rc && res->ai_route_len)
		rc = cm_set_path(id, res->ai_route, res->ai_route_len);
	else if (!rc)
		rc = cm_resolve_route(id, EP_TIMEOUT_MS);
	if (rc || !init)
		return rc;
	init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return cm_create_qp(id, pd, init);
}

int rdma_create_ep(struct rdma_cm_id **ret_id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *init)
{
	struct rdma_cm_id *v;
	int rc;

	if (NOT_OURS)
		return real_cm.create_ep(ret_id, res, pd, init);
	rc = cm_create_id(NULL, &v, NULL, (enum rdma_port_space)res->ai_port_space);
	if (rc)
		return rc;
	if ((int)v->qp_type != res->ai_qp_type || res->ai_connect_len) {
		shim_log("rdma_create_ep is refused for QP type %d with %zu bytes to connect",
			 res->ai_qp_type, res->ai_connect_len);
		rc = cm_error(EOPNOTSUPP);
	} else if (res->ai_flags & RAI_PASSIVE) {
		rc = passive_ep(v, res, pd, init);
	} else {
		rc = active_ep(v, res, pd, init);
	}
	if (rc) {
		int saved = errno;

		cm_destroy_ep(to_cm_id(v));
		return cm_error(saved);
	}
	*ret_id = v;
	return 0;
}

void cm_destroy_ep(struct cm_id *id)
{
	if (id->v.qp)
		cm_destroy_qp(id);
	if (id->v.srq)
		cm_destroy_srq(id);
	cm_destroy(id);
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (NOT_OURS)
		real_cm.destroy_ep(id);
	else
		cm_destroy_ep(to_cm_id(id));
}

static size_t address_bytes(const struct sockaddr *a)
{
	return a->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
	       : a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					  : sizeof(struct sockaddr_storage);
}

/* Inside the verb: a migration waits for its event, and joins again. */
static int ask_join(struct cm_id *id, struct sockaddr *addr, struct cm_join *j)
{
	struct rdma_cm_join_mc_attr_ex ex = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
							  RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
					     .join_flags = j->flags,
					     .addr = addr};
	int rc;

	cm_lock();
	j->asked = true;
	list_add(&id->joins, &j->link);
	cm_unlock();
	rc = j->flags == RDMA_MC_JOIN_FLAG_FULLMEMBER
		     ? real_cm.join_multicast(id->real, addr, j->context)
		     : real_cm.join_multicast_ex(id->real, &ex, j->context);
	if (rc) {
		cm_lock();
		list_del(&j->link);
		cm_unlock();
	}
	return rc;
}

static int join(struct cm_id *id, struct sockaddr *addr, uint32_t flags, void *context)
{
	struct cm_join *j = calloc(1, sizeof(*j));
	int rc;

	if (!j)
		return cm_error(ENOMEM);
	memcpy(&j->addr, addr, address_bytes(addr));
	j->flags = flags;
	j->context = context;
	rc = CM_AROUND(id, cm_enter_ready, ask_join(id, addr, j));
	if (rc) {
		free(j);
		return rc;
	}
	return cm_complete(id);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return NOT_OURS ? real_cm.join_multicast(id, addr, context)
			: join(to_cm_id(id), addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	if (NOT_OURS)
		return real_cm.join_multicast_ex(id, attr, context);
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED || !attr->addr ||
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_error(EINVAL);
	return join(to_cm_id(id), attr->addr, attr->join_flags, context);
}

int rdma_leave_multicast(struct rdma_cm_id *rid, struct sockaddr *addr)
{
	struct cm_id *id = to_cm_id(rid);
	struct cm_join *j, *found = NULL;
	int rc;

	if (NOT_OURS)
		return real_cm.leave_multicast(rid, addr);
	if (cm_enter_ready(id))
		return -1;
	cm_lock();
	list_for_each (j, &id->joins, link)
		if (!memcmp(&j->addr, addr, address_bytes(addr)))
			found = j;
	if (found)
		list_del(&found->link);
	cm_unlock();
	free(found);
	rc = real_cm.leave_multicast(id->real, addr) ? errno : 0;
	cm_exit(id);
	return rc ? cm_error(rc) : 0;
}

/* rsockets keep their ids to themselves, inside librdmacm: not covered. */
int rsocket(int domain, int type, int protocol)
{
	if (!CALLED_BY_CM && cm_start())
		shim_set_uncovered("it uses rsockets");
	return real_cm.rsocket(domain, type, protocol);
}
