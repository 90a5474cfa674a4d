/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/distinguisher/look.h"
#include "sm-helper/plugin/paths.h"
#include "common/util.h"

#include <errno.h>
#include <stdlib.h>

#include <opensm/osm_helper.h>
#include <opensm/osm_partition.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

#define PIECE     65536             /* cells for which the lock is held at once */
#define SLOW_MAX  ((size_t)1 << 20) /* cells whose SL is drawn anew: dfsssp */
#define TRIES     5
#define UNLIMITED 0 /* a rate, or an MTU, that no link has */

/* A way out of a switch: the limits of the link, and the switch behind it. */
struct hop {
	int32_t next; /* index of the switch; -1: no switch is there */
	uint8_t mtu, rate;
};

struct net_switch {
	osm_switch_t *sw; /* borrowed; valid as long as no sweep has begun */
	struct hop *hop;  /* owned; by port */
	unsigned ports;
	int32_t edge; /* index among the look's switches; -1: no CA port hangs there */
};

/* The needs of filling the cells. */
struct net {
	struct plugin *p;
	uint64_t sweep;        /* the heavy sweep whose tables they are */
	struct net_switch *sw; /* owned; by GUID, as in OpenSM's table */
	unsigned switches;
	uint32_t *of_edge; /* owned: index of each of the look's switches */
	uint16_t *lid_of;  /* owned: LID of a CA port of each of the look's switches */
	bool alike;        /* all links between switches are */
	uint16_t *limits;  /* owned: by switch, of the column that is filled now */
	int32_t *way;      /* owned: room for a walk */
};

static void net_clear(struct net *n)
{
	for (unsigned i = 0; n->sw && i < n->switches; i++)
		free(n->sw[i].hop);
	free(n->sw);
	free(n->of_edge);
	free(n->lid_of);
	free(n->limits);
	free(n->way);
}

static uint64_t mixed(uint64_t h, uint64_t x)
{
	return (h ^ x) * 0x100000001b3ull;
}

/* The engine and the SLs of partitions. */
static uint64_t read_rules(const osm_opensm_t *osm)
{
	const cl_qmap_t *prtns = &osm->subn.prtn_pkey_tbl;
	const struct osm_routing_engine *engine = osm->routing_engine_used;
	uint64_t h = mixed(0xcbf29ce484222325ull, engine ? engine->type + 1 : 0);

	h = mixed(h, osm->subn.opt.qos);
	for (const cl_map_item_t *i = cl_qmap_head(prtns); i != cl_qmap_end(prtns);
	     i = cl_qmap_next(i))
		h = mixed(mixed(h, ((const osm_prtn_t *)i)->pkey), ((const osm_prtn_t *)i)->sl);
	return h;
}

static uint8_t less_rate(uint8_t a, uint8_t b)
{
	if (a == UNLIMITED || b == UNLIMITED)
		return a == UNLIMITED ? b : a;
	return ib_path_compare_rates(a, b) <= 0 ? a : b;
}

static uint8_t less_mtu(uint8_t a, uint8_t b)
{
	return a == UNLIMITED || (b != UNLIMITED && b < a) ? b : a;
}

/* Limits of a link, of both its ends. */
static struct link_view both_ends(const osm_physp_t *a, const osm_physp_t *b)
{
	struct link_view x = paths_link(a), y = paths_link(b);

	return (struct link_view){less_mtu(x.mtu, y.mtu), less_rate(x.rate, y.rate)};
}

static osm_physp_t *peer_of(const osm_node_t *node, unsigned port)
{
	osm_physp_t *physp = osm_node_get_physp_ptr((osm_node_t *)node, port);

	return physp ? physp->p_remote_physp : NULL;
}

static int by_switch(const void *a, const void *b)
{
	const struct net_switch *x = a, *y = b;
	uint64_t p = cl_ntoh64(osm_node_get_node_guid(x->sw->p_node)),
		 q = cl_ntoh64(osm_node_get_node_guid(y->sw->p_node));

	return p < q ? -1 : p > q;
}

static int by_guid(const void *a, const void *b)
{
	const struct look_port *x = a, *y = b;

	return x->guid < y->guid ? -1 : x->guid > y->guid;
}

static uint64_t guid_of(const struct net *n, uint32_t i)
{
	return cl_ntoh64(osm_node_get_node_guid(n->sw[i].sw->p_node));
}

