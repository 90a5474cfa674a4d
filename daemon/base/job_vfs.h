/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Jobs about all VFs of a VM: their input has "vfs", an object of each VF (vf_lease_json()), into
 * which the worker also writes what it learns of that VF. */
#ifndef IBVMIG_DAEMON_BASE_JOB_VFS_H
#define IBVMIG_DAEMON_BASE_JOB_VFS_H

#include "daemon/base/job.h"

#include <stddef.h>

/* "vfs"[i]; borrowed, NULL beyond the last. */
struct json_object *job_vf(const struct job *j, size_t i);
size_t job_vf_count(const struct job *j);

/* Calls one() for each VF, also after one that failed: 0 or -errno with a line in error (of
 * HTTP_ERROR_MAX bytes, "" before). j->rc is the first error and j->error has all their lines, with
 * the VFs' names where there are several. Returns j->rc; does nothing if that is set already. */
int job_each_vf(struct job *j, int (*one)(struct job *j, struct json_object *vf, char *error));

/* The same, for all VFs at once: one() reads only the texts of its own vf, and calls what locks
 * itself. */
int job_vfs_at_once(struct job *j, int (*one)(struct job *j, struct json_object *vf, char *error));

/* A GUID or text of such an object; 0 and "" where it has none. */
uint64_t vf_guid_of(struct json_object *vf, const char *key);
const char *vf_text_of(struct json_object *vf, const char *key);

#endif
