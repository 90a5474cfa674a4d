/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/job.h"
#include "common/util.h"
#include "common/work.h"
#include "daemon/base/daemon.h"
#include "daemon/store/durable.h"

#include <errno.h>
#include <stdarg.h>

static void job_run(void *arg)
{
	struct job *j = arg;

	j->run(j);
}

static void job_free(struct job *j)
{
	free(j->work);
	json_object_put(j->in);
	json_object_put(j->out);
	free(j);
}

static void job_done(void *arg)
{
	struct job *j = arg;

	j->done(j);
	job_free(j);
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
	struct job *j = calloc(1, sizeof *j);

	if (!j) {
		free(o->work);
		json_object_put(o->in);
		return -ENOMEM;
	}
	*j = (struct job){.d = d,
			  .pool = o->pool ? o->pool : d->pool,
			  .run = o->run,
			  .done = o->done,
			  .owner = o->owner,
			  .serial = o->serial,
			  .work = o->work};
	j->in = o->in ? o->in : json_object_new_object();
	j->out = json_object_new_object();
	if (!j->in || !j->out) {
		job_free(j);
		return -ENOMEM;
	}
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

int job_fail(struct job *j, int rc, const char *fmt, ...)
{
	va_list ap;

	j->rc = rc;
	va_start(ap, fmt);
	vsnprintf(j->error, sizeof j->error, fmt, ap);
	va_end(ap);
	return rc;
}
