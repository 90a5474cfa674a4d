/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/fleet/capacity.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/fleet/drained.h"
#include "daemon/base/job.h"
#include "daemon/base/partition.h"
#include "daemon/base/settings.h"
#include "daemon/libvirt/virt.h"
#include "daemon/vm/vm.h"

#include <stdio.h>
#include <string.h>

#define MEMINFO_MAX 65536
#define ASK_MS      3000

/* A line of /proc/meminfo, "MemAvailable:   123 kB", in bytes; 0: there is none. */
static uint64_t meminfo(const char *text, const char *name)
{
	const char *line = strstr(text, name);
	unsigned long long kib = 0;

	return line && sscanf(line + strlen(name), ": %llu kB", &kib) == 1 ? (uint64_t)kib << 10
									   : 0;
}

static void read_memory(struct json_object *o)
{
	char *text AUTO_FREE = NULL;
	size_t bytes;

	if (read_file("/proc/meminfo", MEMINFO_MAX, &text, &bytes))
		return;
	json_set_u64(o, "memory_bytes", meminfo(text, "MemTotal"));
	json_set_u64(o, "memory_available_bytes", meminfo(text, "MemAvailable"));
}

static void look(struct job *j)
{
	struct json_object *domains = NULL;

	j->rc = virt_running(j->d->virt, &domains, j->error);
	if (j->rc)
		return;
	read_memory(j->out);
	json_set(j->out, "domains", domains);
}

static void looked(struct job *j)
{
	struct http_exchange *x = j->owner;
	struct json_object *domains = json_opt(j->out, "domains");

	if (j->rc) {
		http_fail(x, 503, "no-libvirt", "%s", j->error);
		return;
	}
	for (size_t i = 0; i < json_count(domains); i++) {
		struct json_object *o = json_object_array_get_idx(domains, i);
		const struct vm *vm = vm_find(j->d, json_opt_str(o, "uuid", ""));

		if (vm && vm_has_vfs(vm))
			vm_set_vfs(o, vm);
	}
	drained_tell(j->d, j->out);
	json_set_str(j->out, "host", j->d->settings->host_name);
	json_set(j->out, "pfs", vf_pfs(j->d->vfs));
	json_set(j->out, "vfs", vf_status(j->d->vfs));
	http_reply(x, 200, json_object_get(j->out));
}

void capacity_get(struct http_request *req)
{
	if (!(req->roles & REST_PEER)) /* a peer plans a drain with it */
		job_look(req->user, req->exchange, NULL, look, looked, req->exchange);
	else if (job_start(req->user, NULL, look, looked, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}

/* ---- asking others ---- */

struct json_object *capacity_host(const char *name, const char *url)
{
	struct json_object *o = json_object_new_object();

	json_set_str(o, "host", name);
	json_set_str(o, "url", url);
	return o;
}

struct asked {
	struct json_object *hosts; /* borrowed */
	size_t first;
	struct json_object *answer[WORK_EACH_MAX];
};

static void ask_one(void *arg, size_t i)
{
	struct asked *a = arg;
	struct json_object *host = json_object_array_get_idx(a->hosts, a->first + i), *o = NULL;
	char error[HTTP_ERROR_MAX];

	if (http_call(json_opt_str(host, "url", ""), "GET", "/v1/host", NULL, ASK_MS, &o, error)) {
		o = json_object_new_object();
		json_set_str(o, "host", json_opt_str(host, "host", ""));
		json_set_str(o, "error", error);
	}
	a->answer[i] = o;
}

struct json_object *capacity_ask(struct json_object *hosts)
{
	struct json_object *list = json_object_new_array();
	size_t count = json_count(hosts), n;

	for (struct asked a = {.hosts = hosts}; a.first < count; a.first += n) {
		n = count - a.first < WORK_EACH_MAX ? count - a.first : WORK_EACH_MAX;
		work_each(n, ask_one, &a);
		for (size_t i = 0; i < n; i++)
			json_object_array_add(list, a.answer[i]);
	}
	return list;
}

/* ---- asking ibvmig-sm ---- */

static bool is_wanted(struct json_object *wanted, struct json_object *domain)
{
	for (size_t i = 0; i < json_count(wanted); i++)
		if (str_eq(json_object_get_string(json_object_array_get_idx(wanted, i)),
			   json_opt_str(domain, "name", "")))
			return true;
	return !wanted;
}

static void add_guids(struct json_object *list, struct json_object *host,
		      struct json_object *wanted)
{
	struct json_object *domains = json_opt(host, "domains");

	for (size_t i = 0; i < json_count(domains); i++) {
		struct json_object *domain = json_object_array_get_idx(domains, i);
		struct json_object *guids AUTO_JSON = partition_guids(json_opt(domain, "vfs"));

		for (size_t k = 0; is_wanted(wanted, domain) && k < json_count(guids); k++)
			json_object_array_add(list,
					      json_object_get(json_object_array_get_idx(guids, k)));
	}
}

void capacity_ask_partitions(const struct settings *s, struct json_object *hosts,
			     struct json_object *wanted, struct json_object *targets)
{
	struct json_object *guids = json_object_new_array(), *answer AUTO_JSON = NULL;

	for (size_t i = 0; i < json_count(hosts); i++)
		add_guids(guids, json_object_array_get_idx(hosts, i), wanted);
	answer = partition_ask(s, guids, false);
	for (size_t i = 0; i < json_count(targets); i++)
		json_set(json_object_array_get_idx(targets, i), "partitions",
			 json_object_get(answer));
}
