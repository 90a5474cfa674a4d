/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vswitch/nets/gen.h"
#include "vswitch/model/lids.h"
#include "common/ib.h"

#include <errno.h>
#include <stdio.h>

/* ibsim counts GUIDs from these numbers as well. */
#define GUID_SWITCH  0x200000ull
#define GUID_VSWITCH 0x400000ull
#define GUID_CA      0x1000000ull
#define SWITCHES_MAX 20000

struct maker {
	const struct gen_spec *spec;
	struct fabric *f;
	struct fabric_error *e;
	struct lids lids;
	uint32_t hosts; /* made so far */
	uint64_t guid_ca;
	uint64_t random;
};

static uint32_t draw(struct maker *m, uint32_t below)
{
	m->random = m->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((m->random >> 33) % below);
}

/* Nodes of a level; level 0 are the hosts. */
static unsigned level_nodes(const struct gen_spec *s, unsigned level)
{
	unsigned long n = 1;

	for (unsigned i = 0; i < s->levels && n < SWITCHES_MAX * 64ul; i++)
		n *= i < level ? s->up[i] : s->down[i];
	return (unsigned)n;
}

unsigned gen_switches(const struct gen_spec *s)
{
	unsigned long n = 0;

	switch (s->shape) {
	case GEN_XGFT:
		for (unsigned l = 1; l <= s->levels; l++)
			n += level_nodes(s, l);
		return (unsigned)n;
	case GEN_IRREGULAR:
		return s->switches;
	default:
		n = 1;
		for (unsigned i = 0; i < s->dims && n < SWITCHES_MAX; i++)
			n *= s->size[i];
		return (unsigned)n;
	}
}

unsigned gen_hosts(const struct gen_spec *s)
{
	return s->shape == GEN_XGFT ? level_nodes(s, 0) : gen_switches(s) * s->hosts;
}

static int add_switch(struct maker *m, uint64_t guid, unsigned ports, const char *desc)
{
	uint16_t lid;
	int rc = lids_take(&m->lids, 0, &lid, m->e);

	return rc ? rc : fabric_add_switch(m->f, guid, lid, ports, desc);
}

static int add_end(struct maker *m, const char *desc, unsigned lmc, bool lid, uint32_t *ret_end)
{
	struct fabric_end end = {.node_guid = m->guid_ca,
				 .port_guid = m->guid_ca + 1,
				 .lmc = (uint8_t)lmc,
				 .port = 1};
	int rc = lid ? lids_take(&m->lids, lmc, &end.lid, m->e) : 0;

	if (rc)
		return rc;
	m->guid_ca += 2;
	snprintf(end.desc, sizeof end.desc, "%s", desc);
	*ret_end = m->f->ends;
	return fabric_add_end(m->f, &end);
}

/* A host's HCA at a switch port: its PF, and its VFs with or without a vSwitch. */
static int add_host(struct maker *m, uint64_t sw_guid, unsigned port)
{
	const struct gen_spec *s = m->spec;
	uint64_t guid = GUID_VSWITCH + m->hosts;
	uint32_t end, pf = FABRIC_NONE, at = m->f->switches;
	char desc[FABRIC_DESC_MAX];
	int rc = 0;

	if (s->kind == GEN_VSWITCHES) {
		snprintf(desc, sizeof desc, "hv%u-vsw", m->hosts);
		rc = add_switch(m, guid, 2 + s->vfs, desc);
		rc = rc ? rc : fabric_link(m->f, sw_guid, port, guid, 1);
		if (rc)
			return rc;
		m->f->sw[at].inside = true;
	}
	for (unsigned i = 0; !rc && i <= s->vfs; i++) {
		snprintf(desc, sizeof desc, i ? "hv%u-vf%u" : "hv%u-pf", m->hosts, i);
		rc = add_end(m, desc, i ? s->vf_lmc : s->lmc, i <= s->parked, &end);
		if (rc)
			break;
		if (s->kind == GEN_VSWITCHES)
			rc = fabric_attach(m->f, end, guid, 2 + i);
		else
			rc = i ? fabric_attach_vf(m->f, end, pf)
			       : fabric_attach(m->f, end, sw_guid, port);
		pf = i ? pf : end;
	}
	m->hosts++;
	return rc;
}

