/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/tables.h"
#include "sm-helper/plugin/guid2lid.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_db_pack.h>
#include <opensm/osm_mcm_port.h>
#include <opensm/osm_multicast.h>
#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

static osm_port_t *find_like(struct plugin *p, const struct place *place, uint64_t guid)
{
	osm_port_t *port = guid ? osm_get_port_by_guid(&p->osm->subn, cl_hton64(guid)) : NULL;
	const osm_physp_t *peer = port ? port->p_physp->p_remote_physp : NULL;

	return peer && peer->p_node->sw == place->sw && port != place->port ? port : NULL;
}

int tables_find(struct plugin *p, struct place *place, struct sm_reply_head *h)
{
	const struct sm_target *want = &place->want;
	osm_physp_t *physp;

	place->sw = osm_get_switch_by_guid(&p->osm->subn, cl_hton64(want->switch_guid));
	if (!place->sw)
		return plugin_refuse(h, -ENOENT, "OpenSM knows no switch 0x%016" PRIx64,
				     want->switch_guid);
	physp = want->switch_port < osm_node_get_num_physp(place->sw->p_node)
			? osm_node_get_physp_ptr(place->sw->p_node, want->switch_port)
			: NULL;
	place->physp = physp ? physp->p_remote_physp : NULL;
	if (!place->physp)
		return plugin_refuse(h, -ENOENT,
				     "OpenSM sees nothing at port %u of switch 0x%016" PRIx64,
				     want->switch_port, want->switch_guid);
	place->node = place->physp->p_node;
	place->port = osm_get_port_by_guid(&p->osm->subn, place->physp->port_guid);
	if (osm_node_get_type(place->node) != IB_NODE_TYPE_CA ||
	    place->node->node_info.num_ports != 1 || !place->port)
		return plugin_refuse(h, -EOPNOTSUPP,
				     "port %u of switch 0x%016" PRIx64
				     " leads to %s, which is no VF with one port",
				     want->switch_port, want->switch_guid, place->node->print_desc);
	if (place->port->guid == p->osm->subn.sm_port_guid)
		return plugin_refuse(h, -EOPNOTSUPP, "%s is the port of OpenSM itself",
				     place->node->print_desc);
	place->before = (struct sm_target){
		.switch_guid = want->switch_guid,
		.switch_port = want->switch_port,
		.node_guid = cl_ntoh64(osm_node_get_node_guid(place->node)),
		.port_guid = cl_ntoh64(place->port->guid),
		.lid = cl_ntoh16(place->port->lid),
	};
	if ((want->was_guid && want->was_guid != place->before.port_guid) ||
	    (want->was_lid && want->was_lid != place->before.lid))
		return plugin_refuse(h, -ESTALE,
				     "port %u of switch 0x%016" PRIx64 " shows 0x%016" PRIx64
				     " with LID %u since it was looked at",
				     want->switch_port, want->switch_guid, place->before.port_guid,
				     place->before.lid);
	if (!place->before.lid)
		return plugin_refuse(h, -EAGAIN, "%s has no LID yet", place->node->print_desc);
	return 0;
}

static bool is_among(const struct place *places, unsigned n, const osm_node_t *node)
{
	for (unsigned i = 0; i < n; i++)
		if (places[i].node == node)
			return true;
	return false;
}

static int refuse_held(struct sm_reply_head *h, const struct sm_target *t, const osm_node_t *holder)
{
	return plugin_refuse(h, -EEXIST, "GUID 0x%016" PRIx64 " or LID %u belongs to %s",
			     t->port_guid, t->lid, holder->print_desc);
}

/* True if one of the LIDs from `lid` on is kept for somebody who has it not. */
static bool is_used(struct plugin *p, unsigned lid)
{
	for (unsigned k = lid; k < lid + plugin_lids(p); k++)
		if (p->osm->sm.lid_mgr.used_lids[k] &&
		    !osm_get_port_by_lid_ho(&p->osm->subn, (uint16_t)k)) /* else refused later */
			return true;
	return false;
}

/* A LID that a port will want again when it comes back, or that waits behind a copy. */
static bool is_reserved(struct plugin *p, const struct place *places, unsigned n,
			const struct sm_target *t)
{
	for (unsigned i = 0; i < n; i++)
		if (places[i].before.lid == t->lid)
			return false;
	return is_used(p, t->lid) && guid2lid_get(p, t->port_guid) != t->lid;
}

/* The ports of a subnet with LMC have runs of LIDs; who has one of these, and is not among the
 * places: NULL, nobody. */
