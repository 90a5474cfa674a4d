/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/grant.h"
#include "common/http/client.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define PROC_FILE_MAX (1u << 20)
#define PROGRAMS_MAX  16

/* A device as libvirt keeps it: both halves of its number, and the kinds of access in the form of
 * bpf_cgroup_dev_ctx.access_type. */
struct rule {
	uint64_t key;
	uint32_t access;
};

struct grant {
	pid_t pid;
	const char *node;
	dev_t device;
	bool give;
};

static int failed(const struct grant *g, const char *what, int rc, char *error)
{
	snprintf(error, HTTP_ERROR_MAX, "%s cannot be %s process %d: %s: %s", g->node,
		 g->give ? "given to" : "taken from", (int)g->pid, what, strerror(-rc));
	return rc;
}

/* ---- mount namespace ---- */

/* The user and group that pid opens files as. */
static int owner_of(pid_t pid, uid_t *ret_uid, gid_t *ret_gid)
{
	char *path AUTO_FREE = strf("/proc/%d/status", (int)pid), *text AUTO_FREE = NULL;
	int rc = path ? read_file(path, PROC_FILE_MAX, &text, NULL) : -ENOMEM;
	const char *uid = rc ? NULL : strstr(text, "\nUid:"),
		   *gid = rc ? NULL : strstr(text, "\nGid:");

	if (rc)
		return rc;
	if (!uid || !gid || sscanf(uid, "\nUid: %*u %*u %*u %u", ret_uid) != 1 ||
	    sscanf(gid, "\nGid: %*u %*u %*u %u", ret_gid) != 1)
		return -EBADMSG;
	return 0;
}

static int make_node(const struct grant *g, const char *path)
{
	char *dir AUTO_FREE = strndup(path, (size_t)(strrchr(path, '/') - path));
	uid_t uid;
	gid_t gid;
	int rc = dir ? owner_of(g->pid, &uid, &gid) : -ENOMEM;

	if (!rc && (mkdir(dir, 0755) ? errno != EEXIST : chmod(dir, 0755))) /* whatever the umask */
		rc = -errno;
	if (!rc && mknod(path, S_IFCHR | 0600, g->device) && errno != EEXIST)
		rc = -errno;
	if (!rc && lchown(path, uid, gid))
		rc = -errno;
	return rc;
}

/* Through /proc: path leads into the process's own mounts. Nodes that it shares with this host are
 * the administrator's (udev). */
static int grant_mount(const struct grant *g)
{
	char *path AUTO_FREE = strf("/proc/%d/root%s", (int)g->pid, g->node);
	char *dev AUTO_FREE = strf("/proc/%d/root/dev", (int)g->pid);
	struct stat here, there, inside;
	bool has = true;

	if (!path || !dev)
		return -ENOMEM;
	if (stat("/dev", &here) || stat(dev, &there))
		return g->give ? -errno : 0; /* gone */
	if (here.st_dev == there.st_dev && here.st_ino == there.st_ino)
		return 0;
	if (lstat(path, &inside))
		has = false;
	else if (!S_ISCHR(inside.st_mode) || inside.st_rdev != g->device)
		return -EEXIST;
	if (g->give)
		return make_node(g, path);
	return has && unlink(path) ? -errno : 0;
}

/* ---- cgroups ---- */

/* Returns the mount point of the hierarchy whose super block has that type and, unless NULL, that
 * option. */
static char *mount_of(const char *mounts, const char *type, const char *option)
{
	char at[PATH_MAX], fs[32], options[256];

	for (const char *line = mounts; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *more = strstr(line, " - ");

		if (!more || more > line + strcspn(line, "\n") ||
		    sscanf(line, "%*s %*s %*s %*s %4095s", at) != 1 ||
		    sscanf(more, " - %31s %*s %255s", fs, options) != 2 || strcmp(fs, type))
			continue;
		if (!option || strstr(options, option))
			return strdup(at);
	}
	return NULL;
}

/* The process's folder in the hierarchy of that controller, "" for version 2's; NULL if it is in
 * none that is mounted. *ret_root: how long the part is that is the mount's. */
static char *cgroup_of(pid_t pid, const char *controller, size_t *ret_root)
{
	char *path AUTO_FREE = strf("/proc/%d/cgroup", (int)pid), *text AUTO_FREE = NULL;
	char *mounts AUTO_FREE = NULL, *mount AUTO_FREE = NULL;
	char *name AUTO_FREE = strf(":%s:", controller);
	char *found;

	if (!path || !name || read_file(path, PROC_FILE_MAX, &text, NULL) ||
	    read_file("/proc/self/mountinfo", PROC_FILE_MAX, &mounts, NULL))
		return NULL;
	found = strstr(text, name);
	mount = mount_of(mounts, *controller ? "cgroup" : "cgroup2",
			 *controller ? controller : NULL);
	if (!found || !mount)
		return NULL;
	found += strlen(name);
	found[strcspn(found, "\n")] = '\0';
	*ret_root = strlen(mount);
	return strf("%s%s", mount, found);
}

