/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The agent's socket and the helper thread that reads it. The thread does all of a suspend and a
 * resume, whatever the program does meanwhile: spin on memory, sleep in read(), or nothing. */
#include "guest-agent/shim/verbs/ud.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

/* An agent that listens may be starved; a program without its welcome has no cover. */
#define HELLO_MS       20000
#define AGENT_AGAIN_MS 300
#define POLL_FDS_MAX   256
#define SOCKET_BUFFER  (1 << 20)

struct shim shim = {
	.agent = -1,
	.kick = -1,
	.ctl = PTHREAD_MUTEX_INITIALIZER,
	.ctl_changed = PTHREAD_COND_INITIALIZER,
	.contexts = LIST_INIT(shim.contexts),
	.pds = LIST_INIT(shim.pds),
	.xrcds = LIST_INIT(shim.xrcds),
	.mrs = LIST_INIT(shim.mrs),
	.channels = LIST_INIT(shim.channels),
	.cqs = LIST_INIT(shim.cqs),
	.srqs = LIST_INIT(shim.srqs),
	.qps = LIST_INIT(shim.qps),
	.ahs = LIST_INIT(shim.ahs),
	.partners = LIST_INIT(shim.partners),
	.peers = LIST_INIT(shim.peers),
	.call = PTHREAD_MUTEX_INITIALIZER,
	.call_done = PTHREAD_COND_INITIALIZER,
	.calls = LIST_INIT(shim.calls),
};

/* Verbs call verbs (librdmacm opens devices): only the outermost one waits. */
static __thread unsigned ctl_depth;
static __thread int ctl_cancel;

/* A thread that were cancelled inside would be waited for by each suspend from then on. */
void ctl_enter(void)
{
	if (ctl_depth++)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ctl_cancel);
	pthread_mutex_lock(&shim.ctl);
	while (shim.busy)
		pthread_cond_wait(&shim.ctl_changed, &shim.ctl);
	shim.users++;
	pthread_mutex_unlock(&shim.ctl);
}

bool ctl_enter_device(void)
{
	/* Our own thread must not wait for what only it can end. */
	bool waits = !pthread_equal(pthread_self(), shim.helper), waited = false;

	if (ctl_depth++)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ctl_cancel);
	pthread_mutex_lock(&shim.ctl);
	while (waits && (shim.busy || shim.held)) {
		waited = true;
		pthread_cond_wait(&shim.ctl_changed, &shim.ctl);
	}
	shim.users++;
	pthread_mutex_unlock(&shim.ctl);
	return waited;
}

void ctl_exit(void)
{
	bool wake;

	if (--ctl_depth)
		return;
	pthread_mutex_lock(&shim.ctl);
	wake = !--shim.users && shim.busy;
	pthread_mutex_unlock(&shim.ctl);
	if (wake)
		shim_wake_helper();
	pthread_setcancelstate(ctl_cancel, NULL);
}

void shim_wake_helper(void)
{
	uint64_t one = 1;

	if (write(shim.kick, &one, sizeof(one)) < 0) {
		/* the counter is full: it wakes all the same */
	}
}

