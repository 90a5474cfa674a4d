/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/http_server.h"
#include "common/json.h"

bool http_flags_fit(struct http_request *req, const char *const *names)
{
	for (; *names; names++) {
		struct json_object *v = json_opt(req->body, *names);

		if (v && !json_object_is_type(v, json_type_boolean)) {
			http_fail(req->exchange, 400, "bad-field", "%s must be true or false",
				  *names);
			return false;
		}
	}
	return true;
}
