/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A program that names its peers by LID alone, as perftest, the pingpongs, UCX and NCCL do on
 * InfiniBand by default, and moves that give the port another LID. The shim is the shipped one,
 * with its helper thread, on a played device that delivers to the right LID only. */
#include <dlfcn.h>

#include "tests/unit/guest-agent/pair.h"

#define TOLD      7 /* the LID that the program is told, and tells */
#define MULTICAST 0xc001
#define OTHER     0x0002c90300000002ull /* the GUID of another port */
#define QKEY      0x11111111
#define TEXT      "it is addressed by LID alone, without a GID (GRH), and none is known for it"

static const uint64_t us_alone[] = {FAKE_GUID}, both_ports[] = {OTHER, FAKE_GUID},
		      us_first[] = {FAKE_GUID, OTHER};
static const uint16_t partitions[FAKE_PKEYS] = {0xffff, 0x8001};

static struct end rc_left, rc_right, uc_left, uc_right, ud_left, ud_right, global_left,
	global_right;
static struct ibv_ah *ud_ah, *ud_global_ah;
static struct ibv_mr *ud_mr;
static char ud_buffer[FAKE_GRH + 8];
static uint64_t migration;
static unsigned present = TOLD;
static unsigned (*port_lid)(unsigned lid);  /* fake_lid() */
static struct ibv_ah_attr (*last_ah)(void); /* fake_last_ah() */
static unsigned (*alt_dlid)(void);          /* fake_alt_dlid() */
static void (*set_pkeys)(const uint16_t *); /* fake_pkeys() */

static int order(uint16_t type, bool peer)
{
	struct shim_report r;
	int rc = peer ? fake_agent_order_peer(type, migration, FAKE_GUID, &r)
		      : fake_agent_order(type, migration, &r);

	return said(&r, type, rc);
}

static bool move_as(bool peer, unsigned lid)
{
	migration++;
	if (order(SHIM_SUSPEND, peer) || order(SHIM_RELEASE, peer))
		return false;
	present = port_lid(lid);
	fake_agent_paths(lid);
	return !order(SHIM_RESUME, peer);
}

static bool move_to(unsigned lid)
{
	return move_as(false, lid);
}

static bool three_moves(bool (*still)(void))
{
	return move_to(10) && still() && move_to(TOLD) && still() && move_to(11) && still();
}

static bool both_ways(const struct end *a, const struct end *b)
{
	return message(a, b) && message(b, a);
}

static bool pair_of(enum ibv_qp_type type, struct end *a, struct end *b)
{
	bool ok;

	qp_type = type;
	ok = make_pair(a, b, TOLD, false) && both_ways(a, b);
	qp_type = IBV_QPT_RC;
	return ok;
}

static bool shows_what_it_told(void)
{
	struct ibv_port_attr port;

	return !ibv_query_port(context, 1, &port) && port.lid == TOLD && !port.flags;
}

static bool open_all(void)
{
	if (!open_device())
		return false;
	port_lid = (unsigned (*)(unsigned))dlsym(RTLD_DEFAULT, "fake_lid");
	last_ah = (struct ibv_ah_attr(*)(void))dlsym(RTLD_DEFAULT, "fake_last_ah");
	alt_dlid = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "fake_alt_dlid");
	set_pkeys = (void (*)(const uint16_t *))dlsym(RTLD_DEFAULT, "fake_pkeys");
	set_pkeys(partitions);
	port_lid(TOLD);
	fake_agent_paths(TOLD);
	fake_agent_lid(TOLD, 1, us_alone);
	ud_mr = ibv_reg_mr(pd, ud_buffer, sizeof(ud_buffer), IBV_ACCESS_LOCAL_WRITE);
	return last_ah && alt_dlid && ud_mr && shows_what_it_told();
}

static bool rc_works(void)
{
	return both_ways(&rc_left, &rc_right);
}

static bool rc(void)
{
	return pair_of(IBV_QPT_RC, &rc_left, &rc_right) && three_moves(rc_works);
}

static bool uc_works(void)
{
	return both_ways(&uc_left, &uc_right) && rc_works();
}

static bool uc(void)
{
	return pair_of(IBV_QPT_UC, &uc_left, &uc_right) && three_moves(uc_works);
}

static bool to_rts(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY))
		return false;
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE))
		return false;
	a.qp_state = IBV_QPS_RTS;
	return !ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static bool make_ud(struct end *e)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .cap = {16, 16, 1, 1, 0}};

	e->cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	e->qp = e->cq ? ibv_create_qp(pd, &init) : NULL;
	return e->qp && to_rts(e);
}

