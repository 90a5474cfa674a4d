/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The checks of a body's fields stand apart from the server, which simulated hosts replace whole.
 */
#include "common/http/server.h"
#include "common/json.h"

static bool fit(struct http_request *req, const char *const *names, enum json_type type,
		const char *what)
{
	for (; *names; names++) {
		struct json_object *v = json_opt(req->body, *names);

		if (v && !json_object_is_type(v, type)) {
			http_fail(req->exchange, 400, "bad-field", "%s must be %s", *names, what);
			return false;
		}
	}
	return true;
}

bool http_flags_fit(struct http_request *req, const char *const *names)
{
	return fit(req, names, json_type_boolean, "true or false");
}

bool http_texts_fit(struct http_request *req, const char *const *names)
{
	return fit(req, names, json_type_string, "a string");
}
