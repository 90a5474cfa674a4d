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

int smps_send(struct plugin *p, struct smp *smp, unsigned count, uint64_t deadline_us)
{
	(void)p;
	(void)smp;
	(void)count;
	(void)deadline_us;
	fail();
	return -1;
}

ib_api_status_t osm_pkey_tbl_set(osm_pkey_tbl_t *tbl, uint16_t block, ib_pkey_table_t *to,
				 boolean_t both)
{
	(void)tbl;
	(void)block;
	(void)to;
	(void)both;
	fail();
	return IB_ERROR;
}

cl_status_t osm_pkey_tbl_set_accum_pkeys(osm_pkey_tbl_t *tbl, uint16_t pkey, uint16_t index)
{
	(void)tbl;
	(void)pkey;
	(void)index;
	fail();
	return CL_ERROR;
}

void cl_map_remove_all(cl_map_t *map)
{
	(void)map;
	fail();
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

int main(void)
{
	const struct CMUnitTest sm_pkeys[] = {
		cmocka_unit_test(test_port0),
	};

	return RUN_TESTS(sm_pkeys);
}
