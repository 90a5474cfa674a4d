/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers about OpenSM and the subnet; changes nothing. */
#include "sm-helper/plugin/homes.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/parked.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

/* OpenSM's tables are neither what was nor what is in the middle of a sweep. */
static int begin_read(struct plugin *p, struct sm_reply_head *h)
{
	if (!plugin_gate_enter(p, now_us() + SM_READ_WAIT_MS * 1000ull))
		return 0;
	return plugin_refuse(h, -EBUSY, "a heavy sweep has run for over %u ms", SM_READ_WAIT_MS);
}

static void copy_text(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from ? from : "");
}

/* Fills in a place that shows another GUID than at home; false: it does not, or shows none. */
static bool fill_home(struct plugin *p, const struct home *h, struct sm_home *to)
{
	osm_switch_t *sw = osm_get_switch_by_guid(&p->osm->subn, cl_hton64(h->key.switch_guid));
	osm_physp_t *near = sw && h->key.switch_port < osm_node_get_num_physp(sw->p_node)
				    ? osm_node_get_physp_ptr(sw->p_node, h->key.switch_port)
				    : NULL;
	osm_physp_t *physp = near ? near->p_remote_physp : NULL;
	uint64_t guid = physp ? cl_ntoh64(physp->port_guid) : 0;

	if (!guid || guid == h->port_guid)
		return false;
	*to = (struct sm_home){
		.switch_guid = h->key.switch_guid,
		.switch_port = h->key.switch_port,
		.node_guid = cl_ntoh64(osm_node_get_node_guid(physp->p_node)),
		.port_guid = guid,
		.parked_node = h->node_guid,
		.parked_guid = h->port_guid,
		.like = h->like,
		.lid = cl_ntoh16(osm_physp_get_base_lid(physp)),
		.own_lid = h->own,
	};
	return true;
}

/* How many there are; those from `first` on into r, if it is not NULL. Lock held. */
static uint32_t list_homes(struct plugin *p, uint32_t first, struct sm_homes_reply *r)
{
	cl_fmap_t *map = &p->homes->map;
	struct sm_home one;
	uint32_t n = 0;

	for (cl_fmap_item_t *i = cl_fmap_head(map); i != cl_fmap_end(map); i = cl_fmap_next(i)) {
		if (!fill_home(p, &((struct home_item *)i)->home, &one))
			continue;
		if (r && n >= first && r->count < SM_ENDPORTS_MAX)
			r->home[r->count++] = one;
		n++;
	}
	return n;
}

/* How many there are, counted once for each state of the subnet: the status is asked for often.
 * Lock held. */
static uint32_t count_bound(struct plugin *p)
{
	uint64_t generation = atomic_load(&p->count.generation);

	if (!p->bound_known || p->bound_at != generation) {
		p->bound = list_homes(p, 0, NULL);
		p->bound_at = generation;
		p->bound_known = true;
	}
	return p->bound;
}

int plugin_homes(struct plugin *p, const struct sm_page_request *req, struct sm_homes_reply *r)
{
	int rc = begin_read(p, &r->h);

	if (rc)
		return rc;
	cl_plock_acquire(&p->osm->lock);
	r->total = list_homes(p, req->first, r);
	cl_plock_release(&p->osm->lock);
	plugin_gate_leave(p);
	return (int)(offsetof(struct sm_homes_reply, home) + r->count * sizeof r->home[0]);
}

int plugin_status(struct plugin *p, struct sm_status_reply *r)
{
	osm_opensm_t *osm = p->osm;
	struct osm_routing_engine *engine;
	unsigned others;

	pthread_mutex_lock(&p->gate);
	plugin_look_for_end(p);
	r->ready = p->ready;
	r->sweeping = p->sweeping || p->sweep_asked;
	r->heavy_sweeps = atomic_load(&p->count.heavy_sweeps);
	pthread_mutex_unlock(&p->gate);
	cl_plock_acquire(&osm->lock);
	others = master_others(p);
	r->sm_guid = cl_ntoh64(osm->subn.sm_port_guid);
	r->sm_lid = cl_ntoh16(osm->subn.sm_base_lid);
	r->sm_state = osm->subn.sm_state;
	r->others = (uint8_t)(others < UINT8_MAX ? others : UINT8_MAX);
	r->switches = (uint32_t)cl_qmap_count(&osm->subn.sw_guid_tbl);
	r->endports = (uint32_t)cl_qmap_count(&osm->subn.port_guid_tbl);
	r->bound = count_bound(p);
	engine = osm->routing_engine_used;
	copy_text(r->engine, sizeof r->engine, engine ? engine->name : NULL);
	cl_plock_release(&osm->lock);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	r->lft_smps = atomic_load(&p->count.lft_smps);
	r->port_info_smps = atomic_load(&p->count.port_info_smps);
	r->lft_changes = atomic_load(&p->count.lft_changes);
	r->sa_path_requests = atomic_load(&p->count.sa_path_requests);
	r->repath_notices = atomic_load(&p->count.repath_notices);
	r->guid_smps = atomic_load(&p->count.guid_smps);
	r->pkey_smps = atomic_load(&p->count.pkey_smps);
	r->pkey_changes = atomic_load(&p->count.pkey_changes);
	r->unpath_notices = atomic_load(&p->count.unpath_notices);
	r->gids_in = atomic_load(&p->count.gids_in);
	r->gids_out = atomic_load(&p->count.gids_out);
	r->reroutes = atomic_load(&p->count.reroutes);
	r->parked = parked_count(p);
	r->owner = p->owner;
	copy_text(r->plugin_version, sizeof r->plugin_version, IBVMIG_VERSION);
	copy_text(r->opensm_version, sizeof r->opensm_version, osm->osm_version);
	return sizeof *r;
}

