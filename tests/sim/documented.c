/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/documented.h"
#include "common/json.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool documented_path(const char *documented, const char *route)
{
	for (; *documented && *route; documented++, route++) {
		if (*documented == '{' && *route == '*')
			documented += strcspn(documented, "}");
		else if (*documented != *route)
			return false;
	}
	return !*documented && !*route;
}

struct json_object *documented_operation(struct json_object *doc, const struct http_route *r)
{
	json_object_object_foreach(json_opt(doc, "paths"), path, item)
	{
		if (!documented_path(path, r->path))
			continue;
		json_object_object_foreach(item, method, o)
		{
			if (!strcasecmp(method, r->method))
				return o;
		}
	}
	return NULL;
}

bool documented_status(struct json_object *doc, const struct http_route *r, unsigned status)
{
	struct json_object *all = json_opt(documented_operation(doc, r), "responses");
	char key[16];

	snprintf(key, sizeof key, "%u", status);
	return json_opt(all, key) || (status >= 400 && json_opt(all, "default"));
}
