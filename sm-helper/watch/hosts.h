/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whether the host that the registry has for a vGUID has it, and on that VF: the word of its daemon
 * (GET /v1/status). The fabric shows ports; it does not know hosts and VFs by name. */
#ifndef IBVMIG_SM_HELPER_WATCH_HOSTS_H
#define IBVMIG_SM_HELPER_WATCH_HOSTS_H

#include "sm-helper/registry/registry.h"

#include <json-c/json.h>
#include <stddef.h>

#define HOSTS_TEXT_MAX 640

struct host_answer {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX];
	struct json_object *status; /* owned; NULL: no answer, or not that host's */
	uint64_t asked_ms;          /* wall clock */
};

/* A zeroed one is empty. */
struct hosts {
	struct host_answer *answer; /* owned */
	size_t count;
	uint64_t since_ms; /* when the first was asked; 0: none yet */
};

enum hosts_verdict {
	HOSTS_AGREE,
	HOSTS_UNKNOWN, /* no answer, or what the registry has is on its way or newer than that */
	HOSTS_DIFFER,
};

/* Asks the daemon of the host that the entry names, unless it was asked. Blocks, 3 s at most, and
 * after 10 s with silent ones no more: others are not asked then. */
void hosts_ask(struct hosts *h, const struct reg_entry *e);
enum hosts_verdict hosts_check(const struct hosts *h, const struct reg_entry *e,
			       char ret_text[static HOSTS_TEXT_MAX]);
void hosts_free(struct hosts *h);

#endif
