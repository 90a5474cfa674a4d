/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/seen.h"
#include "sm-helper/plugin/homes.h"
#include "common/util.h"

#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

/* Identity in network byte order but the LID, as in OpenSM's tables. */
struct identity {
	ib_net64_t node_guid, port_guid;
	uint16_t lid;
};

struct shown {
	const struct home *home; /* borrowed */
	osm_switch_t *sw;
	osm_node_t *node;
	osm_port_t *port;
	osm_port_t *like; /* port of whose LID the port's own is a copy; NULL: it is none */
	uint16_t own;     /* the LID with this place's routes: home->own waits behind a copy only */
	bool own_free;    /* no other port has it, or one of its LMC */
	bool plain;       /* somebody else has what it would show: it shows what it has */
	bool in;          /* the tables */
	struct identity now;
};

static struct identity home_of(const struct shown *x)
{
	return (struct identity){cl_hton64(x->home->node_guid), cl_hton64(x->home->port_guid),
				 x->home->lid};
}

static osm_physp_t *ca_behind(osm_switch_t *sw, uint8_t port)
{
	osm_physp_t *physp = port < osm_node_get_num_physp(sw->p_node)
				     ? osm_node_get_physp_ptr(sw->p_node, port)
				     : NULL;

	physp = physp ? physp->p_remote_physp : NULL;
	return physp && osm_node_get_type(physp->p_node) == IB_NODE_TYPE_CA ? physp : NULL;
}

/* True if nobody, or only `self`, has the LIDs of a port from `lid` on. */
static bool are_free(struct plugin *p, unsigned lid, const osm_port_t *self)
{
	for (unsigned k = lid; k < lid + plugin_lids(p); k++) {
		const osm_port_t *holder = osm_get_port_by_lid_ho(&p->osm->subn, (uint16_t)k);

		if (holder && holder != self)
			return false;
	}
	return true;
}

static void set_lids(struct plugin *p, unsigned lid, osm_port_t *port)
{
	for (unsigned k = lid; k < lid + plugin_lids(p); k++)
		cl_ptr_vector_set(&p->osm->subn.port_lid_tbl, k, port);
}

/* A place without a link, or whose port has no LID yet, is not among them. */
static bool find_place(struct plugin *p, const struct home *h, struct shown *x)
{
	osm_physp_t *physp, *like;

	*x = (struct shown){.home = h};
	x->sw = osm_get_switch_by_guid(&p->osm->subn, cl_hton64(h->key.switch_guid));
	physp = x->sw ? ca_behind(x->sw, h->key.switch_port) : NULL;
	x->port = physp ? osm_get_port_by_guid(&p->osm->subn, physp->port_guid) : NULL;
	if (!x->port || !x->port->lid || x->port->p_physp != physp)
		return false;
	x->node = physp->p_node;
	x->now = (struct identity){osm_node_get_node_guid(x->node), x->port->guid,
				   cl_ntoh16(x->port->lid)};
	x->own = h->like ? h->own : x->now.lid;
	x->own_free = are_free(p, x->own, x->port);
	x->like = h->like ? osm_get_port_by_guid(&p->osm->subn, cl_hton64(h->like)) : NULL;
	like = x->like ? x->like->p_physp->p_remote_physp : NULL;
	if (!like || like->p_node->sw != x->sw)
		x->like = NULL; /* the port has gone elsewhere, and its routes lead there */
	return true;
}

static void take_out(struct plugin *p, struct shown *x)
{
	osm_subn_t *subn = &p->osm->subn;

	cl_qmap_remove_item(&subn->port_guid_tbl, &x->port->map_item);
	cl_qmap_remove_item(&subn->node_guid_tbl, &x->node->map_item);
	set_lids(p, cl_ntoh16(x->port->lid), NULL);
	x->in = false;
}

static bool is_free(struct plugin *p, const struct identity *i)
{
	osm_subn_t *subn = &p->osm->subn;

	return !osm_get_node_by_guid(subn, i->node_guid) &&
	       !osm_get_port_by_guid(subn, i->port_guid) && are_free(p, i->lid, NULL);
}

static void put_in(struct plugin *p, struct shown *x, const struct identity *i)
{
	osm_subn_t *subn = &p->osm->subn;
	osm_physp_t *physp = x->port->p_physp;

	x->node->node_info.node_guid = i->node_guid;
	x->node->node_info.port_guid = i->port_guid;
	physp->port_guid = i->port_guid;
	x->port->guid = i->port_guid;
	x->port->lid = cl_hton16(i->lid);
	osm_physp_set_base_lid(physp, cl_hton16(i->lid));
	cl_qmap_insert(&subn->port_guid_tbl, i->port_guid, &x->port->map_item);
	cl_qmap_insert(&subn->node_guid_tbl, i->node_guid, &x->node->map_item);
	set_lids(p, i->lid, x->port);
	x->in = true;
}

/* False: two of them would show the same. */
static bool put_homes_in(struct plugin *p, struct seen *s)
{
	for (unsigned i = 0; i < s->count; i++) {
		struct identity home = home_of(&s->place[i]);

		s->place[i].plain = !is_free(p, &home);
	}
	for (unsigned i = 0; i < s->count; i++)
		if (s->place[i].plain) {
			if (!is_free(p, &s->place[i].now))
				return false;
			put_in(p, &s->place[i], &s->place[i].now);
		}
	for (unsigned i = 0; i < s->count; i++) {
		struct identity home = home_of(&s->place[i]);

		if (s->place[i].plain)
			continue;
		if (!is_free(p, &home))
			return false;
		put_in(p, &s->place[i], &home);
	}
	return true;
}

