/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/remote.h"
#include "common/json.h"
#include "common/util.h"

static void read_record(struct remote_record *r, struct json_object *o)
{
	r->known = true;
	r->committed = json_opt_bool(o, "committed", false);
	r->attached = json_opt_bool(o, "attached", false);
	r->ended = json_opt_bool(o, "ended", false);
	r->back = json_opt_bool(o, "back", false);
	if (migrate_state_parse(json_opt_str(o, "state", ""), &r->state))
		r->state = M_PARKED;
	snprintf(r->reason, sizeof r->reason, "%s", json_opt_str(o, "reason", ""));
	snprintf(r->to_url, sizeof r->to_url, "%s", json_opt_str(json_opt(o, "to"), "url", ""));
}

int remote_ask(const char *url, const char *id, enum migrate_role role, unsigned ms,
	       struct remote_record *ret_r, char error[static HTTP_ERROR_MAX])
{
	struct json_object *answer AUTO_JSON = NULL, *o;
	char *path AUTO_FREE = strf("/v1/migrations/%s", id);
	int rc = http_call(url, "GET", path, NULL, ms, &answer, error);

	*ret_r = (struct remote_record){0};
	o = json_opt(answer, migrate_role_name(role));
	if (!rc && o)
		read_record(ret_r, o);
	return rc;
}
