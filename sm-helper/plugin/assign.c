/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A batch of port assignments. OpenSM's lock is shared while it is planned, and one exclusive hold
 * changes all tables. LFT blocks and PortInfo are sent and answered without the lock, and what
 * failed is undone. */
#include "sm-helper/plugin/deliver.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/parked.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/paths.h"
#include "sm-helper/plugin/partitions/pkeys.h"
#include "sm-helper/plugin/tables.h"
#include "common/ib.h"
#include "common/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include <opensm/osm_db_pack.h>
#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

#define UNDO_US       5000000
#define ALL_SMPS      UINT32_MAX
#define LIDS_STALE_US 1000000             /* how old guid2lid may get while batches go on */
#define MAKE_MAX      (4 * SM_ASSIGN_MAX) /* the plan takes MOVES_MAX of them */

struct assignment {
	struct plugin *p;
	const struct sm_assign_request *req;
	struct place place[SM_ASSIGN_MAX];
	unsigned count;
	struct lfts lfts; /* its owner */
	struct delivery delivery;
	struct pkeys pkeys;                      /* its owner; of the places, in their order */
	struct policy_pkeys keys[SM_ASSIGN_MAX]; /* of the GUIDs that the places want */
	struct paths paths[SM_ASSIGN_MAX];       /* paths of GUIDs that stay, before the batch */
	struct lock_time lock_time;
};

static void lock_tables(struct assignment *b)
{
	lock_time_begin(b->p, &b->lock_time);
}

static void unlock_tables(struct assignment *b)
{
	lock_time_end(b->p, &b->lock_time);
}

static bool place_changes(const struct place *pl)
{
	return pl->before.port_guid != pl->want.port_guid ||
	       pl->before.node_guid != pl->want.node_guid || pl->before.lid != pl->want.lid ||
	       pl->before.like_guid != pl->home.like;
}

/* Some place has this LID afterwards. */
static bool wanted_lid(const struct assignment *b, uint16_t lid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->place[i].want.lid == lid || b->place[i].home.own == lid)
			return true;
	return false;
}

static struct move take_entries(const struct assignment *b, uint16_t lid, uint16_t like)
{
	uint8_t lmc = b->p->osm->subn.opt.lmc;

	return (struct move){lid, like, FABRIC_NONE, 0, true, FABRIC_NONE, FABRIC_NONE, lmc, lmc};
}

/* A copy, which is a VM's LID, takes the entries of the port that it is like, but at their common
 * switch. */
static struct move take_copy(const struct assignment *b, const struct place *pl)
{
	struct move m = take_entries(b, pl->want.lid, pl->row);

	m.unused = false;
	if (pl->like) {
		m.like = cl_ntoh16(pl->like->lid);
		m.at_sw = lfts_index(&b->lfts, pl->sw);
		m.at_port = pl->want.switch_port;
	}
	return m;
}

/* The place's own LID takes the entries of the one that was the place's own. Nobody sends to it,
 * unless a VM has it. */
static struct move take_own(const struct assignment *b, const struct place *pl)
{
	struct move m = take_entries(b, pl->home.own, pl->row);

	m.unused = pl->home.like || pl->want.port_guid == pl->want.parked_guid;
	return m;
}

/* A LID that no place has any more loses its entries, as the next sweep would do it. */
static unsigned make_moves(const struct assignment *b, struct move move[static MAKE_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; i < b->count; i++) {
		const struct place *pl = &b->place[i];

		if (pl->home.own != pl->row)
			move[n++] = take_own(b, pl);
		if (pl->home.like)
			move[n++] = take_copy(b, pl);
		if (!wanted_lid(b, pl->row))
			move[n++] = take_entries(b, pl->row, 0);
		if (pl->before.lid != pl->row && !wanted_lid(b, pl->before.lid))
			move[n++] = take_entries(b, pl->before.lid, 0);
	}
	return n;
}

/* Places, conflicts, SMPs. Reads only. */
static int resolve(struct assignment *b, struct sm_reply_head *h)
{
	struct move move[MAKE_MAX];
	int rc;

	b->count = b->req->count;
	b->delivery = (struct delivery){.p = b->p,
					.lfts = &b->lfts,
					.place = b->place,
					.count = b->count,
					.ordered = b->req->flags & SM_ASSIGN_ORDERED,
					.lock_time = &b->lock_time};
	for (unsigned i = 0; i < b->count; i++) {
		b->place[i].want = b->req->target[i];
		if ((rc = tables_find(b->p, &b->place[i], h)))
			return rc;
	}
	if ((rc = tables_check(b->p, b->place, b->count, h)) || (rc = lfts_open(b->p, &b->lfts, h)))
		return rc;
	return lfts_plan(&b->lfts, move, make_moves(b, move), b->req->flags & SM_ASSIGN_ORDERED, h);
}

