/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/paths.h"

#include <stdlib.h>
#include <string.h>

#include <opensm/osm_inform.h>
#include <opensm/osm_partition.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

#define PIECE 512

static bool is_peer(struct plugin *p, const osm_port_t *self, const osm_port_t *peer)
{
	return peer != self && osm_node_get_type(peer->p_node) == IB_NODE_TYPE_CA &&
	       osm_physp_get_port_state(peer->p_physp) == IB_LINK_ACTIVE && peer->lid &&
	       osm_port_share_pkey(&p->osm->log, self, peer, p->osm->subn.opt.allow_both_pkeys);
}

static bool read_one(struct plugin *p, const osm_port_t *self, const osm_port_t *peer,
		     struct path_view *ret)
{
	uint16_t lid = cl_ntoh16(self->lid), peer_lid = cl_ntoh16(peer->lid);
	osm_path_parms_t to, from;

	if (osm_get_path_params(&p->osm->sa, peer, peer_lid, self, lid, &to) != IB_SUCCESS ||
	    osm_get_path_params(&p->osm->sa, self, lid, peer, peer_lid, &from) != IB_SUCCESS)
		return false;
	*ret = (struct path_view){cl_ntoh64(peer->guid), to.sl, from.sl, to.mtu, to.rate};
	return true;
}

struct paths paths_read(struct plugin *p, uint64_t port_guid)
{
	cl_qmap_t *ports = &p->osm->subn.port_guid_tbl;
	struct paths r = {0};
	osm_port_t *self;
	size_t total, n = 0;

	cl_plock_acquire(&p->osm->lock);
	self = osm_get_port_by_guid(&p->osm->subn, cl_hton64(port_guid));
	total = cl_qmap_count(ports);
	if (!self || !self->lid || osm_physp_get_port_state(self->p_physp) != IB_LINK_ACTIVE ||
	    total > PATHS_PORTS_MAX || !(r.view = calloc(total, sizeof *r.view)))
		goto out;
	for (cl_map_item_t *i = cl_qmap_head(ports); i != cl_qmap_end(ports); i = cl_qmap_next(i)) {
		if (++n % PIECE == 0) { /* no port goes or comes while the gate is held */
			cl_plock_release(&p->osm->lock);
			cl_plock_acquire(&p->osm->lock);
		}
		if (is_peer(p, self, (osm_port_t *)i) &&
		    read_one(p, self, (osm_port_t *)i, &r.view[r.count]))
			r.count++;
	}
out:
	cl_plock_release(&p->osm->lock);
	return r;
}

/* As OpenSM computes it: a switch's port 0 says if the extended speeds count. */
struct link_view paths_link(const osm_physp_t *physp)
{
	const osm_node_t *node = physp->p_node;
	const osm_physp_t *of = node->sw ? osm_node_get_physp_ptr((osm_node_t *)node, 0) : physp;
	const ib_port_info_t *pi = &physp->port_info;

	return (struct link_view){
		ib_port_info_get_mtu_cap(pi),
		ib_port_info_compute_rate(pi, of->port_info.capability_mask &
						      IB_PORT_CAP_HAS_EXT_SPEEDS)};
}

static bool same_view(const osm_physp_t *a, const osm_physp_t *b)
{
	struct link_view x = paths_link(a), y = paths_link(b);

	return x.mtu == y.mtu && x.rate == y.rate;
}

bool paths_same_link(struct plugin *p, const osm_physp_t *a, const osm_physp_t *b)
{
	bool same;

	cl_plock_acquire(&p->osm->lock);
	same = same_view(a, b) && a->p_remote_physp && b->p_remote_physp &&
	       same_view(a->p_remote_physp, b->p_remote_physp);
	cl_plock_release(&p->osm->lock);
	return same;
}

static bool one_sl(const osm_opensm_t *osm)
{
	const cl_qmap_t *prtns = &osm->subn.prtn_pkey_tbl;
	const osm_prtn_t *first = (const osm_prtn_t *)cl_qmap_head(prtns);

	if (osm->subn.opt.qos || (osm->routing_engine_used && osm->routing_engine_used->path_sl))
		return false;
	for (const cl_map_item_t *i = cl_qmap_head(prtns); i != cl_qmap_end(prtns);
	     i = cl_qmap_next(i))
		if (((const osm_prtn_t *)i)->sl != first->sl)
			return false;
	return true;
}

/* first: any port between two switches, NULL: none has been seen yet. */
static bool like_first(const osm_node_t *node, const osm_physp_t **first)
{
	for (unsigned n = 1; n < osm_node_get_num_physp(node); n++) {
		const osm_physp_t *physp = osm_node_get_physp_ptr((osm_node_t *)node, n);

		if (!physp || !physp->p_remote_physp || !physp->p_remote_physp->p_node->sw)
			continue;
		if (*first && !same_view(physp, *first))
			return false;
		*first = physp;
	}
	return true;
}

