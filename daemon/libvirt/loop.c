/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/loop.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <libvirt/libvirt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#define EVENTS_BATCH 16
#define PATIENT_MS   1000 /* a timer of as much runs at the beat */

/* A handle or timer. Removed ones stay in the list until the loop sweeps them: libvirt forbids to
 * call ff() inside the remove call. */
struct watch {
	struct watch *next;
	int id, fd;
	int given_fd; /* the descriptor as libvirt gave it */
	bool is_timer, removed, busy;
	uint64_t due_ms; /* due time of a patient timer; 0: it has its own descriptor, or is off */
	int timeout_ms;
	virEventHandleCallback handle_cb;
	virEventTimeoutCallback timeout_cb;
	void *opaque;
	virFreeCallback ff;
};

static struct {
	pthread_mutex_t lock;
	struct watch *list; /* owned */
	int last_id, epoll_fd, sweep_fd;
	sd_event_source *source;
} ev = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1, .sweep_fd = -1};

static uint32_t to_epoll(int events)
{
	return (events & VIR_EVENT_HANDLE_READABLE ? EPOLLIN : 0u) |
	       (events & VIR_EVENT_HANDLE_WRITABLE ? EPOLLOUT : 0u);
}

static int from_epoll(uint32_t events)
{
	return (events & EPOLLIN ? VIR_EVENT_HANDLE_READABLE : 0) |
	       (events & EPOLLOUT ? VIR_EVENT_HANDLE_WRITABLE : 0) |
	       (events & EPOLLERR ? VIR_EVENT_HANDLE_ERROR : 0) |
	       (events & EPOLLHUP ? VIR_EVENT_HANDLE_HANGUP : 0);
}

/* With the lock held. */
static struct watch *find(int id)
{
	for (struct watch *w = ev.list; w; w = w->next)
		if (w->id == id && !w->removed)
			return w;
	return NULL;
}

/* With the lock held. epoll tells of errors and of who has hung up whether asked for or not, and
 * again until somebody reads: without events, libvirt must not hear of it. */
static void set_events(struct watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u64 = (uint64_t)w->id};

	if (!events)
		epoll_ctl(ev.epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	else if (epoll_ctl(ev.epoll_fd, EPOLL_CTL_MOD, w->fd, &e) && errno == ENOENT)
		epoll_ctl(ev.epoll_fd, EPOLL_CTL_ADD, w->fd, &e);
}

static int add(struct watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events};
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);

	w->id = ++ev.last_id;
	e.data.u64 = (uint64_t)w->id;
	if (epoll_ctl(ev.epoll_fd, EPOLL_CTL_ADD, w->fd, &e)) {
		close(w->fd);
		free(w);
		return -1;
	}
	if (!events)
		set_events(w, 0);
	w->next = ev.list;
	ev.list = w;
	return w->id;
}

static int add_handle(int fd, int events, virEventHandleCallback cb, void *opaque,
		      virFreeCallback ff)
{
	struct watch *w = calloc(1, sizeof *w);

	if (!w)
		return -1;
	w->handle_cb = cb;
	w->opaque = opaque;
	w->ff = ff;
	/* libvirt gives descriptors that it may watch twice: epoll refuses the same one, a copy
	 * not. */
	w->given_fd = fd;
	w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return add(w, to_epoll(events));
}

static void update_handle(int id, int events)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);
	struct watch *w = find(id);

	if (w && !w->is_timer)
		set_events(w, to_epoll(events));
}

static int remove_watch(int id)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);
	struct watch *w = find(id);

	if (!w)
		return -1;
	w->removed = true;
	epoll_ctl(ev.epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	close(w->fd);
	w->fd = -1;
	eventfd_write(ev.sweep_fd, 1);
	return 0;
}

static void set_timer(struct watch *w, int timeout_ms)
{
	struct itimerspec t = {0};
	long ns = timeout_ms > 0 ? (timeout_ms % 1000) * 1000000L : 1;

	w->timeout_ms = timeout_ms;
	w->due_ms = timeout_ms >= PATIENT_MS ? now_ms() + (unsigned)timeout_ms : 0;
	if (timeout_ms >= 0 && !w->due_ms) {
		t.it_value.tv_sec = timeout_ms / 1000;
		t.it_value.tv_nsec = ns;
		t.it_interval = t.it_value;
	}
	timerfd_settime(w->fd, 0, &t, NULL);
}

