/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/slots.h"
#include "common/log.h"
#include "common/util.h"
#include "sm-helper/moves/ops_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint16_t slot_lid(const struct ops *o, uint64_t port_guid)
{
	uint32_t end = fabric_find_end(&o->fabric, port_guid);

	return end == FABRIC_NONE ? 0 : o->fabric.end[end].lid;
}

struct sm_slot slot_show(const struct reg_vf *at, const struct reg_entry *x)
{
	return (struct sm_slot){.port_guid = at->switch_guid,
				.index = at->switch_port,
				.guid = x->vguid,
				.was_lid = x->intent == REG_BIND ? 0 : x->lid,
				.was_guid = at->parked_guid};
}

struct sm_slot slot_park(const struct reg_vf *at, uint64_t vguid)
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

int slot_assign(struct ops *o, const struct sm_slot *slots, unsigned count,
		struct sm_guids_reply *r, bool *ret_unknown, struct op_error *e)
{
	char text[BACKEND_ERROR_MAX];
	int rc = ops_tell_twin(o, e);

	*ret_unknown = false;
	if (rc)
		return rc;
	atomic_fetch_add(&o->batches, 1);
	rc = backend_guids(o->backend, slots, count, ops_left_ms(o), r, text);
	atomic_fetch_add(&o->batches, 1);
	*ret_unknown = rc == -ECONNRESET || rc == -ETIMEDOUT;
	path_service_expire(o->paths);
	follow(&o->epoch, r, rc);
	follow(&o->stated, r, rc);
	if (*ret_unknown)
		o->reconciled = false;
	return rc ? ops_fail_plugin(e, rc, text) : 0;
}

int slot_look(struct ops *o, const struct sm_slot *s, uint64_t *ret_guid, struct op_error *e)
{
	char text[PROBE_ERROR_MAX];
	uint16_t lid = slot_lid(o, s->port_guid);
	int rc = probe_guid(o->probe, lid, s->port_guid, s->index, ret_guid, text);

	return rc ? ops_fail(e, -ENOTCONN, 503, "no-answer", "port 0x%016" PRIx64 " (LID %u): %s",
			     s->port_guid, lid, text)
		  : 0;
}

/* ---- after a restart ---- */

static bool shows(struct ops *o, const struct reg_vf *at, const struct reg_entry *x)
{
	struct sm_slot s = slot_show(at, x);
	struct op_error ignored;
	uint64_t shown;

	return slot_lid(o, at->switch_guid) && !slot_look(o, &s, &shown, &ignored) &&
	       shown == x->vguid;
}

int slots_settle(struct ops *o, struct reg_entry *x)
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
	/* the LID stays the one that peers know: slots_restate() tells them */
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
	    !slot_lid(r->o, x->at.switch_guid) ||
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
	reg_set_lid(&now, r->lid[i]);
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
		slot[i] = slot_show(&x[i].at, &x[i]);
	if (rc || (rc = slot_assign(o, slot, n, r, &unknown, e)))
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

bool slots_restate(struct ops *o)
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
