/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cost of libvswitch on the nets of the vSwitch paper: time of plans, memory, SMPs. Prints
 * JSON; `make bench-vswitch` puts it into build/bench/vswitch.json. Times are CPU time, as the
 * library does nothing but compute; those of plans are medians. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/ib.h"
#include "common/util.h"
#include "vswitch/moves/address.h"
#include "vswitch/moves/check.h"
#include "vswitch/cost/cost.h"
#include "vswitch/moves/deps.h"
#include "vswitch/nets/gen.h"
#include "vswitch/cost/rank.h"
#include "vswitch/routing/engine.h"

#define PLANS        301
#define PLAN_GOAL_US 1000
#define LIDS_MAX     128 /* LIDs of a batch */
#define BYTES_GOAL   100000000

static const char *const nets[] = {"324", "648", "5832", "11664"};

static double clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what, const struct fabric_error *e)
{
	fprintf(stderr, "vswitch_bench: %s: %s\n", what, e->text);
	exit(1);
}

static void make(const char *net, const struct route_engine *engine, struct fabric *f)
{
	struct fabric_error e = {""};
	struct gen_spec spec;

	if (gen_parse(net, &spec, &e) || gen_fabric(&spec, f, &e) || engine->run(f, &e))
		die(net, &e);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof *v, by_value);
	return v[n / 2];
}

/* The median time of a plan for `k` swaps of random ports. */
static double plan_us(const struct fabric *f, unsigned k, enum moves_rule rule, bool ordered)
{
	static double us[PLANS];
	struct fabric_error e = {""};
	struct moves_plan p = {0};
	struct move m[LIDS_MAX];
	unsigned runs = k > 1 ? 31 : PLANS;

	for (unsigned i = 0; i < runs; i++) {
		uint32_t first = (uint32_t)rand() % f->ends, step = f->ends / LIDS_MAX;
		double start;

		for (unsigned n = 0; n < k; n++) /* 2 k different ports */
			if (moves_swap(f, (first + n * step) % f->ends,
				       (first + (n + LIDS_MAX / 2) * step) % f->ends, m + 2 * n,
				       &e))
				die("swap", &e);
		start = clock_us();
		if (moves_plan(f, m, 2 * k, rule, &p, &e) || (ordered && moves_order(f, &p)))
			die("plan", &e);
		us[i] = clock_us() - start;
	}
	moves_free(&p);
	return median(us, runs);
}

static void print_range(const char *name, const struct cost_range *r)
{
	printf("\"%s\": {\"min\": %u, \"mean\": %.1f, \"max\": %u}, ", name, r->least, r->mean,
	       r->most);
}

static void print_cost(const char *net)
{
	struct fabric_error e = {""};
	struct fabric f;
	struct cost c;

	make(net, &route_ftree, &f);
	if (cost_measure(&f, 1000, 16, 1, &c, &e))
		die(net, &e);
	printf("{\"net\": \"%s\", \"switches\": %u, \"lids\": %u, \"blocks\": %u, \"full\": %lu, "
	       "\"bound\": %u, ",
	       net, c.switches, c.lids, c.blocks, c.full, c.bound);
	print_range("swap", &c.all);
	print_range("fewest", &c.fewest);
	print_range("dynamic", &c.copy);
	print_range("waves", &c.waves);
	printf("\"drain_swap\": {\"vms\": %u, \"one_by_one\": %.0f, \"coalesced\": %.0f}, "
	       "\"drain_dynamic\": {\"vms\": 16, \"one_by_one\": %.0f, \"coalesced\": %.0f}}",
	       c.drained, c.one_by_one, c.coalesced, c.copy_one_by_one, c.copy_coalesced);
	fabric_clear(&f);
}

