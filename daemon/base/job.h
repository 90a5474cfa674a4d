/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A blocking sequence in a worker. Only the job owns its input and output, a struct of its own or
 * JSON. The worker shares nothing with the loop but what is constant or locks itself. */
#ifndef IBVMIG_DAEMON_BASE_JOB_H
#define IBVMIG_DAEMON_BASE_JOB_H

#include "common/http/client.h"
#include "common/json.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct http_exchange;
struct migration;
struct work_pool;

struct job {
	struct daemon *d;
	struct work_pool *pool; /* borrowed: where run() runs */
	void *work;             /* the input and output of a typed job, in copy; or NULL */
	void (*clear)(void *work);
	struct json_object *in;  /* owned */
	struct json_object *out; /* owned; starts as an empty object */
	int rc;                  /* 0 or -errno, with a line in error */
	char error[HTTP_ERROR_MAX];
	bool looks;      /* job_look(): counts in d->looking */
	void *owner;     /* borrowed; for done() */
	uint64_t serial; /* for done(): which step of the owner asked */
	void (*run)(struct job *j);
	void (*done)(struct job *j); /* in the loop's thread; the job is freed afterwards */
	void (*then)(struct migration *m, struct job *j); /* for done() of a migration's step */
	max_align_t copy[];                               /* of the order's work */
};

/* The parts of a job, as its owner gives them. */
struct job_order {
	struct work_pool *pool; /* NULL: d->pool */
	/* A struct of this many bytes, which is copied: run() reads and writes the copy, done()
	 * reads it. */
	void *work;
	size_t bytes;
	void (*clear)(void *work); /* frees what work owns; NULL: nothing */
	struct json_object *in;    /* NULL: empty object */
	void (*run)(struct job *j);
	void (*done)(struct job *j);
	void (*then)(struct migration *m, struct job *j);
	bool looks; /* of job_look() */
	void *owner;
	uint64_t serial;
};

/* In an initializer of struct job_order: w is its work. */
#define JOB_WORK(w) .work = &(w), .bytes = sizeof(w)

/* run() begins when all that is in the journal now is durable. Takes the ownership of what o->work
 * owns, and of o->in, also if it fails. 0 or -ENOMEM, done() is not called then. */
int job_order(struct daemon *d, const struct job_order *o);

/* The same without work, in d->pool. */
int job_start(struct daemon *d, struct json_object *in, void (*run)(struct job *j),
	      void (*done)(struct job *j), void *owner, uint64_t serial);

/* A job for a client that only looks: such jobs wait for each other alone, in d->lookers. 0; or
 * -EBUSY (JOB_LOOKS_MAX are waiting) or -ENOMEM, which x was answered with. */
#define JOB_LOOKS_MAX 64
int job_look(struct daemon *d, struct http_exchange *x, struct json_object *in,
	     void (*run)(struct job *j), void (*done)(struct job *j), void *owner);

/* Sets rc and error; returns rc. */
int job_fail(struct job *j, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- jobs about all VFs of a VM ----
 *
 * Their input has "vfs", an object of each VF (vf_lease_json()). The worker also writes into it
 * what it learns of that VF. */

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
static inline const char *vf_text_of(struct json_object *vf, const char *key)
{
	return json_opt_str(vf, key, "");
}

#endif
