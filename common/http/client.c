/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/tls/conf.h"
#include "common/util.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

struct buffer {
	char *data; /* owned */
	size_t bytes;
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

	if (b->bytes + bytes > HTTP_ANSWER_MAX || !(grown = realloc(b->data, b->bytes + bytes)))
		return 0;
	memcpy(grown + b->bytes, data, bytes);
	b->data = grown;
	b->bytes += bytes;
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

static void set_up(CURL *c, const char *base, const char *method, struct json_object *body,
		   unsigned timeout_ms)
{
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (!strncmp(base, "unix:", 5))
		curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, base + 5);
	if (body)
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, json_text(body));
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
	struct buffer answer = {0};
	char detail[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURLcode code;
	int rc;

	if (keys)
		use_keys(c, keys);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer);
	code = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
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
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	CURL *c = curl_easy_init();
	int rc;

	*ret_body = NULL;
	headers = curl_slist_append(headers, "Expect:");
	if (refused) {
		snprintf(error, HTTP_ERROR_MAX, "%s%s: %s", base, path, refused);
		rc = -EACCES;
	} else if (!c || !url || !headers) {
		snprintf(error, HTTP_ERROR_MAX, "out of memory");
		rc = -ENOMEM;
	} else {
		curl_easy_setopt(c, CURLOPT_URL, url);
		curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
		set_up(c, base, method, body, timeout_ms);
		rc = perform(c, base, path, ret_body, error);
	}
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	return rc;
}
