/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves of VMs with LIDs of their own, one or many in a batch: made into places for the plugin,
 * carried out and verified together, or not at all. */
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VERIFY_US       2000000
#define VERIFY_SWEEP_US 500000
#define VERIFY_POLL_US  100000

/* The VF that another one of the batch leaves for this one. */
static const struct reg_vf *left_vf(const struct batch *b, const struct reg_vf *to)
{
	for (unsigned i = 0; i < b->count; i++)
		if (!b->there[i] && batch_same_vf(&b->x[i].at, to))
			return &b->x[i].at;
	return NULL;
}

/* Finds where the destination VF hangs. Normally OpenSM knows it by its parked GUID; after a sweep
 * between the setting of the GUIDs and this call, it knows it by the vGUID. */
static int find_destination(struct batch *b, unsigned i, struct op_error *e)
{
	const struct reg_entry *x = &b->x[i];
	struct reg_vf *to = &b->x[i].to;
	const struct ops *o = b->o;
	uint32_t end = fabric_find_end(&o->fabric, to->parked_guid);
	const struct reg_vf *left = left_vf(b, to);
	struct reg_vf seen = {0};

	if (left) {
		to->switch_guid = left->switch_guid;
		to->switch_port = left->switch_port;
		to->parked_node = left->parked_node;
		return 0;
	}
	if (end != FABRIC_NONE && ops_locate(o, to->parked_guid, to)) {
		to->parked_node = o->fabric.end[end].node_guid;
		return 0;
	}
	if (ops_locate(o, x->vguid, &seen) && !ops_same_place(&seen, &x->at)) {
		to->switch_guid = seen.switch_guid;
		to->switch_port = seen.switch_port;
		return 0;
	}
	return ops_fail(e, -ENOENT, 409, "unknown-vf",
			"OpenSM sees no port with GUID 0x%016" PRIx64
			" (VF %s of %s) in the fabric: "
			"is its link up, and is parked_guid right?",
			to->parked_guid, to->vf, to->host);
}

/* The place at which a vGUID of the batch shall be afterwards. */
static struct reg_vf *final_place(struct batch *b, unsigned i)
{
	return b->there[i] ? &b->x[i].at : &b->x[i].to;
}

/* The LID for the place that VM i has left: that of the VF where it goes. If another VM of the
 * batch leaves that one as well, it is that of the VF where that VM goes, and so on. 0: the plugin
 * knows (a sweep has given the place one; or it waits where a dynamic LID leaves, *ret_waits as far
 * as is known). */
static uint16_t lid_left(struct batch *b, unsigned i, uint16_t *ret_waits)
{
	uint16_t first = b->x[i].lid, lid = 0;

	*ret_waits = 0;
	for (unsigned hops = 0, next = i; hops < b->count && next < b->count; hops++) {
		if (b->x[next].mode == ADDRESS_DYNAMIC) {
			*ret_waits = b->x[next].at.lid;
			return 0;
		}
		lid = ops_lid_at(b->o, final_place(b, next));
		for (next = 0; next < b->count && b->x[next].lid != lid;)
			next++;
	}
	return lid == first ? 0 : lid;
}

/* The LID that waits where VM i goes with its dynamic one; 0: not known. */
static uint16_t lid_waiting(struct batch *b, unsigned i)
{
	const struct reg_vf *to = final_place(b, i);
	uint16_t lid = ops_lid_at(b->o, to), waits;

	for (unsigned k = 0; k < b->count; k++)
		if (!b->there[k] && batch_same_vf(&b->x[k].at, to)) {
			lid = lid_left(b, k, &waits);
			return lid ? lid : waits;
		}
	return lid == b->x[i].lid ? to->lid : lid;
}

/* The LID that is the own one of a place before the batch; 0: not known. */
static uint16_t own_before(const struct batch *b, const struct reg_vf *at, uint64_t vguid)
{
	uint32_t end = fabric_end_at(&b->o->fabric, at->switch_guid, at->switch_port);

	for (unsigned k = 0; k < b->count; k++)
		if (batch_same_vf(&b->x[k].at, at))
			return reg_own_lid(&b->x[k]);
	/* unless a sweep has seen the VM here */
	return end == FABRIC_NONE || b->o->fabric.end[end].port_guid == vguid
		       ? 0
		       : b->o->fabric.end[end].lid;
}

static int find_destinations(struct batch *b, struct op_error *e)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!b->there[i])
			rc = find_destination(b, i, e);
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (b->x[i].mode == ADDRESS_DYNAMIC)
			final_place(b, i)->lid = lid_waiting(b, i);
	return rc;
}

