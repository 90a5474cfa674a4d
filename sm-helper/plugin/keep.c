/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/keep.h"
#include "sm-helper/plugin/guid2lid.h"
#include "sm-helper/plugin/homes.h"
#include "common/util.h"

#include <inttypes.h>
#include <string.h>

#include <opensm/osm_log.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

/* Contents of OpenSM's tables at a place that a CA port hangs on. */
struct kept {
	struct home_key key;
	uint64_t node_guid, port_guid;
	uint16_t lid;
};

struct keep {
	struct kept *place; /* owned; in the order of homes_compare() */
	unsigned count;
};

struct doubts {
	uint64_t *guid; /* owned; ascending */
	unsigned count;
};

/* Findings of a sweep, by LID. */
struct lids_seen {
	uint16_t shown[UINT16_MAX + 1];          /* by how many ports */
	bool places[UINT16_MAX + 1];             /* some place's own */
	const osm_port_t *taken[UINT16_MAX + 1]; /* by the port that keeps it; NULL: by none */
};

static void keep_free(struct plugin *p)
{
	if (p->keep)
		free(p->keep->place);
	free(p->keep);
	p->keep = NULL;
}

static int compare(const void *a, const void *b)
{
	return homes_compare(&((const struct kept *)a)->key, &((const struct kept *)b)->key);
}

static const struct kept *find(const struct kept *place, unsigned count, struct home_key key)
{
	struct kept like = {.key = key};

	return count ? bsearch(&like, place, count, sizeof *place, compare) : NULL;
}

/* Finds where a CA port hangs; false: it is none, or not on a switch. */
static bool place_of(const osm_port_t *port, struct home_key *ret_key)
{
	const osm_physp_t *peer = port->p_physp && !port->p_node->sw ? port->p_physp->p_remote_physp
								     : NULL;

	if (!peer || !peer->p_node->sw)
		return false;
	*ret_key = (struct home_key){cl_ntoh64(osm_node_get_node_guid(peer->p_node)),
				     peer->port_num};
	return true;
}

/* ---- doubts ---- */

static int compare_guids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void doubts_free(struct plugin *p)
{
	if (p->doubts)
		free(p->doubts->guid);
	free(p->doubts);
	p->doubts = NULL;
}

void keep_doubt(struct plugin *p, uint64_t *guid, unsigned count)
{
	doubts_free(p);
	if (!guid || !(p->doubts = calloc(1, sizeof *p->doubts))) {
		free(guid); /* then OpenSM goes by its file */
		return;
	}
	qsort(guid, count, sizeof *guid, compare_guids);
	*p->doubts = (struct doubts){guid, count};
}

static bool is_doubted(const struct plugin *p, uint64_t guid)
{
	return p->doubts &&
	       bsearch(&guid, p->doubts->guid, p->doubts->count, sizeof guid, compare_guids);
}

/* Drops the doubts about ports that are known by now: their lines are this master's. */
static void drop_doubts(struct plugin *p)
{
	unsigned n = 0;

	for (unsigned i = 0; p->doubts && i < p->doubts->count; i++)
		if (!osm_get_port_by_guid(&p->osm->subn, cl_hton64(p->doubts->guid[i])))
			p->doubts->guid[n++] = p->doubts->guid[i];
	if (p->doubts)
		p->doubts->count = n;
}

/* ---- before ---- */

static unsigned add_known(struct plugin *p, struct kept *place)
{
	cl_qmap_t *map = &p->osm->subn.port_guid_tbl;
	unsigned n = 0;

	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i)) {
		const osm_port_t *port = (const osm_port_t *)i;
		struct home_key key;

		if (port->lid && place_of(port, &key))
			place[n++] = (struct kept){key,
						   cl_ntoh64(osm_node_get_node_guid(port->p_node)),
						   cl_ntoh64(port->guid), cl_ntoh16(port->lid)};
	}
	qsort(place, n, sizeof *place, compare);
	return n;
}

/* A place at which the last sweep saw nothing is as it was, as long as nobody else has its LID. */
static unsigned add_unseen(struct plugin *p, struct kept *place, unsigned n)
{
	unsigned known = n;

	for (unsigned i = 0; p->keep && i < p->keep->count; i++) {
		const struct kept *old = &p->keep->place[i];

		if (!find(place, known, old->key) &&
		    !osm_get_port_by_lid_ho(&p->osm->subn, old->lid))
			place[n++] = *old;
	}
	qsort(place, n, sizeof *place, compare);
	return n;
}

static struct keep *remember(struct plugin *p)
{
	size_t room = cl_qmap_count(&p->osm->subn.port_guid_tbl) + (p->keep ? p->keep->count : 0);
	struct keep *k = calloc(1, sizeof *k);

	if (!k || !(k->place = calloc(room + 1, sizeof *k->place))) {
		free(k);
		return NULL; /* then OpenSM chooses LIDs as it does without us */
	}
	k->count = add_unseen(p, k->place, add_known(p, k->place));
	return k;
}

void keep_remember(struct plugin *p)
{
	struct keep *k = NULL;

	cl_plock_acquire(&p->osm->lock);
	if (p->osm->subn.sm_state == IB_SMINFO_STATE_MASTER)
		k = remember(p);
	drop_doubts(p);
	cl_plock_release(&p->osm->lock);
	keep_free(p);
	p->keep = k;
}

/* ---- after ---- */

static uint16_t own_lid(const struct plugin *p, const struct kept *k)
{
	const struct home *h = homes_find(p, k->key);

	return h && h->like ? h->own : k->lid;
}

static uint16_t shown_lid(const osm_port_t *port)
{
	return cl_ntoh16(osm_physp_get_base_lid(port->p_physp));
}

