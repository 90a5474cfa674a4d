/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/job_vfs.h"
#include "common/ib.h"
#include "common/json.h"

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

int job_each_vf(struct job *j, int (*one)(struct job *j, struct json_object *vf, char *error))
{
	int first = 0;

	if (j->rc)
		return j->rc;
	j->error[0] = '\0';
	for (size_t i = 0; i < job_vf_count(j); i++) {
		char error[HTTP_ERROR_MAX] = "";
		int rc = one(j, job_vf(j, i), error);

		if (rc)
			add_error(j, job_vf(j, i), error);
		first = first ? first : rc;
	}
	return j->rc = first;
}
