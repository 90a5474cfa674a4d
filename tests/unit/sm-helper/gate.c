/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The states of OpenSM in which the plugin lets a batch change something. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/main.h"

#include <opensm/osm_log.h>

void osm_sm_signal(osm_sm_t *sm, osm_signal_t signal)
{
	(void)sm;
	(void)signal;
	fail();
}

void osm_log(osm_log_t *log, osm_log_level_t level, const char *fmt, ...)
{
	(void)log;
	(void)level;
	(void)fmt;
}

void cl_spinlock_acquire(cl_spinlock_t *lock)
{
	(void)lock;
	fail();
}

void cl_spinlock_release(cl_spinlock_t *lock)
{
	(void)lock;
	fail();
}

static osm_opensm_t osm;
static struct plugin plugin = {.osm = &osm};

static int refused(void)
{
	struct sm_reply_head h = {0};
	int rc = plugin_refuse_state(&plugin, &h);

	assert_int_equal(!rc, !*h.reason);
	return rc;
}

/* An OpenSM that was master before, and whose master hands over to it, as OpenSM goes about it: its
 * tables are those of old until its sweep is over. */
static void test_handover(void **state)
{
	(void)state;
	plugin.ready = true;
	osm.subn.sm_state = IB_SMINFO_STATE_STANDBY;
	assert_int_equal(refused(), -EHOSTDOWN);
	osm.subn.force_first_time_master_sweep = TRUE;
	assert_int_equal(refused(), -EHOSTDOWN);
	osm.subn.sm_state = IB_SMINFO_STATE_MASTER;
	assert_int_equal(refused(), -EAGAIN);
	osm.subn.coming_out_of_standby = TRUE;
	osm.subn.force_first_time_master_sweep = FALSE;
	assert_int_equal(refused(), -EAGAIN);
	osm.subn.coming_out_of_standby = FALSE;
	assert_int_equal(refused(), 0);
}

static void test_first_sweep(void **state)
{
	(void)state;
	osm.subn.sm_state = IB_SMINFO_STATE_MASTER;
	plugin.ready = false;
	assert_int_equal(refused(), -EAGAIN);
	plugin.ready = true;
	assert_int_equal(refused(), 0);
}

int main(void)
{
	const struct CMUnitTest sm_gate[] = {
		cmocka_unit_test(test_handover),
		cmocka_unit_test(test_first_sweep),
	};

	return RUN_TESTS(sm_gate);
}
