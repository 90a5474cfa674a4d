/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fabrics from files and generators: gen, check, lids, and what the other commands need of them. */
#include "vswitch/moves/address.h"
#include "vswitch/moves/check.h"
#include "vswitch/cmd/cmd.h"
#include "vswitch/moves/deps.h"
#include "vswitch/nets/gen.h"
#include "vswitch/text/text.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int cmd_generate(const char *net, const char *routing, struct fabric *ret_fabric,
		 struct fabric_error *e)
{
	const struct route_engine *engine = &route_updn;
	struct gen_spec spec;
	int rc = gen_parse(net, &spec, e);

	if (rc)
		return rc;
	if (spec.shape == GEN_XGFT)
		engine = &route_ftree;
	else if (spec.shape == GEN_MESH)
		engine = &route_dor;
	rc = routing ? route_engine_find(routing, &engine, e) : 0;
	rc = rc ? rc : gen_fabric(&spec, ret_fabric, e);
	if (rc)
		return rc;
	rc = engine->run(ret_fabric, e);
	if (rc)
		fabric_clear(ret_fabric);
	return rc;
}

static int read_text(const char *path, char **ret_text, size_t *ret_bytes, struct fabric_error *e)
{
	int rc = read_file(path, TEXT_BYTES_MAX, ret_text, ret_bytes);

	if (rc == -EFBIG)
		return fabric_fail(e, rc, "%s: more than 1 GiB: is it a topology?", path);
	return rc ? fabric_fail(e, rc, "%s: %s", path, strerror(-rc)) : 0;
}

/* Puts the name of the file before the reason. */
static int in_file(const char *path, int rc, struct fabric_error *e)
{
	struct fabric_error inner = *e;

	return rc ? fabric_fail(e, rc, "%.80s: %.170s", path, inner.text) : 0;
}

static void print_notes(const char *path, const struct text_notes *n)
{
	for (unsigned i = 0; i < n->notes; i++)
		fprintf(stderr, "ibvmig-vswitch: note: %s: %s (%u such)\n", path, n->note[i].first,
			n->note[i].count);
}

static int read_topology(const char *path, struct fabric *ret_fabric, struct fabric_error *e)
{
	struct text_notes notes = {.notes = 0};
	char *text AUTO_FREE = NULL;
	size_t bytes;
	int rc = read_text(path, &text, &bytes, e);

	rc = rc ? rc : in_file(path, topo_read(text, bytes, ret_fabric, &notes, e), e);
	print_notes(path, &notes);
	return rc;
}

static int read_lfts(const char *path, struct fabric *f, struct fabric_error *e)
{
	FILE *in AUTO_FILE = fopen(path, "re");
	struct text_notes notes = {.notes = 0};
	int rc;

	if (!in)
		return fabric_fail(e, -errno, "%s: %s", path, strerror(errno));
	rc = in_file(path, lfts_read_file(in, f, &notes, e), e);
	print_notes(path, &notes);
	return rc;
}

/* A file does not tell a vSwitch from a leaf with one uplink: what is taken for one is said. */
static void judge_vswitches(const struct cmd *c, struct fabric *f)
{
	uint32_t first = FABRIC_NONE, count = 0;

	for (uint32_t i = 0; i < f->switches; i++) {
		if (c->no_vswitches)
			f->sw[i].inside = false;
		if (!f->sw[i].inside)
			continue;
		first = count++ ? first : i;
	}
	if (count)
		fprintf(stderr,
			"ibvmig-vswitch: note: %s: switch %s has one uplink and is taken for the "
			"vSwitch of one host (%u such); leaves: add --no-vswitches\n",
			c->topology, f->sw[first].desc, count);
}

int cmd_fabric(const struct cmd *c, struct fabric *ret_fabric, struct fabric_error *e)
{
	int rc;

	if (c->net && !c->topology && !c->lfts && !c->no_vswitches)
		return cmd_generate(c->net, c->routing, ret_fabric, e);
	if (!c->topology || !c->lfts || c->net || c->routing)
		return fabric_fail(e, -EINVAL,
				   "a fabric is needed: --topology FILE --lfts FILE "
				   "[--no-vswitches], or --net NET [--routing ENGINE]");
	rc = read_topology(c->topology, ret_fabric, e);
	if (rc)
		return rc;
	judge_vswitches(c, ret_fabric);
	rc = read_lfts(c->lfts, ret_fabric, e);
	if (rc)
		fabric_clear(ret_fabric);
	return rc;
}

/* The CA port of this name; a host or an HCA may give one name to many. */
static int find_by_name(const struct fabric *f, const char *name, uint32_t *ret_end,
			struct fabric_error *e)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < f->ends; i++)
		if (str_eq(f->end[i].desc, name) && !count++)
			*ret_end = i;
	if (count > 1)
		return fabric_fail(e, -EINVAL,
				   "%u CA ports have the name \"%.64s\", one of them LID %u and "
				   "GUID 0x%016" PRIx64 ": name the port by its LID or GUID",
				   count, name, f->end[*ret_end].lid, f->end[*ret_end].port_guid);
	return 0;
}

