/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The VF provider program (docs/wire.md, "VF provider"). Blocks: call it from workers only. */
#ifndef IBVMIG_DAEMON_PROVIDER_H
#define IBVMIG_DAEMON_PROVIDER_H

#include "common/http_client.h"

#include <stdint.h>

#define PROVIDER_DEADLINE_MS 10000
#define PROVIDER_ANSWER_MAX  (1u << 20)

/* in: borrowed, NULL for {}. *ret_out (owned by the caller) is the answer. 0 or -errno; error says
 * in one line which call failed and why. */
int provider_call(const char *program, const char *op, struct json_object *in,
		  struct json_object **ret_out, char error[static HTTP_ERROR_MAX]);

int provider_set_guid(const char *program, const char *vf, uint64_t guid,
		      char error[static HTTP_ERROR_MAX]);
int provider_release(const char *program, const char *vf, char error[static HTTP_ERROR_MAX]);

#endif