static int32_t find(const struct net *n, const osm_node_t *node)
{
	uint64_t guid = cl_ntoh64(osm_node_get_node_guid(node));
	unsigned low = 0, high = n->switches;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (guid_of(n, mid) < guid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n->switches && guid_of(n, low) == guid ? (int32_t)low : -1;
}

static int add_hops(struct net *n, struct net_switch *s)
{
	const osm_node_t *node = s->sw->p_node;

	s->ports = osm_node_get_num_physp(node);
	if (!(s->hop = calloc(s->ports, sizeof *s->hop)))
		return -ENOMEM;
	for (unsigned i = 0; i < s->ports; i++) {
		const osm_physp_t *peer = i ? peer_of(node, i) : NULL;
		struct link_view v;

		s->hop[i].next = peer && peer->p_node->sw ? find(n, peer->p_node) : -1;
		if (s->hop[i].next < 0)
			continue;
		v = both_ends(osm_node_get_physp_ptr((osm_node_t *)node, i), peer);
		s->hop[i].mtu = v.mtu;
		s->hop[i].rate = v.rate;
	}
	return 0;
}

static int read_switches(struct net *n)
{
	cl_qmap_t *switches = &n->p->osm->subn.sw_guid_tbl;
	size_t room = cl_qmap_count(switches);
	int rc = 0;

	if (!(n->sw = calloc(room + 1, sizeof *n->sw)))
		return -ENOMEM;
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		n->sw[n->switches++] = (struct net_switch){.sw = (osm_switch_t *)i, .edge = -1};
	qsort(n->sw, n->switches, sizeof *n->sw, by_switch);
	for (unsigned i = 0; !rc && !n->alike && i < n->switches; i++)
		rc = add_hops(n, &n->sw[i]);
	return rc;
}

static struct look_port *port_of(const struct look *l, uint64_t guid)
{
	struct look_port key = {.guid = guid};

	return l->ports ? bsearch(&key, l->port, l->ports, sizeof key, by_guid) : NULL;
}

static void add_member(const struct look *l, uint64_t guid, unsigned pkey)
{
	struct look_port *port = port_of(l, guid);

	if (port) /* a sum, for the order is that of no table */
		port->rules += (pkey + 1) * 0x9e3779b1u;
}

/* Notes in each port which partitions it is a member of, and how. */
static void read_members(struct net *n, struct look *l)
{
	const cl_qmap_t *prtns = &n->p->osm->subn.prtn_pkey_tbl;

	for (const cl_map_item_t *i = cl_qmap_head(prtns); i != cl_qmap_end(prtns);
	     i = cl_qmap_next(i)) {
		const osm_prtn_t *t = (const osm_prtn_t *)i;
		const cl_map_t *members[] = {&t->part_guid_tbl, &t->full_guid_tbl};

		for (unsigned k = 0; k < ARRAY_SIZE(members); k++)
			for (cl_map_iterator_t m = cl_map_head(members[k]);
			     m != cl_map_end(members[k]); m = cl_map_next(m))
				add_member(l, cl_ntoh64(cl_map_key(m)),
					   cl_ntoh16(t->pkey) | k << 16);
	}
}

static bool takes_part(const osm_port_t *port)
{
	const osm_physp_t *peer = port->p_physp->p_remote_physp;

	return port->lid && osm_node_get_type(port->p_node) == IB_NODE_TYPE_CA && peer &&
	       peer->p_node->sw && osm_physp_get_port_state(port->p_physp) == IB_LINK_ACTIVE;
}

/* The ports; look_port.sw is the index among all switches for now. */
static int read_ports(struct net *n, struct look *l)
{
	cl_qmap_t *ports = &n->p->osm->subn.port_guid_tbl;

	if (!(l->port = calloc(cl_qmap_count(ports) + 1, sizeof *l->port)))
		return -ENOMEM;
	for (cl_map_item_t *i = cl_qmap_head(ports); i != cl_qmap_end(ports); i = cl_qmap_next(i)) {
		const osm_port_t *port = (const osm_port_t *)i;
		struct link_view v;
		int32_t sw;

		if (!takes_part(port) || (sw = find(n, port->p_physp->p_remote_physp->p_node)) < 0)
			continue;
		v = both_ends(port->p_physp, port->p_physp->p_remote_physp);
		l->port[l->ports++] = (struct look_port){.guid = cl_ntoh64(port->guid),
							 .sw = (uint32_t)sw,
							 .lid = cl_ntoh16(port->lid),
							 .mtu = v.mtu,
							 .rate = v.rate};
		n->sw[sw].edge = 0;
	}
	qsort(l->port, l->ports, sizeof *l->port, by_guid);
	read_members(n, l);
	return 0;
}

/* Numbers the switches that have ports, and lets ports and switches know each other. Without memory
 * the look has no ports: theirs are no indices of its switches. */
static int number_edges(struct net *n, struct look *l)
{
	l->sw = calloc(n->switches + 1, sizeof *l->sw);
	n->of_edge = calloc(n->switches + 1, sizeof *n->of_edge);
	n->lid_of = calloc(n->switches + 1, sizeof *n->lid_of);
	if (!l->sw || !n->of_edge || !n->lid_of) {
		l->ports = 0;
		return -ENOMEM;
	}
	for (unsigned i = 0; i < n->switches; i++)
		if (n->sw[i].edge >= 0) {
			n->of_edge[l->switches] = i;
			l->sw[l->switches] = guid_of(n, i);
			n->sw[i].edge = (int32_t)l->switches++;
		}
	for (unsigned i = 0; i < l->ports; i++) {
		l->port[i].sw = (uint32_t)n->sw[l->port[i].sw].edge;
		n->lid_of[l->port[i].sw] = l->port[i].lid;
	}
	return 0;
}

/* The sources that an engine tells apart by their SLs. An unknown engine is taken for the worst. */
static enum look_unit sl_sources(const struct osm_routing_engine *engine)
{
	if (!engine || !engine->path_sl)
		return LOOK_NONE;
	switch (engine->type) {
	case OSM_ROUTING_ENGINE_TYPE_LASH:
	case OSM_ROUTING_ENGINE_TYPE_TORUS_2QOS:
	case OSM_ROUTING_ENGINE_TYPE_NUE: /* of its destinations alone */
		return LOOK_SWITCH;
	default:
		return LOOK_PORT;
	}
}

static void choose_units(const struct net *n, struct look *l)
{
	const struct osm_routing_engine *engine = n->p->osm->routing_engine_used;
	enum look_unit sources = sl_sources(engine);
	bool by_lid = sources == LOOK_PORT ||
		      (engine && engine->path_sl && engine->type == OSM_ROUTING_ENGINE_TYPE_NUE);

	l->rows = sources;
	l->columns = sources == LOOK_NONE ? LOOK_NONE : by_lid ? LOOK_PORT : LOOK_SWITCH;
	if (!n->alike) { /* routes are by LID, and their limits with them */
		l->rows = l->rows == LOOK_PORT ? LOOK_PORT : LOOK_SWITCH;
		l->columns = LOOK_PORT;
	}
}

static uint16_t add_limits(uint16_t rest, const struct hop *h)
{
	if (rest == LOOK_CELL_NONE)
		return rest;
	return LOOK_CELL(0, less_mtu(h->mtu, LOOK_CELL_MTU(rest)),
			 less_rate(h->rate, LOOK_CELL_RATE(rest)));
}

/* The limits of the way from switch `from` to a LID; each switch on it is done then. A circle ends
 * at a switch that has no route yet. */
static void walk(struct net *n, int32_t from, uint16_t lid, uint8_t *done)
{
	unsigned steps = 0;
	int32_t at = from;

	while (at >= 0 && !done[at]) {
		const struct net_switch *s = &n->sw[at];
		uint8_t out = osm_switch_get_port_by_lid(s->sw, lid, OSM_NEW_LFT);
		bool ends = out < s->ports && s->hop[out].next < 0;

		done[at] = 1;
		n->limits[at] = ends ? LOOK_CELL(0, UNLIMITED, UNLIMITED) : LOOK_CELL_NONE;
		if (out >= s->ports || ends)
			break;
		n->way[steps++] = at;
		at = s->hop[out].next;
	}
	while (steps) {
		const struct net_switch *s = &n->sw[n->way[--steps]];
		const struct hop *h = &s->hop[osm_switch_get_port_by_lid(s->sw, lid, OSM_NEW_LFT)];

		n->limits[n->way[steps]] = add_limits(n->limits[h->next], h);
	}
}

static uint16_t lid_of(const struct net *n, const struct look *l, enum look_unit unit, unsigned i)
{
	return unit == LOOK_PORT ? l->port[i].lid : n->lid_of[i];
}

static void fill_column(struct net *n, struct look *l, unsigned column, uint8_t *done)
{
	const struct osm_routing_engine *engine = n->p->osm->routing_engine_used;
	uint16_t lid = lid_of(n, l, l->columns, column);
	unsigned rows = look_rows(l);
	uint16_t *cell = l->cell + (size_t)column * rows;

	if (!n->alike)
		memset(done, 0, n->switches);
	for (unsigned r = 0; r < rows; r++) {
		unsigned edge = l->rows == LOOK_PORT ? l->port[r].sw : r;
		uint16_t limits = 0;
		uint8_t sl = 0;

		if (!n->alike) {
			walk(n, (int32_t)n->of_edge[edge], lid, done);
			limits = n->limits[n->of_edge[edge]];
		}
		if (engine && engine->path_sl)
			sl = engine->path_sl(engine->context, OSM_DEFAULT_SL,
					     cl_hton16(lid_of(n, l, l->rows, r)), cl_hton16(lid));
		cell[r] = limits == LOOK_CELL_NONE ? limits
						   : (uint16_t)(limits | LOOK_CELL(sl, 0, 0));
	}
}

/* No pointer of OpenSM's is touched where it says false. */
static bool is_same_sweep(struct net *n)
{
	return atomic_load(&n->p->count.heavy_sweeps) == n->sweep;
}

/* Fills the cells. The lock is held at the begin and at the end, and not all the time. OpenSM takes
 * no lock at its end, when it frees its engines before its plugins stop. */
static int fill(struct net *n, struct look *l)
{
	unsigned rows = look_rows(l), columns = look_columns(l);
	uint8_t *done AUTO_FREE = calloc(n->switches + 1, 1);
	size_t held = 0;

	if (!done || !(n->limits = calloc(n->switches + 1, sizeof *n->limits)) ||
	    !(n->way = calloc(n->switches + 1, sizeof *n->way)))
		return -ENOMEM;
	for (unsigned c = 0; c < columns; c++) {
		if (osm_exit_flag)
			return -EAGAIN;
		if ((held += rows) > PIECE) {
			held = rows;
			cl_plock_release(&n->p->osm->lock);
			cl_plock_acquire(&n->p->osm->lock);
			if (!is_same_sweep(n))
				return -EAGAIN;
		}
		fill_column(n, l, c, done);
	}
	return 0;
}

static size_t cells_max(const struct look *l)
{
	return l->rows == LOOK_PORT ? SLOW_MAX : LOOK_CELLS_MAX;
}

static int read_locked(struct net *n, struct look *l)
{
	struct link_view link = {0};
	size_t cells;
	int rc;

	if (!is_same_sweep(n))
		return -EAGAIN;
	n->alike = paths_links_alike(n->p, &link);
	l->rules = mixed(read_rules(n->p->osm), link.mtu << 8 | link.rate);
	if ((rc = read_switches(n)) || (rc = read_ports(n, l)) || (rc = number_edges(n, l)))
		return rc;
	choose_units(n, l);
	cells = (size_t)look_rows(l) * look_columns(l);
	if (cells > cells_max(l) || !(l->cell = malloc((cells + 1) * sizeof *l->cell)))
		return -ENOMEM;
	return fill(n, l);
}

/* A sweep is counted in the same hold of the gate in which it begins. So one that begins after this
 * has another number, and what it drops is not touched any more. */
static int begin(struct net *n)
{
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&n->p->gate);

	n->sweep = atomic_load(&n->p->count.heavy_sweeps);
	return n->p->sweeping || !n->p->ready || osm_exit_flag ? -EAGAIN : 0;
}

/* A batch between two holds of the lock moves ports and entries: what is read then is of two
 * states. */
int look_read(struct plugin *p, struct look *ret_look)
{
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t generation = atomic_load(&p->count.generation);
		struct net n = {.p = p};
		struct look l = {0};
		int rc = begin(&n);

		if (rc)
			return rc;
		cl_plock_acquire(&p->osm->lock);
		rc = read_locked(&n, &l);
		cl_plock_release(&p->osm->lock);
		net_clear(&n);
		if (rc == -EAGAIN) {
			look_clear(&l);
			return rc;
		}
		l.whole = !rc && atomic_load(&p->count.generation) == generation;
		if (rc || l.whole || i + 1 == TRIES) {
			*ret_look = l;
			return 0;
		}
		look_clear(&l);
	}
	return -EAGAIN;
}
