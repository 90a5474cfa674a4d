/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/actions.h"
#include "common/util.h"
#include "sm-helper/backend/ufm.h"
#include "sm-helper/moves/mover.h"
#include "sm-helper/moves/shared.h"

#include <errno.h>
#include <stdio.h>

/* A vGUID that is bound keeps its kind of address; others get the configured one. */
static bool is_shared(struct ops *o, uint64_t vguid)
{
	enum address_mode mode = o->addresses;
	struct reg_entry x;

	if (!registry_find(o->registry, vguid, &x))
		mode = x.mode;
	return mode == ADDRESS_SHARED_PORT;
}

static const struct mover mover_shared = {shared_bind, shared_unbind, shared_move, NULL};
static const struct mover mover_ops = {ops_bind, ops_unbind, ops_move, NULL};

/* Backends whose subnet manager moves by itself. */
static const struct {
	const struct backend_kind *kind;
	const struct mover *mover;
} sm_movers[] = {
	{&backend_ufm, &mover_ufm},
};

static const struct mover *sm_mover(const struct ops *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(sm_movers); i++)
		if (sm_movers[i].kind == backend_kind(o->backend))
			return sm_movers[i].mover;
	return NULL;
}

bool action_sm_moves(const struct ops *o)
{
	return sm_mover(o);
}

int action_places(struct ops *o, struct sm_place **ret_list, size_t *ret_n, struct op_error *e)
{
	return sm_mover(o)->places(o, ret_list, ret_n, e);
}

bool action_joins(const struct ops *o)
{
	return backend_kind(o->backend) == &backend_ufm && ufm_joins(backend_self(o->backend));
}

static const struct mover *find_mover(const struct ops *o, bool shared)
{
	const struct mover *by_sm = sm_mover(o);

	return shared ? &mover_shared : by_sm ? by_sm : &mover_ops;
}

int action_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		uint16_t *ret_lid, struct op_error *e)
{
	const struct mover *by = find_mover(o, is_shared(o, want->vguid));

	return by->bind(o, want, deadline_us, ret_lid, e);
}

int action_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		  uint64_t deadline_us, struct op_error *e)
{
	const struct mover *by = find_mover(o, is_shared(o, vguid));

	return by->unbind(o, vguid, vm, from, deadline_us, e);
}

int action_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
		struct move_result *ret_result, struct op_error *e)
{
	unsigned shared = 0;

	for (unsigned i = 0; i < count; i++)
		shared += is_shared(o, m[i].vguid);
	if (shared && shared < count) {
		*e = (struct op_error){409, "mixed-addresses",
				       "some of the vGUIDs share their host's LID and some do "
				       "not: move them in two calls"};
		return -EINVAL;
	}
	return find_mover(o, shared == count)->move(o, m, count, deadline_us, ret_result, e);
}