static const osm_node_t *lid_holder(struct plugin *p, const struct place *places, unsigned n,
				    unsigned lid)
{
	for (unsigned k = lid; k < lid + plugin_lids(p); k++) {
		const osm_port_t *port = osm_get_port_by_lid_ho(&p->osm->subn, (uint16_t)k);

		if (port && !is_among(places, n, port->p_node))
			return port->p_node;
	}
	return NULL;
}

/* The LID that waits while place i shows a copy is what the registry has, if another OpenSM was
 * told of it. Else it is the one that OpenSM still keeps for the parked GUID, if a sweep has seen
 * the vGUID here before we were told. Else it is the one that the place has. 0: none. */
static uint16_t waiting_lid(struct plugin *p, const struct place *places, unsigned n, unsigned i)
{
	const struct place *place = &places[i];
	uint16_t now = place->before.lid, told = place->want.own_lid;
	uint16_t kept = guid2lid_get(p, place->want.parked_guid);

	if (told && told != place->want.lid && !lid_holder(p, places, n, told))
		return told;
	if (place->before.port_guid != place->want.parked_guid && kept && kept != place->want.lid &&
	    !osm_get_port_by_lid_ho(&p->osm->subn, kept))
		return kept;
	return now != place->want.lid ? now : 0;
}

static int check_run(struct plugin *p, const struct sm_target *t, struct sm_reply_head *h)
{
	unsigned lids = plugin_lids(p);

	if (t->lid % lids == 0 && t->lid + lids - 1 <= IB_LID_UCAST_MAX)
		return 0;
	return plugin_refuse(h, -EINVAL,
			     "LID %u: with LMC %u a port's LID is a multiple of %u, up to %u",
			     t->lid, p->osm->subn.opt.lmc, lids, IB_LID_UCAST_MAX + 1 - lids);
}

/* The place that gets this LID, or n. */
static unsigned lid_goes_to(const struct place *places, unsigned n, uint16_t lid)
{
	unsigned i = 0;

	while (i < n && places[i].want.lid != lid)
		i++;
	return i;
}

/* The LID of a place that shall keep its own is the one that it has, unless another one gets that.
 * Then it is the one that waits for it, or the one that nobody has any more. That one is of the
 * place where its own goes, or where that goes, and so on. A copy comes to a place and leaves that
 * its own. */
static uint16_t kept_lid(struct plugin *p, const struct place *places, unsigned n, unsigned i)
{
	uint16_t lid = places[i].row, waiting;
	unsigned next = lid_goes_to(places, n, lid);

	if (next == n)
		return lid;
	waiting = waiting_lid(p, places, n, i);
	if (waiting && lid_goes_to(places, n, waiting) == n)
		return waiting;
	for (unsigned hops = 0; hops < n && next < n && !places[next].want.like_guid; hops++) {
		lid = places[next].row;
		next = lid_goes_to(places, n, lid);
	}
	return lid;
}

/* The LID that waits here, as the home has it, is of an earlier time as master: another one, as the
 * registry knows; or somebody has it. */
static bool is_stale(struct plugin *p, const struct place *places, unsigned n, const struct home *h,
		     uint16_t told)
{
	return (told && told != h->own) || lid_holder(p, places, n, h->own);
}

/* Finds what place i is a home of now. */
static void find_home(struct plugin *p, struct place *places, unsigned n, unsigned i)
{
	struct place *place = &places[i];
	struct sm_target *want = &place->want, *before = &place->before;
	const struct home *h;
	bool copied;

	place->home.key = (struct home_key){want->switch_guid, want->switch_port};
	h = homes_find(p, place->home.key);
	copied = h && h->like && h->own != before->lid &&
		 !is_stale(p, places, n, h, want->was_own_lid);
	place->had_home = h;
	place->row = copied ? h->own : before->lid;
	before->like_guid = copied ? h->like : 0;
	if (!want->parked_guid)
		want->parked_guid = h ? h->port_guid : before->port_guid;
	before->parked_guid = want->parked_guid;
	place->waited = guid2lid_get(p, want->parked_guid);
	if (h)
		place->home_before = place->home = *h;
}

/* The home of a place that had none: what engines have seen there so far. That may be the vGUID,
 * where a sweep has come before the call, unless another place shows it to them for good. */
static struct home first_home(const struct plugin *p, const struct place *place)
{
	const struct sm_target *before = &place->before;
	uint64_t parked = place->want.parked_guid;
	struct home h = {.key = place->home.key,
			 .port_guid = before->port_guid,
			 .node_guid = before->node_guid};

