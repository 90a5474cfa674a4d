/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocking REST calls (libcurl). In a daemon, they come from a worker (common/work.h) only. */
#ifndef IBVMIG_COMMON_HTTP_CLIENT_H
#define IBVMIG_COMMON_HTTP_CLIENT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

#define HTTP_ANSWER_MAX (8u << 20)
#define HTTP_ERROR_MAX  512

/* Once per process, before any thread starts. */
void http_client_init(void);

struct tls;
/* Before any call. tls: borrowed until the last one; NULL: https:// is refused. plain: whether
 * http:// to other machines is allowed (without this function it is). */
void http_client_secure(struct tls *tls, bool plain);

/* base: "https://HOST:PORT", "http://HOST:PORT" or "unix:PATH". body: borrowed, NULL for none.
 * timeout_ms covers all.
 *
 * 0: the status is 2xx and *ret_body (owned by the caller) is its object.
 * -EREMOTEIO: any other status; -ECONNREFUSED, -ETIMEDOUT, -EBADMSG, -EIO as the names say;
 * -EACCES: TLS, by either side or because the URL may not be used.
 * On an error, error says in one line what went wrong, in the server's own words if it has any. */
int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body,
	      char error[static HTTP_ERROR_MAX]);

/* A service of others: its own authentication and CA in place of ours. Borrowed. */
struct http_service {
	const char *name;            /* errors begin with it */
	const char *user, *password; /* basic authentication; NULL: none */
	const char *token;           /* sent as the credentials of basic authentication; or NULL */
	const char *ca_file;         /* PEM; NULL: the system's */
	bool insecure;               /* the server's certificate is not checked */
	size_t answer_max;           /* bytes */
};

/* url: http:// or https://. 0: the status is 2xx and *ret_answer (owned by the caller) is what
 * came, of any JSON type, NULL for nothing. -ENOENT: 404; -EACCES: 401, 403; -EREMOTEIO: another
 * status; -ECONNREFUSED, -ETIMEDOUT, -EPROTO (TLS), -EBADMSG (no JSON), -EIO. On an error, error is
 * one line: call, status and how the body begins. timeout_ms 0: the time is over, nothing is sent.
 */
int http_call_service(const struct http_service *s, const char *method, const char *url,
		      struct json_object *body, unsigned timeout_ms,
		      struct json_object **ret_answer, char error[static HTTP_ERROR_MAX]);

#endif
