/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Live connections whose path record changes: the shim as it is shipped, both ends in this program,
 * on a played device. A connection leads from one GID of the port to another one, so that each end
 * has a path record of its own. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/guest-agent/pair.h"

#define ALIAS   0x0002c90300000002ull
#define LID     1
#define WINDOW  8
#define ROUNDS  400
#define MANY    60
#define SOON_MS 20000 /* only a fault takes so long */

static unsigned (*qps_on)(unsigned sl);
static unsigned (*qps_at_mtu)(enum ibv_mtu mtu);
static void (*hold_wire)(bool hold);
static void (*slow_calls)(unsigned us);
static void (*aliases)(const uint64_t guids[FAKE_GIDS]);
static struct ibv_ah_attr (*last_ah)(void);
static struct fake_calls (*calls)(void);
static struct end a, b;
static uint32_t numbers[256];
static struct ibv_mr *numbers_mr;

static bool connect_way(struct end *e, const struct end *peer, uint8_t from, uint8_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.ah_attr = {.is_global = true, .port_num = 1, .dlid = LID, .grh.sgid_index = from}};

	if (ibv_query_gid(context, 1, to, &attr.ah_attr.grh.dgid) ||
	    ibv_modify_qp(e->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return false;
	attr.qp_state = IBV_QPS_RTS;
	return !ibv_modify_qp(e->qp, &attr,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static bool open_all(void)
{
	const uint64_t guids[FAKE_GIDS] = {0, ALIAS};

	*(void **)&qps_on = dlsym(RTLD_DEFAULT, "fake_qps_on");
	*(void **)&qps_at_mtu = dlsym(RTLD_DEFAULT, "fake_qps_at_mtu");
	*(void **)&hold_wire = dlsym(RTLD_DEFAULT, "fake_hold_wire");
	*(void **)&slow_calls = dlsym(RTLD_DEFAULT, "fake_slow_calls");
	*(void **)&aliases = dlsym(RTLD_DEFAULT, "fake_aliases");
	*(void **)&last_ah = dlsym(RTLD_DEFAULT, "fake_last_ah");
	*(void **)&calls = dlsym(RTLD_DEFAULT, "fake_calls");
	if (!qps_on || !qps_at_mtu || !hold_wire || !slow_calls || !aliases || !last_ah || !calls)
		return false;
	aliases(guids);
	fake_agent_paths(LID);
	if (!open_device() || !make_end(&a) || !make_end(&b))
		return false;
	numbers_mr = ibv_reg_mr(pd, numbers, sizeof(numbers), IBV_ACCESS_LOCAL_WRITE);
	return numbers_mr && connect_way(&a, &b, 0, 1) && connect_way(&b, &a, 1, 0) &&
	       message(&a, &b) && message(&b, &a);
}

static void repath_a(unsigned sl, unsigned mtu)
{
	fake_agent_repath(FAKE_GUID, ALIAS, sl, mtu);
}

static void repath_b(unsigned sl, unsigned mtu)
{
	fake_agent_repath(ALIAS, FAKE_GUID, sl, mtu);
}

static bool until_on(unsigned sl, unsigned count)
{
	uint64_t until = now_ms() + SOON_MS;

	while (qps_on(sl) != count && now_ms() < until)
		usleep(1000);
	if (qps_on(sl) != count)
		printf("# %u QPs on SL %u, not %u\n", qps_on(sl), sl, count);
	return qps_on(sl) == count;
}

static bool talk(void)
{
	return message(&a, &b) && message(&b, &a);
}

/* The two ends are told at about the same time. */
static bool both_told(void)
{
	uint64_t made = calls().create_qp;

	repath_a(3, 4096);
	repath_b(3, 4096);
	return until_on(3, 2) && talk() && calls().create_qp == made;
}

/* The other end goes along, and keeps its own SL. */
static bool one_told(void)
{
	repath_a(5, 4096);
	return until_on(5, 1) && until_on(3, 1) && talk();
}

static bool nothing_new(void)
{
	unsigned asked = fake_agent_brought(PEER_PATH_HOLD);

	repath_a(5, 4096);
	repath_b(3, 4096);
	return talk() && !fake_agent_await_more(PEER_PATH_HOLD, asked, 1000);
}

/* The ends need the same MTU, though only one has heard; then the other one hears, too. */
static bool mtu_agreed(void)
{
	bool ok;

	repath_a(6, 1024);
	ok = until_on(6, 1) && talk() && qps_at_mtu(IBV_MTU_1024) == 2;
	repath_b(6, 1024);
	ok = ok && talk();
	repath_a(7, 4096);
	ok = ok && until_on(7, 1) && talk() && qps_at_mtu(IBV_MTU_1024) == 2;
	repath_b(7, 4096);
	return ok && until_on(7, 2) && talk() && qps_at_mtu(IBV_MTU_4096) == 2;
}

static bool in_a_row(void)
{
	for (unsigned sl = 1; sl <= 9; sl++) {
		repath_a(sl, 4096);
		repath_b(sl, 4096);
	}
	return until_on(9, 2) && talk();
}

static bool post_number(const struct end *e, uint32_t i, bool recv, unsigned half)
{
	struct ibv_sge sge = {(uintptr_t)&numbers[half * 64 + i % WINDOW], 4, numbers_mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = i,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = i % 3 ? IBV_SEND_SIGNALED : 0};
	struct ibv_recv_wr *bad_recv, rwr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

	if (recv)
		return !ibv_post_recv(e->qp, &rwr, &bad_recv);
	numbers[half * 64 + i % WINDOW] = i;
	return !ibv_post_send(e->qp, &wr, &bad);
}

/* A direction of checked traffic. */
struct flow {
	const struct end *from, *to;
	unsigned half;
	uint32_t posted, sent, came;
	bool ok;
};

/* Numbers come once and in order; every third send is not signalled. */
static void flow_step(struct flow *f)
{
	if (f->posted < ROUNDS && f->posted < f->came + WINDOW)
		f->ok &= post_number(f->to, f->posted++, true, f->half + 1);
	if (f->sent < f->posted && f->sent < f->came + WINDOW)
		f->ok &= post_number(f->from, f->sent++, false, f->half);
}

/* Completions of an end: receives of one flow, sends of the other one. */
static void take(const struct end *e, struct flow *in)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(e->cq, 1, &wc) == 1) {
		in->ok &= wc.status == IBV_WC_SUCCESS;
		if (wc.opcode != IBV_WC_RECV)
			continue;
		in->ok &= wc.wr_id == in->came &&
			  numbers[(in->half + 1) * 64 + in->came % WINDOW] == in->came;
		in->came++;
	}
}

static bool under_traffic(void)
{
	struct flow there = {&a, &b, 0, 0, 0, 0, true}, back = {&b, &a, 2, 0, 0, 0, true};
	uint64_t until = now_ms() + 3 * SOON_MS;
	unsigned ready = fake_agent_brought(PEER_PATH_READY), changes = 0;

	while ((there.came < ROUNDS || back.came < ROUNDS) && now_ms() < until && there.ok &&
	       back.ok) {
		flow_step(&there);
		flow_step(&back);
		take(&b, &there);
		take(&a, &back);
		if (there.came / 20 > changes) {
			changes++;
			repath_a(changes % 16, 4096);
			if (changes % 3)
				repath_b((changes + 1) % 16, 4096);
		}
	}
	printf("# %u and %u of %d came, %u READY\n", there.came, back.came, ROUNDS,
	       fake_agent_brought(PEER_PATH_READY) - ready);
	repath_a(3, 4096); /* whatever the last one was */
	repath_b(3, 4096);
	return there.ok && back.ok && there.came == ROUNDS && back.came == ROUNDS &&
	       fake_agent_brought(PEER_PATH_READY) - ready > 4 && until_on(3, 2);
}

/* Sends under way do not end. The program goes on, and the change comes when they do. */
static bool dead_path(void)
{
	unsigned aborts = fake_agent_brought(PEER_PATH_ABORT);
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};
	bool ok;

	hold_wire(true);
	ok = !ibv_post_recv(b.qp, &recv, &bad) && !ibv_post_recv(b.qp, &recv, &bad) && send_one(&a);
	repath_a(12, 4096);
	ok = ok && fake_agent_await_more(PEER_PATH_ABORT, aborts, SOON_MS) && qps_on(12) == 0 &&
	     send_one(&a);
	hold_wire(false);
	return ok && until_on(12, 1) && ends_with(&a) == IBV_WC_SUCCESS &&
	       ends_with(&a) == IBV_WC_SUCCESS && ends_with(&b) == IBV_WC_SUCCESS &&
	       ends_with(&b) == IBV_WC_SUCCESS && talk();
}

