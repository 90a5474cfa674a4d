/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* A VM may go where another one leaves, and two may change places. Anything else that two moves of
 * a batch have in common is an error of who made it. */
static int check_pair(const struct move_request *m, unsigned k, unsigned i, struct op_error *e)
{
	const struct reg_vf *both = batch_same_vf(&m[k].from, &m[i].from) ? &m[i].from
				    : batch_same_vf(&m[k].to, &m[i].to)   ? &m[i].to
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

int batch_check(const struct move_request *m, unsigned count, struct op_error *e)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		for (unsigned k = 0; !rc && k < i; k++)
			rc = check_pair(m, k, i, e);
	return rc;
}

/* Among those that a VM may follow. */
static bool is_of_batch(const struct move_request *batch, unsigned count, uint64_t vguid)
{
	for (unsigned i = 0; i < count; i++)
		if (batch[i].vguid == vguid)
			return true;
	return false;
}

int batch_check_move(struct ops *o, const struct move_request *m, const struct move_request *batch,
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
	if (reg_same_vf(&ret_entry->at, &m->to))
		return 1;
	if ((rc = ops_check_at(ret_entry, &m->from, e)) || (rc = ops_check_parked(o, &m->to, e)))
		return rc;
	rc = registry_find_vf(o->registry, m->to.parked_guid, &other);
	if (!rc &&
	    is_of_batch(batch, count, other.vguid)) /* the holder leaves: no two go to one VF */
		return 0;
	return ops_check_holder(rc, &m->to, &other, e);
}

/* The registry's word on move i. */
static int begin_move(struct batch *b, const struct batch_kind *kind, unsigned i,
		      struct op_error *e)
{
	struct reg_entry *x = &b->x[i];
	int rc = batch_check_move(b->o, &b->m[i], b->m, kind->chains ? b->count : 0, x, e);

	if (rc < 0)
		return rc;
	b->there[i] = rc;
	b->res.move[i] = (struct moved){.vguid = x->vguid, .lid_before = x->lid};
	if (b->there[i])
		return 0;
	b->going++;
	x->to = b->m[i].to;
	x->intent = REG_MOVE;
	return 0;
}

/* Makes sure that all may begin, and that their destinations are there. */
static int look(struct batch *b, const struct batch_kind *kind, struct op_error *e)
{
	int rc = ops_begin(b->o, e);

	for (unsigned i = 0; !rc && i < b->count; i++)
		rc = begin_move(b, kind, i, e);
	rc = rc ? rc : kind->find(b, e);
	b->res.moves = b->count;
	return rc;
}

/* The registry knows of it then. */
static int begin(struct batch *b, const struct batch_kind *kind, struct op_error *e)
{
	int rc = look(b, kind, e);

	if (!rc && b->going && registry_put_all(b->o->registry, b->x, b->count))
		rc = ops_fail_registry(e, -EIO);
	return rc;
}

/* moved: whether the batch has been carried out. */
static int end(struct batch *b, bool moved, struct op_error *e)
{
	bool changed = b->going;

	for (unsigned i = 0; i < b->count; i++) {
		struct reg_entry *x = &b->x[i];

		x->intent = REG_NONE;
		if (!moved)
			continue;
		changed = changed || x->lid != b->res.move[i].lid_after;
		reg_set_lid(x, b->res.move[i].lid_after);
		if (b->there[i])
			continue;
		x->at = x->to;
		x->since_ms = wall_ms();
	}
	return changed && registry_put_all(b->o->registry, b->x, b->count)
		       ? ops_fail_registry(e, -EIO)
		       : 0;
}

/* Keeps what an operator can have made again, or taken back, until it has come to an end. */
static void note_parked(struct batch *b, bool moved)
{
	if (!moved && b->parked)
		parked_add_moves(b->o, b->m, b->count);
	for (unsigned i = 0; moved && i < b->count; i++)
		parked_drop_move(b->o, b->m[i].vguid);
}

static int run(struct batch *b, const struct batch_kind *kind, struct op_error *e)
{
	uint64_t start = now_us();
	bool unknown = false;
	int rc = begin(b, kind, e);

	if (rc)
		return rc;
	do {
		rc = kind->carry_out(b, &unknown, e);
	} while (ops_again(b->o, rc, e));
	note_parked(b, !rc);
	if (rc) /* what it has left is settled soon */
		b->o->reconciled = false;
	if (!unknown) {
		struct op_error second;
		int rc2 = end(b, !rc, rc ? &second : e);

		rc = rc ? rc : rc2;
	}
	if (rc)
		return rc;
	atomic_fetch_add(&b->o->moves, b->going);
	b->res.elapsed_us = now_us() - start;
	kind->log(b);
	return 0;
}

int batch_move(struct ops *o, const struct batch_kind *kind, const struct move_request *m,
	       unsigned count, uint64_t deadline_us, struct move_result *ret_result,
	       struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct batch *b AUTO_FREE = calloc(1, sizeof *b);
	int rc;

	if (!b)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	b->o = o;
	b->m = m;
	b->count = count;
	rc = batch_check(m, count, e);
	rc = rc ? rc : ops_start(o, deadline_us, e);
	if (!rc && !ret_result) /* before anything hurts: a write on trial, too */
		return (rc = look(b, kind, e)) ? rc : own_check(o, 0, e);
	rc = rc ? rc : run(b, kind, e);
	if (!rc)
		*ret_result = b->res;
	return rc;
}
