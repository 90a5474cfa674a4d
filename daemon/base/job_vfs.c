/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/job_vfs.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/work.h"
#include "daemon/base/limits.h"

#include <stdio.h>
#include <string.h>

size_t job_vf_count(const struct job *j)
{
	return json_count(json_opt(j->in, "vfs"));
}

struct json_object *job_vf(const struct job *j, size_t i)
{
	return i < job_vf_count(j) ? json_object_array_get_idx(json_opt(j->in, "vfs"), i) : NULL;
}

uint64_t vf_guid_of(struct json_object *vf, const char *key)
{
	uint64_t guid = 0;

	ib_guid_parse(vf_text_of(vf, key), &guid);
	return guid;
}

const char *vf_text_of(struct json_object *vf, const char *key)
{
	return json_opt_str(vf, key, "");
}

static void add_error(struct job *j, struct json_object *vf, const char *error)
{
	size_t n = strlen(j->error);

	if (job_vf_count(j) == 1)
		snprintf(j->error, sizeof j->error, "%s", error);
	else
		snprintf(j->error + n, sizeof j->error - n, "%sVF %s: %s", n ? "; " : "",
			 vf_text_of(vf, "vf"), error);
}

/* The result of one VF goes into j. */
static void add_result(struct job *j, size_t i, int rc, const char *error)
{
	if (rc)
		add_error(j, job_vf(j, i), error);
	j->rc = j->rc ? j->rc : rc;
}

int job_each_vf(struct job *j, int (*one)(struct job *j, struct json_object *vf, char *error))
{
	if (j->rc)
		return j->rc;
	j->error[0] = '\0';
	for (size_t i = 0; i < job_vf_count(j); i++) {
		char error[HTTP_ERROR_MAX] = "";
		int rc = one(j, job_vf(j, i), error);

		add_result(j, i, rc, error);
	}
	return j->rc;
}

struct at_once {
	struct job *j;
	int (*one)(struct job *j, struct json_object *vf, char *error);
	struct {
		int rc;
		char error[HTTP_ERROR_MAX];
	} of[DOMAIN_VFS_MAX];
};

static void one_of_them(void *arg, size_t i)
{
	struct at_once *a = arg;

	a->of[i].rc = a->one(a->j, job_vf(a->j, i), a->of[i].error);
}

int job_vfs_at_once(struct job *j, int (*one)(struct job *j, struct json_object *vf, char *error))
{
	struct at_once a = {.j = j, .one = one};
	size_t n = job_vf_count(j) < DOMAIN_VFS_MAX ? job_vf_count(j) : DOMAIN_VFS_MAX;

	if (j->rc)
		return j->rc;
	j->error[0] = '\0';
	work_each(n, one_of_them, &a);
	for (size_t i = 0; i < n; i++)
		add_result(j, i, a.of[i].rc, a.of[i].error);
	return j->rc;
}
