/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The processes of this guest: one SOCK_SEQPACKET connection each. */
#include "guest-agent/agent/main.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define OUT_BYTES_MAX (8u << 20)
#define SOCKET_BUFFER (1 << 20)
#define BACKLOG       64
#define QPS_MAX       (1u << 18) /* for one process: the most that an HCA has */

static struct agent_user *users; /* users that have a connection */

struct agent_packet {
	struct agent_packet *next;
	uint32_t bytes;
	char data[];
};

struct agent_shim *agent_shim_by_slot(struct agent *a, unsigned slot, uint64_t instance)
{
	struct agent_shim *s = slot <= SHIM_SLOT_MAX ? a->slots[slot] : NULL;

	return s && (!instance || s->instance == instance) ? s : NULL;
}

struct agent_shim *agent_shim_by_qpn(struct agent *a, uint32_t vqpn)
{
	return vqpn <= SHIM_QPN_MAX ? a->slots[a->slot_of_qpn[vqpn]] : NULL;
}

void agent_text(char *to, size_t room, const char *from, size_t max)
{
	size_t n = 0;

	for (; n < max && n + 1 < room && from[n]; n++)
		to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
	to[n] = '\0';
}

static void packets_free(struct agent_packet *p)
{
	while (p) {
		struct agent_packet *next = p->next;

		free(p);
		p = next;
	}
}

/* NULL without memory. */
static struct agent_user *user_of(uid_t uid)
{
	struct agent_user *u = users;

	while (u && u->uid != uid)
		u = u->next;
	if (!u && (u = calloc(1, sizeof(*u)))) {
		u->uid = uid;
		u->next = users;
		users = u;
	}
	return u;
}

static void user_free_if_idle(struct agent_user *u)
{
	struct agent_user **at = &users;

	if (u->connections || u->waits)
		return;
	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	free(u);
}

/* Counts a connection that has ended. */
static void user_leave(struct agent_user *u)
{
	u->connections--;
	user_free_if_idle(u);
}

void agent_user_wait(struct agent_user *u)
{
	u->waits++;
}

void agent_user_waited(struct agent_user *u)
{
	u->waits--;
	user_free_if_idle(u);
}

/* ---- QPNs ---- */

/* Leaves each of its present numbers in the list, once. */
static void numbers_tidy(struct agent_shim *s)
{
	uint16_t *slot_of_qpn = s->agent->slot_of_qpn;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->number_count; i++) {
		if (slot_of_qpn[s->numbers[i]] != s->slot)
			continue;
		slot_of_qpn[s->numbers[i]] = 0; /* not twice */
		s->numbers[kept++] = s->numbers[i];
	}
	s->number_count = kept;
	for (uint32_t i = 0; i < kept; i++)
		slot_of_qpn[s->numbers[i]] = s->slot;
}

