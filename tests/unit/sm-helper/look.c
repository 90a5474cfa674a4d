/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A look at a subnet, and sweeps that run or begin meanwhile. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/distinguisher/look.h"
#include "sm-helper/plugin/paths.h"

#include <opensm/osm_helper.h>

static unsigned reads;       /* of OpenSM's tables */
static bool sweep_meanwhile; /* a batch ends in the first of them, and a sweep begins */

volatile unsigned int osm_exit_flag; /* OpenSM's */

static void begin_sweep(struct plugin *p)
{
	p->sweeping = true;
	atomic_fetch_add(&p->count.heavy_sweeps, 1);
}

bool paths_links_alike(const struct plugin *p, struct link_view *ret_link)
{
	struct plugin *mine = (struct plugin *)p;

	*ret_link = (struct link_view){0};
	if (!reads++ && sweep_meanwhile) {
		atomic_fetch_add(&mine->count.generation, 1);
		begin_sweep(mine);
	}
	return true;
}

struct link_view paths_link(const osm_physp_t *physp)
{
	(void)physp;
	fail();
	return (struct link_view){0};
}

int ib_path_compare_rates(int a, int b)
{
	return a - b;
}

static void make_empty(cl_qmap_t *map)
{
	map->nil.pool_item.list_item.p_next = &map->nil.pool_item.list_item;
	map->state = CL_INITIALIZED;
}

/* An empty one, behind its first sweep. */
static struct plugin *subnet_new(void)
{
	struct plugin *p = calloc(1, sizeof *p);

	assert_non_null(p);
	p->osm = calloc(1, sizeof *p->osm);
	assert_non_null(p->osm);
	pthread_mutex_init(&p->gate, NULL);
	assert_int_equal(cl_plock_init(&p->osm->lock), CL_SUCCESS);
	make_empty(&p->osm->subn.sw_guid_tbl);
	make_empty(&p->osm->subn.port_guid_tbl);
	make_empty(&p->osm->subn.prtn_pkey_tbl);
	p->ready = true;
	reads = 0;
	sweep_meanwhile = false;
	return p;
}

static void subnet_free(struct plugin *p)
{
	cl_plock_destroy(&p->osm->lock);
	pthread_mutex_destroy(&p->gate);
	free(p->osm);
	free(p);
}

static void test_quiet(void **state)
{
	struct plugin *p = subnet_new();
	struct look l;

	(void)state;
	assert_int_equal(look_read(p, &l), 0);
	assert_true(l.whole);
	assert_int_equal(reads, 1);
	look_clear(&l);
	subnet_free(p);
}

/* OpenSM drops switches in a sweep: none of them is looked at then. */
static void test_sweep_runs(void **state)
{
	struct plugin *p = subnet_new();
	struct look l;

	(void)state;
	begin_sweep(p);
	assert_int_equal(look_read(p, &l), -EAGAIN);
	assert_int_equal(reads, 0);
	subnet_free(p);
}

/* The look is tried again for the batch, but not in the sweep that has begun since. */
static void test_sweep_begins(void **state)
{
	struct plugin *p = subnet_new();
	struct look l;

	(void)state;
	sweep_meanwhile = true;
	assert_int_equal(look_read(p, &l), -EAGAIN);
	assert_int_equal(reads, 1);
	subnet_free(p);
}

static void test_first_sweep(void **state)
{
	struct plugin *p = subnet_new();
	struct look l;

	(void)state;
	p->ready = false;
	assert_int_equal(look_read(p, &l), -EAGAIN);
	assert_int_equal(reads, 0);
	subnet_free(p);
}

/* OpenSM ends, and frees its engines without a lock. */
static void test_end(void **state)
{
	struct plugin *p = subnet_new();
	struct look l;

	(void)state;
	osm_exit_flag = 1;
	assert_int_equal(look_read(p, &l), -EAGAIN);
	assert_int_equal(reads, 0);
	osm_exit_flag = 0;
	subnet_free(p);
}

int main(void)
{
	const struct CMUnitTest sm_look[] = {
		cmocka_unit_test(test_quiet),        cmocka_unit_test(test_sweep_runs),
		cmocka_unit_test(test_sweep_begins), cmocka_unit_test(test_first_sweep),
		cmocka_unit_test(test_end),
	};

	return RUN_TESTS(sm_look);
}