void shim_send(const void *packet)
{
	const struct shim_head *h = packet;
	ssize_t n;

	do
		n = send(shim.agent, packet, h->bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

void shim_log(const char *fmt, ...)
{
	struct shim_log l = {.head = {.bytes = sizeof(l), .type = SHIM_LOG}};
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l.text, sizeof(l.text), fmt, ap);
	va_end(ap);
	shim_send(&l);
	errno = saved;
}

void shim_set_uncovered(const char *why)
{
	pthread_mutex_lock(&shim.ctl);
	if (!shim.uncovered_objects++)
		snprintf(shim.uncovered_why, sizeof(shim.uncovered_why), "%s", why);
	pthread_mutex_unlock(&shim.ctl);
}

void shim_unset_uncovered(void)
{
	pthread_mutex_lock(&shim.ctl);
	shim.uncovered_objects--;
	pthread_mutex_unlock(&shim.ctl);
}

uint32_t shim_cookie(void)
{
	uint32_t cookie;

	pthread_mutex_lock(&shim.call);
	cookie = ++shim.last_cookie ? shim.last_cookie : ++shim.last_cookie;
	pthread_mutex_unlock(&shim.call);
	return cookie;
}

static struct timespec in_ms(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

bool shim_await_agent(unsigned ms)
{
	struct timespec until = in_ms(ms);
	int rc = 0, cancel;
	bool back;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&shim.call);
	while (shim.agent_lost && !rc)
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
	back = !shim.agent_lost;
	pthread_mutex_unlock(&shim.call);
	pthread_setcancelstate(cancel, NULL);
	return back;
}

int shim_call(void *packet, void *answer, size_t bytes, unsigned timeout_ms)
{
	struct shim_head *h = packet;
	struct shim_call c = {.cookie = shim_cookie(), .answer = answer, .bytes = bytes};
	struct timespec until = in_ms(timeout_ms);
	int rc = 0, cancel;
	unsigned losses;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	h->cookie = c.cookie;
	pthread_mutex_lock(&shim.call);
	list_add(&shim.calls, &c.link);
	losses = shim.agent_losses;
	pthread_mutex_unlock(&shim.call);
	shim_send(packet);
	pthread_mutex_lock(&shim.call);
	while (!c.done && !shim_agent_left(losses) && !rc)
		rc = pthread_cond_timedwait(&shim.call_done, &shim.call, &until);
	list_del(&c.link);
	rc = shim_agent_left(losses) ? -ECONNRESET : -ETIMEDOUT;
	pthread_mutex_unlock(&shim.call);
	pthread_setcancelstate(cancel, NULL);
	return c.done ? ((struct shim_head *)answer)->status : rc;
}

static void call_answered(const struct shim_head *h)
{
	struct shim_call *c;

	pthread_mutex_lock(&shim.call);
	list_for_each (c, &shim.calls, link) {
		if (c->cookie != h->cookie || c->done)
			continue;
		memcpy(c->answer, h, h->bytes < c->bytes ? h->bytes : c->bytes);
		c->done = true;
	}
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

static void agent_packet(const struct shim_head *h)
{
	const void *p = h;

	switch (h->type) {
	case SHIM_DELIVER:
		peer_delivered(p);
		break;
	case SHIM_UNREACHABLE:
		peer_unreachable(((const struct shim_relay *)p)->dgid);
		break;
	case SHIM_QUERY:
		shim_describe(h->cookie);
		break;
	case SHIM_SUSPEND:
	case SHIM_RELEASE:
	case SHIM_ABORT:
	case SHIM_RESUME:
	case SHIM_BUILD:
		job_order(p);
		break;
	case SHIM_PATH:
		route_answered(p);
		break;
	default:
		call_answered(h);
	}
}

/* false: the agent is gone. */
static bool read_agent(void)
{
	static union {
		struct shim_head head;
		char data[SHIM_MSG_MAX];
	} in;

	for (;;) {
		ssize_t n = recv(shim.agent, &in, sizeof(in), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		if ((size_t)n >= sizeof(in.head) && in.head.bytes == (uint32_t)n)
			agent_packet(&in.head);
	}
}

/* The real channels, whose events the program does not see. Fills fds from 2 on. */
static nfds_t watch_channels(struct pollfd *fds)
{
	struct shim_context *c;
	struct shim_channel *ch;
	nfds_t n = 2;

	if (!job_wants_channels())
		return n;
	list_for_each (c, &shim.contexts, link) {
		if (c->in_job && c->own_channel && n < POLL_FDS_MAX)
			fds[n++] = (struct pollfd){.fd = c->own_channel->fd, .events = POLLIN};
	}
	list_for_each (ch, &shim.channels, link) {
		if (ch->ctx->in_job && ch->real && n < POLL_FDS_MAX)
			fds[n++] = (struct pollfd){.fd = ch->real->fd, .events = POLLIN};
	}
	return n;
}

static bool any_readable(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents)
			return true;
	return false;
}

static int connect_agent(void)
{
	const char *path = getenv(SHIM_SOCKET_ENV);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd AUTO_CLOSE = -1;
	int size = SOCKET_BUFFER;

	if (!path)
		path = SHIM_SOCKET;
	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return TAKE_FD(fd);
}

/* As in the agent, for this process only; the agent's own list is added. */
static unsigned own_faults(void)
{
	static const struct {
		const char *name;
		unsigned bit;
	} faults[] = {{"no-marker", SHIM_FAULT_NO_MARKER},
		      {"no-dirtying", SHIM_FAULT_NO_DIRTYING},
		      {"no-counts", SHIM_FAULT_NO_COUNTS}};
	const char *list = getenv("IBVMIG_FAULT");
	unsigned fault = 0;

	for (size_t i = 0; list && i < ARRAY_SIZE(faults); i++)
		if (strstr(list, faults[i].name))
			fault |= faults[i].bit;
	return fault;
}

/* The first packet and its answer go before the helper thread exists. */
static int say_hello(int fd)
{
	struct shim_hello h = {.head = {.bytes = sizeof(h), .type = SHIM_HELLO, .cookie = 1},
			       .version = SHIM_PROTO_VERSION,
			       .pid = getpid(),
			       .slot = shim.slot,
			       .instance = shim.instance,
			       .suspended = job_suspended()};
	const struct timeval limit = {.tv_sec = HELLO_MS / 1000}, none = {0};
	struct shim_welcome w;

	snprintf(h.comm, sizeof(h.comm), "%s", program_invocation_short_name);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(fd, &h, sizeof(h), MSG_NOSIGNAL) != sizeof(h) ||
	    recv(fd, &w, sizeof(w), 0) != sizeof(w) || w.head.type != SHIM_HELLO)
		return -EPROTO;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	if (w.head.status)
		return w.head.status;
	shim.slot = w.slot;
	shim.instance = w.instance;
	pthread_mutex_lock(&shim.ctl);
	shim.held |= w.held != 0;
	pthread_mutex_unlock(&shim.ctl);
	shim.fault = w.fault | own_faults();
	return 0;
}

static void agent_gone(void)
{
	pthread_mutex_lock(&shim.call);
	shim.agent_lost = true;
	shim.agent_losses++;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
	job_agent_gone();
}

/* A new agent is told all that the old one knew. */
static void agent_again(void)
{
	int fd AUTO_CLOSE = connect_agent();
	struct shim_qp *q;

	if (fd < 0 || say_hello(fd))
		return;
	/* Other threads may just use the descriptor: it must stay the same. */
	if (dup3(fd, shim.agent, O_CLOEXEC) < 0)
		return;
	pthread_mutex_lock(&shim.ctl);
	list_for_each (q, &shim.qps, link) {
		struct shim_qp_number n = {.head = {.bytes = sizeof(n), .type = SHIM_QP_ADD},
					   .vqpn = q->v.qp_num};
		shim_send(&n);
	}
	routes_ask_again();
	pthread_mutex_unlock(&shim.ctl);
	cm_tell_agent();
	pthread_mutex_lock(&shim.call);
	shim.agent_lost = false;
	pthread_cond_broadcast(&shim.call_done);
	pthread_mutex_unlock(&shim.call);
}

/* Of two times in milliseconds, -1: never. */
static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Milliseconds, -1: for ever. */
static int wait_time(void)
{
	int ms = sooner(sooner(job_timeout(), ud_timeout()), peer_want_timeout());

	return shim.agent_lost && (ms < 0 || ms > AGENT_AGAIN_MS) ? AGENT_AGAIN_MS : ms;
}

static void *helper_main(void *arg)
{
	static struct pollfd fds[POLL_FDS_MAX];
	uint64_t count;

	(void)arg;
	prctl(PR_SET_NAME, "ibvmig");
	ctl_depth = 1; /* the job is its own */
	for (;;) {
		fds[0] = (struct pollfd){.fd = shim.agent_lost ? -1 : shim.agent, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = shim.kick, .events = POLLIN};
		nfds_t n = watch_channels(fds);

		if (poll(fds, n, wait_time()) < 0)
			continue;
		if (fds[1].revents && read(shim.kick, &count, sizeof(count)) < 0)
			continue;
		if (any_readable(fds + 2, n - 2))
			suspend_take_events();
		if (shim.agent_lost)
			agent_again();
		else if (fds[0].revents && !read_agent())
			agent_gone();
		job_step();
		ud_step();
		peer_want_again();
		peer_flush();
	}
	return NULL;
}

static int start_helper(void)
{
	sigset_t all, before;
	int rc;

	shim.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (shim.kick < 0)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&shim.helper, NULL, helper_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

static void start(void)
{
	int fd = connect_agent();

	if (fd < 0)
		return;
	shim.agent = fd;
	if (fork_watch() || say_hello(fd) || start_helper()) {
		close(fd);
		shim.agent = -1;
		return;
	}
	if (own_faults())
		shim_log("FAULT INJECTION is on (IBVMIG_FAULT=%.40s)", getenv("IBVMIG_FAULT"));
}

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

bool shim_start(void)
{
	pthread_mutex_lock(&start_lock);
	if (!started)
		start();
	started = true;
	pthread_mutex_unlock(&start_lock);
	return shim.agent >= 0;
}

void shim_reset(void)
{
	struct list *lists[] = {&shim.contexts, &shim.pds,   &shim.xrcds,    &shim.mrs,
				&shim.channels, &shim.cqs,   &shim.srqs,     &shim.qps,
				&shim.ahs,      &shim.peers, &shim.partners, &shim.calls};

	memset(&shim, 0, sizeof(shim));
	shim.agent = shim.kick = -1;
	pthread_mutex_init(&shim.ctl, NULL);
	pthread_cond_init(&shim.ctl_changed, NULL);
	pthread_mutex_init(&shim.call, NULL);
	pthread_cond_init(&shim.call_done, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		list_init(lists[i]);
	pthread_mutex_init(&start_lock, NULL);
	started = false;
}
