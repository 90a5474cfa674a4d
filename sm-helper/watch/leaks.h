/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Leaks: vGUIDs that the registry has on a host, and that no host's daemon uses (GET /v1/status). A
 * host that was lost with its state never unbinds. */
#ifndef IBVMIG_SM_HELPER_WATCH_LEAKS_H
#define IBVMIG_SM_HELPER_WATCH_LEAKS_H

#include "common/http/client.h"
#include "sm-helper/registry/registry.h"

#include <stdbool.h>
#include <stddef.h>

#define LEAK_YOUNG_MS  60000 /* vGUIDs bound later are not judged: hosts may be in the middle */
#define LEAK_GUIDS_MAX 4096  /* GUIDs of one host */

/* Report of a host. */
struct leak_report {
	char host[REG_TEXT_MAX], url[REG_TEXT_MAX];
	bool answered;
	char error[HTTP_ERROR_MAX]; /* the reason where it has not answered */
	uint64_t *guid;             /* owned: vGUIDs of its VFs and VMs */
	size_t guids;
};

enum leak_verdict {
	LEAK_NO,        /* in use: its host has it */
	LEAK_BUSY,      /* being bound, moved or unbound, or not held for long enough */
	LEAK_ELSEWHERE, /* another host has it: the registry is wrong about the place */
	LEAK_UNKNOWN,   /* undecided: its host, or another that might have it, has not answered */
	LEAK_YES,       /* leaked: all have answered, and none has it */
};

/* Blocks, at most 3 s. Fills answered, error, guid, guids anew; others as before. */
void leaks_ask(struct leak_report *r);
/* Reads the answer to GET /v1/status. 0, -EBADMSG, -ENOMEM. */
int leaks_read(struct leak_report *r, struct json_object *status);
bool leaks_has(const struct leak_report *r, uint64_t guid);
enum leak_verdict leaks_judge(const struct reg_entry *e, const struct leak_report *report, size_t n,
			      uint64_t wall_now_ms);
const char *leaks_text(enum leak_verdict v);

#endif
