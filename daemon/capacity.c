/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/capacity.h"
#include "common/http_server.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/daemon.h"
#include "daemon/drained.h"
#include "daemon/job.h"
#include "daemon/settings.h"
#include "daemon/virt.h"
#include "daemon/vm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEMINFO_MAX 65536

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
	json_set(j->out, "pfs", vf_pfs(&j->d->vfs));
	json_set(j->out, "vfs", vf_status(&j->d->vfs));
	http_reply(x, 200, json_object_get(j->out));
}

void capacity_get(struct http_request *req)
{
	if (job_start(req->user, NULL, look, looked, req->exchange, 0))
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
