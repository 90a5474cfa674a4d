/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/moves/ops_int.h"
#include "common/ib.h"
#include "common/log.h"
#include "common/util.h"
#include "vswitch/moves/address.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int dynamic_range_parse(const char *text, struct lid_range *ret_range, const char **ret_why)
{
	unsigned first, last;
	int end = 0;

	*ret_why = "it must be two LIDs with a dash between, as 2000 - 2999";
	if (sscanf(text, "%u - %u %n", &first, &last, &end) != 2 || text[end])
		return -EINVAL;
	*ret_why = "LIDs of ports are 1 to 49151, and the second must not be below the first";
	if (!ib_lid_is_unicast(first) || !ib_lid_is_unicast(last) || last < first)
		return -EINVAL;
	*ret_range = (struct lid_range){(uint16_t)first, (uint16_t)last};
	return 0;
}

unsigned dynamic_lmc(const struct ops *o)
{
	unsigned lmc = 0;

	for (uint32_t i = 0; i < o->fabric.ends; i++)
		if (o->fabric.end[i].lmc > lmc)
			lmc = o->fabric.end[i].lmc;
	return lmc;
}

struct held {
	struct lids lids;
	unsigned lmc;
};

/* LIDs of VMs. */
static void hold_bound(void *arg, const struct reg_entry *x)
{
	struct held *vms = arg;
	struct fabric_error ignored;

	if (x->mode == ADDRESS_DYNAMIC)
		lids_hold(&vms->lids, x->lid, vms->lmc, &ignored);
}

static void hold(struct lids *l, const struct lids *vms, uint16_t lid, unsigned lmc, unsigned *top)
{
	struct fabric_error ignored;
	unsigned last = lid + (1u << lmc) - 1;

	if (!lid)
		return;
	lids_hold(l, lid, lmc, &ignored);
	if (!lids_held(vms, lid) && last > *top)
		*top = last;
}

/* Holds those LIDs of `l` that somebody has; returns the highest that is no VM's. */
static unsigned hold_all(const struct ops *o, const struct lids *vms, struct lids *l)
{
	unsigned top = 0;

	for (unsigned i = 0; i < sizeof l->used / sizeof l->used[0]; i++)
		l->used[i] |= vms->used[i];
	for (uint32_t i = 0; i < o->fabric.switches; i++)
		hold(l, vms, o->fabric.sw[i].lid, o->fabric.sw[i].lmc, &top);
	for (uint32_t i = 0; i < o->fabric.ends; i++)
		hold(l, vms, o->fabric.end[i].lid, o->fabric.end[i].lmc, &top);
	return top;
}

int dynamic_lids(struct ops *o, struct lids *ret_lids, struct op_error *e)
{
	struct fabric_error why;
	struct held vms = {.lmc = dynamic_lmc(o)};
	unsigned top;

	lids_init(&vms.lids, IB_LID_UCAST_MIN, IB_LID_UCAST_MAX, &why);
	*ret_lids = vms.lids;
	if (registry_each(o->registry, hold_bound, &vms))
		return ops_fail_registry(e, -EIO);
	top = hold_all(o, &vms.lids, ret_lids);
	if (!o->lid_range.first && top == IB_LID_UCAST_MAX)
		return ops_fail(e, -ENOSPC, 409, "no-free-lid",
				"LID %u is taken and none is above it: set lid-range", top);
	ret_lids->first = o->lid_range.first ? o->lid_range.first : (uint16_t)(top + 1);
	ret_lids->last = o->lid_range.last ? o->lid_range.last : IB_LID_UCAST_MAX;
	return 0;
}

int dynamic_take(struct lids *lids, unsigned lmc, uint16_t *ret_lid, struct op_error *e)
{
	struct fabric_error why;
	int rc = lids_take(lids, lmc, ret_lid, &why);

	return rc ? ops_fail(e, rc, 409, "no-free-lid",
			     "for the VM's LID: %s; make lid-range larger or unbind others",
			     why.text)
		  : 0;
}

uint64_t dynamic_like(const struct ops *o, const struct reg_vf *at)
{
	uint32_t end = fabric_end_at(&o->fabric, at->switch_guid, at->switch_port);
	uint32_t host = end == FABRIC_NONE ? FABRIC_NONE : address_host(&o->fabric, end);

	return host == end ? at->parked_guid : o->fabric.end[host].port_guid;
}

struct told {
	struct reg_entry x;
	struct sm_target target;
};

struct restate {
	struct ops *o;
	struct told *vm; /* owned */
	unsigned count;
	struct lids lids; /* of which VFs get one whose LID is a VM's; from the first such VF on */
	bool has_lids;
};

static struct sm_target target_of(const struct ops *o, const struct reg_entry *x)
{
	const struct fabric_end *end = &o->fabric.end[fabric_find_end(&o->fabric, x->vguid)];

