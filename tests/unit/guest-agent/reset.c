/* SPDX-License-Identifier: GPL-2.0-or-later */
/* QPs that go to RESET and are connected once more, with completions that nobody has polled: the
 * shim as it is shipped, on a played device. The numbers of its log begin anew then. */
#include <dlfcn.h>

#include "tests/unit/guest-agent/pair.h"

#define LEFT  3
#define SHARE 4 /* receives of a shared queue */

static struct end a, b;
static struct ibv_srq *srq;
static void (*clean_on_reset)(bool clean);

static bool open_all(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = SHARE, .max_sge = 1}};

	*(void **)&clean_on_reset = dlsym(RTLD_DEFAULT, "fake_clean_on_reset");
	if (!clean_on_reset || !open_device() || !make_pair(&a, &b, 0, true) || !message(&a, &b))
		return false;
	srq = ibv_create_srq(pd, &init);
	return srq;
}

static bool reset(struct end *e)
{
	struct ibv_qp_attr a0 = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_attr a1 = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	return !ibv_modify_qp(e->qp, &a0, IBV_QP_STATE) &&
	       !ibv_modify_qp(e->qp, &a1,
			      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

/* Messages whose sender has not polled; when the last has come, all its completions are there. */
static bool leave(const struct end *from, const struct end *to)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};

	for (uint64_t i = 0; i < LEFT; i++) {
		struct ibv_recv_wr *bad, recv = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

		if (ibv_post_recv(to->qp, &recv, &bad) || !send_one(from) ||
		    ends_with(to) != IBV_WC_SUCCESS)
			return false;
	}
	return true;
}

static bool goes_on(void)
{
	struct shim_report r;
	bool ok = true;
	uint64_t i;

	for (i = 0; ok && i < 40; i++) /* more than the queues hold */
		ok = message(&a, &b) && message(&b, &a);
	if (!ok)
		printf("# message %u does not come\n", (unsigned)i);
	return ok && !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 1, &r)) &&
	       !said(&r, SHIM_RELEASE, fake_agent_order(SHIM_RELEASE, 1, &r)) &&
	       !said(&r, SHIM_RESUME, fake_agent_order(SHIM_RESUME, 1, &r)) && message(&a, &b);
}

static bool again(bool clean)
{
	struct ibv_wc wc[2 * LEFT];
	bool ok = leave(&a, &b);

	clean_on_reset(clean);
	ok = ok && reset(&a) && reset(&b) && connect_end(&a, &b, 0, true) &&
	     connect_end(&b, &a, 0, true);
	return ok && ibv_poll_cq(a.cq, 2 * LEFT, wc) == (clean ? 0 : LEFT) && goes_on();
}

static bool they_stay(void)
{
	return again(false);
}

static bool they_go(void)
{
	return again(true);
}

/* An unsignalled send, and a suspend that is given up: the shim's own completion is on its way. */
static bool marked(void)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct shim_report r;

	clean_on_reset(true);
	if (ibv_post_send(a.qp, &wr, &bad)) /* there is no receive for it */
		return false;
	return !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, 1, &r)) &&
	       fake_agent_order(SHIM_ABORT, 1, &r) == -ECANCELED && reset(&a) && reset(&b) &&
	       connect_end(&a, &b, 0, true) && connect_end(&b, &a, 0, true) && goes_on();
}

/* A receive that was taken, and whose completion goes with its QP, comes back to the queue. */
static bool shared(void)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct end from, to = {.cq = ibv_create_cq(context, 64, NULL, NULL, 0)};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.send_cq = to.cq,
					.recv_cq = to.cq,
					.srq = srq,
					.cap = {16, 0, 1, 0, 0}};

	clean_on_reset(true);
	to.qp = ibv_create_qp(pd, &init);
	if (!to.qp || !make_end(&from))
		return false;
	for (int i = 0; i < 3 * SHARE; i++) {
		struct ibv_recv_wr *bad, recv = {.sg_list = &sge, .num_sge = 1};

		if (!reset(&from) || !reset(&to) || !connect_end(&from, &to, 0, true) ||
		    !connect_end(&to, &from, 0, true) || ibv_post_srq_recv(srq, &recv, &bad) ||
		    !send_one(&from) || ends_with(&from) != IBV_WC_SUCCESS) {
			printf("# round %d\n", i);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device"},
		{they_stay, "completions stay in the CQ"},
		{they_go, "completions go with the RESET"},
		{marked, "a request of the shim goes with the RESET"},
		{shared, "receives of a shared queue come back"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
