/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/job.h"
#include "common/http/server.h"
#include "common/ib.h"
#include "common/json.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/base/limits.h"
#include "daemon/store/durable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void job_run(void *arg)
{
	struct job *j = arg;

	j->run(j);
}

static void job_done(void *arg)
{
	struct job *j = arg;

	j->d->looking -= j->looks;
	j->done(j);
	if (j->clear && j->work)
		j->clear(j->work);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
}

/* A journal that cannot be made durable is for the state machine to judge
 * (daemon/migrate/machine.c). */
static void job_submit(void *arg, int rc)
{
	struct job *j = arg;

	(void)rc;
	/* Whoever has started it was told that it runs, and keeps its state for done(), which must
	 * not come before job_start() has returned: nobody could be told. It is about some bytes,
	 * for which the kernel's overcommit ends the process elsewhere, or the first thread of the
	 * pool. The next ibvmigd takes the records up from the journal. */
	if (work_submit(j->pool, job_run, job_done, j))
		abort();
}

int job_order(struct daemon *d, const struct job_order *o)
{
	struct job *j = calloc(1, sizeof *j + o->bytes);
	struct json_object *in = o->in ? o->in : json_object_new_object();
	struct json_object *out = json_object_new_object();

	if (!j || !in || !out) {
		if (o->clear)
			o->clear(o->work);
		json_object_put(in);
		json_object_put(out);
		free(j);
		return -ENOMEM;
	}
	*j = (struct job){.d = d,
			  .pool = o->pool ? o->pool : d->pool,
			  .clear = o->clear,
			  .in = in,
			  .out = out,
			  .run = o->run,
			  .done = o->done,
			  .then = o->then,
			  .looks = o->looks,
			  .owner = o->owner,
			  .serial = o->serial};
	d->looking += o->looks;
	if (o->bytes)
		j->work = memcpy(j->copy, o->work, o->bytes);
	durable_then(d->durable, job_submit, j);
	return 0;
}

int job_start(struct daemon *d, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial)
{
	return job_order(
		d, &(struct job_order){
			   .in = in, .run = run, .done = done, .owner = owner, .serial = serial});
}

int job_look(struct daemon *d, struct http_exchange *x, struct json_object *in,
	     void (*run)(struct job *j), void (*done)(struct job *j), void *owner)
{
	const struct job_order o = {.pool = d->lookers,
				    .in = in,
				    .run = run,
				    .done = done,
				    .looks = true,
				    .owner = owner};
	int rc = -EBUSY;

	if (d->looking >= JOB_LOOKS_MAX) {
		json_object_put(in);
		http_fail(x, 503, "busy",
			  "%u calls that only look are waiting already: ask again later",
			  d->looking);
	} else if ((rc = job_order(d, &o))) {
		http_fail(x, 503, "no-memory", "out of memory");
	}
	return rc;
}

int job_fail(struct job *j, int rc, const char *fmt, ...)
{
	va_list ap;

	j->rc = rc;
	va_start(ap, fmt);
	vsnprintf(j->error, sizeof j->error, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- all VFs of a VM ---- */

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
