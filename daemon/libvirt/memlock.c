/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/memlock.h"
#include "common/http/client.h"
#include "common/util.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

#define PID_FILE_MAX 32

int qemu_pid(const char *pid_dir, const char *name, pid_t *ret_pid, char *error)
{
	char *path AUTO_FREE = strf("%s/%s.pid", pid_dir, name);
	char *text AUTO_FREE = NULL;
	uint64_t pid = 0;
	int rc = path ? read_file(path, PID_FILE_MAX, &text, NULL) : -ENOMEM;

	if (!rc) {
		text[strcspn(text, "\n")] = '\0';
		rc = parse_u64(text, 2, INT_MAX, &pid);
	}
	*ret_pid = (pid_t)pid;
	if (rc)
		snprintf(error, HTTP_ERROR_MAX, "cannot tell the process of VM %s: %s: %s", name,
			 path ? path : "", strerror(-rc));
	return rc;
}

int memlock_lift(const char *pid_dir, const char *name, char *error)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	pid_t pid;
	int rc = qemu_pid(pid_dir, name, &pid, error);

	if (rc || !prlimit(pid, RLIMIT_MEMLOCK, &none, NULL))
		return rc;
	rc = -errno;
	snprintf(error, HTTP_ERROR_MAX,
		 "cannot lift the limit of locked memory of VM %s (process %d): %s; ibvmigd needs "
		 "CAP_SYS_RESOURCE",
		 name, (int)pid, strerror(-rc));
	return rc;
}
