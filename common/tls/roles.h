/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Roles say what a client may do over REST: a route names one of them, a client has some. */
#ifndef IBVMIG_COMMON_TLS_ROLES_H
#define IBVMIG_COMMON_TLS_ROLES_H

#include <stddef.h>

enum rest_role {
	REST_READ_ONLY = 1 << 0, /* looks */
	REST_NOVA = 1 << 1,      /* operates on VMs and migrations: OpenStack, people */
	REST_PEER = 1 << 2,      /* serves the other daemons */
	REST_REPLICA = 1 << 3,   /* serves the other ibvmig-sm */
	REST_ROOT = 1 << 4,      /* this host alone: no certificate gives it */
};
#define REST_ALL (~0u)

/* Names of certificates and their roles. The names' memory is the configuration's. */
struct role_row {
	unsigned roles;
	const char *name; /* "*.DOMAIN" stands for all names that end in .DOMAIN */
};

#define ROLE_ROWS_MAX 512

struct role_table {
	struct role_row *row; /* owned */
	size_t count;
};

/* The name of one role. */
const char *rest_role_name(enum rest_role r);
/* Adds "ROLE NAME"; every role may look as well, and root is none of them. line is borrowed for the
 * life of the table. 0, -EINVAL, -E2BIG, -ENOMEM. */
int role_table_add(struct role_table *t, const char *line);
void role_table_clear(struct role_table *t);
/* The roles of a certificate with these names. names: one a line, compared without case. */
unsigned role_table_find(const struct role_table *t, const char *names);

#endif
