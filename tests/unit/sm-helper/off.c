/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A host that is said to be off: only a look at its port may say that it is. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/moves/actions.h"
#include "sm-helper/moves/ops_int.h"
#include "sm-helper/watch/off.h"

#define OWN   0xa1
#define OTHER 0xa2 /* of another subnet */
#define VGUID 0x0002c90300000101

static uint64_t own, shows; /* 0: the port is silent */

bool action_sm_moves(const struct ops *o)
{
	(void)o;
	return false;
}

int action_places(struct ops *o, struct sm_place **ret_list, size_t *ret_n, struct op_error *e)
{
	(void)o;
	(void)ret_list;
	(void)ret_n;
	(void)e;
	return -EIO;
}

int probe_own_guid(struct probe *m, uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	*ret_guid = own;
	return 0;
}

int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node,
		    uint64_t *ret_port, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_int_equal(to->path[to->hops], 2);
	*ret_node = *ret_port = shows;
	return shows ? 0 : -ETIMEDOUT;
}

int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port,
			char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)ret_port;
	(void)error;
	return -EIO;
}

int probe_gmp_lid(struct probe *m, uint16_t lid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)error;
	return -EIO;
}

int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)to;
	(void)port;
	(void)ret_port;
	(void)error;
	return -EIO;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)port_guid;
	(void)index;
	(void)error;
	*ret_guid = shows;
	return shows ? 0 : -ETIMEDOUT;
}

static void test_verdicts(void **state)
{
	const struct fabric_end here = {.node_guid = OWN, .port_guid = OWN, .lid = 1, .port = 1};
	const struct fabric_end vf = {.node_guid = 7, .port_guid = VGUID, .lid = 2, .port = 1};
	static const enum address_mode mode[] = {ADDRESS_PREPOPULATED, ADDRESS_SHARED_PORT};
	struct reg_entry e = {.vguid = VGUID, .at = {.switch_guid = 0x10, .switch_port = 2}};
	char why[OFF_TEXT_MAX];
	struct ops o = {0};

	(void)state;
	pthread_mutex_init(&o.lock, NULL);
	assert_int_equal(off_look(&o, &e, why), OFF_UNSEEN);
	assert_int_equal(fabric_add_switch(&o.fabric, 0x10, 50, 8, "s0"), 0);
	own = OWN;
	assert_int_equal(fabric_add_end(&o.fabric, &here), 0);
	assert_int_equal(fabric_add_end(&o.fabric, &vf), 0);
	assert_int_equal(fabric_attach(&o.fabric, 0, 0x10, 1), 0);
	assert_int_equal(off_look(&o, &e, why), OFF_GONE); /* nothing hangs there */
	assert_int_equal(fabric_attach(&o.fabric, 1, 0x10, 2), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(mode); i++) {
		e.mode = mode[i];
		own = OWN;
		shows = 0;
		assert_int_equal(off_look(&o, &e, why), OFF_GONE);
		shows = VGUID;
		assert_int_equal(off_look(&o, &e, why), OFF_SHOWN);
		shows = 0;
		own = OTHER; /* we see another subnet, which says nothing of this one */
		assert_int_equal(off_look(&o, &e, why), OFF_UNSEEN);
		assert_non_null(strstr(why, "our own port"));
	}
	fabric_clear(&o.fabric);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_verdicts)};

	return RUN_TESTS(tests);
}