/* The digits of node `i` of a level: the first `level` count up[], the others down[]. */
static void digits(const struct gen_spec *s, unsigned level, unsigned i, unsigned *ret_digit)
{
	for (unsigned k = 0; k < s->levels; k++) {
		unsigned radix = k < level ? s->up[k] : s->down[k];

		ret_digit[k] = i % radix;
		i /= radix;
	}
}

static unsigned node_number(const struct gen_spec *s, unsigned level, const unsigned *digit)
{
	unsigned n = 0;

	for (unsigned k = s->levels; k-- > 0;)
		n = n * (k < level ? s->up[k] : s->down[k]) + digit[k];
	return n;
}

static int make_level(struct maker *m, unsigned level, const uint64_t *first)
{
	const struct gen_spec *s = m->spec;
	unsigned ports = s->down[level - 1] + (level < s->levels ? s->up[level] : 0);
	char desc[FABRIC_DESC_MAX];
	int rc = ports > FABRIC_PORTS_MAX ? -EINVAL : 0;

	for (unsigned i = 0; !rc && i < level_nodes(s, level); i++) {
		snprintf(desc, sizeof desc, "s%u-%u", level, i);
		rc = add_switch(m, first[level] + i, ports, desc);
	}
	return rc;
}

/* The links of a level's switches to those of the level above. */
static int link_level(struct maker *m, unsigned level, const uint64_t *first)
{
	const struct gen_spec *s = m->spec;
	unsigned digit[GEN_LEVELS_MAX];
	int rc = 0;

	for (unsigned i = 0; !rc && i < level_nodes(s, level); i++)
		for (unsigned u = 0; !rc && u < s->up[level]; u++) {
			unsigned child;

			digits(s, level, i, digit);
			child = digit[level];
			digit[level] = u;
			rc = fabric_link(m->f, first[level] + i, 1 + s->down[level - 1] + u,
					 first[level + 1] + node_number(s, level + 1, digit),
					 1 + child);
		}
	return rc;
}

static int make_xgft(struct maker *m)
{
	const struct gen_spec *s = m->spec;
	uint64_t first[GEN_LEVELS_MAX + 1] = {0, GUID_SWITCH};
	int rc = 0;

	for (unsigned l = 1; !rc && l <= s->levels; l++) {
		if (l < s->levels)
			first[l + 1] = first[l] + level_nodes(s, l);
		rc = make_level(m, l, first);
	}
	for (unsigned l = 1; !rc && l < s->levels; l++)
		rc = link_level(m, l, first);
	for (unsigned i = 0; !rc && i < level_nodes(s, 0); i++)
		rc = add_host(m, first[1] + i / s->down[0], 1 + i % s->down[0]);
	return rc;
}

/* Ports 1 and 2 lead up and down the first dimension, and so on: dimension order is port order. */
static int make_grid(struct maker *m)
{
	const struct gen_spec *s = m->spec;
	unsigned n = gen_switches(s), step = 1;
	char desc[FABRIC_DESC_MAX];
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++) {
		snprintf(desc, sizeof desc, "s%u", i);
		rc = add_switch(m, GUID_SWITCH + i, 2 * s->dims + s->hosts, desc);
	}
	for (unsigned d = 0; d < s->dims; step *= s->size[d++])
		for (unsigned i = 0; !rc && i < n; i++) {
			unsigned at = i / step % s->size[d];
			unsigned next = at + 1 < s->size[d] ? i + step : i - at * step;

			if (next == i ||
			    (at + 1 == s->size[d] && (s->shape == GEN_MESH || s->size[d] == 2)))
				continue;
			rc = fabric_link(m->f, GUID_SWITCH + i, 2 * d + 1, GUID_SWITCH + next,
					 2 * d + 2);
		}
	for (unsigned i = 0; !rc && i < n * s->hosts; i++)
		rc = add_host(m, GUID_SWITCH + i / s->hosts, 2 * s->dims + 1 + i % s->hosts);
	return rc;
}

