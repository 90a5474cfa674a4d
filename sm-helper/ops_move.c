/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves, one or many in a batch: checked against the registry, made into places for the plugin,
 * carried out and verified together, or not at all. */
#include "sm-helper/dynamic.h"
#include "sm-helper/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VERIFY_US       2000000
#define VERIFY_SWEEP_US 500000
#define VERIFY_POLL_US  100000

/* A batch on its way. Large: on the heap. */
struct batch {
	struct ops *o;
	const struct move_request *m;      /* borrowed; count of them, as of the next three */
	unsigned count, going;             /* going: those that are not there */
	struct reg_entry x[OPS_MOVES_MAX]; /* what the registry says; .to: where it goes */
	bool there[OPS_MOVES_MAX];         /* the vGUID is where the move would take it */
	/* Where the vGUIDs shall be, in the order of the moves; behind them the places that are
	 * left to nobody, first of those that are going. */
	struct sm_target target[SM_ASSIGN_MAX];
	unsigned targets, checked; /* checked: of these, the first, whose LIDs are verified */
	bool swept;                /* because OpenSM did not see one of the places */
	bool parked;               /* it, or its way back, could not be taken back at some time */
	struct sm_assign_reply reply;
	struct move_result res;
};

static bool same_vf(const struct reg_vf *a, const struct reg_vf *b)
{
	return a->parked_guid == b->parked_guid;
}

/* One may go where another one leaves, or both change places; what else two moves of a batch have
 * in common is an error of who made it. */
static int check_pair(const struct move_request *m, unsigned k, unsigned i, struct op_error *e)
{
	const struct reg_vf *both = same_vf(&m[k].from, &m[i].from) ? &m[i].from
				    : same_vf(&m[k].to, &m[i].to)   ? &m[i].to
								    : NULL;

	if (m[k].vguid == m[i].vguid)
		return ops_fail(e, -EINVAL, 400, "bad-request",
				"moves %u and %u both name vGUID 0x%016" PRIx64, k, i, m[i].vguid);
	if (both)
		return ops_fail(e, -EINVAL, 400, "bad-request",
				"moves %u and %u both go %s VF %s of %s (parked GUID 0x%016" PRIx64
				")",
				k, i, both == &m[i].to ? "to" : "from", both->vf, both->host,
				both->parked_guid);
	return 0;
}

int ops_check_batch(const struct move_request *m, unsigned count, struct op_error *e)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		for (unsigned k = 0; !rc && k < i; k++)
			rc = check_pair(m, k, i, e);
	return rc;
}

static bool is_of_batch(const struct move_request *batch, unsigned count, uint64_t vguid)
{
	for (unsigned i = 0; i < count; i++)
		if (batch[i].vguid == vguid)
			return true;
	return false;
}

int ops_check_move(struct ops *o, const struct move_request *m, const struct move_request *batch,
		   unsigned count, struct reg_entry *ret_entry, struct op_error *e)
{
	struct reg_entry other;
	int rc = ops_check_vm(o, m->vguid, m->vm, ret_entry, e);

	if (rc == -ENOENT)
		return ops_fail(e, rc, 404, "not-found",
				"vGUID 0x%016" PRIx64 " is bound to no VF: bind it first",
				m->vguid);
	if (rc)
		return rc;
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
	if (!rc && is_of_batch(batch, count, other.vguid)) /* it leaves: no two go to one VF */
		return 0;
	if (!rc)
		return ops_fail(e, -EBUSY, 409, "vf-in-use",
				"VF %s of %s carries vGUID 0x%016" PRIx64 " of VM %s (%s)",
				m->to.vf, m->to.host, other.vguid, other.name, other.vm);
	return rc == -ENOENT ? 0 : ops_fail(e, rc, 500, "registry", "the registry cannot be read");
}

/* The VF that another one of the batch leaves for this one. */
static const struct reg_vf *left_vf(const struct batch *b, const struct reg_vf *to)
{
	for (unsigned i = 0; i < b->count; i++)
		if (!b->there[i] && same_vf(&b->x[i].at, to))
			return &b->x[i].at;
	return NULL;
}

/* Where the destination VF hangs. Normally OpenSM knows it by its parked GUID; when a sweep came
 * between the setting of the GUIDs and this call, it knows it by the vGUID. */
static int find_destination(const struct batch *b, const struct reg_entry *x, struct reg_vf *to,
			    struct op_error *e)
{
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

/* Where a vGUID of the batch shall be afterwards. */
static struct reg_vf *final_place(struct batch *b, unsigned i)
{
	return b->there[i] ? &b->x[i].at : &b->x[i].to;
}

/* It must show the vGUID already. */
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
	};
	rc = ops_check_shows(b->o, at, x->vguid, &t->node_guid, e);
	if (!rc && !at->parked_node)
		at->parked_node = at->parked_guid - (x->vguid - t->node_guid);
	return rc;
}