/* 0 or -ENOMEM. Given back, a number stays in the list until that is full. */
static int numbers_add(struct agent_shim *s, uint32_t vqpn)
{
	uint32_t *grown;

	if (s->number_count == s->number_room)
		numbers_tidy(s);
	if (s->number_count * 2 >= s->number_room) {
		grown = realloc(s->numbers, (s->number_room * 2 + 64) * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		s->numbers = grown;
		s->number_room = s->number_room * 2 + 64;
	}
	s->numbers[s->number_count++] = vqpn;
	s->agent->slot_of_qpn[vqpn] = s->slot;
	s->qps++;
	s->user->qps++;
	return 0;
}

static void number_drop(struct agent_shim *s, uint32_t vqpn)
{
	s->agent->slot_of_qpn[vqpn] = 0;
	s->qps--;
	s->user->qps--;
}

/* All of a process that ends: what it costs is its own, and not the size of the table. */
static void numbers_drop(struct agent_shim *s)
{
	for (uint32_t i = 0; i < s->number_count; i++)
		if (s->agent->slot_of_qpn[s->numbers[i]] == s->slot)
			number_drop(s, s->numbers[i]);
}

/* The next free number from the top, where hardware comes last. */
static uint32_t number_of_ours(struct agent *a)
{
	do
		a->last_qpn = a->last_qpn > 1 ? a->last_qpn - 1 : SHIM_QPN_MAX - 1;
	while (a->slot_of_qpn[a->last_qpn]);
	return a->last_qpn;
}

/* ---- processes ---- */

static void shim_free(struct agent_shim *s)
{
	if (!s)
		return;
	sd_event_source_disable_unref(s->io);
	agent_will_end(s, false);
	packets_free(s->out);
	s->user->out_bytes -= s->out_bytes;
	s->user->qps -= s->qps;
	user_leave(s->user);
	close(s->fd);
	free(s->numbers);
	free(s);
}

static void shim_gone(struct agent_shim *s)
{
	struct agent *a = s->agent;

	if (s->slot) {
		log_info("process %d (%s) has left slot %u", s->pid, s->comm, s->slot);
		a->slots[s->slot] = NULL;
		numbers_drop(s);
		agent_path_forget_shim(s);
		agent_lid_forget_shim(s);
		agent_query_forget_shim(s);
		agent_suspend_forget_shim(s);
		agent_will_end(s, true);
		agent_relay_ended(s);
	}
	shim_free(s);
}

/* 0, -EAGAIN while the socket is full, or another -errno. */
static int shim_write(struct agent_shim *s, const void *data, size_t bytes)
{
	ssize_t n;

	do
		n = send(s->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void shim_flush(struct agent_shim *s)
{
	while (s->out) {
		struct agent_packet *p = s->out;

		if (shim_write(s, p->data, p->bytes) == -EAGAIN)
			break;
		s->out = p->next;
		s->out_bytes -= p->bytes;
		s->user->out_bytes -= p->bytes;
		free(p);
	}
	if (!s->out) {
		s->out_end = &s->out;
		sd_event_source_set_io_events(s->io, EPOLLIN);
	}
}

void agent_shim_send(struct agent_shim *s, const void *packet)
{
	uint32_t bytes = ((const struct shim_head *)packet)->bytes;
	struct agent_packet *p;

	if (!s->out && shim_write(s, packet, bytes) != -EAGAIN)
		return; /* sent, or the socket is dead, which the next read will tell */
	if (s->out_bytes + bytes > OUT_BYTES_MAX ||
	    !agent_user_may(s->user, s->user->out_bytes + bytes, AGENT_USER_OUT_MAX) ||
	    !(p = malloc(sizeof(*p) + bytes))) {
		log_error("process %d (%s) has not read %llu bytes, all of user %u %llu: it is "
			  "dropped",
			  s->pid, s->comm, (unsigned long long)s->out_bytes, s->user->uid,
			  (unsigned long long)s->user->out_bytes);
		agent_settle_anew();
		shutdown(s->fd, SHUT_RDWR);
		return;
	}
	p->next = NULL;
	p->bytes = bytes;
	memcpy(p->data, packet, bytes);
	*s->out_end = p;
	s->out_end = &p->next;
	s->out_bytes += bytes;
	s->user->out_bytes += bytes;
	sd_event_source_set_io_events(s->io, EPOLLIN | EPOLLOUT);
}

/* A process that had a slot of an agent before us keeps it. */
static int take_slot(struct agent_shim *s, const struct shim_hello *h)
{
	struct agent *a = s->agent;

	if (h->slot) {
		if (h->slot > SHIM_SLOT_MAX || a->slots[h->slot] || !h->instance)
			return -EADDRINUSE;
		s->slot = h->slot;
		s->instance = h->instance;
		a->slots[s->slot] = s;
		return 0;
	}
	if (getrandom(&s->instance, sizeof(s->instance), 0) != sizeof(s->instance))
		return -EIO;

	for (unsigned i = 0; i < SHIM_SLOT_MAX; i++) {
		a->last_slot = a->last_slot % SHIM_SLOT_MAX + 1;
		if (a->slots[a->last_slot])
			continue;
		a->slots[a->last_slot] = s;
		s->slot = (uint16_t)a->last_slot;
		return 0;
	}
	return -ENOSPC;
}

static int shim_hello(struct agent_shim *s, const struct shim_hello *h)
{
	struct shim_welcome w = {.head = {sizeof(w), SHIM_HELLO, 0, h->head.cookie, 0},
				 .fault = (uint16_t)s->agent->fault,
				 .grh_required = s->agent->grh_required};
	int rc = 0;

	if (s->slot)
		return -EPROTO;
	agent_text(s->comm, sizeof(s->comm), h->comm, sizeof(h->comm));
	if (h->version != SHIM_PROTO_VERSION)
		rc = -EPROTONOSUPPORT;
	else
		rc = take_slot(s, h);
	if (rc)
		agent_log(s->agent, LOG_WARN,
			  "process %d (%s) is not covered: %s (shim version %u, ours %u)", s->pid,
			  s->comm, strerror(-rc), h->version, SHIM_PROTO_VERSION);
	else
		log_info("process %d (%s) has slot %u", s->pid, s->comm, s->slot);
	w.head.status = rc;
	w.slot = s->slot;
	w.instance = s->instance;
	w.held = !rc && !h->suspended && agent_suspend_holds();
	agent_shim_send(s, &w);
	if (!rc) {
		agent_relay_again(s->agent, 0);
		agent_suspend_new_shim(s, h->suspended);
	}
	return 0;
}

static void name_refused(struct agent_shim *s)
{
	if (!s->qps_refused)
		agent_log(
			s->agent, LOG_WARN,
			"process %d (%s) gets no more QPs: it has %u, and user %u %u; allowed are "
			"%u and %u (said once)",
			s->pid, s->comm, s->qps, s->user->uid, s->user->qps, QPS_MAX,
			AGENT_USER_QPS_MAX);
	s->qps_refused = true;
}

static int claim_number(struct agent_shim *s, uint32_t vqpn)
{
	if (vqpn > SHIM_QPN_MAX)
		return -EINVAL;
	if (s->agent->slot_of_qpn[vqpn])
		return -EADDRINUSE;
	if (s->qps == QPS_MAX || !agent_user_may(s->user, s->user->qps, AGENT_USER_QPS_MAX)) {
		name_refused(s);
		return -ENOSPC;
	}
	return numbers_add(s, vqpn);
}

/* Told anew to a new agent, or created. */
static int shim_qp_add(struct agent_shim *s, const struct shim_qp_number *q)
{
	struct shim_qp_number answer = *q;

	if (!answer.vqpn)
		answer.vqpn = number_of_ours(s->agent);
	answer.head.status = claim_number(s, answer.vqpn);
	if (!answer.head.status)
		agent_relay_again(s->agent, answer.vqpn);
	if (q->head.cookie)
		agent_shim_send(s, &answer);
	return 0;
}

static void shim_qp_del(struct agent_shim *s, const struct shim_qp_number *q)
{
	if (q->vqpn <= SHIM_QPN_MAX && s->agent->slot_of_qpn[q->vqpn] == s->slot)
		number_drop(s, q->vqpn);
}

static const size_t packet_bytes[] = {
	[SHIM_HELLO] = sizeof(struct shim_hello),
	[SHIM_QP_ADD] = sizeof(struct shim_qp_number),
	[SHIM_QP_DEL] = sizeof(struct shim_qp_number),
	[SHIM_PATH] = sizeof(struct shim_path),
	[SHIM_SEND] = sizeof(struct shim_relay) + sizeof(struct peer_head), /* at least */
	[SHIM_WILL] = sizeof(struct shim_relay) + sizeof(struct peer_head) + sizeof(struct peer_qp),
	[SHIM_WILL_DROP] = sizeof(struct shim_relay) + sizeof(struct peer_head) +
			   sizeof(struct peer_qp),
	[SHIM_LOG] = sizeof(struct shim_log),
	[SHIM_PROCESS] = sizeof(struct shim_process),
	[SHIM_QP_INFO] = sizeof(struct shim_qp_info),
	[SHIM_QUERY_END] = sizeof(struct shim_head),
	[SHIM_QUIET] = sizeof(struct shim_report),
	[SHIM_RELEASED] = sizeof(struct shim_report),
	[SHIM_RESUMED] = sizeof(struct shim_report),
	[SHIM_ABORTED] = sizeof(struct shim_report),
	[SHIM_PEER_INFO] = sizeof(struct shim_peer_info),
	[SHIM_LID] = sizeof(struct shim_lid_ask),
};

static bool packet_valid(const struct agent_shim *s, const struct shim_head *h, size_t bytes)
{
	if (bytes < sizeof(*h) || h->bytes != bytes || !h->type ||
	    h->type >= ARRAY_SIZE(packet_bytes) || bytes < packet_bytes[h->type])
		return false;
	if (bytes > packet_bytes[h->type] && h->type != SHIM_SEND)
		return false;
	return s->slot || h->type == SHIM_HELLO;
}

static void shim_says(const struct agent_shim *s, const struct shim_log *l)
{
	char text[SHIM_TEXT_MAX + 1];

	agent_text(text, sizeof(text), l->text, sizeof(l->text));
	agent_log(s->agent, LOG_WARN, "process %d (%s): %s", s->pid, s->comm, text);
}

static int shim_packet(struct agent_shim *s, const struct shim_head *h)
{
	const void *p = h;

	switch (h->type) {
	case SHIM_HELLO:
		return shim_hello(s, p);
	case SHIM_QP_ADD:
		return shim_qp_add(s, p);
	case SHIM_QP_DEL:
		shim_qp_del(s, p);
		return 0;
	case SHIM_PATH:
		agent_path_ask(s, p);
		return 0;
	case SHIM_LID:
		agent_lid_ask(s, p);
		return 0;
	case SHIM_SEND:
		agent_relay_from_shim(s->agent, s, p);
		return 0;
	case SHIM_WILL:
		agent_will_keep(s, p);
		return 0;
	case SHIM_WILL_DROP:
		agent_will_drop(s, p);
		return 0;
	case SHIM_LOG:
		shim_says(s, p);
		return 0;
	case SHIM_PROCESS:
		agent_query_process(s, p);
		return 0;
	case SHIM_QP_INFO:
		agent_query_qp(s, p);
		return 0;
	case SHIM_PEER_INFO:
		agent_query_peer(s, p);
		return 0;
	case SHIM_QUERY_END:
		agent_query_end(s, h->cookie);
		return 0;
	default:
		agent_suspend_report(s, p);
		return 0;
	}
}

static int shim_ready(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct agent_shim *s = arg;
	static union {
		struct shim_head head;
		char data[SHIM_MSG_MAX];
	} in;

	(void)source;
	if (events & EPOLLOUT)
		shim_flush(s);
	ssize_t n = recv(fd, &in, sizeof(in), MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		shim_gone(s);
		return 0;
	}
	if ((size_t)n > sizeof(in) || !packet_valid(s, &in.head, (size_t)n) ||
	    shim_packet(s, &in.head)) {
		agent_log(s->agent, LOG_WARN, "process %d (%s) sent a bad packet and is dropped",
			  s->pid, s->comm);
		agent_settle_anew();
		shim_gone(s);
	}
	return 0;
}

/* No descriptor is left. A shim that waits at our door is turned away, by means of a descriptor
 * that is kept for this. Its program goes on without cover at once, and the loop does not spin. */
static void turn_away(struct agent *a)
{
	close(a->spare);
	a->spare = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (a->spare >= 0)
		close(a->spare);
	a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	agent_log(a, LOG_WARN,
		  "a process is not covered: this agent has all descriptors in use that it may "
		  "have (LimitNOFILE of its unit)");
}

/* Whom the connection is of, by the kernel's word. false: he has as many as he may. */
static bool take_user(struct agent *a, int conn, pid_t *ret_pid, struct agent_user **ret_user)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	struct agent_user *u;

	if (getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &n) || !(u = user_of(cred.uid)))
		return false;
	if (!agent_user_may(u, u->connections, AGENT_USER_CONNECTIONS_MAX)) {
		agent_log(a, LOG_WARN,
			  "process %d is not covered: user %u has %u processes here, which is the "
			  "limit",
			  cred.pid, cred.uid, u->connections);
		return false;
	}
	u->connections++;
	*ret_pid = cred.pid;
	*ret_user = u;
	return true;
}

static int listener_ready(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	int conn AUTO_CLOSE = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct agent_user *user;
	struct agent_shim *s;
	pid_t pid;
	int size = SOCKET_BUFFER;

	(void)source;
	(void)events;
	if (conn < 0 && (errno == EMFILE || errno == ENFILE))
		turn_away(arg);
	if (conn < 0 || !take_user(arg, conn, &pid, &user))
		return 0;
	setsockopt(conn, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	s = calloc(1, sizeof(*s));
	if (!s) {
		user_leave(user);
		return 0;
	}
	s->agent = arg;
	s->user = user;
	s->pid = pid;
	s->out_end = &s->out;
	s->fd = TAKE_FD(conn);
	if (sd_event_add_io(s->agent->loop, &s->io, s->fd, EPOLLIN, shim_ready, s) < 0)
		shim_free(s);
	return 0;
}

int agent_shim_listen(struct agent *a, const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	rc = make_parent_dir(path);
	if (rc)
		return rc;
	a->slot_of_qpn = calloc(SHIM_QPN_MAX + 1, sizeof(*a->slot_of_qpn));
	a->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!a->slot_of_qpn || a->listener < 0 || a->spare < 0)
		return -ENOMEM;
	unlink(path);
	if (bind(a->listener, (struct sockaddr *)&addr, sizeof(addr)) || chmod(path, 0666) ||
	    listen(a->listener, BACKLOG))
		return -errno;
	rc = sd_event_add_io(a->loop, NULL, a->listener, EPOLLIN, listener_ready, a);
	return rc < 0 ? rc : 0;
}

void agent_shim_close_all(struct agent *a)
{
	for (unsigned i = 1; i <= SHIM_SLOT_MAX; i++)
		shim_free(TAKE(a->slots[i]));
	free(TAKE(a->slot_of_qpn));
	if (a->listener >= 0)
		close(TAKE_FD(a->listener));
	if (a->spare >= 0)
		close(TAKE_FD(a->spare));
}
