/* SPDX-License-Identifier: GPL-2.0-or-later */
/* After a restart of the agent, until the processes of the one before have found it: each tries
 * every 300 ms, if it gets a CPU. A suspend that did not know of them would leave their QPs alive
 * under a device that goes, and their peers would hear that they have ended. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>

#define ENVIRON_MAX (1u << 20)
#define YOUNG_MS    10000 /* since our start: later no process without a device is waited for */
#define WAIT_MS     3000  /* for such a process; for others half of the request's time */
#define WAIT_MAX_MS 300000
#define AGAIN_MS    50
#define LATE_MS     60000      /* since our start: a process that is not there then has ended */
#define HELPER      "ibvmig\n" /* name of a shim's thread: shim/helper.c */

static struct {
	struct agent *agent;
	uint64_t id; /* 0: nothing waits */
	uint64_t since_ms, deadline_ms;
	struct json_object *msg; /* owned */
	void (*run)(struct agent *a, uint64_t id, struct json_object *msg);
	struct loop_timer *timer;
	bool over; /* run() is being called */
	uint64_t looked_ms;
	bool found; /* by all: nobody new comes, since who starts without an agent stays so */
} settle;

struct orphan {
	int pid;    /* 0: there is none */
	bool holds; /* the process has a device open */
};

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

/* True if the process has a shim, which looks for an agent at our socket. */
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

/* A process that has a shim and is not connected; one that has a device open, if there is one. */
static struct orphan orphan(struct agent *a)
{
	DIR *dir = opendir("/proc");
	struct orphan o = {0};
	struct dirent *d;

	while (dir && !o.holds && (d = readdir(dir))) {
		if (!isdigit((unsigned char)d->d_name[0]) || is_connected(a, atoi(d->d_name)) ||
		    !has_helper(d->d_name) || !is_for_us(a, d->d_name))
			continue;
		o.pid = atoi(d->d_name);
		o.holds = agent_holds_device(d->d_name);
	}
	if (dir)
		closedir(dir);
	return o;
}

/* True while the request waits for that process. */
static bool waits_for(struct agent *a, struct orphan o, uint64_t waited_ms, uint64_t deadline_ms)
{
	uint64_t limit = o.holds ? WAIT_MAX_MS : WAIT_MS;
	uint64_t most = deadline_ms / 2 < limit ? deadline_ms / 2 : limit;

	if (!o.pid || (!o.holds && now_ms() - a->started_ms > YOUNG_MS + waited_ms))
		return false;
	return waited_ms < most;
}

/* The request goes on, with a deadline that is shorter by the time that it has waited. */
static void go_on(struct orphan o, uint64_t waited_ms)
{
	struct json_object *msg AUTO_JSON = TAKE(settle.msg);

	if (o.pid)
		log_warn("process %d has a shim that does not find this agent", o.pid);
	settle.over = true;
	if (o.holds && settle.run == agent_suspend) {
		agent_answer_error(
			settle.agent, settle.id,
			"process %d has an RDMA device open and does not find this agent, "
			"which has been started again: wait, or end the process",
			o.pid);
	} else {
		json_set_u64(msg, "deadline_ms", settle.deadline_ms - waited_ms);
		settle.run(settle.agent, settle.id, msg);
	}
	settle.over = false;
	settle.id = 0;
}

static void look_again(void *arg)
{
	uint64_t waited_ms = now_ms() - settle.since_ms;
	struct orphan o = orphan(settle.agent);

	(void)arg;
	settle.found = !o.pid;
	if (waits_for(settle.agent, o, waited_ms, settle.deadline_ms))
		loop_timer_arm(settle.timer, AGAIN_MS);
	else
		go_on(o, waited_ms < settle.deadline_ms / 2 ? waited_ms : settle.deadline_ms / 2);
}

bool agent_unsettled(struct agent *a)
{
	uint64_t now = now_ms();

	if (settle.found || now - a->started_ms > LATE_MS)
		return false;
	if (now - settle.looked_ms < AGAIN_MS)
		return true;
	settle.looked_ms = now;
	settle.found = !orphan(a).pid;
	return !settle.found;
}

void agent_settle_anew(void)
{
	settle.found = false;
}

bool agent_settle(struct agent *a, uint64_t id, struct json_object *msg,
		  void (*run)(struct agent *a, uint64_t id, struct json_object *msg))
{
	uint64_t deadline_ms = json_opt_u64(msg, "deadline_ms", 0);
	struct orphan o;

	if (settle.over || settle.found)
		return false;
	if (settle.id) {
		agent_answer_error(a, id,
				   "the agent has just started: another request waits for "
				   "the processes of the one before it");
		return true;
	}
	o = orphan(a);
	settle.found = !o.pid;
	if (!waits_for(a, o, 0, deadline_ms) ||
	    (!settle.timer && loop_timer_new(a->loop, look_again, NULL, &settle.timer)))
		return false;
	log_notice("the agent is new: a request waits for the processes of the one before it");
	settle.agent = a;
	settle.id = id;
	settle.msg = json_object_get(msg);
	settle.run = run;
	settle.since_ms = now_ms();
	settle.deadline_ms = deadline_ms;
	loop_timer_arm(settle.timer, AGAIN_MS);
	return true;
}
