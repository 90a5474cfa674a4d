/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/shared.h"
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/slots.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int need_place(const struct ops *o, const struct reg_vf *vf, struct op_error *e)
{
	if (!vf->switch_guid || !vf->switch_port)
		return ops_fail(e, -EINVAL, 400, "bad-request",
				"VF %s of %s: addresses = shared-port needs its \"port_guid\" and "
				"\"guid_index\"",
				vf->vf, vf->host);
	if (!slot_lid(o, vf->switch_guid))
		return ops_fail(e, -ENOENT, 409, "unknown-vf",
				"OpenSM sees no port with GUID 0x%016" PRIx64
				" and a LID (port of VF %s of %s): is its link up, and is "
				"port_guid right?",
				vf->switch_guid, vf->vf, vf->host);
	return 0;
}

static int verify(struct ops *o, const struct sm_slot *slots, unsigned count, struct op_error *e)
{
	uint64_t shown;
	int rc = ops_begin(o, e);

	for (unsigned i = 0; !rc && i < count; i++) {
		rc = slot_look(o, &slots[i], &shown, e);
		if (!rc && shown != slots[i].guid)
			rc = ops_fail(e, -EHOSTUNREACH, 500, "not-verified",
				      "entry %u of port 0x%016" PRIx64 " shows 0x%016" PRIx64
				      ", not 0x%016" PRIx64,
				      slots[i].index, slots[i].port_guid, shown, slots[i].guid);
	}
	return rc;
}

/* Back to what the slots showed before; how that went goes into the error. */
static int put_back(struct ops *o, const struct sm_slot *slots, const uint64_t *before,
		    unsigned count, struct sm_guids_reply *r, struct op_error *e)
{
	struct sm_slot back[SM_ASSIGN_MAX];
	struct op_error second = {0};
	size_t at = strlen(e->detail);
	bool unknown;
	int rc;

	for (unsigned i = 0; i < count; i++) {
		back[i] = slots[i];
		back[i].guid = before[i];
		back[i].was_guid = slots[i].guid;
	}
	rc = slot_assign(o, back, count, r, &unknown, &second);
	snprintf(e->detail + at, sizeof e->detail - at,
		 rc ? "; taking it back failed: %s" : "; taken back%s", second.detail);
	return rc;
}

/* ---- bind and unbind ---- */

/* State of a try to bind: if the vGUID has been written, and what its entry showed before that. */
struct bind_try {
	bool placed;
	uint64_t before;
};

static int try_bind(struct ops *o, struct reg_entry *x, struct bind_try *t, bool *ret_unknown,
		    struct op_error *e)
{
	struct sm_slot slot = slot_show(&x->at, x);
	struct sm_guids_reply r;
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(o, e)) || (rc = need_place(o, &x->at, e)) ||
	    (rc = slot_assign(o, &slot, 1, &r, ret_unknown, e)))
		return rc;
	if (!t->placed)
		*t = (struct bind_try){true, r.before[0]};
	x->lid = r.lid[0];
	return verify(o, &slot, 1, e);
}

static int bind_entry(struct ops *o, struct reg_entry *x, struct bind_try *t, bool *ret_unknown,
		      struct op_error *e)
{
	int rc;

	do {
		rc = try_bind(o, x, t, ret_unknown, e);
	} while (ops_again(o, rc, e));
	return rc;
}

static int bind_again(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	struct bind_try ignored = {false, 0};

	return bind_entry(o, x, &ignored, ret_unknown, e);
}

/* Binds anew. A write that cannot be taken back is settled later, like all unfinished work. */
static int bind_new(struct ops *o, struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	struct bind_try t = {false, 0};
	struct sm_guids_reply r;
	struct sm_slot slot;
	int rc = need_place(o, &x->at, e);

	x->mode = ADDRESS_SHARED_PORT;
	x->lid = slot_lid(o, x->at.switch_guid);
	if (rc || (rc = ops_record_bind(o, x, e)))
		return rc;
	slot = slot_show(&x->at, x);
	rc = bind_entry(o, x, &t, ret_unknown, e);
	if (!rc || !t.placed || *ret_unknown)
		return rc;
	if (put_back(o, &slot, &t.before, 1, &r, e)) {
		*ret_unknown = true;
		o->reconciled = false;
	}
	log_error("bind: %s", e->detail);
	return rc;
}

