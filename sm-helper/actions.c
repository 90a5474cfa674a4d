/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/actions.h"
#include "sm-helper/backend.h"

#include <errno.h>
#include <stdio.h>

int action_bind(struct ops *o, const struct reg_entry *want, uint16_t *ret_lid, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	return b->bind ? b->bind(client_self(o->client), o, want, ret_lid, e)
		       : ops_bind(o, want, ret_lid, e);
}

int action_unbind(struct ops *o, uint64_t vguid, const char *vm, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	return b->unbind ? b->unbind(client_self(o->client), o, vguid, vm, e)
			 : ops_unbind(o, vguid, vm, e);
}

int action_move(struct ops *o, const struct move_request *m, unsigned count,
		struct move_result *ret_result, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	if (!b->move)
		return ops_move(o, m, count, ret_result, e);
	if (count == 1)
		return b->move(client_self(o->client), o, m, ret_result, e);
	*e = (struct op_error){.status = 409, .code = "one-move"};
	snprintf(e->detail, sizeof e->detail, "backend %s moves one VM a call, not %u", b->name,
		 count);
	return -EOPNOTSUPP;
}
