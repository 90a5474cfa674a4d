/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Plans of moves on generated fabrics: minimal, harmless to others at every step, undone exactly.
 * MOVES in the environment: how many random moves on each net (default 1000). */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "tests/unit/vswitch/nets.h"
#include "vswitch/moves/check.h"
#include "vswitch/moves/deps.h"
#include "vswitch/moves/walk.h"

static const struct {
	const char *text;
	const struct route_engine *engine;
} nets[] = {
	{"xgft:4,6/3,vfs=2,vswitch", &route_updn},
	{"xgft:3,3,4/2,3,vfs=2", &route_ftree},
	{"mesh:3x2,hosts=2,vfs=3,vswitch", &route_dor},
	{"mesh:8x8,vfs=1", &route_minhop},
	{"irregular:20,2,1,hosts=2,vfs=2", &route_updn},
	{"irregular:30,3,2,vfs=2,vswitch", &route_minhop},
	{"xgft:3,4,3/2,2,vfs=2,lmc=2,vflmc=2,vswitch", &route_updn},
	{"irregular:20,3,5,hosts=2,vfs=2,lmc=1,vflmc=3", &route_minhop},
};

static unsigned moves_wanted(void)
{
	const char *n = getenv("MOVES");

	return n ? (unsigned)atoi(n) : 1000;
}

static uint8_t *tables(const struct fabric *f, size_t *ret_bytes)
{
	size_t row = (fabric_top_lid(f) / 64 + 1) * 64;
	uint8_t *all = malloc(f->switches * row);

	for (uint32_t s = 0; s < f->switches; s++)
		for (size_t b = 0; b < row / 64; b++)
			memcpy(all + s * row + b * 64, fabric_lft_block(f, s, (unsigned)b), 64);
	*ret_bytes = f->switches * row;
	return all;
}

static bool moving(const struct moves_plan *p, unsigned lid)
{
	for (unsigned i = 0; i < p->moves; i++)
		if (p->move[i].lid == lid)
			return true;
	return false;
}

/* A VF without a vSwitch is behind the link of its PF. */
static bool is_link_of(const struct fabric *f, uint32_t at, uint32_t end)
{
	return end != FABRIC_NONE && (at == end || at == f->end[end].pf);
}

/* No packet to a LID in use loops, or arrives where that neither was nor will be. */
static void watch(struct fabric *f, const struct moves_plan *p)
{
	for (unsigned m = 0; m < p->moves; m++)
		for (uint32_t sw = 0; !p->move[m].unused && sw < f->switches; sw++) {
			struct walk w = walk_lid(f, sw, p->move[m].lid, NULL, NULL);

			assert_int_not_equal(w.verdict, WALK_LOOP);
			if (w.verdict == WALK_ARRIVED && p->move[m].new_end != FABRIC_NONE)
				assert_true(is_link_of(f, w.end, p->move[m].new_end) ||
					    is_link_of(f, w.end, p->move[m].old_end));
		}
}

/* SMPs of a wave in any order. */
static void shuffle(struct moves_plan *p)
{
	for (unsigned i = 0, n; i < p->smps; i += n) {
		for (n = 1; i + n < p->smps && p->smp[i + n].wave == p->smp[i].wave; n++)
			;
		for (unsigned k = n; k > 1; k--) {
			struct moves_smp *a = &p->smp[i + k - 1],
					 *b = &p->smp[i + (unsigned)rand() % k], s = *a;

			*a = *b;
			*b = s;
		}
	}
}

/* After each SMP: no entry of another LID differs from what it was; with waves, senders may go on.
 * The end is what was planned. */
static void send_and_watch(struct fabric *f, struct moves_plan *p, bool waves)
{
	if (waves)
		shuffle(p);
	for (unsigned i = 0; i < p->smps; i++) {
		const struct moves_smp *s = &p->smp[i];
		const uint8_t *now = fabric_lft_block(f, s->sw, s->block);
		uint8_t none[64];

		memset(none, VSWITCH_NO_PATH, sizeof none); /* beyond the end of the table */
		now = now ? now : none;
		assert_memory_equal(now, s->before, 64);
		for (unsigned k = 0; k < 64; k++)
			if (!moving(p, s->block * 64u + k))
				assert_int_equal(s->after[k], now[k]);
		assert_true(!i || s->wave >= s[-1].wave);
		assert_int_equal(moves_send(f, s), 0);
		if (waves)
			watch(f, p);
	}
}

