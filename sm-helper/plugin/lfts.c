/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/plugin/lfts.h"
#include "sm-helper/plugin/wire.h"
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

static unsigned blocks_of(const void *arg, uint32_t sw)
{
	const struct lfts *l = arg;

	return l->sw[sw]->lft_size / IB_LFT_BLOCK;
}

static const char *name_of(const void *arg, uint32_t sw)
{
	const struct lfts *l = arg;

	return l->sw[sw]->p_node->print_desc;
}

static int compare_guid(const void *guid, const void *sw)
{
	uint64_t a = *(const uint64_t *)guid, b = cl_qmap_key(&(*(osm_switch_t **)sw)->map_item);

	return a < b ? -1 : a > b;
}

/* OpenSM's map has them in the order of its keys. */
static uint32_t find(const struct lfts *l, const osm_switch_t *sw)
{
	uint64_t guid = cl_qmap_key(&sw->map_item);
	osm_switch_t **at = bsearch(&guid, l->sw, l->switches, sizeof *l->sw, compare_guid);

	return at ? (uint32_t)(at - l->sw) : FABRIC_NONE;
}

static uint32_t behind(const void *arg, uint32_t sw, unsigned port)
{
	const struct lfts *l = arg;
	osm_node_t *node = l->sw[sw]->p_node;
	const osm_physp_t *physp = port && port < osm_node_get_num_physp(node)
					   ? osm_node_get_physp_ptr(node, port)
					   : NULL;
	const osm_physp_t *peer = physp ? physp->p_remote_physp : NULL;

	return peer && peer->p_node->sw ? find(l, peer->p_node->sw) : FABRIC_NONE;
}

int lfts_open(struct plugin *p, struct lfts *l, struct sm_reply_head *h)
{
	cl_qmap_t *switches = &p->osm->subn.sw_guid_tbl;

	l->sw = malloc((cl_qmap_count(switches) + 1) * sizeof *l->sw);
	if (!l->sw)
		return plugin_refuse(h, -ENOMEM, "no memory in OpenSM");
	for (cl_map_item_t *i = cl_qmap_head(switches); i != cl_qmap_end(switches);
	     i = cl_qmap_next(i))
		l->sw[l->switches++] = (osm_switch_t *)i;
	return 0;
}

uint32_t lfts_index(const struct lfts *l, const osm_switch_t *sw)
{
	return sw ? find(l, sw) : FABRIC_NONE;
}

/* Makes room as OpenSM does it when a LID above all others appears, without wiping what is there.
 */
static int make_room(osm_switch_t *sw, uint16_t lid)
{
	unsigned size = (lid / IB_LFT_BLOCK + 1u) * IB_LFT_BLOCK;
	uint8_t **hops, *table;

	if (size > sw->lft_size) {
		if (!(table = realloc(sw->new_lft, size)))
			return -ENOMEM;
		memset(table + sw->lft_size, OSM_NO_PATH, size - sw->lft_size);
		sw->new_lft = table;
		if (!(table = realloc(sw->lft, size)))
			return -ENOMEM;
		memset(table + sw->lft_size, OSM_NO_PATH, size - sw->lft_size);
		sw->lft = table;
		sw->lft_size = (uint16_t)size;
	}
	if (lid >= sw->num_hops) {
		if (!(hops = realloc(sw->hops, (lid + 1u) * sizeof *hops)))
			return -ENOMEM;
		memset(hops + sw->num_hops, 0, (lid + 1u - sw->num_hops) * sizeof *hops);
		sw->hops = hops;
		sw->num_hops = (uint16_t)(lid + 1);
	}
	return 0;
}

int lfts_plan(struct lfts *l, const struct move *move, unsigned moves, bool ordered,
	      struct sm_reply_head *h)
{
	struct moves_tables t = {l->switches, block_of, blocks_of, name_of, behind, l};
	struct fabric_error e = {""};
	int rc = moves_plan_tables(&t, move, moves, &l->plan, &e);

	if (rc)
		return plugin_refuse(h, rc, "%.*s", SM_REASON_MAX - 1, e.text);
	if (ordered && moves_order_tables(&t, &l->plan))
		return plugin_refuse(h, -ENOMEM, "no memory in OpenSM");
	for (unsigned i = 0; i < l->plan.moves; i++) /* one for each LID of a run */
		if (l->plan.move[i].like && l->plan.move[i].lid > l->top)
			l->top = l->plan.move[i].lid;
	for (uint32_t i = 0; i < l->switches; i++) {
		unsigned room = cl_ntoh16(l->sw[i]->switch_info.lin_cap);

		if (l->top >= room)
			return plugin_refuse(h, -ERANGE,
					     "LID %u does not fit into the LFT of switch %s, which "
					     "has %u entries",
					     l->top, name_of(l, i), room);
		l->tops += l->sw[i]->max_lid_ho < l->top;
	}
	l->taken = calloc(l->plan.smps + 1, sizeof *l->taken);
	return l->taken ? 0 : plugin_refuse(h, -ENOMEM, "no memory in OpenSM");
}

int lfts_grow(struct lfts *l, struct sm_reply_head *h)
{
	for (uint32_t i = 0; l->tops && i < l->switches; i++)
		if (make_room(l->sw[i], l->top))
			return plugin_refuse(h, -ENOMEM, "no memory in OpenSM");
	return 0;
}