/* Adds the place of a vGUID, which must show it already. */
static int add_vguid(struct batch *b, unsigned i, struct op_error *e)
{
	struct reg_entry *x = &b->x[i];
	struct reg_vf *at = final_place(b, i);
	struct sm_target *t = &b->target[b->targets++];
	int rc;

	*t = (struct sm_target){
		.switch_guid = at->switch_guid,
		.switch_port = at->switch_port,
		.port_guid = x->vguid,
		.parked_guid = at->parked_guid,
		.like_guid = x->mode == ADDRESS_DYNAMIC ? dynamic_like(b->o, at) : 0,
		.lid = x->lid,
		.own_lid = at->lid,
		.was_own_lid = own_before(b, at, x->vguid),
	};
	rc = ops_check_shows(b->o, at, x->vguid, &t->node_guid, e);
	if (!rc && !at->parked_node)
		at->parked_node = at->parked_guid - (x->vguid - t->node_guid);
	return rc;
}

/* The place that VM i has left; if nobody of the batch comes there, it must show its own GUID. */
static int add_left(struct batch *b, unsigned i, const struct reg_vf *at, uint64_t parked,
		    struct op_error *e)
{
	struct sm_target *t = &b->target[b->targets];
	uint16_t waits, lid = lid_left(b, i, &waits);

	for (unsigned k = 0; k < b->count; k++)
		if (ops_same_place(at, final_place(b, k)))
			return 0;
	if (!ops_same_place(at, &b->x[i].at)) /* it strayed here: what waits for it waits there */
		waits = 0;
	*t = (struct sm_target){
		.switch_guid = at->switch_guid,
		.switch_port = at->switch_port,
		.port_guid = parked,
		.parked_guid = parked,
		.lid = lid,
		.own_lid = waits,
		.was_own_lid = own_before(b, at, b->x[i].vguid),
	};
	b->targets++;
	return ops_check_shows(b->o, at, parked, &t->node_guid, e);
}

/* A vGUID may belong where the move would take it, at a repetition or the undo of a move that
 * failed. A sweep may have found it at the other VF while it was there. */
static int add_strayed(struct batch *b, unsigned i, struct op_error *e)
{
	const struct reg_entry *x = &b->x[i];
	struct reg_vf other = b->m[i].from;

	if (!ops_locate(b->o, x->vguid, &other) || ops_same_place(&other, &x->at))
		return 0;
	return add_left(b, i, &other, other.parked_guid, e);
}

/* Makes the list of all places of the batch. */
static int find_targets(struct batch *b, struct op_error *e)
{
	int rc;

	b->targets = 0;
	rc = find_destinations(b, e);
	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = add_vguid(b, i, e);
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!b->there[i])
			rc = add_left(b, i, &b->x[i].at, b->x[i].at.parked_guid, e);
	b->checked = b->targets;
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (b->there[i])
			rc = add_strayed(b, i, e);
	return rc;
}

/* Verifies all LIDs of the places, from everywhere; where nothing moves, that of the vGUID. */
static int verify_once(struct batch *b, struct move_result *res, struct op_error *e)
{
	int rc = ops_begin(b->o, e);

	res->walks = 0;
	res->answers_by = REACH_SMP;
	if (!rc)
		ops_forget(b->o);
	for (unsigned i = 0; !rc && i < b->checked; i++) {
		enum reach_by by = REACH_SMP;
		unsigned walks = 0;

		rc = ops_verify(b->o, &b->target[i], b->reply.lid[i], &walks, &by, e);
		res->walks += walks;
		res->answers_by = by > res->answers_by ? by : res->answers_by;
	}
	res->verified = !rc;
	return rc;
}

/* A link that goes down or comes up just now is no reason to take a move back. An error must last
 * for a while, and after a sweep. One look alone may have taken that while, as where answers were
 * lost: it is no reason for a sweep. */
static int verify(struct batch *b, struct move_result *res, struct op_error *e)
{
	uint64_t start = now_us(), give_up = start + VERIFY_US;
	struct op_error ignored;
	unsigned looks = 0;
	bool swept = false;
	int rc;

	do {
		*e = (struct op_error){0};
		rc = verify_once(b, res, e);
		if (rc && ++looks > 1 && !swept && now_us() > start + VERIFY_SWEEP_US) {
			log_notice("move: not verified (%s): a heavy sweep is asked for",
				   e->detail);
			ops_sweep(b->o, &ignored);
			give_up = now_us() + VERIFY_US;
			swept = true;
		}
	} while (rc && (looks < 2 || now_us() < give_up) && now_us() < b->o->give_up_us &&
		 !usleep(VERIFY_POLL_US));
	return rc;
}

/* Moves all LIDs of the batch in order where one VM has senders that are alive. */
static uint32_t order(const struct batch *b)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->m[i].senders_alive)
			return SM_ASSIGN_ORDERED;
	return 0;
}

/* A sweep may have given a VM's LID to the VF that shows its vGUID. The way back does not make it
 * the VF's own: that one waits, as it did in between. */
