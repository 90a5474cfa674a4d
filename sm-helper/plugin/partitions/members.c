/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A change of a partition's members (SM_OP_MEMBERS): list, OpenSM's records and P_Key tables of
 * ports that show the GUIDs now, or nothing of it. */
#include "sm-helper/plugin/distinguisher/distinguisher.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/partitions/pkeys.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

#include <opensm/osm_log.h>

#define UNDO_US  5000000
#define ALL_SMPS UINT32_MAX

struct member_change {
	struct plugin *p;
	const struct sm_members_request *req;
	struct sm_members_reply *r;
	enum sm_member_as before[SM_ASSIGN_MAX];
	osm_port_t *port[SM_ASSIGN_MAX]; /* that shows the GUID; NULL: none does */
	struct pkeys pkeys;
	struct lock_time lock_time;
};

/* Sets all members, or with `back` what was listed before. Lock held. */
static void set_members(struct member_change *b, bool back)
{
	const struct sm_members_request *req = b->req;
	uint32_t changed = 0;

	for (uint32_t i = 0; i < req->count; i++)
		changed += partitions_set_member(b->p, req->pkey, req->member[i].guid,
						 back ? b->before[i] : req->member[i].as);
	b->r->changed = back ? 0 : changed;
}

static int check(struct member_change *b)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < b->req->count; i++) {
		const struct sm_member *m = &b->req->member[i];

		rc = partitions_check(b->p, b->req->pkey, m, &b->r->h);
		b->before[i] = partitions_listed(b->p, b->req->pkey, m->guid);
	}
	return rc;
}

static bool is_planned(const struct member_change *b, const osm_port_t *port)
{
	for (unsigned i = 0; i < b->pkeys.count; i++)
		if (b->pkeys.port[i].own.physp == port->p_physp)
			return true;
	return false;
}

/* Plans the tables of the ports, which show the GUIDs as their own or besides. Lock held. */
static int plan(struct member_change *b)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < b->req->count; i++) {
		osm_port_t *port = partitions_find_port(b->p, cl_hton64(b->req->member[i].guid));
		struct policy_pkeys keys;

		b->port[i] = port;
		if (!port || !port->p_physp || is_planned(b, port))
			continue;
		partitions_pkeys(b->p, port->guid, port, &keys);
		rc = pkeys_add(&b->pkeys, port->p_physp, &keys, port->p_physp, &b->r->h);
	}
	return rc;
}

/* OpenSM's maps, of the ports that are concerned. Lock held exclusively. */
static void hand_over(struct member_change *b)
{
	for (uint32_t i = 0; i < b->req->count; i++) {
		osm_port_t *port = b->port[i];
		struct policy_pkeys keys;

		if (!port || !port->p_physp)
			continue;
		partitions_pkeys(b->p, port->guid, port, &keys);
		if (partitions_hand_over(b->p, port->guid, port->p_physp, &keys))
			plugin_want_sweep(b->p);
	}
}

/* The whole change in OpenSM's memory, or with `back` what was there before. */
static int apply(struct member_change *b, bool back)
{
	int rc;

	lock_time_begin(b->p, &b->lock_time);
	set_members(b, back);
	rc = back ? 0 : plan(b);
	if (rc)
		set_members(b, true);
	else {
		pkeys_apply(&b->pkeys, back);
		hand_over(b);
	}
	lock_time_end(b->p, &b->lock_time);
	return rc;
}

static int undo(struct member_change *b)
{
	struct sm_reply_head second = {0};
	size_t at = strlen(b->r->h.reason);
	int rc;

	apply(b, true);
	partitions_store(b->p);
	rc = pkeys_send(&b->pkeys, true, ALL_SMPS, now_us() + UNDO_US, &second);
	snprintf(b->r->h.reason + at, sizeof b->r->h.reason - at, "%s",
		 rc ? "; taking it back failed as well: a heavy sweep is requested"
		    : "; taken back");
	if (!rc)
		return -EREMOTEIO;
	lock_time_begin(b->p, &b->lock_time);
	pkeys_doubt(&b->pkeys);
	lock_time_end(b->p, &b->lock_time);
	plugin_want_sweep(b->p);
	return -EIO;
}

static int run(struct member_change *b, uint64_t deadline_us)
{
	int rc = check(b);

	if (rc || (rc = apply(b, false)))
		return rc;
	if (partitions_store(b->p))
		rc = plugin_refuse(&b->r->h, -EIO, "OpenSM's cache directory cannot be written");
	rc = rc ? rc : pkeys_send(&b->pkeys, false, ALL_SMPS, deadline_us, &b->r->h);
	b->r->pkey_smps = b->pkeys.sent;
	if (rc)
		rc = undo(b);
	plugin_changed(b->p);
	distinguisher_wake(b->p);
	return rc;
}

/* A standby keeps the list alone: it has no say about ports. */
static int store(struct member_change *b)
{
	if (b->p->osm->subn.sm_state == IB_SMINFO_STATE_MASTER)
		return plugin_refuse(&b->r->h, -EPERM, "this OpenSM is master itself");
	cl_plock_acquire(&b->p->osm->lock);
	set_members(b, false);
	cl_plock_release(&b->p->osm->lock);
	return partitions_store(b->p)
		       ? plugin_refuse(&b->r->h, -EIO, "OpenSM's cache directory cannot be written")
		       : 0;
}

int plugin_members(struct plugin *p, const struct sm_members_request *req,
		   struct sm_members_reply *r)
{
	static struct member_change b; /* large, and only our thread comes here */
	uint64_t deadline_us = now_us() + req->deadline_ms * 1000ull;
	int rc;

	if (plugin_gate_enter(p, deadline_us))
		return plugin_refuse(&r->h, -EBUSY, "a heavy sweep has run for over %u ms",
				     req->deadline_ms);
	b = (struct member_change){.p = p, .req = req, .r = r, .pkeys.p = p};
	if (req->flags & SM_MEMBERS_STORE)
		rc = store(&b);
	else
		rc = plugin_refuse_state(p, &r->h);
	if (!rc && !(req->flags & SM_MEMBERS_STORE))
		rc = run(&b, deadline_us);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	plugin_gate_leave(p);
	pkeys_free(&b.pkeys);
	return rc ? rc : (int)sizeof *r;
}
