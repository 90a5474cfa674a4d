/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The promises of docs/openapi.json for a route, with which tests compare what the daemon does. */
#ifndef IBVMIG_TESTS_FAKE_DOCUMENTED_H
#define IBVMIG_TESTS_FAKE_DOCUMENTED_H

#include "common/http/server.h"

#include <json-c/json.h>
#include <stdbool.h>

/* "/v1/vms/{name}" of the document is the table's "/v1/vms/ *". */
bool documented_path(const char *documented, const char *route);
/* The route's entry in doc, borrowed, or NULL. */
struct json_object *documented_operation(struct json_object *doc, const struct http_route *r);
/* Returns whether the entry has this status; "default" stands for all that are errors. */
bool documented_status(struct json_object *doc, const struct http_route *r, unsigned status);

#endif
