/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Event channels of librdmacm: the thread that takes the kernel's events, and the queue from which
 * the program gets them, with ids of ours in the place of librdmacm's. */
#include "guest-agent/shim/cm/id.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#define EPOLL_EVENTS_MAX 16
#define AGAIN_MS         50 /* ids that wait to be made again */

struct cm cm = {
	.service = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.channels = LIST_INIT(cm.channels),
	.ids = LIST_INIT(cm.ids),
	.epoll = -1,
	.wake = -1,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool active;
static atomic_uint_fast64_t serials;
static __thread int cancel_before;

void cm_lock(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_mutex_lock(&cm.lock);
	cancel_before = before;
}

void cm_unlock(void)
{
	int before = cancel_before;

	pthread_mutex_unlock(&cm.lock);
	pthread_setcancelstate(before, NULL);
}

void cm_wake(void)
{
	uint64_t one = 1;

	if (cm.wake >= 0 && write(cm.wake, &one, sizeof(one)) < 0) {
		/* the counter is full: it wakes all the same */
	}
}

struct cm_channel *cm_channel_find(const struct rdma_event_channel *v)
{
	struct cm_channel *ch, *found = NULL;

	cm_lock();
	list_for_each (ch, &cm.channels, link)
		if (&ch->v == v)
			found = ch;
	cm_unlock();
	return found;
}

int cm_channel_new(struct cm_channel **ret_channel)
{
	struct cm_channel *ch = calloc(1, sizeof(*ch));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = ch};

	if (!ch)
		return -ENOMEM;
	list_init(&ch->events);
	ch->serial = 1 + atomic_fetch_add(&serials, 1);
	ch->v.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	ctl_enter_device(); /* librdmacm lists the devices on its first call, and once only */
	ch->real = ch->v.fd < 0 ? NULL : real_cm.create_event_channel();
	ctl_exit();
	if (!ch->real) {
		int rc = errno ? -errno : -ENODEV;

		if (ch->v.fd >= 0)
			close(ch->v.fd);
		free(ch);
		return rc;
	}
	fcntl(ch->real->fd, F_SETFL, fcntl(ch->real->fd, F_GETFL) | O_NONBLOCK);
	cm_lock();
	list_add(&cm.channels, &ch->link);
	cm_unlock();
	epoll_ctl(cm.epoll, EPOLL_CTL_ADD, ch->real->fd, &e);
	*ret_channel = ch;
	return 0;
}

void cm_channel_free(struct cm_channel *ch)
{
	epoll_ctl(cm.epoll, EPOLL_CTL_DEL, ch->real->fd, NULL);
	cm_lock();
	list_del(&ch->link);
	while (ch->busy)
		pthread_cond_wait(&cm.changed, &cm.lock);
	cm_unlock();
	real_cm.destroy_event_channel(ch->real);
	close(ch->v.fd);
	free(ch);
}

static void queue(struct cm_channel *ch, struct cm_event *e)
{
	uint64_t one = 1;

	list_add(&ch->events, &e->link);
	if (write(ch->v.fd, &one, sizeof(one)) < 0) {
		/* the counter never holds more than there are ids and their few events */
	}
}

static void unqueue(struct cm_channel *ch, struct cm_event *e)
{
	uint64_t one;

	list_del(&e->link);
	if (read(ch->v.fd, &one, sizeof(one)) < 0) {
		/* an element is there, and the counter has one for each */
	}
}

void cm_push(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct cm_event *e = calloc(1, sizeof(*e));

	if (!e)
		return; /* as when the kernel has no memory for it */
	e->id = id;
	e->v.id = &id->v;
	e->v.event = type;
	e->v.status = status;
	queue(id->channel, e);
}

void cm_take_events(struct cm_id *id, struct list *ret_events)
{
	struct list *at = id->channel->events.next;

	while (at != &id->channel->events) {
		struct cm_event *e = list_entry(at, struct cm_event, link);

		at = at->next;
		if (e->id != id && e->v.id != &id->v)
			continue;
		unqueue(id->channel, e);
		list_add(ret_events, &e->link);
	}
}

void cm_requeue(struct cm_channel *ch, struct list *events)
{
	while (events->next != events) {
		struct cm_event *e = list_entry(events->next, struct cm_event, link);

		list_del(&e->link);
		queue(ch, e);
	}
}

