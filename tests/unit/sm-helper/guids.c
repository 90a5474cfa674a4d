/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A batch of GUID table entries, while OpenSM clears its tables of them. */
#include "tests/unit/sm-helper/played_plugin.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/alias.h"
#include "sm-helper/plugin/master/master.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/partitions/pkeys.h"
#include "sm-helper/plugin/paths.h"
#include "sm-helper/plugin/smps.h"

#include <opensm/osm_node.h>

#define VGUID 0x1234

/* Two hosts' ports. The first one shows VGUID in entry 1. */
static struct host {
	osm_node_t node;
	osm_physp_t physp;
	osm_port_t port;
} host[2];
static unsigned sends, clear_at; /* clear_at: the send in which OpenSM clears its tables */

static void clear(void)
{
	for (unsigned i = 0; i < 2; i++) {
		free(host[i].physp.p_guids);
		host[i].physp.p_guids = NULL;
	}
}

static void fill(void)
{
	for (unsigned i = 0; i < 2; i++) {
		ib_net64_t *table = calloc(GUID_TABLE_MAX_ENTRIES, sizeof *table);

		assert_non_null(table);
		host[i].node.node_info.node_type = IB_NODE_TYPE_CA;
		host[i].node.print_desc = (char *)"host";
		host[i].physp.port_info.guid_cap = GUID_TABLE_MAX_ENTRIES;
		host[i].physp.p_node = &host[i].node;
		free(host[i].physp.p_guids);
		host[i].physp.p_guids = (void *)table;
		host[i].port = (osm_port_t){.p_node = &host[i].node,
					    .p_physp = &host[i].physp,
					    .guid = cl_hton64(i + 1),
					    .lid = cl_hton16((uint16_t)(i + 1))};
		table[0] = host[i].port.guid;
		table[1] = i ? 0 : cl_hton64(VGUID);
	}
}

int smps_send(struct plugin *p, struct smp *smp, unsigned count, uint64_t deadline_us)
{
	(void)p;
	(void)deadline_us;
	for (unsigned i = 0; i < count; i++)
		smp[i].taken = true;
	if (++sends == clear_at)
		clear();
	return 0;
}

osm_port_t *osm_get_port_by_guid(const osm_subn_t *subn, ib_net64_t guid)
{
	(void)subn;
	return &host[cl_ntoh64(guid) - 1].port;
}

osm_port_t *osm_get_port_by_alias_guid(const osm_subn_t *subn, ib_net64_t guid)
{
	(void)subn;
	return guid == cl_hton64(VGUID) ? &host[0].port : NULL;
}

/* ---- plugin/alias.c ---- */

bool alias_is_known(const osm_port_t *port)
{
	return port->p_physp->p_guids;
}

unsigned alias_blocks(const osm_port_t *port)
{
	(void)port;
	return 1;
}

ib_net64_t alias_entry(const osm_port_t *port, uint8_t index)
{
	assert_non_null(port->p_physp->p_guids);
	return (*port->p_physp->p_guids)[index];
}

void alias_set_entry(const struct alias_entry *e, ib_net64_t guid)
{
	assert_non_null(e->port->p_physp->p_guids);
	(*e->port->p_physp->p_guids)[e->index] = guid;
}

int alias_learn(struct plugin *p, osm_port_t *port, const ib_guid_info_t info[],
		const enum alias_say say[], bool ret_wrong[static ALIAS_BLOCKS_MAX])
{
	(void)p;
	(void)port;
	(void)info;
	(void)say;
	(void)ret_wrong;
	fail();
	return -1;
}

void alias_unlearn(osm_port_t *port)
{
	free(port->p_physp->p_guids);
	port->p_physp->p_guids = NULL;
}

void alias_hand_over(struct plugin *p, const struct alias_entry *e, unsigned count)
{
	(void)p;
	(void)e;
	(void)count;
}

void master_arm(struct plugin *p)
{
	p->die_at = -1;
}

void master_die(struct plugin *p, const char *where)
{
	(void)p;
	(void)where;
	abort();
}

void partitions_pkeys(struct plugin *p, ib_net64_t guid, const osm_port_t *port,
		      struct policy_pkeys *ret_keys)
{
	(void)p;
	(void)guid;
	(void)port;
	*ret_keys = (struct policy_pkeys){0};
}

bool partitions_hand_over(struct plugin *p, ib_net64_t guid, osm_physp_t *physp,
			  const struct policy_pkeys *keys)
{
	(void)p;
	(void)guid;
	(void)physp;
	(void)keys;
	return false;
}

void partitions_note_aliases(struct plugin *p, const osm_port_t *port)
{
	(void)p;
	(void)port;
}

int partitions_store(struct plugin *p)
{
	(void)p;
	return 0;
}

int pkeys_add(struct pkeys *c, osm_physp_t *physp, const struct policy_pkeys *keys,
	      const osm_physp_t *like, struct sm_reply_head *h)
{
	(void)keys;
	(void)like;
	(void)h;
	c->port[c->count++].own.physp = physp;
	return 0;
}

void pkeys_apply(struct pkeys *c, bool back)
{
	(void)c;
	(void)back;
}

int pkeys_send(struct pkeys *c, bool back, unsigned limit, uint64_t deadline_us,
	       struct sm_reply_head *h)
{
	(void)c;
	(void)back;
	(void)limit;
	(void)deadline_us;
	(void)h;
	return 0;
}

void pkeys_doubt(struct pkeys *c)
{
	(void)c;
}

void pkeys_free(struct pkeys *c)
{
	(void)c;
}

unsigned paths_of(struct plugin *p, uint64_t guid, struct sm_path path[static SM_PATHS_MAX],
		  uint32_t *count)
{
	(void)p;
	(void)guid;
	(void)path;
	(void)count;
	return 0;
}

void paths_report(struct plugin *p, unsigned trap, uint64_t port_guid)
{
	(void)p;
	(void)trap;
	(void)port_guid;
}

/* VGUID goes from the first host to the second. */
static int move(unsigned clear_in)
{
	static osm_opensm_t osm;
	static struct sm_guids_reply r;
	static struct plugin p;
	struct sm_guids_request req = {.deadline_ms = 1000, .count = 2};

	assert_int_equal(cl_plock_init(&osm.lock), CL_SUCCESS);
	p = (struct plugin){.osm = &osm};
	memset(&r, 0, sizeof r);
	req.slot[0] = (struct sm_slot){.port_guid = 1, .was_guid = VGUID, .index = 1};
	req.slot[1] = (struct sm_slot){.port_guid = 2, .guid = VGUID, .index = 1};
	fill();
	sends = 0;
	clear_at = clear_in;
	return plugin_guids(&p, &req, &r);
}

static void test_move(void **state)
{
	(void)state;
	assert_int_equal(move(0), offsetof(struct sm_guids_reply, path));
	assert_int_equal(sends, 2);
	assert_int_equal(alias_entry(&host[0].port, 1), 0);
	assert_int_equal(alias_entry(&host[1].port, 1), cl_hton64(VGUID));
	clear();
}

/* Another master hands its part of the subnet over in the middle of a batch: OpenSM clears the
 * tables before it begins its sweep, which would wait for the batch. */
static void test_cleared(void **state)
{
	(void)state;
	assert_int_equal(move(1), -EIO);
	clear();
}

int main(void)
{
	const struct CMUnitTest sm_guids[] = {
		cmocka_unit_test(test_move),
		cmocka_unit_test(test_cleared),
	};

	return RUN_TESTS(sm_guids);
}
