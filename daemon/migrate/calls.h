/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The API's calls about the migrations in this host's journal. */
#ifndef IBVMIG_DAEMON_MIGRATE_CALLS_H
#define IBVMIG_DAEMON_MIGRATE_CALLS_H

struct http_request;

/* 404: the journal does not have this migration, or not any more. */
void rest_no_migration(struct http_request *req, const char *id);

/* GET /v1/migrations, GET /v1/migrations/ID */
void migrate_get_all(struct http_request *req);
void migrate_get(struct http_request *req);

#endif
