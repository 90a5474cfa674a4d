/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The other host's record of a migration, as GET /v1/migrations/ID tells it. */
#ifndef IBVMIG_DAEMON_MIGRATE_SILENCE_H
#define IBVMIG_DAEMON_MIGRATE_SILENCE_H

#include "common/http/client.h"
#include "daemon/migrate/record.h"

struct remote_record {
	bool known; /* the host has a record of this role; else all below is false or "" */
	bool committed, attached, ended, back;
	enum migrate_state state; /* M_PARKED for a name that is none of ours */
	char reason[HTTP_ERROR_MAX];
	char to_url[256];
};

/* In a worker: asks the host at url for its record of id in this role, within ms. 0; -EREMOTEIO:
 * the host answers, and has none; or another -errno: the host is silent. Both with a line in error.
 */
int remote_ask(const char *url, const char *id, enum migrate_role role, unsigned ms,
	       struct remote_record *ret_r, char error[static HTTP_ERROR_MAX]);

/* The host's journal says so. */
static inline bool remote_is(const struct remote_record *r, enum migrate_state state)
{
	return r->known && r->state == state;
}

#endif