/* OpenSM's records of P_Keys, and its maps of members. Tables locked. */
static void apply_pkeys(struct assignment *b, bool back)
{
	pkeys_apply(&b->pkeys, back);
	for (unsigned i = 0; i < b->pkeys.count; i++)
		partitions_hand_over(b->p, cl_hton64(b->place[i].before.port_guid), NULL, NULL);
	for (unsigned i = 0; i < b->pkeys.count; i++) {
		const struct place *pl = &b->place[i];
		ib_net64_t guid = cl_hton64(back ? pl->before.port_guid : pl->want.port_guid);
		struct policy_pkeys was;

		if (back)
			partitions_pkeys(b->p, guid, NULL, &was);
		if (partitions_hand_over(b->p, guid, pl->physp, back ? &was : &b->keys[i]))
			plugin_want_sweep(b->p);
	}
}

/* Everything that was sent is sent again with what stood there before. -EREMOTEIO: all is as it
 * was; -EIO: not. */
static int undo(struct assignment *b, struct sm_reply_head *h, uint64_t deadline_us)
{
	struct sm_reply_head second = {0};
	int rc;

	lock_tables(b);
	tables_assign(b->p, b->place, b->count, true);
	apply_pkeys(b, true);
	lfts_turn(&b->lfts);
	lfts_want(&b->lfts);
	deliver_lids(&b->delivery, true);
	unlock_tables(b);
	rc = deliver_lfts(&b->delivery, deadline_us);
	if (!rc)
		rc = deliver_check(&b->delivery, &second);
	if (pkeys_send(&b->pkeys, true, ALL_SMPS, deadline_us, &second))
		rc = rc ? rc : -EIO;
	size_t at = strlen(h->reason);
	snprintf(h->reason + at, sizeof h->reason - at, "%s",
		 rc ? "; taking it back failed as well: a heavy sweep is requested"
		    : "; taken back");
	if (!rc)
		return -EREMOTEIO;
	lock_tables(b);
	pkeys_doubt(&b->pkeys);
	unlock_tables(b);
	parked_keep(b->p, &b->lfts, b->place, b->count, b->req->flags & SM_ASSIGN_BACK, h->reason);
	plugin_want_sweep(b->p);
	return -EIO;
}

/* The place of a GUID of the batch before it, or NULL. */
static const struct place *place_before(const struct assignment *b, uint64_t guid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->place[i].before.port_guid == guid)
			return &b->place[i];
	return NULL;
}

/* The tables of P_Keys that the places shall have. Reads only. */
static int plan_pkeys(struct assignment *b, struct sm_reply_head *h)
{
	int rc = 0;

	b->pkeys.p = b->p;
	if (b->req->flags & SM_ASSIGN_NO_PKEYS)
		return 0;
	for (unsigned i = 0; !rc && i < b->count; i++) {
		const struct place *to = &b->place[i], *from = place_before(b, to->want.port_guid);

		partitions_pkeys(b->p, cl_hton64(to->want.port_guid), NULL, &b->keys[i]);
		rc = pkeys_add(&b->pkeys, to->physp, &b->keys[i], from ? from->physp : to->physp,
			       h);
	}
	return rc;
}

/* Paths of GUIDs that go from one place to another, where the move may change them. */
static void read_paths(struct assignment *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		const struct place *to = &b->place[i], *from = place_before(b, to->want.port_guid);

		if (from && from != to &&
		    !(paths_uniform(b->p) && paths_same_link(b->p, from->physp, to->physp)))
			b->paths[i] = paths_read(b->p, to->want.port_guid);
	}
}

/* Plans what is to be done, and notes the paths as they are before. While the gate is held, OpenSM
 * drops and finds nothing, so what is found stays valid without the lock. */
static int prepare(struct assignment *b, struct sm_reply_head *h)
{
	osm_opensm_t *osm = b->p->osm;
	int rc;

	cl_plock_acquire(&osm->lock);
	rc = resolve(b, h);
	if (!rc)
		rc = plan_pkeys(b, h);
	cl_plock_release(&osm->lock);
	if (!rc)
		read_paths(b);
	return rc;
}

static int put_lids(struct assignment *b, struct sm_assign_reply *r)
{
	if (!(b->req->flags & SM_ASSIGN_NO_SWAP)) {
		lfts_want(&b->lfts);
		return lfts_send_tops(b->p, &b->lfts) || deliver_lids(&b->delivery, false)
			       ? plugin_refuse(&r->h, -EIO, "OpenSM could not send an SMP")
			       : 0;
	}
	osm_log(&b->p->osm->log, OSM_LOG_SYS,
		"ibvmig: FAULT no-swap: LFTs and PortInfo are left alone\n");
	return 0;
}

