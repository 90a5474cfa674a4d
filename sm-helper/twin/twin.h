/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The other ibvmig-sm, beside the other OpenSM. The one whose OpenSM is master leads; it tells the
 * other one each batch before it begins and each change of the registry (docs/fabric.md,
 * "Fail-over"). Safe to call from several threads. */
#ifndef IBVMIG_SM_HELPER_TWIN_TWIN_H
#define IBVMIG_SM_HELPER_TWIN_TWIN_H

#include "sm-helper/backend/backend.h"
#include "sm-helper/registry/registry.h"

#include <json-c/json.h>
#include <stdbool.h>

#define TWIN_BLOB_MAX (6u << 20) /* size of a registry, as a changeset */

struct twin; /* owned by the caller of twin_new() */

/* url: as http_call(); registry, backend: borrowed. 0 or -ENOMEM. */
int twin_new(const char *url, struct registry *registry, struct backend *backend,
	     struct twin **ret_twin);
void twin_free(struct twin *p);

/* Brings the two registries together, before anything is changed by who is master. 0 as soon as
 * that has been done, or if ours must be the newer one. -EAGAIN: the other one may be newer and
 * does not answer; -EPERM: it leads itself. On an error, one line. */
int twin_lead(struct twin *p, char error[static BACKEND_ERROR_MAX]);
/* Says what our OpenSM is, whenever that has been asked; instance 0: it is not there. */
void twin_sm(struct twin *p, uint64_t instance, bool master);
/* Ours leads, and the other one has all of the registry and an OpenSM that takes batches. */
bool twin_ready(struct twin *p);
/* The process of the other one's OpenSM, if that is a standby as far as is known; else 0. */
uint64_t twin_standby(struct twin *p);
/* Looks, for a timer, whether the other one still has all, if ours leads. */
void twin_mend(struct twin *p);

/* Makes the changes of the registry and the batch that is about to begin (count 0: none) durable at
 * the other one, and puts the batch into its OpenSM's plugin. -EPERM: it leads itself; -ENOTCONN:
 * its OpenSM is not there; other errors: it does not have it. */
int twin_tell(struct twin *p, const struct sm_target *targets, unsigned count,
	      char error[static BACKEND_ERROR_MAX]);
/* The other one cannot be told, but has no OpenSM either that could take over: we go on. 0 or -EIO.
 */
int twin_go_alone(struct twin *p);

/* Passes a client's call on to the other one, which keeps it for the day on which it leads. 0, or
 * -errno with one line. */
int twin_pass(struct twin *p, const char *path, struct json_object *body,
	      char error[static BACKEND_ERROR_MAX]);

/* Reads something of the other one; *ret_answer is owned by the caller. 0, or -errno with one line.
 */
int twin_fetch(struct twin *p, const char *path, unsigned ms, struct json_object **ret_answer,
	       char error[static BACKEND_ERROR_MAX]);

/* Requests of the other one: twin_state() for GET /v1/peer and in every answer, twin_export() for
 * GET /v1/peer/registry, twin_heard() for POST /v1/peer. Answers are owned by the caller; 0, or
 * -errno with one line. */
struct json_object *twin_state(struct twin *p);
int twin_export(struct twin *p, struct json_object **ret_answer,
		char error[static BACKEND_ERROR_MAX]);
int twin_heard(struct twin *p, struct json_object *body, struct json_object **ret_answer,
	       char error[static BACKEND_ERROR_MAX]);

/* Makes the part of GET /v1/status. */
struct json_object *twin_status(struct twin *p);

#endif