static void print_costs(void)
{
	static const char *const more[] = {"324,vfs=16", "648,vfs=16", "5832,vfs=6", "11664,vfs=2"};

	printf("\"cost\": [");
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++) {
		printf("%s\n  ", i ? "," : "");
		print_cost(nets[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
		printf(",\n  ");
		print_cost(more[i]);
	}
	printf("],\n");
}

static void print_deps(struct fabric *f)
{
	struct fabric_error e = {""};
	struct moves_plan p = {0};
	struct move m[2];
	struct deps d;
	char text[256];
	double t0 = clock_us(), t1;
	int cycle;

	if (deps_init(&d, f))
		die("deps", &e);
	deps_add_fabric(&d, f);
	cycle = deps_find_cycle(&d, f, text, sizeof text);
	t1 = clock_us();
	if (moves_swap(f, 0, f->ends - 1, m, &e) || moves_plan(f, m, 2, MOVES_ALL, &p, &e))
		die("plan", &e);
	cycle += deps_plan_cycle(&d, f, &p, text, sizeof text);
	printf("\"cycle_search_ms\": %.1f, \"plan_cycle_ms\": %.2f, \"cycles\": %d",
	       (t1 - t0) / 1e3, (clock_us() - t1) / 1e3, cycle);
	moves_free(&p);
	deps_free(&d);
}

static void print_rank(const struct fabric *f)
{
	bool *busy = calloc(f->ends, 1), *may = calloc(f->ends, 1);
	struct fabric_error e = {""};
	struct rank *r = NULL;
	unsigned count;
	double start = clock_us();

	busy[0] = true;
	rank_free(f, busy, may);
	if (rank_hosts(f, 0, busy, may, false, MOVES_FEWEST, &r, &count, &e))
		die("rank", &e);
	printf("\"rank_ms\": %.1f, \"ranked\": %u, ", (clock_us() - start) / 1e3, count);
	free(r);
	free(busy);
	free(may);
}

static void print_speed(const char *net)
{
	struct check_result c;
	struct fabric_error e = {""};
	struct fabric f;
	double start = clock_us(), all;

	make(net, &route_ftree, &f);
	printf("{\"net\": \"%s\", \"generate_and_route_ms\": %.1f, ", net,
	       (clock_us() - start) / 1e3);
	start = clock_us();
	if (check_fabric(&f, f.ends > 1000 ? 37 : 1, &c, &e))
		die(net, &e);
	printf("\"walked_pairs\": %" PRIu64 ", \"walk_ms\": %.1f, ", c.pairs,
	       (clock_us() - start) / 1e3);
	all = plan_us(&f, 1, MOVES_ALL, false);
	printf("\"plan_us\": %.1f, \"goal_us\": %d, \"met\": %s, \"plan_fewest_us\": %.1f, "
	       "\"plan_ordered_us\": %.1f, \"batch_us\": {",
	       all, PLAN_GOAL_US, all < PLAN_GOAL_US ? "true" : "false",
	       plan_us(&f, 1, MOVES_FEWEST, false), plan_us(&f, 1, MOVES_ALL, true));
	for (unsigned k = 1; k <= LIDS_MAX / 2; k *= 2)
		printf("%s\"%u\": %.1f", k > 1 ? ", " : "", k, plan_us(&f, k, MOVES_ALL, false));
	printf("}, ");
	print_rank(&f);
	print_deps(&f);
	printf("}");
	fabric_clear(&f);
}

static void print_memory(const char *net, const struct route_engine *engine)
{
	struct fabric f;
	size_t blocks = 0;

	make(net, engine, &f);
	for (uint32_t i = 0; i < f.switches; i++)
		blocks += f.sw[i].lft_blocks;
	printf("{\"net\": \"%s\", \"routing\": \"%s\", \"switches\": %u, \"top_lid\": %u, "
	       "\"bytes\": %zu, \"blocks\": %zu, \"different_blocks\": %u, \"plain_lft_bytes\": "
	       "%zu}",
	       net, engine->name, f.switches, fabric_top_lid(&f), fabric_bytes(&f), blocks,
	       f.store.live, blocks * IB_LFT_BLOCK);
	fabric_clear(&f);
}

/* The worst that can be: no two blocks alike, 1,620 switches with tables up to the last LID. */
static void print_worst(void)
{
	struct fabric f;
	struct fabric_error e = {""};
	uint8_t data[IB_LFT_BLOCK] = {0};
	uint64_t n = 0;

	make("11664", &route_dor, &f);
	for (uint32_t s = 0; s < f.switches; s++)
		for (unsigned b = 0; b <= IB_LID_UCAST_MAX / IB_LFT_BLOCK; b++) {
			n++;
			memcpy(data, &n, sizeof n);
			if (fabric_set_lft(&f, s, b, data))
				die("worst", &e);
		}
	printf("{\"net\": \"1620 switches, 49152 LIDs, no block twice\", \"bytes\": %zu, "
	       "\"goal_bytes\": %d, \"met\": %s}",
	       fabric_bytes(&f), BYTES_GOAL, fabric_bytes(&f) < BYTES_GOAL ? "true" : "false");
	fabric_clear(&f);
}

/* LFT blocks of each switch: every VF with a LID, or `vms` dynamic ones, just above the hosts or at
 * the top of the range. */
static void print_addresses(const char *net, unsigned vfs)
{
	struct fabric_error e = {""};
	struct gen_spec spec;
	struct fabric f;
	unsigned hosts, top, all;

	if (gen_parse(net, &spec, &e))
		die(net, &e);
	spec.vfs = vfs;
	spec.parked = 0;
	if (gen_fabric(&spec, &f, &e))
		die(net, &e);
	hosts = gen_hosts(&spec);
	top = fabric_top_lid(&f);
	fabric_clear(&f);
	spec.parked = vfs;
	all = gen_fabric(&spec, &f, &e) ? 0 : fabric_top_lid(&f);
	fabric_clear(&f);
	printf("{\"net\": \"%s\", \"hosts\": %u, \"vfs\": %u, \"prepopulated_blocks\": ", net,
	       hosts, vfs);
	if (all)
		printf("%u", all / IB_LFT_BLOCK + 1);
	else
		printf("null, \"why\": \"%s\"", e.text);
	printf(", \"vms\": %u, \"dynamic_blocks\": %u, \"dynamic_blocks_at_the_top\": %d}",
	       hosts / 4, (top + hosts / 4) / IB_LFT_BLOCK + 1,
	       IB_LID_UCAST_MAX / IB_LFT_BLOCK + 1);
}

int main(void)
{
	srand(1);
	printf("{\n\"speed\": [");
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++) {
		printf("%s\n  ", i ? "," : "");
		print_speed(nets[i]);
	}
	printf("],\n");
	print_costs();
	printf("\"memory\": [\n  ");
	print_memory("11664", &route_ftree);
	printf(",\n  ");
	print_memory("11664,vfs=3", &route_ftree);
	printf(",\n  ");
	print_memory("11664,vfs=3", &route_minhop);
	printf(",\n  ");
	print_memory("11664,vfs=2,vswitch", &route_ftree);
	printf(",\n  ");
	print_worst();
	printf("],\n\"addresses\": [");
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++) {
		printf("%s\n  ", i ? "," : "");
		print_addresses(nets[i], 16);
	}
	printf("]\n}\n");
	return 0;
}