/* Records what is about to be, for who comes after this process. Tables locked. */
static int record(struct assignment *b, struct sm_reply_head *h)
{
	struct sm_target t[SM_ASSIGN_MAX];
	int rc;

	for (unsigned i = 0; i < b->count; i++) {
		t[i] = b->place[i].want;
		t[i].was_guid = b->place[i].before.port_guid;
		t[i].was_lid = b->place[i].before.lid;
	}
	rc = master_record(b->p, t, b->count);
	return rc ? plugin_refuse(h, rc, "OpenSM's cache directory cannot be written: %s",
				  strerror(-rc))
		  : 0;
}

/* Fault: the first die_at SMPs of the batch, then the end. Tables changed, not locked. */
static void cut_short(struct assignment *b)
{
	unsigned smps = (unsigned)b->p->die_at, lids = 0;
	struct sm_reply_head h = {0};

	if (b->lfts.plan.smps > smps)
		b->lfts.plan.smps = smps;
	lfts_send(b->p, &b->lfts, now_us() + UNDO_US);
	lock_tables(b);
	for (unsigned i = 0; i < b->count && b->lfts.plan.smps + lids < smps; i++)
		if (b->place[i].want.lid != b->place[i].before.lid) {
			deliver_lid(b->p, &b->place[i], b->place[i].want.lid);
			lids++;
		}
	unlock_tables(b);
	deliver_await(b->p, now_us() + UNDO_US);
	pkeys_send(&b->pkeys, false, smps - b->lfts.plan.smps - lids, now_us() + UNDO_US, &h);
	master_die(b->p, "in the middle of a batch");
}

static bool is_cut_short(const struct assignment *b)
{
	return b->p->die_at >= 0 && b->p->die_at != PLUGIN_DIE_STORE &&
	       (b->lfts.plan.smps || b->pkeys.differ);
}

/* Changes all tables in one hold of the lock. *ret_done: something has been changed. */
static int apply(struct assignment *b, struct sm_assign_reply *r, bool *ret_done)
{
	int rc = prepare(b, &r->h);
	bool changes = b->pkeys.differ;

	*ret_done = false;
	for (unsigned i = 0; !rc && i < b->count; i++)
		changes = changes || place_changes(&b->place[i]);
	if (rc || !changes)
		return rc;
	lock_tables(b);
	rc = lfts_grow(&b->lfts, &r->h);
	if (!rc && lfts_stale(&b->lfts))
		rc = plugin_refuse(&r->h, -ESTALE, "OpenSM has routed anew since it was looked at");
	rc = rc ? rc : record(b, &r->h);
	if (!rc) {
		tables_assign(b->p, b->place, b->count, false);
		apply_pkeys(b, false);
		if (is_cut_short(b))
			lfts_want(&b->lfts);
		else
			rc = put_lids(b, r);
		*ret_done = true;
	}
	unlock_tables(b);
	if (*ret_done && is_cut_short(b))
		cut_short(b);
	return rc;
}

static void report_path(struct assignment *b, unsigned i, struct sm_assign_reply *r)
{
	uint64_t guid = b->place[i].want.port_guid;
	struct paths after;
	unsigned changed;

	after = paths_read(b->p, guid);
	changed = paths_differ(&b->paths[i], &after, guid, r);
	paths_free(&after);
	r->changed[i] = (uint16_t)changed;
	r->paths_changed += changed;
	if (!changed)
		return;
	lock_tables(b);
	paths_report(b->p, SM_REPATH_TRAP, guid);
	unlock_tables(b);
	r->repath_notices++;
}

static void report_paths(struct assignment *b, struct sm_assign_reply *r)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->paths[i].count)
			report_path(b, i, r);
}

/* Files, and with fsync: never with the lock held. Files that grow with the subnet wait for
 * plugin_store(). guid2lid may wait since a new master goes by what the ports show
 * (plugin/master.c), and the file of neighbours since OpenSM only complains where that is old. */
static void store_files(struct plugin *p)
{
	homes_store(p);
	p->neighbors_stale = true;
	if (!p->lids_stale_us)
		p->lids_stale_us = now_us();
}

void plugin_store(struct plugin *p, bool idle)
{
	bool sync = p->osm->subn.opt.fsync_high_avail_files;

	if (p->lids_stale_us && (idle || now_us() > p->lids_stale_us + LIDS_STALE_US)) {
		osm_db_store(p->osm->sm.lid_mgr.p_g2l, sync);
		p->lids_stale_us = 0;
	}
	if (p->neighbors_stale && idle) {
		osm_db_store(p->osm->subn.p_neighbor, sync);
		p->neighbors_stale = false;
	}
}

