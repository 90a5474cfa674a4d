/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Moves between devices whose P_Key tables have the same partitions at other indices, or have them
 * not. The shim is the shipped one, with its helper thread, on a played device. */
#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>

#include "tests/unit/guest-agent/pair.h"

#define COMM      15 /* of the name: what Linux shows */
#define DEFAULT   0xffff
#define FULL_1    0x8001
#define LIMITED_1 0x0001
#define FULL_2    0x8002
#define INDEX_1   1 /* of partition 1, where the program has started */
#define INDEX_2   2

static const uint16_t at_first[FAKE_PKEYS] = {DEFAULT, FULL_1, FULL_2, 0};
static const uint16_t swapped[FAKE_PKEYS] = {DEFAULT, FULL_2, FULL_1, 0};

static struct end left, right;
static uint64_t migration;
static struct shim_report report;
static void (*set_pkeys)(const uint16_t *); /* fake_pkeys() */
static unsigned (*qps_in)(uint16_t pkey);   /* fake_qps_in() */

static int order(uint16_t type)
{
	return said(&report, type, fake_agent_order(type, migration, &report));
}

static bool leave(void)
{
	migration++;
	return !order(SHIM_SUSPEND) && !order(SHIM_RELEASE);
}

static bool move_to(const uint16_t *table)
{
	if (!leave())
		return false;
	set_pkeys(table);
	return !order(SHIM_RESUME);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type, int index)
{
	struct ibv_qp_init_attr init = {.qp_type = type, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = (uint16_t)index};
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	qp = init.send_cq ? ibv_create_qp(pd, &init) : NULL;
	return qp && !ibv_modify_qp(
			     qp, &a,
			     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
				     (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS))
		       ? qp
		       : NULL;
}

static struct ibv_qp *make_xrc(enum ibv_qp_type type, struct ibv_xrcd *xrcd, int index)
{
	const bool target = type == IBV_QPT_XRC_RECV;
	struct ibv_qp_init_attr_ex init = {.qp_type = type,
					   .comp_mask = target ? IBV_QP_INIT_ATTR_XRCD
							       : IBV_QP_INIT_ATTR_PD,
					   .pd = target ? NULL : pd,
					   .xrcd = target ? xrcd : NULL,
					   .cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = (uint16_t)index};
	struct ibv_qp *qp;

	if (!target)
		init.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	qp = ibv_create_qp_ex(context, &init);
	return qp && !ibv_modify_qp(qp, &a,
				    IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
					    IBV_QP_ACCESS_FLAGS)
		       ? qp
		       : NULL;
}

static bool make_pair_in(struct end *a, struct end *b, int index)
{
	pkey_index = (uint16_t)index;
	return make_pair(a, b, 1, true);
}

static bool sees(int index, uint16_t want)
{
	__be16 pkey = 0;

	if (!ibv_query_pkey(context, 1, index, &pkey) && be16toh(pkey) == want)
		return true;
	printf("# index %d is 0x%04x, not 0x%04x\n", index, be16toh(pkey), want);
	return false;
}

static bool says(const struct ibv_qp *qp, int index)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !ibv_query_qp((struct ibv_qp *)qp, &a, IBV_QP_PKEY_INDEX, &init) &&
	       a.pkey_index == index;
}

static bool counts(unsigned in_1, unsigned in_2)
{
	if (qps_in(FULL_1) == in_1 && qps_in(FULL_2) == in_2)
		return true;
	printf("# %u QPs in 0x%04x, %u in 0x%04x\n", qps_in(FULL_1), FULL_1, qps_in(FULL_2),
	       FULL_2);
	return false;
}

static bool open_all(void)
{
	if (!open_device())
		return false;
	set_pkeys = (void (*)(const uint16_t *))dlsym(RTLD_DEFAULT, "fake_pkeys");
	qps_in = (unsigned (*)(uint16_t))dlsym(RTLD_DEFAULT, "fake_qps_in");
	if (!set_pkeys || !qps_in)
		return false;
	set_pkeys(at_first);
	return true;
}

static bool stay_in_partition(void)
{
	int index = ibv_get_pkey_index(context, 1, htobe16(FULL_1));

	return index == INDEX_1 && make_pair_in(&left, &right, index) && message(&left, &right) &&
	       counts(2, 0) && move_to(swapped) && counts(2, 0) && message(&left, &right) &&
	       message(&right, &left);
}

static bool see_the_same(void)
{
	return sees(0, DEFAULT) && sees(INDEX_1, FULL_1) && sees(INDEX_2, FULL_2) && sees(3, 0) &&
	       ibv_get_pkey_index(context, 1, htobe16(FULL_1)) == INDEX_1 &&
	       ibv_get_pkey_index(context, 1, htobe16(FULL_2)) == INDEX_2 &&
	       ibv_get_pkey_index(context, 1, htobe16(0x8003)) < 0 && says(left.qp, INDEX_1);
}

