/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/shared.h"
#include "sm-helper/moves/batch.h"
#include "sm-helper/moves/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* 0: no such port, or it has none. */
static uint16_t lid_of(const struct ops *o, uint64_t port_guid)
{
	uint32_t end = fabric_find_end(&o->fabric, port_guid);

	return end == FABRIC_NONE ? 0 : o->fabric.end[end].lid;
}

static int need_place(const struct ops *o, const struct reg_vf *vf, struct op_error *e)
{
	if (!vf->switch_guid || !vf->switch_port)
		return ops_fail(e, -EINVAL, 400, "bad-request",
				"VF %s of %s: addresses = shared-port needs its \"port_guid\" and "
				"\"guid_index\"",
				vf->vf, vf->host);
	if (!lid_of(o, vf->switch_guid))
		return ops_fail(e, -ENOENT, 409, "unknown-vf",
				"OpenSM sees no port with GUID 0x%016" PRIx64
				" and a LID (port of VF %s of %s): is its link up, and is "
				"port_guid right?",
				vf->switch_guid, vf->vf, vf->host);
	return 0;
}

/* The VM at this place, or nothing: a VF without a VM needs no GUID here. The one of its own may be
 * there all the same, from its host. */
static struct sm_slot show(const struct reg_vf *at, const struct reg_entry *x)
{
	return (struct sm_slot){.port_guid = at->switch_guid,
				.index = at->switch_port,
				.guid = x->vguid,
				.was_lid = x->intent == REG_BIND ? 0 : x->lid,
				.was_guid = at->parked_guid};
}

static struct sm_slot park(const struct reg_vf *at, uint64_t vguid)
{
	return (struct sm_slot){
		.port_guid = at->switch_guid, .index = at->switch_port, .was_guid = vguid};
}

/* A statement that was true of the state before a batch is true of the one after it. */
static void follow(struct backend_epoch *epoch, const struct sm_guids_reply *r, int rc)
{
	if (!rc && epoch->instance == r->instance && epoch->generation == r->generation_before)
		epoch->generation = r->generation;
	else
		*epoch = (struct backend_epoch){0};
}

/* A batch; *ret_unknown: its outcome is not known. LIDs and links are as they were. */
static int assign(struct ops *o, const struct sm_slot *slots, unsigned count,
		  struct sm_guids_reply *r, bool *ret_unknown, struct op_error *e)
{
	char text[BACKEND_ERROR_MAX];
	int rc = ops_tell_twin(o, e);

