/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's handling of the messages of a guest's agent, which may say anything: its answers,
 * relayed messages, questions for paths (agent.c, vm/channel.c, relay.c, qps.c, over a real
 * socket). The input is the agent's messages, JSON, a line each; framing is fuzz_frame's matter.
 * Other hosts and ibvmig-sm are played: half of the vGUIDs are somewhere, and half of the calls
 * fail. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/util.h"
#include "daemon/base/daemon.h"
#include "daemon/base/locate.h"
#include "daemon/migrate/machine.h"
#include "daemon/vm/qps.h"
#include "daemon/vm/relay.h"
#include "daemon/vm/repath.h"
#include "daemon/vm/rights.h"
#include "daemon/vm/calls.h"
#include "daemon/base/settings.h"
#include "daemon/base/sm.h"
#include "daemon/vm/channel.h"

#define HELLO_ANSWER "{\"id\":1,\"ok\":true,\"version\":1,\"agent\":\"fuzz\"}"
#define JOBS_MAX     1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct settings settings = {
	.host_name = "hosta", .url = "http://hosta", .sm_url = "http://sm"};
static struct daemon d = {.settings = &settings};
static struct vm vm = {.d = &d, .name = "g1", .uuid = "u1", .vf_count = 1};
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener = -1;
static unsigned calls, asked, answered;

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the rest of the daemon ---- */

static struct {
	struct job *job;
} jobs[JOBS_MAX];
static unsigned job_count;

int job_order(struct daemon *daemon, const struct job_order *o)
{
	struct job *j = job_count < JOBS_MAX ? calloc(1, sizeof *j) : NULL;

	if (!j) {
		json_object_put(o->in);
		return -ENOMEM;
	}
	*j = (struct job){.d = daemon,
			  .in = o->in ? o->in : json_object_new_object(),
			  .out = json_object_new_object(),
			  .owner = o->owner,
			  .serial = o->serial,
			  .run = o->run,
			  .done = o->done};
	jobs[job_count++].job = j;
	return 0;
}

int job_fail(struct job *j, int rc, const char *fmt, ...)
{
	snprintf(j->error, sizeof j->error, "%s", fmt);
	return j->rc = rc;
}

/* The oldest one, as a worker and then the loop would. */
static bool run_job(void)
{
	struct job *j = job_count ? jobs[0].job : NULL;

	if (!j)
		return false;
	memmove(jobs, jobs + 1, --job_count * sizeof *jobs);
	j->run(j);
	j->done(j);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
	return true;
}

int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body, char error[static HTTP_ERROR_MAX])
{
	(void)base;
	(void)method;
	(void)path;
	(void)timeout_ms;
	must(strlen(json_text(body)) < HTTP_BODY_MAX);
	snprintf(error, HTTP_ERROR_MAX, "it does not answer");
	if (++calls % 2)
		return -ECONNREFUSED;
	*ret_body = json_object_new_object();
	return 0;
}

int sm_call(const struct settings *s, const char *method, const char *path,
	    struct json_object *body, struct json_object **ret_answer, char *error)
{
	(void)s;
	(void)method;
	/* Only what was read as GIDs gets into a path. */
	must(!strncmp(path, "/v1/paths?sgid=", 15) && !strpbrk(path, " \r\n#%"));
	json_object_put(body);
	snprintf(error, HTTP_ERROR_MAX, "it does not answer");
	if (++calls % 2)
		return -ECONNREFUSED;
	*ret_answer = json_object_new_object();
	return 0;
}

int locate_guid(const struct settings *s, uint64_t guid, struct location *ret, char *error)
{
	(void)s;
	snprintf(error, HTTP_ERROR_MAX, "nobody knows it");
	if (guid % 2)
		return -ENOENT;
	*ret = (struct location){.host = "hostb", .url = "http://hostb"};
	return 0;
}

struct vm *vm_by_guid(struct daemon *daemon, uint64_t vguid)
{
	(void)daemon;
	return vm_has_guid(&vm, vguid) ? &vm : NULL;
}

void sm_refresh(struct daemon *daemon, void (*done)(void *arg), void *arg)
{
	(void)daemon;
	(void)done;
	(void)arg;
}

int sm_ask(const struct settings *s, const char *path, struct json_object *body, unsigned ms,
	   struct json_object **ret_answer, char *error)
{
	(void)ms;
	return sm_call(s, "POST", path, body, ret_answer, error);
}

void vm_rights_refresh(struct daemon *daemon)
{
	(void)daemon;
}

void repath_agent_up(struct vm *v)
{
	(void)v;
}

/* Once it is up, an operator looks at its QPs. */
static void look_at_qps(struct vm *v)
{
	struct http_request req = {.user = &d, .param = "g1"};

	if (v->agent && agent_state(v->agent) == AGENT_UP && asked < 8) {
		asked++;
		qps_get(&req);
	}
}

static const struct vm_watcher watcher = {.agent_changed = look_at_qps};

struct vm *rest_vm(struct http_request *req)
{
	(void)req;
	return &vm;
}

void http_reply(struct http_exchange *x, unsigned status, struct json_object *body)
{
	(void)x;
	(void)status;
	/* The guest's text does not get to a terminal. */
	for (const char *c = body ? json_text(body) : ""; *c; c++)
		must((unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f);
	json_object_put(body);
	answered++;
}

void http_fail(struct http_exchange *x, unsigned status, const char *code, const char *fmt, ...)
{
	(void)x;
	(void)status;
	(void)code;
	(void)fmt;
	answered++;
}

/* ---- the guest ---- */

static void clean_up(void)
{
	unlink(address.sun_path);
}

static void start(void)
{
	log_set_level(LOG_ERROR);
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/ibvmig-fuzz-%d", getpid());
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (loop_new(&d.loop) || listener < 0 ||
	    bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
		abort();
	d.watcher = &watcher;
	vm.vfs[0].want = (struct vf_want){.vguid = 0x00a1b2fffe000101, .pkey = 0x8001};
	atexit(clean_up);
}

static void run(int fd)
{
	static char heard[65536];

	while (sd_event_run(d.loop, 0) > 0 || run_job())
		while (recv(fd, heard, sizeof heard, MSG_DONTWAIT) > 0)
			;
}

static void say(int fd, const char *text, size_t bytes)
{
	char head[16];

	snprintf(head, sizeof head, "%08zx\n", bytes);
	if (send(fd, head, 9, MSG_NOSIGNAL | MSG_DONTWAIT) == 9 && bytes)
		while (send(fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
			run(fd);
	run(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = text + size;
	int fd;

	if (listener < 0)
		start();
	asked = answered = calls = 0;
	if (relay_new(&d, &d.relay) || vm_channel_open(&vm, address.sun_path, false))
		abort();
	sd_event_run(d.loop, UINT64_MAX); /* it connects */
	fd = accept(listener, NULL, NULL);
	must(fd >= 0);
	run(fd);
	say(fd, HELLO_ANSWER, strlen(HELLO_ANSWER));
	must(agent_state(vm.agent) == AGENT_UP && asked == 1);
	while (text < end) {
		const char *line = memchr(text, '\n', (size_t)(end - text));
		size_t bytes = (size_t)((line ? line : end) - text);

		say(fd, text, bytes);
		text += bytes + (line != NULL);
	}
	close(fd);
	run(-1);
	agent_free(TAKE(vm.agent));
	run(-1);
	must(asked == answered && !vm.jobs && !vm.paths_asking && !json_count(vm.paths_waiting));
	relay_free(TAKE(d.relay));
	return 0;
}