static bool connect_anew(void)
{
	struct end a, b;

	return make_pair_in(&a, &b, INDEX_2) && counts(2, 2) && message(&a, &b) &&
	       says(a.qp, INDEX_2) && !ibv_destroy_qp(a.qp) && !ibv_destroy_qp(b.qp);
}

static bool all_types(void)
{
	struct ibv_xrcd_init_attr none = {.comp_mask = IBV_XRCD_INIT_ATTR_FD |
						       IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = -1,
					  .oflags = O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &none);
	struct ibv_qp *qp[] = {make_qp(IBV_QPT_UC, INDEX_2), make_qp(IBV_QPT_UD, INDEX_2),
			       make_xrc(IBV_QPT_XRC_SEND, xrcd, INDEX_2),
			       xrcd ? make_xrc(IBV_QPT_XRC_RECV, xrcd, INDEX_2) : NULL};
	bool ok = counts(2, ARRAY_SIZE(qp)) && move_to(at_first) && counts(2, ARRAY_SIZE(qp)) &&
		  move_to(swapped) && counts(2, ARRAY_SIZE(qp));

	for (size_t i = 0; i < ARRAY_SIZE(qp); i++)
		ok = ok && says(qp[i], INDEX_2) && !ibv_destroy_qp(qp[i]);
	return ok && !ibv_close_xrcd(xrcd);
}

/* The program goes on when the table is mended, and the host asks again. */
static bool refuse(const uint16_t *table, const char *why, const char *how)
{
	bool refused = leave();

	set_pkeys(table);
	refused = refused && fake_agent_order(SHIM_RESUME, migration, &report) &&
		  strstr(report.why, why) && strstr(report.why, how) &&
		  !strncmp(report.why, program_invocation_short_name, COMM);
	if (!refused)
		printf("# resume: %d %s\n", report.head.status, report.why);
	set_pkeys(at_first);
	return !order(SHIM_RESUME) && refused && counts(2, 0) && message(&left, &right);
}

static bool name_what_lacks(void)
{
	static const uint16_t without[FAKE_PKEYS] = {DEFAULT, FULL_2, 0, 0};

	return refuse(without, "0x8001", "does not have");
}

static bool name_lost_membership(void)
{
	static const uint16_t limited[FAKE_PKEYS] = {DEFAULT, FULL_2, LIMITED_1, 0};

	return refuse(limited, "0x8001", "limited");
}

/* A limited member may be a full one later: it can do all that it could. */
static bool take_full_for_limited(void)
{
	static const uint16_t limited[FAKE_PKEYS] = {DEFAULT, FULL_2, LIMITED_1, 0};
	static const uint16_t both[FAKE_PKEYS] = {LIMITED_1, FULL_1, DEFAULT, FULL_2};
	struct ibv_qp *qp;
	int index;

	set_pkeys(limited);
	index = ibv_get_pkey_index(context, 1, htobe16(LIMITED_1));
	qp = index >= 0 ? make_qp(IBV_QPT_UC, index) : NULL;
	return qp && qps_in(LIMITED_1) == 1 && move_to(swapped) && counts(3, 0) && move_to(both) &&
	       counts(2, 0) && qps_in(LIMITED_1) == 1 && sees(index, LIMITED_1) &&
	       !ibv_destroy_qp(qp);
}

/* Nothing answers that order: the device has the QPs when it is done. */
static bool await_built(void)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (qps_in(DEFAULT) + qps_in(FULL_1) + qps_in(0) < 2 && now_ms() < until)
		usleep(1000);
	return now_ms() < until;
}

/* A table that is written while the device is back and its port not ACTIVE yet. */
static bool follow_late_table(void)
{
	static const uint16_t none[FAKE_PKEYS] = {DEFAULT, 0, 0, 0};
	static const uint16_t *const early[] = {at_first, none};
	bool ok = true;

	for (size_t i = 0; ok && i < ARRAY_SIZE(early); i++) {
		ok = leave();
		set_pkeys(early[i]);
		fake_agent_build(migration, true);
		ok = ok && await_built();
		set_pkeys(swapped);
		ok = ok && !order(SHIM_RESUME) && counts(2, 0) && message(&left, &right);
	}
	return ok;
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "a device with three P_Keys"},
		{stay_in_partition, "QPs stay in their partition, whatever its index is"},
		{see_the_same, "the program sees the table that it saw first"},
		{connect_anew, "new QPs go by the program's indices"},
		{all_types, "UC, UD and XRC move as well, and back"},
		{name_what_lacks, "a P_Key that the port lacks ends the resume, by name"},
		{name_lost_membership, "so does one as a limited member only"},
		{take_full_for_limited, "a full membership stands for a limited one"},
		{follow_late_table, "a table that comes late counts for what was built ahead"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