static struct ibv_ah *make_ah(uint16_t lid, bool global)
{
	struct ibv_ah_attr a = {.dlid = lid, .port_num = 1, .is_global = global};

	if (global && ibv_query_gid(context, 1, 0, &a.grh.dgid))
		return NULL;
	return ibv_create_ah(pd, &a);
}

static bool post_datagram(const struct end *from, const struct end *to, struct ibv_ah *ah)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.ud = {ah, to->qp->qp_num, QKEY}};

	return !ibv_post_send(from->qp, &wr, &bad);
}

static bool await(struct ibv_cq *cq, struct ibv_wc *ret_wc)
{
	uint64_t until = now_ms() + WAIT_MS;

	while (now_ms() < until) {
		if (ibv_poll_cq(cq, 1, ret_wc) == 1)
			return ret_wc->status == IBV_WC_SUCCESS;
		usleep(1000);
	}
	return false;
}

/* Arrives from the number and the LID that the program knows. */
static bool datagram(const struct end *from, const struct end *to, struct ibv_ah *ah)
{
	struct ibv_sge sge = {(uintptr_t)ud_buffer, sizeof(ud_buffer), ud_mr->lkey};
	struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};
	struct ibv_wc sent, got = {0};

	if (ibv_post_recv(to->qp, &recv, &bad) || !post_datagram(from, to, ah) ||
	    !await(from->cq, &sent) || !await(to->cq, &got))
		return false;
	if (got.src_qp == from->qp->qp_num && got.slid == TOLD)
		return true;
	printf("# from QP 0x%x at LID %u, not 0x%x at %d\n", got.src_qp, got.slid, from->qp->qp_num,
	       TOLD);
	return false;
}

static bool ud_works(void)
{
	return datagram(&ud_left, &ud_right, ud_ah) && datagram(&ud_right, &ud_left, ud_ah) &&
	       datagram(&ud_left, &ud_right, ud_global_ah);
}

static bool ud(void)
{
	if (!make_ud(&ud_left) || !make_ud(&ud_right))
		return false;
	ud_ah = make_ah(TOLD, false);
	ud_global_ah = make_ah(TOLD, true);
	return ud_ah && ud_global_ah && ud_works() && three_moves(ud_works);
}

static bool all_work(void)
{
	return uc_works() && ud_works() && shows_what_it_told();
}

static bool handle_is_by_lid(void)
{
	struct ibv_ah_attr a;
	struct ibv_ah *ah = make_ah(TOLD, false);

	a = last_ah();
	return ah && !a.is_global && a.dlid == present && !ibv_destroy_ah(ah);
}

static bool a_peer_moves(void)
{
	return move_as(true, 12) && all_work() && move_as(true, 13) && all_work();
}

static bool asks_once(void)
{
	unsigned before = fake_agent_lid(TOLD, 1, us_alone);

	return move_to(14) && all_work() && fake_agent_lid(TOLD, 1, us_alone) == before;
}

/* The LID that the program has told is no port's any more. */
static bool connects_anew(void)
{
	struct end a, b;

	return pair_of(IBV_QPT_RC, &a, &b) && pair_of(IBV_QPT_UC, &uc_left, &uc_right) &&
	       handle_is_by_lid() && move_to(15) && both_ways(&a, &b) && all_work();
}

static bool mixture(void)
{
	return make_pair(&global_left, &global_right, TOLD, true) &&
	       both_ways(&global_left, &global_right) && move_to(16) &&
	       both_ways(&global_left, &global_right) && all_work();
}

static bool query_shows_what_was_given(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return !ibv_query_qp(rc_left.qp, &a, IBV_QP_AV, &init) && a.ah_attr.dlid == TOLD;
}

static bool destroy(struct end *e)
{
	return !ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq);
}

/* Suspends, which is refused, and everything goes on. */
static bool refused(const char *text)
{
	struct shim_report r;

	migration++;
	if (fake_agent_order(SHIM_SUSPEND, migration, &r) != -EOPNOTSUPP) {
		puts("# the suspend is not refused");
		return false;
	}
	if (!strstr(r.why, text))
		printf("# refused by \"%s\"\n", r.why);
	return strstr(r.why, text);
}

static bool says_how_to_go_on(void)
{
	return refused("ibvmig-agent --grh-required");
}

static bool lid_of_nobody(void)
{
	struct end a, b;

	return make_end(&a) && make_end(&b) && connect_end(&a, &b, 99, false) && refused(TEXT) &&
	       says_how_to_go_on() && destroy(&a) && destroy(&b) && move_to(17) && all_work();
}