static bool moved(uint64_t migration)
{
	struct shim_report r;

	return !said(&r, SHIM_RELEASE, fake_agent_order(SHIM_RELEASE, migration, &r)) &&
	       !said(&r, SHIM_RESUME, fake_agent_order(SHIM_RESUME, migration, &r)) && talk();
}

/* The resume takes the path; the connection is not brought over once more. */
static bool in_a_suspend(void)
{
	unsigned asked = fake_agent_brought(PEER_PATH_HOLD);
	struct shim_report r;

	if (said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 7, &r)))
		return false;
	fake_agent_paths(LID);
	repath_a(13, 4096);
	repath_b(13, 4096);
	if (!moved(7))
		return false;
	return fake_agent_brought(PEER_PATH_HOLD) == asked;
}

/* A suspend comes while sends are held: the change gives way. */
static bool before_a_suspend(void)
{
	unsigned aborts, asked = fake_agent_brought(PEER_PATH_HOLD);
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};
	struct shim_report r;

	fake_agent_lose(PEER_PATH_DRAINED);
	hold_wire(true);
	if (ibv_post_recv(b.qp, &recv, &bad) || !send_one(&a))
		return false;
	repath_a(2, 4096);
	if (!fake_agent_await_more(PEER_PATH_HOLD, asked, SOON_MS))
		return false;
	aborts = fake_agent_brought(PEER_PATH_ABORT);
	hold_wire(false);
	fake_agent_lose(0);
	return !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 8, &r)) && moved(8) &&
	       ends_with(&a) == IBV_WC_SUCCESS && ends_with(&b) == IBV_WC_SUCCESS &&
	       fake_agent_brought(PEER_PATH_ABORT) >= aborts && talk();
}

