/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A batch on its way where a port does not answer: LFT blocks wait for it, but not those of the way
 * back. */
#include "tests/unit/sm-helper/played_plugin.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>

#include "common/util.h"
#include "sm-helper/plugin/deliver.h"

#define WAIT_US 100000

static uint64_t sent_at_us; /* the LFT blocks; 0: they were not */

int lfts_send(struct plugin *p, struct lfts *l, uint64_t deadline_us)
{
	(void)p;
	(void)l;
	(void)deadline_us;
	sent_at_us = now_us();
	return 0;
}

unsigned lfts_note(struct plugin *p, const struct lfts *l, unsigned first)
{
	(void)p;
	(void)l;
	(void)first;
	return 0;
}

int lfts_check(const struct lfts *l, struct sm_reply_head *h)
{
	(void)l;
	(void)h;
	return 0;
}

ib_api_status_t osm_req_set(osm_sm_t *sm, const osm_dr_path_t *path, const uint8_t *payload,
			    size_t size, ib_net16_t attr, ib_net32_t mod, boolean_t find_mkey,
			    ib_net64_t m_key, uint32_t timeout, cl_disp_msgid_t err_msg,
			    const osm_madw_context_t *context)
{
	(void)sm;
	(void)path;
	(void)payload;
	(void)size;
	(void)attr;
	(void)mod;
	(void)find_mkey;
	(void)m_key;
	(void)timeout;
	(void)err_msg;
	(void)context;
	return IB_SUCCESS;
}

struct subnet {
	osm_opensm_t osm;
	struct plugin p;
	struct lfts lfts;
	struct lock_time lock_time;
	struct delivery d;
};

static struct subnet *subnet_new(bool ordered, bool turned, int unanswered)
{
	struct subnet *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->p.osm = &s->osm;
	pthread_mutex_init(&s->osm.stats.mutex, NULL);
	pthread_cond_init(&s->osm.stats.cond, NULL);
	s->osm.stats.qp0_mads_outstanding = unanswered;
	s->lfts.turned = turned;
	s->d = (struct delivery){
		.p = &s->p, .lfts = &s->lfts, .ordered = ordered, .lock_time = &s->lock_time};
	sent_at_us = 0;
	return s;
}

/* Packets that are on their way to the old place must not come to a new one without its LID. */
static void test_ordered(void **state)
{
	struct subnet *s = subnet_new(true, false, 1);

	(void)state;
	assert_int_equal(deliver_lfts(&s->d, now_us() + WAIT_US), -ETIMEDOUT);
	assert_int_equal(sent_at_us, 0);
	s->osm.stats.qp0_mads_outstanding = 0;
	assert_int_equal(deliver_lfts(&s->d, now_us() + WAIT_US), 0);
	assert_int_not_equal(sent_at_us, 0);
	free(s);
}

/* The port that has failed the batch fails the way back as well: switches must not wait for it. */
static void test_back(void **state)
{
	struct subnet *s = subnet_new(true, true, 1);
	uint64_t start_us = now_us();

	(void)state;
	assert_int_equal(deliver_lfts(&s->d, start_us + WAIT_US), -ETIMEDOUT);
	assert_int_not_equal(sent_at_us, 0);
	assert_true(sent_at_us < start_us + WAIT_US);
	free(s);
}

static void test_unordered(void **state)
{
	struct subnet *s = subnet_new(false, false, 1);

	(void)state;
	assert_int_equal(deliver_lfts(&s->d, now_us() + WAIT_US), -ETIMEDOUT);
	assert_int_not_equal(sent_at_us, 0);
	free(s);
}

int main(void)
{
	const struct CMUnitTest sm_deliver[] = {
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_back),
		cmocka_unit_test(test_unordered),
	};

	return RUN_TESTS(sm_deliver);
}