static uint32_t random_vf(const struct fabric *f)
{
	uint32_t end;

	do {
		end = (uint32_t)rand() % f->ends;
	} while (!strstr(f->end[end].desc, "-vf"));
	return end;
}

/* Swaps, now for the balance, now with the fewest SMPs, ordered or not; every third is undone. All
 * pairs of the net are walked after each. */
static void random_swaps(unsigned net)
{
	struct moves_plan p = {0};
	struct fabric_error e = {""};
	struct check_result c;
	struct fabric f;
	size_t bytes;

	make(nets[net].text, nets[net].engine, &f);
	for (unsigned i = 0; i < moves_wanted(); i++) {
		uint32_t vm = random_vf(&f), to = random_vf(&f);
		uint16_t lid = f.end[vm].lid;
		bool waves = rand() % 2;
		struct move m[2];

		if (vm == to)
			continue;
		assert_int_equal(moves_swap(&f, vm, to, m, &e), 0);
		assert_int_equal(moves_plan(&f, m, 2, i % 2, &p, &e), 0);
		if (waves) {
			assert_int_equal(moves_order(&f, &p), 0);
			assert_int_equal(p.split, 0);
		}
		uint8_t *before AUTO_FREE = tables(&f, &bytes);
		send_and_watch(&f, &p, waves);
		assert_int_equal(apply_plan(&f, &p), 0);
		assert_int_equal(f.end[to].lid, lid);
		if (check_fabric(&f, 1, &c, &e))
			fail_msg("%s, move %u: %s", nets[net].text, i, e.text);
		if (i % 3)
			continue;
		moves_undo(&p);
		send_and_watch(&f, &p, false);
		assert_int_equal(apply_plan(&f, &p), 0);
		assert_int_equal(f.end[vm].lid, lid);
		uint8_t *after AUTO_FREE = tables(&f, &bytes);
		assert_memory_equal(before, after, bytes);
	}
	moves_free(&p);
	fabric_clear(&f);
}

static void test_random_swaps(void **state)
{
	(void)state;
	srand(5);
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++)
		random_swaps(i);
}

/* How far the moved LIDs are from every switch, all together, once the plan is done. */
static unsigned long hops_after(struct fabric *f, struct moves_plan *p)
{
	unsigned long hops = 0;

	assert_int_equal(apply_plan(f, p), 0);
	for (unsigned i = 0; i < p->moves; i++)
		for (uint32_t sw = 0; sw < f->switches; sw++) {
			struct walk w = walk_lid(f, sw, p->move[i].lid, NULL, NULL);

			assert_int_equal(w.verdict, WALK_ARRIVED);
			hops += w.hops;
		}
	moves_undo(p);
	assert_int_equal(apply_plan(f, p), 0);
	return hops;
}

/* A plan that keeps parts of the old routes makes none longer, and saves SMPs. */
static void test_fewest(void **state)
{
	struct moves_plan all = {0}, few = {0};
	unsigned saved = 0;

	(void)state;
	srand(8);
	for (unsigned i = 0; i < ARRAY_SIZE(nets); i++) {
		struct fabric_error e;
		struct move m[2];
		struct fabric f;

		make(nets[i].text, nets[i].engine, &f);
		for (unsigned k = 0; k < 100; k++) {
			uint32_t vm = random_vf(&f), to = random_vf(&f);

			if (vm == to)
				continue;
			moves_swap(&f, vm, to, m, &e);
			assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &all, &e), 0);
			assert_int_equal(moves_plan(&f, m, 2, MOVES_FEWEST, &few, &e), 0);
			assert_true(few.smps <= all.smps);
			saved += all.smps - few.smps;
			assert_true(hops_after(&f, &few) <= hops_after(&f, &all));
		}
		fabric_clear(&f);
	}
	assert_true(saved > 100);
	moves_free(&all);
	moves_free(&few);
}

