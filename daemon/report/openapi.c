/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/report/openapi.h"
#include "common/http/server.h"

#include <string.h>

/* The compiler runs in the top folder. */
__asm__(".pushsection .rodata\n"
	".global openapi_text\n"
	"openapi_text:\n"
	".incbin \"docs/openapi.json\"\n"
	".byte 0\n"
	".popsection\n");

void openapi_get(struct http_request *req)
{
	char *text = strdup(openapi_text);

	if (text)
		http_reply_text(req->exchange, 200, "application/json", text);
	else
		http_fail(req->exchange, 503, "no-memory", "out of memory");
}
