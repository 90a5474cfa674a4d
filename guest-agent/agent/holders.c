/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Processes that have an RDMA device open. Without the shim a process cannot be suspended, and
 * would block the removal of some devices (rxe, siw) until it ends. */
#include "guest-agent/agent/main.h"
#include "common/json.h"
#include "common/util.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>

#define UVERBS_PATH "/dev/infiniband/uverbs"

bool agent_holds_device(const char *pid)
{
	char *path AUTO_FREE = strf("/proc/%s/fd", pid);
	DIR *dir = path ? opendir(path) : NULL;
	struct dirent *d;
	bool holds = false;

	while (dir && !holds && (d = readdir(dir))) {
		char *link AUTO_FREE = strf("%s/%s", path, d->d_name);
		char target[sizeof(UVERBS_PATH)] = "";

		if (link && readlink(link, target, sizeof(target) - 1) > 0)
			holds = !strncmp(target, UVERBS_PATH, strlen(UVERBS_PATH));
	}
	if (dir)
		closedir(dir);
	return holds;
}

static bool has_shim(struct agent *a, int32_t pid)
{
	struct agent_shim *s;

	agent_for_each_shim(a, s) if (s->pid == pid) return true;
	return false;
}

static void name(const char *pid, struct json_object *uncovered)
{
	char *path AUTO_FREE = strf("/proc/%s/comm", pid);
	char *comm AUTO_FREE = NULL;
	struct json_object *u = json_object_new_object();

	if (path && !read_file(path, 64, &comm, NULL))
		comm[strcspn(comm, "\n")] = '\0';
	json_set_u64(u, "pid", strtoull(pid, NULL, 10));
	json_set_str(u, "comm", comm ? comm : "");
	json_set_str(u, "why",
		     "it has an RDMA device open without the shim: start it by ibvmig-run");
	json_object_array_add(uncovered, u);
}

void agent_holders(struct agent *a, struct json_object *uncovered)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]) && !has_shim(a, atoi(d->d_name)) &&
		    agent_holds_device(d->d_name))
			name(d->d_name, uncovered);
	if (dir)
		closedir(dir);
}
