/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/actions.h"
#include "sm-helper/backend.h"

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

int action_move(struct ops *o, const struct move_request *m, struct move_result *ret_result,
		struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	return b->move ? b->move(client_self(o->client), o, m, ret_result, e)
		       : ops_move(o, m, ret_result, e);
}
