/* SPDX-License-Identifier: GPL-2.0-or-later */
/* GET /v1/verify: a subnet of two switches, as its nodes tell it, against the registry. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "sm-helper/fabric/discover.h"
#include "sm-helper/watch/verify.h"

#define OWN   0x1001
#define VGUID 0x5001

static struct world {
	struct pkeys own, theirs; /* P_Key tables of our own port and of the VF */
	int path, pkeys;          /* results of questions to the SA, and for the tables */
	uint16_t dlid;            /* LID in the SA's record */
	uint64_t answers;         /* GUID of who answers at the LID; 0: nobody */
	bool smps_lost;           /* those that are routed by LID */
	unsigned smps;            /* LID-routed ones that were sent */
	unsigned gmps;            /* and GMPs */
	int gmp;                  /* result of a GMP to the LID */
	uint64_t shown;           /* GUID that the VF shows by directed route */
	uint16_t vf_lid;          /* and its LID */
	uint8_t leaf_to;          /* port that the first switch's LFT has for the LID */
} w;
static struct reg_entry entry;
static struct verify_result r;
static struct reach reach;

int probe_own_guid(struct probe *m, uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	*ret_guid = OWN;
	return 0;
}

/* Our own port at port 3 of the first switch, the VF at port 2 of the second. */
int discover_fabric(struct probe *m, struct fabric *f, unsigned *ret_silent,
		    char error[static PROBE_ERROR_MAX])
{
	struct fabric_end own = {OWN - 1, OWN, .lid = 1, .port = 1, .desc = "own"},
			  vf = {VGUID - 1, VGUID, .lid = 5, .port = 1, .desc = "vf"};

	(void)m;
	(void)error;
	*ret_silent = 0;
	assert_int_equal(fabric_add_switch(f, 0x10, 50, 8, "s0"), 0);
	assert_int_equal(fabric_add_switch(f, 0x20, 51, 8, "s1"), 0);
	assert_int_equal(fabric_link(f, 0x10, 1, 0x20, 1), 0);
	assert_int_equal(fabric_add_end(f, &own), 0);
	assert_int_equal(fabric_attach(f, 0, 0x10, 3), 0);
	assert_int_equal(fabric_add_end(f, &vf), 0);
	assert_int_equal(fabric_attach(f, 1, 0x20, 2), 0);
	return 0;
}

int probe_path(struct probe *m, uint16_t sm_lid, const struct ib_gid *sgid,
	       const struct ib_gid *dgid, uint16_t pkey, struct probe_path *ret_path,
	       char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)sm_lid;
	(void)pkey;
	assert_int_equal(sgid->guid, OWN);
	assert_int_equal(dgid->guid, VGUID);
	strcpy(error, "played: no path");
	*ret_path = (struct probe_path){.dlid = w.dlid};
	return w.path;
}

int probe_pkeys(struct probe *m, const struct probe_route *to, struct pkeys *ret_keys,
		char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	if (to->hops)
		assert_true(to->hops == 3 && to->path[1] == 1 && to->path[2] == 1 &&
			    to->path[3] == 2);
	*ret_keys = to->hops ? w.theirs : w.own;
	return to->hops ? w.pkeys : 0;
}

int probe_lft_blocks(struct probe *m, struct probe_block *b, unsigned count,
		     char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	for (unsigned i = 0; i < count; i++) {
		memset(b[i].data, 0xff, sizeof b[i].data);
		b[i].data[5] = b[i].to.hops == 1 ? w.leaf_to : 2;
		b[i].read = true;
	}
	return 0;
}

int probe_node_info_lid(struct probe *m, uint16_t lid, uint64_t *ret_port,
			char error[static PROBE_ERROR_MAX])
{
	(void)m;
	w.smps++;
	strcpy(error, "played: silent");
	*ret_port = lid == 5 ? w.answers : 0x10;
	return *ret_port && !w.smps_lost ? 0 : -EIO;
}

int probe_gmp_lid(struct probe *m, uint16_t lid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_int_equal(lid, 5);
	w.gmps++;
	return w.gmp;
}

int probe_node_info(struct probe *m, const struct probe_route *to, uint64_t *ret_node,
		    uint64_t *ret_port, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_true(to->hops == 3 && to->path[3] == 2);
	*ret_node = w.shown - 1;
	*ret_port = w.shown;
	return 0;
}

int probe_port_info(struct probe *m, const struct probe_route *to, unsigned port,
		    struct probe_port *ret_port, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)error;
	assert_int_equal(to->hops, 3);
	assert_int_equal(port, 0);
	*ret_port = (struct probe_port){.lid = w.vf_lid, .state = 4};
	return 0;
}

int probe_guid(struct probe *m, uint16_t lid, uint64_t port_guid, unsigned index,
	       uint64_t *ret_guid, char error[static PROBE_ERROR_MAX])
{
	(void)m;
	(void)lid;
	(void)port_guid;
	(void)index;
	(void)ret_guid;
	(void)error;
	fail();
	return -EIO;
}