/* A batch is what its moves are one after the other, with one SMP for each block. */
static void test_batches(void **state)
{
	struct moves_plan one = {0}, all = {0};
	struct fabric_error e = {""};
	struct check_result c;
	struct fabric a, b;

	(void)state;
	srand(6);
	make("xgft:3,4,3/2,2,vfs=4,vswitch", &route_minhop, &a);
	make("xgft:3,4,3/2,2,vfs=4,vswitch", &route_minhop, &b);
	for (unsigned round = 0; round < 20; round++) {
		unsigned k = 1 + (unsigned)rand() % 12, n = 0, single = 0;
		bool *used AUTO_FREE = calloc(a.ends, 1);
		struct move m[24];

		while (n < 2 * k) {
			uint32_t vm = random_vf(&a), to = random_vf(&a);

			if (vm == to || used[vm] || used[to])
				continue;
			used[vm] = used[to] = true;
			assert_int_equal(moves_swap(&a, vm, to, m + n, &e), 0);
			assert_int_equal(moves_plan(&a, m + n, 2, MOVES_ALL, &one, &e), 0);
			assert_int_equal(apply_plan(&a, &one), 0);
			single += one.smps;
			n += 2;
		}
		assert_int_equal(moves_plan(&b, m, n, MOVES_ALL, &all, &e), 0);
		assert_true(all.smps <= single);
		for (unsigned i = 0; i < all.smps; i++) /* none twice, none for nothing */
			for (unsigned x = 0; x <= i; x++)
				if (x == i)
					assert_memory_not_equal(all.smp[i].before, all.smp[i].after,
								64);
				else
					assert_true(all.smp[x].sw != all.smp[i].sw ||
						    all.smp[x].block != all.smp[i].block);
		assert_int_equal(moves_order(&b, &all), 0);
		send_and_watch(&b, &all, true);
		assert_int_equal(apply_plan(&b, &all), 0);
		size_t bytes;
		uint8_t *ta AUTO_FREE = tables(&a, &bytes), *tb AUTO_FREE = tables(&b, &bytes);
		assert_memory_equal(ta, tb, bytes);
		assert_int_equal(check_fabric(&b, 1, &c, &e), 0);
	}
	moves_free(&one);
	moves_free(&all);
	fabric_clear(&a);
	fabric_clear(&b);
}

/* 5,832 hosts: both LIDs after each move from everywhere, and a sample of the others. */
static void test_large(void **state)
{
	struct moves_plan p = {0};
	struct fabric_error e = {""};
	struct check_result c;
	struct move m[2];
	struct fabric f;

	(void)state;
	srand(9);
	make("5832", &route_ftree, &f);
	for (unsigned i = 0; i < 200; i++) {
		uint32_t vm = (uint32_t)rand() % f.ends,
			 to = (vm + 1 + (uint32_t)rand() % 5831) % f.ends;

		assert_int_equal(moves_swap(&f, vm, to, m, &e), 0);
		assert_int_equal(moves_plan(&f, m, 2, i % 2, &p, &e), 0);
		assert_true(p.smps <= 2 * f.switches);
		assert_int_equal(apply_plan(&f, &p), 0);
		if (check_lid(&f, f.end[to].lid, to, &c, &e) ||
		    check_lid(&f, f.end[vm].lid, vm, &c, &e) ||
		    (i % 20 == 0 && check_fabric(&f, 97, &c, &e)))
			fail_msg("move %u: %s", i, e.text);
	}
	moves_free(&p);
	fabric_clear(&f);
}

/* The paper's cases on its 324 hosts: the same leaf costs one SMP where old entries still lead
 * there; another leaf at most two for each switch. */
static void test_counts(void **state)
{
	struct moves_plan p = {0};
	struct fabric_error e;
	struct move m[2];
	struct fabric f;

	(void)state;
	make("324", &route_ftree, &f);
	moves_swap(&f, 0, 1, m, &e);
	assert_int_equal(moves_plan(&f, m, 2, MOVES_FEWEST, &p, &e), 0);
	assert_int_equal(p.smps, 1);
	assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &p, &e), 0);
	assert_int_equal(p.smps, 18); /* the leaves; a spine has one link to the leaf of both */
	moves_swap(&f, 0, 100, m, &e);
	assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &p, &e), 0);
	assert_int_equal(p.switches, 36);
	assert_int_equal(p.smps, 72); /* LIDs 37 and 137 are in two blocks */
	moves_free(&p);
	fabric_clear(&f);
}

