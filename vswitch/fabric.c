/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/fabric.h"
#include "vswitch/plan.h"
#include "common/ib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t slot_of(const struct guid_index *x, uint64_t guid)
{
	size_t i = (size_t)(guid * 0x9e3779b97f4a7c15ull >> 20) % x->room;

	while (x->guid[i] && x->guid[i] != guid)
		i = (i + 1) % x->room;
	return i;
}

static uint32_t index_get(const struct guid_index *x, uint64_t guid)
{
	size_t i;

	if (!x->room || !guid)
		return FABRIC_NONE;
	i = slot_of(x, guid);
	return x->guid[i] ? x->value[i] : FABRIC_NONE;
}

static int index_grow(struct guid_index *x)
{
	struct guid_index big = {.room = x->room ? x->room * 2 : 64, .used = x->used};

	big.guid = calloc(big.room, sizeof *big.guid);
	big.value = calloc(big.room, sizeof *big.value);
	if (!big.guid || !big.value) {
		free(big.guid);
		free(big.value);
		return -ENOMEM;
	}
	for (size_t i = 0; i < x->room; i++)
		if (x->guid[i]) {
			size_t k = slot_of(&big, x->guid[i]);

			big.guid[k] = x->guid[i];
			big.value[k] = x->value[i];
		}
	free(x->guid);
	free(x->value);
	*x = big;
	return 0;
}

static int index_put(struct guid_index *x, uint64_t guid, uint32_t value)
{
	size_t i;

	if (x->used * 2 >= x->room && index_grow(x))
		return -ENOMEM;
	i = slot_of(x, guid);
	x->used += !x->guid[i];
	x->guid[i] = guid;
	x->value[i] = value;
	return 0;
}

void fabric_clear(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switches; i++) {
		free(f->sw[i].peer);
		free(f->sw[i].lft);
		free(f->sw[i].lft_known);
	}
	free(f->sw);
	free(f->end);
	free(f->by_node.guid);
	free(f->by_node.value);
	free(f->by_port.guid);
	free(f->by_port.value);
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

	if (!guid || lid > IB_LID_UCAST_MAX || ports > 254)
		return -EINVAL;
	if (index_get(&f->by_node, guid) != FABRIC_NONE)
		return -EEXIST;
	if (make_room((void **)&f->sw, f->switches, &f->switches_room, sizeof *f->sw))
		return -ENOMEM;
	s = &f->sw[f->switches];
	*s = (struct fabric_switch){.guid = guid, .lid = lid, .ports = (uint8_t)ports};
	snprintf(s->desc, sizeof s->desc, "%s", desc);
	s->peer = malloc((ports + 1) * sizeof *s->peer);
	if (!s->peer || index_put(&f->by_node, guid, f->switches)) {
		free(s->peer);
		return -ENOMEM;
	}
	for (unsigned i = 0; i <= ports; i++)
		s->peer[i] = (struct fabric_peer){FABRIC_NONE, FABRIC_NONE, 0};
	f->switches++;
	return 0;
}

int fabric_add_end(struct fabric *f, const struct fabric_end *end)
{
	if (!end->node_guid || !end->port_guid || end->lid > IB_LID_UCAST_MAX)
		return -EINVAL;
	if (index_get(&f->by_port, end->port_guid) != FABRIC_NONE)
		return -EEXIST;
	if (make_room((void **)&f->end, f->ends, &f->ends_room, sizeof *f->end) ||
	    index_put(&f->by_port, end->port_guid, f->ends))
		return -ENOMEM;
	f->end[f->ends] = *end;
	f->end[f->ends++].sw = FABRIC_NONE;
	return 0;
}

/* The free port of a switch. */
static int free_port(struct fabric *f, uint64_t guid, unsigned port, struct fabric_peer **ret_peer)
{
	uint32_t i = index_get(&f->by_node, guid);

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
	a->sw = index_get(&f->by_node, guid_b);
	a->port = (uint8_t)port_b;
	b->sw = index_get(&f->by_node, guid_a);
	b->port = (uint8_t)port_a;
	return 0;
}

