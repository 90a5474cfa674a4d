/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls of UFM Enterprise's REST API: JSON over HTTPS, basic or token authentication. Blocking. */
#ifndef IBVMIG_SM_HELPER_BACKEND_UFM_HTTP_H
#define IBVMIG_SM_HELPER_BACKEND_UFM_HTTP_H

#include "common/http/client.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#define UFM_ANSWER_MAX (32u << 20) /* the vports of a large fabric */
#define UFM_ERROR_MAX  512

/* Borrowed pointers, for the life of the process. */
struct ufm_conf {
	const char *url;           /* "https://HOST[:PORT]" */
	const char *user;          /* with password_file: basic authentication, below /ufmRest */
	const char *password_file; /* one line */
	const char *token_file;    /* token authentication, below /ufmRestV3: a file of one line */
	const char *ca_file;       /* PEM; NULL: the system's */
	bool insecure;             /* the server's certificate is not checked */
	unsigned timeout_ms;       /* the limit of a call, connecting included */
	bool pkeys;                /* memberships are written */
};

/* 0, or -EINVAL with one line in error that names the setting. */
int ufm_conf_check(const struct ufm_conf *conf, char error[static UFM_ERROR_MAX]);

struct ufm_http; /* owned by the caller of ufm_http_new() */

/* Reads the secrets. 0 or -errno with one line in error that names the setting. */
int ufm_http_new(const struct ufm_conf *conf, struct ufm_http **ret_http,
		 char error[static UFM_ERROR_MAX]);
void ufm_http_free(struct ufm_http *h);

/* path: below /ufmRest, "/app/ufm_version". body: borrowed, NULL for none. 0: the status is 2xx and
 * *ret_answer (owned by the caller) is what came, of any JSON type, NULL for nothing.
 * -ENOENT: 404; -EACCES: 401, 403; -EREMOTEIO: another status; -ECONNREFUSED, -ETIMEDOUT, -EPROTO
 * (TLS), -EBADMSG (no JSON), -EIO. deadline_us: CLOCK_MONOTONIC, when it is given up, 0: after
 * timeout_ms only; past it nothing is sent. error: call, status and how the body begins. */
int ufm_http_call(struct ufm_http *h, const char *method, const char *path,
		  struct json_object *body, uint64_t deadline_us, struct json_object **ret_answer,
		  char error[static UFM_ERROR_MAX]);

#endif
