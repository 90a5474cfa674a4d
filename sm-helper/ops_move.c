/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VERIFY_US       2000000
#define VERIFY_SWEEP_US 500000
#define VERIFY_POLL_US  100000

/* What the registry allows. 0: go on; 1: the vGUID is there already. */
static int check_move(struct ops *o, const struct move_request *m, struct reg_entry *ret_entry,
		      struct op_error *e)
{
	struct reg_entry other;
	int rc = registry_find(o->registry, m->vguid, ret_entry);

	if (rc == -ENOENT)
		return ops_fail(e, rc, 404, "not-found",
				"vGUID 0x%016" PRIx64 " is bound to no VF: bind it first",
				m->vguid);
	if (rc)
		return ops_fail(e, rc, 500, "registry", "the registry cannot be read");
	if (strcmp(ret_entry->vm, m->vm))
		return ops_fail(e, -EPERM, 409, "wrong-vm",
				"vGUID 0x%016" PRIx64 " belongs to VM %s (%s), not to %s", m->vguid,
				ret_entry->name, ret_entry->vm, m->vm);
	if (!strcmp(ret_entry->at.host, m->to.host) &&
	    ret_entry->at.parked_guid == m->to.parked_guid)
		return 1;
	if (strcmp(ret_entry->at.host, m->from.host) ||
	    ret_entry->at.parked_guid != m->from.parked_guid)
		return ops_fail(e, -EINVAL, 409, "wrong-host",
				"vGUID 0x%016" PRIx64
				" is on VF %s of %s (parked GUID 0x%016" PRIx64
				"), not on VF %s of %s",
				m->vguid, ret_entry->at.vf, ret_entry->at.host,
				ret_entry->at.parked_guid, m->from.vf, m->from.host);
	rc = registry_find_vf(o->registry, m->to.parked_guid, &other);
	if (!rc)
		return ops_fail(e, -EBUSY, 409, "vf-in-use",
				"VF %s of %s carries vGUID 0x%016" PRIx64 " of VM %s (%s)",
				m->to.vf, m->to.host, other.vguid, other.name, other.vm);
	return rc == -ENOENT ? 0 : ops_fail(e, rc, 500, "registry", "the registry cannot be read");
}

/* Where the destination VF hangs. Normally OpenSM knows it by its parked GUID; when a sweep came
 * between the setting of the GUIDs and this call, it knows it by the vGUID. */
static int find_destination(struct ops *o, const struct reg_entry *x, struct reg_vf *to,
			    struct op_error *e)
{
	uint32_t end = fabric_find_end(&o->fabric, to->parked_guid);
	struct reg_vf seen = {0};

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

/* The batch: the vGUID and its LID at the destination, the source VF's own GUID and the destination
 * VF's LID at the source. Both VFs must show these GUIDs already. */
static int make_targets(struct ops *o, struct reg_entry *x, struct sm_target t[static 2],
			struct op_error *e)
{
	uint32_t end = fabric_end_at(&o->fabric, x->to.switch_guid, x->to.switch_port);
	uint16_t lid_there = end == FABRIC_NONE ? 0 : o->fabric.end[end].lid;
	int rc;

	t[0] = (struct sm_target){
		.switch_guid = x->to.switch_guid,
		.switch_port = x->to.switch_port,
		.port_guid = x->vguid,
		.lid = x->lid,
	};
	t[1] = (struct sm_target){
		.switch_guid = x->at.switch_guid,
		.switch_port = x->at.switch_port,
		.port_guid = x->at.parked_guid,
		.lid = lid_there == x->lid ? 0 : lid_there,
	};
	if ((rc = ops_check_shows(o, &x->to, x->vguid, &t[0].node_guid, e)) ||
	    (rc = ops_check_shows(o, &x->at, x->at.parked_guid, &t[1].node_guid, e)))
		return rc;
	if (!x->to.parked_node)
		x->to.parked_node = x->to.parked_guid - (x->vguid - t[0].node_guid);
	return 0;
}

/* Both LIDs, from everywhere. */
static int verify_once(struct ops *o, const struct reg_entry *x, const struct sm_assign_reply *r,
		       struct move_result *res, struct op_error *e)
{
	unsigned walks = 0;
	int rc = ops_begin(o, e);

	if (!rc)
		rc = ops_verify(o, &x->to, x->vguid, r->lid[0], &walks, e);
	res->walks = walks;
	if (!rc)
		rc = ops_verify(o, &x->at, x->at.parked_guid, r->lid[1], &walks, e);
	res->walks += walks;
	res->verified = !rc;
	return rc;
}

/* A link that goes down or comes up just now is no reason to take a move back: what is wrong must
 * stay wrong for a while, and after a sweep. */
static int verify(struct ops *o, const struct reg_entry *x, const struct sm_assign_reply *r,
		  struct move_result *res, struct op_error *e)
{
	uint64_t start = now_us(), give_up = start + VERIFY_US;
	struct op_error ignored;
	bool swept = false;
	int rc;

