/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/backend/ufm_http.h"
#include "common/http/client.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define SECRET_MAX 4096

struct ufm_http {
	const struct ufm_conf *conf; /* borrowed */
	char *password, *token;      /* owned; NULL: not used */
};

static int fail(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(char *error, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, UFM_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

/* The first line of a file. */
static int read_secret(const char *key, const char *path, char **ret_secret, char *error)
{
	size_t n;
	int rc = read_file(path, SECRET_MAX, ret_secret, &n);

	if (rc)
		return fail(error, rc, "%s \"%s\": %s", key, path, strerror(-rc));
	(*ret_secret)[strcspn(*ret_secret, "\r\n")] = '\0';
	return **ret_secret ? 0 : fail(error, -EINVAL, "%s \"%s\" is empty", key, path);
}

static bool uses_tls(const struct ufm_conf *c)
{
	return c->url && !strncmp(c->url, "https://", 8);
}

int ufm_conf_check(const struct ufm_conf *c, char error[static UFM_ERROR_MAX])
{

	if (!c->url || (!uses_tls(c) && strncmp(c->url, "http://", 7) != 0))
		return fail(error, -EINVAL, "ufm-url is \"%s\"; it must be https://HOST[:PORT]",
			    c->url ? c->url : "");
	if (!c->token_file == !(c->user && c->password_file))
		return fail(error, -EINVAL,
			    "give either ufm-token-file, or ufm-user and ufm-password-file");
	return 0;
}

static void warn(const struct ufm_conf *c)
{
	if (!uses_tls(c))
		log_warn("ufm-url is not https: passwords travel in the clear");
	else if (c->insecure)
		log_warn("ufm-insecure: whoever answers at %s is believed", c->url);
}

int ufm_http_new(const struct ufm_conf *conf, struct ufm_http **ret_http,
		 char error[static UFM_ERROR_MAX])
{
	struct ufm_http *h;
	int rc = ufm_conf_check(conf, error);

	if (rc)
		return rc;
	warn(conf);
	if (!(h = calloc(1, sizeof *h)))
		return fail(error, -ENOMEM, "no memory");
	h->conf = conf;
	rc = conf->token_file
		     ? read_secret("ufm-token-file", conf->token_file, &h->token, error)
		     : read_secret("ufm-password-file", conf->password_file, &h->password, error);
	if (rc) {
		ufm_http_free(h);
		return rc;
	}
	*ret_http = h;
	return 0;
}

void ufm_http_free(struct ufm_http *h)
{
	if (!h)
		return;
	free(h->password);
	free(h->token);
	free(h);
}

/* Share of the call's own time that the deadline leaves; 0: it has passed. */
static unsigned patience_ms(const struct ufm_http *h, uint64_t deadline_us)
{
	uint64_t now = now_us(), left_ms = deadline_us > now ? (deadline_us - now) / 1000 : 0;

	return deadline_us && left_ms < h->conf->timeout_ms ? (unsigned)left_ms
							    : h->conf->timeout_ms;
}

int ufm_http_call(struct ufm_http *h, const char *method, const char *path,
		  struct json_object *body, uint64_t deadline_us, struct json_object **ret_answer,
		  char error[static UFM_ERROR_MAX])
{
	const struct http_service service = {
		.name = "UFM",
		.user = h->conf->user,
		.password = h->password,
		.token = h->token,
		.ca_file = h->conf->ca_file,
		.insecure = h->conf->insecure,
		.answer_max = UFM_ANSWER_MAX,
	};
	char *url AUTO_FREE = strf("%s%s%s", h->conf->url, h->token ? "/ufmRestV3" : "/ufmRest",
				   path);

	*ret_answer = NULL;
	if (!url)
		return fail(error, -ENOMEM, "no memory");
	return http_call_service(&service, method, url, body, patience_ms(h, deadline_us),
				 ret_answer, error);
}
