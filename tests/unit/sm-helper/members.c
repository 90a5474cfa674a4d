/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Members of partitions that are added and taken away: whose P_Key tables are written for it. */
#include "tests/unit/sm-helper/played_plugin.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sm-helper/plugin/distinguisher/distinguisher.h"
#include "sm-helper/plugin/partitions/partitions.h"
#include "sm-helper/plugin/partitions/pkeys.h"

#define VGUID 0x1234

static osm_physp_t physp;
static osm_port_t port;          /* of which OpenSM does not know that it shows VGUID */
static enum sm_member_as listed; /* VGUID */
static unsigned planned, written;
static int send_result;
static bool doubted;

void distinguisher_wake(struct plugin *p)
{
	(void)p;
}

osm_port_t *partitions_find_port(struct plugin *p, ib_net64_t guid)
{
	(void)p;
	return guid == cl_hton64(VGUID) ? &port : NULL;
}

int partitions_check(struct plugin *p, uint16_t pkey, const struct sm_member *m,
		     struct sm_reply_head *h)
{
	(void)p;
	(void)pkey;
	(void)m;
	(void)h;
	return 0;
}

enum sm_member_as partitions_listed(struct plugin *p, uint16_t pkey, uint64_t guid)
{
	(void)p;
	(void)pkey;
	return guid == VGUID ? listed : SM_MEMBER_NONE;
}

bool partitions_set_member(struct plugin *p, uint16_t pkey, uint64_t guid, enum sm_member_as as)
{
	bool changes = partitions_listed(p, pkey, guid) != as;

	listed = as;
	return changes;
}

void partitions_pkeys(struct plugin *p, ib_net64_t guid, const osm_port_t *of,
		      struct policy_pkeys *ret_keys)
{
	(void)p;
	(void)guid;
	assert_ptr_equal(of, &port);
	*ret_keys = (struct policy_pkeys){0};
}

bool partitions_hand_over(struct plugin *p, ib_net64_t guid, osm_physp_t *of,
			  const struct policy_pkeys *keys)
{
	(void)p;
	(void)guid;
	(void)of;
	(void)keys;
	return false;
}

int partitions_store(struct plugin *p)
{
	(void)p;
	return 0;
}

int pkeys_add(struct pkeys *c, osm_physp_t *of, const struct policy_pkeys *keys,
	      const osm_physp_t *like, struct sm_reply_head *h)
{
	(void)keys;
	(void)like;
	(void)h;
	assert_ptr_equal(of, &physp);
	c->port[c->count++].own.physp = of;
	planned++;
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
	(void)back;
	(void)limit;
	(void)deadline_us;
	(void)h;
	written += c->count;
	return send_result;
}

void pkeys_doubt(struct pkeys *c)
{
	(void)c;
	doubted = true;
}

void pkeys_free(struct pkeys *c)
{
	(void)c;
}

static int change(struct plugin *p, enum sm_member_as as, struct sm_members_reply *r)
{
	struct sm_members_request req = {.pkey = 0x8001, .deadline_ms = 1000, .count = 1};

	req.member[0] = (struct sm_member){.guid = VGUID, .as = (uint8_t)as};
	*r = (struct sm_members_reply){.changed = 0};
	return plugin_members(p, &req, r);
}

static struct plugin *plugin_new(void)
{
	struct plugin *p = calloc(1, sizeof *p);

	assert_non_null(p);
	p->osm = calloc(1, sizeof *p->osm);
	assert_non_null(p->osm);
	port.p_physp = &physp;
	listed = SM_MEMBER_FULL;
	planned = written = 0;
	send_result = 0;
	doubted = false;
	return p;
}

static void plugin_free(struct plugin *p)
{
	free(p->osm);
	free(p);
}

/* After a restart OpenSM does not know yet who shows an alias GUID. The file of aliases does. */
static void test_alias_after_restart(void **state)
{
	struct plugin *p = plugin_new();
	struct sm_members_reply r;

	(void)state;
	assert_int_equal(change(p, SM_MEMBER_NONE, &r), sizeof r);
	assert_int_equal(r.changed, 1);
	assert_int_equal(listed, SM_MEMBER_NONE);
	assert_int_equal(planned, 1);
	assert_int_equal(written, 1);
	plugin_free(p);
}

/* A port that takes neither the change nor the way back is left to a sweep. */
static void test_not_taken(void **state)
{
	struct plugin *p = plugin_new();
	struct sm_members_reply r;

	(void)state;
	send_result = -EIO;
	assert_int_equal(change(p, SM_MEMBER_NONE, &r), -EIO);
	assert_int_equal(listed, SM_MEMBER_FULL);
	assert_true(doubted);
	assert_true(p->sweep_asked);
	plugin_free(p);
}

int main(void)
{
	const struct CMUnitTest sm_members[] = {
		cmocka_unit_test(test_alias_after_restart),
		cmocka_unit_test(test_not_taken),
	};

	return RUN_TESTS(sm_members);
}
