/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/actions.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/moves/shared.h"

#include <errno.h>
#include <stdio.h>

/* What is bound keeps its kind of address; what is not gets the configured one. */
static bool is_shared(struct ops *o, uint64_t vguid)
{
	enum address_mode mode = o->addresses;
	struct reg_entry x;

	if (!registry_find(o->registry, vguid, &x))
		mode = x.mode;
	return mode == ADDRESS_SHARED_PORT;
}

int action_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		uint16_t *ret_lid, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	if (is_shared(o, want->vguid))
		return shared_bind(o, want, deadline_us, ret_lid, e);
	return b->bind ? b->bind(client_self(o->client), o, want, deadline_us, ret_lid, e)
		       : ops_bind(o, want, deadline_us, ret_lid, e);
}

int action_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		  uint64_t deadline_us, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);

	if (is_shared(o, vguid))
		return shared_unbind(o, vguid, vm, from, deadline_us, e);
	return b->unbind ? b->unbind(client_self(o->client), o, vguid, vm, from, deadline_us, e)
			 : ops_unbind(o, vguid, vm, from, deadline_us, e);
}

int action_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
		struct move_result *ret_result, struct op_error *e)
{
	const struct backend *b = client_backend(o->client);
	unsigned shared = 0;

	for (unsigned i = 0; i < count; i++)
		shared += is_shared(o, m[i].vguid);
	if (shared == count)
		return shared_move(o, m, count, deadline_us, ret_result, e);
	if (shared) {
		*e = (struct op_error){409, "mixed-addresses",
				       "some of the vGUIDs share their host's LID and some do "
				       "not: move them in two calls"};
		return -EINVAL;
	}
	return b->move ? b->move(client_self(o->client), o, m, count, deadline_us, ret_result, e)
		       : ops_move(o, m, count, deadline_us, ret_result, e);
}
