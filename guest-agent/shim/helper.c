/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The helper thread. It reads the agent's socket and does all of a suspend and a resume, whatever
 * the program does meanwhile: spin on memory, sleep in read(), or nothing. */
#include "guest-agent/shim/child.h"
#include "guest-agent/shim/core/link.h"
#include "guest-agent/shim/core/part.h"
#include "guest-agent/shim/deliver.h"
#include "guest-agent/shim/job/job.h"
#include "guest-agent/shim/peer/peer.h"
#include "guest-agent/shim/peer/route.h"
#include "guest-agent/shim/repath/repath.h"
#include "guest-agent/shim/verbs/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

/* An agent that listens may be starved; a program without its welcome has no cover. */
#define HELLO_MS       20000
#define AGENT_AGAIN_MS 300
#define POLL_FDS_MAX   256
#define SOCKET_BUFFER  (1 << 20)

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
		repath_answered(p);
		break;
	case SHIM_REPATH:
		repath_told(p);
		break;
	default:
		shim_call_answered(h);
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
	/* A setuid program would speak to whatever agent its user has made. */
	const char *path = secure_getenv(SHIM_SOCKET_ENV);
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
		      {"no-counts", SHIM_FAULT_NO_COUNTS},
		      {"no-sl", SHIM_FAULT_NO_SL}};
	const char *list = secure_getenv("IBVMIG_FAULT");
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
	shim.grh_required = w.grh_required;
	return 0;
}

static void agent_gone(void)
{
	shim_agent_lost();
	job_agent_gone();
}

/* Under ctl. */
static bool tell_numbers(int fd)
{
	struct shim_qp *q;
	bool sent = true;

	list_for_each (q, &shim.qps, link) {
		struct shim_qp_number n = {.head = {.bytes = sizeof(n), .type = SHIM_QP_ADD},
					   .vqpn = q->v.qp_num};

		sent &= send(fd, &n, sizeof(n), MSG_NOSIGNAL) == sizeof(n);
	}
	return sent;
}

/* A new agent is told all that the old one knew. The numbers of QPs come first, since any thread
 * may speak in their name as soon as the descriptor is the new one's. */
static void agent_again(void)
{
	int fd AUTO_CLOSE = connect_agent();

	if (fd < 0 || say_hello(fd))
		return;
	pthread_mutex_lock(&shim.ctl);
	/* Other threads may just use the descriptor: it must stay the same. */
	if (!tell_numbers(fd) || dup3(fd, shim.agent, O_CLOEXEC) < 0) {
		pthread_mutex_unlock(&shim.ctl);
		return;
	}
	routes_ask_again();
	pthread_mutex_unlock(&shim.ctl);
	parts_agent_again();
	shim_agent_found();
}

/* Milliseconds, -1: for ever. */
static int wait_time(void)
{
	int ms = sooner(sooner(job_timeout(), parts_timeout()), peer_want_timeout());

	return shim.agent_lost && (ms < 0 || ms > AGENT_AGAIN_MS) ? AGENT_AGAIN_MS : ms;
}

static void *helper_main(void *arg)
{
	static struct pollfd fds[POLL_FDS_MAX];
	uint64_t count;

	(void)arg;
	prctl(PR_SET_NAME, "ibvmig");
	ctl_is_helper();
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
		parts_step();
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
		shim_log("FAULT INJECTION is on (IBVMIG_FAULT=%.40s)",
			 secure_getenv("IBVMIG_FAULT"));
}

const struct shim_helper shim_helper = {.start = start};
