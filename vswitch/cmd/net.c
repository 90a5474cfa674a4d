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

	return rc ? fabric_fail(e, rc, "%s: %s", path, strerror(-rc)) : 0;
}

/* Puts the name of the file before the reason. */
static int in_file(const char *path, int rc, struct fabric_error *e)
{
	struct fabric_error inner = *e;

	return rc ? fabric_fail(e, rc, "%.80s: %.170s", path, inner.text) : 0;
}

int cmd_fabric(const struct cmd *c, struct fabric *ret_fabric, struct fabric_error *e)
{
	char *topology AUTO_FREE = NULL, *lfts AUTO_FREE = NULL;
	size_t topology_bytes, lft_bytes;
	int rc;

	if (c->net && !c->topology && !c->lfts)
		return cmd_generate(c->net, c->routing, ret_fabric, e);
	if (!c->topology || !c->lfts || c->net || c->routing)
		return fabric_fail(e, -EINVAL,
				   "a fabric is needed: --topology FILE --lfts FILE, or --net NET "
				   "[--routing ENGINE]");
	rc = read_text(c->topology, &topology, &topology_bytes, e);
	rc = rc ? rc : read_text(c->lfts, &lfts, &lft_bytes, e);
	if (rc)
		return rc;
	rc = in_file(c->topology, topo_read(topology, topology_bytes, ret_fabric, e), e);
	if (rc)
		return rc;
	rc = in_file(c->lfts, lfts_read(lfts, lft_bytes, ret_fabric, e), e);
	if (rc)
		fabric_clear(ret_fabric);
	return rc;
}

int cmd_find_end(const struct fabric *f, const char *text, uint32_t *ret_end,
		 struct fabric_error *e)
{
	uint64_t v;

	*ret_end = FABRIC_NONE;
	if (!parse_u64(text, 1, IB_LID_UCAST_MAX, &v))
		*ret_end = fabric_find_lid(f, (unsigned)v).end;
	else if (!strncmp(text, "0x", 2) && !parse_u64(text, 1, UINT64_MAX, &v))
		*ret_end = fabric_find_end(f, v);
	else
		for (uint32_t i = 0; *ret_end == FABRIC_NONE && i < f->ends; i++)
			if (str_eq(f->end[i].desc, text))
				*ret_end = i;
	if (*ret_end != FABRIC_NONE)
		return 0;
	return fabric_fail(e, -ENOENT,
			   "no CA port of the fabric has the LID, GUID or name \"%.64s\"", text);
}

static int write_text(const char *path, char *text, size_t bytes, struct fabric_error *e)
{
	char *owned AUTO_FREE = text;
	FILE *out AUTO_FILE = text ? fopen(path, "w") : NULL;

	if (!out || fwrite(text, 1, bytes, out) != bytes || fflush(out))
		return fabric_fail(e, -EIO, "%s: %s", path, strerror(text ? errno : ENOMEM));
	(void)owned;
	return 0;
}

int cmd_gen(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	struct fabric f;
	size_t bytes = 0;
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
	if (!rc && c->topology) {
		char *text = topo_format(&f, &bytes);

		rc = write_text(c->topology, text, bytes, e);
	}
	if (!rc && c->lfts) {
		char *text = lfts_format(&f, &bytes);

		rc = write_text(c->lfts, text, bytes, e);
	}
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
