/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The status is asked for with each move: what it costs must not grow with the number of VMs. */
#include "tests/unit/sm-helper/played_plugin.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/homes.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/parked.h"

#include <opensm/osm_node.h>
#include <opensm/osm_switch.h>

static unsigned looked; /* for the place of a home */
static osm_switch_t *sw;

osm_switch_t *osm_get_switch_by_guid(const osm_subn_t *subn, ib_net64_t guid)
{
	(void)subn;
	(void)guid;
	looked++;
	return sw;
}

void plugin_look_for_end(struct plugin *p)
{
	(void)p;
}

unsigned master_others(const struct plugin *p)
{
	(void)p;
	return 0;
}

uint16_t parked_count(struct plugin *p)
{
	(void)p;
	return 0;
}

/* One place, whose VF has port GUID 2 at home. */
struct subnet {
	osm_opensm_t osm;
	struct plugin p;
	struct homes homes;
	struct home_item item;
	osm_node_t node, vf;
	osm_switch_t sw;
};

static struct subnet *subnet_new(void)
{
	struct subnet *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->p.osm = &s->osm;
	s->p.homes = &s->homes;
	cl_plock_init(&s->osm.lock);
	cl_fmap_init(&s->homes.map, homes_compare);
	s->item.home = (struct home){.key = {.switch_guid = 1}, .port_guid = 2};
	cl_fmap_insert(&s->homes.map, &s->item.home.key, &s->item.item);
	s->sw.p_node = &s->node;
	s->node.physp_tbl_size = 1;
	s->node.physp_table[0].port_guid = 1;
	s->node.physp_table[0].p_node = &s->node;
	s->node.physp_table[0].p_remote_physp = &s->vf.physp_table[0];
	s->vf.physp_tbl_size = 1;
	s->vf.physp_table[0].p_node = &s->vf;
	s->vf.physp_table[0].port_guid = cl_hton64(7);
	sw = &s->sw;
	looked = 0;
	return s;
}

int homes_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct home_key));
}

static uint32_t bound(struct subnet *s)
{
	static struct sm_status_reply r;

	plugin_status(&s->p, &r);
	return r.bound;
}

static void test_bound(void **state)
{
	struct subnet *s = subnet_new();

	(void)state;
	assert_int_equal(bound(s), 1);
	assert_int_equal(bound(s), 1);
	assert_int_equal(looked, 1);
	atomic_fetch_add(&s->p.count.generation, 1);
	s->vf.physp_table[0].port_guid = cl_hton64(2);
	assert_int_equal(bound(s), 0);
	assert_int_equal(looked, 2);
	free(s);
}

int main(void)
{
	const struct CMUnitTest sm_view[] = {
		cmocka_unit_test(test_bound),
	};

	return RUN_TESTS(sm_view);
}