/* LinearFDBTop: what is above it is not looked up. */
static int send_top(struct plugin *p, osm_switch_t *sw, uint16_t lid)
{
	osm_physp_t *port0 = osm_node_get_physp_ptr(sw->p_node, 0);
	ib_switch_info_t si = sw->switch_info;
	osm_madw_context_t c;

	sw->max_lid_ho = lid;
	si.lin_top = cl_hton16(lid);
	memset(&c, 0, sizeof c);
	c.si_context.node_guid = osm_node_get_node_guid(sw->p_node);
	c.si_context.set_method = TRUE;
	c.si_context.lft_top_change = TRUE;
	return osm_req_set(&p->osm->sm, osm_physp_get_dr_path_ptr(port0), (uint8_t *)&si, sizeof si,
			   IB_MAD_ATTR_SWITCH_INFO, 0, FALSE,
			   ib_port_info_get_m_key(&port0->port_info), 0, CL_DISP_MSGID_NONE,
			   &c) == IB_SUCCESS
		       ? 0
		       : -EIO;
}

int lfts_send_tops(struct plugin *p, struct lfts *l)
{
	int rc = 0;

	for (uint32_t i = 0; l->tops && i < l->switches; i++)
		if (l->sw[i]->max_lid_ho < l->top && send_top(p, l->sw[i], l->top))
			rc = -EIO;
	return rc;
}

static uint8_t *wanted_block(const struct lfts *l, const struct moves_smp *s)
{
	return l->sw[s->sw]->new_lft + s->block * IB_LFT_BLOCK;
}

bool lfts_stale(const struct lfts *l)
{
	for (unsigned i = 0; i < l->plan.smps; i++)
		if (!l->plan.smp[i].part &&
		    memcmp(wanted_block(l, &l->plan.smp[i]), l->plan.smp[i].before, IB_LFT_BLOCK))
			return true;
	return false;
}

void lfts_want(struct lfts *l)
{
	for (unsigned i = 0; i < l->plan.smps; i++)
		memcpy(wanted_block(l, &l->plan.smp[i]), l->plan.smp[i].after, IB_LFT_BLOCK);
}

/* The SMPs of one wave, from `first` on. */
static struct wire_batch wave_at(const struct lfts *l, unsigned first)
{
	unsigned n = first;

	while (n < l->plan.smps && l->plan.smp[n].wave == l->plan.smp[first].wave)
		n++;
	return (struct wire_batch){l->sw, l->plan.smp + first, n - first, l->taken + first};
}

/* True if a wave was taken whole. */
static bool is_taken(const struct wire_batch *b)
{
	return !memchr(b->taken, 0, b->count);
}

int lfts_send(struct plugin *p, struct lfts *l, uint64_t deadline_us)
{
	bool whole = true;
	int rc = 0;

	memset(l->taken, 0, l->plan.smps * sizeof *l->taken);
	for (unsigned at = 0; at < l->plan.smps && (whole || l->turned);) {
		struct wire_batch b = wave_at(l, at);
		int failed = wire_send(p, &b, deadline_us);

		l->sent = true;
		whole = !failed && is_taken(&b);
		rc = rc ? rc : failed;
		at += b.count;
	}
	return rc;
}

unsigned lfts_note(struct plugin *p, const struct lfts *l, unsigned first)
{
	unsigned n = 0, i;

	for (i = first; l->sent && i < l->plan.smps && i < first + LFTS_PIECE; i++) {
		const struct moves_smp *s = &l->plan.smp[i];

		if (!l->taken[i])
			continue;
		memcpy(l->sw[s->sw]->lft + s->block * IB_LFT_BLOCK, s->after, IB_LFT_BLOCK);
		n++;
	}
	atomic_fetch_add(&p->count.lft_changes, n);
	return i < l->plan.smps ? i : 0;
}

int lfts_check(const struct lfts *l, struct sm_reply_head *h)
{
	for (uint32_t i = 0; l->sent && l->tops && i < l->switches; i++)
		if (cl_ntoh16(l->sw[i]->switch_info.lin_top) < l->top)
			return plugin_refuse(h, -EIO,
					     "switch %s did not take %u as the top of its LFT",
					     name_of(l, i), l->top);
	for (unsigned i = 0; l->sent && i < l->plan.smps; i++)
		if (!l->taken[i])
			return plugin_refuse(h, -EIO, "switch %s did not take LFT block %u",
					     name_of(l, l->plan.smp[i].sw), l->plan.smp[i].block);
	return 0;
}

/* A switch that did not answer may have taken the block or not. OpenSM's picture of it is made to
 * differ from what it shall hold, until an answer says what is there: without one, the next sweep
 * writes the block. Port 0 stands for "unknown", as in OpenSM's own writing of a block. Where a LID
 * is routed, OpenSM looks at the port that its entry names, and one beyond the switch's ports makes
 * it read beyond its table. No VF's LID leads to port 0. */
static void forget_block(const struct lfts *l, const struct moves_smp *s)
{
	for (unsigned i = 0; i < l->plan.moves; i++) {
		uint16_t lid = l->plan.move[i].lid;

		if (lid / IB_LFT_BLOCK == s->block)
			l->sw[s->sw]->lft[lid] = 0;
	}
}

void lfts_turn(struct lfts *l)
{
	l->tops = 0; /* longer tables do no harm */
	l->turned = true;
	moves_undo(&l->plan);
	for (unsigned i = 0; l->sent && i < l->plan.smps; i++)
		forget_block(l, &l->plan.smp[i]);
}

void lfts_free(struct lfts *l)
{
	free(l->sw);
	free(l->taken);
	moves_free(&l->plan);
	*l = (struct lfts){0};
}
