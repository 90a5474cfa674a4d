/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/backend/ufm_http.h"
#include "common/json.h"
#include "common/log.h"
#include "common/util.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define SECRET_MAX 4096
#define QUOTE_MAX  160 /* of a body, in an error */

struct ufm_http {
	const struct ufm_conf *conf; /* borrowed */
	char *password, *token;      /* owned; NULL: not used */
};

struct answer {
	char *data; /* owned */
	size_t bytes;
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

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;
	size_t bytes = size * n;
	char *grown;

	if (a->bytes + bytes > UFM_ANSWER_MAX || !(grown = realloc(a->data, a->bytes + bytes + 1)))
		return 0;
	memcpy(grown + a->bytes, data, bytes);
	a->data = grown;
	a->bytes += bytes;
	grown[a->bytes] = '\0';
	return bytes;
}

static int curl_errno(CURLcode c)
{
	switch (c) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return -EPROTO;
	default:
		return -EIO;
	}
}

/* How the body begins, on one line and printable. */
static const char *quote(const struct answer *a, char text[static QUOTE_MAX + 1])
{
	size_t n = a->bytes < QUOTE_MAX ? a->bytes : QUOTE_MAX;

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(a->data[i] >= ' ' && a->data[i] < 0x7f ? a->data[i] : ' ');
	text[n] = '\0';
	return text;
}

static int parse(const struct answer *a, struct json_object **ret_answer)
{
	struct json_tokener *t;
	struct json_object *o;
	bool whole;

	*ret_answer = NULL;
	if (!a->bytes)
		return 0;
	if (!(t = json_tokener_new_ex(JSON_DEPTH_MAX)))
		return -ENOMEM;
	/* with its NUL, which ends a number at the top */
	o = json_tokener_parse_ex(t, a->data, (int)a->bytes + 1);
	whole = json_tokener_get_error(t) == json_tokener_success;
	json_tokener_free(t);
	if (!whole) {
		json_object_put(o);
		return -EBADMSG;
	}
	*ret_answer = o;
	return 0;
}

static int finish(const char *call, long status, const struct answer *a,
		  struct json_object **ret_answer, char *error)
{
	char text[QUOTE_MAX + 1];
	int rc;

	if (status < 200 || status >= 300)
		return fail(error,
			    status == 404                    ? -ENOENT
			    : status == 401 || status == 403 ? -EACCES
							     : -EREMOTEIO,
			    "UFM: %s: status %ld: %s", call, status, quote(a, text));
	rc = parse(a, ret_answer);
	return rc ? fail(error, rc, "UFM: %s: status %ld without JSON: %s", call, status,
			 quote(a, text))
		  : 0;
}

/* Of its own time, what the deadline leaves; 0: it has passed. */
static long patience_ms(const struct ufm_http *h, uint64_t deadline_us)
{
	uint64_t now = now_us(), left_ms = deadline_us > now ? (deadline_us - now) / 1000 : 0;

	return (long)(deadline_us && left_ms < h->conf->timeout_ms ? left_ms : h->conf->timeout_ms);
}

static void set_options(CURL *c, const struct ufm_http *h, struct answer *a)
{
	const struct ufm_conf *conf = h->conf;

	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (conf->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, conf->ca_file);
	if (conf->insecure) {
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	if (h->password) {
		curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(c, CURLOPT_USERNAME, conf->user);
		curl_easy_setopt(c, CURLOPT_PASSWORD, h->password);
	}
}

static struct curl_slist *make_headers(const struct ufm_http *h)
{
	struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
	char *token AUTO_FREE = h->token ? strf("Authorization: Basic %s", h->token) : NULL;

	list = curl_slist_append(list, "Expect:");
	return token ? curl_slist_append(list, token) : list;
}

int ufm_http_call(struct ufm_http *h, const char *method, const char *path,
		  struct json_object *body, uint64_t deadline_us, struct json_object **ret_answer,
		  char error[static UFM_ERROR_MAX])
{
	char *url AUTO_FREE = strf("%s%s%s", h->conf->url, h->token ? "/ufmRestV3" : "/ufmRest",
				   path);
	char *call AUTO_FREE = strf("%s %.160s", method, url ? url : "");
	struct curl_slist *headers = make_headers(h);
	struct answer a = {0};
	CURL *c = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0, ms = patience_ms(h, deadline_us);
	int rc;

	*ret_answer = NULL;
	if (!ms) {
		code = CURLE_OPERATION_TIMEDOUT;
	} else if (c && url && call && headers) {
		set_options(c, h, &a);
		curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, ms);
		curl_easy_setopt(c, CURLOPT_URL, url);
		curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
		curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
		if (body)
			curl_easy_setopt(c, CURLOPT_POSTFIELDS, json_text(body));
		code = curl_easy_perform(c);
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	rc = code ? fail(error, curl_errno(code), "UFM: %s: %s", call ? call : path,
			 curl_easy_strerror(code))
		  : finish(call, status, &a, ret_answer, error);
	free(a.data);
	return rc;
}