static void *let_go(void *arg)
{
	(void)arg;
	usleep(300000);
	fake_agent_lose(0);
	return NULL;
}

/* An end may have begun anew already: the suspend waits until both have. */
static bool bound(void)
{
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED);
	struct shim_report r;
	pthread_t t;
	bool ok;

	fake_agent_lose(PEER_PATH_DRAINED);
	repath_a(4, 4096);
	repath_b(4, 4096);
	ok = fake_agent_await_more(PEER_PATH_DRAINED, drained, SOON_MS) &&
	     !pthread_create(&t, NULL, let_go, NULL);
	ok = ok && !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 9, &r)) &&
	     qps_on(4) == 2 && moved(9);
	pthread_join(t, NULL);
	return ok;
}

/* The other end is of an older build: it drops what it does not know. */
static bool older_peer(void)
{
	bool ok = true;

	fake_agent_forget_log();
	fake_agent_lose(PEER_PATH_HOLD);
	repath_a(14, 4096);
	for (uint64_t until = now_ms() + SOON_MS;
	     ok && now_ms() < until && !fake_agent_heard("do not know of paths that change");)
		ok = talk();
	ok = ok && qps_on(14) == 0 && fake_agent_heard("do not know of paths that change");
	fake_agent_lose(0);
	repath_a(15, 4096);
	return ok && until_on(15, 1) && talk();
}

/* The process of the other end has gone after it was told that sends have ended: ours is not held
 * for ever. */
static bool dead_peer(void)
{
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED);
	bool ok;

	fake_agent_lose(PEER_PATH_DRAINED);
	repath_a(1, 4096);
	/* Word of both ends is lost: an end that hears the other's would turn before it is told. */
	ok = fake_agent_await_more(PEER_PATH_DRAINED, drained + 1, SOON_MS);
	fake_agent_stranger(ALIAS);
	fake_agent_lose(0);
	ok = ok && message(&a, &b); /* the hardware still knows it */
	fake_agent_stranger(0);
	return ok;
}

/* A QP that is destroyed sets the other end free. */
static bool destroyed(void)
{
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED);
	struct end c, d;
	bool ok = make_end(&c) && make_end(&d) && connect_way(&c, &d, 0, 1) &&
		  connect_way(&d, &c, 1, 0) && message(&c, &d);

	fake_agent_lose(PEER_PATH_DRAINED);
	repath_a(10, 4096);
	ok = ok && fake_agent_await_more(PEER_PATH_DRAINED, drained, SOON_MS) &&
	     !ibv_destroy_qp(d.qp) && !ibv_destroy_qp(c.qp);
	fake_agent_lose(0);
	return ok && until_on(10, 1) && talk();
}

