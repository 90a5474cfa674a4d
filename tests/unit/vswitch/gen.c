/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Generated fabrics have the numbers of the paper, and their routes arrive from everywhere. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "tests/unit/vswitch/nets.h"
#include "vswitch/moves/check.h"

static void generate(const char *text, struct fabric *f)
{
	struct fabric_error e = {""};
	struct gen_spec spec;
	int rc = gen_parse(text, &spec, &e);

	rc = rc ? rc : gen_fabric(&spec, f, &e);
	if (rc)
		fail_msg("%s: %s", text, e.text);
}

/* Switches, LIDs and LFT blocks of the paper's four nets. */
static void test_paper(void **state)
{
	static const struct {
		const char *text;
		unsigned switches, lids, blocks;
	} net[] = {{"324", 36, 360, 6},
		   {"648", 54, 702, 11},
		   {"5832", 972, 6804, 107},
		   {"11664", 1620, 13284, 208}};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(net); i++) {
		struct fabric f;

		generate(net[i].text, &f);
		assert_int_equal(f.switches, net[i].switches);
		assert_int_equal(fabric_top_lid(&f), net[i].lids);
		assert_int_equal(fabric_top_lid(&f) / 64 + 1, net[i].blocks);
		fabric_clear(&f);
	}
}

/* Every pair, each engine that fits the net. */
static void test_routes(void **state)
{
	static const struct {
		const char *text;
		unsigned engines, hops; /* at most so many switches */
	} net[] = {
		{"324", 0xb, 3},
		{"xgft:3,4,5/2,3", 0xb, 5},
		{"xgft:2,2,2,2/2,2,2,vfs=2,vswitch", 0xb, 9},
		{"mesh:3x2,vfs=2", 0xf, 6},
		{"mesh:8x8,vfs=1,vswitch", 0x5, 17},
		{"torus:4x4x3,hosts=2,lmc=2", 0x5, 10},
		{"torus:8x8", 0x2, 64},
		{"irregular:30,2,1,hosts=2,vfs=1", 0x3, 64},
		{"irregular:60,3,2,vfs=2,vswitch", 0x3, 64},
		{"irregular:1,1,1,hosts=4", 0xf, 1},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(net); i++) {
		struct fabric f;

		generate(net[i].text, &f);
		for (unsigned r = 0; r < ROUTE_ENGINES; r++) {
			struct check_result c;
			struct fabric_error e = {""};

			if (!(net[i].engines >> r & 1))
				continue;
			assert_int_equal(route_engines[r]->run(&f, &e), 0);
			if (check_fabric(&f, 1, &c, &e))
				fail_msg("%s, %s: %s", net[i].text, route_engines[r]->name, e.text);
			assert_true(c.pairs > 0);
			assert_true(c.max_hops <= net[i].hops);
		}
		fabric_clear(&f);
	}
}

/* A wrong entry anywhere is found. */
static void test_check_finds(void **state)
{
	struct check_result c;
	struct fabric_error e;
	struct fabric f;
	uint16_t lid;
	int port;

	(void)state;
	generate("xgft:3,3/3,vfs=1", &f);
	assert_int_equal(route_minhop.run(&f, &e), 0);
	lid = f.end[4].lid;
	port = fabric_lft_entry(&f, f.end[4].sw, lid);
	assert_int_equal(port, f.end[4].sw_port);
	assert_int_equal(set_entry(&f, f.end[4].sw, lid, (uint8_t)(port % 3 + 1)), 0);
	assert_int_equal(check_fabric(&f, 1, &c, &e), -EHOSTUNREACH);
	assert_non_null(strstr(e.text, "hv2-pf) arrives at switch s1-0, at hv"));
	assert_int_equal(c.broken, 3);
	assert_int_equal(set_entry(&f, f.end[4].sw, lid, 4), 0); /* to a spine: a loop */
	assert_int_equal(check_fabric(&f, 1, &c, &e), -EHOSTUNREACH);
	assert_non_null(strstr(e.text, "loops"));
	assert_int_equal(set_entry(&f, f.end[4].sw, lid, VSWITCH_NO_PATH), 0);
	assert_int_equal(check_lid(&f, lid, 4, &c, &e), -EHOSTUNREACH);
	assert_int_equal(check_lid(&f, f.end[5].lid, 5, &c, &e), 0);
	fabric_clear(&f);
}

static void test_errors(void **state)
{
	static const char *const bad[] = {
		"",           "325",           "mesh",           "mesh:",       "mesh:3x",
		"mesh:0x2",   "mesh:2x2x2x2",  "xgft:18,18",     "xgft:18,18/", "xgft:18,18/18,18",
		"ring:4",     "324,vfs=127",   "324,vfs=",       "324,lmc=8",   "324,,vfs=1",
		"irregular:", "irregular:3,2", "mesh:3x2 hosts", "324,vfs=1x",  "mesh:99999999x1"};
	struct fabric_error e;
	struct gen_spec spec;
	struct fabric f;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(gen_parse(bad[i], &spec, &e), -EINVAL);
	assert_int_equal(gen_parse("mesh:999x999", &spec, &e), 0);
	assert_int_equal(gen_fabric(&spec, &f, &e), -EINVAL);
	assert_int_equal(gen_parse("xgft:200,200,200/200,200", &spec, &e), 0);
	assert_int_equal(gen_fabric(&spec, &f, &e), -EINVAL);
}

/* Prepopulated: 49,151 LIDs carry 6 VFs a host at 5,832 hosts with vSwitches, 2 at 11,664. */
static void test_exhaustion(void **state)
{
	static const struct {
		const char *text;
		unsigned fits;
	} net[] = {{"5832,vfs=16,vswitch", 6},
		   {"11664,vfs=16,vswitch", 2},
		   {"5832,vfs=16", 7},
		   {"11664,vfs=16", 3}};
	struct fabric_error e;
	struct gen_spec spec;
	struct fabric f;
	char want[64];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(net); i++) {
		assert_int_equal(gen_parse(net[i].text, &spec, &e), 0);
		assert_int_equal(gen_fabric(&spec, &f, &e), -ENOSPC);
		snprintf(want, sizeof want, "so at most %u for each host", net[i].fits);
		assert_non_null(strstr(e.text, want));
		assert_non_null(strstr(e.text, "are free"));
		spec.parked = net[i].fits;
		assert_int_equal(gen_fabric(&spec, &f, &e), 0);
		assert_true(fabric_top_lid(&f) <= 49151);
		fabric_clear(&f);
	}
}

static void test_vswitches(void **state)
{
	struct fabric f;
	unsigned found = 0;

	(void)state;
	generate("xgft:3,3/3,vfs=1,vswitch", &f);
	for (uint32_t i = 0; i < f.switches; i++)
		f.sw[i].inside = false;
	fabric_find_vswitches(&f);
	for (uint32_t i = 0; i < f.switches; i++)
		found += f.sw[i].inside;
	assert_int_equal(found, 9);
	assert_int_equal(f.switches, 9 + 6);
	fabric_clear(&f);
	generate("xgft:3,3/3", &f);
	fabric_find_vswitches(&f);
	for (uint32_t i = 0; i < f.switches; i++)
		assert_false(f.sw[i].inside);
	fabric_clear(&f);
}

int main(void)
{
	const struct CMUnitTest vswitch_gen[] = {
		cmocka_unit_test(test_paper),       cmocka_unit_test(test_routes),
		cmocka_unit_test(test_check_finds), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_exhaustion),  cmocka_unit_test(test_vswitches),
	};

	return RUN_TESTS(vswitch_gen);
}
