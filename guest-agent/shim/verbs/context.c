/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices: open, close, and what can be asked of them. */
#include "guest-agent/shim/verbs/context.h"
#include "guest-agent/shim/core/callers.h"
#include "guest-agent/shim/core/fork.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/real.h"
#include "guest-agent/shim/core/sleep.h"
#include "guest-agent/shim/verbs/cq.h"
#include "guest-agent/shim/port/gid.h"
#include "guest-agent/shim/port/lid.h"
#include "guest-agent/shim/verbs/mr.h"
#include "guest-agent/shim/verbs/mw.h"
#include "guest-agent/shim/port/pkey.h"
#include "guest-agent/shim/verbs/post.h"
#include "guest-agent/shim/verbs/qp.h"
#include "guest-agent/shim/verbs/refuse.h"
#include "guest-agent/shim/verbs/srq.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/eventfd.h>

#undef ibv_query_port
#undef ibv_get_device_list

bool shim_ours(const struct ibv_context *context)
{
	return context &&
	       (context->ops.poll_cq == shim_poll_cq || context->ops.poll_cq == fork_no_poll_cq);
}

static int op_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
			 size_t bytes)
{
	struct shim_context *c = to_context(context);
	struct verbs_context *v;
	int rc = EOPNOTSUPP;

	ctl_enter();
	v = verbs_get_ctx_op(c->real, query_port);
	if (v)
		rc = v->query_port(c->real, port, attr, bytes);
	if (!rc)
		lid_answer(c, port, attr);
	ctl_exit();
	return rc;
}

/* Hides in ibv_device_attr the things that are refused. */
static void hide_refused(struct ibv_device_attr *attr)
{
	attr->device_cap_flags &= ~(unsigned)IBV_DEVICE_MANAGED_FLOW_STEERING;
}

/* attr may be shorter than ours. */
static void hide_refused_ex(struct ibv_device_attr_ex *attr, size_t bytes)
{
#define HIDE(field)                                                                                \
	do {                                                                                       \
		if (bytes >= offsetof(struct ibv_device_attr_ex, field) + sizeof(attr->field))     \
			memset(&attr->field, 0, sizeof(attr->field));                              \
	} while (0)
	hide_refused(&attr->orig_attr);
	HIDE(odp_caps);
	HIDE(xrc_odp_caps);
	HIDE(completion_timestamp_mask);
	HIDE(hca_core_clock);
	HIDE(tso_caps);
	HIDE(rss_caps);
	HIDE(max_wq_type_rq);
	HIDE(packet_pacing_caps);
	HIDE(tm_caps);
	HIDE(cq_mod_caps);
	HIDE(max_dm_size);
#undef HIDE
}

static int op_query_device_ex(struct ibv_context *context,
			      const struct ibv_query_device_ex_input *input,
			      struct ibv_device_attr_ex *attr, size_t bytes)
{
	struct shim_context *c = to_context(context);
	struct verbs_context *v;
	int rc = EOPNOTSUPP;

	ctl_enter();
	v = verbs_get_ctx_op(c->real, query_device_ex);
	if (v)
		rc = v->query_device_ex(c->real, input, attr, bytes);
	ctl_exit();
	if (!rc)
		hide_refused_ex(attr, bytes);
	return rc;
}

int context_query_gids(struct shim_context *c)
{
	union ibv_gid gid;

	c->guid_count = 0;
	for (int i = 0; i < SHIM_GIDS_MAX; i++) {
		if (real_verbs.query_gid(c->real, 1, i, &gid))
			break;
		if (gid.global.interface_id)
			c->guid[c->guid_count++] = be64toh(gid.global.interface_id);
	}
	return c->guid_count ? 0 : -ENODEV;
}

bool context_has_guid(const struct shim_context *c, const struct shim_order *o, unsigned *ret_index)
{
	for (unsigned i = 0; i < c->guid_count; i++) {
		for (unsigned k = 0; k < o->vguid_count && k < SHIM_VGUIDS_MAX; k++) {
			if (c->guid[i] != o->vguid[k])
				continue;
			if (ret_index)
				*ret_index = k;
			return true;
		}
	}
	return false;
}