/* Dynamic LIDs: VFs without one of their own; the VM's takes the PF's entries. */
static void copy_on(const char *text, const struct route_engine *engine)
{
	struct moves_plan p = {0};
	struct fabric_error e = {""};
	struct check_result c;
	struct fabric f;
	uint32_t at, other;
	uint16_t lid;

	make(text, engine, &f);
	at = random_vf(&f);
	lid = (uint16_t)(fabric_top_lid(&f) + 70); /* beyond the tables: they grow */
	for (unsigned i = 0; i < 50; i++) {
		struct move m;

		do {
			other = random_vf(&f);
		} while (other == at);
		if (i == 0) {
			assert_int_equal(
				moves_to_port(&f, lid, f.end[at].sw, f.end[at].sw_port, &m, &e), 0);
			m.new_end = other = at;
		} else
			assert_int_equal(moves_copy(&f, at, other, &m, &e), 0);
		assert_int_equal(moves_plan(&f, &m, 1, i % 2, &p, &e), 0);
		assert_int_equal(p.grown, i ? 0 : f.switches);
		assert_true(p.smps <= f.switches); /* a switch gets one, never two */
		assert_int_equal(moves_order(&f, &p), 0);
		send_and_watch(&f, &p, true);
		assert_int_equal(apply_plan(&f, &p), 0);
		at = other;
		assert_int_equal(f.end[at].lid, lid);
		if (check_fabric(&f, 1, &c, &e))
			fail_msg("%s, copy %u: %s", text, i, e.text);
	}
	struct move gone = {lid, 0, FABRIC_NONE, 0, true, FABRIC_NONE, FABRIC_NONE, 0, 0};
	assert_int_equal(moves_plan(&f, &gone, 1, MOVES_ALL, &p, &e), 0);
	assert_int_equal(p.smps, f.switches);
	assert_int_equal(apply_plan(&f, &p), 0);
	assert_int_equal(fabric_lft_entry(&f, 0, lid), VSWITCH_NO_PATH);
	assert_int_equal(f.end[at].lid, 0);
	moves_free(&p);
	fabric_clear(&f);
}

/* Computes without a plan what the ports show after a batch: VM i is at to[i], and each LID that is
 * left goes where the chain begins. */
static void expect_lids(const struct fabric *f, const uint32_t *vm, const uint32_t *to, unsigned k,
			uint16_t *ret_lid)
{
	for (uint32_t i = 0; i < f->ends; i++)
		ret_lid[i] = f->end[i].lid;
	for (unsigned i = 0; i < k; i++)
		ret_lid[to[i]] = f->end[vm[i]].lid;
	for (unsigned i = 0; i < k; i++) {
		uint32_t left = vm[i], end = to[i];
		bool first = true;

		for (unsigned n = 0; n < k; n++)
			first = first && to[n] != left;
		for (unsigned n = 0; first && n < k; n++)
			if (vm[n] == end) {
				end = to[n];
				n = UINT32_MAX; /* begins again at 0 */
			}
		if (first)
			ret_lid[left] = f->end[end].lid;
	}
}

/* k VMs to places of which some are left in the same batch: chains, and exchanges in a circle. */
static void draw_chains(const struct fabric *f, unsigned k, uint32_t *vm, uint32_t *to)
{
	bool *is_vm AUTO_FREE = calloc(f->ends, 1), *is_to AUTO_FREE = calloc(f->ends, 1);

	for (unsigned i = 0; i < k; i++) {
		do {
			vm[i] = random_vf(f);
		} while (is_vm[vm[i]]);
		is_vm[vm[i]] = true;
	}
	for (unsigned i = 0; i < k; i++) {
		do {
			to[i] = rand() % 2 ? vm[(unsigned)rand() % k] : random_vf(f);
		} while (is_to[to[i]] || to[i] == vm[i]);
		is_to[to[i]] = true;
	}
}

/* A batch with chains writes each block of each switch once. Afterwards all pairs walk, and the
 * undo makes all as before. Returns how many blocks were sent in parts. */
