/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/model/fabric.h"
#include "common/ib.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LID_OF_SWITCH (1u << 31)
#define LIDS          (IB_LID_UCAST_MAX + 1u)

int fabric_fail(struct fabric_error *e, int rc, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return rc;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	return rc;
}

/* The GUIDs that the index is about stand in the records: switches, or CA ports. */
static uint64_t guid_of(const struct fabric *f, const struct guid_index *x, uint32_t record)
{
	return x == &f->by_node ? f->sw[record].guid : f->end[record].port_guid;
}

static uint32_t first_slot(uint32_t room, uint64_t guid)
{
	return (uint32_t)((guid * 0x9e3779b97f4a7c15ull >> 20) % room);
}

static uint32_t index_get(const struct fabric *f, const struct guid_index *x, uint64_t guid)
{
	if (!x->room || !guid)
		return FABRIC_NONE;
	for (uint32_t i = first_slot(x->room, guid);; i = (i + 1) % x->room)
		if (x->slot[i] == FABRIC_NONE || guid_of(f, x, x->slot[i]) == guid)
			return x->slot[i];
}

static void index_fill(uint32_t *slot, uint32_t room, uint64_t guid, uint32_t record)
{
	uint32_t i = first_slot(room, guid);

	while (slot[i] != FABRIC_NONE)
		i = (i + 1) % room;
	slot[i] = record;
}

/* Room for one record more, so that index_put() cannot fail. */
static int index_grow(const struct fabric *f, struct guid_index *x)
{
	uint32_t room = x->room ? x->room * 2 : 64;
	uint32_t *slot;

	if (x->used * 2 < x->room)
		return 0;
	slot = malloc(room * sizeof *slot);
	if (!slot)
		return -ENOMEM;
	memset(slot, 0xff, room * sizeof *slot);
	for (uint32_t i = 0; i < x->room; i++)
		if (x->slot[i] != FABRIC_NONE)
			index_fill(slot, room, guid_of(f, x, x->slot[i]), x->slot[i]);
	free(x->slot);
	x->slot = slot;
	x->room = room;
	return 0;
}

static void index_put(struct guid_index *x, uint64_t guid, uint32_t record)
{
	index_fill(x->slot, x->room, guid, record);
	x->used++;
}

/* While the record still has its GUID. What stands behind it, without a gap, moves up where it may.
 */
static void index_remove(const struct fabric *f, struct guid_index *x, uint32_t record)
{
	uint32_t gap = first_slot(x->room, guid_of(f, x, record)), i;

	while (x->slot[gap] != record)
		gap = (gap + 1) % x->room;
	for (i = (gap + 1) % x->room; x->slot[i] != FABRIC_NONE; i = (i + 1) % x->room) {
		uint32_t home = first_slot(x->room, guid_of(f, x, x->slot[i]));

		if ((i + x->room - home) % x->room < (i + x->room - gap) % x->room)
			continue;
		x->slot[gap] = x->slot[i];
		gap = i;
	}
	x->slot[gap] = FABRIC_NONE;
	x->used--;
}

static void forget_routes(struct fabric *f)
{
	free(f->hop);
	f->hop = NULL;
}

/* LIDs of one port, those that nobody had before. */
static void own_lids(struct fabric *f, uint16_t lid, unsigned lmc, uint32_t owner)
{
	for (unsigned i = lid; lid && i < lid + (1u << lmc); i++)
		if (f->by_lid[i] == FABRIC_NONE)
			f->by_lid[i] = owner;
}

static void disown_lids(struct fabric *f, uint16_t lid, unsigned lmc, uint32_t owner)
{
	for (unsigned i = lid; lid && i < lid + (1u << lmc); i++)
		if (f->by_lid[i] == owner)
			f->by_lid[i] = FABRIC_NONE;
}

static int need_by_lid(struct fabric *f)
{
	if (f->by_lid)
		return 0;
	f->by_lid = malloc(LIDS * sizeof *f->by_lid);
	if (!f->by_lid)
		return -ENOMEM;
	memset(f->by_lid, 0xff, LIDS * sizeof *f->by_lid);
	return 0;
}