	if (homes_show(p, before->port_guid)) {
		h.port_guid = parked;
		h.node_guid = before->node_guid - before->port_guid + parked;
	}
	return h;
}

/* And afterwards. */
static void change_home(struct plugin *p, struct place *places, unsigned n, unsigned i)
{
	struct place *place = &places[i];
	struct sm_target *want = &place->want, *before = &place->before;
	const struct home *h = place->had_home ? &place->home_before : NULL;
	bool copied = before->like_guid;
	struct home *after = &place->home;

	if (!want->lid)
		want->lid = kept_lid(p, places, n, i);
	if (!h)
		*after = first_home(p, place);
	after->like = want->like_guid;
	after->own = want->lid;
	if (after->like && !(after->own = copied ? h->own : waiting_lid(p, places, n, i))) {
		/* The port came here with its LID while nobody looked: the LID is the place's own
		 * now. */
		after->own = want->lid;
		after->like = 0;
	}
	if (!h)
		after->lid = after->like ? after->own : before->lid;
	if (after->like && !copied && lid_goes_to(places, n, after->own) < n) {
		after->own = kept_lid(p, places, n, i); /* the place's goes with its VM */
		after->lid = h ? h->lid : before->lid;
	}
	place->like = find_like(p, place, after->like);
}

/* The home of a place is what engines saw there before its first VM, unless nobody has that LID any
 * more: OpenSM may give it to another port. */
static void choose_homes(struct place *places, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct place *x = &places[i];
		bool stays = x->had_home || x->home.own == x->home.lid;

		for (unsigned k = 0; !stays && k < n; k++)
			stays = places[k].want.lid == x->home.lid ||
				places[k].home.own == x->home.lid;
		if (!stays)
			x->home.lid = x->home.own;
		x->at_home = x->want.port_guid == x->home.port_guid && !x->home.like &&
			     x->home.own == x->home.lid;
	}
}

int tables_check(struct plugin *p, struct place *places, unsigned n, struct sm_reply_head *h)
{
	osm_subn_t *subn = &p->osm->subn;

	for (unsigned i = 0; i < n; i++)
		find_home(p, places, n, i);
	for (unsigned i = 0; i < n; i++)
		change_home(p, places, n, i);
	for (unsigned i = 0; i < n; i++) {
		const struct sm_target *t = &places[i].want;
		int rc = check_run(p, t, h);

		if (rc)
			return rc;
		if (places[i].home.like && is_reserved(p, places, n, t))
			return plugin_refuse(h, -EADDRINUSE,
					     "OpenSM keeps LID %u for a port that is away", t->lid);
	}
	for (unsigned i = 0; i < n; i++) {
		const struct sm_target *t = &places[i].want;
		const osm_node_t *node = osm_get_node_by_guid(subn, cl_hton64(t->node_guid));
		const osm_port_t *port = osm_get_port_by_guid(subn, cl_hton64(t->port_guid));
		const osm_node_t *at_lid = lid_holder(p, places, n, t->lid);

		if (node && !is_among(places, n, node))
			return refuse_held(h, t, node);
		if (port && !is_among(places, n, port->p_node))
			return refuse_held(h, t, port->p_node);
		if (at_lid)
			return refuse_held(h, t, at_lid);
		for (unsigned k = 0; k < i; k++)
			if (places[k].want.lid == t->lid || places[k].home.own == t->lid ||
			    places[k].want.lid == places[i].home.own ||
			    places[k].home.own == places[i].home.own)
				return plugin_refuse(h, -EEXIST, "two ports would have LID %u",
						     t->lid);
	}
	choose_homes(places, n);
	return 0;
}

/* Finds which of the present identities each place gets: the one with the wanted GUID if it is
 * among them, else one that nobody wants, which is then renamed. */
static void match_identities(const struct place *places, const struct sm_target *to, unsigned n,
			     osm_port_t **ret_port)
{
	bool taken[SM_ASSIGN_MAX] = {false};

	for (unsigned i = 0; i < n; i++) {
		ret_port[i] = NULL;
		for (unsigned k = 0; k < n; k++)
			if (places[k].port->guid == cl_hton64(to[i].port_guid)) {
				ret_port[i] = places[k].port;
				taken[k] = true;
			}
	}
	for (unsigned i = 0, k = 0; i < n; i++) {
		if (ret_port[i])
			continue;
		while (taken[k])
			k++;
		taken[k] = true;
		ret_port[i] = places[k].port;
	}
}

