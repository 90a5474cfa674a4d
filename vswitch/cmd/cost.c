/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cost: the table of the vSwitch paper, counted on generated fabrics. */
#include "vswitch/cmd/cmd.h"
#include "vswitch/cost/cost.h"
#include "common/util.h"

#include <errno.h>

static void print_head(void)
{
	printf("%-28s %8s %6s %6s %7s | %-20s | %-20s | %-20s | %-16s | %-19s\n", "fabric",
	       "switches", "LIDs", "blocks", "full", "swap min/mean/max", "fewest min/mean/max",
	       "dynamic min/mean/max", "drain VMs: sep/1", "dynamic drain sep/1");
}

static void print_range(const struct cost_range *r)
{
	printf(" | %5u %8.1f %5u", r->least, r->mean, r->most);
}

/* The paper's equations: full n m (k + r), without the path computation; ours n' m' k. */
static void print_times(const struct cmd *c, const struct cost *x)
{
	double direct = c->direct_us < 0 ? 0 : c->direct_us;

	printf("%28s full %.3f ms + path computation; swap %.3f ms mean, %.3f ms most; dynamic "
	       "%.3f ms mean\n",
	       "", (double)x->full * (c->smp_us + direct) / 1000, x->all.mean * c->smp_us / 1000,
	       x->all.most * c->smp_us / 1000, x->copy.mean * c->smp_us / 1000);
}

static int row(const struct cmd *c, const char *net, struct fabric_error *e)
{
	struct fabric f;
	struct cost x;
	int rc = cmd_generate(net, c->routing, &f, e);

	if (rc == -ENOSPC) {
		printf("%-28s %s\n", net, e->text);
		return 0;
	}
	if (rc)
		return rc;
	rc = cost_measure(&f, (unsigned)c->pairs, (unsigned)c->drained, c->seed, &x, e);
	fabric_clear(&f);
	if (rc)
		return rc;
	printf("%-28s %8u %6u %6u %7lu", net, x.switches, x.lids, x.blocks, x.full);
	print_range(&x.all);
	print_range(&x.fewest);
	print_range(&x.copy);
	printf(" | %2u: %5.0f/%-6.0f | %7.0f/%-8.0f\n", x.drained, x.one_by_one, x.coalesced,
	       x.copy_one_by_one, x.copy_coalesced);
	if (c->smp_us >= 0)
		print_times(c, &x);
	return 0;
}

int cmd_cost(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	static const char *const nets[] = {
		"324",        "324,vfs=16",  "648",   "648,vfs=16",  "5832",
		"5832,vfs=6", "5832,vfs=16", "11664", "11664,vfs=2", "11664,vfs=16"};
	int rc = 0;

	if (c->direct_us >= 0 && c->smp_us < 0)
		return fabric_fail(e, -EINVAL, "--direct-us needs --smp-us");
	print_head();
	if (!l->arg_count)
		for (unsigned i = 0; !rc && i < ARRAY_SIZE(nets); i++)
			rc = row(c, nets[i], e);
	for (size_t i = 0; !rc && i < l->arg_count; i++)
		rc = row(c, l->args[i], e);
	return rc;
}