/* A record that nobody keeps is asked for again: no change of it would be told. */
static bool forgotten(void)
{
	unsigned asked = fake_agent_paths(LID);
	bool ok;

	fake_agent_forget_paths(FAKE_GUID, ALIAS, 8, 4096);
	ok = until_on(8, 1) && talk() && fake_agent_paths(LID) - asked == 2;
	fake_agent_repath(FAKE_GUID, ALIAS, 9, 4096);
	return ok && until_on(9, 1) && talk();
}

/* The other end asks while the real QP is being destroyed: then it is a connection no more. */
static void *ask_late(void *arg)
{
	(void)arg;
	usleep(100000);
	fake_agent_repath(FAKE_GUID, FAKE_GUID, 7, 4096);
	return NULL;
}

static bool asked_in_its_destruction(void)
{
	struct end c, d;
	unsigned aborts, drained;
	pthread_t t;
	bool ok = make_end(&c) && make_end(&d) && connect_way(&c, &d, 0, 0) &&
		  connect_way(&d, &c, 0, 0) && message(&c, &d);

	aborts = fake_agent_brought(PEER_PATH_ABORT);
	drained = fake_agent_brought(PEER_PATH_DRAINED);
	slow_calls(1500000);
	ok = ok && !pthread_create(&t, NULL, ask_late, NULL) && !ibv_destroy_qp(d.qp);
	slow_calls(0);
	ok = ok && !pthread_join(t, NULL) &&
	     fake_agent_await_more(PEER_PATH_ABORT, aborts, SOON_MS) &&
	     fake_agent_brought(PEER_PATH_DRAINED) == drained;
	return !ibv_destroy_qp(c.qp) && ok && talk();
}

/* A QP that has told that it has drained is left with its device: nothing more is said of it. */
static bool left_behind(void)
{
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED);
	struct ibv_context *before = context;
	struct ibv_pd *pd_before = pd;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct end c, d;
	bool ok;

	context = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(context);
	ibv_free_device_list(list);
	ok = make_end(&c) && make_end(&d) && connect_way(&c, &d, 0, 0) && connect_way(&d, &c, 0, 0);
	fake_agent_lose(PEER_PATH_DRAINED);
	fake_agent_repath(FAKE_GUID, FAKE_GUID, 8, 4096);
	ok = ok && fake_agent_await_more(PEER_PATH_DRAINED, drained + 1, SOON_MS) &&
	     !ibv_close_device(context);
	drained = fake_agent_brought(PEER_PATH_DRAINED);
	ok = ok && !fake_agent_await_more(PEER_PATH_DRAINED, drained, 2500);
	fake_agent_lose(0);
	context = before;
	pd = pd_before;
	return ok && talk();
}

/* The program stops its sends, and the other end may have begun anew already. */
static bool stopped_when_bound(void)
{
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED),
		 aborts = fake_agent_brought(PEER_PATH_ABORT);
	struct ibv_qp_attr stop = {.qp_state = IBV_QPS_SQD}, go = {.qp_state = IBV_QPS_RTS}, is;
	struct ibv_qp_init_attr init;
	bool ok;

	fake_agent_lose(PEER_PATH_DRAINED);
	repath_a(3, 4096);
	ok = fake_agent_await_more(PEER_PATH_DRAINED, drained + 1, SOON_MS) &&
	     !ibv_modify_qp(b.qp, &stop, IBV_QP_STATE) &&
	     !fake_agent_await_more(PEER_PATH_ABORT, aborts, 500);
	fake_agent_lose(0);
	return ok && until_on(3, 1) && !ibv_query_qp(b.qp, &is, IBV_QP_STATE, &init) &&
	       is.qp_state == IBV_QPS_SQD && !ibv_modify_qp(b.qp, &go, IBV_QP_STATE) && talk();
}

