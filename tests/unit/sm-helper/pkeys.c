/* SPDX-License-Identifier: GPL-2.0-or-later */
/* P_Key tables of ports, planned for what the policy says. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/partitions/pkeys.h"
#include "sm-helper/plugin/smps.h"

#include <opensm/osm_node.h>
#include <opensm/osm_pkey.h>
#include <opensm/osm_switch.h>

int plugin_refuse(struct sm_reply_head *h, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->reason, sizeof h->reason, fmt, ap);
	va_end(ap);
	return rc;
}

void plugin_want_sweep(struct plugin *p)
{
	p->sweep_asked = true;
}

/* What the port holds; it may be silent, and may refuse to be written. */
static ib_pkey_table_t held;
static bool silent, refuses;
static unsigned sets, recorded;

int smps_send(struct plugin *p, struct smp *smp, unsigned count, uint64_t deadline_us)
{
	(void)p;
	(void)deadline_us;
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(smp[i].block, 0);
		sets += smp[i].set;
		smp[i].taken = !silent && !(smp[i].set && refuses);
		if (smp[i].taken && smp[i].set)
			held = smp[i].data.pkeys;
		else if (smp[i].taken)
			smp[i].data.pkeys = held;
	}
	return silent || (count && smp[0].set && refuses) ? -EIO : 0;
}

ib_api_status_t osm_pkey_tbl_set(osm_pkey_tbl_t *tbl, uint16_t block, ib_pkey_table_t *to,
				 boolean_t both)
{
	(void)tbl;
	(void)block;
	(void)to;
	(void)both;
	recorded++;
	return IB_SUCCESS;
}

cl_status_t osm_pkey_tbl_set_accum_pkeys(osm_pkey_tbl_t *tbl, uint16_t pkey, uint16_t index)
{
	(void)tbl;
	(void)pkey;
	(void)index;
	return CL_SUCCESS;
}

void cl_map_remove_all(cl_map_t *map)
{
	(void)map;
}

/* A switch that enforces no partitions itself; its port 0 has a table of one block. */
struct subnet {
	osm_opensm_t osm;
	struct plugin p;
	osm_node_t node;
	osm_switch_t sw;
	struct pkeys c;
};

static struct subnet *subnet_new(void)
{
	struct subnet *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->p.osm = &s->osm;
	s->c.p = &s->p;
	s->sw.p_node = &s->node;
	s->node.sw = &s->sw;
	s->node.node_info.partition_cap = cl_hton16(IB_NUM_PKEY_ELEMENTS_IN_BLOCK);
	s->node.print_desc = (char *)"switch";
	s->node.physp_tbl_size = 1;
	s->node.physp_table[0].p_node = &s->node;
	held = (ib_pkey_table_t){.pkey_entry = {cl_hton16(0xffff), cl_hton16(0x8002)}};
	silent = refuses = false;
	sets = recorded = 0;
	return s;
}

/* A port 0 is a member by its own table, which is no concern of what the other ports enforce. */
static void test_port0(void **state)
{
	const struct policy_pkeys keys = {.pkey = {0xffff, 0x8001}, .count = 2};
	struct subnet *s = subnet_new();
	osm_physp_t *port0 = &s->node.physp_table[0];
	struct sm_reply_head h = {0};

	(void)state;
	assert_int_equal(pkeys_add(&s->c, port0, &keys, port0, &h), 0);
	assert_int_equal(s->c.port[0].own.blocks, 1);
	assert_int_equal(s->c.port[0].own.after[0].pkey_entry[0], cl_hton16(0xffff));
	assert_int_equal(s->c.port[0].own.after[0].pkey_entry[1], cl_hton16(0x8001));
	assert_null(s->c.port[0].peer.physp);
	pkeys_free(&s->c);
	free(s);
}

static const struct policy_pkeys other = {.pkey = {0xffff, 0x8001}, .count = 2};

static struct subnet *subnet_of_other(void)
{
	struct subnet *s = subnet_new();
	osm_physp_t *port0 = &s->node.physp_table[0];
	struct sm_reply_head h = {0};

	assert_int_equal(pkeys_add(&s->c, port0, &other, port0, &h), 0);
	assert_true(s->c.differ);
	pkeys_apply(&s->c, false);
	assert_int_equal(recorded, 1);
	return s;
}

static int send_pkeys(struct subnet *s, bool back)
{
	struct sm_reply_head h = {0};

	return pkeys_send(&s->c, back, UINT32_MAX, 0, &h);
}

static void subnet_free(struct subnet *s)
{
	pkeys_free(&s->c);
	free(s);
}

/* OpenSM has never heard of the block: what the port holds is read, and comes back by undo. */
static void test_unknown_comes_back(void **state)
{
	const ib_pkey_table_t was = {.pkey_entry = {cl_hton16(0xffff), cl_hton16(0x8002)}};
	struct subnet *s = subnet_of_other();

	(void)state;
	assert_int_equal(send_pkeys(s, false), 0);
	assert_int_equal(held.pkey_entry[1], cl_hton16(0x8001));
	pkeys_apply(&s->c, true);
	assert_int_equal(send_pkeys(s, true), 0);
	assert_memory_equal(&held, &was, sizeof was);
	subnet_free(s);
}

/* A port that does not tell its P_Keys is not written, neither there nor back. */
static void test_unknown_and_silent(void **state)
{
	struct subnet *s = subnet_of_other();

	(void)state;
	silent = true;
	assert_int_equal(send_pkeys(s, false), -EIO);
	silent = false;
	pkeys_apply(&s->c, true);
	assert_int_equal(send_pkeys(s, true), 0);
	assert_int_equal(sets, 0);
	assert_int_equal(held.pkey_entry[0], cl_hton16(0xffff));
	subnet_free(s);
}

/* Undo comes before anything was asked: the sweep reads the port, and nothing is made up. */
static void test_unknown_not_sent(void **state)
{
	struct subnet *s = subnet_of_other();

	(void)state;
	pkeys_apply(&s->c, true);
	assert_int_equal(recorded, 1);
	assert_int_not_equal(s->node.physp_table[0].need_update, 0);
	assert_true(s->p.sweep_asked);
	assert_int_equal(send_pkeys(s, true), 0);
	assert_int_equal(sets, 0);
	subnet_free(s);
}

/* What the port holds already is not written. */
static void test_unknown_but_right(void **state)
{
	struct subnet *s = subnet_of_other();

	(void)state;
	held.pkey_entry[1] = cl_hton16(0x8001);
	assert_int_equal(send_pkeys(s, false), 0);
	assert_int_equal(sets, 0);
	subnet_free(s);
}

int main(void)
{
	const struct CMUnitTest sm_pkeys[] = {
		cmocka_unit_test(test_port0),
		cmocka_unit_test(test_unknown_comes_back),
		cmocka_unit_test(test_unknown_and_silent),
		cmocka_unit_test(test_unknown_not_sent),
		cmocka_unit_test(test_unknown_but_right),
	};

	return RUN_TESTS(sm_pkeys);
}