static unsigned chain(struct fabric *f, unsigned k)
{
	unsigned splits = 0;

	uint16_t *lid AUTO_FREE = calloc(f->ends, sizeof *lid);
	struct moves_plan p = {0};
	struct fabric_error e = {""};
	struct check_result c;
	uint32_t vm[16], to[16];
	struct move m[32];
	size_t bytes;
	unsigned n;

	draw_chains(f, k, vm, to);
	expect_lids(f, vm, to, k, lid);
	assert_int_equal(moves_swaps(f, vm, to, k, m, &n, &e), 0);
	assert_true(n <= 2 * k);
	assert_int_equal(moves_plan(f, m, n, MOVES_ALL, &p, &e), 0);
	for (unsigned i = 0; i < p.smps; i++)
		for (unsigned x = 0; x < i; x++)
			assert_true(p.smp[x].sw != p.smp[i].sw || p.smp[x].block != p.smp[i].block);
	assert_int_equal(moves_order(f, &p), 0);
	uint8_t *before AUTO_FREE = tables(f, &bytes);
	send_and_watch(f, &p, true);
	splits += p.split;
	assert_int_equal(apply_plan(f, &p), 0);
	for (uint32_t i = 0; i < f->ends; i++)
		assert_int_equal(f->end[i].lid, lid[i]);
	if (check_fabric(f, 1, &c, &e))
		fail_msg("%u in a batch: %s", k, e.text);
	if (rand() % 2) {
		moves_undo(&p);
		send_and_watch(f, &p, true);
		uint8_t *after AUTO_FREE = tables(f, &bytes);
		assert_memory_equal(before, after, bytes);
		assert_int_equal(apply_plan(f, &p), 0);
	}
	moves_free(&p);
	return splits;
}

static void test_chains(void **state)
{
	static const unsigned some[] = {0, 3, 6, 7};
	unsigned splits = 0;

	(void)state;
	srand(11);
	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		struct fabric f;

		make(nets[some[i]].text, nets[some[i]].engine, &f);
		for (unsigned round = 0; round < 60; round++)
			splits += chain(&f, 2 + (unsigned)rand() % 7);
		fabric_clear(&f);
	}
	assert_true(splits > 0); /* some ask for different orders */
}

/* True if a packet to the VM loops at some time while the SMPs are sent in any order. */
static bool loops(struct fabric *f, struct moves_plan *p)
{
	bool any = false;

	shuffle(p);
	for (unsigned i = 0; i < p->smps; i++) {
		assert_int_equal(moves_send(f, &p->smp[i]), 0);
		for (uint32_t sw = 0; sw < f->switches; sw++)
			any |= walk_lid(f, sw, p->move[0].lid, NULL, NULL).verdict == WALK_LOOP;
	}
	return any;
}

/* Swaps without and with waves, each on the tables as they were. */
static void test_order(void **state)
{
	static const unsigned some[] = {0, 3, 6, 7};
	unsigned swaps = 0, without = 0, with = 0;

	(void)state;
	srand(12);
	for (unsigned i = 0; i < ARRAY_SIZE(some); i++) {
		struct moves_plan p = {0};
		struct fabric_error e;
		struct fabric f;

		make(nets[some[i]].text, nets[some[i]].engine, &f);
		for (unsigned n = 0; n < 50; n++) {
			uint32_t vm = random_vf(&f), to = random_vf(&f);
			struct move m[2];

			if (vm == to)
				continue;
			assert_int_equal(moves_swap(&f, vm, to, m, &e), 0);
			assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &p, &e), 0);
			without += loops(&f, &p);
			moves_undo(&p);
			loops(&f, &p);
			moves_undo(&p);
			assert_int_equal(moves_order(&f, &p), 0);
			with += loops(&f, &p);
			assert_int_equal(apply_plan(&f, &p), 0);
			swaps++;
		}
		moves_free(&p);
		fabric_clear(&f);
	}
	print_message("# of %u swaps %u loop without an order, %u with waves\n", swaps, without,
		      with);
	assert_true(without > 0);
	assert_int_equal(with, 0);
}

