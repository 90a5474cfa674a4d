/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A plan on OpenSM's tables: how long they have to be for it. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/ib.h"
#include "sm-helper/plugin/lfts.h"
#include "sm-helper/plugin/wire.h"

#include <opensm/osm_node.h>
#include <opensm/osm_sm.h>
#include <opensm/osm_switch.h>

static unsigned top_sent; /* LinearFDBTop of the last SwitchInfo; 0: none */

int plugin_refuse(struct sm_reply_head *h, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->reason, sizeof h->reason, fmt, ap);
	va_end(ap);
	return rc;
}

int wire_send(struct plugin *p, const struct wire_batch *b, uint64_t deadline_us)
{
	(void)p;
	(void)b;
	(void)deadline_us;
	fail();
	return -1;
}

ib_api_status_t osm_req_set(osm_sm_t *sm, const osm_dr_path_t *path, const uint8_t *payload,
			    size_t size, ib_net16_t attr, ib_net32_t mod, boolean_t find_mkey,
			    ib_net64_t m_key, uint32_t timeout, cl_disp_msgid_t err_msg,
			    const osm_madw_context_t *context)
{
	ib_switch_info_t si;

	(void)sm;
	(void)path;
	(void)mod;
	(void)find_mkey;
	(void)m_key;
	(void)timeout;
	(void)err_msg;
	(void)context;
	assert_int_equal(attr, IB_MAD_ATTR_SWITCH_INFO);
	assert_int_equal(size, sizeof si);
	memcpy(&si, payload, sizeof si);
	top_sent = cl_ntoh16(si.lin_top);
	return IB_SUCCESS;
}

/* A switch whose tables reach up to LID 63, and the run of LIDs that 56 begins leads to port 3. */
struct subnet {
	osm_opensm_t osm;
	struct plugin p;
	osm_node_t node;
	osm_switch_t sw;
	struct lfts l;
};

static struct subnet *subnet_new(void)
{
	struct subnet *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->p.osm = &s->osm;
	s->node.physp_tbl_size = 1;
	s->node.physp_table[0].port_guid = 1;
	s->node.sw = &s->sw;
	s->sw.p_node = &s->node;
	s->sw.lft_size = s->sw.num_hops = IB_LFT_BLOCK;
	s->sw.max_lid_ho = IB_LFT_BLOCK - 1;
	s->sw.switch_info.lin_cap = cl_hton16(2 * IB_LFT_BLOCK);
	s->sw.switch_info.lin_top = cl_hton16(IB_LFT_BLOCK - 1);
	s->sw.num_ports = 5;
	s->sw.lft = malloc(IB_LFT_BLOCK);
	s->sw.new_lft = malloc(IB_LFT_BLOCK);
	s->sw.hops = calloc(IB_LFT_BLOCK, sizeof *s->sw.hops);
	memset(s->sw.new_lft, OSM_NO_PATH, IB_LFT_BLOCK);
	memset(s->sw.new_lft + 56, 3, 4);
	memcpy(s->sw.lft, s->sw.new_lft, IB_LFT_BLOCK);
	s->l.sw = malloc(sizeof *s->l.sw);
	s->l.sw[0] = &s->sw;
	s->l.switches = 1;
	return s;
}

static void subnet_free(struct subnet *s)
{
	lfts_free(&s->l);
	free(s->sw.lft);
	free(s->sw.new_lft);
	free(s->sw.hops);
	free(s);
}

static struct move copy(uint16_t lid, uint8_t lmc)
{
	return (struct move){.lid = lid,
			     .like = 56,
			     .old_end = FABRIC_NONE,
			     .new_end = FABRIC_NONE,
			     .at_sw = FABRIC_NONE,
			     .lmc = lmc,
			     .like_lmc = lmc};
}

/* A run of LIDs above all others: LinearFDBTop is the last of them, not the first. */
static void test_top(void **state)
{
	(void)state;
	for (uint8_t lmc = 0; lmc <= 2; lmc++) {
		struct subnet *s = subnet_new();
		struct move m[] = {copy(64, lmc),
				   {.lid = 60,
				    .old_end = FABRIC_NONE,
				    .new_end = FABRIC_NONE,
				    .at_sw = FABRIC_NONE}};
		const unsigned top = 64 + (1u << lmc) - 1;
		struct sm_reply_head h = {0};

		top_sent = 0;
		assert_int_equal(lfts_plan(&s->l, m, 2, false, &h), 0);
		assert_int_equal(s->l.top, top);
		assert_int_equal(s->l.tops, 1);
		assert_int_equal(lfts_grow(&s->l, &h), 0);
		assert_int_equal(s->sw.num_hops, top + 1);
		assert_int_equal(lfts_send_tops(&s->p, &s->l), 0);
		assert_int_equal(top_sent, top);
		assert_int_equal(s->sw.max_lid_ho, top);
		subnet_free(s);
	}
}

/* A switch whose table ends within the run refuses the batch, and the LID is named. */
static void test_room(void **state)
{
	struct subnet *s = subnet_new();
	struct move m = copy(64, 2);
	char name[] = "s0";
	struct sm_reply_head h = {0};

	(void)state;
	s->node.print_desc = name;
	s->sw.switch_info.lin_cap = cl_hton16(66);
	assert_int_equal(lfts_plan(&s->l, &m, 1, false, &h), -ERANGE);
	assert_non_null(strstr(h.reason, "LID 67 does not fit"));
	subnet_free(s);
}

int main(void)
{
	const struct CMUnitTest sm_lfts[] = {
		cmocka_unit_test(test_top),
		cmocka_unit_test(test_room),
	};

	return RUN_TESTS(sm_lfts);
}
