/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lab/datapath/fabric.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <infiniband/umad.h>
#include <string.h>

#define SMP_TIMEOUT_MS 500
#define LFT_NO_PORT    255
#define MFT_BLOCK      32
#define MFT_PART       16

/* Makes one GET along a directed route. 0 or -EIO. */
static int get(struct fabric *f, const ib_portid_t *route, unsigned attr, unsigned mod,
	       uint8_t data[static IB_SMP_DATA_SIZE])
{
	ib_portid_t to = *route;

	memset(data, 0, IB_SMP_DATA_SIZE);
	return smp_query_via(data, &to, attr, mod, SMP_TIMEOUT_MS, f->mad) ? 0 : -EIO;
}

int fabric_open(struct fabric *f)
{
	int classes[] = {IB_SMI_CLASS, IB_SMI_DIRECT_CLASS};

	f->mad = mad_rpc_open_port(NULL, 0, classes, ARRAY_SIZE(classes));
	if (!f->mad)
		return errno ? -errno : -ENODEV;
	f->nodes = calloc(FABRIC_NODES_MAX, sizeof(*f->nodes));
	return f->nodes ? 0 : -ENOMEM;
}

/* The node at the end of a route: identity, and for an adapter its port. */
static int read_node(struct fabric *f, struct fabric_node *n, int *ret_local_port)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(f, &n->route, IB_ATTR_NODE_INFO, 0, d);

	if (r)
		return r;
	n->is_switch = mad_get_field(d, 0, IB_NODE_TYPE_F) == IB_NODE_SWITCH;
	n->ports = (int)mad_get_field(d, 0, IB_NODE_NPORTS_F);
	n->node_guid = mad_get_field64(d, 0, IB_NODE_GUID_F);
	n->port_guid = mad_get_field64(d, 0, IB_NODE_PORT_GUID_F);
	*ret_local_port = (int)mad_get_field(d, 0, IB_NODE_LOCAL_PORT_F);
	if (n->ports >= FABRIC_PORTS_MAX)
		return -E2BIG;
	return 0;
}

static int read_name(struct fabric *f, struct fabric_node *n)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(f, &n->route, IB_ATTR_NODE_DESC, 0, d);

	if (r)
		return r;
	snprintf(n->name, sizeof(n->name), "%.*s", IB_SMP_DATA_SIZE, (char *)d);
	return 0;
}

static int read_lid(struct fabric *f, struct fabric_node *n)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(f, &n->route, IB_ATTR_PORT_INFO, n->is_switch ? 0 : 1, d);

	if (r)
		return r;
	n->lid = mad_get_field(d, 0, IB_PORT_LID_F);
	n->lmc = mad_get_field(d, 0, IB_PORT_LMC_F);
	return 0;
}

/* LFTs are read up to the last LID of each port, with its LMC. */
static void raise_lid_top(struct fabric *f, const struct fabric_node *n)
{
	unsigned last = n->lid + (1u << n->lmc) - 1;

	if (last > f->lid_top && last < FABRIC_LIDS_MAX)
		f->lid_top = last;
}

static bool link_is_up(struct fabric *f, const struct fabric_node *n, int port)
{
	uint8_t d[IB_SMP_DATA_SIZE];

	return !get(f, &n->route, IB_ATTR_PORT_INFO, (unsigned)port, d) &&
	       mad_get_field(d, 0, IB_PORT_STATE_F) >= 2 /* Initialize, Armed, Active */;
}