int cmd_find_end(const struct fabric *f, const char *text, uint32_t *ret_end,
		 struct fabric_error *e)
{
	uint64_t v;
	int rc = 0;

	*ret_end = FABRIC_NONE;
	if (!parse_u64(text, 1, IB_LID_UCAST_MAX, &v))
		*ret_end = fabric_find_lid(f, (unsigned)v).end;
	else if (!strncmp(text, "0x", 2) && !parse_u64(text, 1, UINT64_MAX, &v))
		*ret_end = fabric_find_end(f, v);
	else
		rc = find_by_name(f, text, ret_end, e);
	if (rc || *ret_end != FABRIC_NONE)
		return rc;
	return fabric_fail(e, -ENOENT,
			   "no CA port of the fabric has the LID, GUID or name \"%.64s\"", text);
}

static int write_file(const char *path, void (*write)(FILE *, const struct fabric *),
		      const struct fabric *f, struct fabric_error *e)
{
	FILE *out AUTO_FILE = fopen(path, "we");

	if (!out)
		return fabric_fail(e, -errno, "%s: %s", path, strerror(errno));
	write(out, f);
	if (fflush(out) || ferror(out))
		return fabric_fail(e, -EIO, "%s: it cannot be written: %s", path, strerror(errno));
	return 0;
}

int cmd_gen(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	struct fabric f;
	int rc;

	if (!c->net)
		return fabric_fail(e, -EINVAL, "gen needs --net");
	rc = cmd_generate(c->net, c->routing, &f, e);
	if (rc)
		return rc;
	for (uint32_t i = 0; !rc && c->topology && i < f.ends; i++)
		if (f.end[i].pf != FABRIC_NONE)
			rc = fabric_fail(e, -EINVAL,
					 "VFs that share a port have no place in a topology file: "
					 "add ,vswitch to the net");
	if (!rc && c->topology)
		rc = write_file(c->topology, topo_write, &f, e);
	if (!rc && c->lfts)
		rc = write_file(c->lfts, lfts_write, &f, e);
	printf("%u switches, %u CA ports, LIDs to %u, %zu bytes in memory\n", f.switches, f.ends,
	       fabric_top_lid(&f), fabric_bytes(&f));
	fabric_clear(&f);
	return rc;
}

static int print_cycle(const struct fabric *f, struct fabric_error *e)
{
	struct deps d;
	char text[1024] = "";
	int rc = deps_init(&d, f);

	if (rc)
		return fabric_fail(e, rc, "no memory");
	deps_add_fabric(&d, f);
	rc = deps_find_cycle(&d, f, text, sizeof text);
	deps_free(&d);
	if (rc < 0)
		return fabric_fail(e, rc, "no memory");
	if (rc)
		printf("links wait for each other in a circle: %s\n", text);
	else
		puts("no cycle in the channel dependency graph");
	return 0;
}

int cmd_check(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	struct check_result r;
	struct fabric f;
	int rc = cmd_fabric(c, &f, e);

	if (rc)
		return rc;
	rc = check_fabric(&f, (unsigned)c->step, &r, e);
	printf("%" PRIu64 " pairs, %" PRIu64 " broken, at most %u switches on a way\n", r.pairs,
	       r.broken, r.max_hops);
	if (!rc && c->deps)
		rc = print_cycle(&f, e);
	fabric_clear(&f);
	return rc;
}

static int print_lids(const char *net, unsigned parked, const char *what, struct fabric_error *e)
{
	struct gen_spec spec;
	struct fabric f;
	int rc = gen_parse(net, &spec, e);

	if (rc)
		return rc;
	spec.parked = parked < spec.vfs ? parked : spec.vfs;
	rc = gen_fabric(&spec, &f, e);
	if (rc) {
		printf("%-13s  %s\n", what, e->text);
		return rc == -ENOSPC ? 0 : rc;
	}
	printf("%-13s  LIDs to %5u, %3u blocks in each of %u switches, %u LIDs left\n", what,
	       fabric_top_lid(&f), fabric_top_lid(&f) / IB_LFT_BLOCK + 1, gen_switches(&spec),
	       IB_LID_UCAST_MAX - fabric_top_lid(&f));
	fabric_clear(&f);
	return 0;
}

int cmd_lids(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	int rc;

	if (!c->net)
		return fabric_fail(e, -EINVAL, "lids needs --net, with ,vfs=N");
	rc = print_lids(c->net, UINT32_MAX, address_mode_name(ADDRESS_PREPOPULATED), e);
	rc = rc ? rc : print_lids(c->net, 0, address_mode_name(ADDRESS_DYNAMIC), e);
	return rc ? rc : print_lids(c->net, 0, address_mode_name(ADDRESS_SHARED_PORT), e);
}
