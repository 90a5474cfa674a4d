/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs that do what nobody expected, and may: the shim as it is shipped, with its helper
 * thread, on a played device. A connection of the program is there, and goes on. */
#include <fcntl.h>
#include <poll.h>

#include "tests/unit/guest-agent/pair.h"

static struct end a, b;
static uint64_t migration;
static char more[4096];

static bool order_all(void)
{
	struct shim_report r;

	migration++;
	return !said(&r, SHIM_SUSPEND, fake_agent_order(SHIM_SUSPEND, migration, &r)) &&
	       !said(&r, SHIM_RELEASE, fake_agent_order(SHIM_RELEASE, migration, &r)) &&
	       !said(&r, SHIM_RESUME, fake_agent_order(SHIM_RESUME, migration, &r));
}

static bool moves(void)
{
	return order_all() && message(&a, &b);
}

static bool open_all(void)
{
	return open_device() && make_pair(&a, &b, 0, true) && message(&a, &b) && moves();
}

static struct ibv_context *open_again(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list ? ibv_open_device(list[0]) : NULL;

	ibv_free_device_list(list);
	return c;
}

/* A probe: ibv_close_device(3) does not release what was made on it, which is a leak and no error.
 */
static bool leaves_all(void)
{
	struct ibv_context *c = open_again();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	struct ibv_pd *p = ibv_alloc_pd(c);
	struct ibv_cq *q = ibv_create_cq(c, 10, NULL, ch, 0);
	struct ibv_mr *m = ibv_reg_mr(p, more, sizeof(more),
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_srq_init_attr srq = {.attr = {4, 1, 0}};
	struct ibv_srq *s = ibv_create_srq(p, &srq);
	struct ibv_qp_init_attr init = {.send_cq = q,
					.recv_cq = q,
					.srq = s,
					.qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, 0}};

	return m && s && ibv_create_qp(p, &init) && !ibv_close_device(c) && moves();
}

static bool leaves_pd(void)
{
	struct ibv_context *c = open_again();

	return ibv_alloc_pd(c) && !ibv_close_device(c) && moves();
}

/* Libraries try whether the device can do it, and give the region back. */
static bool tries_odp(void)
{
	struct ibv_mr *m = ibv_reg_mr(pd, more, sizeof(more),
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct shim_report r;

	return m && fake_agent_order(SHIM_SUSPEND, ++migration, &r) && strstr(r.why, "on demand") &&
	       !ibv_dereg_mr(m) && moves();
}

/* All numbers that the device gives are taken in the guest, by a process that has named them. */
static bool finds_numbers_taken(void)
{
	bool ok;

	fake_agent_take_numbers(true);
	ok = make_pair(&a, &b, 0, true) && message(&a, &b) && a.qp->qp_num > 0xff0000 &&
	     b.qp->qp_num != a.qp->qp_num && moves();
	fake_agent_take_numbers(false);
	return ok;
}

static bool readable(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, 300) > 0;
}

static unsigned events(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	unsigned n = 0;
	void *arg;

	while (!ibv_get_cq_event(ch, &cq, &arg)) {
		ibv_ack_cq_events(cq, 1);
		n++;
	}
	return n;
}

static bool one_way(int flags)
{
	struct ibv_sge sge = {(uintptr_t)buffer, 1, mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED | (unsigned)flags};

	return !ibv_post_recv(b.qp, &recv, &bad_recv) && !ibv_post_send(a.qp, &wr, &bad) &&
	       ends_with(&a) == IBV_WC_SUCCESS;
}

/* A program that waits for a solicited message is woken by that one, and not by another one that
 * came before a migration; nor does it miss one that did. */
static bool waits_for_solicited(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(context);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr at = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	bool ok;

	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	b.cq = init.send_cq = init.recv_cq = ibv_create_cq(context, 64, NULL, ch, 0);
	b.qp = ibv_create_qp(pd, &init);
	if (ibv_modify_qp(b.qp, &at,
			  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) ||
	    !make_end(&a) || !connect_end(&a, &b, 0, true) || !connect_end(&b, &a, 0, true))
		return false;
	ibv_req_notify_cq(b.cq, 1);
	ok = one_way(0) && order_all() && !readable(ch->fd) && !events(ch);
	ok = ok && one_way(IBV_SEND_SOLICITED) && readable(ch->fd) && events(ch) == 1;
	ibv_req_notify_cq(b.cq, 1);
	return ok && one_way(IBV_SEND_SOLICITED) && order_all() && readable(ch->fd) &&
	       events(ch) == 1;
}

int main(int argc, char **argv)
{
	static const struct pair_test tests[] = {
		{open_all, "the shim opens the played device, and it moves"},
		{leaves_pd, "a device is closed with a PD on it"},
		{leaves_all, "a device is closed with a QP, CQs and regions on it"},
		{tries_odp, "regions on demand keep it from moving while they are there"},
		{waits_for_solicited, "solicited events are those of solicited messages"},
		{finds_numbers_taken,
		 "it gets a number of the agent's where others have taken all"},
	};

	(void)argc;
	return run_under_shim(argv, tests, ARRAY_SIZE(tests));
}