	*ret_unknown = false;
	if (rc)
		return rc;
	rc = backend_guids(o->backend, slots, count, ops_left_ms(o), r, text);
	*ret_unknown = rc == -ECONNRESET || rc == -ETIMEDOUT;
	path_service_expire(o->paths);
	follow(&o->epoch, r, rc);
	follow(&o->stated, r, rc);
	if (*ret_unknown)
		o->reconciled = false;
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

/* Asks the port itself which GUID the entry shows. */
static int look(struct ops *o, const struct sm_slot *s, uint64_t *ret_guid, struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	uint16_t lid = lid_of(o, s->port_guid);
	int rc = probe_guid(o->probe, lid, s->port_guid, s->index, ret_guid, text);

	return rc ? ops_fail(e, -ENOTCONN, 503, "no-answer", "port 0x%016" PRIx64 " (LID %u): %s",
			     s->port_guid, lid, text)
		  : 0;
}

static int verify(struct ops *o, const struct sm_slot *slots, unsigned count, struct op_error *e)
{
	uint64_t shown;
	int rc = ops_begin(o, e);

	for (unsigned i = 0; !rc && i < count; i++) {
		rc = look(o, &slots[i], &shown, e);
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
	rc = assign(o, back, count, r, &unknown, &second);
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
	struct sm_slot slot = show(&x->at, x);
	struct sm_guids_reply r;
	int rc;

	*ret_unknown = false;
	if ((rc = ops_begin(o, e)) || (rc = need_place(o, &x->at, e)) ||
	    (rc = assign(o, &slot, 1, &r, ret_unknown, e)))
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
	x->lid = lid_of(o, x->at.switch_guid);
	if (rc || (rc = ops_record_bind(o, x, e)))
		return rc;
	slot = show(&x->at, x);
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
	struct sm_slot slot = park(&x->at, x->vguid);
	struct sm_guids_reply r;

	return assign(o, &slot, 1, &r, ret_unknown, e);
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

	b->slot[b->slots++] = show(&b->x[i].at, &b->x[i]);
	if (from->parked_guid == b->x[i].at.parked_guid || !lid_of(b->o, from->switch_guid) ||
	    !from->switch_port ||
	    registry_find_vf(b->o->registry, from->parked_guid, &other) != -ENOENT)
		return;
	b->slot[b->slots++] = park(from, b->x[i].vguid);
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
		b->slot[b->slots++] = show(&b->x[i].to, &b->x[i]);
		b->slot[b->slots++] = park(&b->x[i].at, b->x[i].vguid);
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
	res->switches_total = b->o->fabric.switches;
	res->sm_us = r->elapsed_us;
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
	if ((rc = assign(b->o, b->slot, b->slots, &b->guids, ret_unknown, e))) {
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

/* ---- after a restart ---- */

static bool shows(struct ops *o, const struct reg_vf *at, const struct reg_entry *x)
{
	struct sm_slot s = show(at, x);
	struct op_error ignored;
	uint64_t shown;

	return lid_of(o, at->switch_guid) && !look(o, &s, &shown, &ignored) && shown == x->vguid;
}

int shared_settle(struct ops *o, struct reg_entry *x)
{
	enum reg_intent was = x->intent;

	x->intent = REG_NONE;
	if (was == REG_NONE)
		return 0;
	if (was != REG_MOVE && !shows(o, &x->at, x)) {
		log_notice("vGUID 0x%016" PRIx64 " of %s: bound to no VF after an unfinished %s",
			   x->vguid, x->name, was == REG_BIND ? "bind" : "unbind");
		return registry_delete(o->registry, x->vguid);
	}
	if (was == REG_MOVE && shows(o, &x->to, x)) {
		x->at = x->to;
		x->since_ms = wall_ms();
	}
	/* the LID stays the one that peers know: shared_restate() tells them */
	log_notice("vGUID 0x%016" PRIx64 " of %s: on VF %s of %s after what was unfinished",
		   x->vguid, x->name, x->at.vf, x->at.host);
	return registry_put(o->registry, x);
}

struct restate {
	const struct ops *o;
	struct reg_entry *list; /* owned */
	unsigned count;
};

static void add(void *arg, const struct reg_entry *x)
{
	struct restate *r = arg;
	struct reg_entry *grown;

	if (x->mode != ADDRESS_SHARED_PORT || x->intent != REG_NONE ||
	    !lid_of(r->o, x->at.switch_guid) ||
	    !(grown = realloc(r->list, (r->count + 1) * sizeof *grown)))
		return;
	r->list = grown;
	grown[r->count++] = *x;
}

/* A host with another LID than before, or a move that was not ended: peers are told. */
static void lid_changed(struct ops *o, const struct reg_entry *x, const struct sm_guids_reply *r,
			unsigned i, struct move_result *res)
{
	struct reg_entry now = *x;

	log_notice("vGUID 0x%016" PRIx64 " of %s: LID %u is now %u", x->vguid, x->name, x->lid,
		   r->lid[i]);
	now.lid = r->lid[i];
	registry_put(o->registry, &now);
	res->move[res->moves++] = (struct moved){x->vguid, x->lid, now.lid, r->changed[i]};
}

static int restate(struct ops *o, const struct reg_entry *x, unsigned n, struct op_error *e)
{
	struct sm_guids_reply *r AUTO_FREE = malloc(sizeof *r);
	struct move_result *res AUTO_FREE = calloc(1, sizeof *res);
	struct sm_slot slot[OPS_MOVES_MAX];
	bool unknown;
	int rc = r && res ? 0 : -ENOMEM;

	for (unsigned i = 0; i < n; i++)
		slot[i] = show(&x[i].at, &x[i]);
	if (rc || (rc = assign(o, slot, n, r, &unknown, e)))
		return rc;
	for (unsigned i = 0; i < n; i++)
		if (r->lid[i] != x[i].lid)
			lid_changed(o, &x[i], r, i, res);
	res->path_count = r->path_count < SM_PATHS_MAX ? r->path_count : SM_PATHS_MAX;
	memcpy(res->path, r->path, res->path_count * sizeof r->path[0]);
	if (res->moves && o->tell_moved)
		o->tell_moved(o, res);
	return 0;
}

bool shared_restate(struct ops *o)
{
	struct restate all = {.o = o};
	struct op_error e = {0};
	bool told = true;

	registry_each(o->registry, add, &all);
	for (unsigned i = 0, n; i < all.count; i += n) {
		n = all.count - i < OPS_MOVES_MAX ? all.count - i : OPS_MOVES_MAX;
		if (!restate(o, all.list + i, n, &e))
			continue;
		for (unsigned k = i; k < i + n; k++) /* an entry that is refused hides no other */
			if (restate(o, all.list + k, 1, &e)) {
				told = false;
				log_error("vGUID 0x%016" PRIx64
					  " of %s may not be known to OpenSM: %s",
					  all.list[k].vguid, all.list[k].name, e.detail);
			}
	}
	free(all.list);
	return told;
}