void fabric_clear(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switches; i++) {
		free(f->sw[i].peer);
		free(f->sw[i].lft);
	}
	free(f->sw);
	free(f->end);
	free(f->by_node.slot);
	free(f->by_port.slot);
	free(f->by_lid);
	free(f->hop);
	lft_clear(&f->store);
	memset(f, 0, sizeof *f);
}

/* Room for one more record of `size` bytes. */
static int make_room(void **array, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? *room * 2 : 16;
	void *grown;

	if (count < *room)
		return 0;
	grown = realloc(*array, more * size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = more;
	return 0;
}

int fabric_add_switch(struct fabric *f, uint64_t guid, uint16_t lid, unsigned ports,
		      const char *desc)
{
	struct fabric_switch *s;

	if (!guid || lid > IB_LID_UCAST_MAX || ports > FABRIC_PORTS_MAX)
		return -EINVAL;
	if (index_get(f, &f->by_node, guid) != FABRIC_NONE)
		return -EEXIST;
	if (make_room((void **)&f->sw, f->switches, &f->switches_room, sizeof *f->sw) ||
	    index_grow(f, &f->by_node) || need_by_lid(f))
		return -ENOMEM;
	s = &f->sw[f->switches];
	*s = (struct fabric_switch){.guid = guid, .lid = lid, .ports = (uint8_t)ports};
	snprintf(s->desc, sizeof s->desc, "%s", desc);
	s->peer = malloc((ports + 1) * sizeof *s->peer);
	if (!s->peer)
		return -ENOMEM;
	for (unsigned i = 0; i <= ports; i++)
		s->peer[i] = (struct fabric_peer){FABRIC_NONE, FABRIC_NONE, 0};
	index_put(&f->by_node, guid, f->switches);
	forget_routes(f);
	own_lids(f, lid, 0, f->switches | LID_OF_SWITCH);
	f->switches++;
	return 0;
}

int fabric_set_switch_lmc(struct fabric *f, uint32_t sw, unsigned lmc)
{
	struct fabric_switch *s = &f->sw[sw];

	if (lmc > FABRIC_LMC_MAX || s->lid + (1u << lmc) - 1 > IB_LID_UCAST_MAX)
		return -EINVAL;
	disown_lids(f, s->lid, s->lmc, sw | LID_OF_SWITCH);
	s->lmc = (uint8_t)lmc;
	own_lids(f, s->lid, lmc, sw | LID_OF_SWITCH);
	return 0;
}

int fabric_add_end(struct fabric *f, const struct fabric_end *end)
{
	if (!end->node_guid || !end->port_guid || end->lmc > FABRIC_LMC_MAX ||
	    end->lid + (1u << end->lmc) - 1 > IB_LID_UCAST_MAX)
		return -EINVAL;
	if (index_get(f, &f->by_port, end->port_guid) != FABRIC_NONE)
		return -EEXIST;
	if (make_room((void **)&f->end, f->ends, &f->ends_room, sizeof *f->end) ||
	    index_grow(f, &f->by_port) || need_by_lid(f))
		return -ENOMEM;
	f->end[f->ends] = *end;
	f->end[f->ends].sw = f->end[f->ends].pf = FABRIC_NONE;
	index_put(&f->by_port, end->port_guid, f->ends);
	own_lids(f, end->lid, end->lmc, f->ends);
	f->ends++;
	return 0;
}

/* The free port of a switch. */
static int free_port(struct fabric *f, uint64_t guid, unsigned port, struct fabric_peer **ret_peer)
{
	uint32_t i = index_get(f, &f->by_node, guid);

	if (i == FABRIC_NONE)
		return -ENOENT;
	if (port < 1 || port > f->sw[i].ports)
		return -ERANGE;
	*ret_peer = &f->sw[i].peer[port];
	return (*ret_peer)->sw != FABRIC_NONE || (*ret_peer)->end != FABRIC_NONE ? -EEXIST : 0;
}

int fabric_link(struct fabric *f, uint64_t guid_a, unsigned port_a, uint64_t guid_b,
		unsigned port_b)
{
	struct fabric_peer *a, *b;
	int rc = free_port(f, guid_a, port_a, &a);

	if (!rc)
		rc = free_port(f, guid_b, port_b, &b);
	if (rc)
		return rc;
	a->sw = index_get(f, &f->by_node, guid_b);
	a->port = (uint8_t)port_b;
	b->sw = index_get(f, &f->by_node, guid_a);
	b->port = (uint8_t)port_a;
	forget_routes(f);
	return 0;
}

int fabric_attach(struct fabric *f, uint32_t end, uint64_t sw_guid, unsigned sw_port)
{
	struct fabric_peer *p;
	int rc = end < f->ends ? free_port(f, sw_guid, sw_port, &p) : -ENOENT;

	if (rc)
		return rc;
	p->end = end;
	p->port = f->end[end].port;
	f->end[end].sw = index_get(f, &f->by_node, sw_guid);
	f->end[end].sw_port = (uint8_t)sw_port;
	return 0;
}

int fabric_attach_vf(struct fabric *f, uint32_t end, uint32_t pf)
{
	if (end >= f->ends || pf >= f->ends || f->end[pf].sw == FABRIC_NONE)
		return -ENOENT;
	f->end[end].sw = f->end[pf].sw;
	f->end[end].sw_port = f->end[pf].sw_port;
	f->end[end].pf = pf;
	return 0;
}

/* How many links a switch has to others (*ret_up: the last one's), and whether it has CA ports. */
static unsigned uplinks(const struct fabric_switch *s, uint32_t *ret_up, bool *ret_ends)
{
	unsigned n = 0;

	*ret_ends = false;
	*ret_up = FABRIC_NONE;
	for (unsigned p = 1; p <= s->ports; p++) {
		if (s->peer[p].sw != FABRIC_NONE) {
			n++;
			*ret_up = s->peer[p].sw;
		}
		*ret_ends |= s->peer[p].end != FABRIC_NONE;
	}
	return n;
}

void fabric_find_vswitches(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switches; i++) {
		uint32_t up, other;
		bool ends, others;

		f->sw[i].inside = uplinks(&f->sw[i], &up, &ends) == 1 && ends &&
				  uplinks(&f->sw[up], &other, &others) > 1;
	}
}