static bool is_found(const osm_port_t *port)
{
	return port->discovery_count && port->p_physp;
}

static void see(struct plugin *p, struct lids_seen *s)
{
	cl_qmap_t *map = &p->osm->subn.port_guid_tbl;

	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i))
		if (is_found((const osm_port_t *)i))
			s->shown[shown_lid((const osm_port_t *)i)]++;
	for (unsigned i = 0; i < p->keep->count; i++)
		s->places[own_lid(p, &p->keep->place[i])] = true;
}

/* Nobody but this port has it. */
static bool is_free(const struct lids_seen *s, const osm_port_t *port, uint16_t lid)
{
	return !s->taken[lid] && s->shown[lid] <= (lid == shown_lid(port));
}

/* The LID of its place, if this port shows another GUID there than before, and OpenSM would give it
 * another LID; else 0. A LID of a GUID alone, as a VM's dynamic one, goes where the GUID is. */
static uint16_t lid_of_place(struct plugin *p, const struct lids_seen *s, const osm_port_t *port,
			     const struct kept *k)
{
	uint64_t guid = cl_ntoh64(port->guid);
	uint16_t own = own_lid(p, k), known = guid2lid_get(p, guid);

	if (guid == k->port_guid || shown_lid(port) != k->lid || own == known ||
	    !is_free(s, port, own))
		return 0;
	return !known || s->places[known] || is_doubted(p, guid) ? own : 0;
}

/* The LID of a port at a place of which nothing is known, if the file's line is doubted and
 * another one; else 0. */
static uint16_t lid_of_port(struct plugin *p, const struct lids_seen *s, const osm_port_t *port)
{
	uint64_t guid = cl_ntoh64(port->guid);
	uint16_t lid = shown_lid(port);

	if (!is_doubted(p, guid) || guid2lid_get(p, guid) == lid || !ib_lid_is_unicast(lid) ||
	    lid % plugin_lids(p))
		return 0;
	return is_free(s, port, lid) && !s->places[lid] ? lid : 0;
}

static void log_kept(struct plugin *p, const osm_port_t *port, const struct kept *k, uint16_t lid)
{
	uint64_t guid = cl_ntoh64(port->guid);

	if (k)
		osm_log(&p->osm->log, OSM_LOG_SYS,
			"ibvmig: port %u of switch 0x%016" PRIx64 " shows 0x%016" PRIx64
			" instead of 0x%016" PRIx64 " and keeps LID %u\n",
			k->key.switch_port, k->key.switch_guid, guid, k->port_guid, lid);
	else
		osm_log(&p->osm->log, OSM_LOG_SYS,
			"ibvmig: port 0x%016" PRIx64 " keeps LID %u, not %u as the file guid2lid "
			"says from before this OpenSM was master\n",
			guid, lid, guid2lid_get(p, guid));
}

/* The home of a place outlives the GUID that it shows. */
static void keep_home(struct plugin *p, const osm_port_t *port, const struct kept *k, uint16_t lid)
{
	const struct home *h = homes_find(p, k->key);

	if (!h)
		homes_put(p, &(struct home){k->key, k->node_guid, k->port_guid, lid, lid, 0});
	else if (h->port_guid == cl_ntoh64(port->guid) && h->lid == lid && !h->like)
		homes_drop(p, k->key);
}

/* k: NULL, nothing is known of the place. */
static void keep_lid(struct plugin *p, struct lids_seen *s, const osm_port_t *port,
		     const struct kept *k, uint16_t lid)
{
	uint16_t known = guid2lid_get(p, cl_ntoh64(port->guid));

	log_kept(p, port, k, lid);
	if (known && !s->taken[known])
		guid2lid_keep(p, known, plugin_lids(p), false);
	s->taken[lid] = port;
	guid2lid_keep(p, lid, plugin_lids(p), true);
	guid2lid_set(p, cl_ntoh64(port->guid), lid, plugin_lids(p));
	if (k)
		keep_home(p, port, k, lid);
}

/* Entries of GUIDs whose LID their place has kept. */
static void drop_past(struct plugin *p, const struct lids_seen *s)
{
	struct known_lid *known AUTO_FREE = NULL;
	unsigned n = guid2lid_all(p, &known);

	for (unsigned i = 0; i < n; i++) {
		const osm_port_t *keeper = s->taken[known[i].lid];

		if (keeper && cl_ntoh64(keeper->guid) != known[i].guid)
			guid2lid_drop(p, known[i].guid);
	}
}

static void keep_lids(struct plugin *p, struct lids_seen *s)
{
	cl_qmap_t *map = &p->osm->subn.port_guid_tbl;
	bool any = false;

	see(p, s);
	for (cl_map_item_t *i = cl_qmap_head(map); i != cl_qmap_end(map); i = cl_qmap_next(i)) {
		const osm_port_t *port = (const osm_port_t *)i;
		const struct kept *k = NULL;
		struct home_key key;
		uint16_t lid;

		if (!is_found(port) || !place_of(port, &key))
			continue;
		k = find(p->keep->place, p->keep->count, key);
		if (!(lid = k ? lid_of_place(p, s, port, k) : lid_of_port(p, s, port)))
			continue;
		keep_lid(p, s, port, k, lid);
		any = true;
	}
	if (any)
		drop_past(p, s);
}

void keep_swept(struct plugin *p)
{
	struct lids_seen *s AUTO_FREE = p->keep ? calloc(1, sizeof *s) : NULL;

	if (!s || p->osm->subn.opt.reassign_lids)
		return;
	cl_plock_excl_acquire(&p->osm->lock);
	keep_lids(p, s);
	cl_plock_release(&p->osm->lock);
	homes_store(p);
}
