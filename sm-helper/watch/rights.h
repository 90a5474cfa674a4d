/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Keys that GUIDs have a right to, and those that the ports have which show them. Blocking, from
 * worker threads. */
#ifndef IBVMIG_SM_HELPER_WATCH_RIGHTS_H
#define IBVMIG_SM_HELPER_WATCH_RIGHTS_H

#include "sm-helper/moves/ops.h"

#define RIGHTS_MAX SM_RECORDS_MAX /* GUIDs in a question */

/* Large: on the heap. */
struct rights {
	struct sm_memberships_reply told; /* of each GUID in the question's order */
	bool known[RIGHTS_MAX];           /* false: it cannot be told of this one */
	bool seen; /* not the policy: the tables of the ports that show them, as some sweep has
		    * written them */
	char why[BACKEND_ERROR_MAX]; /* the first that cannot be told; "" if all can */
};

/* By the subnet manager's policy, whether or not a port shows the GUID. A backend that has no
 * policy to ask is served by our own eyes; that takes o->lock. count: 1 to RIGHTS_MAX. */
void rights_of(struct ops *o, const uint64_t *guids, unsigned count, struct rights *ret_rights);

/* The table of the port that shows the GUID in o->fabric; takes o->lock while it looks there. 0;
 * -ENOENT: none does; or as the probe's, with one line in error. */
int rights_shown(struct ops *o, uint64_t guid, struct pkeys *ret_keys,
		 char error[static BACKEND_ERROR_MAX]);

/* The first P_Key of a table that its port has no right to: of a partition that is not told, or a
 * full member's where a limited one is told. 0: there is none. */
uint16_t rights_beyond(const struct pkeys *has, const struct sm_memberships *told);
/* Calls found() for each port behind a vSwitch of f that has a P_Key without a right to it: what
 * its last user has left. Of a port that does not tell its table nothing is known: silent says why,
 * and pkey is 0; else it is NULL. f must be the caller's alone. 0; -EOPNOTSUPP: the backend knows
 * no policy; or an error with a line. */
typedef void rights_found(void *arg, const struct fabric_end *end, uint16_t pkey,
			  const char *silent);
int rights_leftovers(struct ops *o, struct fabric *f, rights_found *found, void *arg,
		     char error[static BACKEND_ERROR_MAX]);

#endif
