/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/tls/conf.h"
#include "common/util.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define QUOTE_MAX 160 /* bytes of a body, in an error */

struct buffer {
	char *data; /* owned; ends with NUL */
	size_t bytes, max;
};

static struct {
	struct tls *tls; /* borrowed */
	bool no_plain;
} secure;

void http_client_secure(struct tls *tls, bool plain)
{
	secure.tls = tls;
	secure.no_plain = !plain;
}

void http_client_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct buffer *b = arg;
	size_t bytes = size * n;
	char *grown;

	if (b->bytes + bytes > b->max || !(grown = realloc(b->data, b->bytes + bytes + 1)))
		return 0;
	memcpy(grown + b->bytes, data, bytes);
	b->data = grown;
	b->bytes += bytes;
	grown[b->bytes] = '\0';
	return bytes;
}

static int curl_errno(CURLcode c)
{
	switch (c) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
		return -EACCES;
	default:
		return -EIO;
	}
}

/* A field of the first error in an answer that follows our error format; or NULL. */
static const char *first_error(struct json_object *body, const char *key)
{
	struct json_object *list = json_opt(body, "errors");

	if (!json_object_is_type(list, json_type_array) || !json_object_array_length(list))
		return NULL;
	return json_opt_str(json_object_array_get_idx(list, 0), key, NULL);
}

static int finish(const char *base, const char *path, long status, struct buffer *b,
		  struct json_object **ret_body, char *error)
{
	struct json_object *body AUTO_JSON = NULL;
	int rc = b->bytes ? json_parse(b->data, b->bytes, &body) : -EBADMSG;

	if (status >= 200 && status < 300 && !rc) {
		*ret_body = TAKE(body);
		return 0;
	}
	if (status >= 200 && status < 300) {
		snprintf(error, HTTP_ERROR_MAX, "%s%s answered without a JSON object", base, path);
		return -EBADMSG;
	}
	const char *detail = rc ? NULL : first_error(body, "detail");
	if (detail && str_eq(first_error(body, "code"), HTTP_NO_ROUTE))
		snprintf(error, HTTP_ERROR_MAX,
			 "%s has no %s: another version of ibvmig runs there, which must be "
			 "upgraded first (docs/howto/drain-and-maintenance.md)",
			 base, path);
	else if (detail)
		snprintf(error, HTTP_ERROR_MAX, "%s", detail);
	else
		snprintf(error, HTTP_ERROR_MAX, "%s%s answered with status %ld", base, path,
			 status);
	return -EREMOTEIO;
}

/* ---- one call ---- */

/* Why a URL may not be used at all, or NULL. */
static const char *why_refused(const char *base)
{
	if (!strncmp(base, "https://", 8))
		return secure.tls ? NULL : "https needs tls-cert, tls-key and tls-ca";
	if (secure.no_plain && !tls_url_is_local(base))
		return "only https:// is allowed (or insecure = yes)";
	return NULL;
}

/* The site's CA alone, not the system's. */
static void use_keys(CURL *c, const struct tls_keys *k)
{
	curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
	curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
	curl_easy_setopt(c, CURLOPT_CAINFO, k->path[TLS_CA]);
	curl_easy_setopt(c, CURLOPT_SSLCERT, k->path[TLS_CERT]);
	curl_easy_setopt(c, CURLOPT_SSLKEY, k->path[TLS_KEY]);
}

/* Sets what all calls have. */
static void set_up(CURL *c, const char *method, struct json_object *body, unsigned timeout_ms)
{
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (body)
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, json_text(body));
}

static struct curl_slist *make_headers(void)
{
	return curl_slist_append(curl_slist_append(NULL, "Content-Type: application/json"),
				 "Expect:");
}

static CURLcode transfer(CURL *c, struct buffer *answer, long *ret_status)
{
	CURLcode code;

	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, answer);
	code = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, ret_status);
	return code;
}

/* TLS 1.3 tells a client what is wrong with its certificate only after the handshake, and curl does
 * not pass it on. */
static int explain(CURLcode code, bool tls, const char *base, const char *path, const char *detail,
		   char *error)
{
	if (tls &&
	    (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING)) {
		snprintf(error, HTTP_ERROR_MAX,
			 "%s%s: it has hung up, perhaps on our certificate (its log says why): %s",
			 base, path, curl_easy_strerror(code));
		return -EACCES;
	}
	snprintf(error, HTTP_ERROR_MAX, "%s%s: %s%s%s", base, path, curl_easy_strerror(code),
		 curl_errno(code) == -EACCES ? ": " : "",
		 curl_errno(code) == -EACCES ? detail : "");
	return curl_errno(code);
}

