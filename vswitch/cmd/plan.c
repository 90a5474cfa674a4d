/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plan: where a VM should go, and the SMPs that bring VMs where they go. */
#include "vswitch/cmd/cmd.h"
#include "vswitch/moves/deps.h"
#include "vswitch/moves/moves.h"
#include "vswitch/cost/rank.h"
#include "common/ib.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

/* "5,7,20-31" */
static int mark_busy(const struct fabric *f, const char *list, bool *busy, struct fabric_error *e)
{
	const char *at = list;

	while (at && *at) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (end > at && *end == '-')
			last = strtoul(at = end + 1, &end, 10);
		if (end == at || (*end && *end != ',') || !first || last > IB_LID_UCAST_MAX ||
		    first > last)
			return fabric_fail(e, -EINVAL,
					   "--busy %.80s: LIDs and ranges are needed, "
					   "as 5,7,20-31",
					   list);
		for (unsigned long lid = first; lid <= last; lid++) {
			uint32_t owner = fabric_find_lid(f, (unsigned)lid).end;

			if (owner == FABRIC_NONE)
				return fabric_fail(e, -ENOENT, "--busy: LID %lu is no CA port's",
						   lid);
			busy[owner] = true;
		}
		at = *end ? end + 1 : end;
	}
	return 0;
}

static void print_ranks(const struct cmd *c, const struct fabric *f, const struct rank *r,
			unsigned count)
{
	printf("%-24s %8s %5s %7s %5s\n", "destination", "switches", "SMPs", "inside", "load");
	for (unsigned i = 0; i < count && i < c->top; i++)
		printf("%-24s %8u %5u %7u %5u%s\n", f->end[r[i].end].desc, r[i].switches, r[i].smps,
		       r[i].smps_inside, r[i].load, r[i].same_leaf ? "  same leaf" : "");
	if (count > c->top)
		printf("(%u hosts more)\n", count - (unsigned)c->top);
}

static int rank(const struct cmd *c, const struct fabric *f, uint32_t vm, struct fabric_error *e)
{
	bool *busy AUTO_FREE = calloc(f->ends + 1u, 1);
	bool *may AUTO_FREE = calloc(f->ends + 1u, 1);
	struct rank *r AUTO_FREE = NULL;
	unsigned count;
	int rc;

	if (!busy || !may)
		return fabric_fail(e, -ENOMEM, "no memory");
	rc = mark_busy(f, c->busy, busy, e);
	busy[vm] = true;
	rank_free(f, busy, may);
	if (!rc)
		rc = rank_hosts(f, vm, busy, may, c->copy, c->fewest ? MOVES_FEWEST : MOVES_ALL, &r,
				&count, e);
	if (!rc)
		print_ranks(c, f, r, count);
	return rc;
}

static void print_smp(const struct fabric *f, const struct moves_plan *p, const struct moves_smp *s)
{
	const char *comma = "";

	printf("wave %u  %s  block %u:", s->wave, f->sw[s->sw].desc, s->block);
	for (unsigned i = 0; i < p->moves; i++) {
		unsigned at = p->move[i].lid % IB_LFT_BLOCK;

		if (p->move[i].lid / IB_LFT_BLOCK != s->block || s->before[at] == s->after[at])
			continue;
		printf("%s LID %u port %u to %u", comma, p->move[i].lid, s->before[at],
		       s->after[at]);
		comma = ",";
	}
	putchar('\n');
}

static int print_deps(struct fabric *f, struct moves_plan *p, struct fabric_error *e)
{
	char text[1024] = "";
	struct deps d;
	int before, rc = deps_init(&d, f);

	if (rc)
		return fabric_fail(e, rc, "no memory");
	deps_add_fabric(&d, f);
	before = deps_find_cycle(&d, f, text, sizeof text);
	rc = before ? before : deps_plan_cycle(&d, f, p, text, sizeof text);
	deps_free(&d);
	if (rc < 0)
		return fabric_fail(e, rc, "no memory");
	if (!rc)
		puts("old and new routes together have no cycle of links");
	else
		printf("%s: %s\n",
		       before ? "the fabric has a cycle of links without the plan (lanes are not "
				"looked at)"
			      : "old and new routes together close a cycle of links",
		       text);
	return 0;
}

static int print_plan(const struct cmd *c, struct fabric *f, struct moves_plan *p,
		      struct fabric_error *e)
{
	printf("%u SMPs to %u switches, %u of them to %u vSwitches; %u wave%s\n", p->smps,
	       p->switches, p->smps_inside, p->switches_inside, p->waves, p->waves == 1 ? "" : "s");
	if (p->grown)
		printf("%u switches get a longer table: one SwitchInfo SMP more each\n", p->grown);
	if (p->split)
		printf("%u SMPs more than blocks: blocks are sent in parts where LIDs ask for "
		       "different orders\n",
		       p->split);
	for (unsigned i = 0; c->smps && i < p->smps; i++)
		print_smp(f, p, &p->smp[i]);
	return c->deps ? print_deps(f, p, e) : 0;
}

static int batch(const struct cmd *c, struct fabric *f, const uint32_t *vm, struct fabric_error *e)
{
	struct moves_plan p = {0};
	struct move move[MOVES_MAX];
	uint32_t to[CMD_MOVES_MAX];
	unsigned n = 0;
	int rc = 0;

	for (unsigned i = 0; !rc && i < c->vms; i++)
		rc = cmd_find_end(f, c->to[i], &to[i], e);
	for (unsigned i = 0; !rc && c->copy && i < c->vms; i++)
		rc = moves_copy(f, vm[i], to[i], &move[n++], e);
	if (!rc && !c->copy)
		rc = moves_swaps(f, vm, to, c->vms, move, &n, e);
	rc = rc ? rc : moves_plan(f, move, n, c->fewest ? MOVES_FEWEST : MOVES_ALL, &p, e);
	if (!rc && c->waves && moves_order(f, &p))
		rc = fabric_fail(e, -ENOMEM, "no memory");
	rc = rc ? rc : print_plan(c, f, &p, e);
	moves_free(&p);
	return rc;
}

int cmd_plan(const struct command_line *l)
{
	const struct cmd *c = l->context;
	struct fabric_error *e = c->error;
	uint32_t vm[CMD_MOVES_MAX];
	struct fabric f;
	int rc;

	if (!c->vms || (c->tos && c->tos != c->vms) || (!c->tos && c->vms > 1))
		return fabric_fail(e, -EINVAL, "plan needs one --vm, or as many --to as --vm");
	rc = cmd_fabric(c, &f, e);
	if (rc)
		return rc;
	for (unsigned i = 0; !rc && i < c->vms; i++)
		rc = cmd_find_end(&f, c->vm[i], &vm[i], e);
	rc = rc ? rc : c->tos ? batch(c, &f, vm, e) : rank(c, &f, vm[0], e);
	fabric_clear(&f);
	return rc;
}
