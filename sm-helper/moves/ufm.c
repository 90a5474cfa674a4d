/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves by UFM: its SM sees by itself that a vGUID is at another place and gives it a LID. What is
 * left to do is to see to the partition and to wait until UFM lists the virtual port where the VM
 * is. Nothing is planned here. */
#include "sm-helper/backend/ufm.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/fabric/pkeys.h"
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/mover.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/own.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WAIT_MS 8000 /* until UFM lists a vGUID where it is now; daemons wait 10 s */
#define POLL_US 250000
#define UNDO_US 1000000 /* at least, for what has failed: daemons wait 2 s longer than for it */

static int fail_ufm(struct op_error *e, int rc, const char *text)
{
	bool away = rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -EPROTO;

	return ops_fail(e, rc, away ? 503 : 500, away ? "sm-unavailable" : "sm-failed", "%s", text);
}

/* The one vport that shows this GUID. -ENOENT; -EEXIST: several. */
static int find_vport(struct ufm *u, uint64_t guid, uint64_t deadline_us,
		      struct ufm_vport *ret_vport, struct op_error *e)
{
	char error[UFM_ERROR_MAX];
	unsigned found;
	int rc = ufm_find_vport(u, guid, deadline_us, ret_vport, &found, error);

	if (rc)
		return fail_ufm(e, rc, error);
	if (found == 1)
		return 0;
	return ops_fail(e, found ? -EEXIST : -ENOENT, found ? 409 : 503,
			found ? "guid-in-fabric" : "sm-busy",
			"UFM lists %u virtual ports with GUID 0x%016" PRIx64, found, guid);
}

/* Waits until UFM lists the vGUID, active and with a LID, and not on the physical port `not_on` (0:
 * any). It gives up when now_ms() is give_up_ms, but looks once; UFM itself has until deadline_us.
 */
static int await_vport(struct ufm *u, uint64_t guid, uint64_t not_on, uint64_t give_up_ms,
		       uint64_t deadline_us, struct ufm_vport *ret_vport, struct op_error *e)
{
	struct ufm_vport v = {0};
	int rc;

	do {
		rc = find_vport(u, guid, deadline_us, &v, e);
		if (rc && rc != -ENOENT && rc != -EEXIST)
			return rc;
		if (!rc && v.active && v.lid && v.port_guid != not_on) {
			*ret_vport = v;
			return 0;
		}
	} while (now_ms() < give_up_ms && !usleep(POLL_US));
	if (rc)
		return rc;
	return ops_fail(e, -EAGAIN, 503, "sm-busy",
			"UFM lists vGUID 0x%016" PRIx64 " on port 0x%016" PRIx64
			", %s, LID %u, for %d ms",
			guid, v.port_guid, v.active ? "active" : "not active", v.lid, WAIT_MS);
}

/* A vGUID that joins its partition, and what the partition said of it before. */
struct joining {
	uint16_t pkey;
	uint64_t vguid;
	struct ufm_member before;
	bool changed;
};

static int join(struct ufm *u, struct joining *j, uint64_t deadline_us, struct op_error *e)
{
	char error[UFM_ERROR_MAX];
	int rc = ufm_join(u, j->pkey, j->vguid, deadline_us, &j->before, &j->changed, error);

	return rc ? fail_ufm(e, rc, error) : 0;
}

static int leave(struct ufm *u, const struct reg_entry *x, uint64_t deadline_us, struct op_error *e)
{
	char error[UFM_ERROR_MAX];
	int rc = ufm_leave(u, x->pkey, x->vguid, x->member_before, deadline_us, error);

	return rc ? fail_ufm(e, rc, error) : 0;
}

/* The undo of joins whose bind or move has failed; how that went goes into the error. */
static void part(struct ufm *u, const struct joining *j, unsigned count, uint64_t deadline_us,
		 struct op_error *e)
{
	uint64_t least_us = now_us() + UNDO_US;

	for (unsigned i = 0; i < count; i++) {
		size_t at = strlen(e->detail);
		char error[UFM_ERROR_MAX];

		if (j[i].changed &&
		    ufm_leave(u, j[i].pkey, j[i].vguid, j[i].before.as,
			      deadline_us > least_us ? deadline_us : least_us, error))
			snprintf(e->detail + at, sizeof e->detail - at,
				 "; vGUID 0x%016" PRIx64 " stays in partition 0x%04x: %s",
				 j[i].vguid, j[i].pkey & PKEY_BASE, error);
	}
}

