/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/ib.h"
#include "common/util.h"
#include "sm-helper/plugin/parked.h"

#include <stdlib.h>
#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

struct parked_list {
	struct sm_parked_entry *entry; /* owned */
	uint32_t count, room;
	uint64_t since_ms;
	char why[SM_REASON_MAX];
};

static void add(struct parked_list *k, const struct sm_parked_entry *e)
{
	if (k->count < k->room)
		k->entry[k->count++] = *e;
}

/* The entries of one block that the batch was to change. */
static void add_block(struct parked_list *k, uint64_t switch_guid, const struct moves_smp *s)
{
	for (unsigned i = 0; i < IB_LFT_BLOCK; i++) {
		struct sm_parked_entry e = {
			.switch_guid = switch_guid,
			.lid = (uint16_t)(s->block * IB_LFT_BLOCK + i),
			.before = s->after[i],
			.after = s->before[i],
		};

		if (e.before != e.after)
			add(k, &e);
	}
}

static void add_port(struct parked_list *k, const struct place *pl)
{
	struct sm_parked_entry e = {
		.switch_guid = pl->want.switch_guid,
		.switch_port = pl->want.switch_port,
		.before = pl->before.lid,
		.after = pl->want.lid,
	};

	if (e.before != e.after)
		add(k, &e);
}

static void turn(struct sm_parked_entry *e)
{
	uint16_t before = e->before;

	e->before = e->after;
	e->after = before;
}

/* How many entries of a plan's blocks change: in each never more than its LIDs. */
static uint32_t room_for(const struct lfts *l, unsigned places)
{
	return l->plan.smps * (l->plan.moves < IB_LFT_BLOCK ? l->plan.moves : IB_LFT_BLOCK) +
	       places;
}

/* Order: by switch, then by what of it. */
static int compare(const void *va, const void *vb)
{
	const struct sm_parked_entry *a = va, *b = vb;

	if (a->switch_guid != b->switch_guid)
		return a->switch_guid < b->switch_guid ? -1 : 1;
	if (a->lid != b->lid)
		return a->lid < b->lid ? -1 : 1;
	return (int)a->switch_port - b->switch_port;
}

/* Adds what an earlier batch has left, but at the places that the new one tells of. */
static void add_old(struct parked_list *k, const struct parked_list *old)
{
	uint32_t news = k->count;

	qsort(k->entry, news, sizeof *k->entry, compare);
	for (uint32_t i = 0; i < old->count; i++)
		if (!bsearch(&old->entry[i], k->entry, news, sizeof *k->entry, compare))
			add(k, &old->entry[i]);
}

void parked_keep(struct plugin *p, const struct lfts *l, const struct place *places, unsigned count,
		 bool back, const char *why)
{
	struct parked_list *old = p->parked, *k = calloc(1, sizeof *k);

	if (k)
		k->room = room_for(l, count) + (old ? old->count : 0);
	if (!k || !(k->entry = calloc(k->room + 1, sizeof *k->entry))) {
		osm_log(&p->osm->log, OSM_LOG_ERROR,
			"ibvmig: no memory to keep what a failed batch has left\n");
		free(k);
		return;
	}
	for (unsigned i = 0; i < l->plan.smps; i++)
		add_block(k, cl_ntoh64(osm_node_get_node_guid(l->sw[l->plan.smp[i].sw]->p_node)),
			  &l->plan.smp[i]);
	for (unsigned i = 0; i < count; i++)
		add_port(k, &places[i]);
	for (uint32_t i = 0; back && i < k->count; i++)
		turn(&k->entry[i]);
	if (old)
		add_old(k, old);
	k->since_ms = wall_ms();
	snprintf(k->why, sizeof k->why, "%s", why);
	parked_free(p);
	p->parked = k;
}

void parked_free(struct plugin *p)
{
	if (p->parked)
		free(p->parked->entry);
	free(p->parked);
	p->parked = NULL;
}

/* The answer to an LFT block makes OpenSM's idea of it equal to what it wants. */
static void look_at_entry(const osm_switch_t *sw, struct sm_parked_entry *e)
{
	if (!sw->new_lft || e->lid >= sw->lft_size)
		return;
	e->wanted = sw->new_lft[e->lid];
	e->settled = sw->lft[e->lid] == e->wanted;
}

/* The next sweep reads PortInfo, and sets it where the LID is another one. */
static void look_at_port(struct plugin *p, const osm_switch_t *sw, struct sm_parked_entry *e)
{
	osm_physp_t *near = e->switch_port < osm_node_get_num_physp(sw->p_node)
				    ? osm_node_get_physp_ptr(sw->p_node, e->switch_port)
				    : NULL;
	const osm_physp_t *port = near ? near->p_remote_physp : NULL;
	const osm_port_t *who = port ? osm_get_port_by_guid(&p->osm->subn, port->port_guid) : NULL;

	e->gone = !who;
	if (!who)
		return;
	e->wanted = cl_ntoh16(who->lid);
	e->settled = port->port_info.base_lid == who->lid &&
		     port->port_info.m_key_violations != cl_hton16(PLUGIN_UNANSWERED);
}

static void look_at(struct plugin *p, struct sm_parked_entry *e)
{
	const osm_switch_t *sw = osm_get_switch_by_guid(&p->osm->subn, cl_hton64(e->switch_guid));

	e->settled = false;
	e->gone = !sw;
	if (sw && e->lid)
		look_at_entry(sw, e);
	else if (sw)
		look_at_port(p, sw, e);
}

/* Looks at all entries as OpenSM has them now; they are forgotten where nothing is open. */
static void look(struct plugin *p, bool drop_gone)
{
	struct parked_list *k = p->parked;
	bool open = false;

	if (!k)
		return;
	cl_plock_acquire(&p->osm->lock);
	for (uint32_t i = 0; i < k->count; i++) {
		look_at(p, &k->entry[i]);
		open = open || !(k->entry[i].settled || (drop_gone && k->entry[i].gone));
	}
	cl_plock_release(&p->osm->lock);
	if (!open)
		parked_free(p);
}

uint16_t parked_count(struct plugin *p)
{
	look(p, false);
	if (!p->parked)
		return 0;
	return p->parked->count < UINT16_MAX ? (uint16_t)p->parked->count : UINT16_MAX;
}

int plugin_parked(struct plugin *p, const struct sm_parked_request *req, struct sm_parked_reply *r)
{
	const struct parked_list *k;

	if (!req->first)
		look(p, req->flags & SM_PARKED_DROP_GONE);
	k = p->parked;
	r->instance = p->instance;
	r->total = k ? k->count : 0;
	for (uint32_t i = req->first; i < r->total && r->count < SM_PARKED_MAX; i++)
		r->entry[r->count++] = k->entry[i];
	if (k) {
		r->since_ms = k->since_ms;
		memcpy(r->why, k->why, sizeof r->why);
	}
	return (int)(offsetof(struct sm_parked_reply, entry) + r->count * sizeof r->entry[0]);
}