static int perform(CURL *c, const char *base, const char *path, struct json_object **ret_body,
		   char *error)
{
	struct tls_keys *keys = strncmp(base, "https://", 8) ? NULL : tls_keys_get(secure.tls);
	struct buffer answer = {.max = HTTP_ANSWER_MAX};
	char detail[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURLcode code;
	int rc;

	if (keys)
		use_keys(c, keys);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
	code = transfer(c, &answer, &status);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
	if (code)
		rc = explain(code, keys, base, path, detail, error);
	else
		rc = finish(base, path, status, &answer, ret_body, error);
	tls_keys_put(keys);
	free(answer.data);
	return rc;
}

int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body, char error[static HTTP_ERROR_MAX])
{
	const char *refused = why_refused(base);
	char *url AUTO_FREE = strf("%s%s", strncmp(base, "unix:", 5) ? base : "http://localhost",
				   path);
	struct curl_slist *headers = make_headers();
	CURL *c = curl_easy_init();
	int rc;

	*ret_body = NULL;
	if (refused) {
		snprintf(error, HTTP_ERROR_MAX, "%s%s: %s", base, path, refused);
		rc = -EACCES;
	} else if (!c || !url || !headers) {
		snprintf(error, HTTP_ERROR_MAX, "out of memory");
		rc = -ENOMEM;
	} else {
		curl_easy_setopt(c, CURLOPT_URL, url);
		curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
		if (!strncmp(base, "unix:", 5))
			curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, base + 5);
		set_up(c, method, body, timeout_ms);
		rc = perform(c, base, path, ret_body, error);
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	return rc;
}

/* ---- services of others ---- */

static int fail(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(char *error, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, HTTP_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

/* How the body begins, on one line and printable. */
static const char *quote(const struct buffer *b, char text[static QUOTE_MAX + 1])
{
	size_t n = b->bytes < QUOTE_MAX ? b->bytes : QUOTE_MAX;

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(b->data[i] >= ' ' && b->data[i] < 0x7f ? b->data[i] : ' ');
	text[n] = '\0';
	return text;
}

static int parse_any(const struct buffer *b, struct json_object **ret_answer)
{
	struct json_tokener *t;
	struct json_object *o;
	bool whole;

	if (!b->bytes)
		return 0;
	if (!(t = json_tokener_new_ex(JSON_DEPTH_MAX)))
		return -ENOMEM;
	/* with its NUL, which ends a number at the top */
	o = json_tokener_parse_ex(t, b->data, (int)b->bytes + 1);
	whole = json_tokener_get_error(t) == json_tokener_success;
	json_tokener_free(t);
	if (!whole) {
		json_object_put(o);
		return -EBADMSG;
	}
	*ret_answer = o;
	return 0;
}

static int finish_service(const char *call, long status, const struct buffer *b,
			  struct json_object **ret_answer, char *error)
{
	char text[QUOTE_MAX + 1];
	int rc;

	if (status < 200 || status >= 300)
		return fail(error,
			    status == 404                    ? -ENOENT
			    : status == 401 || status == 403 ? -EACCES
							     : -EREMOTEIO,
			    "%s: status %ld: %s", call, status, quote(b, text));
	rc = parse_any(b, ret_answer);
	return rc ? fail(error, rc, "%s: status %ld without JSON: %s", call, status, quote(b, text))
		  : 0;
}

static void set_service(CURL *c, const struct http_service *s)
{
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	if (s->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, s->ca_file);
	if (s->insecure) {
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	if (s->password) {
		curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(c, CURLOPT_USERNAME, s->user);
		curl_easy_setopt(c, CURLOPT_PASSWORD, s->password);
	}
}

/* -EACCES is an answer's here, so TLS is something else. */
static int service_errno(CURLcode code)
{
	int rc = code == CURLE_SSL_CACERT_BADFILE ? -EACCES : curl_errno(code);

	return rc == -EACCES ? -EPROTO : rc;
}

int http_call_service(const struct http_service *s, const char *method, const char *url,
		      struct json_object *body, unsigned timeout_ms,
		      struct json_object **ret_answer, char error[static HTTP_ERROR_MAX])
{
	char *call AUTO_FREE = strf("%s: %s %.160s", s->name, method, url);
	char *token AUTO_FREE = s->token ? strf("Authorization: Basic %s", s->token) : NULL;
	struct curl_slist *headers = make_headers();
	struct buffer answer = {.max = s->answer_max};
	CURL *c = curl_easy_init();
	CURLcode code = timeout_ms ? CURLE_OUT_OF_MEMORY : CURLE_OPERATION_TIMEDOUT;
	long status = 0;
	int rc;

	*ret_answer = NULL;
	if (token)
		headers = curl_slist_append(headers, token);
	if (timeout_ms && c && call && headers) {
		set_service(c, s);
		set_up(c, method, body, timeout_ms);
		curl_easy_setopt(c, CURLOPT_URL, url);
		curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
		code = transfer(c, &answer, &status);
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	rc = code ? fail(error, service_errno(code), "%s: %s", call ? call : s->name,
			 curl_easy_strerror(code))
		  : finish_service(call, status, &answer, ret_answer, error);
	free(answer.data);
	return rc;
}
