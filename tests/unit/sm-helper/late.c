/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Answers that come when another batch waits: they say nothing of its SMPs. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/ib.h"
#include "common/util.h"
#include "sm-helper/plugin/smps.h"
#include "sm-helper/plugin/wire.h"

#include <opensm/osm_log.h>
#include <opensm/osm_msgdef.h>
#include <opensm/osm_node.h>
#include <opensm/osm_sm.h>
#include <opensm/osm_switch.h>
#include <opensm/osm_vl15intf.h>

volatile unsigned int osm_exit_flag;

/* Nodes have one port, and all their tables hold the same. */
struct subnet {
	osm_opensm_t osm;
	osm_vendor_t vendor;
	struct plugin p;
	osm_node_t node[2];
	osm_switch_t sw[2];
	char bind[256]; /* for libosmvendor's struct, in which nothing is as it should be */
};

static cl_pfn_msgrcv_cb_t handle_pkeys, handle_lft;
static osm_madw_context_t posted; /* of the last request */
static osm_madw_context_t late;   /* of a request whose answer comes while the next is sent */
static enum { SILENT, LATE, NOW } port_is;
static ib_smp_t answer;
static osm_madw_t carrier;

static struct plugin *receiver;

static void deliver(cl_pfn_msgrcv_cb_t handle)
{
	osm_madw_t madw = {.context = port_is == LATE ? late : posted,
			   .p_mad = (ib_mad_t *)&answer};

	if (port_is != SILENT)
		handle(receiver, &madw);
}

cl_disp_reg_handle_t cl_disp_register(cl_dispatcher_t *disp, cl_disp_msgid_t msg,
				      cl_pfn_msgrcv_cb_t callback, const void *context)
{
	(void)disp;
	receiver = (struct plugin *)(uintptr_t)context;
	if (msg == OSM_MSG_MAD_PKEY)
		handle_pkeys = callback;
	if (msg == OSM_MSG_MAD_LFT)
		handle_lft = callback;
	return (cl_disp_reg_handle_t)1;
}

void cl_disp_unregister(cl_disp_reg_handle_t handle)
{
	(void)handle;
}

void osm_gi_rcv_process(void *context, void *data);
void osm_pkey_rcv_process(void *context, void *data);
void osm_lft_rcv_process(void *context, void *data);

void osm_gi_rcv_process(void *context, void *data)
{
	(void)context;
	(void)data;
	fail();
}

void osm_pkey_rcv_process(void *context, void *data)
{
	osm_gi_rcv_process(context, data);
}

void osm_lft_rcv_process(void *context, void *data)
{
	osm_gi_rcv_process(context, data);
}

ib_api_status_t osm_req_get(osm_sm_t *sm, const osm_dr_path_t *path, ib_net16_t attr,
			    ib_net32_t mod, boolean_t find_mkey, ib_net64_t m_key, uint32_t timeout,
			    cl_disp_msgid_t err_msg, const osm_madw_context_t *context)
{
	(void)sm;
	(void)path;
	(void)find_mkey;
	(void)m_key;
	(void)timeout;
	(void)err_msg;
	posted = *context;
	answer.attr_id = attr;
	answer.attr_mod = mod;
	deliver(handle_pkeys);
	return IB_SUCCESS;
}

ib_api_status_t osm_req_set(osm_sm_t *sm, const osm_dr_path_t *path, const uint8_t *payload,
			    size_t size, ib_net16_t attr, ib_net32_t mod, boolean_t find_mkey,
			    ib_net64_t m_key, uint32_t timeout, cl_disp_msgid_t err_msg,
			    const osm_madw_context_t *context)
{
	memcpy(ib_smp_get_payload_ptr(&answer), payload, size);
	return osm_req_get(sm, path, attr, mod, find_mkey, m_key, timeout, err_msg, context);
}

osm_madw_t *osm_prepare_req_set(osm_sm_t *sm, const osm_dr_path_t *path, const uint8_t *payload,
				size_t size, ib_net16_t attr, ib_net32_t mod, boolean_t find_mkey,
				ib_net64_t m_key, uint32_t timeout, cl_disp_msgid_t err_msg,
				const osm_madw_context_t *context)
{
	(void)sm;
	(void)path;
	(void)find_mkey;
	(void)m_key;
	(void)timeout;
	(void)err_msg;
	posted = *context;
	answer.attr_id = attr;
	answer.attr_mod = mod;
	memcpy(ib_smp_get_payload_ptr(&answer), payload, size);
	return &carrier;
}

