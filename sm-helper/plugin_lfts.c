/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin_lfts.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

#include <opensm/osm_node.h>
#include <opensm/osm_port.h>
#include <opensm/osm_switch.h>

static const uint8_t *block_of(const void *arg, uint32_t sw, unsigned block)
{
	const struct lfts *l = arg;
	const osm_switch_t *s = l->sw[sw];

	return s->new_lft && (block + 1) * IB_LFT_BLOCK <= s->lft_size
		       ? s->new_lft + block * IB_LFT_BLOCK
		       : NULL;
}

static const char *name_of(const void *arg, uint32_t sw)
{
	const struct lfts *l = arg;

	return l->sw[sw]->p_node->print_desc;
}

int lfts_plan(struct plugin *p, struct lfts *l, const struct move *move, unsigned moves,
	      struct sm_reply_head *h)
{
	cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;
	struct moves_tables t = {.block = block_of, .name = name_of, .arg = l};
	struct fabric_error e = {""};
	int rc;

	l->sw = malloc((cl_qmap_count(switches) + 1) * sizeof *l->sw);
	if (!l->sw)
		return plugin_refuse(h, -ENOMEM, "no memory in OpenSM");
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		l->sw[t.switches++] = (osm_switch_t *)i;
	rc = moves_plan_tables(&t, move, moves, &l->plan, &e);
	return rc ? plugin_refuse(h, rc, "%.*s", SM_REASON_MAX - 1, e.text) : 0;
}

static int send_block(struct plugin *p, osm_switch_t *sw, uint16_t block)
{
	osm_physp_t *port0 = osm_node_get_physp_ptr(sw->p_node, 0);
	osm_madw_context_t c;

	memset(&c, 0, sizeof c);
	c.lft_context.node_guid = osm_node_get_node_guid(sw->p_node);
	c.lft_context.set_method = TRUE;
	atomic_fetch_add(&p->count.lft_smps, 1);
	return osm_req_set(&p->osm->sm, osm_physp_get_dr_path_ptr(port0),
			   sw->new_lft + block * IB_LFT_BLOCK, IB_LFT_BLOCK,
			   IB_MAD_ATTR_LIN_FWD_TBL, cl_hton32(block), FALSE,
			   ib_port_info_get_m_key(&port0->port_info), 0, CL_DISP_MSGID_NONE,
			   &c) == IB_SUCCESS
		       ? 0
		       : -EIO;
}

int lfts_send(struct plugin *p, struct lfts *l)
{
	int rc = 0;

	l->sent = l->plan.smps > 0;
	for (unsigned i = 0; i < l->plan.smps; i++) {
		const struct moves_smp *s = &l->plan.smp[i];

		memcpy(l->sw[s->sw]->new_lft + s->block * IB_LFT_BLOCK, s->after, IB_LFT_BLOCK);
	}
	for (unsigned i = 0; i < l->plan.smps; i++)
		if (send_block(p, l->sw[l->plan.smp[i].sw], l->plan.smp[i].block))
			rc = -EIO;
	return rc;
}

int lfts_check(const struct lfts *l, struct sm_reply_head *h)
{
	for (unsigned i = 0; l->sent && i < l->plan.smps; i++) {
		const osm_switch_t *sw = l->sw[l->plan.smp[i].sw];
		size_t at = (size_t)l->plan.smp[i].block * IB_LFT_BLOCK;

		if (memcmp(sw->lft + at, sw->new_lft + at, IB_LFT_BLOCK))
			return plugin_refuse(h, -EIO, "switch %s did not take LFT block %u",
					     sw->p_node->print_desc, l->plan.smp[i].block);
	}
	return 0;
}

/* A switch that did not answer may have taken the block or not. What OpenSM believes to be in it is
 * made to differ from what it shall hold, until an answer says what is there: without one, the next
 * sweep writes the block. Port 0 stands for "unknown", as in OpenSM's own writing of a block: where
 * a LID is routed, OpenSM looks at the port that its entry names, and one beyond the switch's ports
 * makes it read beyond its table. No VF's LID leads to port 0. */
static void forget_block(const struct lfts *l, const struct moves_smp *s)
{
	for (unsigned i = 0; i < l->plan.moves; i++) {
		uint16_t lid = l->plan.move[i].lid;

		if (lid / IB_LFT_BLOCK == s->block)
			l->sw[s->sw]->lft[lid] = 0;
	}
}

void lfts_undo(struct plugin *p, struct lfts *l)
{
	if (!l->sent)
		return;
	moves_undo(&l->plan);
	for (unsigned i = 0; i < l->plan.smps; i++)
		forget_block(l, &l->plan.smp[i]);
	lfts_send(p, l);
}

void lfts_free(struct lfts *l)
{
	free(l->sw);
	moves_free(&l->plan);
	l->sw = NULL;
}