uint32_t fabric_find_switch(const struct fabric *f, uint64_t node_guid)
{
	return index_get(f, &f->by_node, node_guid);
}

uint32_t fabric_find_end(const struct fabric *f, uint64_t port_guid)
{
	return index_get(f, &f->by_port, port_guid);
}

uint32_t fabric_end_at(const struct fabric *f, uint64_t sw_guid, unsigned sw_port)
{
	uint32_t i = index_get(f, &f->by_node, sw_guid);

	return i == FABRIC_NONE || sw_port < 1 || sw_port > f->sw[i].ports
		       ? FABRIC_NONE
		       : f->sw[i].peer[sw_port].end;
}

struct fabric_owner fabric_find_lid(const struct fabric *f, unsigned lid)
{
	uint32_t owner = f->by_lid && lid < LIDS ? f->by_lid[lid] : FABRIC_NONE;

	if (owner == FABRIC_NONE)
		return (struct fabric_owner){FABRIC_NONE, FABRIC_NONE};
	if (owner & LID_OF_SWITCH)
		return (struct fabric_owner){owner & ~LID_OF_SWITCH, FABRIC_NONE};
	return (struct fabric_owner){FABRIC_NONE, owner};
}

int fabric_set_lid(struct fabric *f, uint32_t end, uint16_t lid)
{
	struct fabric_end *e = &f->end[end];

	if (lid + (1u << e->lmc) - 1 > IB_LID_UCAST_MAX)
		return -EINVAL;
	for (unsigned i = lid; lid && i < lid + (1u << e->lmc); i++)
		if (f->by_lid[i] != FABRIC_NONE && f->by_lid[i] != end)
			return -EEXIST;
	disown_lids(f, e->lid, e->lmc, end);
	e->lid = lid;
	own_lids(f, lid, e->lmc, end);
	return 0;
}

