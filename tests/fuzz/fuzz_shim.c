/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets of any kind that processes write into the agent's socket. The agent drops a process that
 * does not keep to the protocol, keeps its tables in order and gives nothing to the host that is
 * not text. The input: for each step one byte (which process, or what the host asks), and for
 * processes a length and a packet. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/json.h"
#include "common/loop.h"
/* for its static functions; the event loop is left out */
#include "guest-agent/agent/shim.c"

#define PROCESSES 3
#define STEPS_MAX 64
#define QUERY     PROCESSES
#define SUSPEND   (PROCESSES + 1)
#define RESUME    (PROCESSES + 2)
#define FIX_BYTES 0x80 /* the packet's length is made right */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct agent agent;
static uint64_t requests;

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void must_be_text(const char *text)
{
	for (; *text; text++)
		must(*text >= ' ' && *text <= '~');
}

void agent_log(struct agent *a, int level, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	(void)a;
	(void)level;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	must_be_text(text);
}
bool agent_host_connected(const struct agent *a)
{
	(void)a;
	return true;
}
void agent_host_send(struct agent *a, struct json_object *msg)
{
	(void)a;
	must_be_text(json_text(msg));
	json_object_put(msg);
}
void agent_host_send_of(struct agent *a, uid_t uid, struct json_object *msg)
{
	(void)uid;
	agent_host_send(a, msg);
}
void agent_answer(struct agent *a, uint64_t id, struct json_object *answer)
{
	(void)id;
	agent_host_send(a, answer);
}
void agent_answer_error(struct agent *a, uint64_t id, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	(void)a;
	(void)id;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	must_be_text(text);
}
void agent_path_ask(struct agent_shim *s, const struct shim_path *ask)
{
	agent_shim_send(s, ask);
}
void agent_path_forget_shim(struct agent_shim *s)
{
	(void)s;
}
void agent_lid_ask(struct agent_shim *s, const struct shim_lid_ask *ask)
{
	struct shim_lid none = {.head = {sizeof(none), SHIM_LID, 0, ask->head.cookie, 0}};

	agent_shim_send(s, &none);
}
void agent_lid_forget_shim(struct agent_shim *s)
{
	(void)s;
}
void agent_path_counters(struct json_object *ret_obj)
{
	(void)ret_obj;
}
int agent_kernel_users(struct agent *a, struct json_object *list)
{
	(void)a;
	(void)list;
	return 0;
}

void agent_holders(struct agent *a, struct json_object *uncovered)
{
	(void)a;
	(void)uncovered;
}
bool agent_device_is_ours(struct agent *a, const uint8_t gid[16])
{
	(void)a;
	return gid[15] == 1;
}
int agent_device_find(uint64_t vguid, char ret_name[static SHIM_DEVICE_MAX])
{
	(void)vguid;
	strcpy(ret_name, "rxe0");
	return 0;
}
void agent_device_rescan(void)
{
}

void agent_device_hurry(const char *device)
{
	(void)device;
}
int agent_device_watch(struct agent *a, void (*changed)(struct agent *a))
{
	(void)a;
	(void)changed;
	return 0;
}
void agent_settle_anew(void)
{
}
bool agent_unsettled(struct agent *a)
{
	(void)a;
	return false;
}
bool agent_settle(struct agent *a, uint64_t id, struct json_object *msg,
		  void (*run)(struct agent *a, uint64_t id, struct json_object *msg))
{
	(void)a;
	(void)id;
	(void)msg;
	(void)run;
	return false;
}

void agent_notice_moved(struct agent *a, struct json_object *resume)
{
	(void)a;
	(void)resume;
}

static void check(void)
{
	for (unsigned i = 0; i <= SHIM_SLOT_MAX; i++)
		must(!agent.slots[i] || agent.slots[i]->slot == i);
}

/* Returns whether the agent still holds the process; what it has sent is read. */
static bool lives(int fd)
{
	static char in[SHIM_MSG_MAX];
	ssize_t n;

	do
		n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
	while (n > 0);
	return n < 0 && errno == EAGAIN;
}

static struct agent_shim *process_new(int *ret_fd)
{
	struct agent_shim *s = calloc(1, sizeof(*s));
	int fds[2];

	must(s && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds));
	s->agent = &agent;
	s->user = user_of(1000);
	must(s->user);
	s->user->connections++;
	s->out_end = &s->out;
	s->fd = fds[0];
	*ret_fd = fds[1];
	return s;
}

static void host_asks(unsigned what)
{
	struct json_object *msg = json_object_new_object(), *vguids = json_object_new_array();

	json_object_array_add(vguids, json_object_new_string("0x00a1b2fffe000001"));
	json_set(msg, "vguids", vguids);
	json_set_str(msg, "migration", "00000000-0000-4000-8000-000000000001");
	json_set_str(msg, "role", "mover");
	json_set_u64(msg, "deadline_ms", 1000);
	json_set_bool(msg, "moved", true);
	if (what == QUERY)
		agent_query(&agent, ++requests, 0);
	else if (what == SUSPEND)
		agent_suspend(&agent, ++requests, msg);
	else
		agent_resume(&agent, ++requests, msg);
	json_object_put(msg);
}

static size_t process_says(struct agent_shim **s, int fd, const uint8_t *data, size_t size,
			   bool fix)
{
	static char packet[SHIM_MSG_MAX];
	uint16_t bytes = 0;

	if (size < sizeof(bytes))
		return size;
	memcpy(&bytes, data, sizeof(bytes));
	if (bytes > size - sizeof(bytes))
		bytes = (uint16_t)(size - sizeof(bytes));
	memcpy(packet, data + sizeof(bytes), bytes);
	if (fix && bytes >= sizeof(struct shim_head))
		((struct shim_head *)(void *)packet)->bytes = bytes;
	if (*s && bytes && send(fd, packet, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		shim_ready(NULL, (*s)->fd, EPOLLIN, *s);
	if (!lives(fd))
		*s = NULL;
	return sizeof(bytes) + bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct agent_shim *s[PROCESSES];
	int fd[PROCESSES];

	log_set_level(LOG_ERROR);
	if (!agent.slot_of_qpn) {
		must(!sd_event_new(&agent.loop) || agent.loop);
		agent.slot_of_qpn = calloc(SHIM_QPN_MAX + 1, sizeof(*agent.slot_of_qpn));
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		s[i] = process_new(&fd[i]);
	for (unsigned step = 0; step < STEPS_MAX && size; step++) {
		unsigned what = *data & 7;
		bool fix = *data++ & FIX_BYTES;
		size_t used = 0;

		size--;
		if (what < PROCESSES)
			used = process_says(&s[what], fd[what], data, size, fix);
		else
			host_asks(what);
		data += used;
		size -= used;
		check();
		for (unsigned i = 0; i < PROCESSES; i++) /* the host may have had one dropped */
			if (s[i] && !lives(fd[i]))
				abort();
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		close(fd[i]);
		if (s[i])
			shim_gone(s[i]);
	}
	host_asks(RESUME); /* the next input finds nothing of this one */
	check();
	return 0;
}