static bool datagrams_to_nobody(void)
{
	struct ibv_ah *ah = make_ah(99, false);
	struct ibv_wc sent;
	struct end a;

	return ah && make_ud(&a) && post_datagram(&a, &ud_left, ah) && await(a.cq, &sent) &&
	       refused("it sends datagrams by LID alone, without a GID (GRH)") &&
	       says_how_to_go_on() && destroy(&a) && !ibv_destroy_ah(ah) && move_to(18) &&
	       all_work();
}

/* A multicast LID is no port's: nobody is asked, and the handle stays as it is. */
static bool multicast(void)
{
	unsigned before = fake_agent_lid(TOLD, 1, us_alone);
	struct ibv_ah *ah = make_ah(MULTICAST, false);
	struct ibv_wc sent;
	struct end a;

	return ah && last_ah().dlid == MULTICAST && make_ud(&a) &&
	       post_datagram(&a, &ud_left, ah) && await(a.cq, &sent) && move_to(19) && all_work() &&
	       fake_agent_lid(TOLD, 1, us_alone) == before && destroy(&a) && !ibv_destroy_ah(ah);
}

/* Two ports have the LID, as with shared-port addresses, and one of them has the QP. */
static bool one_of(const uint64_t *ports)
{
	struct end a, b, c, d;
	struct ibv_ah *ah;
	bool ok;

	fake_agent_lid(TOLD, 2, ports);
	fake_agent_stranger(OTHER);
	ah = make_ah(TOLD, false);
	ok = ah && pair_of(IBV_QPT_RC, &a, &b) && make_ud(&c) && make_ud(&d) &&
	     datagram(&c, &d, ah) && move_to(20) && both_ways(&a, &b) && datagram(&c, &d, ah) &&
	     all_work();
	return ok && destroy(&a) && destroy(&b) && destroy(&c) && destroy(&d) &&
	       !ibv_destroy_ah(ah);
}

static bool one_of_two(void)
{
	return one_of(both_ports) && one_of(us_first);
}

/* A VM had the LID and is elsewhere. By now a port without a shim has it, and the QP that is meant.
 */
static bool goes_by_the_lid(void)
{
	static const uint64_t gone[] = {OTHER};
	struct ibv_ah *ah;
	struct ibv_wc sent, got;
	struct end a, b;
	struct ibv_sge sge = {(uintptr_t)ud_buffer, sizeof(ud_buffer), ud_mr->lkey};
	struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};
	bool ok;

	fake_agent_paths(56);
	fake_agent_lid(present, 1, gone);
	ah = make_ah((uint16_t)present, false);
	ok = ah && make_ud(&a) && make_ud(&b) && !ibv_post_recv(b.qp, &recv, &bad) &&
	     post_datagram(&a, &b, ah) && await(a.cq, &sent) && await(b.cq, &got) &&
	     refused("it sends datagrams to a QP that is not under a shim");
	fake_agent_paths(present);
	fake_agent_lid(TOLD, 1, us_alone);
	return ok && destroy(&a) && destroy(&b) && !ibv_destroy_ah(ah);
}

/* Another VM had the LID when the agent asked last. */
static bool asks_anew(void)
{
	struct end a, b;
	bool ok;

	fake_agent_lid(TOLD, 1, us_alone);
	fake_agent_stale_lid(OTHER);
	ok = pair_of(IBV_QPT_RC, &a, &b) && move_to(23) && both_ways(&a, &b);
	fake_agent_stale_lid(0);
	return ok && destroy(&a) && destroy(&b);
}

/* Whoever has the LID does not answer, and the agent knows nothing newer: that is not waited for
 * twice. */
static bool asks_each_port_once(void)
{
	unsigned asked = fake_agent_lid(TOLD, 1, us_alone), before;
	struct end a, b;
	bool ok;

	fake_agent_lose_ways(true);
	before = fake_agent_brought(PEER_RESOLVE);
	ok = make_end(&a) && make_end(&b) && connect_end(&a, &b, TOLD, false) &&
	     fake_agent_brought(PEER_RESOLVE) == before + 1 &&
	     fake_agent_lid(TOLD, 1, us_alone) == asked + 2;
	fake_agent_lose_ways(false);
	return ok && destroy(&a) && destroy(&b);
}

/* No path is known in this partition, and the LID that was told leads nowhere. */
static bool waits_for_the_path(void)
{
	struct end a, b;
	bool ok;

	pkey_index = 1;
	ok = make_pair(&a, &b, TOLD, true) && both_ways(&a, &b);
	pkey_index = 0;
	fake_agent_lid(TOLD, 2, both_ports);
	return ok && destroy(&a) && destroy(&b);
}

