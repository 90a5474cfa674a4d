/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Work that an earlier process has left half done, or that a restarted OpenSM has lost. */
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/moves/slots.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>

struct undecided {
	struct reg_entry *list; /* owned */
	size_t count;
};

static void collect(void *arg, const struct reg_entry *e)
{
	struct undecided *u = arg;
	struct reg_entry *grown = realloc(u->list, (u->count + 1) * sizeof *grown);

	if (!grown)
		return;
	u->list = grown;
	grown[u->count++] = *e;
}

/* A bound vGUID whose LID is another one after a restart of OpenSM gets its own back. -EHOSTDOWN:
 * nothing may be changed now. */
static int restore_lid(struct ops *o, const struct reg_entry *x, struct op_error *e)
{
	const struct fabric_end *end = &o->fabric.end[fabric_find_end(&o->fabric, x->vguid)];
	struct sm_target t = {
		.switch_guid = x->at.switch_guid,
		.switch_port = x->at.switch_port,
		.node_guid = end->node_guid,
		.port_guid = x->vguid,
		.parked_guid = x->at.parked_guid,
		.lid = x->lid,
		.was_own_lid = x->lid,
	};
	struct sm_assign_reply r;
	struct op_error why;
	uint16_t found = end->lid;
	bool unknown;
	int rc;

	if (found == x->lid)
		return 0;
	rc = ops_assign(o, &t, 1, SM_ASSIGN_ORDERED, &r, &unknown, &why);
	if (!rc) {
		log_notice("vGUID 0x%016" PRIx64 " of %s: LID %u is %u again", x->vguid, x->name,
			   found, x->lid);
		return 0;
	}
	log_error("vGUID 0x%016" PRIx64 " of %s has LID %u instead of %u: %s", x->vguid, x->name,
		  found, x->lid, why.detail);
	if (rc != -EHOSTDOWN)
		return 0;
	*e = why;
	return rc;
}

static bool is_shown_at(const struct ops *o, const struct reg_entry *x, const struct reg_vf *at)
{
	struct reg_vf seen = {0};

	return ops_locate(o, x->vguid, &seen) && ops_same_place(&seen, at);
}

/* The vGUID and its LID are there. A sweep that has met the GUID before the batch came leaves the
 * VF its own LID. That batch has not been carried out, and the same call can be. */
static bool is_whole_at(const struct ops *o, const struct reg_entry *x, const struct reg_vf *at)
{
	return is_shown_at(o, x, at) && ops_lid_at(o, at) == x->lid;
}

/* OpenSM's tables decide: a batch is in them whole or not at all. A vGUID that they do not show has
 * moved if another one of the batch is where it was. */
static bool has_moved(const struct ops *o, const struct undecided *u, const struct reg_entry *x)
{
	struct reg_vf ignored = {0};

	if (is_whole_at(o, x, &x->to))
		return true;
	for (size_t i = 0; i < u->count && !ops_locate(o, x->vguid, &ignored); i++)
		if (u->list[i].intent == REG_MOVE && ops_same_place(&u->list[i].to, &x->at) &&
		    is_whole_at(o, &u->list[i], &x->at))
			return true;
	return false;
}

/* *ret_drop: its bind or unbind has left nothing. */
static struct reg_entry settle(const struct ops *o, const struct undecided *u,
			       const struct reg_entry *was, bool *ret_drop)
{
	uint32_t end = fabric_find_end(&o->fabric, was->vguid);
	struct reg_vf ignored = {0};
	bool present = ops_locate(o, was->vguid, &ignored);
	bool moved = was->intent == REG_MOVE && has_moved(o, u, was);
	struct reg_entry x = *was;

	if (x.intent == REG_MOVE)
		log_notice("vGUID 0x%016" PRIx64 " of %s: an unfinished move to VF %s of %s %s",
			   x.vguid, x.name, x.to.vf, x.to.host,
			   moved ? "was carried out"
				 : "was not carried out; the same call does it, or its way back");
	else
		log_notice("vGUID 0x%016" PRIx64 " of %s: an unfinished %s is %s", x.vguid, x.name,
			   x.intent == REG_BIND ? "bind" : "unbind",
			   present == (x.intent == REG_BIND) ? "settled" : "dropped");
	x.intent = REG_NONE;
	*ret_drop = !present && was->intent != REG_MOVE;
	if (moved) {
		x.at = x.to;
		x.since_ms = wall_ms();
	}
	if (was->intent == REG_BIND && present) {
		if (x.lid != o->fabric.end[end].lid)
			x.mode = ADDRESS_PREPOPULATED;
		x.lid = o->fabric.end[end].lid;
	}
	return x;
}

/* Decides all that is undecided together: VMs of a batch may have each other's VFs. */
static int settle_all(struct ops *o, struct undecided *u)
{
	struct reg_entry *settled AUTO_FREE = calloc(u->count + 1, sizeof *settled);
	unsigned n = 0;
	int rc = settled ? 0 : -ENOMEM;

	for (size_t i = 0; !rc && i < u->count; i++) {
		bool drop;

		if (u->list[i].mode == ADDRESS_SHARED_PORT)
			rc = slots_settle(o, &u->list[i]);
		if (u->list[i].intent == REG_NONE || u->list[i].mode == ADDRESS_SHARED_PORT)
			continue;
		settled[n] = settle(o, u, &u->list[i], &drop);
		if (drop)
			rc = registry_delete(o->registry, u->list[i].vguid);
		else
			n++;
	}
	return rc || !n ? rc : registry_put_all(o->registry, settled, n);
}

/* Restores LIDs, in place, as far as OpenSM's tables go. */
static int restore_lids(struct ops *o, const struct undecided *u, struct op_error *e)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < u->count; i++) {
		const struct reg_entry *x = &u->list[i];

		if (x->intent == REG_NONE && x->mode == ADDRESS_PREPOPULATED &&
		    is_shown_at(o, x, &x->at))
			rc = restore_lid(o, x, e);
		if (!rc && !o->epoch.instance)
			rc = ops_refresh(o, e);
	}
	return rc;
}

int ops_settle(struct ops *o, struct op_error *e)
{
	struct undecided u = {0};
	int rc = registry_each(o->registry, collect, &u);

	parked_load_moves(o);
	rc = rc ? rc : settle_all(o, &u);
	rc = rc ? rc : restore_lids(o, &u, e);
	free(u.list);
	rc = rc ? rc : dynamic_restate(o, e);
	if (!rc) {
		o->stated = (struct backend_epoch){0};
		rc = ops_refresh(o, e);
	}
	return rc && !e->status ? ops_fail_registry(e, rc) : rc;
}