static void leave_groups(struct plugin *p, osm_port_t *port)
{
	while (!cl_is_qlist_empty(&port->mcm_list)) {
		osm_mcm_port_t *m = container_of(cl_qlist_head(&port->mcm_list), osm_mcm_port_t,
						 list_item);

		osm_mgrp_delete_port(&p->osm->subn, &p->osm->log, m->mgrp, port);
	}
}

static void reroute_groups(struct plugin *p, osm_port_t *port)
{
	cl_list_item_t *i;

	for (i = cl_qlist_head(&port->mcm_list); i != cl_qlist_end(&port->mcm_list);
	     i = cl_qlist_next(i)) {
		osm_mcm_port_t *m = container_of(i, osm_mcm_port_t, list_item);

		osm_sm_reroute_mlid(&p->osm->sm, osm_mgrp_get_mlid(m->mgrp));
	}
}

/* The LIDs of a port are its own; NULL: nobody's. */
static void set_lids(struct plugin *p, unsigned lid, osm_port_t *port)
{
	for (unsigned k = lid; k < lid + plugin_lids(p); k++) {
		cl_ptr_vector_set(&p->osm->subn.port_lid_tbl, k, port);
		p->osm->sm.lid_mgr.used_lids[k] = port != NULL;
	}
}

static osm_alias_guid_t *take_out(struct plugin *p, const struct place *place)
{
	osm_subn_t *subn = &p->osm->subn;
	osm_port_t *port = place->port;
	uint16_t lid = cl_ntoh16(port->lid);
	osm_alias_guid_t *alias = osm_get_alias_guid_by_guid(subn, port->guid);

	cl_qmap_remove_item(&subn->port_guid_tbl, &port->map_item);
	cl_qmap_remove_item(&subn->node_guid_tbl, &place->node->map_item);
	if (alias)
		cl_qmap_remove_item(&subn->alias_port_guid_tbl, &alias->map_item);
	set_lids(p, lid, NULL);
	guid2lid_drop(p, cl_ntoh64(port->guid));
	osm_db_neighbor_delete(subn->p_neighbor, cl_ntoh64(port->guid), place->physp->port_num);
	return alias;
}

/* OpenSM keeps who is whose neighbour in a file and complains at its next start if that is wrong.
 */
static void set_neighbors(osm_db_domain_t *db, const osm_physp_t *a, const osm_physp_t *b)
{
	osm_db_neighbor_set(db, cl_ntoh64(a->port_guid), a->port_num, cl_ntoh64(b->port_guid),
			    b->port_num);
	osm_db_neighbor_set(db, cl_ntoh64(b->port_guid), b->port_num, cl_ntoh64(a->port_guid),
			    a->port_num);
}

static void put_in(struct plugin *p, struct place *place, const struct sm_target *t,
		   osm_port_t *port, osm_alias_guid_t *alias)
{
	osm_subn_t *subn = &p->osm->subn;
	ib_net64_t node_guid = cl_hton64(t->node_guid), port_guid = cl_hton64(t->port_guid);

	place->port = port;
	port->guid = port_guid;
	port->p_node = place->node;
	port->p_physp = place->physp;
	port->lid = cl_hton16(t->lid);
	place->node->node_info.node_guid = node_guid;
	place->node->node_info.port_guid = port_guid;
	place->physp->port_guid = port_guid;
	cl_qmap_insert(&subn->node_guid_tbl, node_guid, &place->node->map_item);
	cl_qmap_insert(&subn->port_guid_tbl, port_guid, &port->map_item);
	if (alias) {
		alias->alias_guid = port_guid;
		cl_qmap_insert(&subn->alias_port_guid_tbl, port_guid, &alias->map_item);
	}
	set_lids(p, t->lid, port);
	guid2lid_set(p, t->port_guid, t->lid, plugin_lids(p));
	set_neighbors(subn->p_neighbor, place->physp, place->physp->p_remote_physp);
	/* The LID is set at once, not with the answer to the PortInfo: path records are made from
	 * it. */
	osm_physp_set_base_lid(place->physp, cl_hton16(t->lid));
}

/* Drops other records that this LID waits for a GUID, in files that are older than what was told:
 * guid2lid, and homes of other places. */
static void drop_others(struct plugin *p, const struct home *h, uint64_t guid)
{
	struct known_lid *known AUTO_FREE = NULL;
	unsigned n = guid2lid_all(p, &known);

	homes_drop_waiting(p, h->own, h->key);
	for (unsigned i = 0; i < n; i++)
		if (known[i].guid != guid && known[i].lid == h->own)
			guid2lid_drop(p, known[i].guid);
}

