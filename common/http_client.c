/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http_client.h"
#include "common/json.h"
#include "common/util.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

struct buffer {
	char *data; /* owned */
	size_t bytes;
};

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
	default:
		return -EIO;
	}
}

/* The detail of the first error in an answer that follows our error format. */
static const char *first_detail(struct json_object *body)
{
	struct json_object *list = json_opt(body, "errors");

	if (!json_object_is_type(list, json_type_array) || !json_object_array_length(list))
		return NULL;
	return json_opt_str(json_object_array_get_idx(list, 0), "detail", NULL);
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
	const char *detail = rc ? NULL : first_detail(body);
	if (detail)
		snprintf(error, HTTP_ERROR_MAX, "%s", detail);
	else
		snprintf(error, HTTP_ERROR_MAX, "%s%s answered with status %ld", base, path,
			 status);
	return -EREMOTEIO;
}

int http_call(const char *base, const char *method, const char *path, struct json_object *body,
	      unsigned timeout_ms, struct json_object **ret_body, char error[static HTTP_ERROR_MAX])
{
	bool is_unix = !strncmp(base, "unix:", 5);
	char *url AUTO_FREE = strf("%s%s", is_unix ? "http://localhost" : base, path);
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	struct buffer answer = {0};
	CURL *c = curl_easy_init();
	long status = 0;
	int rc;

	*ret_body = NULL;
	headers = curl_slist_append(headers, "Expect:");
	if (!c || !url || !headers) {
		snprintf(error, HTTP_ERROR_MAX, "out of memory");
		curl_easy_cleanup(c);
		curl_slist_free_all(headers);
		return -ENOMEM;
	}
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (is_unix)
		curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, base + 5);
	if (body)
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, json_text(body));
	CURLcode code = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	rc = curl_errno(code);
	if (rc)
		snprintf(error, HTTP_ERROR_MAX, "%s%s: %s", base, path, curl_easy_strerror(code));
	else
		rc = finish(base, path, status, &answer, ret_body, error);
	free(answer.data);
	return rc;
}