/* The port has sent it, and OpenSM waits no longer. */
ib_api_status_t osm_vendor_send(osm_bind_handle_t bind, osm_madw_t *const madw,
				boolean_t const expected)
{
	(void)bind;
	(void)madw;
	(void)expected;
	cl_atomic_dec(&receiver->osm->stats.qp0_mads_outstanding);
	cl_atomic_dec(&receiver->osm->stats.qp0_mads_outstanding_on_wire);
	deliver(handle_lft);
	return IB_SUCCESS;
}

void osm_mad_pool_put(osm_mad_pool_t *pool, osm_madw_t *madw)
{
	(void)pool;
	(void)madw;
}

void osm_vl15_poll(osm_vl15_t *vl15)
{
	(void)vl15;
}

void osm_log(osm_log_t *log, osm_log_level_t level, const char *fmt, ...)
{
	(void)log;
	(void)level;
	(void)fmt;
}

static struct subnet *subnet_new(void)
{
	struct subnet *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->p.osm = &s->osm;
	s->osm.p_vendor = &s->vendor;
	s->osm.sm.mad_ctrl.h_bind = (osm_bind_handle_t)s->bind;
	s->osm.vl15.max_wire_smps = 4;
	pthread_mutex_init(&s->vendor.cb_mutex, NULL);
	pthread_mutex_init(&s->osm.stats.mutex, NULL);
	for (int i = 0; i < 2; i++) {
		s->node[i].node_info.node_guid = s->node[i].node_info.port_guid = cl_hton64(
			0x10u + (unsigned)i);
		s->node[i].physp_tbl_size = 2;
		s->node[i].physp_table[0].p_node = &s->node[i];
		s->node[i].physp_table[0].port_guid = cl_hton64(0x10u + (unsigned)i);
		s->sw[i].p_node = &s->node[i];
	}
	port_is = SILENT;
	assert_int_equal(wire_hook(&s->p), 0);
	assert_int_equal(smps_hook(&s->p), 0);
	return s;
}

static struct smp pkeys_of(struct subnet *s, int node, bool set)
{
	return (struct smp){.physp = &s->node[node].physp_table[0],
			    .attr = IB_MAD_ATTR_P_KEY_TABLE,
			    .set = set};
}

/* The answer of one node to the same question, or that it holds the same, is not the other's. */
static void test_pkeys(void **state)
{
	(void)state;
	for (int set = 0; set <= 1; set++) {
		struct subnet *s = subnet_new();
		struct smp a = pkeys_of(s, 0, set), b = pkeys_of(s, 1, set);

		assert_int_equal(smps_send(&s->p, &a, 1, now_us() + 1000000), -EIO);
		late = posted;
		port_is = LATE;
		assert_int_equal(smps_send(&s->p, &b, 1, now_us() + 1000000), -EIO);
		assert_false(b.taken);
		port_is = NOW;
		assert_int_equal(smps_send(&s->p, &b, 1, now_us() + 1000000), 0);
		assert_true(b.taken);
		free(s);
	}
}

static int send_block(struct subnet *s, uint32_t sw, bool *taken)
{
	osm_switch_t *list[] = {&s->sw[0], &s->sw[1]};
	struct moves_smp smp = {.sw = sw, .block = 3};
	struct wire_batch b = {list, &smp, 1, taken};

	memset(smp.after, 7, sizeof smp.after);
	return wire_send(&s->p, &b, now_us() + 1000000);
}

/* Two switches get the same block one after the other: each answers for itself. */
static void test_lfts(void **state)
{
	struct subnet *s = subnet_new();
	bool taken;

	(void)state;
	assert_int_equal(send_block(s, 0, &taken), 0);
	assert_false(taken);
	late = posted;
	port_is = LATE;
	assert_int_equal(send_block(s, 1, &taken), 0);
	assert_false(taken);
	port_is = NOW;
	assert_int_equal(send_block(s, 1, &taken), 0);
	assert_true(taken);
	free(s);
}

/* A batch of more SMPs than a mark can count is not begun. */
static void test_too_many(void **state)
{
	struct subnet *s = subnet_new();
	const struct wire_batch b = {.count = WIRE_SMPS_MAX + 1};

	(void)state;
	assert_int_equal(wire_send(&s->p, &b, 0), -EIO);
	free(s);
}

int main(void)
{
	const struct CMUnitTest sm_late[] = {
		cmocka_unit_test(test_pkeys),
		cmocka_unit_test(test_lfts),
		cmocka_unit_test(test_too_many),
	};

	return RUN_TESTS(sm_late);
}