bool paths_links_alike(const struct plugin *p, struct link_view *ret_link)
{
	const cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;
	const osm_physp_t *first = NULL;

	for (const cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		if (!like_first(((const osm_switch_t *)i)->p_node, &first))
			return false;
	*ret_link = first ? paths_link(first) : (struct link_view){0};
	return true;
}

bool paths_uniform(struct plugin *p)
{
	uint64_t sweeps = atomic_load(&p->count.heavy_sweeps);
	struct link_view link;

	if (p->uniform_at == sweeps)
		return p->uniform;
	cl_plock_acquire(&p->osm->lock);
	p->uniform = one_sl(p->osm) && paths_links_alike(p, &link);
	cl_plock_release(&p->osm->lock);
	p->uniform_at = sweeps;
	return p->uniform;
}

void paths_free(struct paths *paths)
{
	free(paths->view);
	*paths = (struct paths){0};
}

static bool same_path(const struct path_view *x, const struct path_view *y)
{
	return x->sl_to == y->sl_to && x->sl_from == y->sl_from && x->mtu == y->mtu &&
	       x->rate == y->rate;
}

static void append(struct sm_assign_reply *r, uint64_t moved, const struct path_view *v)
{
	if (r->path_count < SM_PATHS_MAX)
		r->path[r->path_count++] = (struct sm_path){moved,  v->peer, v->sl_to, v->sl_from,
							    v->mtu, v->rate, {0}};
}

/* Both lists are in the order of the GUIDs. */
unsigned paths_differ(const struct paths *a, const struct paths *b, uint64_t moved,
		      struct sm_assign_reply *r)
{
	unsigned n = 0;

	for (unsigned i = 0, k = 0; i < a->count && k < b->count;) {
		const struct path_view *x = &a->view[i], *y = &b->view[k];

		if (x->peer == y->peer) {
			if (!same_path(x, y)) {
				append(r, moved, y);
				n++;
			}
			i++;
			k++;
		} else if (x->peer < y->peer) {
			i++;
		} else {
			k++;
		}
	}
	return n;
}

unsigned paths_of(struct plugin *p, uint64_t guid, struct sm_path path[static SM_PATHS_MAX],
		  uint32_t *count)
{
	cl_qmap_t *all = &p->osm->subn.alias_port_guid_tbl;
	const osm_port_t *self;
	struct path_view v;
	unsigned n = 0;

	cl_plock_acquire(&p->osm->lock);
	self = osm_get_port_by_alias_guid(&p->osm->subn, cl_hton64(guid));
	for (cl_map_item_t *i = cl_qmap_head(all);
	     self && cl_qmap_count(all) <= PATHS_PORTS_MAX && i != cl_qmap_end(all);
	     i = cl_qmap_next(i)) {
		const osm_alias_guid_t *a = (osm_alias_guid_t *)i;
		const osm_port_t *peer = a->p_base_port;

		/* an alias on the same port has a path to it as well */
		if (cl_ntoh64(a->alias_guid) == guid || (peer != self && !is_peer(p, self, peer)))
			continue;
		n++;
		if (*count < SM_PATHS_MAX && read_one(p, self, peer, &v))
			path[(*count)++] = (struct sm_path){
				guid, cl_ntoh64(a->alias_guid), v.sl_to, v.sl_from, v.mtu, v.rate,
				{0}};
	}
	cl_plock_release(&p->osm->lock);
	return n;
}

void paths_report(struct plugin *p, unsigned trap, uint64_t port_guid)
{
	osm_subn_t *subn = &p->osm->subn;
	ib_mad_notice_attr_t notice;
	ib_gid_t gid;

	memset(&notice, 0, sizeof notice);
	memset(&gid, 0, sizeof gid);
	notice.generic_type = 0x80 | IB_NOTICE_TYPE_SUBN_MGMT;
	ib_notice_set_prod_type_ho(&notice, 4); /* class manager */
	notice.g_or_v.generic.trap_num = cl_hton16((uint16_t)trap);
	notice.issuer_lid = subn->sm_base_lid;
	notice.issuer_gid.unicast.prefix = subn->opt.subnet_prefix;
	notice.issuer_gid.unicast.interface_id = subn->sm_port_guid;
	gid.unicast.prefix = subn->opt.subnet_prefix;
	gid.unicast.interface_id = cl_hton64(port_guid);
	/* IBA 1.2.1 gives traps 64 to 67 a GID at this place; the headers know no details for 68
	 * and 69. */
	memcpy(&notice.data_details.ntc_64_67.gid, &gid, sizeof gid);
	if (osm_report_notice(&p->osm->log, subn, &notice) == IB_SUCCESS)
		atomic_fetch_add(trap == SM_UNPATH_TRAP ? &p->count.unpath_notices
							: &p->count.repath_notices,
				 1);
}
