/* SPDX-License-Identifier: GPL-2.0-or-later */
/* After a restart of the agent, until the processes of the one before have found it: each tries
 * every 300 ms. A suspend that did not know of them would leave their QPs alive under a device that
 * goes. */
#include "guest-agent/agent.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>

#define ENVIRON_MAX (1u << 20)
#define YOUNG_MS    10000 /* of the agent's life: later everybody has found it */
#define WAIT_MS     3000
#define AGAIN_MS    50
#define HELPER      "ibvmig\n" /* name of a shim's thread: shim_link.c */

static struct {
	struct agent *agent;
	uint64_t id, until_ms;   /* id 0: nothing waits */
	struct json_object *msg; /* owned */
	void (*run)(struct agent *a, uint64_t id, struct json_object *msg);
	struct loop_timer *timer;
	bool over; /* run() is being called */
} settle;

static bool is_helper(const char *pid, const char *tid)
{
	char *path AUTO_FREE = strf("/proc/%s/task/%s/comm", pid, tid);
	char *comm AUTO_FREE = NULL;

	return path && !read_file(path, 64, &comm, NULL) && !strcmp(comm, HELPER);
}

static bool has_helper(const char *pid)
{
	char *path AUTO_FREE = strf("/proc/%s/task", pid);
	DIR *dir = path ? opendir(path) : NULL;
	struct dirent *d;
	bool found = false;

	while (dir && !found && (d = readdir(dir)))
		found = d->d_name[0] != '.' && is_helper(pid, d->d_name);
	if (dir)
		closedir(dir);
	return found;
}

/* Its shim looks for an agent at our socket. */
static bool is_for_us(struct agent *a, const char *pid)
{
	const char name[] = SHIM_SOCKET_ENV "=";
	char *path AUTO_FREE = strf("/proc/%s/environ", pid);
	char *text AUTO_FREE = NULL;
	const char *want = SHIM_SOCKET;
	size_t bytes = 0;

	if (!path || read_file(path, ENVIRON_MAX, &text, &bytes))
		return false;
	for (const char *p = text; p < text + bytes; p += strlen(p) + 1)
		if (!strncmp(p, name, sizeof(name) - 1))
			want = p + sizeof(name) - 1;
	return !strcmp(want, a->socket_path);
}

static bool is_connected(struct agent *a, int pid)
{
	struct agent_shim *s;

	agent_for_each_shim(a, s) if (s->pid == pid) return true;
	return false;
}

/* A process that has a shim and is not connected; 0: none. */
static int orphan(struct agent *a)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;
	int pid = 0;

	while (dir && !pid && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]) && !is_connected(a, atoi(d->d_name)) &&
		    has_helper(d->d_name) && is_for_us(a, d->d_name))
			pid = atoi(d->d_name);
	if (dir)
		closedir(dir);
	return pid;
}

static void look_again(void *arg)
{
	struct json_object *msg AUTO_JSON = NULL;
	int pid = orphan(settle.agent);

	(void)arg;
	if (pid && now_ms() < settle.until_ms) {
		loop_timer_arm(settle.timer, AGAIN_MS);
		return;
	}
	if (pid)
		log_warn("process %d has a shim that does not find this agent", pid);
	msg = TAKE(settle.msg);
	settle.over = true;
	settle.run(settle.agent, settle.id, msg);
	settle.over = false;
	settle.id = 0;
}

bool agent_settle(struct agent *a, uint64_t id, struct json_object *msg,
		  void (*run)(struct agent *a, uint64_t id, struct json_object *msg))
{
	if (settle.over || now_ms() - a->started_ms > YOUNG_MS)
		return false;
	if (settle.id) {
		agent_answer_error(a, id,
				   "the agent has just started: another request waits for "
				   "the processes of the one before it");
		return true;
	}
	if (!orphan(a) ||
	    (!settle.timer && loop_timer_new(a->loop, look_again, NULL, &settle.timer)))
		return false;
	log_notice("the agent is new: a request waits for the processes of the one before it");
	settle.agent = a;
	settle.id = id;
	settle.msg = json_object_get(msg);
	settle.run = run;
	settle.until_ms = now_ms() + WAIT_MS;
	loop_timer_arm(settle.timer, AGAIN_MS);
	return true;
}