static void test_bad_chains(void **state)
{
	uint32_t vm[] = {1, 2}, same[] = {3, 3}, there[] = {2, 2};
	struct fabric_error e;
	struct move m[4];
	struct fabric f;
	unsigned n;

	(void)state;
	make("xgft:3,3/2,vfs=1,vflmc=1", &route_minhop, &f);
	assert_int_equal(moves_swaps(&f, vm, same, 2, m, &n, &e), -EINVAL);
	assert_string_equal(e.text, "hv1-vf1 is twice in the batch");
	assert_int_equal(moves_swaps(&f, vm, there, 2, m, &n, &e), -EINVAL);
	assert_string_equal(e.text, "hv0-vf1 has LMC 1 and hv1-pf has 0: they cannot exchange "
				    "their LIDs");
	fabric_clear(&f);
}

static void test_copies(void **state)
{
	(void)state;
	srand(7);
	copy_on("xgft:4,6/3,vfs=2,parked=0,vswitch", &route_updn);
	copy_on("xgft:3,3,3/2,3,vfs=2,parked=0", &route_ftree);
	copy_on("mesh:4x4,vfs=2,parked=0", &route_dor);
	copy_on("irregular:20,2,9,vfs=2,parked=0,lmc=2,vswitch", &route_updn);
}

static void test_bad_batches(void **state)
{
	struct moves_plan p = {0};
	struct fabric_error e;
	struct fabric f;

	(void)state;
	make("xgft:3,3/2", &route_minhop, &f);
	struct move twice[] = {{6, 7, FABRIC_NONE, 0, false, FABRIC_NONE, FABRIC_NONE, 0, 0},
			       {6, 8, FABRIC_NONE, 0, false, FABRIC_NONE, FABRIC_NONE, 0, 0}};
	struct move multicast = {0xc000, 7, FABRIC_NONE, 0, false, FABRIC_NONE, FABRIC_NONE, 0, 0};
	struct move port = {6, 7, 0, 99, false, FABRIC_NONE, FABRIC_NONE, 0, 0};
	struct move m[2];

	assert_int_equal(moves_plan(&f, twice, 2, MOVES_ALL, &p, &e), -EINVAL);
	assert_string_equal(e.text, "LID 6 is twice in the batch");
	assert_int_equal(moves_plan(&f, &multicast, 1, MOVES_ALL, &p, &e), -EINVAL);
	assert_int_equal(moves_plan(&f, &port, 1, MOVES_ALL, &p, &e), -EINVAL);
	assert_int_equal(moves_plan(&f, twice, MOVES_MAX + 1, MOVES_ALL, &p, &e), -EINVAL);
	assert_int_equal(moves_swap(&f, 0, 99, m, &e), -EINVAL);
	assert_int_equal(moves_swap(&f, 0, 0, m, &e), -EINVAL);
	fabric_forget_lfts(&f);
	assert_int_equal(moves_plan(&f, twice, 1, MOVES_ALL, &p, &e), -ENODATA);
	assert_non_null(strstr(e.text, "switch s1-0"));
	moves_free(&p);
	fabric_clear(&f);
}

/* Routes that can wait in a circle, and a plan that makes them. */
static void test_cycles(void **state)
{
	static const struct {
		const char *text;
		const struct route_engine *engine;
		int cycle;
	} net[] = {{"xgft:3,3,3/2,3", &route_minhop, 0},  {"torus:5", &route_minhop, 1},
		   {"torus:5", &route_updn, 0},           {"torus:5x5", &route_updn, 0},
		   {"mesh:4x4", &route_dor, 0},           {"irregular:30,3,2", &route_updn, 0},
		   {"irregular:30,3,2", &route_minhop, 1}};
	char text[200];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(net); i++) {
		struct fabric f;
		struct deps d;

		make(net[i].text, net[i].engine, &f);
		assert_int_equal(deps_init(&d, &f), 0);
		deps_add_fabric(&d, &f);
		assert_int_equal(deps_find_cycle(&d, &f, text, sizeof text), net[i].cycle);
		deps_free(&d);
		fabric_clear(&f);
	}
}

/* Returns whether the tables have a cycle once the plan is done; they are put back. */
static int cycle_after(struct fabric *f, struct moves_plan *p)
{
	char text[200];
	struct deps d;
	int cycle;

	assert_int_equal(apply_plan(f, p), 0);
	assert_int_equal(deps_init(&d, f), 0);
	deps_add_fabric(&d, f);
	cycle = deps_find_cycle(&d, f, text, sizeof text);
	deps_free(&d);
	moves_undo(p);
	assert_int_equal(apply_plan(f, p), 0);
	return cycle;
}

