/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which paths differ between two looks at a subnet, counted and named, whatever comes and goes. */
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/plugin/distinguisher/differ.h"

#define SWITCHES 648 /* of 11,664 hosts */
#define HOSTS    18  /* at each of them */

/* Switches 0x100, 0x101, ... with ports 0x1000, 0x1001, ...; every cell has SL 0. */
static struct look make(unsigned switches, unsigned hosts, enum look_unit rows,
			enum look_unit columns)
{
	struct look l = {.switches = switches,
			 .ports = switches * hosts,
			 .rows = rows,
			 .columns = columns,
			 .rules = 1,
			 .whole = true};

	l.sw = calloc(switches, sizeof *l.sw);
	l.port = calloc(l.ports, sizeof *l.port);
	for (unsigned i = 0; i < switches; i++)
		l.sw[i] = 0x100 + i;
	for (unsigned i = 0; i < l.ports; i++)
		l.port[i] = (struct look_port){.guid = 0x1000 + i,
					       .sw = i / hosts,
					       .lid = (uint16_t)(i + 1),
					       .mtu = 5,
					       .rate = 16};
	l.cell = calloc((size_t)look_rows(&l) * look_columns(&l) + 1, sizeof *l.cell);
	return l;
}

static void set(struct look *l, unsigned row, unsigned column, unsigned sl)
{
	l->cell[(size_t)column * look_rows(l) + row] = LOOK_CELL(sl, 0, 0);
}

static void end(struct look *a, struct look *b, struct diff *d)
{
	look_clear(a);
	look_clear(b);
	diff_clear(d);
}

static void test_quiet(void **state)
{
	struct look a = make(6, 1, LOOK_SWITCH, LOOK_SWITCH),
		    b = make(6, 1, LOOK_SWITCH, LOOK_SWITCH);
	struct diff d;

	(void)state;
	look_differ(&a, &b, &d);
	assert_true(diff_quiet(&d));
	assert_int_equal(d.pairs, 30);
	end(&a, &b, &d);
}

static void test_named(void **state)
{
	struct look a = make(6, 2, LOOK_SWITCH, LOOK_SWITCH),
		    b = make(6, 2, LOOK_SWITCH, LOOK_SWITCH);
	struct diff d;

	(void)state;
	set(&b, 2, 4, 3);
	set(&b, 5, 5, 1); /* to itself */
	look_differ(&a, &b, &d);
	assert_false(diff_quiet(&d));
	assert_int_equal(d.changed, 1);
	assert_int_equal(d.listed, 1);
	assert_int_equal(d.list[0].kind, SM_CHANGE_SWITCHES);
	assert_int_equal(d.list[0].from, 0x102);
	assert_int_equal(d.list[0].to, 0x104);
	assert_int_equal(d.list[0].sl_was, 0);
	assert_int_equal(d.list[0].sl, 3);
	end(&a, &b, &d);
}

/* A switch and its ports have gone: the others are still compared with what they were. */
static void test_gone(void **state)
{
	struct look a = make(6, 2, LOOK_SWITCH, LOOK_PORT), b = make(6, 2, LOOK_SWITCH, LOOK_PORT);
	struct diff d;

	(void)state;
	set(&a, 5, 11, 7); /* switch 0x105 and port 0x100b */
	set(&b, 5, 11, 7);
	for (unsigned i = 1; i < 6; i++) /* b loses 0x100 */
		b.sw[i - 1] = b.sw[i];
	for (unsigned i = 2; i < 12; i++) {
		b.port[i - 2] = b.port[i];
		b.port[i - 2].sw--;
	}
	b.switches = 5;
	b.ports = 10;
	memset(b.cell, 0, 50 * sizeof *b.cell);
	set(&b, 4, 9, 7);
	look_differ(&a, &b, &d);
	assert_int_equal(d.changed, 0);
	assert_int_equal(d.gone, 2);
	assert_int_equal(d.back, 0);
	assert_int_equal(d.list[1].to, 0x1001);
	diff_clear(&d);
	look_differ(&b, &a, &d);
	assert_int_equal(d.changed, 0);
	assert_int_equal(d.gone, 0);
	assert_int_equal(d.back, 2);
	end(&a, &b, &d);
}

static void test_port(void **state)
{
	struct look a = make(3, 1, LOOK_NONE, LOOK_NONE), b = make(3, 1, LOOK_NONE, LOOK_NONE);
	struct diff d;

	(void)state;
	b.port[0].lid = 77;
	b.port[1].rate = 2;
	b.port[2].rules = 9;
	look_differ(&a, &b, &d);
	assert_int_equal(d.ports_changed, 3);
	assert_int_equal(d.pairs, 0);
	diff_clear(&d);
	b = (look_clear(&b), make(3, 1, LOOK_NONE, LOOK_NONE));
	b.port[1].sw = 0; /* it hangs elsewhere now */
	look_differ(&a, &b, &d);
	assert_int_equal(d.ports_changed, 1);
	end(&a, &b, &d);
}

/* Nothing to compare with: everything may be another one. */
static void test_all(void **state)
{
	struct look a = make(3, 1, LOOK_SWITCH, LOOK_SWITCH),
		    b = make(3, 1, LOOK_SWITCH, LOOK_SWITCH);
	struct diff d;

	(void)state;
	b.rules = 2;
	look_differ(&a, &b, &d);
	assert_true(d.all);
	diff_clear(&d);
	b.rules = 1;
	b.whole = false;
	look_differ(&a, &b, &d);
	assert_true(d.all);
	look_clear(&b);
	diff_clear(&d);
	b = make(3, 1, LOOK_SWITCH, LOOK_PORT);
	look_differ(&a, &b, &d);
	assert_true(d.all);
	assert_false(diff_quiet(&d));
	end(&a, &b, &d);
}

/* More changes than are listed: all are counted. */
static void test_many(void **state)
{
	struct look a = make(SWITCHES, HOSTS, LOOK_SWITCH, LOOK_SWITCH),
		    b = make(SWITCHES, HOSTS, LOOK_SWITCH, LOOK_SWITCH);
	struct diff d;
	uint64_t us;

	(void)state;
	assert_true(look_bytes(&a) < 2 << 20);
	for (unsigned r = 0; r < SWITCHES; r++)
		for (unsigned c = 0; c < SWITCHES; c++)
			set(&b, r, c, 1);
	us = now_us();
	look_differ(&a, &b, &d);
	us = now_us() - us;
	assert_int_equal(d.pairs, (uint64_t)SWITCHES * (SWITCHES - 1));
	assert_int_equal(d.changed, d.pairs);
	assert_int_equal(d.listed, DIFF_LIST_MAX);
	assert_true(us < 2000000); /* milliseconds, on a machine with nothing else to do */
	end(&a, &b, &d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quiet), cmocka_unit_test(test_named),
		cmocka_unit_test(test_gone),  cmocka_unit_test(test_port),
		cmocka_unit_test(test_all),   cmocka_unit_test(test_many),
	};

	return RUN_TESTS(tests);
}
