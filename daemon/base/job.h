/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A blocking sequence in a worker. Only the job owns its input and output, a struct of its own or
 * JSON. The worker shares nothing with the loop but what is constant or locks itself. */
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
	void *work;              /* owned; the input and output of a typed job, or NULL */
	struct json_object *in;  /* owned */
	struct json_object *out; /* owned; starts as an empty object */
	int rc;                  /* 0 or -errno, with a line in error */
	char error[HTTP_ERROR_MAX];
	void *owner;     /* borrowed; for done() */
	uint64_t serial; /* for done(): which step of the owner asked */
	void (*run)(struct job *j);
	void (*done)(struct job *j); /* in the loop's thread; the job is freed afterwards */
};

/* The parts of a job, as its owner gives them. */
struct job_order {
	struct work_pool *pool; /* NULL: d->pool */
	void *work; /* from malloc(), typed: run() reads and writes it, done() reads it */
	struct json_object *in; /* NULL: empty object */
	void (*run)(struct job *j);
	void (*done)(struct job *j);
	void *owner;
	uint64_t serial;
};

/* run() begins when all that is in the journal now is durable. Takes the ownership of o->work and
 * o->in, also if it fails. 0 or -ENOMEM, done() is not called then. */
int job_order(struct daemon *d, const struct job_order *o);

/* The same without work, in d->pool. */
int job_start(struct daemon *d, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial);

/* Sets rc and error; returns rc. */
int job_fail(struct job *j, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