static void put_back(struct plugin *p, struct seen *s)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->place[i].in)
			take_out(p, &s->place[i]);
	for (unsigned i = 0; i < s->count; i++)
		put_in(p, &s->place[i], &s->place[i].now);
}

static void show_identities(struct plugin *p, struct seen *s)
{
	for (unsigned i = 0; i < s->count; i++)
		take_out(p, &s->place[i]);
	if (put_homes_in(p, s))
		return;
	osm_log(&p->osm->log, OSM_LOG_SYS,
		"ibvmig: two places would show one GUID or LID to the routing engine; "
		"it sees all as they are\n");
	put_back(p, s);
	for (unsigned i = 0; i < s->count; i++)
		s->place[i].plain = true;
}

static uint16_t shown_lid(const osm_port_t *port)
{
	return cl_ntoh16(port->lid);
}

static void add_row(struct seen *s, unsigned to, unsigned from)
{
	s->row[s->rows++] = (struct seen_row){.to = (uint16_t)to, .from = (uint16_t)from};
}

/* Adds the rows of the k-th LID of a place. */
static void add_place_rows(struct seen *s, const struct shown *x, unsigned k)
{
	uint16_t base = shown_lid(x->port), now = x->now.lid;

	if (x->own_free)
		add_row(s, x->own + k, base + k);
	if (now == x->own)
		return;
	add_row(s, now + k, (x->like ? shown_lid(x->like) : base) + k);
	if (x->like) {
		s->row[s->rows - 1].sw = x->sw;
		s->row[s->rows - 1].port = x->home->key.switch_port;
	}
}

/* Makes the rows for every LID of the places, when homes are shown. Of two rows for one LID the
 * later one counts: a LID that is only shown is nobody's. */
static void make_rows(struct seen *s, unsigned lids)
{
	for (unsigned i = 0; i < s->count; i++)
		for (unsigned k = 0; !s->place[i].plain && k < lids; k++)
			add_row(s, shown_lid(s->place[i].port) + k, 0);
	for (unsigned i = 0; i < s->count; i++)
		for (unsigned k = 0; k < lids; k++)
			add_place_rows(s, &s->place[i], k);
}

/* Engines that keep a route as long as it is a shortest one look for it at the LID that they see.
 */
static void show_routes(struct plugin *p, struct seen *s, bool back)
{
	cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;
	unsigned lids = plugin_lids(p);
	uint8_t *at = s->lft;

	if (!at)
		return;
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i), at += s->count * lids) {
		uint8_t *lft = ((osm_switch_t *)i)->lft;
		unsigned size = ((osm_switch_t *)i)->lft_size;

		for (unsigned k = 0; !back && k < s->count * lids; k++) {
			unsigned own = s->place[k / lids].own + k % lids;

			at[k] = own < size ? lft[own] : OSM_NO_PATH;
		}
		for (unsigned k = 0; k < s->count * lids; k++) {
			unsigned lid = s->place[k / lids].home->lid + k % lids;
			uint8_t was;

			if (s->place[k / lids].plain || lid >= size)
				continue;
			was = lft[lid];
			lft[lid] = at[k];
			at[k] = was;
		}
	}
}

void seen_show(struct plugin *p, struct seen *s)
{
	cl_fmap_t *map = &p->homes->map;
	size_t room = cl_fmap_count(map);

	*s = (struct seen){0};
	if (!room || !(s->place = calloc(room, sizeof *s->place)) ||
	    !(s->row = calloc(3 * room * plugin_lids(p), sizeof *s->row)))
		return;
	for (cl_fmap_item_t *i = cl_fmap_head(map); i != cl_fmap_end(map); i = cl_fmap_next(i))
		if (find_place(p, &((struct home_item *)i)->home, &s->place[s->count]))
			s->count++;
	show_identities(p, s);
	make_rows(s, plugin_lids(p));
	s->lft = malloc(s->count * plugin_lids(p) * cl_qmap_count(&p->osm->subn.sw_guid_tbl) + 1);
	show_routes(p, s, false);
}

static void route_switch(osm_switch_t *sw, const struct seen *s, uint8_t *entry, uint16_t top)
{
	for (unsigned i = 0; i < s->rows; i++) {
		const struct seen_row *r = &s->row[i];

		entry[i] = r->sw == sw                         ? r->port
			   : r->from && r->from < sw->lft_size ? sw->new_lft[r->from]
							       : OSM_NO_PATH;
	}
	for (unsigned i = 0; i < s->rows; i++)
		if (s->row[i].to < sw->lft_size)
			sw->new_lft[s->row[i].to] = entry[i];
	/* ftree sets it to the highest LID that it has seen. */
	if (top < sw->lft_size && sw->max_lid_ho < top)
		sw->max_lid_ho = top;
}

void seen_route(struct plugin *p, const struct seen *s)
{
	cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;
	uint8_t *entry AUTO_FREE = malloc(s->rows + 1);
	uint16_t *seen_as = p->homes->seen_as, top = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(p->homes->seen_as); i++)
		seen_as[i] = (uint16_t)i;
	for (unsigned i = 0; i < s->rows; i++) {
		if (s->row[i].from)
			seen_as[s->row[i].to] = s->row[i].from;
		if (s->row[i].to > top)
			top = s->row[i].to;
	}
	if (!entry)
		return;
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		route_switch((osm_switch_t *)i, s, entry, top);
}

void seen_hide(struct plugin *p, struct seen *s)
{
	show_routes(p, s, true);
	put_back(p, s);
	free(s->place);
	free(s->row);
	free(s->lft);
	*s = (struct seen){0};
}