/* OpenSM may be mistaken about P_Keys where all is so already. A port that cannot be asked, or does
 * not keep them, is left to a heavy sweep, which looks only at tables in doubt. */
static int keep_pkeys(struct assignment *b, struct sm_assign_reply *r, uint64_t deadline_us)
{
	int rc = pkeys_send(&b->pkeys, false, ALL_SMPS, deadline_us, &r->h);

	r->pkey_smps = b->pkeys.sent;
	if (!rc)
		return 0;
	lock_tables(b);
	pkeys_doubt(&b->pkeys);
	unlock_tables(b);
	plugin_want_sweep(b->p);
	return rc;
}

static int run(struct assignment *b, struct sm_assign_reply *r, uint64_t deadline_us)
{
	bool done, swap = !(b->req->flags & SM_ASSIGN_NO_SWAP);
	int rc = apply(b, r, &done);

	if (!done)
		return rc ? rc : keep_pkeys(b, r, deadline_us);
	if (!rc && swap && (rc = deliver_lfts(&b->delivery, deadline_us)))
		plugin_refuse(&r->h, rc, "not all switches have answered in time");
	if (b->lfts.sent) {
		r->lft_smps = b->lfts.plan.smps;
		r->waves = b->lfts.plan.waves;
		r->switch_info_smps = b->lfts.tops;
		r->switches_updated = b->lfts.plan.switches;
	}
	r->port_info_smps = b->delivery.port_infos;
	if (!rc)
		rc = deliver_check(&b->delivery, &r->h);
	if (!rc)
		rc = pkeys_send(&b->pkeys, false, ALL_SMPS, deadline_us, &r->h);
	r->pkey_smps = b->pkeys.sent;
	if (rc)
		rc = undo(b, &r->h, now_us() + UNDO_US);
	else if (swap)
		report_paths(b, r);
	store_files(b->p);
	if (b->p->die_at == PLUGIN_DIE_STORE && b->lfts.sent)
		master_die(b->p, "after a batch");
	if (rc != -EIO) { /* else it is not known what stands where, and the record may help */
		lock_tables(b);
		master_record(b->p, NULL, 0);
		unlock_tables(b);
	}
	plugin_changed(b->p);
	if (!rc && (b->req->flags & SM_ASSIGN_FORCED_SWEEP)) {
		osm_log(&b->p->osm->log, OSM_LOG_SYS, "ibvmig: FAULT forced-sweep\n");
		plugin_want_sweep(b->p);
	}
	return rc;
}

int plugin_sweep(struct plugin *p, struct sm_sweep_reply *r)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&p->gate);

	if (p->osm->subn.sm_state != IB_SMINFO_STATE_MASTER)
		return plugin_refuse(&r->h, -EHOSTDOWN, "this OpenSM is not the master");
	osm_log(&p->osm->log, OSM_LOG_INFO, "ibvmig: a heavy sweep is asked for\n");
	plugin_want_sweep(p);
	return sizeof *r;
}

int plugin_assign(struct plugin *p, const struct sm_assign_request *req, struct sm_assign_reply *r)
{
	static struct assignment b; /* large, and only our thread comes here */
	uint64_t start = now_us(), deadline = start + req->deadline_ms * 1000ull;
	int rc;

	if (plugin_gate_enter(p, deadline))
		return plugin_refuse(&r->h, -EBUSY, "a heavy sweep has run for over %u ms",
				     req->deadline_ms);
	b = (struct assignment){.p = p, .req = req};
	master_arm(p);
	r->instance = p->instance;
	r->generation_before = atomic_load(&p->count.generation);
	rc = plugin_refuse_state(p, &r->h);
	if (!rc)
		rc = run(&b, r, deadline);
	r->switches_total = (uint32_t)cl_qmap_count(&p->osm->subn.sw_guid_tbl);
	r->generation = atomic_load(&p->count.generation);
	plugin_gate_leave(p);
	for (unsigned i = 0; i < b.count; i++) {
		r->before[i] = b.place[i].before;
		r->lid[i] = b.place[i].want.lid;
		r->own_lid[i] = b.place[i].home.own;
		paths_free(&b.paths[i]);
	}
	lfts_free(&b.lfts);
	pkeys_free(&b.pkeys);
	r->pkey_us = b.pkeys.us;
	r->lock_us = b.lock_time.longest_us;
	r->elapsed_us = now_us() - start;
	return rc ? rc
		  : (int)(offsetof(struct sm_assign_reply, path) +
			  r->path_count * sizeof r->path[0]);
}
