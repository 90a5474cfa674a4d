/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A blocking sequence in a worker: what goes in and comes out is JSON that only the job owns, so
 * that the worker shares nothing with the loop but what is constant or locks itself. */
#ifndef IBVMIG_DAEMON_BASE_JOB_H
#define IBVMIG_DAEMON_BASE_JOB_H

#include "common/http/client.h"

#include <json-c/json.h>
#include <stdint.h>

struct daemon;
struct work_pool;

struct job {
	struct daemon *d;
	struct work_pool *pool;  /* borrowed: where run() runs */
	struct json_object *in;  /* owned */
	struct json_object *out; /* owned; starts as an empty object */
	int rc;                  /* 0 or -errno, with a line in error */
	char error[HTTP_ERROR_MAX];
	void *owner;     /* borrowed; for done() */
	uint64_t serial; /* for done(): which step of the owner asked */
	void (*run)(struct job *j);
	void (*done)(struct job *j); /* in the loop's thread; the job is freed afterwards */
};

/* run() begins when all that is in the journal now is durable. Takes the ownership of in (NULL:
 * empty object). 0 or -ENOMEM, done() is not called then. */
int job_start(struct daemon *d, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial);

/* The same in another pool than d->pool. */
int job_start_in(struct work_pool *pool, struct daemon *d, struct json_object *in,
		 void (*run)(struct job *j), void (*done)(struct job *j), void *owner,
		 uint64_t serial);

/* Sets rc and error; returns rc. */
int job_fail(struct job *j, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
