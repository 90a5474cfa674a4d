/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/moves/parked.h"
#include "sm-helper/moves/ops_int.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS   10000  /* while nothing changes */
#define SETTLE_US 200000 /* between sweeps */

/* Reading in progress; becomes ops.parked. */
struct parked_reading {
	struct parked_entry *entry; /* owned */
	struct probe_route *route;  /* owned; of each entry, to its switch or port; hops -1: none */
	uint32_t entries, room;
	struct parked_guid *guid; /* owned */
	unsigned guids;
	uint64_t since_ms;
	char why[SM_REASON_MAX];
};

static void reading_free(struct parked_reading *l)
{
	free(l->entry);
	free(l->route);
	free(l->guid);
}

/* ---- what the plugin says, and the way to each switch ---- */

static int make_room(struct parked_reading *l, uint32_t entries)
{
	free(l->entry);
	free(l->route);
	l->entries = 0;
	l->room = entries;
	l->entry = calloc(entries + 1u, sizeof *l->entry);
	l->route = calloc(entries + 1u, sizeof *l->route);
	return l->entry && l->route ? 0 : -ENOMEM;
}

static int read_pages(struct ops *o, uint32_t flags, struct parked_reading *l,
		      struct sm_parked_reply *r, char *text)
{
	int rc = backend_parked(o->backend, 0, flags, r, text);

	if (rc || (rc = make_room(l, r->total)))
		return rc;
	l->since_ms = r->since_ms;
	memcpy(l->why, r->why, sizeof l->why);
	while (!rc && r->count && l->entries < l->room) {
		for (uint32_t i = 0; i < r->count && l->entries < l->room; i++)
			l->entry[l->entries++].of = r->entry[i];
		if (l->entries < l->room)
			rc = backend_parked(o->backend, l->entries, flags, r, text);
	}
	return rc;
}

static int read_list(struct ops *o, uint32_t flags, struct parked_reading *l, char *text)
{
	struct sm_parked_reply *r AUTO_FREE = malloc(sizeof *r);

	return r ? read_pages(o, flags, l, r, text) : -ENOMEM;
}

/* ops.lock held: o->fabric has the ways. */
static void find_route(struct ops *o, uint64_t own, struct parked_entry *e, struct probe_route *to)
{
	uint32_t sw = fabric_find_switch(&o->fabric, e->of.switch_guid);

	to->hops = -1;
	if (sw == FABRIC_NONE)
		return;
	memcpy(e->name, o->fabric.sw[sw].desc, sizeof e->name);
	to->hops = fabric_route(&o->fabric, fabric_find_end(&o->fabric, own), sw, to->path);
	if (to->hops >= 0 && !e->of.lid)
		to->path[++to->hops] = e->of.switch_port;
}

static void add_guid(struct ops *o, struct parked_reading *l, const struct reg_vf *at,
		     uint64_t before, uint64_t after)
{
	uint32_t end = fabric_find_end(&o->fabric, at->switch_guid);

	l->guid[l->guids++] = (struct parked_guid){
		.at = *at,
		.lid = end == FABRIC_NONE ? 0 : o->fabric.end[end].lid,
		.before = before,
		.after = after,
	};
}

/* OpenSM keeps no list of these: the moves tell which entries are in doubt. */
static int collect_guids(struct ops *o, struct parked_reading *l)
{
	struct move_request *m AUTO_FREE = calloc(OPS_MOVES_MAX, sizeof *m);
	unsigned moves = m ? parked_moves(&o->parked, m) : 0;
	struct reg_entry x;

	if (!m || !(l->guid = calloc(2 * moves + 1, sizeof *l->guid)))
		return -ENOMEM;
	for (unsigned i = 0; i < moves; i++) {
		if (registry_find(o->registry, m[i].vguid, &x) || x.mode != ADDRESS_SHARED_PORT)
			continue;
		add_guid(o, l, &m[i].from, x.vguid, 0);
		add_guid(o, l, &m[i].to, 0, x.vguid);
	}
	return 0;
}

static int collect(struct ops *o, uint32_t flags, struct parked_reading *l, struct op_error *e)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&o->lock);
	char text[BACKEND_ERROR_MAX] = "no memory", ignored[PROBE_ERROR_MAX];
	uint64_t own = 0;
	int rc = ops_start(o, 0, e);

	rc = rc ? rc : ops_begin(o, e);
	if (rc)
		return rc;
	if ((rc = read_list(o, flags, l, text)) || (rc = collect_guids(o, l)))
		return ops_fail_plugin(e, rc, text);
	probe_own_guid(o->probe, &own, ignored);
	for (uint32_t i = 0; i < l->entries; i++)
		find_route(o, own, &l->entry[i], &l->route[i]);
	return 0;
}

/* ---- what the switches say ---- */

static bool same_block(const struct parked_reading *l, uint32_t i, uint32_t k)
{
	const struct sm_parked_entry *a = &l->entry[i].of, *b = &l->entry[k].of;

	return a->lid && b->lid && a->switch_guid == b->switch_guid &&
	       a->lid / IB_LFT_BLOCK == b->lid / IB_LFT_BLOCK;
}