/* The hardware takes its time for each of many QPs, and the program's verbs do not wait for all. */
static bool many(void)
{
	static struct end ends[MANY][2];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr is;
	uint64_t until, before, longest = 0;
	bool ok = true;

	for (unsigned i = 0; i < MANY && ok; i++)
		ok = make_end(&ends[i][0]) && make_end(&ends[i][1]) &&
		     connect_way(&ends[i][0], &ends[i][1], 0, 0) &&
		     connect_way(&ends[i][1], &ends[i][0], 0, 0);
	slow_calls(2000);
	fake_agent_repath(FAKE_GUID, FAKE_GUID, 12, 4096);
	for (until = now_ms() + SOON_MS; ok && qps_on(12) != 2 * MANY && now_ms() < until;) {
		before = now_ms();
		ok = !ibv_query_qp(a.qp, &is, IBV_QP_STATE, &init);
		if (now_ms() - before > longest)
			longest = now_ms() - before;
		usleep(1000);
	}
	slow_calls(0);
	printf("# a verb has waited %llu ms\n", (unsigned long long)longest);
	ok = ok && until_on(12, 2 * MANY) && longest < MANY * 2 * 4 * 2 / 2;
	for (unsigned i = 0; i < MANY && ok; i++)
		ok = message(&ends[i][0], &ends[i][1]) && !ibv_destroy_qp(ends[i][0].qp) &&
		     !ibv_destroy_qp(ends[i][1].qp);
	return ok;
}

/* An end needs several tries, and its program asks for the state of the QP in between. */
static bool looked_at_between_tries(void)
{
	const uint64_t all[FAKE_GIDS] = {0, ALIAS}, none[FAKE_GIDS] = {0};
	unsigned drained = fake_agent_brought(PEER_PATH_DRAINED);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr is;
	uint64_t until;
	bool ok;

	fake_agent_lose(PEER_PATH_DRAINED);
	repath_a(5, 4096);
	ok = fake_agent_await_more(PEER_PATH_DRAINED, drained + 1, SOON_MS);
	aliases(none);
	fake_agent_lose(0);
	ok = ok && until_on(5, 1);
	for (until = now_ms() + 1500; ok && now_ms() < until; usleep(1000))
		ok = !ibv_query_qp(b.qp, &is, IBV_QP_STATE, &init) && is.qp_state == IBV_QPS_RTS;
	aliases(all);
	return ok && talk();
}

/* A new agent keeps no record, so it would tell of no change. */
static bool agent_again(void)
{
	fake_agent_leave();
	fake_agent_set_path(FAKE_GUID, ALIAS, 2, 4096); /* while nobody could hear it */
	return !fake_agent_return() && until_on(2, 1) && talk();
}

static bool handles(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .dlid = LID, .sl = 1};
	struct ibv_ah *ah, *later;
	uint64_t until = now_ms() + SOON_MS;
	bool ok;

	if (ibv_query_gid(context, 1, 1, &attr.grh.dgid))
		return false;
	ah = ibv_create_ah(pd, &attr);
	repath_a(11, 4096);
	while (last_ah().sl != 11 && now_ms() < until)
		usleep(1000);
	ok = ah && last_ah().sl == 11;
	fake_agent_paths(LID);
	later = ibv_create_ah(pd, &attr);
	return ok && later && !ibv_destroy_ah(ah) && !ibv_destroy_ah(later);
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "two ends with a path record each"},
		{both_told, "both ends are told: the same QPs, on the new SL"},
		{one_told, "one end is told: the other one goes along with its own SL"},
		{nothing_new, "a record that says nothing new is left alone"},
		{mtu_agreed, "both ends come to the same MTU"},
		{in_a_row, "many changes in a row: the last one counts"},
		{under_traffic, "changes under traffic: nothing lost, nothing twice"},
		{dead_path, "a dead path: the program goes on, the change comes later"},
		{in_a_suspend, "a change in a suspend is the resume's"},
		{before_a_suspend, "a change gives way to a suspend"},
		{bound, "a suspend waits for a change that cannot be given up"},
		{older_peer, "the other end does not know the words"},
		{dead_peer, "the other end's process has gone"},
		{destroyed, "a QP is destroyed in the middle"},
		{forgotten, "a record that the agent has forgotten is asked for again"},
		{asked_in_its_destruction, "a QP is asked while it is being destroyed"},
		{left_behind, "a device is closed with a QP that takes another path"},
		{stopped_when_bound, "the program stops a QP whose other end may have begun anew"},
		{many, "many QPs: verbs do not wait for all of them"},
		{looked_at_between_tries, "a QP is looked at between two tries to connect it anew"},
		{agent_again, "the agent is started again: records are asked for again"},
		{handles, "address handles are made anew"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
