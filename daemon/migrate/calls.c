/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/migrate/step.h"
#include "common/http/server.h"
#include "common/json.h"
#include "daemon/base/daemon.h"
#include "daemon/base/settings.h"
#include "daemon/store/journal.h"

#define LIST_MAX 200

void rest_no_migration(struct http_request *req, const char *id)
{
	const struct daemon *d = req->user;

	http_fail(
		req->exchange, 404, "not-found",
		"the journal of host %s has no migration %s, or no longer: it keeps the newest %u "
		"that have ended (keep-migrations in ibvmigd.conf)",
		d->settings->host_name, id, d->settings->keep_migrations);
}

void migrate_get_all(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o = json_object_new_object();

	json_set(o, "migrations", journal_latest_migrations(d->journal, LIST_MAX));
	json_set_u64(o, "keeps", d->settings->keep_migrations);
	http_reply(req->exchange, 200, o);
}

/* A step's phase is in memory only. */
static void add_phase(struct json_object *records, struct daemon *d, const char *id,
		      enum migrate_role role)
{
	struct json_object *record = json_opt(records, migrate_role_name(role));
	const struct migration *m = migrate_find(d, id, role);
	char phase[MIGRATE_PHASE_TEXT];

	if (record && m)
		json_set_str(record, "phase", migrate_phase(m, phase));
}

void migrate_get(struct http_request *req)
{
	struct daemon *d = req->user;
	struct json_object *o = journal_migration(d->journal, req->param);

	if (!o) {
		rest_no_migration(req, req->param);
		return;
	}
	add_phase(o, d, req->param, ROLE_SOURCE);
	add_phase(o, d, req->param, ROLE_DESTINATION);
	http_reply(req->exchange, 200, o);
}