/* The id of a connection that the other end asks for; it is made by librdmacm. */
static struct cm_id *new_request(struct cm_channel *ch, struct cm_id *listener,
				 struct rdma_cm_event *real)
{
	struct cm_id *id = cm_id_new(ch, listener->v.context);

	if (!id)
		return NULL;
	id->real = real->id;
	real->id->context = id;
	id->state = CM_REQUESTED;
	id->v.event = NULL;
	if (id->real->qp_type != IBV_QPT_UD)
		id->dvqpn = real->param.conn.qp_num;
	list_add(&cm.ids, &id->link);
	return id;
}

/* Notes what the event says of the state of the connection. */
static void note_event(struct cm_id *id, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		id->state = CM_RESOLVED;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		id->state = CM_IDLE;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		id->routed = true;
		/* fall through */
	case RDMA_CM_EVENT_ROUTE_ERROR:
		id->state = CM_RESOLVED;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (e->status)
			break;
		if (id->real->qp_type != IBV_QPT_UD && e->param.conn.qp_num)
			id->dvqpn = e->param.conn.qp_num;
		id->state = CM_CONNECTED;
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		id->dvqpn = e->param.conn.qp_num;
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
		id->state = CM_CLOSED;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		id->timewait_told = true;
		break;
	default:
		break;
	}
}

static void copy_event(struct cm_event *e, const struct rdma_cm_event *real)
{
	bool datagram = real->id->qp_type == IBV_QPT_UD;
	const void *data = datagram ? real->param.ud.private_data : real->param.conn.private_data;
	size_t bytes = datagram ? real->param.ud.private_data_len
				: real->param.conn.private_data_len;

	e->v = *real;
	if (real->event == RDMA_CM_EVENT_MULTICAST_JOIN ||
	    real->event == RDMA_CM_EVENT_MULTICAST_ERROR || !data || !bytes)
		return; /* there, private_data is the context of the join */
	memcpy(e->private_data, data, bytes);
	if (datagram)
		e->v.param.ud.private_data = e->private_data;
	else
		e->v.param.conn.private_data = e->private_data;
}

/* false: the program does not get it. */
static bool accept_event(struct cm_channel *ch, struct rdma_cm_event *real, struct cm_event *e)
{
	bool request = real->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct cm_id *counts = (request ? real->listen_id : real->id)->context, *id = counts;

	e->id = counts;
	if (counts->dying)
		return false;
	if (request) {
		id = new_request(ch, counts, real);
		if (!id)
			return false;
	} else if (cm_hidden(id, real)) {
		return false;
	} else {
		note_event(id, real);
	}
	copy_event(e, real);
	e->v.id = &id->v;
	e->v.listen_id = request ? &counts->v : NULL;
	queue(ch, e);
	return true;
}

