/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/engine.h"
#include "sm-helper/plugin/homes.h"
#include "sm-helper/plugin/seen.h"
#include "common/util.h"

#include <stdlib.h>

#include <opensm/osm_log.h>

/* Sets up minhop, whose builder is the one for engines without their own. Exported by the program,
 * declared in no header. */
extern int osm_ucast_minhop_setup(struct osm_routing_engine *r, osm_opensm_t *osm);

/* Stands in the engine's context; all its functions are called through those below. */
struct engine {
	struct plugin *p;
	struct osm_routing_engine inner; /* as it was */
};

static int build_lid_matrices(void *arg)
{
	struct engine *e = arg;
	struct seen seen;
	int rc;

	seen_show(e->p, &seen);
	rc = e->inner.build_lid_matrices(e->inner.context);
	seen_hide(e->p, &seen);
	return rc;
}

/* OpenSM itself would call this after an engine that leaves the tables to it: too late for us. */
static int build_default(struct plugin *p)
{
	struct osm_routing_engine minhop = {0};
	int rc = osm_ucast_minhop_setup(&minhop, p->osm);

	return rc ? -1 : minhop.ucast_build_fwd_tables(minhop.context);
}

static int build_tables(void *arg)
{
	struct engine *e = arg;
	struct seen seen;
	int rc = 1;

	srand(1); /* lash draws the order of its pairs: the same one, or a quiet sweep changes SLs
		   */
	seen_show(e->p, &seen);
	if (e->inner.ucast_build_fwd_tables)
		rc = e->inner.ucast_build_fwd_tables(e->inner.context);
	if (rc > 0)
		rc = build_default(e->p);
	if (!rc)
		seen_route(e->p, &seen);
	seen_hide(e->p, &seen);
	return rc;
}

static void dump_tables(void *arg)
{
	struct engine *e = arg;

	e->inner.ucast_dump_tables(e->inner.context);
}

static void update_sl2vl(void *arg, osm_physp_t *port, uint8_t in, uint8_t out, ib_slvl_table_t *t)
{
	struct engine *e = arg;

	e->inner.update_sl2vl(e->inner.context, port, in, out, t);
}

static void update_vlarb(void *arg, osm_physp_t *port, uint8_t port_num, ib_vl_arb_table_t *block,
			 unsigned length, unsigned num)
{
	struct engine *e = arg;

	e->inner.update_vlarb(e->inner.context, port, port_num, block, length, num);
}

/* These two remember a path's SL by its LIDs, as they saw them; all others ask where a LID is now.
 */
static bool knows_lids(osm_routing_engine_type_t type)
{
	return type == OSM_ROUTING_ENGINE_TYPE_DFSSSP || type == OSM_ROUTING_ENGINE_TYPE_NUE;
}

static ib_net16_t seen_as(const struct plugin *p, ib_net16_t lid)
{
	uint16_t l = cl_ntoh16(lid);

	return ib_lid_is_unicast(l) ? cl_hton16(p->homes->seen_as[l]) : lid;
}

/* dfsssp spreads the paths of a layer over several SLs by rand(), anew at each question. An answer
 * is not the one that the next asker gets, and each path would seem to change with each move. With
 * a seed of the pair's the choice is the pair's. */
static uint8_t dfsssp_sl(const struct engine *e, uint8_t hint, ib_net16_t slid, ib_net16_t dlid)
{
	static pthread_mutex_t draw = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_t *l AUTO_UNLOCK = mutex_lock(&draw);

	srand((unsigned)cl_ntoh16(slid) << 16 | cl_ntoh16(dlid));
	return e->inner.path_sl(e->inner.context, hint, slid, dlid);
}

/* Under OpenSM's lock, shared at least. */
static uint8_t path_sl(void *arg, uint8_t hint, const ib_net16_t slid, const ib_net16_t dlid)
{
	const struct engine *e = arg;

	if (!knows_lids(e->inner.type))
		return e->inner.path_sl(e->inner.context, hint, slid, dlid);
	if (e->inner.type == OSM_ROUTING_ENGINE_TYPE_DFSSSP)
		return dfsssp_sl(e, hint, seen_as(e->p, slid), seen_as(e->p, dlid));
	return e->inner.path_sl(e->inner.context, hint, seen_as(e->p, slid), seen_as(e->p, dlid));
}

static ib_api_status_t mcast_build_stree(void *arg, osm_mgrp_box_t *box)
{
	struct engine *e = arg;

	return e->inner.mcast_build_stree(e->inner.context, box);
}

static void destroy(void *arg)
{
	struct engine *e = arg;

	if (e->inner.destroy)
		e->inner.destroy(e->inner.context);
	free(e);
}

/* A function that the engine does not have is still missing: OpenSM then acts otherwise. */
static void wrap(struct plugin *p, struct osm_routing_engine *r)
{
	struct engine *e;

	if (r->ucast_build_fwd_tables == build_tables)
		return;
	if (!(e = malloc(sizeof *e))) {
		osm_log(&p->osm->log, OSM_LOG_SYS,
			"ibvmig: no memory: engine %s may route VMs anew in every sweep\n",
			r->name);
		return;
	}
	*e = (struct engine){p, *r};
	r->context = e;
	r->ucast_build_fwd_tables = build_tables;
	r->destroy = destroy;
	if (r->build_lid_matrices)
		r->build_lid_matrices = build_lid_matrices;
	if (r->ucast_dump_tables)
		r->ucast_dump_tables = dump_tables;
	if (r->update_sl2vl)
		r->update_sl2vl = update_sl2vl;
	if (r->update_vlarb)
		r->update_vlarb = update_vlarb;
	if (r->path_sl)
		r->path_sl = path_sl;
	if (r->mcast_build_stree)
		r->mcast_build_stree = mcast_build_stree;
}

void engines_wrap(struct plugin *p)
{
	osm_opensm_t *osm = p->osm;

	cl_plock_excl_acquire(&osm->lock);
	for (struct osm_routing_engine *r = osm->routing_engine_list; r; r = r->next)
		wrap(p, r);
	if (osm->default_routing_engine)
		wrap(p, osm->default_routing_engine);
	cl_plock_release(&osm->lock);
}