	do {
		*e = (struct op_error){0};
		rc = verify_once(o, x, r, res, e);
		if (rc && !swept && now_us() > start + VERIFY_SWEEP_US) {
			log_notice("move: not verified (%s): a heavy sweep is asked for",
				   e->detail);
			ops_sweep(o, &ignored);
			give_up = now_us() + VERIFY_US;
			swept = true;
		}
	} while (rc && now_us() < give_up && !usleep(VERIFY_POLL_US));
	return rc;
}

/* The batch back; its outcome goes into the error that is reported. */
static void take_back(struct ops *o, const struct sm_assign_reply *done, struct op_error *e)
{
	struct sm_assign_reply r;
	struct op_error second = {0};
	size_t at = strlen(e->detail);
	bool unknown;
	int rc;

	o->epoch = (struct client_epoch){0};
	rc = ops_assign(o, done->before, 2, 0, &r, &unknown, &second);
	snprintf(e->detail + at, sizeof e->detail - at,
		 rc ? "; taking it back failed: %s" : "; taken back%s", second.detail);
	log_error("move: %s", e->detail);
}

static int carry_out(struct ops *o, struct reg_entry *x, struct move_result *res, bool *ret_unknown,
		     struct op_error *e)
{
	struct sm_assign_reply r;
	struct sm_target t[2];
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(o, e)) || (rc = find_destination(o, x, &x->to, e)) ||
	    (rc = make_targets(o, x, t, e)) ||
	    (rc = ops_assign(o, t, 2, o->fault, &r, ret_unknown, e)))
		return rc;
	res->lid_after = r.lid[0];
	res->lft_smps = r.lft_smps;
	res->port_info_smps = r.port_info_smps;
	res->switches_updated = r.switches_updated;
	res->switches_total = r.switches_total;
	res->repath_notices = r.repath_notices;
	res->lock_us = r.lock_us;
	res->paths_changed = r.paths_changed;
	res->path_count = r.path_count < SM_PATHS_MAX ? r.path_count : SM_PATHS_MAX;
	memcpy(res->path, r.path, res->path_count * sizeof r.path[0]);
	if (o->fault & SM_ASSIGN_NO_SWAP) {
		log_error("FAULT no-swap: the move is not carried out and not verified");
		return 0;
	}
	rc = verify(o, x, &r, res, e);
	if (rc)
		take_back(o, &r, e);
	return rc;
}

/* The vGUID belongs where the move would take it: a repetition, or the undo of a move that failed.
 * In the latter case a sweep may have found the vGUID at the other VF while it was there. */
static int stay_targets(struct ops *o, const struct reg_entry *x, const struct reg_vf *from,
			struct sm_target t[static 2], unsigned *ret_count, struct op_error *e)
{
	uint32_t end = fabric_end_at(&o->fabric, x->at.switch_guid, x->at.switch_port);
	struct reg_vf other = *from;
	int rc;

	t[0] = (struct sm_target){
		.switch_guid = x->at.switch_guid,
		.switch_port = x->at.switch_port,
		.port_guid = x->vguid,
		.lid = x->lid,
	};
	*ret_count = 1;
	if ((rc = ops_check_shows(o, &x->at, x->vguid, &t[0].node_guid, e)))
		return rc;
	if (!ops_locate(o, x->vguid, &other) || ops_same_place(&other, &x->at))
		return 0;
	t[1] = (struct sm_target){
		.switch_guid = other.switch_guid,
		.switch_port = other.switch_port,
		.port_guid = from->parked_guid,
		.lid = end == FABRIC_NONE || o->fabric.end[end].lid == x->lid
			       ? 0
			       : o->fabric.end[end].lid,
	};
	*ret_count = 2;
	return ops_check_shows(o, &other, from->parked_guid, &t[1].node_guid, e);
}

static int stay(struct ops *o, const struct reg_entry *x, const struct reg_vf *from,
		struct move_result *res, struct op_error *e)
{
	struct sm_assign_reply r;
	struct sm_target t[2];
	unsigned count;
	bool unknown;
	int rc;

	if ((rc = ops_begin(o, e)) || (rc = stay_targets(o, x, from, t, &count, e)) ||
	    (rc = ops_assign(o, t, count, 0, &r, &unknown, e)))
		return rc;
	res->lid_after = r.lid[0];
	res->lft_smps = r.lft_smps;
	res->port_info_smps = r.port_info_smps;
	res->switches_updated = r.switches_updated;
	res->switches_total = r.switches_total;
	res->lock_us = r.lock_us;
	if (!(rc = ops_begin(o, e)))
		rc = ops_verify(o, &x->at, x->vguid, x->lid, &res->walks, e);
	res->verified = !rc;
	return rc;
}

int ops_move(struct ops *o, const struct move_request *m, struct move_result *ret_result,
	     struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct move_result res = {0};
	uint64_t start = now_us();
	struct reg_entry x;
	bool unknown = false;
	int rc;

	if ((rc = ops_begin(o, e)) || (rc = check_move(o, m, &x, e)) < 0)
		return rc;
	res.lid_before = x.lid;
	if (rc) {
		do {
			rc = stay(o, &x, &m->from, &res, e);
		} while (ops_again(rc, start, e));
	} else {
		x.to = m->to;
		if ((rc = find_destination(o, &x, &x.to, e)))
			return rc;
		x.intent = REG_MOVE;
		if (registry_put(o->registry, &x))
			return ops_fail(e, -EIO, 500, "registry", "the registry cannot be written");
		do {
			rc = carry_out(o, &x, &res, &unknown, e);
		} while (ops_again(rc, start, e));
		x.intent = REG_NONE;
		if (!rc) {
			x.at = x.to;
			x.since_ms = wall_ms();
			atomic_fetch_add(&o->moves, 1);
		}
		if (!unknown && registry_put(o->registry, &x) && !rc)
			rc = ops_fail(e, -EIO, 500, "registry", "the registry cannot be written");
	}
	if (rc)
		return rc;
	res.elapsed_us = now_us() - start;
	log_info("move: vGUID 0x%016" PRIx64 " of %s to VF %s of %s, LID %u: %u LFT SMPs, %u of %u "
		 "switches, %s by %u walks, %" PRIu64 " us",
		 x.vguid, x.name, x.at.vf, x.at.host, res.lid_after, res.lft_smps,
		 res.switches_updated, res.switches_total,
		 res.verified ? "verified" : "NOT verified", res.walks, res.elapsed_us);
	*ret_result = res;
	return 0;
}