static void fill_endport(struct sm_endport *e, const osm_port_t *port)
{
	const osm_node_t *node = port->p_node;
	const osm_physp_t *physp = port->p_physp, *peer = physp->p_remote_physp;
	const ib_port_info_t *pi = &physp->port_info;

	e->node_guid = cl_ntoh64(osm_node_get_node_guid(node));
	e->port_guid = cl_ntoh64(port->guid);
	e->lid = cl_ntoh16(port->lid);
	e->type = osm_node_get_type(node);
	e->port = physp->port_num;
	e->ports = node->node_info.num_ports;
	e->lmc = ib_port_info_get_lmc(pi);
	e->mtu = ib_port_info_get_neighbor_mtu(pi);
	e->rate = ib_port_info_compute_rate(pi, pi->capability_mask & IB_PORT_CAP_HAS_EXT_SPEEDS);
	if (node->sw)
		e->lft_top = node->sw->max_lid_ho;
	else if (peer) {
		e->peer_guid = cl_ntoh64(osm_node_get_node_guid(peer->p_node));
		e->peer_port = peer->port_num;
	}
	copy_text(e->desc, sizeof e->desc, node->print_desc);
}

int plugin_endports(struct plugin *p, const struct sm_page_request *req,
		    struct sm_endports_reply *r)
{
	cl_qmap_t *ports = &p->osm->subn.port_guid_tbl;
	uint32_t index = 0;
	int rc = begin_read(p, &r->h);

	if (rc)
		return rc;
	cl_plock_acquire(&p->osm->lock);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	r->total = (uint32_t)cl_qmap_count(ports);
	for (cl_map_item_t *i = cl_qmap_head(ports); i != cl_qmap_end(ports); i = cl_qmap_next(i)) {
		if (r->count == SM_ENDPORTS_MAX)
			break;
		if (index++ >= req->first)
			fill_endport(&r->endport[r->count++], (osm_port_t *)i);
	}
	cl_plock_release(&p->osm->lock);
	plugin_gate_leave(p);
	return (int)(offsetof(struct sm_endports_reply, endport) + r->count * sizeof r->endport[0]);
}

/* Fills each link once: from the end whose (GUID, port) is smaller. Also counts links before
 * `first`. */
static void fill_links(struct sm_links_reply *r, const osm_node_t *node, uint32_t first)
{
	uint64_t guid = cl_ntoh64(osm_node_get_node_guid(node));

	for (unsigned n = 1; n < osm_node_get_num_physp(node); n++) {
		osm_physp_t *physp = osm_node_get_physp_ptr((osm_node_t *)node, n);
		const osm_physp_t *peer = physp ? physp->p_remote_physp : NULL;
		uint64_t peer_guid = peer ? cl_ntoh64(osm_node_get_node_guid(peer->p_node)) : 0;

		if (!peer || !peer->p_node->sw || guid > peer_guid ||
		    (guid == peer_guid && n > peer->port_num))
			continue;
		if (r->total++ >= first && r->count < SM_LINKS_MAX)
			r->link[r->count++] = (struct sm_link){
				.guid = {guid, peer_guid},
				.port = {(uint8_t)n, peer->port_num},
			};
	}
}

int plugin_links(struct plugin *p, const struct sm_page_request *req, struct sm_links_reply *r)
{
	cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;
	int rc = begin_read(p, &r->h);

	if (rc)
		return rc;
	cl_plock_acquire(&p->osm->lock);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		fill_links(r, ((osm_switch_t *)i)->p_node, req->first);
	cl_plock_release(&p->osm->lock);
	plugin_gate_leave(p);
	return (int)(offsetof(struct sm_links_reply, link) + r->count * sizeof r->link[0]);
}

int plugin_lft(struct plugin *p, const struct sm_lft_request *req, struct sm_lft_reply *r)
{
	osm_switch_t *sw;
	int rc = 0;

	cl_plock_acquire(&p->osm->lock);
	sw = osm_get_switch_by_guid(&p->osm->subn, cl_hton64(req->switch_guid));
	if (!sw) {
		rc = plugin_refuse(&r->h, -ENOENT, "OpenSM knows no switch 0x%016" PRIx64,
				   req->switch_guid);
	} else {
		r->blocks_total = (sw->max_lid_ho + IB_LFT_BLOCK) / IB_LFT_BLOCK;
		for (uint32_t b = req->first_block;
		     b < r->blocks_total && r->count < SM_LFT_BLOCKS &&
		     (b + 1) * IB_LFT_BLOCK <= sw->lft_size;
		     b++)
			memcpy(r->lft + r->count++ * IB_LFT_BLOCK, sw->lft + b * IB_LFT_BLOCK,
			       IB_LFT_BLOCK);
	}
	cl_plock_release(&p->osm->lock);
	return rc ? rc : (int)(offsetof(struct sm_lft_reply, lft) + r->count * IB_LFT_BLOCK);
}