static uint16_t lid_there(const struct ops *o, const struct reg_vf *at)
{
	uint32_t end = fabric_end_at(&o->fabric, at->switch_guid, at->switch_port);

	return end == FABRIC_NONE ? 0 : o->fabric.end[end].lid;
}

/* The LID for the place that VM i has left: that of the VF where it goes, or, if that one is left
 * by another VM of the batch as well, of the VF where that goes, and so on. 0: the plugin knows
 * (LIDs of VMs leave none; or a sweep has given the place one). */
static uint16_t lid_left(struct batch *b, unsigned i)
{
	uint16_t first = b->x[i].lid, lid = 0;

	for (unsigned hops = 0, next = i; hops < b->count && next < b->count; hops++) {
		if (b->x[next].mode == ADDRESS_DYNAMIC)
			return 0;
		lid = lid_there(b->o, final_place(b, next));
		for (next = 0; next < b->count && b->x[next].lid != lid;)
			next++;
	}
	return lid == first ? 0 : lid;
}

/* The place that VM i has left; if nobody of the batch comes there, it must show its own GUID. */
static int add_left(struct batch *b, unsigned i, const struct reg_vf *at, uint64_t parked,
		    struct op_error *e)
{
	struct sm_target *t = &b->target[b->targets];

	for (unsigned k = 0; k < b->count; k++)
		if (ops_same_place(at, final_place(b, k)))
			return 0;
	*t = (struct sm_target){
		.switch_guid = at->switch_guid,
		.switch_port = at->switch_port,
		.port_guid = parked,
		.parked_guid = parked,
		.lid = lid_left(b, i),
	};
	b->targets++;
	return ops_check_shows(b->o, at, parked, &t->node_guid, e);
}

/* A vGUID that belongs where the move would take it, at a repetition or the undo of a move that
 * failed, may have been found at the other VF by a sweep while it was there. */
static int add_strayed(struct batch *b, unsigned i, struct op_error *e)
{
	const struct reg_entry *x = &b->x[i];
	struct reg_vf other = b->m[i].from;

	if (!ops_locate(b->o, x->vguid, &other) || ops_same_place(&other, &x->at))
		return 0;
	return add_left(b, i, &other, other.parked_guid, e);
}

/* All places of the batch. */
static int find_targets(struct batch *b, struct op_error *e)
{
	int rc = 0;

	b->targets = 0;
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!b->there[i])
			rc = find_destination(b, &b->x[i], &b->x[i].to, e);
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

/* All LIDs of the places, from everywhere; where nothing moves, that of the vGUID. */
static int verify_once(struct batch *b, struct move_result *res, struct op_error *e)
{
	int rc = ops_begin(b->o, e);

	res->walks = 0;
	if (!rc)
		ops_forget(b->o);
	for (unsigned i = 0; !rc && i < b->checked; i++) {
		unsigned walks = 0;

		rc = ops_verify(b->o, &b->target[i], b->reply.lid[i], &walks, e);
		res->walks += walks;
	}
	res->verified = !rc;
	return rc;
}

/* A link that goes down or comes up just now is no reason to take a move back: what is wrong must
 * stay wrong for a while, and after a sweep. */
static int verify(struct batch *b, struct move_result *res, struct op_error *e)
{
	uint64_t start = now_us(), give_up = start + VERIFY_US;
	struct op_error ignored;
	bool swept = false;
	int rc;

	do {
		*e = (struct op_error){0};
		rc = verify_once(b, res, e);
		if (rc && !swept && now_us() > start + VERIFY_SWEEP_US) {
			log_notice("move: not verified (%s): a heavy sweep is asked for",
				   e->detail);
			ops_sweep(b->o, &ignored);
			give_up = now_us() + VERIFY_US;
			swept = true;
		}
	} while (rc && now_us() < give_up && !usleep(VERIFY_POLL_US));
	return rc;
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
	b->o->epoch = (struct client_epoch){0};
	rc = ops_assign(b->o, before, b->targets, SM_ASSIGN_BACK, &b->reply, &unknown, &second);
	b->parked = b->parked || rc == -EIO;
	snprintf(e->detail + at, sizeof e->detail - at,
		 rc ? "; taking it back failed: %s" : "; taken back%s", second.detail);
	log_error("move: %s", e->detail);
}