/* Takes a single event. false: there is none. */
static bool take_event(struct cm_channel *ch)
{
	struct cm_event *e = calloc(1, sizeof(*e));
	struct rdma_cm_event *real;
	struct rdma_cm_id *orphan = NULL;
	bool taken;
	int rc;

	pthread_mutex_lock(&cm.service);
	rc = e ? real_cm.get_cm_event(ch->real, &real) : -1;
	if (rc) {
		pthread_mutex_unlock(&cm.service);
		free(e);
		return false;
	}
	cm_lock();
	taken = accept_event(ch, real, e);
	if (!taken && real->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		orphan = real->id;
	pthread_cond_broadcast(&cm.changed);
	cm_unlock();
	real_cm.ack_cm_event(real);
	if (orphan) /* the listener is going, and takes its request along */
		real_cm.destroy_id(orphan);
	if (!taken)
		free(e);
	pthread_mutex_unlock(&cm.service);
	return true;
}

void cm_channel_service(struct cm_channel *ch)
{
	while (take_event(ch))
		;
}

void cm_event_ack(struct cm_event *e, bool told)
{
	cm_lock();
	e->id->acked += told;
	pthread_cond_broadcast(&cm.changed);
	cm_unlock();
	free(e);
}

static bool listed(const struct cm_channel *ch, uint64_t serial)
{
	struct cm_channel *c;

	list_for_each (c, &cm.channels, link)
		if (c == ch)
			return !serial || c->serial == serial;
	return false;
}

/* The channel that a sleeper waits for. */
struct sleep {
	uint64_t serial; /* 0: not known yet */
	int fd;          /* -1: the channel is gone */
	bool blocks;
};

/* NULL: none yet. */
static struct cm_event *next(struct cm_channel *ch, struct sleep *s)
{
	struct cm_event *e = NULL;

	cm_lock();
	*s = listed(ch, s->serial) ? (struct sleep){ch->serial, ch->v.fd,
						    !(fcntl(ch->v.fd, F_GETFL) & O_NONBLOCK)}
				   : (struct sleep){s->serial, -1, true};
	if (s->fd >= 0 && ch->events.next != &ch->events) {
		e = list_entry(ch->events.next, struct cm_event, link);
		unqueue(ch, e);
		e->id->told++;
		cm_pull(to_cm_id(e->v.id));
	}
	cm_unlock();
	return e;
}

/* The channel may be destroyed under a thread that sleeps, or that has been woken by an event which
 * then went with its id (rping ends like that). It sleeps on, as in librdmacm's system call. */
int cm_next_event(struct cm_channel *ch, struct rdma_cm_event **ret_event)
{
	struct sleep s = {.fd = -1};
	struct cm_event *e;

	while (!(e = next(ch, &s))) {
		int rc = s.blocks ? shim_sleep(s.fd) : -EAGAIN;

		if (rc)
			return cm_error(-rc);
	}
	*ret_event = &e->v;
	return 0;
}

/* A channel may be destroyed while the thread sleeps: it must still be in the list. */
static struct cm_channel *grab(const void *pointer)
{
	struct cm_channel *ch, *found = NULL;

	cm_lock();
	list_for_each (ch, &cm.channels, link)
		if (ch == pointer)
			found = ch;
	if (found)
		found->busy = true;
	cm_unlock();
	return found;
}

static void let_go(struct cm_channel *ch)
{
	cm_lock();
	ch->busy = false;
	pthread_cond_broadcast(&cm.changed);
	cm_unlock();
}

static void *cm_main(void *arg)
{
	struct epoll_event e[EPOLL_EVENTS_MAX];
	struct cm_channel *ch;
	uint64_t count;

	(void)arg;
	prctl(PR_SET_NAME, "ibvmig-cm");
	for (;;) {
		int n = epoll_wait(cm.epoll, e, EPOLL_EVENTS_MAX,
				   atomic_load(&cm.pending) ? AGAIN_MS : -1);

		ctl_enter();
		for (int i = 0; i < n; i++) {
			if (!e[i].data.ptr && read(cm.wake, &count, sizeof(count)) < 0)
				continue;
			ch = e[i].data.ptr ? grab(e[i].data.ptr) : NULL;
			if (!ch)
				continue;
			cm_channel_service(ch);
			let_go(ch);
		}
		cm_background();
		ctl_exit();
		shim_wake_helper(); /* a suspend may wait for a connection */
	}
	return NULL;
}

static void start(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	sigset_t all, before;
	pthread_t thread;

	if (!shim_start())
		return;
	shim_set_uncovered("it uses librdmacm, and no thread for that can be started");
	cm.epoll = epoll_create1(EPOLL_CLOEXEC);
	cm.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cm.epoll < 0 || cm.wake < 0 || epoll_ctl(cm.epoll, EPOLL_CTL_ADD, cm.wake, &e))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	active = !pthread_create(&thread, NULL, cm_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (active)
		shim_unset_uncovered();
}

bool cm_start(void)
{
	pthread_once(&once, start);
	return active;
}

/* The epoll instance is the parent's, whose thread would be woken by channels of the child. */
void cm_forget_all(void)
{
	if (cm.epoll >= 0)
		close(cm.epoll);
	if (cm.wake >= 0)
		close(cm.wake);
	cm.epoll = cm.wake = -1;
	pthread_mutex_init(&cm.service, NULL);
	pthread_mutex_init(&cm.lock, NULL);
	pthread_cond_init(&cm.changed, NULL);
	list_init(&cm.channels);
	list_init(&cm.ids);
	atomic_store(&cm.pending, false);
	once = (pthread_once_t)PTHREAD_ONCE_INIT;
	active = false;
}