/* The plugin has them by switch and LID: those of one block follow each other. */
static unsigned want_blocks(const struct parked_reading *l, struct probe_block *b, uint32_t *number)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < l->entries; i++) {
		if (!l->entry[i].of.lid || l->route[i].hops < 0)
			continue;
		if (!i || !same_block(l, i - 1, i)) {
			b[n].to = l->route[i];
			b[n++].block = l->entry[i].of.lid / IB_LFT_BLOCK;
		}
		number[i] = n - 1;
	}
	return n;
}

static void read_lfts(struct ops *o, struct parked_reading *l)
{
	struct probe_block *b AUTO_FREE = calloc(l->entries + 1u, sizeof *b);
	uint32_t *number AUTO_FREE = calloc(l->entries + 1u, sizeof *number);
	char ignored[PROBE_ERROR_MAX];
	unsigned n = b && number ? want_blocks(l, b, number) : 0;

	if (n)
		probe_lft_blocks(o->probe, b, n, ignored);
	for (uint32_t i = 0; n && i < l->entries; i++) {
		struct parked_entry *e = &l->entry[i];

		if (!e->of.lid || l->route[i].hops < 0)
			continue;
		e->read = b[number[i]].read;
		e->holds = b[number[i]].data[e->of.lid % IB_LFT_BLOCK];
	}
}

static void read_ports(struct ops *o, struct parked_reading *l)
{
	char ignored[PROBE_ERROR_MAX];

	for (uint32_t i = 0; i < l->entries; i++) {
		struct parked_entry *e = &l->entry[i];
		struct probe_port port;

		if (e->of.lid || l->route[i].hops < 0)
			continue;
		e->read = !probe_port_info(o->probe, &l->route[i], 0, &port, ignored);
		e->holds = e->read ? port.lid : 0;
	}
}

static void read_guids(struct ops *o, struct parked_reading *l)
{
	char ignored[PROBE_ERROR_MAX];

	for (unsigned i = 0; i < l->guids; i++) {
		struct parked_guid *g = &l->guid[i];

		g->read = g->lid && !probe_guid(o->probe, g->lid, g->at.switch_guid,
						g->at.switch_port, &g->holds, ignored);
	}
}

static int open_first(const void *va, const void *vb)
{
	const struct parked_entry *a = va, *b = vb;

	if (a->of.settled != b->of.settled)
		return a->of.settled - b->of.settled;
	if (a->of.switch_guid != b->of.switch_guid)
		return a->of.switch_guid < b->of.switch_guid ? -1 : 1;
	return (int)a->of.lid - b->of.lid;
}

/* Takes what has been seen from l. */
static void publish(struct parked *k, struct parked_reading *l)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&k->lock);

	if (k->entries && !l->entries)
		log_notice("what a failed batch had left is settled: all switches hold what "
			   "OpenSM wants");
	if (l->entries)
		qsort(l->entry, l->entries, sizeof *l->entry, open_first);
	free(k->entry);
	free(k->guid);
	k->guid = TAKE(l->guid);
	k->guids = l->guids;
	k->entry = TAKE(l->entry);
	k->entries = l->entries;
	k->looked_ms = wall_ms();
	if (!l->entries)
		return;
	k->since_ms = l->since_ms;
	memcpy(k->why, l->why, sizeof k->why);
}

static int look(struct ops *o, uint32_t flags, struct op_error *e)
{
	struct parked_reading l = {0};
	int rc = collect(o, flags, &l, e);

	if (!rc) {
		read_lfts(o, &l);
		read_ports(o, &l);
		read_guids(o, &l);
		publish(&o->parked, &l);
	}
	reading_free(&l);
	return rc;
}

int parked_look(struct ops *o, struct op_error *e)
{
	return look(o, 0, e);
}

static bool holds_any(struct parked *k)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&k->lock);

	return k->entries || k->moves;
}

static bool is_due(struct ops *o)
{
	bool any = holds_any(&o->parked);
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);

	if (!o->parked_at_sm && !any)
		return false;
	if (o->parked_seen.instance == o->epoch.instance &&
	    o->parked_seen.generation == o->epoch.generation &&
	    now_ms() < o->parked_looked_ms + LOOK_MS)
		return false;
	o->parked_seen = o->epoch;
	o->parked_looked_ms = now_ms();
	return true;
}

void parked_watch(struct ops *o)
{
	struct op_error ignored;

	if (is_due(o))
		parked_look(o, &ignored);
}

/* ---- the way out ---- */

static int sweep(struct ops *o, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&o->lock);
	int rc = ops_start(o, 0, e);

	rc = rc ? rc : ops_begin(o, e);
	return rc ? rc : ops_sweep(o, e);
}

static int check_settled(struct parked *k, struct op_error *e)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&k->lock);

	if (!k->entries)
		return 0;
	return ops_fail(e, -EBUSY, 503, "still-parked",
			"switch %s (0x%016" PRIx64 ") has not answered after heavy sweeps for %u "
			"ms: mend it or take its links down, and call again",
			k->entry[0].name, k->entry[0].of.switch_guid, OPS_DEADLINE_MS);
}

int parked_settle(struct ops *o, struct op_error *e)
{
	uint64_t give_up = now_us() + OPS_DEADLINE_MS * 1000ull;
	int rc = parked_look(o, e);

	while (!rc && (rc = check_settled(&o->parked, e)) && now_us() < give_up) {
		*e = (struct op_error){0};
		if (!(rc = sweep(o, e)))
			rc = look(o, SM_PARKED_DROP_GONE, e);
		usleep(SETTLE_US);
	}
	return rc;
}