static void fill_result(const struct batch *b, struct move_result *res)
{
	const struct sm_assign_reply *r = &b->reply;

	for (unsigned i = 0; i < b->count; i++) {
		res->move[i].lid_after = r->lid[i];
		res->move[i].paths_changed = b->there[i] ? 0 : r->changed[i];
	}
	res->lft_smps = r->lft_smps;
	res->port_info_smps = r->port_info_smps;
	res->switches_updated = r->switches_updated;
	res->switches_total = r->switches_total;
	res->sm_us = r->elapsed_us;
	res->lock_us = r->lock_us;
	if (!b->going)
		return;
	res->repath_notices = r->repath_notices;
	res->path_count = r->path_count < SM_PATHS_MAX ? r->path_count : SM_PATHS_MAX;
	memcpy(res->path, r->path, res->path_count * sizeof r->path[0]);
}

/* A sweep that has met a GUID where it was and then where it went takes both for one port, and sees
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

static int carry_out(struct batch *b, struct move_result *res, bool *ret_unknown,
		     struct op_error *e)
{
	uint32_t fault = b->going ? b->o->fault : 0;
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(b->o, e)) || (rc = find_targets(b, e)))
		return rc;
	rc = ops_assign(b->o, b->target, b->targets, fault, &b->reply, ret_unknown, e);
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

/* The registry's word on each move, and that its destination is there. */
static int begin_moves(struct batch *b, struct move_result *res, struct op_error *e)
{
	int rc = ops_begin(b->o, e);

	for (unsigned i = 0; !rc && i < b->count; i++) {
		struct reg_entry *x = &b->x[i];

		if ((rc = ops_check_move(b->o, &b->m[i], b->m, b->count, x, e)) < 0)
			return rc;
		b->there[i] = rc;
		rc = 0;
		res->move[i] = (struct moved){.vguid = x->vguid, .lid_before = x->lid};
		if (b->there[i])
			continue;
		b->going++;
		x->to = b->m[i].to;
		x->intent = REG_MOVE;
	}
	for (unsigned i = 0; !rc && i < b->count; i++)
		if (!b->there[i])
			rc = find_destination(b, &b->x[i], &b->x[i].to, e);
	res->moves = b->count;
	if (!rc && b->going && registry_put_all(b->o->registry, b->x, b->count))
		rc = ops_fail(e, -EIO, 500, "registry", "the registry cannot be written");
	return rc;
}

/* moved: whether the batch has been carried out. */
static int end_moves(struct batch *b, bool moved, struct op_error *e)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct reg_entry *x = &b->x[i];

		x->intent = REG_NONE;
		if (!moved || b->there[i])
			continue;
		x->at = x->to;
		x->since_ms = wall_ms();
	}
	if (registry_put_all(b->o->registry, b->x, b->count))
		return ops_fail(e, -EIO, 500, "registry", "the registry cannot be written");
	return 0;
}

static void log_moves(const struct batch *b, const struct move_result *res)
{
	for (unsigned i = 0; i < b->count; i++)
		log_info("move: vGUID 0x%016" PRIx64 " of %s to VF %s of %s, LID %u: %u LFT SMPs, "
			 "%u of %u switches, %s by %u walks, %" PRIu64 " us%s",
			 b->x[i].vguid, b->x[i].name, b->x[i].at.vf, b->x[i].at.host,
			 res->move[i].lid_after, res->lft_smps, res->switches_updated,
			 res->switches_total, res->verified ? "verified" : "NOT verified",
			 res->walks, res->elapsed_us, b->count > 1 ? ", for the whole batch" : "");
}

static int run(struct batch *b, struct op_error *e)
{
	struct move_result *res = &b->res;
	uint64_t start = now_us();
	bool unknown = false;
	int rc = begin_moves(b, res, e);

	if (rc)
		return rc;
	do {
		rc = carry_out(b, res, &unknown, e);
		b->parked = b->parked || rc == -EIO;
	} while (ops_again(rc, start, e));
	if (rc && b->parked)
		parked_add_moves(&b->o->parked, b->m, b->count);
	for (unsigned i = 0; !rc && i < b->count; i++)
		parked_drop_move(&b->o->parked, b->m[i].vguid);
	if (b->going && !unknown) {
		struct op_error second;
		int rc2 = end_moves(b, !rc, rc ? &second : e);

		rc = rc ? rc : rc2;
	}
	if (rc)
		return rc;
	atomic_fetch_add(&b->o->moves, b->going);
	res->elapsed_us = now_us() - start;
	log_moves(b, res);
	return 0;
}

int ops_move(struct ops *o, const struct move_request *m, unsigned count,
	     struct move_result *ret_result, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct batch *b AUTO_FREE = calloc(1, sizeof *b);
	int rc;

	if (!b)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	b->o = o;
	b->m = m;
	b->count = count;
	rc = ops_check_batch(m, count, e);
	rc = rc ? rc : run(b, e);
	if (!rc)
		*ret_result = b->res;
	return rc;
}
