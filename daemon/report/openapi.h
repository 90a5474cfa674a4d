/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /openapi.json: docs/openapi.json, which is part of the program. */
#ifndef IBVMIG_DAEMON_REPORT_OPENAPI_H
#define IBVMIG_DAEMON_REPORT_OPENAPI_H

struct http_request;

/* The document, ending with NUL; constant. */
extern const char openapi_text[];

void openapi_get(struct http_request *req);

#endif