	if (end->lid != x->lid && !o->mend_ms)
		log_notice("vGUID 0x%016" PRIx64 " of %s: LID %u is to be %u again", x->vguid,
			   x->name, end->lid, x->lid);
	return (struct sm_target){
		.switch_guid = x->at.switch_guid,
		.switch_port = x->at.switch_port,
		.node_guid = end->node_guid,
		.port_guid = x->vguid,
		.parked_guid = x->at.parked_guid,
		.like_guid = dynamic_like(o, &x->at),
		.lid = x->lid,
		.own_lid = x->at.lid,
		.was_own_lid = x->at.lid,
	};
}

static bool append(struct restate *r, struct told one)
{
	struct told *grown = realloc(r->vm, (r->count + 1) * sizeof *grown);

	if (!grown)
		return false;
	r->vm = grown;
	grown[r->count++] = one;
	return true;
}

/* The VF that has the LID of a VM which is elsewhere, or NULL. OpenSM has given it that where a
 * batch was cut short. Ports of hosts keep theirs. */
static const struct fabric_end *find_taker(const struct ops *o, const struct reg_entry *x)
{
	uint32_t end = fabric_find_lid(&o->fabric, x->lid).end;
	const struct fabric_end *e = end == FABRIC_NONE ? NULL : &o->fabric.end[end];
	struct reg_entry other;

	if (!e || e->port_guid == x->vguid || e->sw == FABRIC_NONE ||
	    address_host(&o->fabric, end) == end ||
	    registry_find(o->registry, e->port_guid, &other) != -ENOENT)
		return NULL;
	return e;
}

/* Gives it another one, in the same batch. */
static void add_taker(struct restate *r, const struct fabric_end *e)
{
	struct told taker = {.target = {.switch_guid = r->o->fabric.sw[e->sw].guid,
					.switch_port = e->sw_port,
					.node_guid = e->node_guid,
					.port_guid = e->port_guid,
					.parked_guid = e->port_guid}};
	struct op_error ignored;

	if (!r->has_lids && dynamic_lids(r->o, &r->lids, &ignored))
		return;
	r->has_lids = true;
	if (dynamic_take(&r->lids, dynamic_lmc(r->o), &taker.target.lid, &ignored) ||
	    !append(r, taker))
		return;
	log_notice("%s has LID %u, which is a VM's: it is to have %u", e->desc, e->lid,
		   taker.target.lid);
}

static void add(void *arg, const struct reg_entry *x)
{
	struct restate *r = arg;
	const struct fabric_end *taker;
	struct reg_vf seen = {0};

	if (x->mode != ADDRESS_DYNAMIC || x->intent != REG_NONE ||
	    !ops_locate(r->o, x->vguid, &seen) || !ops_same_place(&seen, &x->at) ||
	    !append(r, (struct told){*x, target_of(r->o, x)}))
		return;
	if ((taker = find_taker(r->o, x)))
		add_taker(r, taker);
}

/* How many of those from i on go in one batch: a VF whose LID is taken goes with the VM. */
static unsigned fit(const struct restate *r, unsigned i)
{
	unsigned n = r->count - i < SM_ASSIGN_MAX ? r->count - i : SM_ASSIGN_MAX;

	return i + n < r->count && !r->vm[i + n].x.vguid ? n - 1 : n;
}

/* Tells OpenSM one batch. The LIDs that wait at the VFs go into the registry where that did not
 * know them. */
static int restate(struct ops *o, struct told *vm, unsigned n, struct sm_assign_reply *reply,
		   struct op_error *e)
{
	struct sm_target target[SM_ASSIGN_MAX];
	bool unknown;
	int rc;

	for (unsigned i = 0; i < n; i++)
		target[i] = vm[i].target;
	if ((rc = ops_assign(o, target, n, SM_ASSIGN_ORDERED, reply, &unknown, e)))
		return rc;
	for (unsigned i = 0; i < n; i++) {
		if (!vm[i].x.vguid || vm[i].x.at.lid == reply->own_lid[i])
			continue;
		vm[i].x.at.lid = reply->own_lid[i];
		registry_put(o->registry, &vm[i].x);
	}
	return 0;
}

int dynamic_restate(struct ops *o, struct op_error *e)
{
	struct sm_assign_reply *reply AUTO_FREE = malloc(sizeof *reply);
	struct restate r = {.o = o};
	struct op_error why;
	bool failed = false;
	int rc = 0;

	if (reply)
		registry_each(o->registry, add, &r);
	for (unsigned i = 0, n; rc != -EHOSTDOWN && i < r.count; i += n) {
		n = fit(&r, i);
		if (!(rc = restate(o, r.vm + i, n, reply, &why)))
			continue;
		failed = true;
		log_at(o->mend_ms ? LOG_DEBUG : LOG_ERROR,
		       "LIDs or routes of %u VMs, 0x%016" PRIx64
		       " first, may not be those of the registry: %s",
		       n, r.vm[i].x.vguid, why.detail);
	}
	free(r.vm);
	o->mend_ms = failed ? now_ms() : 0;
	if (rc != -EHOSTDOWN)
		return 0;
	*e = why;
	return rc;
}