/* The real descriptor never blocks, and shows in the one that the program sees. */
static void attach_async(struct shim_context *c, struct ibv_context *real)
{
	struct epoll_event e = {.events = EPOLLIN};

	fcntl(real->async_fd, F_SETFL, fcntl(real->async_fd, F_GETFL) | O_NONBLOCK);
	epoll_ctl(c->async_fd, EPOLL_CTL_ADD, real->async_fd, &e);
}

/* The real part: at the start and after each migration. 0 or -errno. */
int context_open(struct shim_context *c, struct ibv_device *device)
{
	struct ibv_context *real = real_verbs.open_device(device);

	if (!real)
		return -errno;
	c->own_channel = real_verbs.create_comp_channel(real);
	if (!c->own_channel) {
		int rc = -errno;

		real_verbs.close_device(real);
		return rc;
	}
	fcntl(c->own_channel->fd, F_SETFL, fcntl(c->own_channel->fd, F_GETFL) | O_NONBLOCK);
	fork_keep_fd(c->own_channel->fd);
	fork_keep_fd(real->cmd_fd);
	fork_keep_fd(real->async_fd);
	attach_async(c, real);
	pthread_mutex_lock(&shim.ctl); /* a thread of the program may wait for events */
	c->real = real;
	c->moved = c->opened;
	c->opened = true;
	pkeys_opened(c);
	c->released = false;
	pthread_mutex_unlock(&shim.ctl);
	return 0;
}

void context_close(struct shim_context *c)
{
	epoll_ctl(c->async_fd, EPOLL_CTL_DEL, c->real->async_fd, NULL);
	fork_drop_fd(c->own_channel->fd);
	fork_drop_fd(c->real->cmd_fd);
	fork_drop_fd(c->real->async_fd);
	real_verbs.destroy_comp_channel(c->own_channel);
	c->own_channel = NULL;
	real_verbs.close_device(c->real);
	c->real = NULL;
}

static struct shim_event *pop_event(struct shim_context *c)
{
	struct shim_event *e = list_entry(c->events.next, struct shim_event, link);
	uint64_t one;

	list_del(&e->link);
	if (read(c->soft_events, &one, sizeof(one)) < 0) {
		/* the counter had no room for it, which 2^64 events would take */
	}
	return e;
}