/* The neighbour behind a port: known already, or appended. */
static int visit(struct fabric *f, int from, int port)
{
	struct fabric_node *a = &f->nodes[from], *b;
	int other, r, i;

	if (f->count == FABRIC_NODES_MAX)
		return -E2BIG;
	b = &f->nodes[f->count];
	memset(b, 0, sizeof(*b));
	b->route = a->route;
	if (b->route.drpath.cnt + 1 >= IB_SUBNET_PATH_HOPS_MAX)
		return -E2BIG;
	b->route.drpath.p[++b->route.drpath.cnt] = (uint8_t)port;
	r = read_node(f, b, &other);
	if (r)
		return r;
	for (i = 0; i < f->count && f->nodes[i].node_guid != b->node_guid; i++)
		;
	if (i == f->count) {
		for (int p = 0; p < FABRIC_PORTS_MAX; p++)
			b->links[p].node = -1;
		r = read_name(f, b);
		if (!r)
			r = read_lid(f, b);
		if (r)
			return r;
		f->count++;
	}
	a->links[port] = (struct fabric_link){i, other};
	f->nodes[i].links[other] = (struct fabric_link){from, port};
	return 0;
}

static int discover_from_here(struct fabric *f)
{
	int local, r;

	f->count = 1;
	memset(f->nodes, 0, sizeof(*f->nodes));
	for (int p = 0; p < FABRIC_PORTS_MAX; p++)
		f->nodes[0].links[p].node = -1;
	r = read_node(f, &f->nodes[0], &local);
	if (!r)
		r = read_name(f, &f->nodes[0]);
	if (!r)
		r = read_lid(f, &f->nodes[0]);
	for (int i = 0; i < f->count && !r; i++)
		for (int p = 1; p <= f->nodes[i].ports && !r; p++) {
			/* only a switch forwards, and we stand at an adapter */
			if (!f->nodes[i].is_switch && i)
				continue;
			if (f->nodes[i].links[p].node >= 0 || !link_is_up(f, &f->nodes[i], p))
				continue;
			r = visit(f, i, p);
		}
	return r;
}

int fabric_discover(struct fabric *f)
{
	struct fabric next = {.mad = f->mad, .lid_top = f->lid_top};
	bool changed;
	int r;

	next.nodes = calloc(FABRIC_NODES_MAX, sizeof(*next.nodes));
	if (!next.nodes)
		return -ENOMEM;
	r = discover_from_here(&next);
	for (int i = 0; i < next.count && !r; i++)
		raise_lid_top(&next, &next.nodes[i]);
	if (!r)
		r = fabric_read_lfts(&next, &changed);
	if (!r)
		r = fabric_read_mfts(&next, &changed);
	if (r) {
		free(next.nodes);
		return r;
	}
	free(f->nodes);
	*f = next;
	return 0;
}

int fabric_read_links(struct fabric *f, bool *ret_changed)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = 0;

	for (int i = 0; i < f->count && !r; i++) {
		if (!f->nodes[i].is_switch)
			continue;
		r = get(f, &f->nodes[i].route, IB_ATTR_SWITCH_INFO, 0, d);
		*ret_changed |= !r && mad_get_field(d, 0, IB_SW_STATE_CHANGE_F);
	}
	return r;
}

int fabric_read_lfts(struct fabric *f, bool *ret_changed)
{
	uint8_t d[IB_SMP_DATA_SIZE];

	for (int i = 0; i < f->count; i++) {
		struct fabric_node *n = &f->nodes[i];

		for (unsigned b = 0; n->is_switch && b <= f->lid_top / IB_LFT_BLOCK; b++) {
			int r = get(f, &n->route, IB_ATTR_LINEARFORWTBL, b, d);

			if (r)
				return r;
			if (!memcmp(n->lft + b * IB_LFT_BLOCK, d, IB_LFT_BLOCK))
				continue;
			memcpy(n->lft + b * IB_LFT_BLOCK, d, IB_LFT_BLOCK);
			*ret_changed = true;
		}
	}
	return 0;
}