/* The plugin exchanges all entries, and this is why. up*-down* routes on a net that is no tree stay
 * free of cycles, where entries that are kept because no way gets longer close some. */
static void test_deadlocks(void **state)
{
	struct moves_plan p = {0};
	struct fabric_error e;
	unsigned fewest = 0;
	struct fabric f;

	(void)state;
	make("irregular:30,3,2", &route_updn, &f);
	for (uint32_t vm = 0; vm < f.ends; vm += 2)
		for (uint32_t to = 1; to < f.ends; to += 2) {
			struct move m[2];

			assert_int_equal(moves_swap(&f, vm, to, m, &e), 0);
			assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &p, &e), 0);
			assert_int_equal(cycle_after(&f, &p), 0);
			assert_int_equal(moves_plan(&f, m, 2, MOVES_FEWEST, &p, &e), 0);
			fewest += cycle_after(&f, &p) == 1;
		}
	assert_true(fewest > 0);
	print_message("# %u of %u plans with kept entries close a cycle\n", fewest,
		      f.ends / 2 * (f.ends / 2));
	moves_free(&p);
	fabric_clear(&f);
}

/* A ring of five with up*-down* routes: sending one LID round the other way closes the circle. */
static void test_plan_cycle(void **state)
{
	struct moves_plan p = {0};
	struct fabric_error e;
	struct move m[2];
	struct fabric f;
	struct deps d;
	char text[200] = "";

	(void)state;
	make("torus:5", &route_updn, &f);
	assert_int_equal(deps_init(&d, &f), 0);
	deps_add_fabric(&d, &f);
	moves_swap(&f, 0, 2, m, &e);
	assert_int_equal(moves_plan(&f, m, 2, MOVES_ALL, &p, &e), 0);
	assert_int_equal(deps_plan_cycle(&d, &f, &p, text, sizeof text), 0);
	/* This is a move by hand, all the way round: to host 1 from 2 over 3, 4 and 0. */
	p.smps = p.moves = 0;
	m[0] = (struct move){f.end[1].lid, f.end[1].lid, FABRIC_NONE, 0, false, 1, 1, 0, 0};
	assert_int_equal(moves_plan(&f, m, 1, MOVES_ALL, &p, &e), 0);
	assert_int_equal(p.smps, 0);
	struct moves_smp smp[5];
	for (unsigned i = 0; i < 5; i++) {
		smp[i] = (struct moves_smp){.sw = i};
		memcpy(smp[i].before, fabric_lft_block(&f, i, 0), 64);
		memcpy(smp[i].after, smp[i].before, 64);
		if (i != 1)
			smp[i].after[f.end[1].lid] = 1; /* up the ring */
	}
	struct moves_plan round = {.move = m, .moves = 1, .smp = smp, .smps = 5, .waves = 1};
	size_t bytes;
	uint8_t *before AUTO_FREE = tables(&f, &bytes);
	assert_int_equal(deps_plan_cycle(&d, &f, &round, text, sizeof text), 1);
	assert_non_null(strstr(text, "s3[1] "));
	uint8_t *after AUTO_FREE = tables(&f, &bytes);
	assert_memory_equal(before, after, bytes);
	moves_free(&p);
	deps_free(&d);
	fabric_clear(&f);
}

int main(void)
{
	const struct CMUnitTest vswitch_moves[] = {
		cmocka_unit_test(test_random_swaps), cmocka_unit_test(test_batches),
		cmocka_unit_test(test_fewest),       cmocka_unit_test(test_counts),
		cmocka_unit_test(test_large),        cmocka_unit_test(test_copies),
		cmocka_unit_test(test_chains),       cmocka_unit_test(test_bad_chains),
		cmocka_unit_test(test_bad_batches),  cmocka_unit_test(test_cycles),
		cmocka_unit_test(test_plan_cycle),   cmocka_unit_test(test_order),
		cmocka_unit_test(test_deadlocks),
	};

	return RUN_TESTS(vswitch_moves);
}
