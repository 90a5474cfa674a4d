/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves between ports that have the same GIDs at other indices. The shim is the shipped one, with
 * its helper thread, on a played device. */
#include <dlfcn.h>
#include <endian.h>

#include "tests/unit/guest-agent/pair.h"

#define ALIAS_1 0x0002c903000000a1ull
#define ALIAS_2 0x0002c903000000a2ull
#define ALIAS_3 0x0002c903000000a3ull
#define INDEX_1 1 /* of alias 1, where the program has started */
#define INDEX_2 2

static const uint64_t at_first[FAKE_GIDS] = {0, ALIAS_1, ALIAS_2, 0};
static const uint64_t swapped[FAKE_GIDS] = {0, ALIAS_2, ALIAS_1, 0};

static struct end left, right;
static uint64_t migration;
static void (*set_aliases)(const uint64_t *); /* fake_aliases() */
static unsigned (*qps_from)(uint64_t guid);   /* fake_qps_from() */

static int order(uint16_t type)
{
	struct shim_report r;

	return said(&r, type, fake_agent_order(type, migration, &r));
}

static bool move_to(const uint64_t *table)
{
	migration++;
	if (order(SHIM_SUSPEND) || order(SHIM_RELEASE))
		return false;
	set_aliases(table);
	return !order(SHIM_RESUME);
}

static bool sees(int index, uint64_t want)
{
	union ibv_gid gid;

	if (!ibv_query_gid(context, 1, index, &gid) && be64toh(gid.global.interface_id) == want)
		return true;
	printf("# index %d is %#llx\n", index,
	       (unsigned long long)be64toh(gid.global.interface_id));
	return false;
}

static bool says(const struct end *e, int index)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !ibv_query_qp(e->qp, &a, IBV_QP_AV, &init) && a.ah_attr.grh.sgid_index == index;
}

static bool counts(unsigned from_1, unsigned from_2)
{
	if (qps_from(ALIAS_1) == from_1 && qps_from(ALIAS_2) == from_2)
		return true;
	printf("# %u QPs from alias 1, %u from alias 2\n", qps_from(ALIAS_1), qps_from(ALIAS_2));
	return false;
}

static bool make_pair_from(struct end *a, struct end *b, uint8_t index)
{
	sgid_index = index;
	return make_pair(a, b, 1, true);
}

static bool open_all(void)
{
	if (!open_device())
		return false;
	set_aliases = (void (*)(const uint64_t *))dlsym(RTLD_DEFAULT, "fake_aliases");
	qps_from = (unsigned (*)(uint64_t))dlsym(RTLD_DEFAULT, "fake_qps_from");
	if (!set_aliases || !qps_from)
		return false;
	set_aliases(at_first);
	return sees(INDEX_1, ALIAS_1) && sees(INDEX_2, ALIAS_2);
}

static bool keep_address(void)
{
	return make_pair_from(&left, &right, INDEX_1) && message(&left, &right) && counts(2, 0) &&
	       move_to(swapped) && counts(2, 0) && message(&left, &right) && message(&right, &left);
}

static bool see_the_same(void)
{
	return sees(0, FAKE_GUID) && sees(INDEX_1, ALIAS_1) && sees(INDEX_2, ALIAS_2) &&
	       says(&left, INDEX_1) && says(&right, INDEX_1);
}

static bool connect_anew(void)
{
	struct end a, b;

	return make_pair_from(&a, &b, INDEX_2) && counts(2, 2) && message(&a, &b) &&
	       says(&a, INDEX_2) && move_to(at_first) && counts(2, 2) && message(&a, &b) &&
	       !ibv_destroy_qp(a.qp) && !ibv_destroy_qp(b.qp);
}

/* Addresses change for other reasons than moves, too. */
static bool see_a_new_one(void)
{
	static const uint64_t changed[FAKE_GIDS] = {0, ALIAS_1, ALIAS_3, 0};

	return move_to(changed) && sees(INDEX_2, ALIAS_3) && sees(INDEX_1, ALIAS_1) && counts(2, 0);
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "a port with three GIDs"},
		{keep_address, "QPs keep their address, whatever its index is"},
		{see_the_same, "the program sees the table that it saw first"},
		{connect_anew, "new connections go by the program's indices, and move"},
		{see_a_new_one, "an address that has gone gives way to a new one"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