int fabric_set_identities(struct fabric *f, const struct fabric_identity *to, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct fabric_end *e = &f->end[to[i].end];

		if (!to[i].node_guid || !to[i].port_guid ||
		    to[i].lid + (1u << e->lmc) - 1 > IB_LID_UCAST_MAX)
			return -EINVAL;
		index_remove(f, &f->by_port, to[i].end);
		disown_lids(f, e->lid, e->lmc, to[i].end);
		e->lid = 0;
	}
	for (unsigned i = 0; i < count; i++) {
		struct fabric_end *e = &f->end[to[i].end];

		if (index_get(f, &f->by_port, to[i].port_guid) != FABRIC_NONE ||
		    fabric_set_lid(f, to[i].end, to[i].lid))
			return -EEXIST;
		e->node_guid = to[i].node_guid;
		e->port_guid = to[i].port_guid;
		index_put(&f->by_port, e->port_guid, to[i].end);
	}
	return 0;
}

unsigned fabric_top_lid(const struct fabric *f)
{
	unsigned top = f->by_lid ? IB_LID_UCAST_MAX : 0;

	while (top && f->by_lid[top] == FABRIC_NONE)
		top--;
	return top;
}

static int grow_lft(struct fabric_switch *s, unsigned blocks)
{
	uint32_t *lft = realloc(s->lft, blocks * sizeof *lft);

	if (!lft)
		return -ENOMEM;
	memset(lft + s->lft_blocks, 0xff, (blocks - s->lft_blocks) * sizeof *lft);
	s->lft = lft;
	s->lft_blocks = blocks;
	return 0;
}

int fabric_set_lft(struct fabric *f, uint32_t sw, unsigned block, const uint8_t data[64])
{
	struct fabric_switch *s = &f->sw[sw];
	uint32_t number;

	if (block > IB_LID_UCAST_MAX / IB_LFT_BLOCK)
		return -EINVAL;
	if ((block >= s->lft_blocks && grow_lft(s, block + 1)) ||
	    lft_hold(&f->store, data, &number))
		return -ENOMEM;
	lft_drop(&f->store, s->lft[block]);
	s->lft[block] = number;
	return 0;
}

const uint8_t *fabric_lft_block(const struct fabric *f, uint32_t sw, unsigned block)
{
	const struct fabric_switch *s = &f->sw[sw];

	return block < s->lft_blocks && s->lft[block] != LFT_NONE
		       ? lft_data(&f->store, s->lft[block])
		       : NULL;
}

int fabric_lft_entry(const struct fabric *f, uint32_t sw, uint16_t lid)
{
	const uint8_t *data = fabric_lft_block(f, sw, lid / IB_LFT_BLOCK);

	return data ? data[lid % IB_LFT_BLOCK] : -ENODATA;
}

void fabric_forget_lfts(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switches; i++)
		f->sw[i].lft_blocks = 0;
	lft_clear(&f->store);
}

size_t fabric_bytes(const struct fabric *f)
{
	size_t n = f->switches_room * sizeof *f->sw + f->ends_room * sizeof *f->end +
		   (f->by_node.room + f->by_port.room) * sizeof(uint32_t) +
		   (f->by_lid ? LIDS * sizeof *f->by_lid : 0) +
		   (f->hop ? f->switches * sizeof *f->hop : 0) + lft_bytes(&f->store);

	for (uint32_t i = 0; i < f->switches; i++)
		n += (f->sw[i].ports + 1u) * sizeof *f->sw[i].peer +
		     f->sw[i].lft_blocks * sizeof *f->sw[i].lft;
	return n;
}