static int unbind(struct ops *o, const struct reg_entry *x, bool *ret_unknown, struct op_error *e)
{
	struct sm_slot slot = slot_park(&x->at, x->vguid);
	struct sm_guids_reply r;

	return slot_assign(o, &slot, 1, &r, ret_unknown, e);
}

static const struct bind_kind binds = {
	.bind = bind_new,
	.again = bind_again,
	.unbind = unbind,
};

int shared_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		uint16_t *ret_lid, struct op_error *e)
{
	return ops_bind_as(o, &binds, want, deadline_us, ret_lid, e);
}

int shared_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		  uint64_t deadline_us, struct op_error *e)
{
	return ops_unbind_as(o, &binds, vguid, vm, from, deadline_us, e);
}

/* ---- moves ---- */

/* A repetition, or the undo of a move that failed: the vGUID belongs where it is in the registry,
 * and not where the caller says that it comes from. That VF is parked, unless it has another VM by
 * now. */
static void stay(struct batch *b, unsigned i)
{
	const struct reg_vf *from = &b->m[i].from;
	struct reg_entry other;

	b->slot[b->slots++] = slot_show(&b->x[i].at, &b->x[i]);
	if (from->parked_guid == b->x[i].at.parked_guid || !slot_lid(b->o, from->switch_guid) ||
	    !from->switch_port ||
	    registry_find_vf(b->o->registry, from->parked_guid, &other) != -ENOENT)
		return;
	b->slot[b->slots++] = slot_park(from, b->x[i].vguid);
}

static void make_slots(struct batch *b)
{
	b->slots = 0;
	for (unsigned i = 0; i < b->count; i++) {
		b->first[i] = b->slots;
		if (b->there[i]) {
			stay(b, i);
			continue;
		}
		b->slot[b->slots++] = slot_show(&b->x[i].to, &b->x[i]);
		b->slot[b->slots++] = slot_park(&b->x[i].at, b->x[i].vguid);
	}
}

static void fill_result(struct batch *b)
{
	const struct sm_guids_reply *r = &b->guids;
	struct move_result *res = &b->res;

	for (unsigned i = 0; i < b->count; i++) {
		res->move[i].lid_after = r->lid[b->first[i]];
		res->move[i].paths_changed = r->changed[b->first[i]];
	}
	res->guid_smps = r->guid_smps;
	res->pkey_smps = r->pkey_smps;
	res->switches_total = b->o->fabric.switches;
	res->sm_us = r->elapsed_us;
	res->pkey_us = r->pkey_us;
	res->lock_us = r->lock_us;
	res->repath_notices = r->repath_notices;
	res->path_count = r->path_count < SM_PATHS_MAX ? r->path_count : SM_PATHS_MAX;
	memcpy(res->path, r->path, res->path_count * sizeof r->path[0]);
}

static void take_back(struct batch *b, struct op_error *e)
{
	uint64_t before[SM_ASSIGN_MAX];
	int rc;

	memcpy(before, b->guids.before, sizeof before);
	rc = put_back(b->o, b->slot, before, b->slots, &b->guids, e);
	b->parked = b->parked || rc == -EIO;
	log_error("move: %s", e->detail);
}

static int carry_out(struct batch *b, bool *ret_unknown, struct op_error *e)
{
	int rc = ops_begin(b->o, e);

	*ret_unknown = false;
	if (rc)
		return rc;
	make_slots(b);
	if ((rc = slot_assign(b->o, b->slot, b->slots, &b->guids, ret_unknown, e))) {
		b->parked = b->parked || rc == -EIO;
		return rc;
	}
	fill_result(b);
	rc = verify(b->o, b->slot, b->slots, e);
	b->res.verified = !rc;
	if (rc && b->going)
		take_back(b, e);
	return rc;
}

static int find_destinations(struct batch *b, struct op_error *e)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!b->there[i])
			rc = need_place(b->o, &b->x[i].to, e);
	return rc;
}

static void log_moves(const struct batch *b)
{
	for (unsigned i = 0; i < b->count; i++)
		log_info("move: vGUID 0x%016" PRIx64 " of %s to VF %s of %s, LID %u is now %u",
			 b->x[i].vguid, b->x[i].name, b->x[i].at.vf, b->x[i].at.host,
			 b->res.move[i].lid_before, b->res.move[i].lid_after);
}

int shared_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
		struct move_result *ret_result, struct op_error *e)
{
	static const struct batch_kind kind = {
		.find = find_destinations,
		.carry_out = carry_out,
		.log = log_moves,
	};

	return batch_move(o, &kind, m, count, deadline_us, ret_result, e);
}