static unsigned free_port(const struct fabric_switch *s)
{
	unsigned p = 1;

	while (p <= s->ports && s->peer[p].sw != FABRIC_NONE)
		p++;
	return p;
}

/* A random tree, then random links between switches that have a port left for one. */
static int make_irregular(struct maker *m)
{
	const struct gen_spec *s = m->spec;
	unsigned wires = 2 * s->degree + 1, extra = s->switches * (s->degree - 1);
	char desc[FABRIC_DESC_MAX];
	int rc = 0;

	for (unsigned i = 0; !rc && i < s->switches; i++) {
		snprintf(desc, sizeof desc, "s%u", i);
		rc = add_switch(m, GUID_SWITCH + i, wires + s->hosts, desc);
	}
	for (unsigned i = 1; !rc && i < s->switches + extra; i++) {
		uint32_t a = i < s->switches ? i : draw(m, s->switches), b;
		unsigned pa, pb, tries = 0;

		do {
			b = draw(m, i < s->switches ? i : s->switches);
		} while ((b == a || free_port(&m->f->sw[b]) > wires) && ++tries < 1000);
		pa = free_port(&m->f->sw[a]);
		pb = free_port(&m->f->sw[b]);
		if (a == b || pa > wires || pb > wires) {
			if (i < s->switches)
				return -EINVAL;
			continue;
		}
		rc = fabric_link(m->f, GUID_SWITCH + a, pa, GUID_SWITCH + b, pb);
	}
	for (unsigned i = 0; !rc && i < s->switches * s->hosts; i++)
		rc = add_host(m, GUID_SWITCH + i / s->hosts, wires + 1 + i % s->hosts);
	return rc;
}

static int check_spec(const struct gen_spec *s, struct fabric_error *e)
{
	unsigned long hosts = gen_hosts(s), switches = gen_switches(s);
	unsigned long vsw = s->kind == GEN_VSWITCHES ? hosts : 0;
	unsigned long vf_lids = hosts * s->parked << s->vf_lmc;
	unsigned long need = switches + vsw + (hosts << s->lmc) + vf_lids;

	if (!switches || switches > SWITCHES_MAX || !hosts)
		return fabric_fail(e, -EINVAL, "%lu switches and %lu hosts: 1 to %d can be made",
				   switches, hosts, SWITCHES_MAX);
	if (2 + s->vfs > FABRIC_PORTS_MAX ||
	    (s->shape == GEN_IRREGULAR && 2 * s->degree + 1 + s->hosts > FABRIC_PORTS_MAX))
		return fabric_fail(e, -EINVAL, "a switch would have more than %d ports",
				   FABRIC_PORTS_MAX);
	if (need <= IB_LID_UCAST_MAX)
		return 0;
	need -= vf_lids;
	return fabric_fail(
		e, -ENOSPC,
		"%lu hosts with %u prepopulated VFs need %lu LIDs, %d are there: %lu are free "
		"for VFs, so at most %lu for each host; take fewer, or assign them dynamically",
		hosts, s->parked, need + hosts * s->parked, IB_LID_UCAST_MAX,
		need < IB_LID_UCAST_MAX ? IB_LID_UCAST_MAX - need : 0,
		need < IB_LID_UCAST_MAX ? (IB_LID_UCAST_MAX - need) / hosts : 0);
}

int gen_fabric(const struct gen_spec *spec, struct fabric *ret_fabric, struct fabric_error *e)
{
	struct fabric f = {0};
	struct maker m = {.spec = spec, .f = &f, .e = e, .guid_ca = GUID_CA, .random = spec->seed};
	int rc = check_spec(spec, e);

	if (rc)
		return rc;
	fabric_fail(e, 0, "this fabric cannot be made");
	lids_init(&m.lids, IB_LID_UCAST_MIN, IB_LID_UCAST_MAX, e);
	if (spec->shape == GEN_XGFT)
		rc = make_xgft(&m);
	else
		rc = spec->shape == GEN_IRREGULAR ? make_irregular(&m) : make_grid(&m);
	if (rc) {
		fabric_clear(&f);
		return rc;
	}
	*ret_fabric = f;
	return 0;
}