/* After moves two VMs at the LID may have the same number. */
static bool both_of_two(void)
{
	struct end a, b;
	bool ok;

	fake_agent_stranger(0); /* all that is for the other port comes to us */
	ok = make_end(&a) && make_end(&b) && connect_end(&a, &b, TOLD, false) &&
	     refused("its peer's LID and QP number are those of two VMs");
	fake_agent_lid(TOLD, 1, us_alone);
	return ok && destroy(&a) && destroy(&b) && move_to(21) && all_work();
}

/* What the program asks again is what it knows, though the port has another LID. */
static bool connects_as_told(void)
{
	struct ibv_port_attr port;
	struct end a, b;

	return !ibv_query_port(context, 1, &port) && make_pair(&a, &b, port.lid, false) &&
	       both_ways(&a, &b) && make_pair(&a, &b, port.lid, true) && both_ways(&a, &b) &&
	       move_to(22) && both_ways(&a, &b) && all_work();
}

/* The other end has another LID, and this process had no QP there when it moved. */
static bool asks_for_the_path_again(void)
{
	struct end a, b;
	struct ibv_ah *ah;
	struct ibv_ah_attr built;

	present = port_lid(30);
	fake_agent_paths(30);
	ah = make_ah(TOLD, true);
	built = last_ah();
	return ah && built.dlid == 30 && make_pair(&a, &b, TOLD, true) && both_ways(&a, &b);
}

static bool alternate(struct end *e, bool global)
{
	struct ibv_qp_attr a = {.alt_port_num = 1,
				.alt_ah_attr = {.dlid = TOLD, .port_num = 1, .is_global = global}};
	struct ibv_qp_init_attr init;

	if (global && ibv_query_gid(context, 1, 0, &a.alt_ah_attr.grh.dgid))
		return false;
	return !ibv_modify_qp(e->qp, &a, IBV_QP_ALT_PATH) && alt_dlid() == present &&
	       !ibv_query_qp(e->qp, &a, IBV_QP_ALT_PATH, &init) && a.alt_ah_attr.dlid == TOLD;
}

static bool alternate_paths(void)
{
	struct end a, b;

	return make_pair(&a, &b, TOLD, false) && alternate(&a, false) && alternate(&a, true) &&
	       refused("it has an alternate path (APM)") && destroy(&a) && destroy(&b);
}

/* The hardware refuses: the QP is where it was, and connects to whom its program says next. */
static bool a_refused_connect_leaves_nothing(void)
{
	struct ibv_qp_attr wrong = {.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_256,
				    .ah_attr = {.dlid = TOLD, .port_num = 1},
				    .min_rnr_timer = 99},
			   now;
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_init_attr init;
	struct end a, b, c;

	if (!make_end(&a) || !make_end(&b) || !make_end(&c))
		return false;
	wrong.dest_qp_num = c.qp->qp_num;
	return ibv_modify_qp(a.qp, &wrong, mask) == EINVAL &&
	       !ibv_query_qp(a.qp, &now, IBV_QP_DEST_QPN | IBV_QP_AV, &init) && !now.dest_qp_num &&
	       !now.ah_attr.dlid && destroy(&c) && move_to(24) &&
	       connect_end(&a, &b, TOLD, false) && connect_end(&b, &a, TOLD, false) &&
	       both_ways(&a, &b) && move_to(25) && both_ways(&a, &b) && destroy(&a) && destroy(&b);
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device"},
		{rc, "RC by LID alone goes on, three times"},
		{uc, "UC by LID alone goes on, three times"},
		{ud, "UD by LID alone goes on, three times, and senders are known"},
		{a_peer_moves, "a peer that moves is followed"},
		{asks_once, "nobody asks again whose LID it is"},
		{handle_is_by_lid, "a handle by LID has the present one, and no GRH"},
		{connects_anew, "the LID that was told is good for new connections"},
		{mixture, "connections with and without a GRH move together"},
		{query_shows_what_was_given, "a query of the QP tells the program's LID"},
		{lid_of_nobody, "a LID of nobody is refused by name"},
		{datagrams_to_nobody, "so are datagrams there"},
		{multicast, "multicast LIDs are left alone"},
		{one_of_two, "of two ports at a LID the one with the QP is found"},
		{goes_by_the_lid, "datagrams to a QP of no VM go to the LID that was named"},
		{asks_anew, "a LID that another VM had is asked for anew"},
		{asks_each_port_once, "a port that does not answer is asked once"},
		{waits_for_the_path, "a new connection waits for its path"},
		{both_of_two, "two that both have it are refused by name"},
		{connects_as_told, "what ibv_query_port tells is good for all"},
		{alternate_paths, "the LID of an alternate path is translated, too"},
		{a_refused_connect_leaves_nothing, "what the hardware refuses is not remembered"},
		{asks_for_the_path_again, "a path from before another's move is not used"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