static int add_timeout(int timeout_ms, virEventTimeoutCallback cb, void *opaque, virFreeCallback ff)
{
	struct watch *w = calloc(1, sizeof *w);

	if (!w)
		return -1;
	w->is_timer = true;
	w->timeout_cb = cb;
	w->opaque = opaque;
	w->ff = ff;
	w->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->fd >= 0)
		set_timer(w, timeout_ms);
	return add(w, EPOLLIN);
}

static void update_timeout(int id, int timeout_ms)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);
	struct watch *w = find(id);

	if (w && w->is_timer)
		set_timer(w, timeout_ms);
}

/* Frees what was removed and is not inside its own callback. */
static void sweep(void)
{
	struct watch *gone = NULL;

	pthread_mutex_lock(&ev.lock);
	for (struct watch **p = &ev.list; *p;) {
		struct watch *w = *p;

		if (!w->removed || w->busy) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->next = gone;
		gone = w;
	}
	pthread_mutex_unlock(&ev.lock);
	while (gone) {
		struct watch *w = gone;

		gone = w->next;
		if (w->ff)
			w->ff(w->opaque);
		free(w);
	}
}

static void set_idle(struct watch *w)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);

	w->busy = false;
}

static void dispatch(int id, uint32_t events)
{
	struct watch *w;
	uint64_t expirations;
	bool due = true;

	/* Another thread may close the descriptor as soon as the lock is free. */
	pthread_mutex_lock(&ev.lock);
	w = find(id);
	if (w && w->is_timer)
		due = read(w->fd, &expirations, sizeof expirations) == sizeof expirations;
	if (w)
		w->busy = true;
	pthread_mutex_unlock(&ev.lock);
	if (!w)
		return;
	if (!w->is_timer)
		w->handle_cb(w->id, w->given_fd, from_epoll(events), w->opaque);
	else if (due)
		w->timeout_cb(w->id, w->opaque);
	set_idle(w);
}

/* The next patient timer that is due, marked as busy and set anew; NULL: none. */
static struct watch *take_due(void)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&ev.lock);

	for (struct watch *w = ev.list; w; w = w->next)
		if (!w->removed && w->due_ms && w->due_ms <= now_ms()) {
			set_timer(w, w->timeout_ms);
			w->busy = true;
			return w;
		}
	return NULL;
}

static void run_ready(void)
{
	struct epoll_event e[EVENTS_BATCH];
	int n = epoll_wait(ev.epoll_fd, e, EVENTS_BATCH, 0);
	eventfd_t count;

	for (int i = 0; i < n; i++) {
		if (e[i].data.u64)
			dispatch((int)e[i].data.u64, e[i].events);
		else
			eventfd_read(ev.sweep_fd, &count);
	}
}

static int on_ready(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
	(void)s;
	(void)fd;
	(void)revents;
	(void)arg;
	run_ready();
	sweep();
	return 0;
}

void events_libvirt_beat(void)
{
	run_ready(); /* after a time without the processor an answer may be here */
	for (struct watch *w; (w = take_due());) {
		w->timeout_cb(w->id, w->opaque);
		set_idle(w);
	}
	sweep();
}

int events_libvirt_register(sd_event *loop)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0};
	int rc;

	ev.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ev.sweep_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ev.epoll_fd < 0 || ev.sweep_fd < 0 ||
	    epoll_ctl(ev.epoll_fd, EPOLL_CTL_ADD, ev.sweep_fd, &e))
		return -errno;
	rc = sd_event_add_io(loop, &ev.source, ev.epoll_fd, EPOLLIN, on_ready, NULL);
	if (rc < 0)
		return rc;
	virEventRegisterImpl(add_handle, update_handle, remove_watch, add_timeout, update_timeout,
			     remove_watch);
	return 0;
}
