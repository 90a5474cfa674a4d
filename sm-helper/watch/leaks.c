/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/watch/leaks.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

#define ASK_MS 3000

static int add_guids(struct leak_report *r, struct json_object *list)
{
	size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);
		uint64_t guid, *grown;

		if (ib_guid_parse(json_opt_str(o, "vguid", ""), &guid))
			continue;
		if (r->guids >= LEAK_GUIDS_MAX)
			return -EBADMSG;
		if (!(grown = realloc(r->guid, (r->guids + 1) * sizeof *grown)))
			return -ENOMEM;
		r->guid = grown;
		grown[r->guids++] = guid;
	}
	return 0;
}

int leaks_read(struct leak_report *r, struct json_object *status)
{
	struct json_object *vfs = json_opt(status, "vfs"), *vms = json_opt(status, "vms");
	int rc;

	free(TAKE(r->guid));
	r->guids = 0;
	r->answered = false;
	/* an answer that is not a daemon's must not pass for one of a host without VMs */
	if (!json_object_is_type(vfs, json_type_array) ||
	    !json_object_is_type(vms, json_type_array) ||
	    strcmp(json_opt_str(status, "host", ""), r->host) != 0)
		return -EBADMSG;
	if ((rc = add_guids(r, vfs)) || (rc = add_guids(r, vms)))
		return rc;
	r->answered = true;
	return 0;
}

void leaks_ask(struct leak_report *r)
{
	struct json_object *status AUTO_JSON = NULL;

	r->answered = false;
	if (http_call(r->url, "GET", "/v1/status", NULL, ASK_MS, &status, r->error))
		return;
	if (leaks_read(r, status))
		snprintf(r->error, sizeof r->error,
			 "%.300s answers, but not as the daemon of %.200s", r->url, r->host);
}

bool leaks_has(const struct leak_report *r, uint64_t guid)
{
	for (size_t i = 0; i < r->guids; i++)
		if (r->guid[i] == guid)
			return true;
	return false;
}

enum leak_verdict leaks_judge(const struct reg_entry *e, const struct leak_report *report, size_t n,
			      uint64_t wall_now_ms)
{
	enum leak_verdict v = LEAK_UNKNOWN; /* as long as its own host has not answered */
	bool silent = false;

	if (e->intent != REG_NONE || wall_now_ms < e->since_ms + LEAK_YOUNG_MS)
		return LEAK_BUSY;
	for (size_t i = 0; i < n; i++) {
		const struct leak_report *r = &report[i];
		bool own = !strcmp(r->host, e->at.host);

		silent |= !r->answered;
		if (r->answered && own && leaks_has(r, e->vguid))
			return LEAK_NO;
		if (r->answered && leaks_has(r, e->vguid))
			v = LEAK_ELSEWHERE;
		else if (r->answered && own && v == LEAK_UNKNOWN)
			v = LEAK_YES;
	}
	return v == LEAK_YES && silent ? LEAK_UNKNOWN : v;
}

const char *leaks_text(enum leak_verdict v)
{
	static const char *const text[] = {
		[LEAK_NO] = "runs",         [LEAK_BUSY] = "busy",  [LEAK_ELSEWHERE] = "elsewhere",
		[LEAK_UNKNOWN] = "unknown", [LEAK_YES] = "leaked",
	};

	return text[v];
}
