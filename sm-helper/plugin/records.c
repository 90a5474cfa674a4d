/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Path records for ibvmig-sm's cache: what OpenSM's SA would answer, from the same function that it
 * asks. A question with a partition of its own differs in two things, both of which are here. The
 * partition must be common to both ports, and its SL is what the routing engine starts from. */
#include "sm-helper/plugin/main.h"

#include <errno.h>

#include <opensm/osm_helper.h>
#include <opensm/osm_partition.h>
#include <opensm/osm_pkey.h>
#include <opensm/osm_port.h>
#include <opensm/osm_qos_policy.h>
#include <opensm/osm_switch.h>

static const osm_port_t *find_port(struct plugin *p, uint64_t guid)
{
	/* the port's own GUID, or one that it shows besides */
	const osm_port_t *port = osm_get_port_by_alias_guid(&p->osm->subn, cl_hton64(guid));

	return port && port->lid && osm_node_get_type(port->p_node) == IB_NODE_TYPE_CA &&
			       osm_physp_get_port_state(port->p_physp) == IB_LINK_ACTIVE
		       ? port
		       : NULL;
}

/* The QoS level of a question: the SA looks at its partition, and at who asks for whom. */
static const osm_qos_level_t *level_of(struct plugin *p, const osm_port_t *from,
				       const osm_port_t *to, ib_net16_t pkey)
{
	const osm_subn_t *subn = &p->osm->subn;
	ib_path_rec_t question = {.pkey = pkey};

	return subn->opt.qos && subn->p_qos_policy
		       ? osm_qos_policy_get_qos_level_by_pr(subn->p_qos_policy, &question,
							    from->p_physp, to->p_physp,
							    pkey ? IB_PR_COMPMASK_PKEY : 0)
		       : NULL;
}

/* True if no SL2VL table on the way drops the SL. */
static bool sl_passes(const osm_port_t *from, const osm_port_t *to, uint8_t sl)
{
	const osm_physp_t *at = from->p_physp;
	uint8_t in = 0;

	for (unsigned hops = 0; hops <= IB_SUBNET_PATH_HOPS_MAX; hops++) {
		if (ib_slvl_table_get(osm_physp_get_slvl_tbl(at, in), sl) == IB_DROP_VL)
			return false;
		at = at->p_remote_physp;
		if (!at || at == to->p_physp)
			return at;
		in = at->port_num;
		at = at->p_node->sw ? osm_switch_get_route_by_lid(at->p_node->sw, to->lid) : NULL;
		if (!at)
			return false;
	}
	return false;
}

static int use_partition(struct plugin *p, const osm_port_t *from, const osm_port_t *to,
			 ib_net16_t pkey, osm_path_parms_t *path)
{
	osm_subn_t *subn = &p->osm->subn;
	struct osm_routing_engine *engine = p->osm->routing_engine_used;
	cl_map_item_t *prtn = cl_qmap_get(&subn->prtn_pkey_tbl, pkey & cl_hton16(0x7fff));
	const osm_qos_level_t *level = level_of(p, from, to, pkey);

	if (!osm_physp_share_this_pkey(from->p_physp, to->p_physp, pkey,
				       subn->opt.allow_both_pkeys) ||
	    (level && level->pkey_range_len && !osm_qos_level_has_pkey(level, pkey)))
		return -ENOENT;
	path->pkey = pkey;
	path->sl = level && level->sl_set                      ? level->sl
		   : prtn == cl_qmap_end(&subn->prtn_pkey_tbl) ? OSM_DEFAULT_SL
							       : ((osm_prtn_t *)prtn)->sl;
	if (subn->opt.qos && !sl_passes(from, to, path->sl))
		return -ENOENT;
	if (engine && engine->path_sl)
		path->sl = engine->path_sl(engine->context, path->sl, from->lid, to->lid);
	return 0;
}

/* The SA's function knows no partition. Where one has a QoS level of its own, MTU and rate are the
 * SA's to tell. So is a path where the usual partition of both ports has none. */
static int read_path(struct plugin *p, const osm_port_t *from, const osm_port_t *to,
		     ib_net16_t pkey, osm_path_parms_t *path)
{
	bool qos = p->osm->subn.opt.qos;

	if (pkey && level_of(p, from, to, pkey) != level_of(p, from, to, 0))
		return -EOPNOTSUPP;
	if (osm_get_path_params(&p->osm->sa, from, cl_ntoh16(from->lid), to, cl_ntoh16(to->lid),
				path) != IB_SUCCESS)
		return pkey && qos ? -EOPNOTSUPP : -ENOENT;
	return pkey ? use_partition(p, from, to, pkey, path) : 0;
}

/* LMC gives the SA more to choose from than is known here. */
static int read_record(struct plugin *p, const struct sm_record_key *k, struct sm_record *r)
{
	const osm_port_t *from = find_port(p, k->sguid), *to = find_port(p, k->dguid);
	osm_path_parms_t path;
	int rc;

	if (p->osm->subn.opt.lmc || k->sguid == k->dguid)
		return -EOPNOTSUPP;
	if (!from || !to)
		return -ENOENT;
	if ((rc = read_path(p, from, to, cl_hton16(k->pkey), &path)))
		return rc;
	if (path.rate >= IB_PATH_RECORD_RATE_28_GBS) {
		path.rate = ib_path_rate_2x_hdr_fixups(&from->p_physp->port_info, path.rate);
		path.rate = ib_path_rate_2x_hdr_fixups(&to->p_physp->port_info, path.rate);
	}
	*r = (struct sm_record){
		.dlid = cl_ntoh16(to->lid),
		.slid = cl_ntoh16(from->lid),
		.pkey = cl_ntoh16(path.pkey),
		.sl = path.sl,
		.mtu = path.mtu,
		.rate = path.rate,
	};
	return 0;
}

int plugin_records(struct plugin *p, const struct sm_records_request *req,
		   struct sm_records_reply *r)
{
	bool ready;

	if (p->osm->subn.sm_state != IB_SMINFO_STATE_MASTER)
		return plugin_refuse(&r->h, -EHOSTDOWN, "this OpenSM is not the master");
	pthread_mutex_lock(&p->gate);
	ready = p->ready;
	pthread_mutex_unlock(&p->gate);
	if (!ready) /* OpenSM knows ports, but no routes to them yet */
		return plugin_refuse(&r->h, -EAGAIN, "OpenSM has not finished its first sweep");
	cl_plock_acquire(&p->osm->lock);
	r->instance = p->instance;
	r->generation = atomic_load(&p->count.generation);
	r->prefix = cl_ntoh64(p->osm->subn.opt.subnet_prefix);
	r->count = req->count;
	for (uint32_t i = 0; i < req->count; i++)
		r->record[i].error = (int16_t)read_record(p, &req->key[i], &r->record[i]);
	cl_plock_release(&p->osm->lock);
	return (int)(offsetof(struct sm_records_reply, record) + r->count * sizeof r->record[0]);
}