/* The membership that the end of the bind leaves: what a join has made is ours. */
static uint8_t member_before(const struct joining *j, const struct reg_entry *old)
{
	bool ours = old && !((old->pkey ^ j->pkey) & PKEY_BASE) && j->before.as;

	return ours ? old->member_before : (uint8_t)j->before.as;
}

/* Time when the outcome must be known; 0, as in ops.h, is OPS_ANSWER_MS from now. */
static uint64_t deadline_of(uint64_t deadline_us)
{
	return deadline_us ? deadline_us : now_us() + OPS_ANSWER_MS * 1000ull;
}

static uint64_t give_up_ms_of(uint64_t deadline_us)
{
	uint64_t wait = now_ms() + WAIT_MS;

	return wait < deadline_us / 1000 ? wait : deadline_us / 1000;
}

static void take_place(struct reg_entry *x, const struct ufm_vport *v)
{
	x->at.switch_guid = v->port_guid;
	x->at.switch_port = v->port;
	x->lid = v->lid;
}

/* The vGUID is a member: the registry has it as soon as UFM shows it. old: NULL for a new bind. The
 * partition of before, which is not the VM's any more, is left first: only the old entry tells of
 * it to whoever asks again. */
static int enter(struct ops *o, const struct joining *j, const struct reg_entry *old,
		 uint64_t until_us, struct reg_entry *x, struct op_error *e)
{
	struct ufm *u = backend_self(o->backend);
	struct ufm_vport v;
	int rc = await_vport(u, x->vguid, 0, give_up_ms_of(until_us), until_us, &v, e);

	if (!rc && old && (old->pkey ^ j->pkey) & PKEY_BASE)
		rc = leave(u, old, until_us, e);
	if (rc)
		return rc;
	take_place(x, &v);
	x->since_ms = wall_ms();
	x->member_before = member_before(j, old);
	rc = registry_put(o->registry, x);
	return rc ? ops_fail_registry(e, rc) : 0;
}

static int ufm_bind(struct ops *o, const struct reg_entry *want, uint64_t deadline_us,
		    uint16_t *ret_lid, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct ufm *u = backend_self(o->backend);
	struct joining j = {.pkey = want->pkey, .vguid = want->vguid};
	struct reg_entry x = *want, old;
	int rc, again;

	if ((rc = own_check(o, OWN_FRESH_MS, e)) || (again = ops_check_free(o, want, &old, e)) < 0)
		return rc ? rc : again;
	if ((rc = join(u, &j, until_us, e)) ||
	    (rc = enter(o, &j, again ? &old : NULL, until_us, &x, e))) {
		part(u, &j, 1, until_us, e);
		return rc;
	}
	*ret_lid = x.lid;
	return 0;
}

static int ufm_unbind(struct ops *o, uint64_t vguid, const char *vm, const struct reg_vf *from,
		      uint64_t deadline_us, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct reg_entry x;
	int rc = own_check(o, OWN_FRESH_MS, e);

	if (rc)
		return rc;
	rc = ops_check_vm(o, vguid, vm, &x, e);
	if (rc == -ENOENT)
		return 0; /* again */
	if (rc || (from && (rc = ops_check_at(&x, from, e))) ||
	    (rc = leave(backend_self(o->backend), &x, until_us, e)))
		return rc;
	rc = registry_delete(o->registry, vguid);
	return rc ? ops_fail_registry(e, rc) : 0;
}

/* Moves on their way. Large: on the heap. */
struct ufm_moves {
	struct reg_entry x[OPS_MOVES_MAX]; /* as in the registry, then as it shall be there */
	struct joining join[OPS_MOVES_MAX];
	struct move_result res;
};

static int check_moves(struct ops *o, const struct move_request *m, unsigned count,
		       struct reg_entry *ret_x, struct op_error *e)
{
	int rc = batch_check(m, count, e);

	for (unsigned i = 0; rc >= 0 && i < count; i++)
		rc = batch_check_move(o, &m[i], NULL, 0, &ret_x[i], e);
	return rc < 0 ? rc : 0;
}

/* Waits until UFM lists the vGUID where it is now, which goes into x and *ret_moved. Between hosts
 * it is another physical port; which one, only UFM knows. */
static int await_move(struct ufm *u, const struct move_request *m, uint64_t give_up_ms,
		      uint64_t deadline_us, struct reg_entry *x, struct moved *ret_moved,
		      struct op_error *e)
{
	uint64_t not_on = strcmp(x->at.host, m->to.host) ? x->at.switch_guid : 0;
	struct ufm_vport v;
	int rc = await_vport(u, m->vguid, not_on, give_up_ms, deadline_us, &v, e);