/* On pages of its own, which a child of a fork has whatever the program has registered. */
static struct shim_context *context_new(void)
{
	void *p = mmap(NULL, sizeof(struct shim_context), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void context_free(struct shim_context *c)
{
	while (c->events.next != &c->events)
		free(pop_event(c));
	table_free(&c->qp_by_qpn);
	fork_drop_fd(c->soft_events);
	fork_drop_fd(c->async_fd);
	close(c->soft_events);
	close(c->async_fd);
	munmap(c, sizeof(*c));
}

/* Tells our devices from real ones, which have NULL there. */
static void device_mark(struct ibv_context *context)
{
	(void)context;
}

static void context_set_up(struct shim_context *c, struct ibv_device *device)
{
	struct ibv_context *v = &c->verbs.context;

	c->device = *device;
	c->device._ops._dummy2 = device_mark;
	c->generation = shim.generation;
	c->node_guid = real_verbs.get_device_guid(device);
	*v = *c->real;
	v->device = &c->device;
	memset(&v->ops, 0, sizeof(v->ops));
	v->ops.post_send = shim_post_send;
	v->ops.post_recv = shim_post_recv;
	v->ops.post_srq_recv = shim_post_srq_recv;
	if (c->real->ops.alloc_mw) {
		v->ops.alloc_mw = shim_alloc_mw;
		v->ops.bind_mw = shim_bind_mw;
		v->ops.dealloc_mw = shim_dealloc_mw;
	}
	v->ops.poll_cq = shim_poll_cq;
	v->ops.req_notify_cq = shim_req_notify_cq;
	/* A program may duplicate it for ibv_import_device(), which says EOPNOTSUPP. */
	v->cmd_fd = c->async_fd;
	v->async_fd = c->async_fd;
	v->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&v->mutex, NULL);
	c->verbs.query_port = op_query_port;
	c->verbs.query_device_ex = op_query_device_ex;
	refuse_set_ops(&c->verbs);
	c->verbs.create_qp_ex = shim_create_qp_ex;
	c->verbs.create_srq_ex = shim_create_srq_ex;
	c->verbs.get_srq_num = shim_get_srq_num;
	c->verbs.open_xrcd = shim_open_xrcd;
	c->verbs.close_xrcd = shim_close_xrcd;
	c->verbs.create_cq_ex = shim_create_cq_ex;
	c->verbs.alloc_td = shim_alloc_td;
	c->verbs.dealloc_td = shim_dealloc_td;
	c->verbs.alloc_parent_domain = shim_alloc_parent_domain;
	c->verbs.sz = sizeof(c->verbs);
}

/* The program may hand in the device of a shadow: the real one of that name is meant. */
static struct shim_context *shadow_of(const struct ibv_device *device)
{
	return device->_ops._dummy2 == device_mark
		       ? container_of(device, struct shim_context, device)
		       : NULL;
}

/* librdmacm opens each device once and gives its context to all ids. The device that comes after a
 * migration is another one to it, but must have the context that the program knows. */
static struct shim_context *opened_before(const struct ibv_device *device)
{
	struct shim_context *c, *found = NULL;

	pthread_mutex_lock(&shim.ctl);
	list_for_each (c, &shim.contexts, link)
		if (c->cm_opens && c->real && !strcmp(c->real->device->name, device->name))
			found = c;
	if (found)
		found->cm_opens++;
	pthread_mutex_unlock(&shim.ctl);
	return found;
}

/* Programs that start while the guest has no device for a moment would give up. */
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;

	/* librdmacm asks with its own lock held, in calls that have waited before (shim/cm/id.c).
	 */
	if (cm_opens_device(__builtin_return_address(0)) || !shim_start())
		return real_verbs.get_device_list(num_devices);
	ctl_enter_device();
	list = real_verbs.get_device_list(num_devices);
	ctl_exit();
	return list;
}

/* The device may have been replaced since the program got its list: the one with its name is meant.
 * *ret_list: to be freed when it is open. */
static struct ibv_device *newest(struct ibv_device *device, struct ibv_device ***ret_list)
{
	struct ibv_device **list = real_verbs.get_device_list(NULL);

	*ret_list = list;
	for (size_t i = 0; list && list[i]; i++)
		if (!strcmp(list[i]->name, device->name))
			return list[i];
	return device;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_device **list = NULL;
	struct epoll_event watch = {.events = EPOLLIN};
	bool by_cm = cm_opens_device(__builtin_return_address(0));
	struct shim_context *c, *shadow;
	bool waited;
	int rc;

	if (!device || !shim_start())
		return real_verbs.open_device(device);
	waited = by_cm ? (ctl_enter(), false) : ctl_enter_device();
	c = by_cm ? opened_before(device) : NULL;
	if (c) {
		ctl_exit();
		return &c->verbs.context;
	}
	shadow = shadow_of(device);
	if (shadow)
		device = shadow->real->device;
	else if (waited)
		device = newest(device, &list);
	c = context_new();
	rc = c ? 0 : -ENOMEM;
	if (c) {
		list_init(&c->events);
		c->async_fd = epoll_create1(EPOLL_CLOEXEC);
		c->soft_events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
		fork_keep_fd(c->async_fd);
		fork_keep_fd(c->soft_events);
		rc = c->async_fd < 0 || c->soft_events < 0 ||
				     epoll_ctl(c->async_fd, EPOLL_CTL_ADD, c->soft_events, &watch)
			     ? -errno
			     : context_open(c, device);
	}
	if (!rc) {
		context_query_gids(c);
		context_set_up(c, device);
		c->cm_opens = by_cm;
		pthread_mutex_lock(&shim.ctl);
		list_add(&shim.contexts, &c->link);
		pthread_mutex_unlock(&shim.ctl);
	} else if (c) {
		context_free(TAKE(c));
	}
	if (list)
		real_verbs.free_device_list(list);
	ctl_exit();
	if (rc)
		errno = -rc;
	return c ? &c->verbs.context : NULL;
}