/* A block of an MFT has, for 32 MLIDs each, a mask of 16 ports (IBA 1.4, 14.2.5.11). */
static int read_mft_part(struct fabric *f, struct fabric_node *n, unsigned block, unsigned part,
			 bool *ret_changed)
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(f, &n->route, IB_ATTR_MULTICASTFORWTBL, part << 28 | block, d);

	if (r)
		return r;
	for (unsigned i = 0; i < MFT_BLOCK; i++) {
		uint64_t *mask = &n->mft[block * MFT_BLOCK + i], new;

		new = (*mask & ~(0xffffull << part * MFT_PART)) |
		      (uint64_t)(d[2 * i] << 8 | d[2 * i + 1]) << part *MFT_PART;
		*ret_changed |= new != *mask;
		*mask = new;
	}
	return 0;
}

int fabric_read_mfts(struct fabric *f, bool *ret_changed)
{
	int r = 0;

	for (int i = 0; i < f->count; i++) {
		struct fabric_node *n = &f->nodes[i];

		for (unsigned b = 0; n->is_switch && b < FABRIC_MLIDS_MAX / MFT_BLOCK; b++)
			for (unsigned part = 0; !r && part * MFT_PART <= (unsigned)n->ports; part++)
				r = read_mft_part(f, n, b, part, ret_changed);
	}
	return r;
}

int fabric_read_pkeys(struct fabric *f, int node, int port, uint16_t ret_pkeys[FABRIC_PKEYS_MAX])
{
	uint8_t d[IB_SMP_DATA_SIZE];
	int r = get(f, &f->nodes[node].route, IB_ATTR_PKEY_TBL, (unsigned)port << 16, d);

	for (int i = 0; !r && i < FABRIC_PKEYS_MAX; i++)
		ret_pkeys[i] = (uint16_t)(d[2 * i] << 8 | d[2 * i + 1]);
	return r;
}

int fabric_read_ports(struct fabric *f, bool *ret_changed)
{
	for (int i = 0; i < f->count; i++) {
		struct fabric_node *n = &f->nodes[i];
		uint64_t guid = n->port_guid;
		unsigned lid = n->lid, lmc = n->lmc;
		int local, r;

		if (n->is_switch)
			continue;
		r = read_node(f, n, &local);
		if (!r)
			r = read_lid(f, n);
		if (r)
			return r;
		if (n->port_guid != guid || n->lid != lid || n->lmc != lmc)
			*ret_changed = true;
		raise_lid_top(f, n);
	}
	return 0;
}

int fabric_find(const struct fabric *f, const char *name)
{
	for (int i = 0; i < f->count; i++)
		if (str_eq(f->nodes[i].name, name))
			return i;
	return -1;
}

int fabric_walk(const struct fabric *f, int from, unsigned lid)
{
	if (!lid || lid >= FABRIC_LIDS_MAX)
		return -1;
	for (int hops = 0; from >= 0 && hops < FABRIC_HOPS_MAX; hops++) {
		const struct fabric_node *n = &f->nodes[from];

		if (!n->is_switch)
			return from;
		if (!n->lft[lid] || n->lft[lid] == LFT_NO_PORT || n->lft[lid] > n->ports)
			return -1;
		from = n->links[n->lft[lid]].node;
	}
	return -1;
}

void fabric_spread(const struct fabric *f, int from, unsigned mlid, bool ret_ends[FABRIC_NODES_MAX])
{
	bool seen[FABRIC_NODES_MAX] = {false};
	int wait[FABRIC_NODES_MAX], count = 0;

	memset(ret_ends, 0, FABRIC_NODES_MAX * sizeof(*ret_ends));
	if (from < 0 || mlid < FABRIC_MLID_BASE || mlid >= FABRIC_MLID_BASE + FABRIC_MLIDS_MAX)
		return;
	seen[from] = true;
	wait[count++] = from;
	while (count) {
		const struct fabric_node *n = &f->nodes[wait[--count]];

		for (int p = 1; p <= n->ports; p++) {
			int to = n->mft[mlid - FABRIC_MLID_BASE] >> p & 1 ? n->links[p].node : -1;

			if (to < 0 || seen[to])
				continue;
			seen[to] = true;
			if (f->nodes[to].is_switch)
				wait[count++] = to;
			else
				ret_ends[to] = true;
		}
	}
}