	if (rc)
		return rc;
	*ret_moved = (struct moved){.vguid = x->vguid, .lid_before = x->lid, .lid_after = v.lid};
	if (!reg_same_vf(&x->at, &m->to)) {
		x->at = m->to;
		x->since_ms = wall_ms();
		ret_moved->paths_changed = 1; /* at least; UFM does not tell which */
	}
	take_place(x, &v);
	return 0;
}

static void log_moves(struct ops *o, const struct ufm_moves *b)
{
	for (unsigned i = 0; i < b->res.moves; i++) {
		const struct moved *moved = &b->res.move[i];
		const struct reg_entry *x = &b->x[i];

		if (moved->paths_changed)
			atomic_fetch_add(&o->moves, 1);
		log_info("move: vGUID 0x%016" PRIx64
			 " of %s to VF %s of %s, LID %u -> %u, as UFM lists it",
			 x->vguid, x->name, x->at.vf, x->at.host, moved->lid_before,
			 moved->lid_after);
	}
}

/* Waits for the moves in turn: what is waited for, UFM does by itself. The registry has all of them
 * or none. */
static int await_moves(struct ops *o, const struct move_request *m, unsigned count,
		       uint64_t deadline_us, struct ufm_moves *b, struct move_result *ret_result,
		       struct op_error *e)
{
	uint64_t start = now_us(), give_up_ms = give_up_ms_of(deadline_us);
	struct ufm *u = backend_self(o->backend);
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		rc = await_move(u, &m[i], give_up_ms, deadline_us, &b->x[i], &b->res.move[i], e);
	if (!rc && registry_put_all(o->registry, b->x, count))
		rc = ops_fail_registry(e, -EIO);
	if (rc)
		return rc;
	b->res.moves = count;
	b->res.verified = true;
	b->res.answers_by = REACH_UNSEEN;
	b->res.elapsed_us = now_us() - start;
	log_moves(o, b);
	*ret_result = b->res;
	return 0;
}

/* Notes joins in the registry: their undo is that of the bind from now on. */
static int note_joins(struct ops *o, const struct ufm_moves *b, unsigned count, struct op_error *e)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++)
		if (b->join[i].changed)
			rc = registry_put(o->registry, &b->x[i]);
	return rc ? ops_fail_registry(e, rc) : 0;
}

/* PREPARE says yes only to vGUIDs that are members. The registry's partition is the one that an
 * unbind leaves; who asks for a move does not choose another one. */
static int join_all(struct ops *o, struct ufm_moves *b, unsigned count, uint64_t deadline_us,
		    struct op_error *e)
{
	struct ufm *u = backend_self(o->backend);
	unsigned joined = 0;
	int rc = 0;

	while (!rc && joined < count) {
		struct reg_entry *x = &b->x[joined];
		struct joining *j = &b->join[joined++];

		*j = (struct joining){.pkey = x->pkey, .vguid = x->vguid};
		rc = join(u, j, deadline_us, e);
		x->member_before = member_before(j, x);
	}
	if (rc || (rc = note_joins(o, b, count, e)))
		part(u, b->join, joined, deadline_us, e);
	return rc;
}

static int ufm_move(struct ops *o, const struct move_request *m, unsigned count,
		    uint64_t deadline_us, struct move_result *ret_result, struct op_error *e)
{
	uint64_t until_us = deadline_of(deadline_us);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	struct ufm_moves *b AUTO_FREE = calloc(1, sizeof *b);
	int rc;

	if (!b)
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	rc = own_check(o, OWN_FRESH_MS, e);
	rc = rc ? rc : check_moves(o, m, count, b->x, e);
	if (!rc)
		rc = join_all(o, b, count, until_us, e);
	if (!rc && ret_result)
		rc = await_moves(o, m, count, until_us, b, ret_result, e);
	return rc;
}

static int ufm_places(struct ops *o, struct sm_place **ret_list, size_t *ret_n, struct op_error *e)
{
	struct ufm_vport *vport AUTO_FREE = NULL;
	char error[UFM_ERROR_MAX];
	struct sm_place *list;
	size_t n;
	int rc = ufm_list_vports(backend_self(o->backend), &vport, &n, error);

	if (rc)
		return fail_ufm(e, rc, error);
	if (!(list = calloc(n + 1, sizeof *list)))
		return ops_fail(e, -ENOMEM, 500, "no-memory", "no memory");
	for (size_t i = 0; i < n; i++)
		list[i] = (struct sm_place){vport[i].guid, vport[i].port_guid, vport[i].port,
					    vport[i].active ? vport[i].lid : 0};
	*ret_list = list;
	*ret_n = n;
	return 0;
}

const struct mover mover_ufm = {ufm_bind, ufm_unbind, ufm_move, ufm_places};