int ibv_close_device(struct ibv_context *context)
{
	struct shim_context *c;

	if (!shim_ours(context))
		return real_verbs.close_device(context);
	c = to_context(context);
	if (shim_inherited(c))
		return EBADF;
	if (c->cm_opens)
		return 0; /* the program may still hold objects on it */
	ctl_enter();
	context_leave_objects(c);
	pthread_mutex_lock(&shim.ctl);
	list_del(&c->link);
	pthread_mutex_unlock(&shim.ctl);
	context_close(c);
	context_free(c);
	ctl_exit();
	return 0;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct shim_context *c = shadow_of(device);

	return c ? c->node_guid : real_verbs.get_device_guid(device);
}

int ibv_get_device_index(struct ibv_device *device)
{
	struct shim_context *c = shadow_of(device);
	int index;

	if (!c)
		return real_verbs.get_device_index(device);
	ctl_enter();
	index = real_verbs.get_device_index(c->real->device);
	ctl_exit();
	return index;
}

/* The rest only needs the real context in the place of ours. */
#define FORWARD(context, call)                                                                     \
	do {                                                                                       \
		if (!shim_ours(context))                                                           \
			return real_verbs.call;                                                    \
		struct ibv_context *shadow_ = (context);                                           \
		ctl_enter();                                                                       \
		(context) = to_context(shadow_)->real;                                             \
		__typeof__(real_verbs.call) ret_ = real_verbs.call;                                \
		ctl_exit();                                                                        \
		return ret_;                                                                       \
	} while (0)

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_device(context, attr);
	ctl_enter();
	rc = real_verbs.query_device(to_context(context)->real, attr);
	ctl_exit();
	if (!rc)
		hide_refused(attr);
	return rc;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs.query_port(context, port, attr);
	c = to_context(context);
	ctl_enter();
	rc = real_verbs.query_port(c->real, port, attr);
	if (!rc) /* only what was added behind the flags is missing */
		lid_answer(c, port, (struct ibv_port_attr *)attr);
	ctl_exit();
	return rc;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	int rc;

	if (!shim_ours(context))
		return real_verbs.init_ah_from_wc(context, port, wc, grh, attr);
	ctl_enter();
	rc = real_verbs.init_ah_from_wc(to_context(context)->real, port, wc, grh, attr);
	if (!rc && attr->is_global)
		attr->grh.sgid_index = (uint8_t)gid_index_of_device(to_context(context), port,
								    attr->grh.sgid_index);
	ctl_exit();
	return rc;
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t mac[6], uint16_t *vid)
{
	FORWARD(context, resolve_eth_l2_from_gid(context, attr, mac, vid));
}

/* The object of an event is the real one; its context pointer holds ours. */
static void translate_event(struct ibv_async_event *e)
{
	struct shim_srq *s;

	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		e->element.cq = &((struct shim_cq *)e->element.cq->cq_context)->v;
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_SRQ_ERR:
		s = e->element.srq->srq_context;
		if (e->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
			s->limit = 0; /* the event comes once for each time that it is armed */
		e->element.srq = &s->v;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		e->element.qp = &((struct shim_qp *)e->element.qp->qp_context)->v;
		break;
	default:
		break;
	}
}

/* The object that an event is about, as far as libibverbs has counters for it, which .mutex guards.
 */