int fabric_attach(struct fabric *f, uint32_t end, uint64_t sw_guid, unsigned sw_port)
{
	struct fabric_peer *p;
	int rc = end < f->ends ? free_port(f, sw_guid, sw_port, &p) : -ENOENT;

	if (rc)
		return rc;
	p->end = end;
	f->end[end].sw = index_get(&f->by_node, sw_guid);
	f->end[end].sw_port = (uint8_t)sw_port;
	return 0;
}

uint32_t fabric_find_switch(const struct fabric *f, uint64_t node_guid)
{
	return index_get(&f->by_node, node_guid);
}

uint32_t fabric_find_end(const struct fabric *f, uint64_t port_guid)
{
	return index_get(&f->by_port, port_guid);
}

uint32_t fabric_end_at(const struct fabric *f, uint64_t sw_guid, unsigned sw_port)
{
	uint32_t i = index_get(&f->by_node, sw_guid);

	return i == FABRIC_NONE || sw_port < 1 || sw_port > f->sw[i].ports
		       ? FABRIC_NONE
		       : f->sw[i].peer[sw_port].end;
}

int fabric_set_lft(struct fabric *f, uint32_t sw, unsigned block, const uint8_t data[64])
{
	struct fabric_switch *s = &f->sw[sw];

	if (block > IB_LID_UCAST_MAX / IB_LFT_BLOCK)
		return -EINVAL;
	if (block >= s->lft_blocks) {
		uint8_t *lft = realloc(s->lft, (block + 1) * (size_t)IB_LFT_BLOCK);

		if (!lft)
			return -ENOMEM;
		s->lft = lft;
		bool *known = realloc(s->lft_known, (block + 1) * sizeof *known);
		if (!known)
			return -ENOMEM;
		s->lft_known = known;
		memset(known + s->lft_blocks, 0, (block + 1 - s->lft_blocks) * sizeof *known);
		s->lft_blocks = block + 1;
	}
	memcpy(s->lft + block * (size_t)IB_LFT_BLOCK, data, IB_LFT_BLOCK);
	s->lft_known[block] = true;
	return 0;
}

int fabric_lft_entry(const struct fabric *f, uint32_t sw, uint16_t lid)
{
	const struct fabric_switch *s = &f->sw[sw];
	unsigned block = lid / IB_LFT_BLOCK;

	return block < s->lft_blocks && s->lft_known[block] ? s->lft[lid] : -ENODATA;
}

void fabric_forget_lfts(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switches; i++)
		for (unsigned b = 0; b < f->sw[i].lft_blocks; b++)
			f->sw[i].lft_known[b] = false;
}

/* Breadth first from the destination, so that came_by[x] is the port that leads x one hop nearer.
 */
static int distances(const struct fabric *f, uint32_t to, uint32_t until, uint8_t *next_port)
{
	uint32_t *queue = malloc(f->switches * sizeof *queue);
	uint32_t head = 0, tail = 0;

	if (!queue)
		return -ENOMEM;
	queue[tail++] = to;
	next_port[to] = VSWITCH_NO_PATH;
	while (head < tail && queue[head] != until) {
		const struct fabric_switch *s = &f->sw[queue[head++]];

		for (unsigned p = 1; p <= s->ports; p++) {
			uint32_t x = s->peer[p].sw;

			if (x == FABRIC_NONE || next_port[x])
				continue;
			next_port[x] = s->peer[p].port;
			queue[tail++] = x;
		}
	}
	free(queue);
	return 0;
}

int fabric_route(const struct fabric *f, uint32_t from, uint32_t sw,
		 uint8_t ret_path[static FABRIC_HOPS_MAX + 1])
{
	uint8_t *next_port;
	uint32_t at;
	int hops = 1, rc;

	if (from >= f->ends || sw >= f->switches || (at = f->end[from].sw) == FABRIC_NONE)
		return -ENETUNREACH;
	next_port = calloc(f->switches, 1);
	if (!next_port)
		return -ENOMEM;
	rc = distances(f, sw, at, next_port);
	ret_path[0] = 0;
	ret_path[1] = f->end[from].port;
	while (!rc && at != sw) {
		if (!next_port[at] || hops + 2 > FABRIC_HOPS_MAX) {
			rc = -ENETUNREACH;
			break;
		}
		ret_path[++hops] = next_port[at];
		at = f->sw[at].peer[next_port[at]].sw;
	}
	free(next_port);
	return rc ? rc : hops;
}