static int setup(void **state)
{
	(void)state;
	w = (struct world){.own = {{0xffff}, 1},
			   .theirs = {{0xffff}, 1},
			   .dlid = 5,
			   .answers = VGUID,
			   .shown = VGUID,
			   .vf_lid = 5,
			   .leaf_to = 1};
	reach = (struct reach){0};
	entry = (struct reg_entry){.vguid = VGUID,
				   .lid = 5,
				   .at = {.host = "h0",
					  .vf = "vf0",
					  .parked_guid = 0x2001,
					  .switch_guid = 0x20,
					  .switch_port = 2}};
	return 0;
}

static int verify(void)
{
	char error[PROBE_ERROR_MAX];
	struct verify v;
	int rc;

	assert_int_equal(verify_begin(&v, NULL, &reach, 0, error), 0);
	rc = verify_entry(&v, &entry, &r);
	verify_end(&v);
	return rc;
}

static void test_right(void **state)
{
	(void)state;
	assert_int_equal(verify(), 0);
	assert_true(r.sa && r.walks > 0);
	assert_string_equal(r.text, "");
}

/* What is wrong is named, each kind. */
static void test_wrong(void **state)
{
	(void)state;
	w.dlid = 6;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "the SA's record says LID 6, not 5");
	setup(state);
	w.leaf_to = 4;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_non_null(strstr(r.text, "s0"));
	setup(state);
	w.answers = 0x77;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "LID 5 answers as 0x0000000000000077");
	setup(state);
	entry.at.switch_port = 3;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_non_null(strstr(r.text, "not at port 3 of"));
}

static void keys(struct pkeys *k, uint16_t a, uint16_t b)
{
	*k = (struct pkeys){.key = {a, b}, .count = 2};
}

/* The SA has no path between two limited members: nothing is broken, and the rest is looked at. */
static void test_limited(void **state)
{
	(void)state;
	w.path = -ENOENT;
	keys(&w.own, 0x7fff, 0x8012);
	keys(&w.theirs, 0x7fff, 0x8011);
	assert_int_equal(verify(), 0);
	assert_false(r.sa);
	assert_true(r.walks > 0);
	w.answers = 0x77;
	assert_int_equal(verify(), -EHOSTUNREACH);
	w.answers = VGUID;
	keys(&w.theirs, 0x7fff, 0x0012); /* a partition of which we are a full member */
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "played: no path");
	keys(&w.theirs, 0xffff, 0x0011);
	assert_int_equal(verify(), -EHOSTUNREACH);
	keys(&w.theirs, 0x7fff, 0x8011);
	w.pkeys = -EIO; /* the table cannot be read */
	assert_int_equal(verify(), -EHOSTUNREACH);
	w.pkeys = 0;
	w.path = -ETIMEDOUT; /* the SA says nothing at all */
	assert_int_equal(verify(), -EHOSTUNREACH);
}

/* A fabric that loses SMPs routed by LID: a GMP goes the same way, and what has been learnt is kept
 * for a while. */
static void test_smps_lost(void **state)
{
	(void)state;
	assert_int_equal(verify(), 0);
	assert_true(r.by == REACH_SMP && w.smps == 1 && !w.gmps);
	w.smps_lost = true;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(verify(), 0);
		assert_true(r.by == REACH_GMP);
	}
	assert_int_equal(w.smps, 2);
	assert_int_equal(w.gmps, 3);
	w.shown = 0x77; /* a GMP does not say who answers */
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "LID 5 answers as 0x0000000000000077");
	w.shown = VGUID;
	w.vf_lid = 6;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "the port at the place has LID 6, not 5");
	w.vf_lid = 5;
	w.smps_lost = false; /* it was by chance, and here is one that answers no GMP */
	w.gmp = -EIO;
	assert_int_equal(verify(), 0);
	assert_true(r.by == REACH_SMP && reach.by == REACH_SMP);
	w.smps_lost = true;
	w.gmp = 0;
	assert_int_equal(verify(), 0);
	assert_true(r.by == REACH_GMP);
	reach.since_ms = now_ms() - REACH_KEEP_MS - 1;
	w.smps_lost = false;
	assert_int_equal(verify(), 0);
	assert_true(r.by == REACH_SMP);
}

/* Without an answer to either, the walk is enough only if a switch that must be there is silent as
 * well. */
static void test_walk_alone(void **state)
{
	(void)state;
	w.answers = 0;
	w.gmp = -EIO;
	assert_int_equal(verify(), -EHOSTUNREACH);
	assert_string_equal(r.text, "played: silent");
	w.smps_lost = true;
	assert_int_equal(verify(), 0);
	assert_true(r.by == REACH_WALK);
	assert_string_equal(reach_name(r.by), "walk");
	w.smps = w.gmps = 0;
	assert_int_equal(verify(), 0);
	assert_true(!w.smps && !w.gmps);
	w.leaf_to = 4; /* then the walk is what finds a fault */
	assert_int_equal(verify(), -EHOSTUNREACH);
	w.leaf_to = 1;
	w.vf_lid = 6;
	assert_int_equal(verify(), -EHOSTUNREACH);
}

int main(void)
{
	const struct CMUnitTest sm_verify[] = {
		cmocka_unit_test_setup(test_right, setup),
		cmocka_unit_test_setup(test_wrong, setup),
		cmocka_unit_test_setup(test_limited, setup),
		cmocka_unit_test_setup(test_smps_lost, setup),
		cmocka_unit_test_setup(test_walk_alone, setup),
	};

	return RUN_TESTS(sm_verify);
}