static int write_text(const char *path, const char *text)
{
	int fd AUTO_CLOSE = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* Version 1. A cgroup that confines nobody is shared with others than this VM, and left alone. */
static int grant_v1(const struct grant *g)
{
	size_t root;
	char *dir AUTO_FREE = cgroup_of(g->pid, "devices", &root), *list AUTO_FREE = NULL;
	char *path AUTO_FREE = dir ? strf("%s/devices.list", dir) : NULL;
	char *file AUTO_FREE = dir ? strf("%s/devices.%s", dir, g->give ? "allow" : "deny") : NULL;
	char rule[64];
	int rc;

	if (!dir)
		return 0;
	rc = path && file ? read_file(path, PROC_FILE_MAX, &list, NULL) : -ENOMEM;
	if (rc || !strncmp(list, "a ", 2))
		return rc;
	snprintf(rule, sizeof rule, "c %u:%u rw", major(g->device), minor(g->device));
	return write_text(file, rule);
}

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	long rc = syscall(SYS_bpf, cmd, attr, sizeof *attr);

	return rc < 0 ? -errno : (int)rc;
}

static int bpf_info(int fd, void *info, uint32_t bytes)
{
	union bpf_attr attr = {
		.info = {.bpf_fd = (uint32_t)fd, .info_len = bytes, .info = (uintptr_t)info}};

	return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

/* The map of a program of libvirt's, a descriptor; -ENOENT: it is somebody else's. */
static int rules_of(uint32_t program)
{
	union bpf_attr attr = {.prog_id = program};
	int fd AUTO_CLOSE = bpf(BPF_PROG_GET_FD_BY_ID, &attr), map AUTO_CLOSE = -1;
	uint32_t id = 0;
	struct bpf_prog_info p = {.nr_map_ids = 1, .map_ids = (uintptr_t)&id};
	struct bpf_map_info m = {0};
	int rc = fd < 0 ? fd : bpf_info(fd, &p, sizeof p);

	if (rc < 0)
		return rc;
	if (p.nr_map_ids != 1)
		return -ENOENT;
	attr = (union bpf_attr){.map_id = id};
	map = bpf(BPF_MAP_GET_FD_BY_ID, &attr);
	rc = map < 0 ? map : bpf_info(map, &m, sizeof m);
	if (rc < 0)
		return rc;
	if (m.type != BPF_MAP_TYPE_HASH || m.key_size != sizeof(uint64_t) ||
	    m.value_size != sizeof(uint32_t))
		return -ENOENT;
	return TAKE_FD(map);
}

static int set_rule(int map, const struct grant *g)
{
	struct rule r = {.key = (uint64_t)major(g->device) << 32 | minor(g->device),
			 .access = BPF_DEVCG_DEV_CHAR | (BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE)
								<< 16};
	union bpf_attr attr = {.map_fd = (uint32_t)map, .key = (uintptr_t)&r.key};
	int rc;

	if (g->give)
		attr.value = (uintptr_t)&r.access;
	rc = bpf(g->give ? BPF_MAP_UPDATE_ELEM : BPF_MAP_DELETE_ELEM, &attr);
	return rc == -ENOENT ? 0 : rc;
}

static int grant_programs(const struct grant *g, const char *dir)
{
	uint32_t programs[PROGRAMS_MAX] = {0};
	int fd AUTO_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	union bpf_attr attr = {.query = {.target_fd = (uint32_t)fd,
					 .attach_type = BPF_CGROUP_DEVICE,
					 .prog_ids = (uintptr_t)programs,
					 .prog_cnt = PROGRAMS_MAX}};
	int rc = fd < 0 ? -errno : bpf(BPF_PROG_QUERY, &attr);

	for (uint32_t i = 0; rc >= 0 && i < attr.query.prog_cnt; i++) {
		int map AUTO_CLOSE = rules_of(programs[i]);

		if (map != -ENOENT)
			rc = map < 0 ? map : set_rule(map, g);
	}
	return rc < 0 ? rc : 0;
}

/* Version 2: each cgroup on the way to the root may have programs, and all must agree. */
static int grant_v2(const struct grant *g)
{
	size_t root;
	char *dir AUTO_FREE = cgroup_of(g->pid, "", &root);
	int rc = 0;

	while (!rc && dir && strlen(dir) > root + 1) {
		rc = grant_programs(g, dir);
		*strrchr(dir, '/') = '\0';
	}
	return rc;
}

static int act(struct grant *g, char *error)
{
	struct stat st;
	int rc;

	if (stat(g->node, &st))
		return failed(g, g->node, -errno, error);
	if (!S_ISCHR(st.st_mode))
		return failed(g, "no character device", -ENODEV, error);
	g->device = st.st_rdev;
	rc = grant_v1(g);
	if (rc)
		return failed(g, "devices cgroup", rc, error);
	rc = grant_v2(g);
	if (rc)
		return failed(g, "device program of its cgroup", rc, error);
	rc = grant_mount(g);
	return rc ? failed(g, "its /dev", rc, error) : 0;
}

int grant_node(pid_t pid, const char *node, char *error)
{
	return act(&(struct grant){.pid = pid, .node = node, .give = true}, error);
}

int grant_take_back(pid_t pid, const char *node, char *error)
{
	return act(&(struct grant){.pid = pid, .node = node}, error);
}
