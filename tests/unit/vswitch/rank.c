/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LIDs of VMs in the three modes, the choice of a destination, and the costs of the paper. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/unit/vswitch/nets.h"
#include "vswitch/moves/address.h"
#include "vswitch/moves/check.h"
#include "vswitch/cost/cost.h"
#include "vswitch/cost/rank.h"

static uint32_t named(const struct fabric *f, const char *name)
{
	for (uint32_t i = 0; i < f->ends; i++)
		if (str_eq(f->end[i].desc, name))
			return i;
	fail_msg("no %s", name);
	return FABRIC_NONE;
}

static void test_modes(void **state)
{
	struct fabric_error e;
	enum address_mode m;

	(void)state;
	assert_int_equal(address_mode_parse("dynamic", &m, &e), 0);
	assert_int_equal(m, ADDRESS_DYNAMIC);
	assert_int_equal(address_mode_parse("static", &m, &e), -EINVAL);
}

/* Same-leaf hosts come first with one SMP; a busy VF and the own host are no choice. */
static void rank_on(const char *text, const char *vm_name)
{
	struct rank *r = NULL;
	struct fabric_error e = {""};
	struct moves_plan p = {0};
	struct fabric f;
	unsigned count, same = 0;
	uint32_t vm;

	make(text, &route_ftree, &f);
	vm = named(&f, vm_name);
	bool *busy AUTO_FREE = calloc(f.ends, 1), *may AUTO_FREE = calloc(f.ends, 1);
	busy[vm] = busy[named(&f, "hv1-vf1")] = busy[named(&f, "hv1-vf2")] = true;
	rank_free(&f, busy, may);
	assert_false(may[named(&f, "hv2-pf")]);
	assert_int_equal(rank_hosts(&f, vm, busy, may, false, MOVES_FEWEST, &r, &count, &e), 0);
	assert_int_equal(count, 12 - 2); /* neither its own host nor the full one */
	for (unsigned i = 0; i < count; i++) {
		struct move m[2];

		same += r[i].same_leaf;
		assert_true(r[i].same_leaf == (i < 2));
		assert_true(!i || r[i].switches >= r[i - 1].switches);
		moves_swap(&f, vm, r[i].end, m, &e);
		assert_int_equal(moves_plan(&f, m, 2, MOVES_FEWEST, &p, &e), 0);
		assert_int_equal(r[i].smps, p.smps - p.smps_inside);
		assert_int_equal(r[i].smps_inside, p.smps_inside);
		assert_true(r[i].load >= 1);
	}
	assert_int_equal(r[0].smps, 1);
	assert_int_equal(same, 2);
	free(r);
	moves_free(&p);
	fabric_clear(&f);
}

static void test_rank(void **state)
{
	(void)state;
	rank_on("xgft:4,3/4,vfs=2", "hv0-vf1");
	rank_on("xgft:4,3/4,vfs=2,vswitch", "hv0-vf1");
}

/* The load of a destination counts the routes to VMs that share a link with those to it: two from
 * the other leaves for each VM. */
static void test_load(void **state)
{
	struct rank *r = NULL;
	struct fabric_error e;
	struct fabric f;
	unsigned count;

	(void)state;
	make("xgft:2,3/1", &route_minhop, &f); /* a single spine: one link to each leaf */
	bool *busy AUTO_FREE = calloc(f.ends, 1), *may AUTO_FREE = calloc(f.ends, 1);
	busy[0] = busy[2] = true; /* on leaves 0 and 1 */
	rank_free(&f, busy, may);
	assert_int_equal(rank_hosts(&f, 0, busy, may, false, MOVES_ALL, &r, &count, &e), 0);
	assert_int_equal(count, 4);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(r[i].load, f.end[r[i].end].sw == f.end[2].sw ? 4 : 2);
	free(r);
	fabric_clear(&f);
}

/* The paper: full 216 SMPs at 324 hosts, ours 1 to 72. */
static void test_cost(void **state)
{
	struct fabric_error e = {""};
	struct fabric f;
	struct cost c;

	(void)state;
	make("324", &route_ftree, &f);
	if (cost_measure(&f, 300, 16, 1, &c, &e))
		fail_msg("%s", e.text);
	assert_int_equal(c.full, 216);
	assert_int_equal(c.bound, 72);
	assert_int_equal(c.all.most, 72);
	assert_int_equal(c.fewest.least, 1);
	assert_true(c.fewest.mean < c.all.mean && c.copy.most <= 36);
	assert_true(c.copy_coalesced <= 36 && c.copy_one_by_one > 400);
	struct check_result r;
	assert_int_equal(check_fabric(&f, 1, &r, &e), 0);
	fabric_clear(&f);
	make("xgft:6,6/6,vfs=16", &route_ftree, &f);
	assert_int_equal(cost_measure(&f, 100, 16, 1, &c, &e), 0);
	assert_int_equal(c.drained, 16);
	assert_true(c.coalesced < c.one_by_one);
	assert_int_equal(cost_measure(&f, 0, MOVES_MAX / 2 + 1, 1, &c, &e), -EINVAL);
	fabric_clear(&f);
}

/* However many VFs a single host has, none of its VMs can go anywhere else. */
static void test_cost_of_one_host(void **state)
{
	struct fabric_error e = {""};
	struct fabric f;
	struct cost c;

	(void)state;
	make("mesh:1,hosts=1,vfs=126", &route_dor, &f);
	alarm(60);
	assert_int_equal(cost_measure(&f, 10, 16, 1, &c, &e), 0);
	alarm(0);
	assert_int_equal(c.drained, 0);
	fabric_clear(&f);
}

int main(void)
{
	const struct CMUnitTest vswitch_rank[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_rank),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_cost_of_one_host),
	};

	return RUN_TESTS(vswitch_rank);
}