static void keep_own(const struct batch *b, struct sm_target *t, uint16_t own_lid)
{
	struct reg_vf at = {.switch_guid = t->switch_guid,
			    .switch_port = t->switch_port,
			    .parked_guid = t->parked_guid};

	for (unsigned i = 0; !t->like_guid && i < b->count; i++)
		if (b->x[i].mode == ADDRESS_DYNAMIC && b->x[i].vguid == t->port_guid &&
		    b->x[i].lid == t->lid && own_lid != t->lid) {
			t->like_guid = dynamic_like(b->o, &at);
			t->own_lid = t->was_own_lid = own_lid;
		}
}

/* The batch back; its outcome goes into the error that is reported. */
static void take_back(struct batch *b, struct op_error *e)
{
	struct sm_target before[SM_ASSIGN_MAX];
	struct op_error second = {0};
	size_t at = strlen(e->detail);
	bool unknown;
	int rc;

	memcpy(before, b->reply.before, sizeof before);
	for (unsigned i = 0; i < b->targets; i++)
		keep_own(b, &before[i], b->reply.own_lid[i]);
	b->o->epoch = (struct backend_epoch){0};
	rc = ops_assign(b->o, before, b->targets, SM_ASSIGN_BACK | order(b), &b->reply, &unknown,
			&second);
	b->parked = b->parked || rc == -EIO;
	snprintf(e->detail + at, sizeof e->detail - at,
		 rc ? "; taking it back failed: %s" : "; taken back%s", second.detail);
	log_error("move: %s", e->detail);
}

static void fill_result(struct batch *b, struct move_result *res)
{
	const struct sm_assign_reply *r = &b->reply;

	for (unsigned i = 0; i < b->count; i++) {
		res->move[i].lid_after = r->lid[i];
		res->move[i].paths_changed = b->there[i] ? 0 : r->changed[i];
		if (b->x[i].mode == ADDRESS_DYNAMIC)
			final_place(b, i)->lid = r->own_lid[i];
	}
	res->lft_smps = r->lft_smps;
	res->port_info_smps = r->port_info_smps;
	res->pkey_smps = r->pkey_smps;
	res->waves = r->waves;
	res->switches_updated = r->switches_updated;
	res->switches_total = r->switches_total;
	res->sm_us = r->elapsed_us;
	res->pkey_us = r->pkey_us;
	res->lock_us = r->lock_us;
	if (!b->going)
		return;
	res->repath_notices = r->repath_notices;
	res->path_count = r->path_count < SM_PATHS_MAX ? r->path_count : SM_PATHS_MAX;
	memcpy(res->path, r->path, res->path_count * sizeof r->path[0]);
}

/* A sweep that has met a GUID where it was and then where it went takes both for one port. It sees
 * nothing at one of the places until the next sweep: that is asked for, once. */
static int look_again(struct batch *b, int rc)
{
	struct op_error ignored;

	if (rc != -ENOENT || b->swept)
		return rc;
	b->swept = true;
	ops_sweep(b->o, &ignored);
	return -ESTALE;
}

static int assign_and_verify(struct batch *b, bool *ret_unknown, struct op_error *e)
{
	struct move_result *res = &b->res;
	uint32_t fault = b->going ? b->o->fault : 0;
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(b->o, e)) || (rc = find_targets(b, e)))
		return rc;
	rc = ops_assign(b->o, b->target, b->targets, fault | order(b), &b->reply, ret_unknown, e);
	if (rc)
		return look_again(b, rc);
	fill_result(b, res);
	if (fault & SM_ASSIGN_NO_SWAP) {
		log_error("FAULT no-swap: the move is not carried out and not verified");
		return 0;
	}
	if (!b->going)
		return verify_once(b, res, e);
	rc = verify(b, res, e);
	if (rc)
		take_back(b, e);
	return rc;
}

static int carry_out(struct batch *b, bool *ret_unknown, struct op_error *e)
{
	int rc = assign_and_verify(b, ret_unknown, e);

	b->parked = b->parked || rc == -EIO;
	return rc;
}

static void log_moves(const struct batch *b)
{
	const struct move_result *res = &b->res;

	for (unsigned i = 0; i < b->count; i++)
		log_info("move: vGUID 0x%016" PRIx64 " of %s to VF %s of %s, LID %u: %u LFT SMPs, "
			 "%u of %u switches, %s by %u walks, %" PRIu64 " us%s",
			 b->x[i].vguid, b->x[i].name, b->x[i].at.vf, b->x[i].at.host,
			 res->move[i].lid_after, res->lft_smps, res->switches_updated,
			 res->switches_total, res->verified ? "verified" : "NOT verified",
			 res->walks, res->elapsed_us, b->count > 1 ? ", for the whole batch" : "");
}

int ops_move(struct ops *o, const struct move_request *m, unsigned count, uint64_t deadline_us,
	     struct move_result *ret_result, struct op_error *e)
{
	static const struct batch_kind kind = {
		.chains = true,
		.find = find_destinations,
		.carry_out = carry_out,
		.log = log_moves,
	};

	return batch_move(o, &kind, m, count, deadline_us, ret_result, e);
}