/* A LID that waits stays the parked GUID's, so that nobody gets it, after a restart neither. */
static void keep_waiting(struct plugin *p, const struct home *h, uint64_t parked_guid)
{
	if (!h->like)
		return;
	if (p->osm->sm.lid_mgr.used_lids[h->own] && guid2lid_get(p, parked_guid) != h->own)
		drop_others(p, h, parked_guid);
	guid2lid_keep(p, h->own, plugin_lids(p), true);
	guid2lid_set(p, parked_guid, h->own, plugin_lids(p));
}

static void assign_home(struct plugin *p, const struct place *place, bool back)
{
	const struct home *h = back ? &place->home_before : &place->home;
	uint16_t *seen_as = p->homes->seen_as;

	for (unsigned k = 0; k < plugin_lids(p); k++) {
		seen_as[place->before.lid + k] = (uint16_t)(place->before.lid + k);
		seen_as[place->row + k] = (uint16_t)(place->row + k);
	}
	if (back ? !place->had_home : place->at_home) {
		homes_drop(p, place->home.key);
		return;
	}
	homes_put(p, h);
	keep_waiting(p, h, place->want.parked_guid);
}

/* A VF whose LID is its VM's now has none that waits for its parked GUID: in OpenSM's file it would
 * be somebody else's. The way back is to what was: a sweep may have found the VM's GUID here with
 * its LID, and kept the VF's own for the parked GUID. */
static void drop_waiting(struct plugin *p, const struct place *place, bool back)
{
	const struct sm_target *t = back ? &place->before : &place->want;
	const struct home *h = back ? &place->home_before : &place->home; /* zeroed: none */
	uint16_t lid = guid2lid_get(p, t->parked_guid);

	if (h->like || t->port_guid == t->parked_guid)
		return;
	if (back && place->waited) {
		guid2lid_keep(p, place->waited, plugin_lids(p), true);
		guid2lid_set(p, t->parked_guid, place->waited, plugin_lids(p));
		return;
	}
	if (!lid)
		return;
	guid2lid_drop(p, t->parked_guid);
	if (!osm_get_port_by_lid_ho(&p->osm->subn, lid))
		guid2lid_keep(p, lid, plugin_lids(p), false);
}

/* Runs after assign_home() of all: what one gives up another may have. */
static void assign_seen(struct plugin *p, const struct place *place, bool back)
{
	const struct home *h = back ? &place->home_before : &place->home;
	uint16_t *seen_as = p->homes->seen_as, lid = back ? place->before.lid : place->want.lid;

	if (back ? !place->had_home : place->at_home)
		return;
	for (unsigned k = 0; k < plugin_lids(p); k++) {
		seen_as[h->own + k] = (uint16_t)(h->lid + k);
		if (h->like)
			seen_as[lid + k] = place->like ? seen_as[cl_ntoh16(place->like->lid) + k]
						       : (uint16_t)(h->lid + k);
	}
}

void tables_assign(struct plugin *p, struct place *places, unsigned n, bool back)
{
	struct sm_target to[SM_ASSIGN_MAX];
	osm_port_t *port[SM_ASSIGN_MAX];
	osm_alias_guid_t *alias[SM_ASSIGN_MAX];
	bool moved[SM_ASSIGN_MAX];

	for (unsigned i = 0; i < n; i++)
		to[i] = back ? places[i].before : places[i].want;
	match_identities(places, to, n, port);
	for (unsigned i = 0; i < n; i++)
		if (port[i]->guid != cl_hton64(to[i].port_guid))
			leave_groups(p, port[i]);
	for (unsigned i = 0; i < n; i++) {
		alias[i] = take_out(p, &places[i]);
		moved[i] = places[i].port != port[i];
	}
	for (unsigned i = 0; i < n; i++) {
		osm_alias_guid_t *own = NULL;

		for (unsigned k = 0; k < n; k++)
			if (alias[k] && alias[k]->p_base_port == port[i])
				own = alias[k];
		put_in(p, &places[i], &to[i], port[i], own);
	}
	for (unsigned i = 0; i < n; i++)
		drop_waiting(p, &places[i], back);
	for (unsigned i = 0; i < n; i++)
		assign_home(p, &places[i], back);
	for (unsigned i = 0; i < n; i++)
		assign_seen(p, &places[i], back);
	for (unsigned i = 0; i < n; i++)
		if (moved[i])
			reroute_groups(p, port[i]);
}