struct event_object {
	const void *object;
	struct ibv_context *context; /* NULL: it is about no object */
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *given; /* only our objects have it */
	uint32_t *acked;
};

static struct event_object event_object(const struct ibv_async_event *e)
{
	struct ibv_cq *cq = e->element.cq;
	struct ibv_srq *srq = e->element.srq;
	struct ibv_qp *qp = e->element.qp;

	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return (struct event_object){cq,
					     cq->context,
					     &cq->mutex,
					     &cq->cond,
					     &to_cq(cq)->async_events,
					     &cq->async_events_completed};
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_SRQ_ERR:
		return (struct event_object){srq,
					     srq->context,
					     &srq->mutex,
					     &srq->cond,
					     &to_srq(srq)->async_events,
					     &srq->events_completed};
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return (struct event_object){qp,
					     qp->context,
					     &qp->mutex,
					     &qp->cond,
					     &to_qp(qp)->async_events,
					     &qp->events_completed};
	default:
		return (struct event_object){0};
	}
}

/* Acknowledged at once, so that a suspend can destroy the object whatever the program does. */
static int take_real_event(struct shim_context *c, struct ibv_async_event *event)
{
	struct ibv_async_event real;
	int rc = real_verbs.get_async_event(c->real, &real);

	if (rc)
		return rc;
	*event = real;
	translate_event(event);
	real_verbs.ack_async_event(&real);
	return 0;
}

void context_keep_events(struct shim_context *c)
{
	const uint64_t one = 1;
	struct shim_event *e;

	pthread_mutex_lock(&shim.ctl);
	while (c->real && (e = calloc(1, sizeof(*e)))) {
		if (take_real_event(c, &e->event) || write(c->soft_events, &one, sizeof(one)) < 0) {
			free(e);
			break;
		}
		list_add(&c->events, &e->link);
	}
	pthread_mutex_unlock(&shim.ctl);
}

void context_forget_events(struct shim_context *c, const void *object)
{
	struct list *l = c->events.next, *next;
	uint64_t one;

	for (; l != &c->events; l = next) {
		struct shim_event *e = list_entry(l, struct shim_event, link);

		next = l->next;
		if (event_object(&e->event).object != object)
			continue;
		list_del(&e->link);
		free(e);
		if (read(c->soft_events, &one, sizeof(one)) < 0)
			break;
	}
}

/* Also while a job runs: what the descriptor shows must be there to take, or who waits for it would
 * spin. The device is opened and closed under ctl. What the event is about stays from now on until
 * the program acknowledges it. */
static int take_async_event(struct shim_context *c, struct ibv_async_event *event)
{
	struct event_object about = {0};
	int rc = -1;

	pthread_mutex_lock(&shim.ctl);
	errno = EAGAIN;
	if (c->events.next != &c->events) {
		struct shim_event *e = pop_event(c);

		*event = e->event;
		free(e);
		rc = 0;
	} else if (c->real) {
		rc = take_real_event(c, event);
	}
	if (!rc)
		about = event_object(event);
	if (about.given)
		++*about.given;
	pthread_mutex_unlock(&shim.ctl);
	return rc;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct shim_context *c;
	int rc;

	if (!shim_ours(context))
		return real_verbs.get_async_event(context, event);
	c = to_context(context);
	if (shim_inherited(c)) {
		errno = EBADF;
		return -1;
	}
	for (;;) {
		if (!take_async_event(c, event))
			return 0;
		if (errno != EAGAIN || fcntl(c->async_fd, F_GETFL) & O_NONBLOCK)
			return -1;
		rc = shim_sleep(c->async_fd);
		if (rc) {
			errno = -rc;
			return -1;
		}
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct event_object about = event_object(event);

	if (!shim_ours(about.context)) {
		real_verbs.ack_async_event(event);
		return;
	}
	pthread_mutex_lock(about.mutex);
	++*about.acked;
	pthread_cond_signal(about.cond);
	pthread_mutex_unlock(about.mutex);
}
